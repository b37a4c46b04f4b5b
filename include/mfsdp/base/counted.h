#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mfsdp::base {

/// A number and what it counts, for people: "1 rank", "8 ranks". Only for words whose plural is one "s" more.
[[nodiscard]] std::string counted(std::int64_t number, std::string_view thing);

}  // namespace mfsdp::base
