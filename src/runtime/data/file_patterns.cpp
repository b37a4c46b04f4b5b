#include "mfsdp/runtime/data/file_patterns.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/file_descriptor.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>

#include <glob.h>

namespace mfsdp::runtime {
namespace {

using base::FileUse;

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

std::string identity(const std::string& path) {
    std::error_code error;
    const std::filesystem::path resolved = std::filesystem::canonical(path, error);
    if (error) base::raise_file_error(FileUse::data, path, "cannot resolve: " + error.message());
    return resolved.string();
}

}  // namespace

std::vector<std::string> expand_file_patterns(const std::vector<std::string>& patterns) {
    std::vector<std::string> paths;
    std::map<std::string, std::string> pattern_of;
    for (const std::string& pattern : patterns) {
        const Matches matches(pattern);
        if (matches.status() != 0) {
            const bool none = matches.status() == GLOB_NOMATCH;
            base::raise_file_error(FileUse::data, "",
                                   "pattern '" + pattern + (none ? "' matches no file" : "' could not be expanded"));
        }
        for (const std::string& path : matches.sorted()) {
            const auto [first, is_new] = pattern_of.emplace(identity(path), pattern);
            if (!is_new) {
                base::raise_file_error(FileUse::data, path, "matched by '" + first->second + "' and '" + pattern + "'");
            }
            paths.push_back(path);
        }
    }
    return paths;
}

}  // namespace mfsdp::runtime
