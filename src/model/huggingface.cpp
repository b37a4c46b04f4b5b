#include "mfsdp/model/huggingface.h"

#include "mfsdp/base/error.h"
#include "mfsdp/model/safetensors.h"

#include "model/transposed.h"

#include <cstring>
#include <utility>

namespace mfsdp::model {

namespace {

constexpr const char* kGpt2Prefix = "transformer.";

std::string read_text(const std::filesystem::path& path) {
    const base::FileDescriptor file(path.string(), base::FileMode::read, base::FileUse::data);
    std::string text(static_cast<std::size_t>(file.size()), '\0');
    file.read_exact(std::as_writable_bytes(std::span(text)), 0);
    return text;
}

std::filesystem::path weights_path(const std::filesystem::path& directory) {
    if (std::filesystem::exists(directory / "model.safetensors.index.json")) {
        throw DataError("data: " + directory.string() +
                        ": the weights are in several files, which is not supported; wanted one model.safetensors");
    }
    return directory / "model.safetensors";
}

std::string describe(const std::vector<std::int64_t>& shape) {
    std::string text = "[";
    for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    return text + "]";
}

/// The causal masks that published gpt2 files hold as buffers: h.<i>.attn.bias and h.<i>.attn.masked_bias.
bool is_mask_buffer(const std::string& name) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace

struct HuggingFaceReader::State {
    explicit State(const std::filesystem::path& directory)
        : config(parse_huggingface_config(read_text(directory / "config.json"), (directory / "config.json").string())),
          spec(describe_model(config)),
          path(weights_path(directory).string()),
          file(path) {
        check_names();
        if (config.tie_word_embeddings && file.contains("lm_head.weight")) check_tied_head();
    }

    [[nodiscard]] std::string stored_name(const ParameterSpec& parameter) const {
        return short_names && parameter.name.starts_with(kGpt2Prefix) ? parameter.name.substr(std::strlen(kGpt2Prefix))
                                                                      : parameter.name;
    }
    /// Published gpt2 files leave "transformer." out, of all names or of none; nothing unknown may be left over.
    void check_names() {
        const ParameterSpec& embedding = spec.parameters.front();
        short_names = config.family == ModelFamily::gpt2 && !file.contains(embedding.name);
        std::size_t known = config.tie_word_embeddings && file.contains("lm_head.weight") ? 1 : 0;
        for (const ParameterSpec& parameter : spec.parameters) {
            if (!file.contains(stored_name(parameter))) {
                throw DataError("data: " + path + ": tensor " + stored_name(parameter) + " is missing, wanted " +
                                describe(parameter.shape));
            }
            ++known;
        }
        if (known == file.entries().size()) return;
        for (const SafetensorsEntry& entry : file.entries()) {
            if (!is_known(entry.name)) {
                throw DataError("data: " + path + ": tensor " + entry.name + " is not part of a " +
                                std::string(name(config.family)) + " model of this config.json");
            }
        }
    }
    [[nodiscard]] bool is_known(const std::string& entry) const {
        if (config.family == ModelFamily::gpt2 && is_mask_buffer(entry)) return true;
        if (config.tie_word_embeddings && entry == "lm_head.weight") return true;
        for (const ParameterSpec& parameter : spec.parameters) {
            if (stored_name(parameter) == entry) return true;
        }
        return false;
    }
    void check_tied_head() const {
        ParameterSpec head = spec.parameters.front();
        const std::vector<float> embedding = read(head, stored_name(head));
        const std::vector<float> stored = read(head, "lm_head.weight");
        if (std::memcmp(embedding.data(), stored.data(), embedding.size() * sizeof(float)) != 0) {
            throw DataError("data: " + path +
                            ": tensor lm_head.weight differs from the embedding, but tie_word_embeddings is true");
        }
    }
    [[nodiscard]] std::vector<float> read(const ParameterSpec& parameter, const std::string& stored) const {
        std::vector<std::int64_t> wanted = parameter.shape;
        if (parameter.stored_transposed) std::swap(wanted[0], wanted[1]);
        if (file.entry(stored).shape != wanted) {
            throw DataError("data: " + path + ": tensor " + stored + ": " + describe(file.entry(stored).shape) +
                            ", expected " + describe(wanted));
        }
        std::vector<float> values(static_cast<std::size_t>(parameter.count()));
        file.read_float32(stored, values);
        return parameter.stored_transposed ? transposed(values, wanted[0], wanted[1]) : values;
    }

    ModelConfig config;
    ModelSpec spec;
    std::string path;
    SafetensorsFile file;
    bool short_names = false;
};

HuggingFaceReader::HuggingFaceReader(const std::filesystem::path& directory)
    : state_(std::make_unique<State>(directory)) {}
HuggingFaceReader::~HuggingFaceReader() = default;

const ModelConfig& HuggingFaceReader::config() const { return state_->config; }

std::vector<float> HuggingFaceReader::read(const ParameterSpec& parameter) const {
    return state_->read(parameter, state_->stored_name(parameter));
}

}  // namespace mfsdp::model
