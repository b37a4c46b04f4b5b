#include "safetensors_header.h"

#include "mfsdp/base/error.h"

#include "model/strict_json.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <tuple>

#include <nlohmann/json.hpp>

namespace mfsdp::model {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and read as it lies");

using Json = nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxDimensions = 16;  // more than any tensor of a model has; messages repeat them
constexpr std::string_view kMetadataKey = "__metadata__";

// Turns each broken rule into the exception of the file.
class Rules {
  public:
    explicit Rules(const base::FileDescriptor& file) : file_(file) {}

    void require(bool holds, const std::string& otherwise) const {
        if (!holds) base::raise_file_error(file_.use(), file_.path(), otherwise);
    }
    void require_of(const std::string& name, bool holds, const std::string& otherwise) const {
        require(holds, "tensor " + name + ": " + otherwise);
    }

  private:
    const base::FileDescriptor& file_;
};

std::string read_header_text(const base::FileDescriptor& file, const Rules& rules) {
    const std::int64_t file_bytes = file.size();
    rules.require(file_bytes >= kLengthBytes, std::to_string(file_bytes) + " bytes, shorter than the header length");
    std::uint64_t header_bytes = 0;
    file.read_exact(std::as_writable_bytes(std::span(&header_bytes, 1)), 0);
    rules.require(header_bytes <= static_cast<std::uint64_t>(kMaxHeaderBytes),
                  "header of " + std::to_string(header_bytes) + " bytes, at most " + std::to_string(kMaxHeaderBytes));
    rules.require(kLengthBytes + static_cast<std::int64_t>(header_bytes) <= file_bytes,
                  "header of " + std::to_string(header_bytes) + " bytes in a file of " + std::to_string(file_bytes));
    std::string text(header_bytes, '\0');
    file.read_exact(std::as_writable_bytes(std::span(text)), kLengthBytes);
    return text;
}

Json parse_header(const std::string& text, const Rules& rules) {
    rules.require(!text.empty() && text.front() == '{', "the header does not start with '{'");
    return parse_strict_json(text, [&](const std::string& what) { rules.require(false, "the header " + what); });
}

void check_metadata(const Json& metadata, const Rules& rules) {
    rules.require(metadata.is_object(), "__metadata__ is not an object");
    for (const auto& [key, value] : metadata.items()) {
        rules.require(value.is_string(), "__metadata__ '" + key + "' is not a string");
    }
}

std::int64_t read_count(const Json& value, const std::string& name, const std::string& what, const Rules& rules) {
    // A number with a point, an exponent or a sign is of another type here, one beyond 64 bits is a float.
    rules.require_of(name, value.is_number_unsigned(), what + " " + value.dump() + " is not a whole number >= 0");
    const auto number = value.get<std::uint64_t>();
    rules.require_of(name, number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
                     what + " " + value.dump() + " does not fit into 63 bits");
    return static_cast<std::int64_t>(number);
}

const Json& member(const Json& object, const char* key, const std::string& name, const Rules& rules) {
    rules.require_of(name, object.contains(key), std::string("no ") + key);
    return object.at(key);
}

std::int64_t checked_bytes(const SafetensorsEntry& entry, const Rules& rules) {
    // From the last dimension up, so that the size of a row is proven too, even where the first dimension is zero.
    std::int64_t bytes = safetensors_element_bytes(entry.dtype);
    for (auto extent = entry.shape.rbegin(); extent != entry.shape.rend(); ++extent) {
        if (__builtin_mul_overflow(bytes, *extent, &bytes)) {
            rules.require_of(entry.name, false, "the size of " + describe(entry) + " overflows");
        }
    }
    return bytes;
}

SafetensorsEntry parse_entry(const std::string& name, const Json& value, const Rules& rules) {
    rules.require_of(name, value.is_object(), "its description is not an object");
    SafetensorsEntry entry;
    entry.name = name;
    const Json& dtype = member(value, "dtype", name, rules);
    rules.require_of(name, dtype.is_string(), "dtype is not a string");
    entry.dtype = dtype.get<std::string>();
    rules.require_of(name, safetensors_element_bytes(entry.dtype) > 0, "unknown dtype '" + entry.dtype + "'");
    const Json& shape = member(value, "shape", name, rules);
    rules.require_of(name, shape.is_array(), "shape is not an array");
    rules.require_of(
        name, shape.size() <= kMaxDimensions,
        "shape of " + std::to_string(shape.size()) + " dimensions, at most " + std::to_string(kMaxDimensions));
    for (const Json& extent : shape) entry.shape.push_back(read_count(extent, name, "shape", rules));
    const Json& offsets = member(value, "data_offsets", name, rules);
    rules.require_of(name, offsets.is_array() && offsets.size() == 2, "data_offsets is not a pair");
    entry.byte_begin = read_count(offsets[0], name, "offset", rules);
    entry.byte_end = read_count(offsets[1], name, "offset", rules);
    const std::int64_t bytes = checked_bytes(entry, rules);
    rules.require_of(name, entry.byte_end >= entry.byte_begin && entry.byte_end - entry.byte_begin == bytes,
                     "offsets [" + std::to_string(entry.byte_begin) + "," + std::to_string(entry.byte_end) + "], " +
                         describe(entry) + " has " + std::to_string(bytes) + " bytes");
    return entry;
}

// The data must be tiled: bytes that no tensor or two tensors claim could hide a second content.
void check_tiling(const std::vector<SafetensorsEntry>& entries, std::int64_t data_bytes, const Rules& rules) {
    std::int64_t expected = 0;
    for (const SafetensorsEntry& entry : entries) {
        rules.require_of(entry.name, entry.byte_begin == expected,
                         std::string(entry.byte_begin > expected ? "gap" : "overlap") + ": starts at " +
                             std::to_string(entry.byte_begin) + ", the tensors before end at " +
                             std::to_string(expected));
        expected = entry.byte_end;
    }
    rules.require(expected == data_bytes, "the tensors end at byte " + std::to_string(expected) +
                                              " of the data, the file has " + std::to_string(data_bytes));
}

}  // namespace

std::vector<SafetensorsEntry> read_safetensors_header(const base::FileDescriptor& file) {
    const Rules rules(file);
    const std::string text = read_header_text(file, rules);
    const Json header = parse_header(text, rules);
    std::vector<SafetensorsEntry> entries;
    for (const auto& [key, value] : header.items()) {
        if (key == kMetadataKey) {
            check_metadata(value, rules);
        } else {
            entries.push_back(parse_entry(key, value, rules));
        }
    }
    std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
        return std::tie(a.byte_begin, a.byte_end, a.name) < std::tie(b.byte_begin, b.byte_end, b.name);
    });
    const std::int64_t data_begin = kLengthBytes + static_cast<std::int64_t>(text.size());
    check_tiling(entries, file.size() - data_begin, rules);
    for (SafetensorsEntry& entry : entries) {
        entry.byte_begin += data_begin;
        entry.byte_end += data_begin;
    }
    return entries;
}

std::int64_t row_elements(const SafetensorsEntry& entry) {
    std::int64_t elements = 1;
    for (std::size_t i = 1; i < entry.shape.size(); ++i) elements *= entry.shape[i];
    return elements;
}

std::int64_t row_count(const SafetensorsEntry& entry) { return entry.shape.empty() ? 1 : entry.shape.front(); }

std::string describe(const SafetensorsEntry& entry) {
    std::string text = entry.dtype + " [";
    for (std::size_t i = 0; i < entry.shape.size(); ++i) {
        if (i > 0) text += ',';
        text += std::to_string(entry.shape[i]);
    }
    return text + "]";
}

}  // namespace mfsdp::model
