#pragma once

#include <string>
#include <vector>

namespace mfsdp::runtime {

/// Files that match a list of glob patterns: patterns in the given order, the matches of each sorted by the bytes of
/// their paths, whatever the locale.
///
/// A pattern without a match, and a file matched twice (also under two names), are DataErrors.
/// Source: formats.md section 1.1.
[[nodiscard]] std::vector<std::string> expand_file_patterns(const std::vector<std::string>& patterns);

}  // namespace mfsdp::runtime
