#include "mfsdp/model/safetensors.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/half.h"

#include "safetensors_header.h"

#include <cstring>
#include <string_view>
#include <utility>

namespace mfsdp::model {

namespace {

/// Reads out.size() values of 16 bits and widens them. They are read into the second half of `out` itself and widened
/// from the front: value i takes the place of bytes that were read before it.
template <class Half>
void read_halves(const base::FileDescriptor& file, std::span<float> out, std::int64_t offset) {
    const std::span<std::byte> raw = std::as_writable_bytes(out).subspan(out.size_bytes() / 2);
    file.read_exact(raw, offset);
    for (std::size_t i = 0; i < out.size(); ++i) {
        Half half;
        std::memcpy(&half, raw.data() + i * sizeof(half), sizeof(half));
        const float value = device::widened(half);
        std::memcpy(&out[i], &value, sizeof(value));
    }
}

}  // namespace

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

std::int64_t SafetensorsFile::offset_of_rows(const SafetensorsEntry& tensor, std::int64_t row_begin,
                                             std::int64_t elements) const {
    const std::int64_t row = row_elements(tensor);
    MFSDP_ASSERT(row_begin >= 0 && row_begin <= row_count(tensor) && (row == 0 ? elements == 0 : elements % row == 0) &&
                     elements <= tensor.elements() - row_begin * row,
                 "the caller asks for whole rows of " + tensor.name + " that exist");
    return tensor.byte_begin + row_begin * row * safetensors_element_bytes(tensor.dtype);
}

void SafetensorsFile::refuse_dtype(const SafetensorsEntry& tensor, const char* wanted) const {
    base::raise_file_error(file_.use(), file_.path(),
                           "tensor " + tensor.name + ": " + describe(tensor) + ", expected " + wanted);
}

void SafetensorsFile::read_float32_rows(const std::string& name, std::int64_t row_begin, std::span<float> out) const {
    const SafetensorsEntry& tensor = entry(name);
    if (tensor.dtype != "F32") refuse_dtype(tensor, "F32");
    file_.read_exact(std::as_writable_bytes(out), offset_of_rows(tensor, row_begin, std::ssize(out)));
}

void SafetensorsFile::read_widened_rows(const std::string& name, std::int64_t row_begin, std::span<float> out) const {
    const SafetensorsEntry& tensor = entry(name);
    if (tensor.dtype == "F32") {
        read_float32_rows(name, row_begin, out);
    } else if (tensor.dtype == "BF16") {
        read_halves<device::BFloat16>(file_, out, offset_of_rows(tensor, row_begin, std::ssize(out)));
    } else if (tensor.dtype == "F16") {
        read_halves<device::Float16>(file_, out, offset_of_rows(tensor, row_begin, std::ssize(out)));
    } else {
        refuse_dtype(tensor, "F32, BF16 or F16");
    }
}

}  // namespace mfsdp::model
