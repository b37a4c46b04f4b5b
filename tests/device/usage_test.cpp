// What `check` refuses and what `cost` counts. Nothing is computed here: addresses are made up.

#include "mfsdp/base/error.h"
#include "mfsdp/device/operation_table.h"

#include "support/catch.h"

#include <string>

using namespace mfsdp::device;

namespace {

using Sizes = std::initializer_list<std::int64_t>;

/// A dense tensor at an address of its own.
Tensor make(Sizes sizes, DType dtype = DType::float32) {
    static std::uintptr_t next = 0x10000;
    next += 0x10000;
    return Tensor::dense(reinterpret_cast<std::byte*>(next), dtype, sizes);
}

Tensor with_type(Tensor tensor, DType dtype) {
    tensor.dtype = dtype;
    return tensor;
}

Tensor without_memory(Tensor tensor) {
    tensor.data = nullptr;
    return tensor;
}

Tensor with_gaps(Tensor tensor) {
    for (int axis = 0; axis + 1 < tensor.rank; ++axis) tensor.strides[static_cast<std::size_t>(axis)] += 8;
    return tensor;
}

Tensor with_strided_columns(Tensor tensor) {
    tensor.strides[static_cast<std::size_t>(tensor.rank - 1)] = 2;
    return tensor;
}

/// Wanted: `operation` passes, and fails with each of these in place of `member`.
template <class Op>
void refuses(const Op& operation, Tensor Op::*member, std::initializer_list<Tensor> wrong) {
    CHECK_NOTHROW(operation.check());
    for (const Tensor& tensor : wrong) {
        Op changed = operation;
        changed.*member = tensor;
        INFO(Op::kName << " with " << tensor.describe());
        CHECK_THROWS_AS(changed.check(), mfsdp::InternalError);
    }
}

/// Faults that are wrong for every argument: another type, no memory, one more element in the last dimension.
template <class Op>
void refuses_the_usual(const Op& operation, std::initializer_list<Tensor Op::*> members) {
    for (Tensor Op::*const member : members) {
        const Tensor right = operation.*member;
        Tensor larger = right;
        ++larger.shape[static_cast<std::size_t>(right.rank - 1)];
        Tensor deeper = right;
        deeper.shape[static_cast<std::size_t>(deeper.rank++)] = 1;
        refuses(operation, member, {with_type(right, DType::float64), without_memory(right), larger, deeper});
    }
}

}  // namespace

TEST_CASE("embeddings refuse wrong shapes, types, gaps and aliases") {
    const EmbeddingForward forward{make({7, 3}), make({5, 3}), make({7}, DType::int32)};
    refuses_the_usual(forward, {&EmbeddingForward::out, &EmbeddingForward::table, &EmbeddingForward::ids});
    refuses(forward, &EmbeddingForward::out, {with_gaps(forward.out), forward.table, make({6, 3})});
    refuses(forward, &EmbeddingForward::table, {with_gaps(forward.table), make({0, 3})});

    const EmbeddingBackward backward{make({5, 3}), make({7, 3}), make({7}, DType::int32)};
    using B = EmbeddingBackward;
    refuses_the_usual(backward, {&B::grad_table, &B::grad_out, &B::ids});
    refuses(backward, &B::grad_table, {with_gaps(backward.grad_table), backward.grad_out});

    const PositionForward add{make({2, 4, 3}), make({6, 3})};
    refuses_the_usual(add, {&PositionForward::x, &PositionForward::positions});
    refuses(add, &PositionForward::positions, {make({3, 3}), with_gaps(add.positions)});
    const PositionBackward sum{make({6, 3}), make({2, 4, 3})};
    refuses_the_usual(sum, {&PositionBackward::grad_positions, &PositionBackward::grad_x});
    refuses(sum, &PositionBackward::grad_positions, {make({3, 3})});
}

