#pragma once

#include "mfsdp/runtime/config/train_config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::runtime {

struct ValidateOptions {
    std::vector<std::string> patterns;
    DataFormat format = DataFormat::tokens;
    std::int64_t vocab_size = 0;  ///< ids of the model; 0: those that a file's own header promises, if it does
    std::int64_t seq_len = 0;     ///< T of at least one sample; 0: not checked
    std::int64_t ids_named = 10;  ///< wrong ids named per file; more are counted
};

struct ValidateReport {
    std::int64_t files = 0;
    std::int64_t tokens = 0;            ///< whose ids were checked
    std::vector<std::string> problems;  ///< messages as training would give them, file by file
};

/// Checks every rule of token files over whole files, ids included, and reports all problems instead of the first.
/// Source: docs/data.md, token files.
[[nodiscard]] ValidateReport validate_tokens(const ValidateOptions& options);

/// The same for the data of a run, training and validation; and, if its training data have no problems, whether each of
/// the `train.steps` global batches has a target that counts.
[[nodiscard]] ValidateReport validate_run_data(const TrainConfig& config);

}  // namespace mfsdp::runtime
