#pragma once

#include "mfsdp/comm/communicator.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

namespace mfsdp::runtime {

/// One value of every rank, by rank. Blocks until all ranks have given theirs.
template <class Value>
[[nodiscard]] std::vector<Value> all_values(comm::Communicator& communicator, const Value& mine) {
    static_assert(std::is_trivially_copyable_v<Value>);
    std::vector<Value> all(static_cast<std::size_t>(communicator.size()));
    communicator.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
}

template <class Value>
[[nodiscard]] Value sum_over_ranks(comm::Communicator& communicator, const Value& mine) {
    const std::vector<Value> all = all_values(communicator, mine);
    return std::accumulate(all.begin(), all.end(), Value{});
}

template <class Value>
[[nodiscard]] Value largest_over_ranks(comm::Communicator& communicator, const Value& mine) {
    const std::vector<Value> all = all_values(communicator, mine);
    return *std::max_element(all.begin(), all.end());
}

/// Ranks go on together.
inline void meet(comm::Communicator& communicator) { static_cast<void>(all_values(communicator, char{0})); }

}  // namespace mfsdp::runtime
