// What `check` refuses and what `cost` counts. Nothing is computed here: addresses are made up.

#include "mfsdp/base/error.h"
#include "mfsdp/device/operation_table.h"

#include "support/catch.h"

#include <cmath>
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

/// The same for parameter gradients, which may be undefined and have a type of their own.
template <class Op>
void refuses_the_usual_of_gradients(const Op& operation, std::initializer_list<Tensor Op::*> members) {
    for (Tensor Op::*const member : members) {
        const Tensor right = operation.*member;
        Tensor larger = right;
        ++larger.shape[static_cast<std::size_t>(right.rank - 1)];
        refuses(operation, member, {with_type(right, DType::float64), with_type(right, DType::float16), larger});
        Op without = operation;
        without.*member = Tensor{};
        CHECK_NOTHROW(without.check());
        CHECK(without.cost().bytes < operation.cost().bytes);
        Op half = operation;
        half.*member = with_type(right, DType::bfloat16);
        INFO(Op::kName << " with " << right.describe() << " as bfloat16");
        CHECK_NOTHROW(half.check());
        CHECK(half.cost().bytes == operation.cost().bytes - right.bytes() / 2);
    }
}

/// Value tensors have one type: any one of them in bfloat16 is refused, all of them together pass and take half of the
/// bytes, and float16 is refused.
template <class Op>
void takes_values_of_one_type(const Op& operation, std::initializer_list<Tensor Op::*> members) {
    Op all = operation, halves = operation;
    for (Tensor Op::*const member : members) {
        refuses(operation, member, {with_type(operation.*member, DType::bfloat16)});
        all.*member = with_type(operation.*member, DType::bfloat16);
        halves.*member = with_type(operation.*member, DType::float16);
    }
    INFO(Op::kName);
    CHECK_NOTHROW(all.check());
    CHECK(all.cost().flops == operation.cost().flops);
    CHECK(all.cost().bytes < operation.cost().bytes);
    CHECK_THROWS_AS(halves.check(), mfsdp::InternalError);
}

}  // namespace

TEST_CASE("embeddings refuse wrong shapes, types, gaps and aliases") {
    const EmbeddingForward forward{make({7, 3}), make({5, 3}), make({7}, DType::int32)};
    refuses_the_usual(forward, {&EmbeddingForward::out, &EmbeddingForward::table, &EmbeddingForward::ids});
    refuses(forward, &EmbeddingForward::out, {with_gaps(forward.out), forward.table, make({6, 3})});
    refuses(forward, &EmbeddingForward::table, {with_gaps(forward.table), make({0, 3})});

    takes_values_of_one_type(forward, {&EmbeddingForward::out, &EmbeddingForward::table});
    EmbeddingForward negative = forward;
    negative.row_begin = -1;
    CHECK_THROWS_AS(negative.check(), mfsdp::InternalError);

    const EmbeddingBackward backward{make({5, 3}), make({7, 3}), make({7}, DType::int32)};
    using B = EmbeddingBackward;
    refuses_the_usual(backward, {&B::grad_out, &B::ids});
    refuses_the_usual_of_gradients(backward, {&B::grad_table});
    refuses(backward, &B::grad_table, {with_gaps(backward.grad_table), backward.grad_out});
    CHECK_NOTHROW(B{backward.grad_table, make({7, 3}, DType::bfloat16), backward.ids}.check());

    const PositionForward add{make({2, 4, 3}), make({6, 3})};
    refuses_the_usual(add, {&PositionForward::x, &PositionForward::positions});
    refuses(add, &PositionForward::positions, {make({3, 3}), with_gaps(add.positions)});
    takes_values_of_one_type(add, {&PositionForward::x, &PositionForward::positions});
    const PositionBackward sum{make({6, 3}), make({2, 4, 3})};
    refuses_the_usual(sum, {&PositionBackward::grad_x});
    refuses_the_usual_of_gradients(sum, {&PositionBackward::grad_positions});
    refuses(sum, &PositionBackward::grad_positions, {make({3, 3})});
}

TEST_CASE("LayerNorm refuses wrong shapes, types, gaps and aliases") {
    using F = LayerNormForward;
    const F forward{make({4, 3}), make({4}), make({4}), make({4, 3}), make({3}), make({3})};
    refuses_the_usual(forward, {&F::out, &F::mean, &F::reciprocal_std, &F::weight, &F::bias});
    refuses(forward, &F::input,
            {make({4, 0}), make({5, 3}), with_gaps(forward.input), with_type(forward.input, DType::int32)});
    takes_values_of_one_type(forward, {&F::out, &F::input, &F::weight, &F::bias});
    F in_place = forward;
    in_place.out = in_place.input;
    CHECK_NOTHROW(in_place.check());
    F negative = forward;
    negative.epsilon = -1.0F;
    CHECK_THROWS_AS(negative.check(), mfsdp::InternalError);

    using B = LayerNormBackward;
    const B backward{make({4, 3}), make({3}), make({3}), make({4, 3}), make({4, 3}), make({4}), make({4}), make({3})};
    refuses_the_usual(backward, {&B::grad_input, &B::grad_out, &B::mean, &B::reciprocal_std, &B::weight});
    takes_values_of_one_type(backward, {&B::grad_input, &B::grad_out, &B::input, &B::weight});
    refuses(backward, &B::grad_input, {backward.grad_out, with_gaps(backward.grad_input)});
    refuses(backward, &B::grad_bias, {backward.grad_weight, with_type(backward.grad_bias, DType::bfloat16)});
    B one = backward;
    one.grad_bias = Tensor{};
    refuses_the_usual_of_gradients(one, {&B::grad_weight});
    one.grad_bias = backward.grad_bias;
    one.grad_weight = Tensor{};
    refuses_the_usual_of_gradients(one, {&B::grad_bias});
}

