#pragma once

#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/device/ops/optimizer.h"
#include "mfsdp/model/parameter_spec.h"
#include "mfsdp/optim/optimizer_cost.h"
#include "mfsdp/optim/state_spec.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::optim {

/// Everything one optimizer step of one whole parameter needs. weight, gradient [rows, columns] float32, dense.
struct MatrixStep {
    device::Tensor weight;
    device::Tensor gradient;                    ///< sum over targets; not changed
    std::span<const device::Tensor> states;     ///< in the order of states()
    std::span<const model::RowBlock> blocks{};  ///< row blocks treated as matrices of their own; empty: the whole
    std::int64_t number = 0;  ///< of the first block among all blocks of the model, in model order: staggers refreshes
    device::GradientScale gradient_scale{};
    double learning_rate = 0.0;
    double weight_decay = 0.0;
    std::int64_t step = 1;  ///< t = 1, 2, ...: updates applied, this one included
};

/// One matrix as the optimizer sees it, a block of a parameter.
struct BlockWork {
    std::int64_t rows = 0, columns = 0;
    device::Tensor out;                        ///< [rows, columns]: the direction
    device::Tensor input;                      ///< [rows, columns]: what `accumulate` wrote
    device::Tensor square_sums{};              ///< of input, or undefined
    std::span<const device::Tensor> averages;  ///< [rows, columns] each: what `average` wrote
    std::span<const device::Tensor> states;    ///< its block states
    std::int64_t number = 0;                   ///< see MatrixStep
};

/// How a direction changes the weights: W = decay W - step * direction, the decay only where weight and direction do
/// not disagree in sign if `cautious`. Elementwise.
struct WeightRule {
    float decay = 1.0F;
    float step = 0.0F;
    bool cautious = false;
};

/// A step number for rehearsals, and the share of a long run's steps that do the same work; 0 for those at the start.
struct RehearsalStep {
    std::int64_t step = 1;
    double share = 1.0;
};

/// The steps of one period after step `from` in which matrices with these shifts are refreshed, when (step + shift) mod
/// frequency == 0, and one step without any refresh if there is one.
[[nodiscard]] std::vector<RehearsalStep> refresh_period(std::int64_t from, std::int64_t frequency,
                                                        std::span<const std::int64_t> shifts);

/// An optimizer that works on whole matrices. A step is a pure function of (weight, gradient, state, step number): it
/// knows no ranks, communicates nothing and remembers nothing but the states. It is made of
///
/// - elementwise parts, possible on any rows: `accumulate` takes the gradient into the element states and writes what
///   the whole-matrix parts read of it; `average` writes what `direction` reads of the element states; `update` changes
///   the weights;
/// - parts that need a whole matrix (a block): `observe` takes the gradient into block states ahead of the refresh,
///   `refresh` renews what is renewed only every few steps, from block states alone, and `direction` makes the update.
///
/// Order of a step: if observes(t): accumulate, observe, refresh, then direction; else accumulate, direction (which
/// takes in the gradient itself), then refresh. So all refreshes of an owner are one call, in which several matrices
/// share the threads.
class MatrixOptimizer {
  public:
    virtual ~MatrixOptimizer() = default;

    [[nodiscard]] virtual std::string name() const = 0;
    /// States of one matrix of this shape that is a parameter of its own, element states first.
    [[nodiscard]] virtual std::vector<StateSpec> block_states(std::int64_t rows, std::int64_t columns) const = 0;
    /// States of a parameter: its element states, then the block states of each of `blocks` in order.
    [[nodiscard]] std::vector<StateSpec> states(std::int64_t rows, std::int64_t columns,
                                                std::span<const model::RowBlock> blocks = {}) const;
    /// Cost of a step of one block of this shape.
    [[nodiscard]] virtual OptimizerCost cost(std::int64_t rows, std::int64_t columns) const = 0;
    /// Steps that stand for all steps of a run with matrices of these numbers.
    [[nodiscard]] virtual std::vector<RehearsalStep> rehearsal_steps(std::span<const std::int64_t> numbers) const;

    /// Whether `direction` reads `input`, and how many matrices it reads as `averages`.
    [[nodiscard]] virtual bool direction_reads_input() const { return true; }
    [[nodiscard]] virtual std::int64_t averages() const { return 0; }
    /// Whether `accumulate` leaves sums of squares of a whole block for `direction`, if asked to.
    [[nodiscard]] virtual bool leaves_square_sums() const { return false; }
    /// Whether step t observes, and whether it changes weights at all. t >= 1.
    [[nodiscard]] virtual bool observes(std::int64_t /*step*/) const { return false; }
    [[nodiscard]] virtual bool directs(std::int64_t /*step*/) const { return true; }

    /// Any rows: input = what observe and direction read of the scaled gradient; changes the element states. An
    /// optimizer with element states is called once in a step. Tensors of one shape, dense, apart from each other.
    /// square_sums: undefined or, for a whole block, where leaves_square_sums(), device::BlockSquareSums of input,
    /// [min, square_sums_of(max)] of its sides: of the longer ones.
    virtual void accumulate(device::Stream& stream, const device::Tensor& input, const device::Tensor& square_sums,
                            const device::Tensor& gradient, std::span<const device::Tensor> element_states,
                            const device::GradientScale& scale) = 0;
    /// Any rows: writes averages() tensors from the element states of step t.
    virtual void average(device::Stream& stream, std::span<const device::Tensor> out,
                         std::span<const device::Tensor> element_states, std::int64_t step);
    /// Whole blocks, reading `input`.
    virtual void observe(device::Stream& stream, device::BufferPool& workspace, std::span<const BlockWork> blocks,
                         std::int64_t step);
    /// Whole blocks: writes `out`, which may be `input`. Blocks of one shape whose `out` follow each other in memory
    /// may be computed together, with the bits of single calls.
    virtual void direction(device::Stream& stream, device::BufferPool& workspace, std::span<const BlockWork> blocks,
                           std::int64_t step) = 0;
    /// Whole blocks, from their states alone: those whose turn it is.
    virtual void refresh(device::Stream& stream, device::BufferPool& workspace, std::span<const BlockWork> blocks,
                         std::int64_t step);
    /// How step t changes the weights of a block of this shape, from the learning rate of the step and the decay per
    /// unit of it: weight = decay weight - step direction.
    [[nodiscard]] virtual WeightRule weight_rule(std::int64_t rows, std::int64_t columns, double learning_rate,
                                                 double weight_decay, std::int64_t step) const = 0;
    /// Any rows [n, columns] of a block.
    static void update(device::Stream& stream, const device::Tensor& weight, const device::Tensor& direction,
                       const WeightRule& rule);

    /// One step of one parameter. An owner with several, or with many steps to take, has a MatrixStepper.
    void step(device::Stream& stream, device::BufferPool& workspace, const MatrixStep& matrix);
};

}  // namespace mfsdp::optim
