#include "mfsdp/comm/link_model.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/json_number.h"

#include <algorithm>

namespace mfsdp::comm {

namespace {

// Bytes of one round by link and direction. The directions of a link are independent, and so are the two kinds of link.
struct RoundLoad {
    std::int64_t within[2] = {0, 0};   // sent, received
    std::int64_t between[2] = {0, 0};  // sent, received
    std::int64_t local = 0;            // read and written by copies and adds
};

RoundLoad load_of(const Round& round, int rank, const Mesh& mesh) {
    const auto node = [&](int r) { return mesh.node_of_rank.at(static_cast<std::size_t>(r)); };
    RoundLoad load;
    for (const TransferOperation& operation : round.operations) {
        const std::int64_t source_bytes = operation.count * device::size_of(operation.source_dtype);
        const std::int64_t target_bytes = operation.count * device::size_of(operation.target_dtype);
        switch (operation.kind) {
            case OperationKind::send:
            case OperationKind::receive: {
                const std::size_t direction = operation.kind == OperationKind::send ? 0 : 1;
                const bool near = node(operation.peer) == node(rank);
                (near ? load.within : load.between)[direction] += source_bytes;
                break;
            }
            case OperationKind::copy:
                load.local += source_bytes + target_bytes;
                break;
            case OperationKind::add:
                load.local += source_bytes + 2 * target_bytes;
                break;
            case OperationKind::broadcast:
                // Passed on from rank to rank: everybody but the last sends it once, everybody but the root receives
                // it.
                (mesh.nodes() == 1 ? load.within : load.between)[operation.receivers > 0 ? 0 : 1] += source_bytes;
                break;
        }
    }
    return load;
}

double transfer_seconds(std::int64_t bytes, double latency, double bytes_per_second) {
    return bytes == 0 ? 0.0 : latency + static_cast<double>(bytes) / bytes_per_second;
}

}  // namespace

double LinkModel::seconds(const TransferSchedule& schedule, int rank, const Mesh& mesh) const {
    double longest = 0.0;
    for (const Channel& channel : schedule.channels) {
        double total = 0.0;
        for (const Round& round : channel.rounds) {
            const RoundLoad load = load_of(round, rank, mesh);
            double slowest = transfer_seconds(load.local, 0.0, bytes_per_second_local);
            for (const std::int64_t bytes : load.within) {
                slowest = std::max(slowest,
                                   transfer_seconds(bytes, latency_seconds_within_node, bytes_per_second_within_node));
            }
            for (const std::int64_t bytes : load.between) {
                slowest = std::max(
                    slowest, transfer_seconds(bytes, latency_seconds_between_nodes, bytes_per_second_between_nodes));
            }
            total += slowest;
        }
        longest = std::max(longest, total);
    }
    return longest;
}

std::string LinkModel::text() const {
    std::string text;
    for (const double figure :
         {latency_seconds_within_node, bytes_per_second_within_node, latency_seconds_between_nodes,
          bytes_per_second_between_nodes, bytes_per_second_local}) {
        text.append(text.empty() ? "" : " ").append(base::json_number(figure));
    }
    return text;
}

}  // namespace mfsdp::comm
