#include "mfsdp/runtime/train/machine.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/device/cuda_device.h"
#include "mfsdp/runtime/config/environment.h"
#include "mfsdp/runtime/train/launch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <span>
#include <vector>

#include <dlfcn.h>

namespace mfsdp::runtime {

namespace {

/// What one rank sees; of fixed size, because it is exchanged. A longer reason loses its end.
struct Sight {
    int gpus = 0;
    std::array<char, 1020> reason{};  ///< why none
};

/// Whether this machine has NVIDIA's driver. Asked before the backend is loaded, which costs a run on the CPU a tenth
/// of a second and some memory on machines that have the backend's libraries but no GPU.
bool has_driver() {
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver == nullptr) return false;
    dlclose(driver);
    return true;
}

Sight look(DeviceChoice choice, const MachineOptions& options) {
    Sight sight;
    if (choice == DeviceChoice::cpu) return sight;
    // A backend that the caller names may need no driver.
    const bool asks = choice == DeviceChoice::cuda || !options.cuda_module.empty() || has_driver();
    if (!asks) return sight;
    try {
        sight.gpus = device::cuda_device_count(options.cuda_module);
    } catch (const Error& error) {
        std::strncpy(sight.reason.data(), error.what(), sight.reason.size() - 1);
    }
    return sight;
}

/// Of the ranks on this rank's node, how many there are and how many come before it.
struct Place {
    std::int64_t on_node = 0;
    std::int64_t before = 0;
};

Place place_of(const std::vector<int>& nodes, std::size_t rank) {
    Place place;
    place.on_node = std::count(nodes.begin(), nodes.end(), nodes[rank]);
    place.before = std::count(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(rank), nodes[rank]);
    return place;
}

/// The device's kind, from what all ranks see.
device::DeviceKind kind_for(DeviceChoice choice, const std::vector<Sight>& all) {
    if (choice == DeviceChoice::cpu) return device::DeviceKind::cpu;
    const auto without = std::find_if(all.begin(), all.end(), [](const Sight& sight) { return sight.gpus == 0; });
    if (without == all.end()) return device::DeviceKind::cuda;
    const bool none = std::all_of(all.begin(), all.end(), [](const Sight& sight) { return sight.gpus == 0; });
    if (choice == DeviceChoice::automatic && none) return device::DeviceKind::cpu;
    std::string text = "config: device = ";
    text.append(choice == DeviceChoice::cuda ? "cuda" : "auto").append(": rank ");
    text.append(std::to_string(without - all.begin())).append(" sees no GPU");
    if (without->reason.front() != '\0') text.append(" (").append(without->reason.data()).append(")");
    if (choice == DeviceChoice::automatic) text.append(", others do; set device = cpu or start where all do");
    throw ConfigError(text);
}

/// GPUs of this rank's node are given out in the order of the ranks.
int ordinal_for(const std::vector<Sight>& all, const std::vector<int>& nodes, std::size_t rank) {
    for (std::size_t other = 0; other < all.size(); ++other) {
        const Place place = place_of(nodes, other);
        if (place.on_node <= all[other].gpus) continue;
        throw ConfigError("config: device = cuda: " + std::to_string(place.on_node) + " ranks on the node of rank " +
                          std::to_string(other) + ", which sees " + std::to_string(all[other].gpus) +
                          " GPUs; start at most one rank for each GPU, and let every rank see all GPUs of its node");
    }
    return static_cast<int>(place_of(nodes, rank).before);
}

void check_transport(const TrainConfig& config, device::DeviceKind kind, int ranks) {
    const TransportChoice transport = config.parallel.transport;
    const bool cuda = kind == device::DeviceKind::cuda;
    if (transport == TransportChoice::self && ranks > 1) {
        throw ConfigError("config: parallel.transport = self: needs 1 rank, started with " + std::to_string(ranks));
    }
    if (transport == TransportChoice::mpi && !started_by_launcher()) {
        throw ConfigError(
            "config: parallel.transport = mpi: this process was not started by mpirun or srun --mpi=pmix");
    }
    if (transport == TransportChoice::mpi && cuda && ranks > 1) {
        throw ConfigError("config: parallel.transport = mpi: MPI does not reach the memory of GPUs; use nccl or auto");
    }
    if (transport == TransportChoice::nccl && !cuda) {
        throw ConfigError("config: parallel.transport = nccl: needs device = cuda, and no rank sees a GPU");
    }
}

}  // namespace

Machine choose_machine(const TrainConfig& config, comm::Communicator& communicator, const MachineOptions& options) {
    const Sight mine = look(config.device, options);
    std::vector<Sight> all(static_cast<std::size_t>(communicator.size()));
    communicator.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    Machine machine;
    machine.kind = kind_for(config.device, all);
    machine.cuda_module = options.cuda_module;
    if (machine.kind == device::DeviceKind::cpu && mine.reason.front() != '\0') {
        machine.notice = std::string("device: the CPU, since GPUs cannot be used: ") + mine.reason.data();
    }
    check_transport(config, machine.kind, communicator.size());
    if (machine.kind == device::DeviceKind::cuda) {
        machine.ordinal = ordinal_for(all, communicator.node_of_rank(), static_cast<std::size_t>(communicator.rank()));
    }
    return machine;
}

DeviceChoice choice_of(const Machine& machine) {
    return machine.kind == device::DeviceKind::cuda ? DeviceChoice::cuda : DeviceChoice::cpu;
}

std::unique_ptr<device::Device> make_device(const Machine& machine, const TrainConfig& config, int threads) {
    if (machine.kind == device::DeviceKind::cpu) return device::make_cpu_device({.threads = threads});
    return device::make_cuda_device({machine.ordinal, config.precision.deterministic, machine.cuda_module});
}

std::unique_ptr<comm::Executor> make_executor(const Machine& machine, const TrainConfig& config,
                                              comm::Communicator& communicator, device::Device& device) {
    if (communicator.size() == 1) return comm::make_self_executor(device);
    const auto timeout = static_cast<double>(config.parallel.train_timeout_seconds);
    if (machine.kind == device::DeviceKind::cpu) {
        return comm::make_progress_executor(communicator, device, {.timeout_seconds = timeout});
    }
    comm::NcclExecutorOptions options;
    options.init_timeout_seconds = static_cast<double>(config.parallel.init_timeout_seconds);
    options.timeout_seconds = timeout;
    options.module_path = machine.cuda_module;
    options.give_up = [&communicator](const std::string& reason) {
        std::cerr << rank_and_host(communicator) + ": " + reason + "\n" << std::flush;
        communicator.abort(static_cast<int>(ExitCode::communication));
    };
    return comm::make_nccl_executor(communicator, device, options);
}

}  // namespace mfsdp::runtime
