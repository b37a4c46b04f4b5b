#pragma once

#include "mfsdp/base/error.h"
#include "mfsdp/comm/communicator.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// A failure that every rank knows of: all ranks throw it together, rank 0 reports it, and the job can end in order.
class AgreedFailure : public Error {
  public:
    using Error::Error;
};

/// Runs one phase of start-up on every rank and exchanges how it went. If it failed anywhere, every rank throws an
/// AgreedFailure with the message of the lowest rank that failed, so that no rank waits for one that is gone. A
/// CommunicationError is passed on at once: the ranks can be asked nothing more.
void run_together(comm::Communicator& communicator, const std::function<void()>& phase);

/// The ranks of this process's job: MPI if a launcher started it, else one rank alone.
///
/// Ends the process with exit code 6 if MPI has not started within `init_timeout_seconds`, and gives the host exchanges
/// that follow the same limit. ConfigError for a program without MPI that is one of several tasks, and where
/// an srun without PMIx started every task as rank 0 of 1.
[[nodiscard]] std::unique_ptr<comm::Communicator> make_communicator(std::int64_t init_timeout_seconds);

/// Lets a write to a full file or a closed pipe fail instead of ending the process by a signal: what is lost is that
/// output, not the run. Called once, first of all, by a program that trains.
void outlive_lost_outputs();

/// Reports the exception being handled on stderr and ends the job with its exit code: aborts it where there are other
/// ranks, who may be waiting for this one for ever, else returns the code. Only inside a catch block, and before
/// transfers in flight lose their memory.
[[nodiscard]] int end_job(comm::Communicator& communicator);

/// Runs a program's body. Errors end in one message on stderr and the documented exit code: an AgreedFailure is printed
/// by rank 0 and returned; any other error is printed by the rank that had it, which then aborts the job.
int run_program(comm::Communicator& communicator, const std::function<void()>& body);

/// The host name of every rank, on every rank; all ranks call it.
[[nodiscard]] std::vector<std::string> host_of_rank(comm::Communicator& communicator);

/// "rank 3 (host n2)"
[[nodiscard]] std::string rank_and_host(const comm::Communicator& communicator);

}  // namespace mfsdp::runtime
