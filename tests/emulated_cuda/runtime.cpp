// The part of the CUDA runtime that the backend calls. What the backend does not use does not exist here, so that a new
// call does not link before it is written; arguments that are not emulated end the program.

#include "emulated_cuda/runtime.h"

#include "emulated_cuda/control.h"
#include "emulated_cuda/kernel.h"
#include "emulated_cuda/streams.h"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

namespace emulated_cuda {

namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kPoison = 0xFF;  // NaN in every floating-point type

template <class T>
void read_number(std::string_view name, std::string_view text, T& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
        fail("the setting '%.*s' is no number: '%.*s'", static_cast<int>(name.size()), name.data(),
             static_cast<int>(text.size()), text.data());
    }
}

void read_flag(std::string_view name, std::string_view text, bool& value) {
    int number = 0;
    read_number(name, text, number);
    value = number != 0;
}

void apply(Settings& target, std::string_view name, std::string_view value) {
    if (name == "devices") {
        read_number(name, value, target.devices);
    } else if (name == "asynchronous") {
        read_flag(name, value, target.asynchronous);
    } else if (name == "seed") {
        read_number(name, value, target.seed);
    } else if (name == "workers") {
        read_number(name, value, target.workers);
    } else if (name == "backwards") {
        read_flag(name, value, target.backwards);
    } else if (name == "memory_bytes") {
        read_number(name, value, target.memory_bytes);
    } else if (name == "failing_call") {
        target.failing_call = value;
    } else {
        fail("there is no setting '%.*s'", static_cast<int>(name.size()), name.data());
    }
}

void apply_all(Settings& target, std::string_view text) {
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), item.size() + 1));
        const std::size_t equals = item.find('=');
        if (equals == std::string_view::npos) {
            fail("a setting is name=value, got '%.*s'", static_cast<int>(item.size()), item.data());
        }
        apply(target, item.substr(0, equals), item.substr(equals + 1));
    }
}

enum class MemoryKind { device, pinned };

struct Allocation {
    MemoryKind kind;
    std::size_t bytes;
};

/// Everything that must be released again. Reports what was not when the library is unloaded.
class Registry {
  public:
    Registry() = default;
    Registry(const Registry&) = delete;
    Registry& operator=(const Registry&) = delete;
    ~Registry() {
        const std::string left = leaks();
        if (left.empty()) return;
        std::cerr << left << std::flush;
        std::_Exit(EXIT_FAILURE);
    }

    void* allocate(MemoryKind kind, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        if (kind == MemoryKind::device && device_bytes_ + static_cast<std::int64_t>(bytes) > settings().memory_bytes) {
            return nullptr;
        }
        // Not a byte more than asked for, so that AddressSanitizer sees what goes beyond.
        void* address = nullptr;
        if (posix_memalign(&address, kAlignment, std::max<std::size_t>(bytes, 1)) != 0) return nullptr;
        std::memset(address, kPoison, bytes);
        if (kind == MemoryKind::device) device_bytes_ += static_cast<std::int64_t>(bytes);
        allocations_.emplace(static_cast<const std::byte*>(address), Allocation{kind, bytes});
        return address;
    }

    void free(MemoryKind kind, void* address, const char* call) {
        const std::lock_guard lock(mutex_);
        const auto place = allocations_.find(static_cast<const std::byte*>(address));
        if (place == allocations_.end() || place->second.kind != kind) {
            fail("%s: %p is not the begin of living memory of this kind (freed twice, or never allocated)", call,
                 address);
        }
        if (kind == MemoryKind::device) device_bytes_ -= static_cast<std::int64_t>(place->second.bytes);
        std::memset(address, kPoison, place->second.bytes);
        allocations_.erase(place);
        std::free(address);
    }

    /// The kind of memory that holds all of [address, address + bytes), if any.
    [[nodiscard]] const Allocation* find(const void* address, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        auto place = allocations_.upper_bound(static_cast<const std::byte*>(address));
        if (place == allocations_.begin()) return nullptr;
        --place;
        const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - place->first);
        return offset + bytes <= place->second.bytes ? &place->second : nullptr;
    }

    [[nodiscard]] std::int64_t device_bytes() {
        const std::lock_guard lock(mutex_);
        return device_bytes_;
    }

    void add_object(const void* object, const char* kind) {
        const std::lock_guard lock(mutex_);
        objects_.emplace(object, kind);
    }
    void require_object(const void* object, const char* kind, const char* call) {
        const std::lock_guard lock(mutex_);
        const auto place = objects_.find(object);
        if (place == objects_.end() || std::string_view(place->second) != kind) {
            fail("%s: %p is no living %s", call, object, kind);
        }
    }
    void remove_object(const void* object, const char* kind, const char* call) {
        require_object(object, kind, call);
        const std::lock_guard lock(mutex_);
        objects_.erase(object);
    }

    [[nodiscard]] std::string leaks() {
        const std::lock_guard lock(mutex_);
        std::string text;
        for (const auto& [address, allocation] : allocations_) {
            text.append("emulated cuda: ").append(std::to_string(allocation.bytes)).append(" bytes of ");
            text.append(allocation.kind == MemoryKind::device ? "device" : "pinned").append(" memory were not freed\n");
        }
        for (const auto& [object, kind] : objects_) {
            text.append("emulated cuda: a ").append(kind).append(" was not destroyed\n");
        }
        return text;
    }

    /// Calls `function` for every living object of a kind.
    template <class Function>
    void for_each(std::string_view kind, Function function) {
        std::map<const void*, const char*> copy;
        {
            const std::lock_guard lock(mutex_);
            copy = objects_;
        }
        for (const auto& [object, name] : copy) {
            if (kind == name) function(object);
        }
    }

  private:
    std::mutex mutex_;
    std::map<const std::byte*, Allocation> allocations_;
    std::map<const void*, const char*> objects_;
    std::int64_t device_bytes_ = 0;
};

