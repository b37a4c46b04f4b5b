#include "mfsdp/comm/executor.h"

#include <algorithm>

namespace mfsdp::comm {

namespace {

class CountingExecutor final : public Executor {
  public:
    CountingExecutor(int rank, Mesh mesh, const LinkModel& links)
        : rank_(rank), mesh_(std::move(mesh)), links_(links) {}

    [[nodiscard]] device::Event start(const TransferSchedule& schedule, Lane lane, const TransferBuffers& /*buffers*/,
                                      const device::Event& ready) override {
        const auto index = static_cast<std::size_t>(lane);
        double& lane_free = lane_free_seconds_[index];
        lane_free = std::max(lane_free, ready.modelled_seconds) + links_.seconds(schedule, rank_, mesh_);
        totals_.bytes_sent[index] += schedule.bytes_sent();
        totals_.bytes_received[index] += schedule.bytes_received();
        ++totals_.transfers[index];
        return {nullptr, 0, lane_free};
    }

    void abandon() noexcept override {}
    [[nodiscard]] TransferTotals totals() const override { return totals_; }
    void reset_totals() override { totals_ = {}; }

  private:
    int rank_;
    Mesh mesh_;
    LinkModel links_;
    std::array<double, kLanes> lane_free_seconds_{};
    TransferTotals totals_;
};

}  // namespace

std::unique_ptr<Executor> make_counting_executor(int rank, const Mesh& mesh, const LinkModel& links) {
    return std::make_unique<CountingExecutor>(rank, mesh, links);
}

}  // namespace mfsdp::comm
