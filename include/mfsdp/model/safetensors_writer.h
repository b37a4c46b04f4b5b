#pragma once

#include "mfsdp/base/file_descriptor.h"
#include "mfsdp/model/safetensors.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::model {

/// A tensor to be written.
struct SafetensorsTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::string dtype = "F32";  ///< F32 or BF16
};

/// Everything about a file but its data. It follows from the tensors' descriptions alone, so every rank computes the
/// same.
struct SafetensorsLayout {
    std::string header;                     ///< the length word and the padded JSON: the first bytes of the file
    std::vector<SafetensorsEntry> entries;  ///< in data order: wide elements first, then by the names' bytes
    std::int64_t file_bytes = 0;
};

/// Lays out one file, byte for byte as the reference writer does with metadata {"format":"pt"}.
///
/// tensors  any order; names are unique UTF-8 and not "__metadata__", sizes >= 0, dtypes as above; else InternalError
/// Source: docs/formats.md, safetensors.
[[nodiscard]] SafetensorsLayout safetensors_layout(const std::vector<SafetensorsTensor>& tensors);

/// Writes one file piece by piece, so that the caller holds one parameter at a time. Values are given as float32; for a
/// BF16 tensor they are rounded to nearest even.
///
/// The file grows as `<path>.tmp` and appears under its name in `finish`, complete or not at all; without `finish`
/// the destructor removes it. Pieces may come in any order, each element once. An I/O failure throws the exception of
/// `use` (default CheckpointError).
class SafetensorsWriter {
  public:
    SafetensorsWriter(std::string path, const std::vector<SafetensorsTensor>& tensors,
                      base::FileUse use = base::FileUse::checkpoint);
    ~SafetensorsWriter();
    SafetensorsWriter(const SafetensorsWriter&) = delete;
    SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

    /// Writes a whole tensor, row-major.
    void write(const std::string& name, std::span<const float> values);
    /// Writes rows [row_begin, row_begin + values.size() / row elements); whole rows inside the tensor that were not
    /// written before, else InternalError.
    void write_rows(const std::string& name, std::int64_t row_begin, std::span<const float> values);

    /// Makes the file durable and gives it its name. An element that was never written is an InternalError.
    void finish();

  private:
    SafetensorsWriter(std::string path, const SafetensorsLayout& layout, base::FileUse use);
    void write_elements(const SafetensorsEntry& entry, std::int64_t begin, std::span<const float> values) const;

    struct Progress {
        SafetensorsEntry entry;
        std::map<std::int64_t, std::int64_t> written;  ///< disjoint ranges of elements: begin -> end
    };

    std::string path_;
    std::string temporary_path_;
    std::map<std::string, Progress> tensors_;
    base::FileDescriptor file_;
    bool finished_ = false;
};

}  // namespace mfsdp::model
