#include "mfsdp/base/error.h"
#include "mfsdp/comm/communicator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace mfsdp::comm {

namespace {

class SelfCommunicator final : public Communicator {
  public:
    [[nodiscard]] int rank() const override { return 0; }
    [[nodiscard]] int size() const override { return 1; }
    [[nodiscard]] std::vector<int> node_of_rank() const override { return {0}; }

    [[nodiscard]] Request post_send(const Message& /*message*/) override { no_peer(); }
    [[nodiscard]] Request post_receive(const Message& /*message*/) override { no_peer(); }
    [[nodiscard]] bool test(Request /*request*/) override { no_peer(); }
    void cancel(Request /*request*/) noexcept override {}

    void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
        MFSDP_ASSERT(all.size() == mine.size(), "one rank gathers its own bytes");
        std::copy(mine.begin(), mine.end(), all.begin());
    }
    void set_timeout_seconds(double /*seconds*/) override {}

    [[noreturn]] void abort(int exit_code) override {
        std::fflush(nullptr);
        std::_Exit(exit_code);
    }

  private:
    [[noreturn]] static void no_peer() {
        throw InternalError("comm: a single rank has no peer to exchange messages with");
    }
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() { return std::make_unique<SelfCommunicator>(); }

}  // namespace mfsdp::comm
