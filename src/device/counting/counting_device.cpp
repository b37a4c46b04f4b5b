#include "mfsdp/device/counting_device.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/memory.h"

#include <algorithm>

namespace mfsdp::device {

namespace {

// High in a part of the address space that no process has, so that following an address faults.
constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 60;

class CountingStream final : public Stream {
  public:
    using Stream::Stream;

    [[nodiscard]] Event record() override { return {nullptr, 0, seconds_}; }
    void wait(const Event& event) override {
        event.wait();
        seconds_ = std::max(seconds_, event.modelled_seconds);
    }
    void synchronize() override {}

    void spend(double seconds) { seconds_ += seconds; }

  private:
    double seconds_ = 0.0;
};

class CountingOperations final : public ImplementOperations<CountingOperations, OperationTable> {
  public:
    explicit CountingOperations(const CountingDeviceOptions& options) : options_(options) {}

    template <class Op>
    void execute(Stream& stream, const Op& operation) {
        const Cost cost = operation.cost();
        total_.flops += cost.flops;
        total_.bytes += cost.bytes;
        const double computing = static_cast<double>(cost.flops) / options_.flops_per_second;
        const double moving = static_cast<double>(cost.bytes) / options_.bytes_per_second;
        static_cast<CountingStream&>(stream).spend(options_.seconds_per_launch + std::max(computing, moving));
    }

    [[nodiscard]] Cost total() const { return total_; }
    void reset_total() { total_ = {}; }

  private:
    CountingDeviceOptions options_;
    Cost total_;
};

class CountingDeviceImplementation final : public CountingDevice {
  public:
    explicit CountingDeviceImplementation(const CountingDeviceOptions& options) : operations_(options) {
        MFSDP_ASSERT(options.flops_per_second > 0.0 && options.bytes_per_second > 0.0, "a machine has a speed");
    }

    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::counting; }
    [[nodiscard]] std::string description() const override { return "counting"; }
    [[nodiscard]] std::unique_ptr<Stream> make_stream() override { return std::make_unique<CountingStream>(*this); }

    [[nodiscard]] std::byte* allocate(std::int64_t bytes) override {
        MFSDP_ASSERT(bytes >= 0, "sizes are not negative");
        const std::uint64_t address = next_;
        next_ += static_cast<std::uint64_t>(align_up(std::max<std::int64_t>(bytes, 1)));
        return reinterpret_cast<std::byte*>(address);
    }
    void deallocate(std::byte* /*address*/, std::int64_t /*bytes*/) noexcept override {}
    [[nodiscard]] std::byte* host_address(std::byte* /*address*/) const override { return nullptr; }

    [[nodiscard]] OperationTable& operations() override { return operations_; }
    [[nodiscard]] Cost total() const override { return operations_.total(); }
    void reset_total() override { operations_.reset_total(); }

  private:
    CountingOperations operations_;
    std::uint64_t next_ = kFirstAddress;
};

}  // namespace

std::unique_ptr<CountingDevice> make_counting_device(const CountingDeviceOptions& options) {
    return std::make_unique<CountingDeviceImplementation>(options);
}

}  // namespace mfsdp::device
