#include "mfsdp/runtime/placement/group_layout.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <numeric>

namespace mfsdp::runtime {

namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int64_t align(std::int64_t elements) { return (elements + kAlignElements - 1) / kAlignElements * kAlignElements; }

/// The part of a segment that lies in rows [begin, begin + count); row_count 0 where there is none.
comm::Segment within(const comm::Segment& segment, std::int64_t begin, std::int64_t count) {
    const std::int64_t first = std::max(segment.row_begin, begin);
    const std::int64_t end = std::min(segment.row_begin + segment.row_count, begin + count);
    return {segment.rank, first, std::max<std::int64_t>(end - first, 0)};
}

}  // namespace

GroupLayout::GroupLayout(const model::ModelSpec& spec, const ShardPlan& plan, std::int64_t group)
    : name_(plan.groups[at(group)].name), ranks_(plan.ranks) {
    // Owners come first and in order, replicated slots (no sole holder) before them, row-cut ones last.
    std::vector<int> key;
    for (const GroupSlot& given : plan.groups[at(group)].slots) {
        const MatrixShard& shard = plan.shards[at(given.parameter)];
        Slot slot{&shard, given.row_begin, given.row_count, spec.parameters[at(given.parameter)].columns()};
        int holders = 0, whole = 0, last = -1;
        for (const comm::Segment& segment : (shard.frozen() ? shard.at_rest : shard.gradient).segments) {
            const comm::Segment inside = within(segment, slot.row_begin, slot.rows);
            if (inside.row_count == 0) continue;
            ++holders;
            if (inside.row_count == slot.rows) ++whole;
            last = inside.rank;
        }
        slot.cut = whole != holders;
        key.push_back(slot.cut ? ranks_ : holders == 1 ? last : -1);
        slots_.push_back(slot);
    }
    order_.resize(slots_.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::int64_t a, std::int64_t b) { return key[at(a)] < key[at(b)]; });
    std::int64_t elements = 0;
    for (const std::int64_t i : order_) {
        Slot& slot = slots_[at(i)];
        const std::int64_t size = align(slot.rows * slot.columns);
        slot.full_offset = elements;
        elements += size;
        if (slot.shard->frozen()) continue;
        slot.leaf_offset = leaf_elements_;
        leaf_elements_ += size;
    }
}

std::int64_t GroupLayout::padded(const Slot& slot, std::int64_t rows) const {
    // A slot with one owner travels with its padding, so that an owner's slots are one run; a cut one cannot.
    return slot.cut ? rows * slot.columns : align(rows * slot.columns);
}

std::vector<LocalSegment> GroupLayout::segments(PlacementOf placement, int rank) const {
    std::vector<LocalSegment> result;
    std::int64_t offset = 0;
    for (const std::int64_t i : order_) {
        const Slot& slot = slots_[at(i)];
        const comm::Segment* segment = (slot.shard->*placement).on(rank);
        if (segment == nullptr) continue;
        const comm::Segment inside = within(*segment, slot.row_begin, slot.rows);
        if (inside.row_count == 0) continue;
        result.push_back({i, inside.row_begin, inside.row_count, offset});
        offset += align(inside.row_count * slot.columns);
    }
    return result;
}

std::int64_t GroupLayout::size(PlacementOf placement, int rank) const {
    const std::vector<LocalSegment> all = segments(placement, rank);
    if (all.empty()) return 0;
    return all.back().offset + align(all.back().row_count * slots_[at(all.back().slot)].columns);
}

std::vector<comm::Piece> GroupLayout::pieces(const std::vector<LocalSegment>& segments, OffsetOf offset) const {
    std::vector<comm::Piece> result;
    for (const LocalSegment& segment : segments) {
        const Slot& slot = slots_[at(segment.slot)];
        result.push_back({segment.offset, slot.*offset + (segment.row_begin - slot.row_begin) * slot.columns,
                          padded(slot, segment.row_count)});
    }
    return comm::coalesce(std::move(result));
}

std::vector<std::int64_t> GroupLayout::gathered_offsets(int rank) const {
    std::vector<std::int64_t> offsets(slots_.size(), -1);
    std::int64_t offset = 0;
    for (const std::int64_t slot : order_) {
        const Slot& s = slots_[at(slot)];
        const comm::Segment* segment = s.shard->at_rest.on(rank);
        if (segment != nullptr && within(*segment, s.row_begin, s.rows).row_count == s.rows) continue;
        offsets[at(slot)] = offset;
        offset += align(s.rows * s.columns);
    }
    return offsets;
}

