#pragma once

#include <string>

#include <nccl.h>

namespace mfsdp::comm::nccl {

/// An NCCL communicator. Made and finished by all ranks together; given up by one alone.
class OwnedCommunicator {
  public:
    OwnedCommunicator() = default;
    OwnedCommunicator(const OwnedCommunicator&) = delete;
    OwnedCommunicator& operator=(const OwnedCommunicator&) = delete;
    ~OwnedCommunicator() { abort(); }

    /// Meets the other ranks; blocks until all are there.
    void meet(const ncclUniqueId& id, int ranks, int rank);
    [[nodiscard]] ncclComm_t get() const { return communicator_; }

    /// What NCCL has found out about a transfer under way, in words; empty: nothing. May be asked from any thread.
    [[nodiscard]] std::string failure() const;
    /// Ends transfers under way, whatever the others do; afterwards there is no communicator.
    void abort() noexcept;
    /// Ends it in order, once all ranks have: blocks for them.
    void finish() noexcept;

  private:
    ncclComm_t communicator_ = nullptr;
};

}  // namespace mfsdp::comm::nccl
