#pragma once

#include "mfsdp/model/model_config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::model {

/// What a parameter is in the model; which optimizer takes it is decided by routing.
enum class ParameterKind : std::uint8_t {
    block_matrix,  ///< a projection inside a block, [out, in]
    vocabulary,    ///< embedding, positions or head, [rows, hidden]
    vector,        ///< a bias or norm weight
};

enum class Initialisation : std::uint8_t { zeros, ones, normal };

/// A run of rows of a fused matrix that is a matrix of its own to the optimizer (q, k, v of GPT-2's c_attn).
struct RowBlock {
    std::string name;
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
};

/// One parameter as it lies in memory. Its identity is its full Hugging Face name, never its order.
struct ParameterSpec {
    std::string name;                 ///< Hugging Face name, e.g. "transformer.h.0.attn.c_attn.weight"
    std::vector<std::int64_t> shape;  ///< in memory: matrices (out, in), vectors (n)
    ParameterKind kind = ParameterKind::vector;
    bool stored_transposed = false;    ///< GPT-2 Conv1D: files hold (in, out)
    std::vector<RowBlock> row_blocks;  ///< blocks of a fused matrix, tiling its rows; empty: one matrix
    Initialisation initialisation = Initialisation::zeros;
    double standard_deviation = 0.0;  ///< of Initialisation::normal
    std::int64_t padding_rows = 0;    ///< last rows of a vocabulary table: zero for ever, in no file

    /// Elements in memory, padding included.
    [[nodiscard]] std::int64_t count() const;
    /// A vector is one row.
    [[nodiscard]] std::int64_t rows() const { return shape.size() < 2 ? 1 : shape[0]; }
    [[nodiscard]] std::int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
    /// Rows and elements in files.
    [[nodiscard]] std::int64_t stored_rows() const { return rows() - padding_rows; }
    [[nodiscard]] std::int64_t stored_count() const { return count() - padding_rows * columns(); }
};

/// A unit is what computes: the embedding, one block, or the head.
struct UnitSpec {
    std::string name;                      ///< "embedding", "block 3", "head"
    std::vector<std::int64_t> parameters;  ///< indices into ModelSpec::parameters, in the order the unit expects them
    /// Position in `parameters` of the vocabulary table that the unit visits panel by panel (embedding and head), else
    /// -1.
    std::int64_t table = -1;

    /// Whether there are parameters beside the table.
    [[nodiscard]] bool has_ordinary_parameters() const { return parameters.size() > (table < 0 ? 0U : 1U); }
};

/// A model described without ranks: every parameter once (a tied head is the embedding's parameter used by two units),
/// units in forward order: embedding, blocks, head.
struct ModelSpec {
    ModelConfig config;
    std::vector<ParameterSpec> parameters;
    std::vector<UnitSpec> units;

    /// Trainable elements, without padding.
    [[nodiscard]] std::int64_t parameter_count() const;
    [[nodiscard]] std::int64_t blocks() const { return static_cast<std::int64_t>(units.size()) - 2; }
    [[nodiscard]] std::int64_t head_unit() const { return static_cast<std::int64_t>(units.size()) - 1; }

    /// The vocabulary tables (embedding and head) are used in panels of kVocabularyPanelRows rows, the last one
    /// shorter; padding rows belong to panels too.
    [[nodiscard]] std::int64_t panels() const;
    [[nodiscard]] std::int64_t panel_begin(std::int64_t panel) const;
    [[nodiscard]] std::int64_t panel_rows(std::int64_t panel) const;
};

/// Parameters and units of a model, with config.padded_vocab_size filled in. Source: names and shapes of Hugging Face's
/// GPT2LMHeadModel, LlamaForCausalLM and Qwen3ForCausalLM. ConfigError for sizes whose parameters cannot be counted.
[[nodiscard]] ModelSpec describe_model(const ModelConfig& config);

}  // namespace mfsdp::model
