#include "mfsdp/base/error.h"
#include "mfsdp/comm/builders/builders.h"

#include "ring.h"

#include <algorithm>

namespace mfsdp::comm {

namespace {

// The slowest rank decides when a gather is over.
double slowest_rank_seconds(GatherAlgorithm algorithm, const Movement& movement, const Mesh& mesh,
                            const LinkModel& links, const BuildOptions& options) {
    double slowest = 0.0;
    for (int rank = 0; rank < movement.ranks(); ++rank) {
        const TransferSchedule schedule = build_gather(algorithm, movement, rank, options);
        slowest = std::max(slowest, links.seconds(schedule, rank, mesh));
    }
    return slowest;
}

}  // namespace

GatherAlgorithm choose_gather(const Movement& movement, GatherAlgorithm wanted, const Mesh& mesh,
                              const LinkModel& links, const BuildOptions& options) {
    if (wanted != GatherAlgorithm::automatic) return wanted;
    if (movement.ranks() == 1 || !ring_applies(movement)) return GatherAlgorithm::direct;
    const double direct = slowest_rank_seconds(GatherAlgorithm::direct, movement, mesh, links, options);
    const double ring = slowest_rank_seconds(GatherAlgorithm::ring, movement, mesh, links, options);
    return ring < direct ? GatherAlgorithm::ring : GatherAlgorithm::direct;
}

TransferSchedule build_gather(GatherAlgorithm algorithm, const Movement& movement, int rank,
                              const BuildOptions& options) {
    switch (algorithm) {
        case GatherAlgorithm::direct:
            return build_direct_gather(movement, rank, options);
        case GatherAlgorithm::ring:
            return build_ring_gather(movement, rank, options);
        case GatherAlgorithm::broadcast:
            return build_broadcast_gather(movement, rank, options);
        case GatherAlgorithm::automatic:
            break;
    }
    MFSDP_ASSERT(false, "choose_gather turns 'automatic' into an algorithm before schedules are built");
    return {};
}

TransferSchedule build_sum(SumAlgorithm algorithm, const Movement& movement, int rank, const BuildOptions& options) {
    return algorithm == SumAlgorithm::direct ? build_direct_sum(movement, rank, options)
                                             : build_grouped_sum(movement, rank, options);
}

std::string_view name(GatherAlgorithm algorithm) {
    switch (algorithm) {
        case GatherAlgorithm::automatic:
            return "automatic";
        case GatherAlgorithm::direct:
            return "direct";
        case GatherAlgorithm::ring:
            return "ring";
        case GatherAlgorithm::broadcast:
            return "broadcast";
    }
    return "?";
}

std::string_view name(SumAlgorithm algorithm) { return algorithm == SumAlgorithm::direct ? "direct" : "grouped"; }

}  // namespace mfsdp::comm
