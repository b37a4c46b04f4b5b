#include "mfsdp/runtime/train/launch.h"

#include "mfsdp/base/host_name.h"
#include "mfsdp/runtime/config/environment.h"

#include "runtime/train/watchdog.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <iostream>
#include <new>
#include <span>
#include <vector>

namespace mfsdp::runtime {

namespace {

constexpr const char* kNoHostMemory =
    "memory: the machine has none left for the tables and tokens of a step; smaller train.micro_batch_size, "
    "train.seq_len or model?";

/// How a phase went on one rank; fixed size, because it is exchanged. A longer message loses its end.
struct Outcome {
    int code = 0;
    std::array<char, 8188> message{};
};

Outcome failure(ExitCode code, const char* message) {
    Outcome outcome;
    outcome.code = static_cast<int>(code);
    std::strncpy(outcome.message.data(), message, outcome.message.size() - 1);
    return outcome;
}

using HostName = std::array<char, 256>;  // fixed size, because it is exchanged

}  // namespace

void run_together(comm::Communicator& communicator, const std::function<void()>& phase) {
    Outcome mine;
    try {
        phase();
    } catch (const AgreedFailure&) {
        throw;  // already known to all
    } catch (const CommunicationError&) {
        throw;  // the ranks can be asked nothing more
    } catch (const Error& error) {
        mine = failure(error.code(), error.what());
    } catch (const std::bad_alloc&) {
        mine = failure(ExitCode::unexpected, kNoHostMemory);
    } catch (const std::exception& error) {
        mine = failure(ExitCode::unexpected, error.what());
    }
    std::vector<Outcome> all(static_cast<std::size_t>(communicator.size()));
    communicator.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    const auto failed = std::find_if(all.begin(), all.end(), [](const Outcome& outcome) { return outcome.code != 0; });
    if (failed != all.end()) throw AgreedFailure(static_cast<ExitCode>(failed->code), failed->message.data());
}

std::unique_ptr<comm::Communicator> make_communicator(std::int64_t init_timeout_seconds) {
    if (!started_by_launcher() || (!comm::mpi_available() && launched_alone())) return comm::make_self_communicator();
    let_mpi_yield_when_idle();
    const auto seconds = static_cast<double>(init_timeout_seconds);
    const Watchdog watchdog(seconds, "comm: start of MPI: not all ranks came within " +
                                         std::to_string(init_timeout_seconds) + " s (parallel.init_timeout_seconds)");
    std::unique_ptr<comm::Communicator> communicator = comm::make_mpi_communicator();
    // Open MPI 5 under an srun without PMIx starts N processes that are each rank 0 of 1.
    if (communicator->size() == 1 && slurm_tasks() > 1) {
        throw ConfigError("launch: Slurm started " + std::to_string(slurm_tasks()) +
                          " tasks, but MPI sees one rank; start with srun --mpi=pmix or with mpirun");
    }
    communicator->set_timeout_seconds(seconds);
    return communicator;
}

void outlive_lost_outputs() {
    std::signal(SIGXFSZ, SIG_IGN);
    std::signal(SIGPIPE, SIG_IGN);
}

std::vector<std::string> host_of_rank(comm::Communicator& communicator) {
    HostName mine{};
    std::strncpy(mine.data(), base::host_name().c_str(), mine.size() - 1);
    std::vector<HostName> all(static_cast<std::size_t>(communicator.size()));
    communicator.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    std::vector<std::string> hosts;
    for (const HostName& host : all) hosts.emplace_back(host.data());
    return hosts;
}

std::string rank_and_host(const comm::Communicator& communicator) {
    return "rank " + std::to_string(communicator.rank()) + " (host " + base::host_name() + ")";
}

int end_job(comm::Communicator& communicator) {
    ExitCode code = ExitCode::unexpected;
    std::string message;
    try {
        throw;
    } catch (const Error& error) {
        code = error.code();
        message = error.what();
    } catch (const std::bad_alloc&) {
        message = kNoHostMemory;
    } catch (const std::exception& error) {
        message = error.what();
    }
    if (communicator.size() == 1) {
        std::cerr << message << std::endl;
        return static_cast<int>(code);
    }
    std::cerr << rank_and_host(communicator) + ": " + message + "\n" << std::flush;
    communicator.abort(static_cast<int>(code));
    return static_cast<int>(code);  // not reached: abort does not return
}

int run_program(comm::Communicator& communicator, const std::function<void()>& body) {
    try {
        body();
        return static_cast<int>(ExitCode::success);
    } catch (const AgreedFailure& error) {
        if (communicator.rank() == 0) std::cerr << error.what() << std::endl;
        return static_cast<int>(error.code());
    } catch (const std::exception&) {
        return end_job(communicator);
    }
}

}  // namespace mfsdp::runtime
