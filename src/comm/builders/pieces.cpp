#include "pieces.h"

#include "mfsdp/base/error.h"
#include "mfsdp/comm/communicator.h"

#include <algorithm>
#include <string>

namespace mfsdp::comm {

namespace {

void check_arrangement(const Movement& movement, const Arrangement& arrangement, const char* side) {
    for (std::size_t rank = 0; rank < arrangement.pieces.size(); ++rank) {
        std::int64_t end = 0;
        for (const Piece& piece : arrangement.pieces[rank]) {
            MFSDP_ASSERT(piece.count >= 0 && piece.local_offset >= 0 && piece.group_offset >= end,
                         "pieces are sorted and disjoint: '" + movement.name + "', " + side + ", rank " +
                             std::to_string(rank) + ", group offset " + std::to_string(piece.group_offset));
            end = piece.group_offset + piece.count;
        }
    }
}

TransferOperation make_message(OperationKind kind, const Movement& movement, int peer, BufferRole buffer,
                               std::int64_t offset, std::int64_t count) {
    TransferOperation operation;
    operation.kind = kind;
    operation.buffer = buffer;
    operation.offset = offset;
    operation.count = count;
    operation.source_dtype = movement.dtype;
    operation.target_dtype = movement.dtype;
    operation.peer = peer;
    return operation;
}

}  // namespace

void check_movement(const Movement& movement, int rank) {
    MFSDP_ASSERT(movement.to.pieces.size() == movement.from.pieces.size(),
                 "both arrangements of '" + movement.name + "' list every rank");
    MFSDP_ASSERT(rank >= 0 && rank < movement.ranks(),
                 "rank " + std::to_string(rank) + " takes part in '" + movement.name + "'");
    check_arrangement(movement, movement.from, "from");
    check_arrangement(movement, movement.to, "to");
}

std::int64_t chunk_elements(const Movement& movement, const BuildOptions& options) {
    MFSDP_ASSERT(options.chunk_bytes > 0 && options.chunk_bytes <= kMaxMessageBytes,
                 "a chunk has 1 to 2^30 bytes, got " + std::to_string(options.chunk_bytes));
    return std::max<std::int64_t>(1, options.chunk_bytes / device::size_of(movement.dtype));
}

std::vector<Run> messages(std::span<const Piece> source, std::span<const Piece> target, std::int64_t chunk) {
    std::vector<Run> runs;
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < source.size() && j < target.size()) {
        const std::int64_t source_end = source[i].group_offset + source[i].count;
        const std::int64_t target_end = target[j].group_offset + target[j].count;
        const std::int64_t begin = std::max(source[i].group_offset, target[j].group_offset);
        const std::int64_t end = std::min(source_end, target_end);
        if (begin < end) {
            const Run run{source[i].local_offset + begin - source[i].group_offset,
                          target[j].local_offset + begin - target[j].group_offset, begin, end - begin};
            const bool touches = !runs.empty() && runs.back().source_offset + runs.back().count == run.source_offset &&
                                 runs.back().target_offset + runs.back().count == run.target_offset &&
                                 runs.back().group_offset + runs.back().count == run.group_offset;
            if (touches) {
                runs.back().count += run.count;
            } else {
                runs.push_back(run);
            }
        }
        (source_end <= target_end ? i : j) += 1;
    }
    std::vector<Run> cut;
    for (const Run& run : runs) {
        for (std::int64_t done = 0; done < run.count; done += chunk) {
            cut.push_back({run.source_offset + done, run.target_offset + done, run.group_offset + done,
                           std::min(chunk, run.count - done)});
        }
    }
    return cut;
}

std::vector<Piece> subtract(std::span<const Piece> pieces, std::span<const Piece> minus) {
    std::vector<Piece> rest;
    std::size_t j = 0;
    for (const Piece& piece : pieces) {
        std::int64_t begin = piece.group_offset;
        const std::int64_t end = piece.group_offset + piece.count;
        const auto keep = [&](std::int64_t until) {
            if (until > begin) {
                rest.push_back({piece.local_offset + begin - piece.group_offset, begin, until - begin});
            }
        };
        while (j < minus.size() && minus[j].group_offset + minus[j].count <= begin) ++j;
        for (std::size_t k = j; k < minus.size() && minus[k].group_offset < end; ++k) {
            keep(minus[k].group_offset);
            begin = std::max(begin, minus[k].group_offset + minus[k].count);
        }
        keep(end);
    }
    return rest;
}

std::vector<Piece> split(std::span<const Piece> pieces, std::span<const std::int64_t> cuts, std::int64_t chunk) {
    std::vector<Piece> parts;
    for (const Piece& piece : pieces) {
        const std::int64_t end = piece.group_offset + piece.count;
        std::int64_t begin = piece.group_offset;
        auto cut = std::upper_bound(cuts.begin(), cuts.end(), begin);
        while (begin < end) {
            const std::int64_t until = cut == cuts.end() ? end : std::min(end, *cut++);
            for (; begin < until; begin = std::min(until, begin + chunk)) {
                parts.push_back(
                    {piece.local_offset + begin - piece.group_offset, begin, std::min(chunk, until - begin)});
            }
        }
    }
    return parts;
}

std::int64_t local_offset_of(std::span<const Piece> pieces, std::int64_t group_offset, std::int64_t count) {
    const auto after =
        std::upper_bound(pieces.begin(), pieces.end(), group_offset,
                         [](std::int64_t offset, const Piece& piece) { return offset < piece.group_offset; });
    if (after == pieces.begin()) return -1;
    const Piece& piece = *(after - 1);
    if (group_offset + count > piece.group_offset + piece.count) return -1;
    return piece.local_offset + group_offset - piece.group_offset;
}

std::int64_t total_count(std::span<const Piece> pieces) {
    std::int64_t total = 0;
    for (const Piece& piece : pieces) total += piece.count;
    return total;
}

TransferOperation make_send(const Movement& movement, int peer, BufferRole buffer, std::int64_t offset,
                            std::int64_t count) {
    return make_message(OperationKind::send, movement, peer, buffer, offset, count);
}

TransferOperation make_receive(const Movement& movement, int peer, BufferRole buffer, std::int64_t offset,
                               std::int64_t count) {
    return make_message(OperationKind::receive, movement, peer, buffer, offset, count);
}

void append_own_copies(const Movement& movement, int rank, std::int64_t chunk, Round& round) {
    const auto index = static_cast<std::size_t>(rank);
    for (const Run& run : messages(movement.from.pieces[index], movement.to.pieces[index], chunk)) {
        TransferOperation operation;
        operation.kind = OperationKind::copy;
        operation.buffer = movement.to.buffer;
        operation.offset = run.target_offset;
        operation.source_buffer = movement.from.buffer;
        operation.source_offset = run.source_offset;
        operation.count = run.count;
        operation.source_dtype = movement.dtype;
        operation.target_dtype = movement.dtype;
        round.operations.push_back(operation);
    }
}

void drop_empty_rounds(TransferSchedule& schedule) {
    for (Channel& channel : schedule.channels) {
        std::erase_if(channel.rounds, [](const Round& round) { return round.operations.empty(); });
    }
    while (!schedule.channels.empty() && schedule.channels.back().rounds.empty()) schedule.channels.pop_back();
}

}  // namespace mfsdp::comm
