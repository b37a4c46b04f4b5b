#include "lane_run.h"

#include "mfsdp/base/error.h"

namespace mfsdp::comm {

namespace {

constexpr std::uint64_t kTags = 32768;  // the least that MPI promises

}  // namespace

LaneRun::LaneRun(Communicator& communicator, device::Device& device, Lane lane) {
    context_.communicator = &communicator;
    context_.device = &device;
    context_.lane = lane;
}

bool LaneRun::advance(MovedBytes& moved, std::uint64_t& ended) {
    if (queue_.empty()) return false;
    const StartedSchedule& started = queue_.front();
    if (!running_) {
        if (!started.ready.done()) return false;
        begin(started);
    }
    bool happened = false;
    bool all_ended = true;
    for (std::size_t i = 0; i < channel_count(); ++i) {
        happened = channels_[i].advance(context_, moved) || happened;
        all_ended = all_ended && channels_[i].ended();
    }
    if (happened) last_progress_ = Clock::now();
    if (!all_ended) return happened;
    ended = started.number;
    running_ = false;
    queue_.pop();
    return true;
}

void LaneRun::begin(const StartedSchedule& started) {
    context_.buffers = started.buffers;
    // Tags keep neighbouring schedules apart: a mistake in one shows there and not in the next.
    context_.tag = static_cast<int>(started.number % kTags);
    if (channels_.size() < channel_count()) channels_.resize(channel_count());
    for (std::size_t i = 0; i < channel_count(); ++i) channels_[i].begin(started.schedule->channels[i]);
    running_ = true;
    last_progress_ = Clock::now();
}

void LaneRun::check_timeout(double timeout_seconds) const {
    if (!running_ || timeout_seconds <= 0.0) return;
    if (std::chrono::duration<double>(Clock::now() - last_progress_).count() < timeout_seconds) return;
    std::string text = std::string("comm: ") + (context_.lane == Lane::gather ? "gather" : "reduce") +
                       " lane: no progress of '" + queue_.front().schedule->name + "' for " +
                       std::to_string(timeout_seconds) + " s on rank " + std::to_string(context_.communicator->rank());
    for (std::size_t i = 0; i < channel_count(); ++i) {
        if (!channels_[i].ended()) text += "; channel " + std::to_string(i) + ": " + channels_[i].describe_wait();
    }
    throw CommunicationError(text);
}

void LaneRun::cancel() noexcept {
    if (running_) {
        for (std::size_t i = 0; i < channel_count(); ++i) channels_[i].cancel(*context_.communicator);
    }
    running_ = false;
    queue_.clear();
}

}  // namespace mfsdp::comm
