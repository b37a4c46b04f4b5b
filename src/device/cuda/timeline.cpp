#include "device/cuda/timeline.h"

#include "device/cuda/error.h"

#include <utility>

namespace mfsdp::device::cuda {

namespace {

/// Asking the runtime takes half a microsecond, and a pool asks for all of its pending releases at every allocation.
constexpr std::chrono::microseconds kAskAgainAfter{20};

void raise(std::atomic<std::uint64_t>& target, std::uint64_t value) {
    std::uint64_t old = target.load(std::memory_order_relaxed);
    while (old < value && !target.compare_exchange_weak(old, value, std::memory_order_release)) {
    }
}

}  // namespace

void DeviceFailure::set(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    failure_ = std::move(failure);
    failed_.store(true, std::memory_order_release);
}

void DeviceFailure::rethrow() const {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
}

CudaTimeline::CudaTimeline(cudaStream_t stream, const DeviceFailure& failure) : stream_(stream), failure_(failure) {
    for (cudaEvent_t& event : events_) MFSDP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

CudaTimeline::~CudaTimeline() {
    for (cudaEvent_t event : events_) MFSDP_CUDA_NOTHROW(cudaEventDestroy(event));
}

std::uint64_t CudaTimeline::record() {
    MFSDP_CUDA(cudaEventRecord(event(recorded_ + 1), stream_));
    return ++recorded_;
}

bool CudaTimeline::reached(std::uint64_t value) const {
    failure_.rethrow();
    if (completed_.load(std::memory_order_acquire) >= value) return true;
    // Points are reached in their order: behind one that was not a moment ago there is none.
    const auto now = std::chrono::steady_clock::now();
    if (value >= unreached_.load(std::memory_order_relaxed) &&
        now - asked_.load(std::memory_order_relaxed) < kAskAgainAfter) {
        return false;
    }
    const cudaError_t status = cudaEventQuery(event(value));
    if (status == cudaErrorNotReady) {
        unreached_.store(value, std::memory_order_relaxed);
        asked_.store(now, std::memory_order_relaxed);
        return false;
    }
    MFSDP_CUDA(status);
    raise(completed_, value);
    return true;
}

void CudaTimeline::wait(std::uint64_t value) {
    if (completed_.load(std::memory_order_acquire) < value) {
        const cudaError_t status = cudaEventSynchronize(event(value));
        failure_.rethrow();  // says more than the status that follows from it
        MFSDP_CUDA(status);
        raise(completed_, value);
    }
    failure_.rethrow();
}

}  // namespace mfsdp::device::cuda
