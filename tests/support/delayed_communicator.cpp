#include "delayed_communicator.h"

#include <exception>

namespace mfsdp::test {

bool DelayedCommunicator::test(Request request) {
    const auto entry = not_before_.find(request);
    if (entry != not_before_.end() && Clock::now() < entry->second) return false;
    if (!inner_.test(request)) return false;
    not_before_.erase(request);
    return true;
}

void DelayedCommunicator::cancel(Request request) noexcept {
    not_before_.erase(request);
    inner_.cancel(request);
}

void DelayedCommunicator::abort(int exit_code) {
    inner_.abort(exit_code);
    std::terminate();  // not reached; the compiler does not see that a virtual function never returns
}

comm::Communicator::Request DelayedCommunicator::remember(Request request, const comm::Message& message) {
    const std::chrono::duration<double> delay(delay_seconds_(message));
    not_before_[request] = Clock::now() + std::chrono::duration_cast<Clock::duration>(delay);
    return request;
}

}  // namespace mfsdp::test
