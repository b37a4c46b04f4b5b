#include "mfsdp/comm/builders/builders.h"
#include "mfsdp/device/memory.h"

#include "pieces.h"
#include "sum_parts.h"

#include <algorithm>

// One channel. Exchange c carries part c of every owner's rows: a rank sends part c of its leaf to every owner that has
// so many parts, and receives part c of its own rows from every contributor, each into a slot of its own. The additions
// follow, in the order of the contributors, one round each; then comes exchange c + 1.
//
// Why this cannot deadlock, even where a round is one operation of a stream: every message of exchange c stands in that
// exchange on both sides, and every rank takes part in its exchanges in the order of their numbers. Of the exchanges
// that are not over, the one of the lowest number waits for nobody.

namespace mfsdp::comm {

namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

class GroupedSum {
  public:
    GroupedSum(const Movement& movement, int rank, std::int64_t chunk)
        : movement_(movement), rank_(rank), element_bytes_(device::size_of(movement.dtype)) {
        for (int owner = 0; owner < movement.ranks(); ++owner) {
            parts_.push_back(sum_parts(movement, owner, chunk));
            exchanges_ = std::max(exchanges_, parts_.back().size());
        }
        std::int64_t largest = 0;
        for (const Piece& part : mine()) largest = std::max(largest, part.count);
        slot_elements_ = device::align_up(largest * element_bytes_) / element_bytes_;
        if (contributes()) leaf_ = coalesce(movement.from.pieces[at(rank)]);
    }

    [[nodiscard]] TransferSchedule build() {
        TransferSchedule schedule{movement_.name, {Channel{}}, 0};
        std::vector<Round>& rounds = schedule.channels.front().rounds;
        for (std::size_t exchange = 0; exchange < exchanges_; ++exchange) {
            Round messages;
            append_sends(exchange, messages);
            std::vector<Round> additions;
            if (exchange < mine().size()) append_part(mine()[exchange], messages, additions);
            rounds.push_back(std::move(messages));
            rounds.insert(rounds.end(), additions.begin(), additions.end());
        }
        schedule.scratch_bytes = slots_ * slot_elements_ * element_bytes_;
        drop_empty_rounds(schedule);
        return schedule;
    }

  private:
    [[nodiscard]] const std::vector<Piece>& mine() const { return parts_[at(rank_)]; }
    [[nodiscard]] bool contributes() const { return rank_ < movement_.contributors; }

    void append_sends(std::size_t exchange, Round& messages) const {
        // Step by step around the ring, so that not all ranks send to the same one first.
        for (int step = 1; contributes() && step < movement_.ranks(); ++step) {
            const int owner = (rank_ + step) % movement_.ranks();
            if (exchange >= parts_[at(owner)].size()) continue;
            const Piece& part = parts_[at(owner)][exchange];
            const std::int64_t offset = leaf_offset(movement_, leaf_, rank_, part);
            messages.operations.push_back(make_send(movement_, owner, movement_.from.buffer, offset, part.count));
        }
    }

    void append_part(const Piece& part, Round& messages, std::vector<Round>& additions) {
        std::int64_t slot = 0;
        for (int contributor = 0; contributor < movement_.contributors; ++contributor) {
            const bool first = contributor == 0 && !movement_.accumulate;
            BufferRole source = movement_.from.buffer;
            std::int64_t offset = 0;
            if (contributor == rank_) {
                offset = leaf_offset(movement_, leaf_, rank_, part);
            } else if (first && movement_.dtype == device::DType::float32) {
                messages.operations.push_back(
                    make_receive(movement_, contributor, movement_.to.buffer, part.local_offset, part.count));
                continue;
            } else {
                source = BufferRole::scratch;
                offset = slot++ * slot_elements_;
                messages.operations.push_back(make_receive(movement_, contributor, source, offset, part.count));
            }
            additions.push_back(Round{{make_addition(movement_, part, first, source, offset)}});
        }
        slots_ = std::max(slots_, slot);
    }

    const Movement& movement_;
    int rank_;
    std::int64_t element_bytes_;
    std::vector<std::vector<Piece>> parts_;  // by owner
    std::size_t exchanges_ = 0;
    std::int64_t slot_elements_ = 0;
    std::int64_t slots_ = 0;
    std::vector<Piece> leaf_;  // this rank's
};

}  // namespace

TransferSchedule build_grouped_sum(const Movement& movement, int rank, const BuildOptions& options) {
    check_movement(movement, rank);
    check_sum(movement);
    return GroupedSum(movement, rank, chunk_elements(movement, options)).build();
}

}  // namespace mfsdp::comm