TEST_CASE("LayerNorm refuses wrong shapes, types, gaps and aliases") {
    using F = LayerNormForward;
    const F forward{make({4, 3}), make({4}), make({4}), make({4, 3}), make({3}), make({3})};
    refuses_the_usual(forward, {&F::out, &F::mean, &F::reciprocal_std, &F::weight, &F::bias});
    refuses(forward, &F::input,
            {make({4, 0}), make({5, 3}), with_gaps(forward.input), with_type(forward.input, DType::int32)});
    F in_place = forward;
    in_place.out = in_place.input;
    CHECK_NOTHROW(in_place.check());
    F negative = forward;
    negative.epsilon = -1.0F;
    CHECK_THROWS_AS(negative.check(), mfsdp::InternalError);

    using B = LayerNormBackward;
    const B backward{make({4, 3}), make({3}), make({3}), make({4, 3}), make({4, 3}), make({4}), make({4}), make({3})};
    refuses_the_usual(backward, {&B::grad_input, &B::grad_weight, &B::grad_bias, &B::grad_out, &B::mean,
                                 &B::reciprocal_std, &B::weight});
    refuses(backward, &B::grad_input, {backward.grad_out, with_gaps(backward.grad_input)});
}

TEST_CASE("RmsNorm takes rows with gaps and refuses wrong shapes, types and aliases") {
    using F = RmsNormForward;
    F forward{make({4, 3}), make({4}), make({4, 3}), make({3})};
    refuses_the_usual(forward, {&F::out, &F::reciprocal_rms, &F::weight});
    refuses(forward, &F::input, {make({4, 0}), with_strided_columns(forward.input)});
    forward.input = with_gaps(forward.input);
    forward.out = with_gaps(forward.out);
    CHECK_NOTHROW(forward.check());

    using B = RmsNormBackward;
    const B backward{make({4, 3}), make({3}), make({4, 3}), make({4, 3}), make({4}), make({3})};
    refuses_the_usual(backward, {&B::grad_input, &B::grad_weight, &B::grad_out, &B::reciprocal_rms, &B::weight});
    refuses(backward, &B::grad_input, {backward.grad_out});
}

TEST_CASE("activations refuse wrong shapes, types and gaps, and work in place") {
    using G = GeluForward;
    const G gelu{make({4, 3}), make({4, 3})};
    refuses_the_usual(gelu, {&G::out});
    refuses(gelu, &G::in, {with_gaps(gelu.in), make({3, 4}), make({12}), with_type(gelu.in, DType::bfloat16)});
    CHECK_NOTHROW(G{gelu.in, gelu.in}.check());
    using GB = GeluBackward;
    const GB gelu_backward{make({12}), make({12}), make({12})};
    refuses_the_usual(gelu_backward, {&GB::grad_in, &GB::grad_out});

    using S = SwiGluForward;
    const S swiglu{make({4, 3}), make({4, 3}), make({4, 3})};
    refuses_the_usual(swiglu, {&S::out, &S::up});
    using SB = SwiGluBackward;
    const SB swiglu_backward{make({12}), make({12}), make({12}), make({12}), make({12})};
    refuses_the_usual(swiglu_backward, {&SB::grad_gate, &SB::grad_up, &SB::grad_out, &SB::up});
    refuses(swiglu_backward, &SB::grad_gate, {swiglu_backward.grad_up});

    const ColumnSum sum{make({3}), make({4, 3})};
    refuses_the_usual(sum, {&ColumnSum::out, &ColumnSum::in});
    refuses(sum, &ColumnSum::in, {with_strided_columns(sum.in)});
    CHECK_NOTHROW(ColumnSum{sum.out, with_gaps(sum.in)}.check());
}

TEST_CASE("rotary embeddings refuse odd head dimensions and too few positions") {
    const Rotary rotary{make({2, 5, 3, 8}), make({5, 4}), make({5, 4})};
    refuses_the_usual(rotary, {&Rotary::cosine, &Rotary::sine});
    refuses(rotary, &Rotary::x,
            {make({2, 5, 3, 7}), make({2, 6, 3, 8}), with_strided_columns(rotary.x), make({5, 3, 8})});
    CHECK_NOTHROW(Rotary{with_gaps(rotary.x), rotary.cosine, rotary.sine}.check());
}

