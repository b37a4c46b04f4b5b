#include "mfsdp/model/parameter_spec.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <utility>

namespace mfsdp::model {

namespace {

/// Collects parameters and units. Inside a block the order is the one the layers take their tensors in: first norm,
/// attention projections, norms of query and key heads, second norm, MLP projections, each weight followed by its bias
/// where there is one.
class SpecBuilder {
  public:
    explicit SpecBuilder(const ModelConfig& config) {
        spec_.config = config;
        if (config.padded_vocab_size == 0) spec_.config.padded_vocab_size = config.vocab_size;
    }

    void begin_unit(std::string name) { spec_.units.push_back({.name = std::move(name), .parameters = {}}); }
    /// Returns the parameter's index, so that a later unit can use it too.
    std::int64_t add(ParameterSpec parameter) {
        spec_.parameters.push_back(std::move(parameter));
        const auto index = static_cast<std::int64_t>(spec_.parameters.size()) - 1;
        share(index);
        return index;
    }
    void share(std::int64_t parameter) { spec_.units.back().parameters.push_back(parameter); }
    /// The parameter added or shared last is the table that the unit visits in panels.
    void mark_table() {
        UnitSpec& unit = spec_.units.back();
        unit.table = static_cast<std::int64_t>(unit.parameters.size()) - 1;
    }

    std::int64_t add_vocabulary(const std::string& name) {
        const std::int64_t index = add_table(name, spec_.config.padded_vocab_size);
        spec_.parameters.back().padding_rows = spec_.config.padded_vocab_size - spec_.config.vocab_size;
        return index;
    }
    std::int64_t add_table(const std::string& name, std::int64_t rows) {
        ParameterSpec parameter;
        parameter.name = name;
        parameter.shape = {rows, spec_.config.hidden_size};
        parameter.kind = ParameterKind::vocabulary;
        parameter.initialisation = Initialisation::normal;
        parameter.standard_deviation = spec_.config.initializer_range;
        return add(std::move(parameter));
    }
    void add_vector(const std::string& name, std::int64_t size, Initialisation initialisation) {
        ParameterSpec parameter;
        parameter.name = name;
        parameter.shape = {size};
        parameter.initialisation = initialisation;
        add(std::move(parameter));
    }
    void add_head_norm(const std::string& name) {
        add_vector(name + ".weight", spec_.config.head_dim, Initialisation::ones);
    }
    void add_norm(const std::string& name, bool bias) {
        add_vector(name + ".weight", spec_.config.hidden_size, Initialisation::ones);
        if (bias) add_vector(name + ".bias", spec_.config.hidden_size, Initialisation::zeros);
    }
    void add_projection(ParameterSpec weight, bool bias) {
        const std::string bias_name = weight.name.substr(0, weight.name.rfind('.')) + ".bias";
        const std::int64_t out = weight.shape[0];
        add(std::move(weight));
        if (bias) add_vector(bias_name, out, Initialisation::zeros);
    }
    /// A block matrix [out, in] called `<name>.weight`.
    [[nodiscard]] ParameterSpec matrix(const std::string& name, std::int64_t out, std::int64_t in) const {
        ParameterSpec parameter;
        parameter.name = name + ".weight";
        parameter.shape = {out, in};
        parameter.kind = ParameterKind::block_matrix;
        parameter.stored_transposed = spec_.config.family == ModelFamily::gpt2;
        parameter.initialisation = Initialisation::normal;
        parameter.standard_deviation = spec_.config.initializer_range;
        return parameter;
    }
    [[nodiscard]] ModelSpec take() { return std::move(spec_); }

  private:
    ModelSpec spec_;
};

void add_gpt2_block(SpecBuilder& builder, const ModelConfig& config, std::int64_t index) {
    const std::string prefix = "transformer.h." + std::to_string(index) + ".";
    const std::int64_t hidden = config.hidden_size;
    // The two projections that end in the residual stream start smaller, so that its variance does not grow with depth.
    const double residual_deviation =
        config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));

    builder.begin_unit("block " + std::to_string(index));
    builder.add_norm(prefix + "ln_1", true);
    ParameterSpec fused = builder.matrix(prefix + "attn.c_attn", 3 * hidden, hidden);
    fused.row_blocks = {{"q", 0, hidden}, {"k", hidden, hidden}, {"v", 2 * hidden, hidden}};
    builder.add_projection(std::move(fused), true);
    ParameterSpec attention_out = builder.matrix(prefix + "attn.c_proj", hidden, hidden);
    attention_out.standard_deviation = residual_deviation;
    builder.add_projection(std::move(attention_out), true);
    builder.add_norm(prefix + "ln_2", true);
    builder.add_projection(builder.matrix(prefix + "mlp.c_fc", config.intermediate_size, hidden), true);
    ParameterSpec mlp_out = builder.matrix(prefix + "mlp.c_proj", hidden, config.intermediate_size);
    mlp_out.standard_deviation = residual_deviation;
    builder.add_projection(std::move(mlp_out), true);
}

