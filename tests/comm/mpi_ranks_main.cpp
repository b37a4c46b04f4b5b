// Real processes: `mpirun -np N mpi_ranks MODE [MODULE]`. Exit 0 if all is well, 1 with a sentence if not; the modes in
// which a rank fails end the whole job with code 6. With MODULE, a library of the CUDA backend, tensors lie on its
// devices, one for each rank, and move by NCCL.
#include "mfsdp/base/error.h"
#include "mfsdp/comm/builders/builders.h"
#include "mfsdp/comm/executor.h"
#include "mfsdp/comm/startup_comparison.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/device/cuda_device.h"

#include "support/movement_cases.h"
#include "support/movement_data.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <thread>

namespace {

using namespace mfsdp;
using namespace mfsdp::comm;

void require(bool condition, const std::string& what) {
    if (!condition) throw InternalError("mpi_ranks: " + what);
}

/// What moves on a rank, and by what.
struct Transport {
    std::unique_ptr<device::Device> device;
    std::unique_ptr<Executor> executor;
    SumAlgorithm sum = SumAlgorithm::direct;
};

Transport make_transport(Communicator& communicator, const std::string& module, double timeout_seconds) {
    Transport transport;
    if (module.empty()) {
        transport.device = device::make_cpu_device({});
        transport.executor = make_progress_executor(communicator, *transport.device, {timeout_seconds});
        return transport;
    }
    transport.device = device::make_cuda_device({.ordinal = communicator.rank(), .module_path = module});
    NcclExecutorOptions options;
    options.timeout_seconds = timeout_seconds;
    options.module_path = module;
    options.give_up = [&communicator](const std::string& reason) {
        std::fprintf(stderr, "%s\n", reason.c_str());
        communicator.abort(6);
    };
    transport.executor = make_nccl_executor(communicator, *transport.device, options);
    transport.sum = SumAlgorithm::grouped;
    return transport;
}

void run_movement(Communicator& communicator, const Transport& transport, const Movement& movement,
                  GatherAlgorithm algorithm, std::int64_t& compared) {
    const int rank = communicator.rank();
    const BuildOptions options{20};
    const TransferSchedule schedule = movement.combine == Combine::sum
                                          ? build_sum(transport.sum, movement, rank, options)
                                          : build_gather(algorithm, movement, rank, options);
    const std::array<const TransferSchedule*, 1> list{&schedule};
    compare_message_lists(communicator, list);
    test::MovementData data(*transport.device, movement, rank, schedule.scratch_bytes);
    for (const Lane lane : {Lane::gather, Lane::reduce}) {
        data.fill();
        transport.executor->start(schedule, lane, data.buffers(), {}).wait();
        require(data.wrong_elements() == 0,
                "wrong elements on rank " + std::to_string(rank) + " after " + movement.name);
        compared += data.compared_elements();
    }
}

void move_and_compare(Communicator& communicator, const std::string& module) {
    const int ranks = communicator.size();
    const Transport transport = make_transport(communicator, module, 30.0);
    communicator.set_timeout_seconds(30.0);
    std::int64_t compared = 0;
    for (const test::GroupShape& shape : test::group_shapes(ranks)) {
        std::vector<GatherAlgorithm> gathers{GatherAlgorithm::direct, GatherAlgorithm::ring};
        if (!module.empty()) gathers.push_back(GatherAlgorithm::broadcast);
        for (const GatherAlgorithm algorithm : gathers) {
            run_movement(communicator, transport, test::gather_movement(shape), algorithm, compared);
        }
        for (const bool accumulate : {false, true}) {
            const Movement owner = test::sum_movement(shape, (ranks + 1) / 2, accumulate);
            run_movement(communicator, transport, owner, GatherAlgorithm::direct, compared);
            const Movement all = test::replicated_sum_movement(shape, ranks, accumulate);
            run_movement(communicator, transport, all, GatherAlgorithm::direct, compared);
        }
    }
    require(compared > 50, "compared " + std::to_string(compared) + " elements only");
    const std::vector<StartupFacts> facts{{"plan", "the same everywhere"}};
    compare_startup_facts(communicator, facts);
    require(communicator.node_of_rank() == std::vector<int>(static_cast<std::size_t>(ranks), 0),
            "ranks of one machine share a node");
    std::vector<int> all(static_cast<std::size_t>(ranks));
    const int mine = communicator.rank() * 3;
    communicator.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    for (int rank = 0; rank < ranks; ++rank) {
        require(all[static_cast<std::size_t>(rank)] == rank * 3, "the host exchange mixes ranks");
    }
}

// A sum and a gather at once, again and again, while rank 0 ends in `misbehave` after a while.
void run_until_failure(Communicator& communicator, const std::string& module, double timeout_seconds,
                       const std::function<void()>& misbehave) {
    test::GroupShape shape;
    for (int rank = 0; rank < communicator.size(); ++rank) shape.sizes.push_back({20000});
    const Movement movement = test::sum_movement(shape, communicator.size(), true);
    const Transport transport = make_transport(communicator, module, timeout_seconds);
    const TransferSchedule schedule = build_sum(transport.sum, movement, communicator.rank(), {4096});
    test::MovementData data(*transport.device, movement, communicator.rank(), schedule.scratch_bytes);
    bool waits = false;
    try {
        for (int repeat = 0;; ++repeat) {
            if (repeat == 10 && communicator.rank() == communicator.size() - 1) misbehave();
            waits = false;
            const device::Event end = transport.executor->start(schedule, Lane::reduce, data.buffers(), {});
            waits = true;
            end.wait();
        }
    } catch (const Error& error) {
        std::fprintf(stderr, "%s%s\n", waits ? "" : "start: ", error.what());
        communicator.abort(static_cast<int>(error.code()));
    }
}

void exchange_without_answer(Communicator& communicator) {
    communicator.set_timeout_seconds(0.5);
    const std::byte mine{};
    std::vector<std::byte> all(static_cast<std::size_t>(communicator.size()));
    try {
        communicator.all_gather({&mine, 1}, all);
        // The last rank comes too late, and would come in the end.
        if (communicator.rank() == communicator.size() - 1) std::this_thread::sleep_for(std::chrono::seconds(20));
        communicator.all_gather({&mine, 1}, all);
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        communicator.abort(static_cast<int>(error.code()));
    }
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Prints what gathers and sums cost; proves nothing.
void measure(Communicator& communicator) {
    const int ranks = communicator.size();
    const auto cpu = device::make_cpu_device({});
    const auto executor = make_progress_executor(communicator, *cpu, {60.0});
    for (const std::int64_t elements : {1, 1024, 262144, 4194304}) {
        test::GroupShape shape;
        for (int rank = 0; rank < ranks; ++rank) shape.sizes.push_back({std::max<std::int64_t>(1, elements / ranks)});
        const auto time = [&](const char* what, const Movement& movement, const TransferSchedule& schedule) {
            test::MovementData data(*cpu, movement, communicator.rank(), schedule.scratch_bytes);
            const int repeats = elements > 1000000 ? 10 : 200;
            double seconds = 0.0;
            for (int repeat = -3; repeat < repeats; ++repeat) {
                const auto begin = std::chrono::steady_clock::now();
                executor->start(schedule, Lane::gather, data.buffers(), {}).wait();
                if (repeat >= 0) seconds += seconds_since(begin);
            }
            if (communicator.rank() != 0) return;
            const double each = seconds / repeats;
            std::printf("%-14s %2d ranks %10lld elements %10.1f us %8.3f GB/s sent by rank 0\n", what, ranks,
                        static_cast<long long>(elements), 1e6 * each,
                        1e-9 * static_cast<double>(schedule.bytes_sent()) / each);
        };
        const Movement gather = test::gather_movement(shape);
        const Movement sum = test::sum_movement(shape, ranks, true);
        time("direct gather", gather, build_direct_gather(gather, communicator.rank(), {}));
        time("ring gather", gather, build_ring_gather(gather, communicator.rank(), {}));
        time("direct sum", sum, build_direct_sum(sum, communicator.rank(), {}));
    }
}

int run(const std::string& mode, const std::string& module) {
    const std::unique_ptr<Communicator> communicator = make_mpi_communicator();
    const std::map<std::string, std::function<void()>> modes{
        {"move", [&] { move_and_compare(*communicator, module); }},
        {"abort", [&] { run_until_failure(*communicator, module, 600.0, [&] { communicator->abort(6); }); }},
        {"stop", [&] { run_until_failure(*communicator, module, 1.0, [] { raise(SIGSTOP); }); }},
        {"kill", [&] { run_until_failure(*communicator, module, 600.0, [] { raise(SIGKILL); }); }},
        {"exchange", [&] { exchange_without_answer(*communicator); }},
        {"measure", [&] { measure(*communicator); }},
    };
    const auto chosen = modes.find(mode);
    if (chosen == modes.end()) throw ConfigError("mpi_ranks: unknown mode '" + mode + "'");
    try {
        chosen->second();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        communicator->abort(1);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);  // more ranks than cores
    try {
        return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return static_cast<int>(error.code());
    }
}
