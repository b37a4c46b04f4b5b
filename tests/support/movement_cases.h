#pragma once

#include "mfsdp/comm/placement.h"
#include "mfsdp/comm/transfer_schedule.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::test {

/// Parameters of one transfer group: sizes[r] are the elements of the parameters whole on rank r, row_cut those of
/// parameters cut evenly over all ranks. Every parameter starts on a multiple of `alignment` elements, in the group and
/// on the ranks, so that pieces touch or not.
struct GroupShape {
    std::vector<std::vector<std::int64_t>> sizes;
    std::vector<std::int64_t> row_cut;
    std::int64_t alignment = 1;

    [[nodiscard]] int ranks() const { return static_cast<int>(sizes.size()); }
    [[nodiscard]] std::string describe() const;
};

/// Group shapes for N ranks: sizes 0 and 1, uneven, ranks that own nothing, one owner of all, with and without gaps.
[[nodiscard]] std::vector<GroupShape> group_shapes(int ranks);

/// Shard -> gathered. Whole parameters go to those who lack them; row-cut ones to all, own rows by a local copy.
[[nodiscard]] comm::Movement gather_movement(const GroupShape& shape);
/// Gradient -> accumulator; each rank's leaf holds the full layout of the group.
[[nodiscard]] comm::Movement sum_movement(const GroupShape& shape, int contributors, bool accumulate);
/// As sum_movement, but every rank's sum is the whole group (replicated parameters).
[[nodiscard]] comm::Movement replicated_sum_movement(const GroupShape& shape, int contributors, bool accumulate);
/// Random pieces with random local layouts; elements may be held by several ranks and wanted by any.
[[nodiscard]] comm::Movement random_copy_movement(int ranks, std::uint64_t seed);
/// Leaves that are laid out differently on every contributor, random parts wanted by every rank.
[[nodiscard]] comm::Movement random_sum_movement(int ranks, int contributors, bool accumulate, std::uint64_t seed);

/// Elements that a rank's buffer needs for an arrangement.
[[nodiscard]] std::int64_t extent(const std::vector<comm::Piece>& pieces);

}  // namespace mfsdp::test
