#include "mfsdp/device/cpu_device.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/memory.h"

#include "device/cpu/guarded_memory.h"
#include "device/cpu/kernels.h"
#include "device/cpu/lapack.h"
#include "device/cpu/processor.h"
#include "device/cpu/stream.h"

#include <cstdlib>
#include <optional>
#include <vector>

namespace mfsdp::device {

namespace {

class CpuOperations final : public ImplementOperations<CpuOperations, OperationTable> {
  public:
    explicit CpuOperations(const cpu::Context& context) : context_(context) {}

    template <class Op>
    void execute(Stream& stream, const Op& operation) {
        auto& cpu_stream = static_cast<cpu::CpuStream&>(stream);
        if (cpu_stream.is_inline()) {
            cpu::run(context_, operation);
        } else {
            cpu_stream.enqueue([context = context_, operation] { cpu::run(context, operation); });
        }
    }

  private:
    cpu::Context context_;
};

class CpuDevice final : public Device {
  public:
    explicit CpuDevice(const CpuDeviceOptions& options)
        : options_(options),
          products_(cpu::choose_products(options.products)),
          threads_(options.threads),
          operations_(make_context(options)) {}

    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cpu; }
    [[nodiscard]] std::string description() const override { return "cpu " + cpu::describe_arithmetic(products_); }

    [[nodiscard]] std::unique_ptr<Stream> make_stream() override {
        if (!options_.asynchronous_streams) return cpu::make_inline_stream(*this);
        // Events outlive their streams (a pool may still hold one), so the timelines belong to the device.
        timelines_.push_back(std::make_unique<HostTimeline>());
        std::function<void()> before_task;
        if (options_.before_task) {
            before_task = [call = options_.before_task, number = timelines_.size() - 1] { call(number); };
        }
        return cpu::make_thread_stream(*this, *timelines_.back(), options_.delay_seed + timelines_.size(),
                                       std::move(before_task));
    }

    [[nodiscard]] std::byte* allocate(std::int64_t bytes) override {
        MFSDP_ASSERT(bytes > 0, "memory is allocated for at least one byte, got " + std::to_string(bytes));
        if (options_.memory_bytes > 0 && bytes > options_.memory_bytes - in_use_) {
            throw OutOfMemoryError("device: " + std::to_string(bytes) + " bytes do not fit, " +
                                   std::to_string(in_use_) + " of " + std::to_string(options_.memory_bytes) +
                                   " bytes are in use");
        }
        if (guarded_) return guarded_->allocate(bytes);
        void* const memory =
            std::aligned_alloc(static_cast<std::size_t>(kAlignment), static_cast<std::size_t>(align_up(bytes)));
        if (memory == nullptr) {
            throw OutOfMemoryError("device: the machine has no " + std::to_string(bytes) + " bytes of memory left");
        }
        in_use_ += bytes;
        return static_cast<std::byte*>(memory);
    }

    void deallocate(std::byte* address, std::int64_t bytes) noexcept override {
        if (guarded_) {
            guarded_->deallocate(address);
        } else {
            std::free(address);
            in_use_ -= bytes;
        }
    }

    [[nodiscard]] std::byte* host_address(std::byte* address) const override {
        if (address == nullptr || !guarded_) return address;
        return address + guarded_->displacement();
    }

    [[nodiscard]] OperationTable& operations() override { return operations_; }

  private:
    cpu::Context make_context(const CpuDeviceOptions& options) {
        if (options.guard_addresses) guarded_.emplace();
        return {threads_, guarded_ ? guarded_->displacement() : 0, cpu::products_by(products_), options.solver_fault};
    }

    CpuDeviceOptions options_;
    ProductKernel products_;
    cpu::ThreadPool threads_;
    std::int64_t in_use_ = 0;                    // bytes of ordinary memory
    std::optional<cpu::GuardedMemory> guarded_;  // before the operations, which know the displacement
    std::vector<std::unique_ptr<HostTimeline>> timelines_;
    CpuOperations operations_;
};

}  // namespace

bool cpu_has_lapack() { return cpu::has_lapack(); }

std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options) {
    cpu::require_compiled_instructions();
    cpu::hold_lapack_to_one_thread();
    return std::make_unique<CpuDevice>(options);
}

}  // namespace mfsdp::device
