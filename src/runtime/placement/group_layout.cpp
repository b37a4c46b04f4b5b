#include "mfsdp/runtime/placement/group_layout.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <numeric>

namespace mfsdp::runtime {

namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int64_t align(std::int64_t elements) { return (elements + kAlignElements - 1) / kAlignElements * kAlignElements; }

/// The rank that alone holds all rows, or -1.
int sole_holder(const comm::Placement& placement, std::int64_t rows) {
    return placement.segments.size() == 1 && placement.segments[0].row_count == rows ? placement.segments[0].rank : -1;
}

bool every_holder_is_whole(const comm::Placement& placement, std::int64_t rows) {
    return std::all_of(placement.segments.begin(), placement.segments.end(),
                       [&](const comm::Segment& segment) { return segment.row_count == rows; });
}

}  // namespace

GroupLayout::GroupLayout(const model::ModelSpec& spec, const ShardPlan& plan, std::int64_t group)
    : name_(plan.groups[at(group)].name), ranks_(plan.ranks) {
    const std::vector<std::int64_t>& parameters = plan.groups[at(group)].parameters;
    // Owners come first and in order, replicated parameters (no sole holder) before them, row-cut ones last.
    std::vector<int> key;
    for (const std::int64_t parameter : parameters) {
        const model::ParameterSpec& p = spec.parameters[at(parameter)];
        const MatrixShard& shard = plan.shards[at(parameter)];
        const bool cut = !every_holder_is_whole(shard.gradient, p.rows());
        slots_.push_back({&shard, p.rows(), p.columns(), 0, cut});
        key.push_back(cut ? ranks_ : sole_holder(shard.gradient, p.rows()));
    }
    order_.resize(slots_.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::int64_t a, std::int64_t b) { return key[at(a)] < key[at(b)]; });
    for (const std::int64_t slot : order_) {
        slots_[at(slot)].full_offset = elements_;
        elements_ += align(slots_[at(slot)].rows * slots_[at(slot)].columns);
    }
}

std::int64_t GroupLayout::padded(const Slot& slot, std::int64_t rows) const {
    // A parameter with one owner travels with its padding, so that an owner's parameters are one run; a cut one cannot.
    return slot.cut ? rows * slot.columns : align(rows * slot.columns);
}

std::vector<LocalSegment> GroupLayout::segments(PlacementOf placement, int rank) const {
    std::vector<LocalSegment> result;
    std::int64_t offset = 0;
    for (const std::int64_t slot : order_) {
        const comm::Segment* segment = (slots_[at(slot)].shard->*placement).on(rank);
        if (segment == nullptr) continue;
        result.push_back({slot, segment->row_begin, segment->row_count, offset});
        offset += align(segment->row_count * slots_[at(slot)].columns);
    }
    return result;
}

std::int64_t GroupLayout::size(PlacementOf placement, int rank) const {
    const std::vector<LocalSegment> all = segments(placement, rank);
    if (all.empty()) return 0;
    return all.back().offset + align(all.back().row_count * slots_[at(all.back().slot)].columns);
}

std::vector<comm::Piece> GroupLayout::pieces(const std::vector<LocalSegment>& segments) const {
    std::vector<comm::Piece> result;
    for (const LocalSegment& segment : segments) {
        const Slot& slot = slots_[at(segment.slot)];
        result.push_back(
            {segment.offset, slot.full_offset + segment.row_begin * slot.columns, padded(slot, segment.row_count)});
    }
    return comm::coalesce(std::move(result));
}

