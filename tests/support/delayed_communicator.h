#pragma once

#include "mfsdp/comm/communicator.h"

#include <chrono>
#include <functional>
#include <unordered_map>

namespace mfsdp::test {

/// A communicator whose messages end no earlier than `delay_seconds(message)` after they were posted, on the side that
/// posted them: a slow link, or a slow rank. Everything else passes through to the wrapped one, which must live longer.
class DelayedCommunicator final : public comm::Communicator {
  public:
    using Delay = std::function<double(const comm::Message&)>;

    DelayedCommunicator(comm::Communicator& inner, Delay delay_seconds)
        : inner_(inner), delay_seconds_(std::move(delay_seconds)) {}

    [[nodiscard]] int rank() const override { return inner_.rank(); }
    [[nodiscard]] int size() const override { return inner_.size(); }
    [[nodiscard]] std::vector<int> node_of_rank() const override { return inner_.node_of_rank(); }
    [[nodiscard]] Request post_send(const comm::Message& message) override {
        return remember(inner_.post_send(message), message);
    }
    [[nodiscard]] Request post_receive(const comm::Message& message) override {
        return remember(inner_.post_receive(message), message);
    }
    [[nodiscard]] bool test(Request request) override;
    void cancel(Request request) noexcept override;
    void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
        inner_.all_gather(mine, all);
    }
    void set_timeout_seconds(double seconds) override { inner_.set_timeout_seconds(seconds); }
    [[noreturn]] void abort(int exit_code) override;

  private:
    using Clock = std::chrono::steady_clock;
    Request remember(Request request, const comm::Message& message);

    comm::Communicator& inner_;
    Delay delay_seconds_;
    std::unordered_map<Request, Clock::time_point> not_before_;
};

}  // namespace mfsdp::test
