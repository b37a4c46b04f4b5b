#pragma once

#include "mfsdp/device/dtype.h"

#include <cstdint>
#include <map>
#include <vector>

namespace mfsdp::comm {

/// What an element holds, without its number: nothing known, a copy of the group's element, a contributor's leaf, or
/// the sum of the first `leaves` leaves on top of the former value (`on_top`) or of nothing.
struct SymbolicValue {
    enum class Kind : std::uint8_t { unknown, element, leaf, sum };
    Kind kind = Kind::unknown;
    int contributor = 0;  ///< leaf
    int leaves = 0;       ///< sum
    bool on_top = false;  ///< sum
    device::DType dtype = device::DType::float32;

    friend bool operator==(const SymbolicValue&, const SymbolicValue&) = default;
};

/// A run of bytes [begin, end) that holds group elements group_offset, group_offset + 1, ... with one kind of value.
struct SymbolicExtent {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t group_offset = 0;
    SymbolicValue value;
};

/// One buffer of one rank as extents: the checker's cost depends on the number of operations, not of elements.
class SymbolicMemory {
  public:
    /// What [begin, end) holds, in order and without holes (holes read as unknown).
    [[nodiscard]] std::vector<SymbolicExtent> read(std::int64_t begin, std::int64_t end) const;
    /// Overwrites [extent.begin, extent.end).
    void write(const SymbolicExtent& extent);

  private:
    void cut(std::int64_t at);
    std::map<std::int64_t, SymbolicExtent> extents_;  // by begin, disjoint
};

}  // namespace mfsdp::comm
