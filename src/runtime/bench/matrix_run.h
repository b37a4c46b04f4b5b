#pragma once

#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/device/memory.h"
#include "mfsdp/optim/matrix_optimizer.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace mfsdp::runtime {

/// One matrix under an optimizer on a device, on a gradient that stays the same.
class MatrixRun {
  public:
    /// workspace_bytes  < 0: no limit, on the counting device
    MatrixRun(device::Device& device, std::shared_ptr<optim::MatrixOptimizer> optimizer, std::int64_t rows,
              std::int64_t columns, std::int64_t workspace_bytes);
    MatrixRun(const MatrixRun&) = delete;
    MatrixRun& operator=(const MatrixRun&) = delete;
    ~MatrixRun();

    /// Step t, asynchronous on stream().
    void step(std::int64_t t);
    [[nodiscard]] device::Stream& stream() { return *stream_; }
    [[nodiscard]] std::int64_t workspace() const { return pool_.high_water(); }

  private:
    device::Tensor tensor(const optim::StateSpec& spec);

    device::Device& device_;
    std::shared_ptr<optim::MatrixOptimizer> optimizer_;
    device::MemoryLedger ledger_;
    std::unique_ptr<device::Stream> stream_;
    std::vector<device::Buffer> buffers_;
    device::BufferPool pool_;
    device::Tensor weight_, gradient_;
    std::vector<device::Tensor> states_;
};

/// The workspace that steps of this matrix take, as rehearsed on the counting device.
[[nodiscard]] std::int64_t matrix_workspace(const std::shared_ptr<optim::MatrixOptimizer>& optimizer, std::int64_t rows,
                                            std::int64_t columns);

}  // namespace mfsdp::runtime
