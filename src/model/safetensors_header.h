#pragma once

#include "mfsdp/base/file_descriptor.h"
#include "mfsdp/model/safetensors.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::model {

/// Parses and checks the header of a safetensors file; entries come back in data order with offsets from the start of
/// the file. Every violated rule throws the exception of the file's use.
[[nodiscard]] std::vector<SafetensorsEntry> read_safetensors_header(const base::FileDescriptor& file);

/// Elements of one row: everything below the first dimension; 1 for 0-d and 1-d tensors.
[[nodiscard]] std::int64_t row_elements(const SafetensorsEntry& entry);
/// Rows of a tensor: its first dimension, 1 for 0-d.
[[nodiscard]] std::int64_t row_count(const SafetensorsEntry& entry);

/// "F32 [4,8]"
[[nodiscard]] std::string describe(const SafetensorsEntry& entry);

}  // namespace mfsdp::model
