#pragma once

#include <string>
#include <vector>

namespace mfsdp::runtime {

/// Files of a list of patterns, and what is wrong with the list.
struct MatchedFiles {
    std::vector<std::string> paths;
    std::vector<std::string> problems;  ///< whole messages; a file matched twice is once among the paths
};

/// Files that match a list of glob patterns: patterns in the given order, the matches of each sorted by the bytes of
/// their paths, whatever the locale.
///
/// A pattern without a match, and a file matched twice (also under two names), are problems.
/// Source: docs/data.md, token files.
[[nodiscard]] MatchedFiles match_file_patterns(const std::vector<std::string>& patterns);

/// match_file_patterns; the first problem is a DataError.
[[nodiscard]] std::vector<std::string> expand_file_patterns(const std::vector<std::string>& patterns);

}  // namespace mfsdp::runtime