TEST_CASE("RmsNorm takes rows or heads with gaps and refuses wrong shapes, types and aliases") {
    using F = RmsNormForward;
    F forward{make({4, 3}), make({4}), make({4, 3}), make({3})};
    refuses_the_usual(forward, {&F::out, &F::reciprocal_rms, &F::weight});
    refuses(forward, &F::input, {make({4, 0}), with_strided_columns(forward.input)});
    takes_values_of_one_type(forward, {&F::out, &F::input, &F::weight});
    forward.input = with_gaps(forward.input);
    forward.out = with_gaps(forward.out);
    CHECK_NOTHROW(forward.check());

    const Tensor heads = make({4, 6, 3}).slice(1, 2, 2);
    const F of_heads{heads, make({4, 2}), heads, make({3})};
    refuses(of_heads, &F::reciprocal_rms, {make({8}), make({4, 3}), with_gaps(of_heads.reciprocal_rms)});
    refuses(of_heads, &F::out, {make({4, 6, 3}), make({8, 3}), make({4, 2, 1, 3})});
    refuses(of_heads, &F::weight, {make({6})});

    using B = RmsNormBackward;
    const B backward{make({4, 3}), make({3}), make({4, 3}), make({4, 3}), make({4}), make({3})};
    refuses_the_usual(backward, {&B::grad_input, &B::grad_out, &B::reciprocal_rms, &B::weight});
    refuses_the_usual_of_gradients(backward, {&B::grad_weight});
    takes_values_of_one_type(backward, {&B::grad_input, &B::grad_out, &B::input, &B::weight});
    B in_place = backward;
    in_place.grad_input = in_place.grad_out;
    CHECK_NOTHROW(in_place.check());
    refuses(in_place, &B::grad_input, {with_gaps(in_place.grad_out)});
    in_place.accumulate_input = true;
    CHECK_THROWS_AS(in_place.check(), mfsdp::InternalError);
}

TEST_CASE("activations refuse wrong shapes, types and gaps, and work in place") {
    using G = GeluForward;
    const G gelu{make({4, 3}), make({4, 3})};
    refuses_the_usual(gelu, {&G::out});
    refuses(gelu, &G::in, {with_gaps(gelu.in), make({3, 4}), make({12}), with_type(gelu.in, DType::int32)});
    CHECK_NOTHROW(G{gelu.in, gelu.in}.check());
    takes_values_of_one_type(gelu, {&G::in, &G::out});
    using GB = GeluBackward;
    const GB gelu_backward{make({12}), make({12}), make({12})};
    refuses_the_usual(gelu_backward, {&GB::grad_in, &GB::grad_out});
    takes_values_of_one_type(gelu_backward, {&GB::grad_in, &GB::grad_out, &GB::in});

    using S = SwiGluForward;
    const S swiglu{make({4, 3}), make({4, 3}), make({4, 3})};
    refuses_the_usual(swiglu, {&S::out, &S::up});
    takes_values_of_one_type(swiglu, {&S::out, &S::gate, &S::up});
    using SB = SwiGluBackward;
    const SB swiglu_backward{make({12}), make({12}), make({12}), make({12}), make({12})};
    refuses_the_usual(swiglu_backward, {&SB::grad_gate, &SB::grad_up, &SB::grad_out, &SB::up});
    refuses(swiglu_backward, &SB::grad_gate, {swiglu_backward.grad_up});
    takes_values_of_one_type(swiglu_backward, {&SB::grad_gate, &SB::grad_up, &SB::grad_out, &SB::gate, &SB::up});

    const ColumnSum sum{make({3}), make({4, 3})};
    refuses_the_usual(sum, {&ColumnSum::in});
    refuses_the_usual_of_gradients(sum, {&ColumnSum::out});
    refuses(sum, &ColumnSum::in, {with_strided_columns(sum.in)});
    CHECK_NOTHROW(ColumnSum{sum.out, with_gaps(sum.in)}.check());
}