/// llama, and qwen3 with its norms of query and key heads.
void add_llama_block(SpecBuilder& builder, const ModelConfig& config, std::int64_t index) {
    const std::string prefix = "model.layers." + std::to_string(index) + ".";
    const std::int64_t hidden = config.hidden_size;
    const std::int64_t query = config.num_attention_heads * config.head_dim;
    const std::int64_t key_value = config.num_key_value_heads * config.head_dim;
    const std::int64_t intermediate = config.intermediate_size;

    builder.begin_unit("block " + std::to_string(index));
    builder.add_norm(prefix + "input_layernorm", false);
    const std::string attention = prefix + "self_attn.";
    builder.add_projection(builder.matrix(attention + "q_proj", query, hidden), config.attention_bias);
    builder.add_projection(builder.matrix(attention + "k_proj", key_value, hidden), config.attention_bias);
    builder.add_projection(builder.matrix(attention + "v_proj", key_value, hidden), config.attention_bias);
    builder.add_projection(builder.matrix(attention + "o_proj", hidden, query), config.attention_bias);
    if (config.family == ModelFamily::qwen3) {
        builder.add_head_norm(attention + "q_norm");
        builder.add_head_norm(attention + "k_norm");
    }
    builder.add_norm(prefix + "post_attention_layernorm", false);
    builder.add_projection(builder.matrix(prefix + "mlp.gate_proj", intermediate, hidden), config.mlp_bias);
    builder.add_projection(builder.matrix(prefix + "mlp.up_proj", intermediate, hidden), config.mlp_bias);
    builder.add_projection(builder.matrix(prefix + "mlp.down_proj", hidden, intermediate), config.mlp_bias);
}

/// ConfigError if the elements could not be counted in int64; in floating point, for the sizes alone may overflow it.
void check_count(const ModelConfig& config) {
    const auto number = [](std::int64_t value) { return static_cast<double>(value); };
    const double hidden = number(config.hidden_size);
    const double heads =
        (2.0 * number(config.num_attention_heads) + 2.0 * number(config.num_key_value_heads)) * number(config.head_dim);
    const double block = (hidden + 1.0) * (heads + 3.0 * number(config.intermediate_size) + 4.0);
    const double tables = hidden * (2.0 * number(std::max(config.vocab_size, config.padded_vocab_size)) +
                                    number(config.max_position_embeddings));
    const double elements = number(config.num_hidden_layers) * block + tables;
    if (elements < 1e18) return;
    std::ostringstream text;
    text << "config: model: its sizes give " << std::setprecision(2) << elements << " parameters, at most 1e+18 fit";
    throw ConfigError(text.str());
}

void check(const ModelConfig& config) {
    MFSDP_ASSERT(config.vocab_size >= 1 && config.hidden_size >= 1 && config.num_hidden_layers >= 1 &&
                     config.num_attention_heads >= 1 && config.num_key_value_heads >= 1 && config.head_dim >= 1 &&
                     config.intermediate_size >= 1 && config.max_position_embeddings >= 1,
                 "every size of a model is at least 1");
    MFSDP_ASSERT(config.padded_vocab_size == 0 || config.padded_vocab_size >= config.vocab_size,
                 "padding adds rows to the vocabulary");
    MFSDP_ASSERT(config.num_attention_heads % config.num_key_value_heads == 0,
                 "the key/value heads divide the query heads");
    if (config.family == ModelFamily::gpt2) {
        MFSDP_ASSERT(config.num_attention_heads * config.head_dim == config.hidden_size &&
                         config.num_key_value_heads == config.num_attention_heads,
                     "the heads of gpt2 tile the hidden size, and every query head has its own key head");
    } else {
        MFSDP_ASSERT(config.head_dim % 2 == 0, "rotary positions turn pairs of a head");
    }
}

}  // namespace

std::int64_t ParameterSpec::count() const {
    std::int64_t product = 1;
    for (const std::int64_t size : shape) product *= size;
    return product;
}

std::int64_t ModelSpec::parameter_count() const {
    std::int64_t sum = 0;
    for (const ParameterSpec& parameter : parameters) sum += parameter.stored_count();
    return sum;
}

std::int64_t ModelSpec::panels() const {
    return (config.padded_vocab_size + device::kVocabularyPanelRows - 1) / device::kVocabularyPanelRows;
}

std::int64_t ModelSpec::panel_begin(std::int64_t panel) const {
    MFSDP_ASSERT(panel >= 0 && panel < panels(), "a panel lies inside the vocabulary, got " + std::to_string(panel));
    return panel * device::kVocabularyPanelRows;
}

std::int64_t ModelSpec::panel_rows(std::int64_t panel) const {
    return std::min(device::kVocabularyPanelRows, config.padded_vocab_size - panel_begin(panel));
}

ModelSpec describe_model(const ModelConfig& config) {
    check(config);
    check_count(config);
    const bool gpt2 = config.family == ModelFamily::gpt2;
    SpecBuilder builder(config);

    builder.begin_unit("embedding");
    const std::int64_t embedding =
        builder.add_vocabulary(gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight");
    builder.mark_table();
    if (gpt2) builder.add_table("transformer.wpe.weight", config.max_position_embeddings);

    for (std::int64_t index = 0; index < config.num_hidden_layers; ++index) {
        gpt2 ? add_gpt2_block(builder, config, index) : add_llama_block(builder, config, index);
    }

    builder.begin_unit("head");
    builder.add_norm(gpt2 ? "transformer.ln_f" : "model.norm", gpt2);
    if (config.tie_word_embeddings) {
        builder.share(embedding);
    } else {
        builder.add_vocabulary("lm_head.weight");
    }
    builder.mark_table();
    return builder.take();
}

}  // namespace mfsdp::model
