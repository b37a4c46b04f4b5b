#pragma once

#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/device/device.h"
#include "mfsdp/device/ops/decomposition.h"
#include "mfsdp/optim/matrix_optimizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace mfsdp::optim {

/// A side of a block that has a factor.
struct Side {
    bool left = true;
    std::int64_t size = 0;
};

/// The sides of a block that have factors, left first.
class Sides {
  public:
    void add(Side side) { sides_[count_++] = side; }
    [[nodiscard]] std::span<const Side> all() const& { return std::span(sides_).first(count_); }
    std::span<const Side> all() && = delete;  // it would outlive them
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] bool has(bool left) const {
        return std::any_of(all().begin(), all().end(), [left](const Side& side) { return side.left == left; });
    }

  private:
    std::array<Side, 2> sides_{};
    std::size_t count_ = 0;
};

/// States of a block's sides: the factors, what was made of them, and the number of refreshes in a row that failed.
struct SideStates {
    std::span<const device::Tensor> factors, results;
    device::Tensor failures{};
};

/// One decomposition of a refresh: a side's factor, what it renews, and where it says what became of it.
struct RefreshTask {
    std::int64_t size = 0;
    device::Tensor factor, result, status;
};

/// Blocks that are refreshed together; their decompositions are one launch.
class RefreshBatch {
  public:
    /// A block, and which of the tasks are those of its sides.
    struct Part {
        const BlockWork* block = nullptr;
        std::size_t first = 0, count = 0;
    };

    RefreshBatch(device::Stream& stream, device::BufferPool& workspace);
    void add(const BlockWork& block, const Sides& sides, const SideStates& states);

    [[nodiscard]] std::span<const RefreshTask> tasks() const { return std::span(tasks_).first(task_count_); }
    [[nodiscard]] std::span<const Part> parts() const { return std::span(parts_).first(part_count_); }
    [[nodiscard]] device::Tensor statuses(std::size_t first, std::size_t count) const;

  private:
    device::PooledBuffer statuses_;
    std::array<RefreshTask, device::kMaxTasks> tasks_{};
    std::array<Part, device::kMaxTasks> parts_{};
    std::size_t task_count_ = 0, part_count_ = 0;
};

/// Floats of workspace for an operation of one launch; bytes that it takes from the pool.
[[nodiscard]] device::PooledBuffer take_floats(device::Stream& stream, device::BufferPool& workspace,
                                               std::int64_t floats);

/// When an optimizer refreshes: every matrix in step `start`, and from then on matrix n whenever
/// (step + shift + n) mod frequency == 0, n being 0 unless turns are taken.
struct RefreshTurns {
    std::int64_t start = 1, frequency = 1, shift = 0;
    bool staggered = false;

    [[nodiscard]] bool due(std::int64_t step, std::int64_t number) const {
        return step == start || (step > start && (step + shift_of(number)) % frequency == 0);
    }
    [[nodiscard]] std::int64_t shift_of(std::int64_t number) const { return shift + (staggered ? number : 0); }
};

/// What Shampoo and SOAP share: for every side of a block a factor that takes in each gradient, and a matrix made of it
/// every few steps, a root or a basis.
class FactoredOptimizer : public MatrixOptimizer {
  public:
    [[nodiscard]] std::vector<RehearsalStep> rehearsal_steps(std::span<const std::int64_t> numbers) const override;
    /// Renews what is made of the factors of due blocks, in batches, and counts the failures of each block.
    void refresh(device::Stream& stream, device::BufferPool& workspace, std::span<const BlockWork> blocks,
                 std::int64_t step) override;

  protected:
    /// result  what is made of a factor, as its states are called: "root", "basis"
    /// before  block states ahead of those of the sides
    FactoredOptimizer(std::string result, std::size_t before, RefreshTurns turns)
        : result_(std::move(result)), before_(before), turns_(turns) {}

    [[nodiscard]] const RefreshTurns& turns() const { return turns_; }

    /// Which sides of a block have factors.
    [[nodiscard]] virtual Sides sides_of(std::int64_t rows, std::int64_t columns) const = 0;
    /// Bytes of scratch for a decomposition of this size.
    [[nodiscard]] virtual std::int64_t task_bytes(std::int64_t size, std::int64_t step) const = 0;
    /// Decomposes the factors of a batch and takes over what came out.
    virtual void renew(device::Stream& stream, device::BufferPool& workspace, const RefreshBatch& batch,
                       std::int64_t step) = 0;

    /// Declares the states of a block's sides, after those that are there.
    void add_side_states(std::vector<StateSpec>& states, const Sides& sides) const;
    [[nodiscard]] SideStates side_states(const BlockWork& block, const Sides& sides) const;
    /// factor = beta factor + alpha G G^T of the left side, G^T G of the right, G being the block's input.
    void take_into_factors(device::Stream& stream, const BlockWork& block, double alpha, double beta) const;

    /// Launches InverseRoots or SymmetricBases on the factors of a batch.
    template <class Op>
    static void decompose(device::Stream& stream, device::BufferPool& workspace, const RefreshBatch& batch,
                          Op operation) {
        std::int64_t floats = 0;
        for (const RefreshTask& task : batch.tasks()) {
            operation.tasks[static_cast<std::size_t>(operation.count++)] = {task.factor, task.result, task.status};
            floats += device::InverseRoots::task_floats(task.size);
        }
        const device::PooledBuffer scratch = take_floats(stream, workspace, floats);
        operation.workspace = scratch.view(device::DType::float32, {floats});
        device::launch(stream, operation);
    }

  private:
    void refresh_together(device::Stream& stream, device::BufferPool& workspace,
                          std::span<const BlockWork* const> blocks, std::int64_t step);

    std::string result_;
    std::size_t before_;
    RefreshTurns turns_;
};

}  // namespace mfsdp::optim