std::int64_t GroupLayout::gathered_elements(int rank) const {
    const std::vector<std::int64_t> offsets = gathered_offsets(rank);
    std::int64_t elements = 0;
    for (std::size_t slot = 0; slot < offsets.size(); ++slot) {
        if (offsets[slot] >= 0) elements += align(slots_[slot].rows * slots_[slot].columns);
    }
    return elements;
}

comm::Movement GroupLayout::gather(device::DType dtype) const {
    comm::Movement movement;
    movement.dtype = dtype;
    movement.name = "gather " + name_;
    movement.from.buffer = comm::BufferRole::shard;
    movement.to.buffer = comm::BufferRole::gathered;
    for (int rank = 0; rank < ranks_; ++rank) {
        movement.from.pieces.push_back(pieces(at_rest(rank)));
        std::vector<LocalSegment> wanted;
        const std::vector<std::int64_t> offsets = gathered_offsets(rank);
        for (const std::int64_t slot : order_) {
            if (offsets[at(slot)] >= 0)
                wanted.push_back({slot, slots_[at(slot)].row_begin, slots_[at(slot)].rows, offsets[at(slot)]});
        }
        movement.to.pieces.push_back(pieces(wanted));
    }
    return movement;
}

comm::Movement GroupLayout::reduce(device::DType dtype, int contributors, bool accumulate) const {
    comm::Movement movement;
    movement.dtype = dtype;
    movement.name = "reduce " + name_;
    movement.combine = comm::Combine::sum;
    movement.contributors = contributors;
    movement.accumulate = accumulate;
    movement.from.buffer = comm::BufferRole::gradient;
    movement.to.buffer = comm::BufferRole::accumulator;
    for (int rank = 0; rank < ranks_; ++rank) {
        const bool contributes = rank < contributors && leaf_elements_ > 0;
        movement.from.pieces.push_back(contributes ? std::vector<comm::Piece>{{0, 0, leaf_elements_}}
                                                   : std::vector<comm::Piece>{});
        movement.to.pieces.push_back(pieces(gradient(rank), &Slot::leaf_offset));
    }
    return movement;
}

comm::Movement GroupLayout::publish(device::DType dtype) const {
    comm::Movement movement;
    movement.dtype = dtype;
    movement.name = "publish " + name_;
    movement.from.buffer = comm::BufferRole::shard;
    movement.to.buffer = comm::BufferRole::shard;
    for (int rank = 0; rank < ranks_; ++rank) {
        // New weights are written in place, where the rank keeps these rows at rest.
        std::vector<LocalSegment> stepped, wanted;
        for (const LocalSegment& rest : at_rest(rank)) {
            const Slot& slot = slots_[at(rest.slot)];
            if (slot.shard->frozen()) continue;
            const comm::Segment* own = slot.shard->gradient.on(rank);
            const comm::Segment inside = own == nullptr ? comm::Segment{} : within(*own, slot.row_begin, slot.rows);
            if (inside.row_count == 0) {
                wanted.push_back(rest);
                continue;
            }
            const std::int64_t begin = inside.row_begin, end = inside.row_begin + inside.row_count;
            const std::int64_t rest_end = rest.row_begin + rest.row_count;
            MFSDP_ASSERT(begin >= rest.row_begin && end <= rest_end, "rows are stepped where they rest");
            const auto row_offset = [&](std::int64_t row) {
                return rest.offset + (row - rest.row_begin) * slot.columns;
            };
            stepped.push_back({rest.slot, begin, end - begin, row_offset(begin)});
            if (begin > rest.row_begin)
                wanted.push_back({rest.slot, rest.row_begin, begin - rest.row_begin, rest.offset});
            if (end < rest_end) wanted.push_back({rest.slot, end, rest_end - end, row_offset(end)});
        }
        movement.from.pieces.push_back(pieces(stepped));
        movement.to.pieces.push_back(pieces(wanted));
    }
    return movement;
}

comm::Movement GroupLayout::collect(device::DType dtype, std::int64_t slot) const {
    comm::Movement movement;
    movement.dtype = dtype;
    movement.name = "collect " + name_;
    movement.from.buffer = comm::BufferRole::shard;
    movement.to.buffer = comm::BufferRole::gathered;
    movement.to.pieces.resize(at(ranks_));
    const Slot& s = slots_[at(slot)];
    for (int rank = 0; rank < ranks_; ++rank) {
        std::vector<comm::Piece> held;
        for (const LocalSegment& segment : at_rest(rank)) {
            if (segment.slot == slot)
                held.push_back(
                    {segment.offset, (segment.row_begin - s.row_begin) * s.columns, segment.row_count * s.columns});
        }
        movement.from.pieces.push_back(std::move(held));
    }
    movement.to.pieces[0] = {{0, 0, s.rows * s.columns}};
    return movement;
}

}  // namespace mfsdp::runtime
