#pragma once

#include "mfsdp/optim/matrix_optimizer.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace mfsdp::optim {

/// Takes the steps of an owner's matrices together: blocks of one shape share calls, and all refreshes are one call, in
/// which matrices share the threads. From the second step on it allocates nothing on the host. The optimizer must
/// outlive it.
class MatrixStepper {
  public:
    explicit MatrixStepper(MatrixOptimizer& optimizer);

    /// One step of each of the matrices, in any order; all of one step number.
    ///
    /// Matrices are worked on in waves of at most kWaveElements elements or one matrix, which bounds the scratch taken
    /// from `workspace`. InternalError if the blocks of a parameter do not tile its rows in order. Asynchronous on
    /// `stream`.
    void step(device::Stream& stream, device::BufferPool& workspace, std::span<const MatrixStep> matrices);

    /// 16 MiB of float32: enough matrices at once to fill many threads, little beside what one large matrix takes.
    static constexpr std::int64_t kWaveElements = std::int64_t{1} << 22;
    /// More averages or elementwise states than this an optimizer cannot have.
    static constexpr std::int64_t kMaxAverages = 2;
    static constexpr std::size_t kMaxElementStates = 2;

  private:
    /// How many states a block of a shape has.
    struct StateCounts {
        std::int64_t rows, columns;
        std::size_t element, block;
    };
    struct Owned {
        const MatrixStep* matrix;
        std::size_t position;  // among the matrices given
        std::size_t first_block, block_count, element_states;
    };
    using Wave = std::span<const Owned>;

    [[nodiscard]] StateCounts counts_of(std::int64_t rows, std::int64_t columns);
    void take_in(std::span<const MatrixStep> matrices);
    void add_blocks(Owned& owned);
    void observe(const Owned& owned);
    void direct_all();
    void direct(Wave wave);
    [[nodiscard]] device::PooledBuffer place_square_sums(std::span<BlockWork> blocks);
    void prepare(const Owned& owned, const device::Tensor& input, std::span<const device::Tensor> averages);
    void update(const Owned& owned);
    void accumulate(const Owned& owned, const device::Tensor& input);
    [[nodiscard]] std::span<BlockWork> blocks_of(const Owned& owned);

    MatrixOptimizer& optimizer_;
    std::vector<StateCounts> known_counts_;
    // Of the present step.
    device::Stream* stream_ = nullptr;
    device::BufferPool* workspace_ = nullptr;
    std::int64_t step_ = 0;
    std::vector<Owned> matrices_;           // matrices of one shape follow each other
    std::vector<BlockWork> blocks_;         // of all matrices, in that order
    std::vector<device::Tensor> averages_;  // what the blocks' spans point to
};

}  // namespace mfsdp::optim
