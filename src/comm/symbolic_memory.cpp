#include "symbolic_memory.h"

#include <algorithm>

namespace mfsdp::comm {

namespace {

// The part [begin, end) of an extent. An element that is cut through is no element any more.
SymbolicExtent part_of(const SymbolicExtent& extent, std::int64_t begin, std::int64_t end) {
    SymbolicExtent part{begin, end, extent.group_offset, extent.value};
    const std::int64_t size = device::size_of(extent.value.dtype);
    part.group_offset += (begin - extent.begin) / size;
    if ((begin - extent.begin) % size != 0 || (end - begin) % size != 0) part.value = {};
    return part;
}

}  // namespace

std::vector<SymbolicExtent> SymbolicMemory::read(std::int64_t begin, std::int64_t end) const {
    std::vector<SymbolicExtent> result;
    auto next = extents_.upper_bound(begin);
    if (next != extents_.begin()) --next;
    std::int64_t position = begin;
    for (; position < end && next != extents_.end(); ++next) {
        const SymbolicExtent& extent = next->second;
        if (extent.end <= position) continue;
        if (extent.begin >= end) break;
        if (extent.begin > position) result.push_back({position, extent.begin, 0, {}});
        const std::int64_t from = std::max(position, extent.begin);
        const std::int64_t to = std::min(end, extent.end);
        result.push_back(part_of(extent, from, to));
        position = to;
    }
    if (position < end) result.push_back({position, end, 0, {}});
    return result;
}

void SymbolicMemory::write(const SymbolicExtent& extent) {
    cut(extent.begin);
    cut(extent.end);
    extents_.erase(extents_.lower_bound(extent.begin), extents_.lower_bound(extent.end));
    extents_[extent.begin] = extent;
}

void SymbolicMemory::cut(std::int64_t at) {
    auto next = extents_.upper_bound(at);
    if (next == extents_.begin()) return;
    SymbolicExtent& extent = (--next)->second;
    if (extent.begin >= at || extent.end <= at) return;
    const SymbolicExtent upper = part_of(extent, at, extent.end);
    extent = part_of(extent, extent.begin, at);
    extents_[at] = upper;
}

}  // namespace mfsdp::comm
