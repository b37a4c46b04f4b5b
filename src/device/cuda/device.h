#pragma once

#include "mfsdp/device/cuda_device.h"

#include "device/cuda/fused_attention.h"
#include "device/cuda/kernels.h"
#include "device/cuda/products.h"
#include "device/cuda/profiler.h"
#include "device/cuda/solver.h"
#include "device/cuda/stream.h"

#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace mfsdp::device::cuda {

class CudaOperations final : public ImplementOperations<CudaOperations, OperationTable> {
  public:
    explicit CudaOperations(const CudaDeviceOptions& options, int multiprocessors);

    template <class Op>
    void execute(Stream& stream, const Op& operation) {
        auto& cuda_stream = static_cast<CudaStream&>(stream);
        cuda_stream.mark_used();
        const ProfilerRange range(Op::kName.data());  // names are literals
        cuda::run(context(cuda_stream), operation);
    }

    [[nodiscard]] const FusedAttention* fused_attention() const { return fused_attention_.get(); }

  private:
    [[nodiscard]] Context context(CudaStream& stream);

    CudaDeviceOptions options_;
    int multiprocessors_;
    Products products_;
    Solver solver_;
    std::unique_ptr<FusedAttention> fused_attention_;
};

/// One GPU.
class CudaDevice final : public Device {
  public:
    explicit CudaDevice(const CudaDeviceOptions& options);

    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cuda; }
    [[nodiscard]] std::string description() const override;
    [[nodiscard]] std::unique_ptr<Stream> make_stream() override;
    [[nodiscard]] std::byte* allocate(std::int64_t bytes) override;
    void deallocate(std::byte* address, std::int64_t bytes) noexcept override;
    [[nodiscard]] std::byte* host_address(std::byte* /*address*/) const override { return nullptr; }
    [[nodiscard]] std::int64_t working_bytes() const override;
    [[nodiscard]] std::string remarks() const override;
    [[nodiscard]] OperationTable& operations() override { return operations_; }

    void begin_range(const char* name) override { profiler_begin(name); }
    void end_range() override { profiler_end(); }

    /// From now on whoever waits for work of this device gets the failure. From any thread.
    void fail(std::exception_ptr failure) { failure_.set(std::move(failure)); }

  private:
    CudaDeviceOptions options_;
    cudaDeviceProp properties_;
    DeviceFailure failure_;
    std::vector<std::unique_ptr<Queue>> queues_;
    CudaOperations operations_;
};

}  // namespace mfsdp::device::cuda
