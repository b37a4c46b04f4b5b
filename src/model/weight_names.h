#pragma once

#include "mfsdp/model/parameter_spec.h"

#include "model/weight_files.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::model {

/// Name of the head, which the files of a tied model may hold although no parameter has it.
inline constexpr const char* kHeadName = "lm_head.weight";

/// Shape of a parameter in files: without padding rows, Conv1D matrices turned.
[[nodiscard]] std::vector<std::int64_t> stored_shape(const ParameterSpec& parameter);

/// How the tensors of a directory are the parameters of a model.
struct WeightNames {
    bool without_prefix = false;           ///< published gpt2 files leave "transformer." out
    bool has_tied_head = false;            ///< a copy of the embedding under kHeadName
    std::vector<std::string> passed_over;  ///< gpt2's mask buffers

    [[nodiscard]] std::string stored(const ParameterSpec& parameter) const;
};

/// Finds every parameter of the model, in its shape and in F32, BF16 or F16, and nothing unknown beside; else DataError
/// that names `directory` and up to ten tensors each that are missing, unexpected, or of another shape or type.
[[nodiscard]] WeightNames match_weights(const ModelSpec& spec, const WeightFiles& files, const std::string& directory);

}  // namespace mfsdp::model
