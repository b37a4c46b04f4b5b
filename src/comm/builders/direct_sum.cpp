#include "mfsdp/base/error.h"
#include "mfsdp/comm/builders/builders.h"
#include "mfsdp/device/memory.h"

#include "pieces.h"
#include "sum_parts.h"

#include <algorithm>

// Channel 0: all sends at once; an early sender waits for its receivers and keeps its leaf.
// Channel 1: what this rank owns. Items are (chunk, contributor), chunk by chunk and within a chunk in the order of the
// contributors. Item k is received in round k into scratch slot k % 2 and added in round k + 1, while item k + 1
// arrives in the other slot: at most one addition stands in a round, and they follow each other in order.

namespace mfsdp::comm {

namespace {

constexpr std::size_t kSendChannel = 0;
constexpr std::size_t kOwnerChannel = 1;

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

void append(Channel& channel, std::size_t round, const TransferOperation& operation) {
    if (channel.rounds.size() <= round) channel.rounds.resize(round + 1);
    channel.rounds[round].operations.push_back(operation);
}

void append_sends(const Movement& movement, int rank, std::int64_t chunk, Channel& channel) {
    if (rank >= movement.contributors) return;
    const std::vector<Piece> leaf = coalesce(movement.from.pieces[at(rank)]);
    const int ranks = movement.ranks();
    for (int step = 1; step < ranks; ++step) {
        const int owner = (rank + step) % ranks;
        for (const Piece& part : sum_parts(movement, owner, chunk)) {
            const std::int64_t offset = leaf_offset(movement, leaf, rank, part);
            append(channel, 0, make_send(movement, owner, movement.from.buffer, offset, part.count));
        }
    }
}

// The owner's side. Returns the bytes of scratch.
std::int64_t append_sums(const Movement& movement, int rank, std::int64_t chunk, Channel& channel) {
    const std::vector<Piece> parts = sum_parts(movement, rank, chunk);
    const bool contributes = rank < movement.contributors;
    const std::vector<Piece> own_leaf = contributes ? coalesce(movement.from.pieces[at(rank)]) : std::vector<Piece>{};
    const std::int64_t element_bytes = device::size_of(movement.dtype);
    std::int64_t largest = 0;
    for (const Piece& part : parts) largest = std::max(largest, part.count);
    const std::int64_t slot_bytes = device::align_up(largest * element_bytes);
    bool uses_scratch = false;

    std::size_t item = 0;
    for (const Piece& part : parts) {
        for (int contributor = 0; contributor < movement.contributors; ++contributor, ++item) {
            const bool first = contributor == 0 && !movement.accumulate;
            const bool in_place = first && movement.dtype == device::DType::float32;
            BufferRole source = movement.from.buffer;
            std::int64_t source_offset = 0;
            if (contributor == rank) {
                source_offset = leaf_offset(movement, own_leaf, rank, part);
            } else if (in_place) {
                append(channel, item,
                       make_receive(movement, contributor, movement.to.buffer, part.local_offset, part.count));
                continue;
            } else {
                uses_scratch = true;
                source = BufferRole::scratch;
                source_offset = static_cast<std::int64_t>(item % 2) * (slot_bytes / element_bytes);
                append(channel, item,
                       make_receive(movement, contributor, BufferRole::scratch, source_offset, part.count));
            }
            append(channel, item + 1, make_addition(movement, part, first, source, source_offset));
        }
    }
    return uses_scratch ? 2 * slot_bytes : 0;
}

}  // namespace

TransferSchedule build_direct_sum(const Movement& movement, int rank, const BuildOptions& options) {
    check_movement(movement, rank);
    check_sum(movement);
    const std::int64_t chunk = chunk_elements(movement, options);
    TransferSchedule schedule{movement.name, std::vector<Channel>(2), 0};
    append_sends(movement, rank, chunk, schedule.channels[kSendChannel]);
    schedule.scratch_bytes = append_sums(movement, rank, chunk, schedule.channels[kOwnerChannel]);
    drop_empty_rounds(schedule);
    return schedule;
}

}  // namespace mfsdp::comm