Registry& registry() {
    static Registry result;
    return result;
}
// Made when the library is opened, so that it is the last to go.
[[maybe_unused]] const Registry& registry_at_load = registry();

constexpr const char* kStream = "cudaStream_t";
constexpr const char* kEvent = "cudaEvent_t";

StreamQueue& queue(cudaStream_t stream, const char* call) {
    if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
        fail("%s: the default stream is not emulated, it waits for all others", call);
    }
    registry().require_object(stream, kStream, call);
    return *reinterpret_cast<StreamQueue*>(stream);
}

EventState& event_state(cudaEvent_t event, const char* call) {
    registry().require_object(event, kEvent, call);
    return *reinterpret_cast<EventState*>(event);
}

void synchronize_all() {
    registry().for_each(
        kStream, [](const void* stream) { static_cast<StreamQueue*>(const_cast<void*>(stream))->synchronize(); });
}

[[nodiscard]] cudaError_t planned_failure(const char* call) {
    return settings().failing_call == call ? cudaErrorLaunchFailure : cudaSuccess;
}

thread_local int current_device = 0;

// See mfsdp_emulated_cuda_count.
std::atomic<long long> waits{0};
std::atomic<long long> allocations{0};

std::atomic<std::uint64_t> streams_made{0};

}  // namespace

Settings& settings() {
    static Settings result = [] {
        Settings initial;
        if (const char* const text = std::getenv("MFSDP_EMULATED_CUDA"); text != nullptr) apply_all(initial, text);
        return initial;
    }();
    return result;
}

void enqueue(cudaStream_t stream, std::function<void()> task) { queue(stream, "launch").push(std::move(task)); }

void require_device_memory(const void* address, std::size_t bytes, const char* call) {
    const Allocation* const allocation = registry().find(address, bytes);
    if (allocation == nullptr || allocation->kind != MemoryKind::device) {
        fail("%s: [%p, + %zu) does not lie in one allocation of device memory", call, address, bytes);
    }
}

void* make_object(const char* kind) {
    void* const object = std::malloc(1);
    registry().add_object(object, kind);
    return object;
}
void require_object(const void* object, const char* kind, const char* call) {
    registry().require_object(object, kind, call);
}
void destroy_object(void* object, const char* kind, const char* call) {
    registry().remove_object(object, kind, call);
    std::free(object);
}

std::string leaks() { return registry().leaks(); }

}  // namespace emulated_cuda

using namespace emulated_cuda;

// A call fails as planned by the settings, or does what it says.
#define MFSDP_EMULATED_CALL() \
    if (const cudaError_t planned = planned_failure(__func__); planned != cudaSuccess) return planned

void mfsdp_emulated_cuda_configure(const char* text) { apply_all(settings(), text); }

long long mfsdp_emulated_cuda_count(const char* what) {
    const std::string_view name(what);
    if (name == "waits") return waits;
    if (name != "allocations") fail("nothing called %s is counted", what);
    return allocations;
}

