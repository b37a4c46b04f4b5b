#include "mfsdp/base/error.h"
#include "mfsdp/comm/builders/builders.h"

#include "pieces.h"
#include "ring.h"

#include <algorithm>

// One round of broadcasts, rank by rank and chunk by chunk: every rank names the same ones in the same order, as a
// transport that broadcasts needs. A rank that owns nothing broadcasts nothing and still takes part in all others.

namespace mfsdp::comm {

TransferSchedule build_broadcast_gather(const Movement& movement, int rank, const BuildOptions& options) {
    check_movement(movement, rank);
    if (nothing_wanted(movement)) return {movement.name, {}, 0};
    require_ring(movement, "broadcast");
    const std::int64_t chunk = chunk_elements(movement, options);
    const std::vector<std::int64_t> cuts = layout_cuts(movement);
    const std::vector<Piece> held = coalesce(movement.from.pieces[static_cast<std::size_t>(rank)]);
    const std::vector<Piece> gathered = coalesce(movement.to.pieces[static_cast<std::size_t>(rank)]);

    TransferSchedule schedule{movement.name, {Channel{{Round{}}}}, 0};
    Round& round = schedule.channels.front().rounds.front();
    for (int root = 0; root < movement.ranks() && movement.ranks() > 1; ++root) {
        for (const Piece& part : split(coalesce(movement.from.pieces[static_cast<std::size_t>(root)]), cuts, chunk)) {
            const bool own = root == rank;
            TransferOperation operation =
                own ? make_send(movement, root, movement.from.buffer, place_of(held, part), part.count)
                    : make_receive(movement, root, movement.to.buffer, place_of(gathered, part), part.count);
            operation.kind = OperationKind::broadcast;
            operation.receivers = own ? movement.ranks() - 1 : 0;
            round.operations.push_back(operation);
        }
    }
    append_own_copies(movement, rank, chunk, round);
    drop_empty_rounds(schedule);
    return schedule;
}

}  // namespace mfsdp::comm
