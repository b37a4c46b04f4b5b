#pragma once

#include "mfsdp/model/parameter_spec.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::model {

/// The ModelConfig of a Hugging Face `config.json` (its text); DataError naming `source` and the key otherwise.
[[nodiscard]] ModelConfig parse_huggingface_config(const std::string& text, const std::string& source);
/// The text of a `config.json` that Hugging Face loads, and that parse_huggingface_config reads back.
///
/// bookkeeping  a JSON object of further keys to keep (`n_ctx`, token ids, ...); what the model decides wins over it
[[nodiscard]] std::string huggingface_config(const ModelConfig& config, const std::string& bookkeeping = "{}");

/// Reads parameters of a directory with config.json and one model.safetensors, in memory orientation (Conv1D turned).
///
/// gpt2 names may lack "transformer." (all or none); gpt2's mask buffers are passed over; a tied model may store a head
/// that equals the embedding byte for byte. Any other missing, unknown or differing tensor is a DataError of the
/// constructor. Source: formats.md sections 2.2 and 4.
class HuggingFaceReader {
  public:
    explicit HuggingFaceReader(const std::filesystem::path& directory);
    ~HuggingFaceReader();
    [[nodiscard]] const ModelConfig& config() const;
    /// Values of the whole parameter, row-major in its in-memory shape. DataError if missing or of another shape.
    [[nodiscard]] std::vector<float> read(const ParameterSpec& parameter) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Writes a Hugging Face directory, one parameter at a time, published by one rename when finished: an interrupted
/// export leaves no directory with a config.json and half a model. It grows as `<directory>.tmp`.
class HuggingFaceWriter {
  public:
    /// An existing `directory` is replaced if it is an earlier export; if it holds anything but config.json and
    /// model.safetensors, or on an I/O failure, CheckpointError.
    /// bookkeeping  as in huggingface_config
    HuggingFaceWriter(const std::filesystem::path& directory, const ModelSpec& spec,
                      const std::string& bookkeeping = "{}");
    ~HuggingFaceWriter();
    /// Values of one whole parameter in its in-memory shape, in any order of parameters.
    void write(const ParameterSpec& parameter, std::span<const float> values);
    /// InternalError if a parameter was not written.
    void finish();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mfsdp::model