const char* mfsdp_emulated_cuda_leaks() {
    static std::string text;
    text = leaks();
    return text.c_str();
}

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
    MFSDP_EMULATED_CALL();
    *count = settings().devices;
    return settings().devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
    MFSDP_EMULATED_CALL();
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    MFSDP_EMULATED_CALL();
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    MFSDP_EMULATED_CALL();
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    *properties = {};
    std::strcpy(properties->name, "emulated GPU");
    properties->major = 9;
    properties->minor = 0;
    properties->multiProcessorCount = 4;
    properties->totalGlobalMem = static_cast<std::size_t>(settings().memory_bytes);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    MFSDP_EMULATED_CALL();
    *total = static_cast<std::size_t>(settings().memory_bytes);
    *free = static_cast<std::size_t>(settings().memory_bytes - registry().device_bytes());
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
    MFSDP_EMULATED_CALL();
    ++allocations;
    *address = registry().allocate(MemoryKind::device, bytes);
    return *address != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* address) {
    MFSDP_EMULATED_CALL();
    if (address == nullptr) return cudaSuccess;
    ++allocations;
    synchronize_all();
    registry().free(MemoryKind::device, address, __func__);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned flags) {
    MFSDP_EMULATED_CALL();
    if (flags != cudaHostAllocDefault) fail("cudaHostAlloc: flags %u are not emulated", flags);
    ++allocations;
    *address = registry().allocate(MemoryKind::pinned, bytes);
    return *address != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void* address) {
    MFSDP_EMULATED_CALL();
    if (address == nullptr) return cudaSuccess;
    ++allocations;
    synchronize_all();
    registry().free(MemoryKind::pinned, address, __func__);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    MFSDP_EMULATED_CALL();
    const auto require_pinned = [&](const void* address) {
        const Allocation* const allocation = registry().find(address, bytes);
        if (allocation == nullptr || allocation->kind != MemoryKind::pinned) {
            fail("cudaMemcpyAsync: host memory that is not pinned makes the copy block the host");
        }
    };
    switch (kind) {
        case cudaMemcpyHostToDevice:
            require_device_memory(target, bytes, __func__);
            require_pinned(source);
            break;
        case cudaMemcpyDeviceToHost:
            require_pinned(target);
            require_device_memory(source, bytes, __func__);
            break;
        case cudaMemcpyDeviceToDevice:
            require_device_memory(target, bytes, __func__);
            require_device_memory(source, bytes, __func__);
            break;
        default:
            fail("cudaMemcpyAsync: kind %d is not emulated", static_cast<int>(kind));
    }
    enqueue(stream, [=] { std::memcpy(target, source, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
    MFSDP_EMULATED_CALL();
    require_device_memory(target, bytes, __func__);
    enqueue(stream, [=] { std::memset(target, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
    MFSDP_EMULATED_CALL();
    enqueue(stream, [=] { function(argument); });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    MFSDP_EMULATED_CALL();
    if (flags != cudaStreamNonBlocking) {
        fail("cudaStreamCreateWithFlags: only cudaStreamNonBlocking is emulated, got %u", flags);
    }
    auto* const made = new StreamQueue(settings().asynchronous, settings().seed + ++streams_made);
    registry().add_object(made, kStream);
    *stream = reinterpret_cast<cudaStream_t>(made);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    MFSDP_EMULATED_CALL();
    StreamQueue* const destroyed = &queue(stream, __func__);
    destroyed->synchronize();
    registry().remove_object(destroyed, kStream, __func__);
    delete destroyed;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    MFSDP_EMULATED_CALL();
    StreamQueue& waited = queue(stream, __func__);
    if (!waited.is_idle()) ++waits;
    waited.synchronize();
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    MFSDP_EMULATED_CALL();
    return queue(stream, __func__).is_idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    MFSDP_EMULATED_CALL();
    if (flags != cudaEventWaitDefault) fail("cudaStreamWaitEvent: flags %u are not emulated", flags);
    EventState* const state = &event_state(event, __func__);
    enqueue(stream, [state, record = state->recorded()] { state->wait(record); });
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    MFSDP_EMULATED_CALL();
    synchronize_all();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    MFSDP_EMULATED_CALL();
    if (flags != cudaEventDisableTiming) {
        fail("cudaEventCreateWithFlags: only cudaEventDisableTiming is emulated, got %u", flags);
    }
    auto* const made = new EventState;
    registry().add_object(made, kEvent);
    *event = reinterpret_cast<cudaEvent_t>(made);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    MFSDP_EMULATED_CALL();
    EventState* const state = &event_state(event, __func__);
    synchronize_all();  // streams may be waiting for it still
    registry().remove_object(state, kEvent, __func__);
    delete state;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    MFSDP_EMULATED_CALL();
    EventState* const state = &event_state(event, __func__);
    enqueue(stream, [state, record = state->record()] { state->reach(record); });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    MFSDP_EMULATED_CALL();
    return event_state(event, __func__).is_reached() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    MFSDP_EMULATED_CALL();
    EventState& state = event_state(event, __func__);
    if (!state.is_reached()) ++waits;
    state.wait(state.recorded());
    return cudaSuccess;
}

// No call is remembered: each of them answers with its own error.
cudaError_t cudaGetLastError() { return cudaSuccess; }

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "no error";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorInvalidConfiguration:
            return "invalid configuration argument";
        case cudaErrorNoDevice:
            return "no CUDA-capable device is detected";
        case cudaErrorInvalidDevice:
            return "invalid device ordinal";
        case cudaErrorLaunchFailure:
            return "unspecified launch failure";
        default:
            return "an error of the emulated runtime";
    }
}

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration:
            return "cudaErrorInvalidConfiguration";
        case cudaErrorNoDevice:
            return "cudaErrorNoDevice";
        case cudaErrorInvalidDevice:
            return "cudaErrorInvalidDevice";
        case cudaErrorLaunchFailure:
            return "cudaErrorLaunchFailure";
        default:
            return "cudaErrorEmulated";
    }
}

}  // extern "C"
