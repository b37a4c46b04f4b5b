#include "mfsdp/runtime/data/file_patterns.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <utility>

#include <glob.h>

namespace mfsdp::runtime {
namespace {

// Owns what glob() allocates.
class Matches {
  public:
    explicit Matches(const std::string& pattern) : status_(::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &result_)) {}
    ~Matches() { ::globfree(&result_); }
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;

    [[nodiscard]] int status() const noexcept { return status_; }
    [[nodiscard]] std::vector<std::string> sorted() const {
        std::vector<std::string> paths;
        for (std::size_t i = 0; i < result_.gl_pathc; ++i) paths.emplace_back(result_.gl_pathv[i]);
        std::sort(paths.begin(), paths.end());
        return paths;
    }

  private:
    glob_t result_{};
    int status_;
};

std::string place(const std::string& path) { return "data: " + path + ": "; }

// The file itself, whatever name it is called by; empty if it cannot be found.
std::string identity(const std::string& path, std::vector<std::string>& problems) {
    std::error_code error;
    const std::filesystem::path resolved = std::filesystem::canonical(path, error);
    if (!error) return resolved.string();
    problems.push_back(place(path) + "cannot resolve: " + error.message());
    return {};
}

}  // namespace

MatchedFiles match_file_patterns(const std::vector<std::string>& patterns) {
    MatchedFiles files;
    std::map<std::string, std::string> pattern_of;
    for (const std::string& pattern : patterns) {
        const Matches matches(pattern);
        if (matches.status() != 0) {
            const bool none = matches.status() == GLOB_NOMATCH;
            files.problems.push_back("data: pattern '" + pattern +
                                     (none ? "' matches no file" : "' could not be expanded"));
            continue;
        }
        for (const std::string& path : matches.sorted()) {
            const std::string file = identity(path, files.problems);
            if (file.empty()) continue;
            const auto [first, is_new] = pattern_of.emplace(file, pattern);
            if (is_new) {
                files.paths.push_back(path);
            } else {
                files.problems.push_back(place(path) + "matched by '" + first->second + "' and '" + pattern + "'");
            }
        }
    }
    return files;
}

std::vector<std::string> expand_file_patterns(const std::vector<std::string>& patterns) {
    MatchedFiles files = match_file_patterns(patterns);
    if (!files.problems.empty()) throw DataError(files.problems.front());
    return std::move(files.paths);
}

}  // namespace mfsdp::runtime
