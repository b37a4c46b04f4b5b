#pragma once

#include "mfsdp/runtime/config/train_config.h"
#include "mfsdp/runtime/train/engine.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// Continues a prompt greedily with the present weights, so that people see what a model has learnt.
class Sampler {
  public:
    /// The prompt is `train.sample_prompt`: text for the byte tokenizer, else ids "12 7 9"; empty: the end of a
    /// document (bytes) or `first_token`. A word that is no id of the model is a ConfigError.
    Sampler(const TrainConfig& config, std::int32_t first_token);

    /// The prompt and its continuation by `train.sample_tokens` tokens, each from the last `train.seq_len` ones; on
    /// rank 0, other ranks get an empty text. All ranks call it; blocks.
    [[nodiscard]] std::string run(Engine& engine, int rank) const;

  private:
    [[nodiscard]] std::string text(const std::vector<std::int32_t>& tokens) const;

    DataFormat format_;
    std::int64_t new_tokens_;
    std::int64_t longest_;
    std::vector<std::int32_t> prompt_;
};

/// Bytes as readable text on one line: what is not printable ASCII or well-formed UTF-8 is written \n, \t or \xNN.
[[nodiscard]] std::string printable(const std::string& bytes);

}  // namespace mfsdp::runtime
