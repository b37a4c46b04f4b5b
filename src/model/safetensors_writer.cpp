#include "mfsdp/model/safetensors_writer.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/half.h"

#include "safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>
#include <unistd.h>

namespace mfsdp::model {
namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kHeaderAlignment = 8;
constexpr std::int64_t kRoundedPiece = 65536;  // elements rounded and written at a time

std::vector<SafetensorsEntry> ordered_entries(const std::vector<SafetensorsTensor>& tensors) {
    std::vector<SafetensorsEntry> entries;
    for (const SafetensorsTensor& tensor : tensors) {
        MFSDP_ASSERT(tensor.dtype == "F32" || tensor.dtype == "BF16", "F32 and BF16 are written: " + tensor.name);
        entries.push_back({tensor.name, tensor.dtype, tensor.shape, 0, 0});
    }
    std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
        const std::int64_t a_bytes = safetensors_element_bytes(a.dtype);
        const std::int64_t b_bytes = safetensors_element_bytes(b.dtype);
        return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
    });
    std::set<std::string> names;
    std::int64_t offset = 0;
    for (SafetensorsEntry& entry : entries) {
        MFSDP_ASSERT(entry.name != "__metadata__", "no parameter has the name of the metadata");
        MFSDP_ASSERT(names.insert(entry.name).second, "tensor names are unique: " + entry.name);
        for (const std::int64_t extent : entry.shape)
            MFSDP_ASSERT(extent >= 0, "sizes are not negative: " + entry.name);
        entry.byte_begin = offset;
        offset += entry.elements() * safetensors_element_bytes(entry.dtype);
        entry.byte_end = offset;
    }
    return entries;
}

std::string header_json(const std::vector<SafetensorsEntry>& entries) {
    // Written by hand because the order of the keys is part of the format: a JSON object would sort them.
    std::string json = R"({"__metadata__":{"format":"pt"})";
    for (const SafetensorsEntry& entry : entries) {
        json += ',';
        json += nlohmann::json(entry.name).dump() + R"(:{"dtype":")" + entry.dtype + R"(","shape":)" +
                nlohmann::json(entry.shape).dump() + R"(,"data_offsets":[)" + std::to_string(entry.byte_begin) + "," +
                std::to_string(entry.byte_end) + "]}";
    }
    json += '}';
    while (json.size() % kHeaderAlignment != 0) json += ' ';
    return json;
}

}  // namespace

SafetensorsLayout safetensors_layout(const std::vector<SafetensorsTensor>& tensors) {
    SafetensorsLayout layout;
    layout.entries = ordered_entries(tensors);
    const std::string json = header_json(layout.entries);
    const std::uint64_t json_bytes = json.size();
    layout.header.resize(kLengthBytes);
    std::memcpy(layout.header.data(), &json_bytes, kLengthBytes);
    layout.header += json;
    const auto data_begin = static_cast<std::int64_t>(layout.header.size());
    for (SafetensorsEntry& entry : layout.entries) {
        entry.byte_begin += data_begin;
        entry.byte_end += data_begin;
    }
    layout.file_bytes = layout.entries.empty() ? data_begin : layout.entries.back().byte_end;
    return layout;
}

// Two steps, so that the destructor, which removes the temporary file, already runs if the second one throws.
SafetensorsWriter::SafetensorsWriter(std::string path, const SafetensorsLayout& layout, base::FileUse use)
    : path_(std::move(path)), temporary_path_(path_ + ".tmp"), file_(temporary_path_, base::FileMode::create, use) {
    for (const SafetensorsEntry& entry : layout.entries) tensors_.emplace(entry.name, Progress{entry, {}});
}

SafetensorsWriter::SafetensorsWriter(std::string path, const std::vector<SafetensorsTensor>& tensors, base::FileUse use)
    : SafetensorsWriter(std::move(path), safetensors_layout(tensors), use) {
    const SafetensorsLayout layout = safetensors_layout(tensors);
    file_.resize(layout.file_bytes);
    file_.write_exact(std::as_bytes(std::span(layout.header)), 0);
}

SafetensorsWriter::~SafetensorsWriter() {
    if (!finished_) ::unlink(temporary_path_.c_str());
}

void SafetensorsWriter::write(const std::string& name, std::span<const float> values) {
    const auto found = tensors_.find(name);
    MFSDP_ASSERT(found != tensors_.end(), "the file was laid out with the tensor " + name);
    MFSDP_ASSERT(static_cast<std::int64_t>(values.size()) == found->second.entry.elements(),
                 "all elements of " + name + " are given");
    write_rows(name, 0, values);
}

void SafetensorsWriter::write_rows(const std::string& name, std::int64_t row_begin, std::span<const float> values) {
    const auto found = tensors_.find(name);
    MFSDP_ASSERT(found != tensors_.end(), "the file was laid out with the tensor " + name);
    auto& [entry, written] = found->second;
    const auto count = static_cast<std::int64_t>(values.size());
    if (count == 0) return;
    const std::int64_t row = row_elements(entry);
    const std::int64_t begin = row_begin * row;
    MFSDP_ASSERT(row > 0 && row_begin >= 0 && count % row == 0 && count <= entry.elements() - begin,
                 "whole rows inside " + name + " are written");
    const auto next = written.lower_bound(begin);
    MFSDP_ASSERT((next == written.end() || next->first >= begin + count) &&
                     (next == written.begin() || std::prev(next)->second <= begin),
                 "no row of " + name + " is written twice");
    write_elements(entry, begin, values);
    written.emplace(begin, begin + count);
}

void SafetensorsWriter::write_elements(const SafetensorsEntry& entry, std::int64_t begin,
                                       std::span<const float> values) const {
    const std::int64_t offset = entry.byte_begin + begin * safetensors_element_bytes(entry.dtype);
    if (entry.dtype == "F32") {
        file_.write_exact(std::as_bytes(values), offset);
        return;
    }
    std::vector<device::BFloat16> rounded;
    for (std::int64_t at = 0; at < std::ssize(values); at += kRoundedPiece) {
        const std::span<const float> piece = values.subspan(
            static_cast<std::size_t>(at), static_cast<std::size_t>(std::min(kRoundedPiece, std::ssize(values) - at)));
        rounded.resize(piece.size());
        std::transform(piece.begin(), piece.end(), rounded.begin(), device::rounded<device::BFloat16>);
        file_.write_exact(std::as_bytes(std::span(rounded)), offset + at * std::int64_t{sizeof(device::BFloat16)});
    }
}

void SafetensorsWriter::finish() {
    for (const auto& [name, progress] : tensors_) {
        std::int64_t elements = 0;
        for (const auto& [begin, end] : progress.written) elements += end - begin;
        MFSDP_ASSERT(elements == progress.entry.elements(), "every row of " + name + " was written");
    }
    const base::FileUse use = file_.use();
    file_.sync();
    file_.close();
    base::rename_durably(temporary_path_, path_, use);
    finished_ = true;
}

}  // namespace mfsdp::model