TEST_CASE("rotary embeddings refuse odd head dimensions and too few positions") {
    const Rotary rotary{make({2, 5, 3, 8}), make({5, 4}), make({5, 4})};
    refuses_the_usual(rotary, {&Rotary::cosine, &Rotary::sine});
    refuses(rotary, &Rotary::x,
            {make({2, 5, 3, 7}), make({2, 6, 3, 8}), with_strided_columns(rotary.x), make({5, 3, 8})});
    CHECK_NOTHROW(Rotary{with_gaps(rotary.x), rotary.cosine, rotary.sine}.check());
    CHECK_NOTHROW(Rotary{with_type(rotary.x, DType::bfloat16), rotary.cosine, rotary.sine}.check());
    refuses(rotary, &Rotary::x, {with_type(rotary.x, DType::float16)});
    refuses(rotary, &Rotary::cosine, {with_type(rotary.cosine, DType::bfloat16)});
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
    refuses(forward, &F::log_sum_exp, {with_type(forward.log_sum_exp, DType::bfloat16)});
    takes_values_of_one_type(forward, {&F::out, &F::query, &F::key, &F::value});
    CHECK_NOTHROW(
        F{with_gaps(forward.out), forward.log_sum_exp, with_gaps(query), with_gaps(key), with_gaps(value)}.check());

    F measuring = forward;
    measuring.max_logits = make({4});
    refuses(measuring, &F::max_logits, {make({2}), make({4}, DType::float64)});

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
    takes_values_of_one_type(
        backward, {&B::grad_query, &B::grad_key, &B::grad_value, &B::grad_out, &B::out, &B::query, &B::key, &B::value});
}

TEST_CASE("the operations of the head refuse wrong shapes, types and aliases") {
    using L = LogSumExpUpdate;
    const Tensor targets = make({4}, DType::int32);
    const L update{make({4}), make({4}), make({4}), make({4, 9}), targets, 9};
    refuses_the_usual(update, {&L::maximum, &L::sum, &L::target_logit, &L::targets});
    refuses(update, &L::logits,
            {make({4, 0}), make({5, 9}), with_strided_columns(update.logits), make({4, 9}, DType::bfloat16)});
    refuses(update, &L::sum, {update.maximum, update.target_logit});
    refuses(update, &L::target_logit, {update.maximum});
    CHECK_NOTHROW(L{update.maximum, update.sum, update.target_logit, with_gaps(update.logits), targets}.check());
    L before = update;
    before.panel_begin = -1;
    CHECK_THROWS_AS(before.check(), mfsdp::InternalError);

    using S = LossSum;
    const S sum{make({1}, DType::float64),
                make({1}, DType::int64),
                make({1}, DType::float64),
                make({4}),
                make({4}),
                make({4}),
                targets};
    refuses_the_usual(sum, {&S::sum, &S::target_logit, &S::targets});
    refuses(sum, &S::loss_sum, {make({1}), make({2}, DType::float64), sum.log_z_squares});
    refuses(sum, &S::log_z_squares, {make({1}), make({2}, DType::float64)});
    refuses(sum, &S::target_count, {make({1}, DType::int32)});
    refuses(sum, &S::maximum, {make({5}), make({4, 1})});

    using C = CrossEntropyBackward;
    const C backward{make({4, 9}), make({4, 9}), make({4}), make({4}), targets, 9, 0.1F};
    refuses_the_usual(backward, {&C::grad, &C::maximum, &C::sum, &C::targets});
    refuses(backward, &C::grad,
            {with_type(backward.grad, DType::float16), with_strided_columns(backward.grad),
             with_type(backward.logits, DType::bfloat16), with_gaps(backward.logits)});
    refuses(backward, &C::logits, {make({4, 9}, DType::bfloat16), make({4, 0})});
    CHECK_NOTHROW(C{backward.logits, backward.logits, backward.maximum, backward.sum, targets}.check());
    C half = backward;
    half.grad = make({4, 9}, DType::bfloat16);
    CHECK_NOTHROW(half.check());
    CHECK(half.cost().bytes == 6 * 36 + 3 * 4 * 4);
    for (const float wrong : {-1.0F, std::nanf(""), INFINITY}) {
        C changed = backward;
        changed.z_loss = wrong;
        CHECK_THROWS_AS(changed.check(), mfsdp::InternalError);
    }
    C early = backward;
    early.panel_begin = -1;
    CHECK_THROWS_AS(early.check(), mfsdp::InternalError);
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

    const LogSumExpUpdate update{make({4}), make({4}), make({4}), make({4, 10}), make({4}, DType::int32)};
    CHECK(update.cost().bytes == 4 * (40 + 2 * 12 + 4));
    const EmbeddingForward lookup{make({7, 3}), make({50, 3}), make({7}, DType::int32)};
    CHECK(lookup.cost().flops == 0);
    CHECK(lookup.cost().bytes == 4 * (2 * 21 + 7));  // of the table only the rows looked up
    const ColumnSum sum{make({3}), make({4, 3})};
    CHECK(sum.cost().flops == 12);
    CHECK(sum.cost().bytes == 4 * (12 + 3));
    const GeluForward gelu{make({12}), make({12})};
    CHECK(gelu.cost().bytes == 96);
}
