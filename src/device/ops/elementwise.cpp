#include "mfsdp/device/ops/elementwise.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

namespace {

void require_memory_and_density(const Argument& argument) {
    MFSDP_ASSERT(argument.tensor.defined() || argument.tensor.count() == 0,
                 std::string(argument.operation) + ": " + std::string(argument.name) + " is " +
                     argument.tensor.describe() + " without memory");
    require_dense(argument);
}

void require_same_shape(const Argument& argument, const Argument& model) {
    MFSDP_ASSERT(same_shape(argument.tensor, model.tensor),
                 std::string(argument.operation) + ": " + std::string(argument.name) + " is " +
                     argument.tensor.describe() + ", wanted the shape of " + std::string(model.name) + ", " +
                     model.tensor.describe());
}

/// A term of a sum: of a type of its own; in the place of out only with the type of out.
void require_term(const Argument& argument, const Argument& out) {
    require_type(argument, kFloatTypes);
    require_same_shape(argument, out);
    require_memory_and_density(argument);
    if (argument.tensor.dtype != out.tensor.dtype) require_apart(argument, out);
}

// Two rows of one view must not share memory, or the threads would write into each other's rows.
void require_rows_apart(const Argument& argument) {
    if (argument.tensor.count() == 0) return;  // rows without columns have a stride of 0
    for (int axis = 0; axis + 1 < argument.tensor.rank; ++axis) {
        const auto index = static_cast<std::size_t>(axis);
        MFSDP_ASSERT(argument.tensor.shape[index] <= 1 || argument.tensor.strides[index] != 0,
                     std::string(argument.operation) + ": the rows of " + std::string(argument.name) +
                         " lie apart, got a stride of 0");
    }
}

}  // namespace

void Fill::check() const { require_memory_and_density({kName, "out", out}); }
Cost Fill::cost() const { return {0, out.bytes()}; }

void Copy::check() const {
    require_same_shape({kName, "out", out}, {kName, "in", in});
    if (out.dtype != in.dtype) {
        require_type({kName, "out", out}, kFloatTypes);
        require_type({kName, "in", in}, kFloatTypes);
    }
    for (const Argument& argument : {Argument{kName, "out", out}, Argument{kName, "in", in}}) {
        MFSDP_ASSERT(argument.tensor.defined() || argument.tensor.count() == 0,
                     "copy: " + std::string(argument.name) + " is " + argument.tensor.describe() + " without memory");
        if (argument.tensor.rank > 0) require_contiguous_columns(argument);
    }
    require_rows_apart({kName, "out", out});
    require_apart({kName, "out", out}, {kName, "in", in});
}
Cost Copy::cost() const { return {0, in.bytes() + out.bytes()}; }

void Add::check() const {
    require_type({kName, "out", out}, kFloatTypes);
    require_memory_and_density({kName, "out", out});
    require_term({kName, "a", a}, {kName, "out", out});
    require_term({kName, "b", b}, {kName, "out", out});
}
Cost Add::cost() const { return {out.count(), out.bytes() + a.bytes() + b.bytes()}; }

void ScaledAdd::check() const {
    require_type({kName, "out", out}, kFloatTypes);
    require_memory_and_density({kName, "out", out});
    require_term({kName, "a", a}, {kName, "out", out});
    if (b.defined()) require_term({kName, "b", b}, {kName, "out", out});
}
Cost ScaledAdd::cost() const {
    if (!b.defined()) return {out.count(), out.bytes() + a.bytes()};
    return {3 * out.count(), out.bytes() + a.bytes() + b.bytes()};
}

void Transpose::check() const {
    require_type({kName, "in", in}, kFloatTypes);
    require_rank({kName, "in", in}, in.dtype, 2);
    require_shape({kName, "out", out}, in.dtype, {in.shape[1], in.shape[0]});
    require_contiguous_columns({kName, "in", in});
    require_contiguous_columns({kName, "out", out});
    require_rows_apart({kName, "out", out});
    require_apart({kName, "out", out}, {kName, "in", in});
}
Cost Transpose::cost() const { return {0, 2 * out.bytes()}; }

void CopyFromHost::check() const {
    require_memory_and_density({kName, "out", out});
    MFSDP_ASSERT(source != nullptr || out.count() == 0,
                 "copy_from_host: there is no source for out, " + out.describe());
}
Cost CopyFromHost::cost() const { return {0, 2 * out.bytes()}; }

void CopyToHost::check() const {
    require_memory_and_density({kName, "in", in});
    MFSDP_ASSERT(target != nullptr || in.count() == 0, "copy_to_host: there is no target for in, " + in.describe());
}
Cost CopyToHost::cost() const { return {0, 2 * in.bytes()}; }

void FillNormal::check() const {
    require_type({kName, "out", out}, kValueTypes);
    require_memory_and_density({kName, "out", out});
    MFSDP_ASSERT(first_index >= 0, "fill_normal: indices count from 0, got " + std::to_string(first_index));
}
// Two mixed words, a logarithm, a root and a cosine: about 40 operations on most machines.
Cost FillNormal::cost() const { return {40 * out.count(), out.bytes()}; }

}  // namespace mfsdp::device
