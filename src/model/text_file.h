#pragma once

#include "mfsdp/base/file_descriptor.h"

#include <filesystem>
#include <string>

namespace mfsdp::model {

/// The text of a small file of a model directory; DataError if it has more than 100 MB, as no index or config.json has.
[[nodiscard]] inline std::string read_text_file(const std::filesystem::path& path) {
    constexpr std::int64_t kMostBytes = 100'000'000;
    const base::FileDescriptor file(path.string(), base::FileMode::read, base::FileUse::data);
    if (file.size() > kMostBytes) {
        base::raise_file_error(base::FileUse::data, path.string(),
                               std::to_string(file.size()) + " bytes, at most " + std::to_string(kMostBytes));
    }
    std::string text(static_cast<std::size_t>(file.size()), '\0');
    file.read_exact(std::as_writable_bytes(std::span(text)), 0);
    return text;
}

}  // namespace mfsdp::model
