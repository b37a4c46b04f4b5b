#include "mfsdp/model/safetensors.h"

#include "mfsdp/base/error.h"

#include "safetensors_header.h"

#include <string_view>
#include <utility>

namespace mfsdp::model {

std::int64_t SafetensorsEntry::elements() const { return row_count(*this) * row_elements(*this); }

std::int64_t safetensors_element_bytes(const std::string& dtype) {
    static constexpr std::pair<std::string_view, std::int64_t> kBytes[] = {
        {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
        {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8},
    };
    for (const auto& [name, bytes] : kBytes) {
        if (name == dtype) return bytes;
    }
    return 0;
}

SafetensorsFile::SafetensorsFile(const std::string& path, base::FileUse use)
    : file_(path, base::FileMode::read, use), entries_(read_safetensors_header(file_)) {
    for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
    const auto found = index_.find(name);
    if (found == index_.end()) base::raise_file_error(file_.use(), file_.path(), "no tensor " + name);
    return entries_[found->second];
}

void SafetensorsFile::read_float32(const std::string& name, std::span<float> out) const {
    MFSDP_ASSERT(static_cast<std::int64_t>(out.size()) == entry(name).elements(),
                 "the caller sizes its buffer for " + name + " by the shape in the file");
    read_float32_rows(name, 0, out);
}

void SafetensorsFile::read_float32_rows(const std::string& name, std::int64_t row_begin, std::span<float> out) const {
    const SafetensorsEntry& tensor = entry(name);
    if (tensor.dtype != "F32") {
        base::raise_file_error(file_.use(), file_.path(),
                               "tensor " + name + ": " + describe(tensor) + ", expected F32");
    }
    const std::int64_t row = row_elements(tensor);
    const auto count = static_cast<std::int64_t>(out.size());
    MFSDP_ASSERT(row_begin >= 0 && row_begin <= row_count(tensor) && (row == 0 ? count == 0 : count % row == 0) &&
                     count <= tensor.elements() - row_begin * row,
                 "the caller asks for whole rows of " + name + " that exist");
    file_.read_exact(std::as_writable_bytes(out), tensor.byte_begin + row_begin * row * std::int64_t{sizeof(float)});
}

}  // namespace mfsdp::model
