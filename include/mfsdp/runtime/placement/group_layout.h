#pragma once

#include "mfsdp/comm/transfer_schedule.h"
#include "mfsdp/runtime/placement/shard_plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// Parameters and segments start on multiples of this many elements: 256 bytes at least, in float32 and in bfloat16.
inline constexpr std::int64_t kAlignElements = 128;

/// Rows of one slot on one rank, and where they lie in that rank's part of the group.
struct LocalSegment {
    std::int64_t slot = 0;       ///< position in TransferGroup::slots
    std::int64_t row_begin = 0;  ///< row of the parameter
    std::int64_t row_count = 0;
    std::int64_t offset = 0;  ///< elements from the start of the rank's part of the group
};

/// How the elements of one transfer group lie: in the group's full layout (the coordinate system of gathers), in a leaf
/// (the same without frozen parameters), at rest and as gradients on each rank, and gathered on each rank.
///
/// The full layout holds whole slots sorted by owner, in the order and alignment of the owner's shard, so that an
/// owner's segments are one run; then each row-cut slot by itself. What a rank owns whole is left out of its own
/// gathered part: it computes straight from its shard. Everything is counted in elements; the type of the elements is
/// the movement's.
class GroupLayout {
  public:
    GroupLayout(const model::ModelSpec& spec, const ShardPlan& plan, std::int64_t group);

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    /// Elements of a leaf, padding included.
    [[nodiscard]] std::int64_t leaf_elements() const { return leaf_elements_; }
    /// Where a slot's gradient lies in a leaf; -1: it is frozen and has none.
    [[nodiscard]] std::int64_t leaf_offset(std::int64_t slot) const { return slots_[index(slot)].leaf_offset; }

    [[nodiscard]] std::vector<LocalSegment> at_rest(int rank) const { return segments(&MatrixShard::at_rest, rank); }
    [[nodiscard]] std::vector<LocalSegment> gradient(int rank) const { return segments(&MatrixShard::gradient, rank); }
    [[nodiscard]] std::int64_t at_rest_elements(int rank) const { return size(&MatrixShard::at_rest, rank); }
    [[nodiscard]] std::int64_t gradient_elements(int rank) const { return size(&MatrixShard::gradient, rank); }

    /// Offset of a slot in the rank's gathered part, or -1 if the rank holds it whole and computes from its shard.
    [[nodiscard]] std::vector<std::int64_t> gathered_offsets(int rank) const;
    [[nodiscard]] std::int64_t gathered_elements(int rank) const;

    /// at_rest -> all (copy), into the gathered buffers.
    [[nodiscard]] comm::Movement gather(device::DType dtype) const;
    /// all -> gradient (sum): leaves of ranks 0 .. contributors-1, of type `dtype`, into the accumulators.
    [[nodiscard]] comm::Movement reduce(device::DType dtype, int contributors, bool accumulate) const;
    /// gradient -> at_rest (copy): new weights from where they were stepped to where they rest. Moves nothing where the
    /// two placements are equal.
    [[nodiscard]] comm::Movement publish(device::DType dtype) const;
    /// at_rest -> rank 0 (copy) of one slot, into a dense buffer.
    [[nodiscard]] comm::Movement collect(device::DType dtype, std::int64_t slot) const;

  private:
    struct Slot {
        const MatrixShard* shard = nullptr;
        std::int64_t row_begin = 0, rows = 0, columns = 0;
        std::int64_t full_offset = 0;
        std::int64_t leaf_offset = -1;
        bool cut = false;  // its rows are spread over ranks
    };
    using OffsetOf = std::int64_t Slot::*;
    using PlacementOf = comm::Placement MatrixShard::*;

    static std::size_t index(std::int64_t slot) { return static_cast<std::size_t>(slot); }
    [[nodiscard]] std::vector<LocalSegment> segments(PlacementOf placement, int rank) const;
    [[nodiscard]] std::int64_t size(PlacementOf placement, int rank) const;
    [[nodiscard]] std::vector<comm::Piece> pieces(const std::vector<LocalSegment>& segments,
                                                  OffsetOf offset = &Slot::full_offset) const;
    [[nodiscard]] std::int64_t padded(const Slot& slot, std::int64_t rows) const;

    std::string name_;
    int ranks_ = 1;
    std::int64_t leaf_elements_ = 0;
    std::vector<Slot> slots_;          // by position in the group
    std::vector<std::int64_t> order_;  // slots in the order of the full layout
};

}  // namespace mfsdp::runtime
