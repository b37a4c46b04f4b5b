#include "mfsdp/base/error.h"
#include "mfsdp/comm/builders/builders.h"

#include "pieces.h"

namespace mfsdp::comm {

namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

// What each rank sends of what it holds: an element that several ranks hold comes from the lowest of them.
std::vector<std::vector<Piece>> served_pieces(const Movement& movement) {
    std::vector<std::vector<Piece>> served(movement.from.pieces.size());
    std::vector<Piece> covered;
    for (std::size_t rank = 0; rank < served.size(); ++rank) {
        served[rank] = subtract(movement.from.pieces[rank], covered);
        for (const Piece& piece : served[rank])
            covered.push_back({piece.group_offset, piece.group_offset, piece.count});
        covered = coalesce(std::move(covered));
    }
    return served;
}

}  // namespace

TransferSchedule build_direct_gather(const Movement& movement, int rank, const BuildOptions& options) {
    check_movement(movement, rank);
    MFSDP_ASSERT(movement.combine == Combine::copy, "a gather copies");
    const std::int64_t chunk = chunk_elements(movement, options);
    const int ranks = movement.ranks();
    const std::vector<std::vector<Piece>> served = served_pieces(movement);
    const auto wanted = [&](int r) { return subtract(movement.to.pieces[at(r)], movement.from.pieces[at(r)]); };
    const std::vector<Piece> mine = wanted(rank);

    TransferSchedule schedule{movement.name, {Channel{{Round{}}}}, 0};
    Round& round = schedule.channels.front().rounds.front();
    std::int64_t received = 0;
    // Step by step around the ring, so that not all ranks send to the same one first.
    for (int step = 1; step < ranks; ++step) {
        const int source = (rank - step + ranks) % ranks;
        for (const Run& run : messages(served[at(source)], mine, chunk)) {
            round.operations.push_back(
                make_receive(movement, source, movement.to.buffer, run.target_offset, run.count));
            received += run.count;
        }
        const int target = (rank + step) % ranks;
        for (const Run& run : messages(served[at(rank)], wanted(target), chunk)) {
            round.operations.push_back(make_send(movement, target, movement.from.buffer, run.source_offset, run.count));
        }
    }
    MFSDP_ASSERT(received == total_count(mine), "some rank holds every element that rank " + std::to_string(rank) +
                                                    " wants of '" + movement.name + "'");
    append_own_copies(movement, rank, chunk, round);
    drop_empty_rounds(schedule);
    return schedule;
}

}  // namespace mfsdp::comm
