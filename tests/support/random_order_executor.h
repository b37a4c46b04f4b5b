#pragma once

#include "mfsdp/comm/executor.h"

#include <cstdint>
#include <memory>

namespace mfsdp::test {

/// One place where the executors of all ranks of a thread cluster meet. Its thread applies the operations of all
/// started schedules one by one, each time one drawn at random from those that may come next: a copy or an add, or a
/// send and its receive together. So it tries orders of execution that a real transport shows rarely.
///
/// A started schedule that can never end shows as stuck: once every rank is stopped, waits end with CommunicationError.
class RandomOrderHub {
  public:
    RandomOrderHub(int ranks, std::uint64_t seed);
    RandomOrderHub(const RandomOrderHub&) = delete;
    RandomOrderHub& operator=(const RandomOrderHub&) = delete;
    ~RandomOrderHub();

    /// The executor of one rank, whose device lets the host reach its memory. It must not outlive the hub.
    [[nodiscard]] std::unique_ptr<comm::Executor> make_executor(int rank, device::Device& device);
    /// Ends every wait with CommunicationError; called when a rank has failed.
    void stop();

    struct State;

  private:
    std::unique_ptr<State> state_;
};

}  // namespace mfsdp::test
