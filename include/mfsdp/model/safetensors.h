#pragma once

#include "mfsdp/base/file_descriptor.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::model {

/// One tensor of a safetensors file.
struct SafetensorsEntry {
    std::string name;
    std::string dtype;                ///< as the file spells it: "F32", "BF16", ...
    std::vector<std::int64_t> shape;  ///< empty for a 0-d tensor, which has one element
    std::int64_t byte_begin = 0;      ///< from the start of the file
    std::int64_t byte_end = 0;

    [[nodiscard]] std::int64_t elements() const;
};

/// Bytes of one element of `dtype`, 0 for a name the format does not have.
[[nodiscard]] std::int64_t safetensors_element_bytes(const std::string& dtype);

/// A safetensors file opened for reading, its header checked against every rule of the format.
///
/// A file that breaks a rule throws the exception of its use (DataError for imported weights) with the file, the
/// tensor where there is one, and the rule. Reading is by pread: no mapping, memory of the caller only, and several
/// threads may read at once. Source: docs/formats.md, safetensors.
class SafetensorsFile {
  public:
    explicit SafetensorsFile(const std::string& path, base::FileUse use = base::FileUse::data);

    /// All tensors in the order of their data.
    [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const noexcept { return entries_; }
    [[nodiscard]] bool contains(const std::string& name) const { return index_.contains(name); }
    /// A name that is not in the file is an error of the file.
    [[nodiscard]] const SafetensorsEntry& entry(const std::string& name) const;

    /// Reads a whole F32 tensor.
    ///
    /// out  as many elements as the tensor has, row-major; else InternalError
    /// Any other dtype is an error that names it.
    void read_float32(const std::string& name, std::span<float> out) const;
    /// Reads rows [row_begin, row_begin + out.size() / row elements) of an F32 tensor; a row is everything below the
    /// first dimension, and a 0-d tensor is one row. A range beyond the tensor is an InternalError.
    void read_float32_rows(const std::string& name, std::int64_t row_begin, std::span<float> out) const;
    /// As read_float32_rows, for weights of F32, BF16 or F16: values of 16 bits are widened, which is exact.
    void read_widened_rows(const std::string& name, std::int64_t row_begin, std::span<float> out) const;

    [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

  private:
    /// Offset in the file of a range of whole rows that the tensor has.
    [[nodiscard]] std::int64_t offset_of_rows(const SafetensorsEntry& tensor, std::int64_t row_begin,
                                              std::int64_t elements) const;
    [[noreturn]] void refuse_dtype(const SafetensorsEntry& tensor, const char* wanted) const;

    base::FileDescriptor file_;
    std::vector<SafetensorsEntry> entries_;
    std::map<std::string, std::size_t> index_;
};

}  // namespace mfsdp::model
