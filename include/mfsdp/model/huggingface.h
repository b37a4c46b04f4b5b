#pragma once

#include "mfsdp/device/dtype.h"
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
/// dtype        of the stored weights, float32 or bfloat16: `torch_dtype`
[[nodiscard]] std::string huggingface_config(const ModelConfig& config, const std::string& bookkeeping = "{}",
                                             device::DType dtype = device::DType::float32);

/// Reads the parameters of a model directory, one model.safetensors or the files of a model.safetensors.index.json, in
/// memory orientation (Conv1D turned). Values may be F32, BF16 or F16; those of 16 bits are widened, which is exact.
///
/// gpt2 names may lack "transformer." (all or none); a tied model may store a head that equals the embedding byte for
/// byte. Every missing, unknown or differing tensor is named in the DataError of the constructor (up to ten of a kind).
/// Source: docs/formats.md, safetensors and Hugging Face weights.
class HuggingFaceReader {
  public:
    /// Of the model that the directory's config.json describes.
    explicit HuggingFaceReader(const std::filesystem::path& directory);
    /// Of a model described by the caller; the directory's config.json is not read.
    HuggingFaceReader(const std::filesystem::path& directory, const ModelSpec& spec);
    ~HuggingFaceReader();
    [[nodiscard]] const ModelConfig& config() const;
    /// Tensors of the directory that are no parameters and were left alone: the mask buffers of published gpt2 files.
    [[nodiscard]] const std::vector<std::string>& passed_over() const;

    /// Values of the whole parameter, row-major in its in-memory shape, padding rows zero.
    [[nodiscard]] std::vector<float> read(const ParameterSpec& parameter) const;
    /// Rows [row_begin, row_begin + row_count) of the same; a vector is one row. Only the bytes of these rows are read
    /// (of a tied head with them the same rows, to be compared), but a matrix that is stored transposed is read whole.
    ///
    /// out  row_count x columns elements
    void read_rows(const ParameterSpec& parameter, std::int64_t row_begin, std::int64_t row_count,
                   std::span<float> out) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// CheckpointError if an export to `directory` would be refused because something else lies there: a file, or a folder
/// that holds anything but config.json and model.safetensors.
void require_replaceable(const std::filesystem::path& directory);

/// Writes a Hugging Face directory, one parameter at a time, published by one rename when finished: an interrupted
/// export leaves no directory with a config.json and half a model. It grows as `<directory>.tmp`.
class HuggingFaceWriter {
  public:
    /// An existing `directory` is replaced if it is an earlier export (require_replaceable); CheckpointError otherwise
    /// and on an I/O failure.
    /// bookkeeping, dtype  as in huggingface_config; bfloat16 values are rounded from those given
    HuggingFaceWriter(const std::filesystem::path& directory, const ModelSpec& spec,
                      const std::string& bookkeeping = "{}", device::DType dtype = device::DType::float32);
    ~HuggingFaceWriter();
    /// Values of one whole parameter in its in-memory shape, in any order of parameters; padding rows are not stored.
    void write(const ParameterSpec& parameter, std::span<const float> values);
    /// InternalError if a parameter was not written.
    void finish();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mfsdp::model
