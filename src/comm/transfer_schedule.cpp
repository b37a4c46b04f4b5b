#include "mfsdp/comm/transfer_schedule.h"

#include <algorithm>
#include <utility>

namespace mfsdp::comm {

namespace {

std::int64_t message_bytes(const TransferSchedule& schedule, OperationKind kind) {
    std::int64_t bytes = 0;
    for (const Channel& channel : schedule.channels) {
        for (const Round& round : channel.rounds) {
            for (const TransferOperation& operation : round.operations) {
                const std::int64_t once = operation.count * device::size_of(operation.source_dtype);
                if (operation.kind == kind) bytes += once;
                if (operation.kind != OperationKind::broadcast) continue;
                if (kind == OperationKind::send) bytes += operation.receivers * once;
                if (kind == OperationKind::receive && operation.receivers == 0) bytes += once;
            }
        }
    }
    return bytes;
}

}  // namespace

std::string_view name(BufferRole role) {
    switch (role) {
        case BufferRole::shard:
            return "shard";
        case BufferRole::gathered:
            return "gathered";
        case BufferRole::gradient:
            return "gradient";
        case BufferRole::accumulator:
            return "accumulator";
        case BufferRole::direction:
            return "direction";
        case BufferRole::scratch:
            return "scratch";
    }
    return "?";
}

std::int64_t TransferSchedule::bytes_sent() const { return message_bytes(*this, OperationKind::send); }

std::int64_t TransferSchedule::bytes_received() const { return message_bytes(*this, OperationKind::receive); }

bool TransferSchedule::empty() const {
    return std::all_of(channels.begin(), channels.end(), [](const Channel& channel) {
        return std::all_of(channel.rounds.begin(), channel.rounds.end(),
                           [](const Round& round) { return round.operations.empty(); });
    });
}

TransferSchedule lower_broadcasts(const TransferSchedule& schedule, int rank) {
    TransferSchedule lowered = schedule;
    for (Channel& channel : lowered.channels) {
        for (Round& round : channel.rounds) {
            std::vector<TransferOperation> operations;
            for (TransferOperation operation : round.operations) {
                if (operation.kind != OperationKind::broadcast) {
                    operations.push_back(operation);
                    continue;
                }
                const int receivers = std::exchange(operation.receivers, 0);
                operation.kind = receivers > 0 ? OperationKind::send : OperationKind::receive;
                if (receivers == 0) operations.push_back(operation);
                for (int step = 1; step <= receivers; ++step) {
                    operation.peer = (rank + step) % (receivers + 1);
                    operations.push_back(operation);
                }
            }
            round.operations = std::move(operations);
        }
    }
    return lowered;
}

std::vector<Piece> coalesce(std::vector<Piece> pieces) {
    std::erase_if(pieces, [](const Piece& piece) { return piece.count == 0; });
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.group_offset < b.group_offset; });
    std::vector<Piece> joined;
    for (const Piece& piece : pieces) {
        if (!joined.empty()) {
            Piece& last = joined.back();
            if (last.group_offset + last.count == piece.group_offset &&
                last.local_offset + last.count == piece.local_offset) {
                last.count += piece.count;
                continue;
            }
        }
        joined.push_back(piece);
    }
    return joined;
}

}  // namespace mfsdp::comm
