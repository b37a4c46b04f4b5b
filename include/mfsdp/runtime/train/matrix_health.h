#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/optim/matrix_optimizer.h"

#include <cstdint>
#include <vector>

namespace mfsdp::runtime {

/// How one matrix fares under its optimizer, from what its owner has at hand.
struct MatrixHealth {
    std::int64_t parameter = 0;        ///< index into ModelSpec::parameters
    double update_ratio = 0.0;         ///< RMS of the update / RMS of the weight before it; 0 for a zero weight
    double orthogonality_error = 0.0;  ///< see step_and_measure
    double gradient_rms = 0.0;         ///< of the mean gradient, after clipping
};

/// One step of one matrix, measured: the same bits as `optimizer.step` alone. Blocks.
///
/// The orthogonality error of a block is |O O^T - I| / sqrt(s) for its update O (without weight decay), scaled so that
/// |O|^2 = s, s the smaller side: 0 where all singular values are equal; the largest of the blocks counts, an update of
/// zeros has none. Scratch from `workspace`: twice the matrix and the square of its smaller side, beside the step's
/// own.
[[nodiscard]] MatrixHealth step_and_measure(device::Stream& stream, device::BufferPool& workspace,
                                            optim::MatrixOptimizer& optimizer, const optim::MatrixStep& matrix);

/// The health of all matrices on every rank, in the order of parameters. All ranks call it; blocks.
[[nodiscard]] std::vector<MatrixHealth> gather_health(comm::Communicator& communicator,
                                                      const std::vector<MatrixHealth>& mine);

}  // namespace mfsdp::runtime
