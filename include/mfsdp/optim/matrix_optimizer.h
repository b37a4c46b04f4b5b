#pragma once

#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/device/ops/optimizer.h"
#include "mfsdp/model/parameter_spec.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::optim {

/// A state tensor declared before it is allocated, so that planner, memory accounting and checkpoints know it.
/// All state is float32 and starts as zeros.
struct StateSpec {
    std::string name;  ///< as in formats.md 2.2: "momentum", "exp_avg", ...
    std::vector<std::int64_t> shape;
    bool element =
        true;  ///< elementwise: shaped like the weight, may be cut by rows; else it belongs to the whole block
};

/// Everything one optimizer step of one whole matrix needs. Tensors are float32; weight and gradient [rows, columns].
struct MatrixStep {
    device::Tensor weight;
    device::Tensor gradient;                    ///< sum over targets; not changed
    std::span<const device::Tensor> states;     ///< in the order of states()
    std::span<const model::RowBlock> blocks{};  ///< row blocks treated as matrices of their own; empty: the whole
    device::GradientScale gradient_scale{};
    double learning_rate = 0.0;
    double weight_decay = 0.0;
    std::int64_t step = 1;  ///< t = 1, 2, ...: updates applied, this one included
};

/// An optimizer that works on whole matrices. `step` is a pure function of (weight, gradient, state, step number): it
/// knows no ranks and communicates nothing. It is made of `accumulate`, elementwise and so possible on any rows, and
/// `direction`, which needs a whole matrix.
class MatrixOptimizer {
  public:
    virtual ~MatrixOptimizer() = default;

    [[nodiscard]] virtual std::string name() const = 0;
    [[nodiscard]] virtual std::vector<StateSpec> states(std::int64_t rows, std::int64_t columns) const = 0;
    /// FLOPs of one step of one rows x columns block (optimizers.md section 7).
    [[nodiscard]] virtual std::int64_t flops(std::int64_t rows, std::int64_t columns) const = 0;

    /// Elementwise: updates the element states with the scaled gradient and writes what `direction` works on.
    virtual void accumulate(device::Stream& stream, device::Tensor update, device::Tensor gradient,
                            std::span<const device::Tensor> states, const device::GradientScale& scale) = 0;
    /// out [rows, columns] = the direction of one block `in`, which is left as it is unless out is the same tensor;
    /// scratch from `workspace`. Asynchronous on `stream`.
    virtual void direction(device::Stream& stream, device::BufferPool& workspace, device::Tensor out,
                           device::Tensor in) = 0;
    /// Factor of the learning rate for a block of this shape (optimizers.md 2.4).
    [[nodiscard]] virtual double scale(std::int64_t rows, std::int64_t columns) const = 0;

    /// W = (1 - lr wd) W - lr scale_B direction(B) for every block B of rows.
    ///
    /// Scratch from `workspace`: rows * columns floats beside what `direction` of the largest block takes.
    /// InternalError if the blocks do not tile the rows in order. Asynchronous on `stream`.
    void step(device::Stream& stream, device::BufferPool& workspace, const MatrixStep& step);
};

}  // namespace mfsdp::optim
