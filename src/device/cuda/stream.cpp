#include "device/cuda/stream.h"

#include "device/cuda/error.h"

namespace mfsdp::device::cuda {

OwnedStream::OwnedStream() { MFSDP_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }

OwnedStream::~OwnedStream() { MFSDP_CUDA_NOTHROW(cudaStreamDestroy(stream_)); }

CudaStream::CudaStream(Device& device, Queue& queue) : Stream(device), queue_(queue) { queue_.taken = true; }

CudaStream::~CudaStream() {
    // Memory that its operations use may be freed next.
    MFSDP_CUDA_NOTHROW(cudaStreamSynchronize(queue_.stream()));
    queue_.taken = false;
}

Event CudaStream::record() {
    if (used_) {
        last_ = queue_.timeline().record();
        used_ = false;
    }
    return {&queue_.timeline(), last_, 0.0};
}

void CudaStream::wait(const Event& event) {
    if (event.timeline == nullptr || event.timeline == &queue_.timeline()) return;
    const auto* const timeline = dynamic_cast<const CudaTimeline*>(event.timeline);
    if (timeline == nullptr) {
        event.wait();
        return;
    }
    if (timeline->reached(event.value)) return;
    MFSDP_CUDA(cudaStreamWaitEvent(queue_.stream(), timeline->event(event.value), cudaEventWaitDefault));
    mark_used();
}

void CudaStream::synchronize() { record().wait(); }

}  // namespace mfsdp::device::cuda
