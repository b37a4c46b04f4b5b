#include "mfsdp/base/error.h"
#include "mfsdp/comm/builders/builders.h"

#include "pieces.h"
#include "ring.h"

#include <algorithm>
#include <string>

// Rank r receives from r-1 the chunks of origin r-1, then those of origin r-2, and so on to origin r+1; it sends to r+1
// its own chunks and then forwards what it received, except what came from r+1. Receive k stands in round k; a send
// stands in the first round after that of its receive and of the send before it.
//
// Why this cannot deadlock: let c be the number of a rank's own chunks. The item received as number i leaves as number
// i + c, so send k stands in round k if c > 0 and in round k + 1 if c = 0. A rank in round k therefore waits for its
// successor to end rounds before k, and for its predecessor to end rounds before k, or up to k where the predecessor
// owns nothing. Round numbers never grow along these waits, and a cycle would need a ring on which nobody owns
// anything.

namespace mfsdp::comm {

namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

void append(std::vector<Round>& rounds, std::size_t round, const TransferOperation& operation) {
    if (rounds.size() <= round) rounds.resize(round + 1);
    rounds[round].operations.push_back(operation);
}

}  // namespace

bool ring_applies(const Movement& movement) {
    if (movement.combine != Combine::copy) return false;
    std::vector<Piece> all;
    for (const std::vector<Piece>& pieces : movement.from.pieces) {
        for (const Piece& piece : pieces) all.push_back({piece.group_offset, piece.group_offset, piece.count});
    }
    const std::int64_t held = total_count(all);
    std::sort(all.begin(), all.end(), [](const Piece& a, const Piece& b) { return a.group_offset < b.group_offset; });
    for (std::size_t i = 1; i < all.size(); ++i) {
        if (all[i - 1].group_offset + all[i - 1].count > all[i].group_offset) return false;
    }
    for (std::size_t rank = 0; rank < movement.from.pieces.size(); ++rank) {
        const std::vector<Piece>& own = movement.from.pieces[rank];
        const std::vector<Piece> foreign = subtract(movement.to.pieces[rank], own);
        if (!subtract(foreign, all).empty() || total_count(foreign) != held - total_count(own)) return false;
    }
    return true;
}

bool nothing_wanted(const Movement& movement) {
    return std::all_of(movement.to.pieces.begin(), movement.to.pieces.end(),
                       [](const std::vector<Piece>& pieces) { return pieces.empty(); });
}

void require_ring(const Movement& movement, std::string_view gather) {
    if (ring_applies(movement)) return;
    throw ConfigError("comm: the " + std::string(gather) + " gather cannot serve '" + movement.name +
                      "': it needs one holder per element and ranks that want all they do not hold; use the direct "
                      "gather");
}

std::vector<std::int64_t> layout_cuts(const Movement& movement) {
    std::vector<std::int64_t> cuts;
    for (const auto* arrangement : {&movement.from, &movement.to}) {
        for (const std::vector<Piece>& pieces : arrangement->pieces) {
            for (const Piece& piece : coalesce(pieces)) {
                cuts.push_back(piece.group_offset);
                cuts.push_back(piece.group_offset + piece.count);
            }
        }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    return cuts;
}

std::int64_t place_of(const std::vector<Piece>& pieces, const Piece& chunk) {
    const std::int64_t offset = local_offset_of(pieces, chunk.group_offset, chunk.count);
    MFSDP_ASSERT(offset >= 0, "chunks are cut where any rank's layout breaks");
    return offset;
}

TransferSchedule build_ring_gather(const Movement& movement, int rank, const BuildOptions& options) {
    check_movement(movement, rank);
    if (nothing_wanted(movement)) return {movement.name, {}, 0};  // replicated weights, say, whoever holds them
    require_ring(movement, "ring");
    const std::int64_t chunk = chunk_elements(movement, options);
    const std::vector<std::int64_t> cuts = layout_cuts(movement);
    const std::vector<Piece> held = coalesce(movement.from.pieces[at(rank)]);
    const std::vector<Piece> gathered = coalesce(movement.to.pieces[at(rank)]);
    const int ranks = movement.ranks();
    const int previous = (rank - 1 + ranks) % ranks;
    const int next = (rank + 1) % ranks;

    TransferSchedule schedule{movement.name, {Channel{}}, 0};
    std::vector<Round>& rounds = schedule.channels.front().rounds;
    rounds.emplace_back();
    std::size_t received = 0;  // receive number = round
    std::size_t send_round = 0;
    for (int distance = 0; distance < ranks && ranks > 1; ++distance) {
        const int origin = (rank - distance + ranks) % ranks;
        for (const Piece& part : split(coalesce(movement.from.pieces[at(origin)]), cuts, chunk)) {
            if (origin != rank) {
                append(rounds, received,
                       make_receive(movement, previous, movement.to.buffer, place_of(gathered, part), part.count));
                ++received;
            }
            if (origin == next) continue;
            send_round = std::max(send_round, received);
            const BufferRole buffer = origin == rank ? movement.from.buffer : movement.to.buffer;
            const std::int64_t offset = place_of(origin == rank ? held : gathered, part);
            append(rounds, send_round, make_send(movement, next, buffer, offset, part.count));
            ++send_round;
        }
    }
    append_own_copies(movement, rank, chunk, rounds.front());
    drop_empty_rounds(schedule);
    return schedule;
}

}  // namespace mfsdp::comm