TEST_CASE("attention refuses groups that do not divide, wrong shapes and aliases") {
    using F = AttentionForward;
    const Tensor query = make({2, 5, 4, 8}), key = make({2, 5, 2, 8}), value = make({2, 5, 2, 8});
    const F forward{make({2, 5, 4, 8}), make({2, 4, 5}), query, key, value};
    refuses_the_usual(forward, {&F::out, &F::log_sum_exp, &F::key, &F::value});
    refuses(forward, &F::key, {make({2, 5, 3, 8}), make({2, 5, 0, 8}), make({2, 4, 2, 8}), with_strided_columns(key)});
    refuses(forward, &F::value, {make({2, 5, 4, 8})});
    refuses(forward, &F::log_sum_exp, {make({2, 5, 4}), with_gaps(forward.log_sum_exp)});
    refuses(forward, &F::out, {query});
    CHECK_NOTHROW(
        F{with_gaps(forward.out), forward.log_sum_exp, with_gaps(query), with_gaps(key), with_gaps(value)}.check());

    using B = AttentionBackward;
    const B backward{make({2, 5, 4, 8}),
                     make({2, 5, 2, 8}),
                     make({2, 5, 2, 8}),
                     make({2, 4, 5}),
                     make({2, 5, 4, 8}),
                     make({2, 5, 4, 8}),
                     make({2, 4, 5}),
                     query,
                     key,
                     value};
    refuses_the_usual(backward, {&B::grad_query, &B::grad_key, &B::grad_value, &B::delta, &B::grad_out, &B::out,
                                 &B::log_sum_exp, &B::key, &B::value});
    refuses(backward, &B::grad_query, {query, backward.grad_out});
    refuses(backward, &B::grad_key, {key, backward.grad_value});
    refuses(backward, &B::delta, {backward.log_sum_exp});
}

TEST_CASE("the operations of the head refuse wrong shapes, types and aliases") {
    using L = LogSumExpUpdate;
    const L update{make({4}), make({4}), make({4, 9})};
    refuses_the_usual(update, {&L::maximum, &L::sum});
    refuses(update, &L::logits, {make({4, 0}), make({5, 9}), with_strided_columns(update.logits)});
    refuses(update, &L::sum, {update.maximum});
    CHECK_NOTHROW(L{update.maximum, update.sum, with_gaps(update.logits)}.check());

    using C = CrossEntropyBackward;
    const C backward{make({4, 9}), make({4}), make({4}), make({4}), make({4}, DType::int32), 9};
    refuses_the_usual(backward, {&C::loss, &C::maximum, &C::sum, &C::targets});
    refuses(backward, &C::loss, {backward.maximum, backward.sum});
    C before = backward;
    before.panel_begin = -1;
    CHECK_THROWS_AS(before.check(), mfsdp::InternalError);

    const LossSum sum{make({1}, DType::float64), make({1}, DType::int64), make({4}), make({4}, DType::int32)};
    refuses(sum, &LossSum::loss_sum, {make({1}), make({2}, DType::float64)});
    refuses(sum, &LossSum::target_count, {make({1}, DType::int32)});
    refuses(sum, &LossSum::targets, {make({5}, DType::int32), make({4})});
}

TEST_CASE("a refusal is a sentence with the operation, the argument, what it is and what was wanted") {
    const LayerNormForward wrong{make({4, 3}), make({5}), make({4}), make({4, 3}), make({3}), make({3})};
    std::string message;
    try {
        wrong.check();
    } catch (const mfsdp::InternalError& error) {
        message = error.what();
    }
    CHECK(message.find("layer_norm_forward: mean is float32 [5], wanted float32 [4]") != std::string::npos);
}

TEST_CASE("costs count operations and bytes as calculated by hand") {
    // Attention, B = 2, T = 3, H = 4, K = 2, D = 8: 2 * 4 * 6 pairs under the mask; a product is 2 * 8 each.
    const Tensor query = make({2, 3, 4, 8}), key = make({2, 3, 2, 8}), statistics = make({2, 4, 3});
    const AttentionForward forward{query, statistics, query, key, key};
    CHECK(forward.cost().flops == 48 * (2 * 16 + 5));
    CHECK(forward.cost().bytes == 4 * (2 * 192 + 2 * 96 + 24));
    const AttentionBackward backward{query, key, key, statistics, query, query, statistics, query, key, key};
    CHECK(backward.cost().flops == 48 * (5 * 16 + 5) + 2 * 192);

    const LogSumExpUpdate update{make({4}), make({4}), make({4, 10})};
    CHECK(update.cost().bytes == 4 * (40 + 2 * 8));
    const EmbeddingForward lookup{make({7, 3}), make({50, 3}), make({7}, DType::int32)};
    CHECK(lookup.cost().flops == 0);
    CHECK(lookup.cost().bytes == 4 * (2 * 21 + 7));  // of the table only the rows looked up
    const ColumnSum sum{make({3}), make({4, 3})};
    CHECK(sum.cost().flops == 12);
    CHECK(sum.cost().bytes == 4 * (12 + 3));
    const GeluForward gelu{make({12}), make({12})};
    CHECK(gelu.cost().bytes == 96);
}
