#include "comm/nccl/meeting.h"

#include "mfsdp/base/error.h"

#include "comm/nccl/error.h"

#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::comm::nccl {

namespace {

/// What rank 0 brings. A failure is exchanged too: the others would wait for the names for ever.
struct Invitation {
    std::array<ncclUniqueId, kLanes> ids{};
    std::array<char, 512> failure{};
};

Invitation invite() {
    Invitation mine;
    try {
        for (ncclUniqueId& id : mine.ids) MFSDP_NCCL(ncclGetUniqueId(&id));
    } catch (const CommunicationError& error) {
        std::strncpy(mine.failure.data(), error.what(), mine.failure.size() - 1);
    }
    return mine;
}

}  // namespace

std::array<ncclUniqueId, kLanes> exchange_ids(Communicator& communicator) {
    const Invitation mine = communicator.rank() == 0 ? invite() : Invitation{};
    std::vector<Invitation> all(static_cast<std::size_t>(communicator.size()));
    communicator.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    if (all.front().failure.front() != '\0') throw CommunicationError(std::string(all.front().failure.data()));
    return all.front().ids;
}

}  // namespace mfsdp::comm::nccl
