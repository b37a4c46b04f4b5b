#include "mfsdp/base/error.h"
#include "mfsdp/comm/executor.h"
#include "mfsdp/device/tensor.h"

#include "local_operations.h"

#include <exception>

namespace mfsdp::comm {

namespace {

void issue(device::Stream& stream, const TransferOperation& operation, const TransferBuffers& buffers) {
    const bool is_add = operation.kind == OperationKind::add;
    MFSDP_ASSERT(is_add || operation.kind == OperationKind::copy, "a schedule for one rank has no messages");
    const auto tensor = [&](BufferRole role, std::int64_t offset, device::DType dtype) {
        return device::Tensor::dense(address_of(buffers, role, offset, dtype), dtype, {operation.count});
    };
    const device::Tensor target = tensor(operation.buffer, operation.offset, operation.target_dtype);
    const device::Tensor source = tensor(operation.source_buffer, operation.source_offset, operation.source_dtype);
    if (is_add) {
        device::launch(stream, device::Add{target, target, source});
    } else {
        device::launch(stream, device::Copy{target, source});
    }
}

class SelfExecutor final : public Executor {
  public:
    explicit SelfExecutor(device::Device& device) {
        for (std::unique_ptr<device::Stream>& stream : streams_) stream = device.make_stream();
    }

    [[nodiscard]] device::Event start(const TransferSchedule& schedule, Lane lane, const TransferBuffers& buffers,
                                      const device::Event& ready) override {
        device::Stream& stream = *streams_[static_cast<std::size_t>(lane)];
        stream.wait(ready);
        // One stream keeps the order of rounds; channels are independent, so one after the other is an order of theirs.
        for (const Channel& channel : schedule.channels) {
            for (const Round& round : channel.rounds) {
                for (const TransferOperation& operation : round.operations) issue(stream, operation, buffers);
            }
        }
        ++totals_.transfers[static_cast<std::size_t>(lane)];
        return stream.record();
    }

    void abandon() noexcept override {
        for (const std::unique_ptr<device::Stream>& stream : streams_) {
            try {
                stream->synchronize();
            } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): whoever waits for the event hears of it
            }
        }
    }

    [[nodiscard]] TransferTotals totals() const override { return totals_; }
    void reset_totals() override { totals_ = {}; }

  private:
    std::array<std::unique_ptr<device::Stream>, kLanes> streams_;
    TransferTotals totals_;
};

}  // namespace

std::unique_ptr<Executor> make_self_executor(device::Device& device) { return std::make_unique<SelfExecutor>(device); }

}  // namespace mfsdp::comm
