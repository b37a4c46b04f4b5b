#pragma once

#include "mfsdp/model/huggingface.h"
#include "mfsdp/model/safetensors_writer.h"

#include "support/model_cases.h"
#include "support/temporary_directory.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace mfsdp::test {

inline std::string gpt2_config(const std::string& more = "") {
    return R"({"model_type": "gpt2", "vocab_size": 23, "n_embd": 15, "n_layer": 2, "n_head": 3, "n_positions": 9)" +
           more + "}";
}
inline std::string llama_config(const std::string& more = "") {
    return R"({"model_type": "llama", "vocab_size": 23, "hidden_size": 24, "num_hidden_layers": 2,
               "num_attention_heads": 4, "intermediate_size": 17, "max_position_embeddings": 16)" +
           more + "}";
}
inline std::string qwen3_config(const std::string& more = R"(, "head_dim": 8, "num_key_value_heads": 2)") {
    return R"({"model_type": "qwen3", "vocab_size": 23, "hidden_size": 24, "num_hidden_layers": 2,
               "num_attention_heads": 4, "intermediate_size": 17, "max_position_embeddings": 16)" +
           more + "}";
}
inline model::ModelConfig parse_config(const std::string& text) {
    return model::parse_huggingface_config(text, "config.json");
}

using Weights = std::vector<std::vector<float>>;

inline void export_model(const std::string& directory, const model::ModelSpec& spec, const Weights& weights,
                         const std::string& bookkeeping = "{}", device::DType dtype = device::DType::float32) {
    model::HuggingFaceWriter writer(directory, spec, bookkeeping, dtype);
    for (std::size_t i = weights.size(); i-- > 0;) writer.write(spec.parameters[i], weights[i]);
    writer.finish();
}

inline Weights import_model(const std::string& directory, const model::ModelSpec& spec) {
    const model::HuggingFaceReader reader(directory, spec);
    Weights weights;
    for (const model::ParameterSpec& parameter : spec.parameters) weights.push_back(reader.read(parameter));
    return weights;
}

/// A tensor as its bytes lie in a file.
struct RawTensor {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
};

/// A safetensors file put together by hand.
inline void write_raw(const std::string& path, const std::vector<RawTensor>& tensors) {
    std::string json = "{";
    std::string data;
    for (const RawTensor& tensor : tensors) {
        json += json.size() > 1 ? "," : "";
        json += "\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
            json.append(i > 0 ? "," : "").append(std::to_string(tensor.shape[i]));
        }
        json += "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
        data += tensor.bytes;
        json += std::to_string(data.size()) + "]}";
    }
    json += "}";
    const std::uint64_t length = json.size();
    std::string text(sizeof(length), '\0');
    std::memcpy(text.data(), &length, sizeof(length));
    write_file(path, text + json + data);
}

/// The tensors of a model as Hugging Face stores them, in F32 or BF16: element i of tensor k is k % 16 / 16 + i % 8,
/// which both types hold exactly.
inline std::vector<RawTensor> stored_tensors(const model::ModelSpec& spec, const std::string& dtype) {
    std::vector<RawTensor> tensors;
    for (const model::ParameterSpec& parameter : spec.parameters) {
        RawTensor tensor{parameter.name, dtype, parameter.shape, {}};
        if (tensor.shape.size() > 1) tensor.shape[0] -= parameter.padding_rows;
        if (parameter.stored_transposed) std::swap(tensor.shape[0], tensor.shape[1]);
        const std::int64_t count = parameter.count() - parameter.padding_rows * parameter.columns();
        for (std::int64_t i = 0; i < count; ++i) {
            const float value = static_cast<float>(tensors.size() % 16) * 0.0625F + static_cast<float>(i % 8);
            std::uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof(bits));
            tensor.bytes.append(reinterpret_cast<const char*>(&bits) + (dtype == "BF16" ? 2 : 0),
                                dtype == "BF16" ? 2 : 4);
        }
        tensors.push_back(std::move(tensor));
    }
    return tensors;
}

/// model.safetensors.index.json of tensor -> file.
inline void write_index(const std::string& path, const std::map<std::string, std::string>& weight_map) {
    std::string json;
    for (const auto& [tensor, file] : weight_map) {
        json.append(json.empty() ? "" : ", ").append("\"" + tensor + "\": \"" + file + "\"");
    }
    write_file(path, R"({"metadata": {"total_size": 1}, "weight_map": {)" + json + "}}");
}

/// Spreads the tensors over `shards` files in turn, with their index.
inline void write_shards(const TemporaryDirectory& directory, const std::vector<RawTensor>& tensors,
                         std::size_t shards) {
    std::vector<std::vector<RawTensor>> files(shards);
    std::map<std::string, std::string> weight_map;
    const auto name = [](std::size_t shard) { return "part-" + std::to_string(shard) + ".safetensors"; };
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        files[i % shards].push_back(tensors[i]);
        weight_map[tensors[i].name] = name(i % shards);
    }
    for (std::size_t shard = 0; shard < shards; ++shard) write_raw(directory / name(shard), files[shard]);
    write_index(directory / "model.safetensors.index.json", weight_map);
}

}  // namespace mfsdp::test