std::vector<std::int64_t> GroupLayout::gathered_offsets(int rank) const {
    std::vector<std::int64_t> offsets(slots_.size(), -1);
    std::int64_t offset = 0;
    for (const std::int64_t slot : order_) {
        const comm::Segment* segment = slots_[at(slot)].shard->at_rest.on(rank);
        if (segment != nullptr && segment->row_count == slots_[at(slot)].rows) continue;
        offsets[at(slot)] = offset;
        offset += align(slots_[at(slot)].rows * slots_[at(slot)].columns);
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

comm::Movement GroupLayout::gather() const {
    comm::Movement movement;
    movement.name = "gather " + name_;
    movement.from.buffer = comm::BufferRole::shard;
    movement.to.buffer = comm::BufferRole::gathered;
    for (int rank = 0; rank < ranks_; ++rank) {
        movement.from.pieces.push_back(pieces(at_rest(rank)));
        std::vector<LocalSegment> wanted;
        const std::vector<std::int64_t> offsets = gathered_offsets(rank);
        for (const std::int64_t slot : order_) {
            if (offsets[at(slot)] >= 0) wanted.push_back({slot, 0, slots_[at(slot)].rows, offsets[at(slot)]});
        }
        movement.to.pieces.push_back(pieces(wanted));
    }
    return movement;
}

comm::Movement GroupLayout::reduce(int contributors, bool accumulate) const {
    comm::Movement movement;
    movement.name = "reduce " + name_;
    movement.combine = comm::Combine::sum;
    movement.contributors = contributors;
    movement.accumulate = accumulate;
    movement.from.buffer = comm::BufferRole::gradient;
    movement.to.buffer = comm::BufferRole::accumulator;
    for (int rank = 0; rank < ranks_; ++rank) {
        movement.from.pieces.push_back(rank < contributors ? std::vector<comm::Piece>{{0, 0, elements_}}
                                                           : std::vector<comm::Piece>{});
        movement.to.pieces.push_back(pieces(gradient(rank)));
    }
    return movement;
}

comm::Movement GroupLayout::publish() const {
    comm::Movement movement;
    movement.name = "publish " + name_;
    movement.from.buffer = comm::BufferRole::shard;
    movement.to.buffer = comm::BufferRole::shard;
    for (int rank = 0; rank < ranks_; ++rank) {
        // New weights are written in place, where the rank keeps these rows at rest.
        std::vector<LocalSegment> stepped, wanted;
        for (const LocalSegment& rest : at_rest(rank)) {
            const Slot& slot = slots_[at(rest.slot)];
            const comm::Segment* own = slot.shard->gradient.on(rank);
            const std::int64_t begin = own == nullptr ? 0 : own->row_begin;
            const std::int64_t end = own == nullptr ? 0 : own->row_begin + own->row_count;
            MFSDP_ASSERT(own == nullptr || (begin >= rest.row_begin && end <= rest.row_begin + rest.row_count),
                         "rows are stepped where they rest");
            const auto row_offset = [&](std::int64_t row) {
                return rest.offset + (row - rest.row_begin) * slot.columns;
            };
            if (own == nullptr) {
                wanted.push_back(rest);
                continue;
            }
            stepped.push_back({rest.slot, begin, end - begin, row_offset(begin)});
            if (begin > rest.row_begin)
                wanted.push_back({rest.slot, rest.row_begin, begin - rest.row_begin, rest.offset});
            const std::int64_t rest_end = rest.row_begin + rest.row_count;
            if (end < rest_end) wanted.push_back({rest.slot, end, rest_end - end, row_offset(end)});
        }
        movement.from.pieces.push_back(pieces(stepped));
        movement.to.pieces.push_back(pieces(wanted));
    }
    return movement;
}

comm::Movement GroupLayout::collect(std::int64_t slot) const {
    comm::Movement movement;
    movement.name = "collect " + name_;
    movement.from.buffer = comm::BufferRole::shard;
    movement.to.buffer = comm::BufferRole::gathered;
    movement.to.pieces.resize(at(ranks_));
    const Slot& s = slots_[at(slot)];
    for (int rank = 0; rank < ranks_; ++rank) {
        std::vector<comm::Piece> held;
        for (const LocalSegment& segment : at_rest(rank)) {
            if (segment.slot == slot)
                held.push_back({segment.offset, segment.row_begin * s.columns, segment.row_count * s.columns});
        }
        movement.from.pieces.push_back(std::move(held));
    }
    movement.to.pieces[0] = {{0, 0, s.rows * s.columns}};
    return movement;
}

}  // namespace mfsdp::runtime
