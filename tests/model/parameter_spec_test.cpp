#include "mfsdp/model/parameter_spec.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/device/half.h"
#include "mfsdp/device/memory.h"
#include "mfsdp/model/transformer.h"

#include "support/catch.h"
#include "support/model_cases.h"
#include "support/throws.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace mfsdp;
using model::Initialisation;
using model::ModelConfig;
using model::ModelFamily;
using model::ModelSpec;
using model::ParameterKind;
using model::ParameterSpec;

namespace {

ModelConfig gpt2_small() {
    return {.family = ModelFamily::gpt2,
            .vocab_size = 50257,
            .hidden_size = 768,
            .num_hidden_layers = 12,
            .num_attention_heads = 12,
            .num_key_value_heads = 12,
            .head_dim = 64,
            .intermediate_size = 3072,
            .max_position_embeddings = 1024,
            .tie_word_embeddings = true};
}

const ParameterSpec& find(const ModelSpec& spec, const std::string& name) {
    for (const ParameterSpec& parameter : spec.parameters) {
        if (parameter.name == name) return parameter;
    }
    throw std::logic_error("no parameter " + name);
}

std::vector<float> initial_rows(const ParameterSpec& parameter, std::int64_t row_begin, std::int64_t rows,
                                std::uint64_t seed, device::DType dtype = device::DType::float32) {
    const auto device = device::make_cpu_device({});
    const auto stream = device->make_stream();
    device::MemoryLedger ledger;
    const std::int64_t count = rows * parameter.columns();
    const device::Buffer memory(*device, ledger, device::MemoryCategory::weights, 4 * count);
    const device::Buffer initial(*device, ledger, device::MemoryCategory::weights, 4 * count);
    const device::Tensor out = memory.view(device::DType::float32, {rows, parameter.columns()});
    const device::Tensor typed = initial.view(dtype, {rows, parameter.columns()});
    model::initialise(*stream, parameter, typed, row_begin, seed);
    device::launch(*stream, device::Copy{.out = out, .in = typed});
    std::vector<float> values(static_cast<std::size_t>(count));
    device::launch(*stream, device::CopyToHost{.target = values.data(), .in = out});
    stream->synchronize();
    return values;
}

}  // namespace

TEST_CASE("gpt2 small has 124439808 parameters tied and 50257 x 768 more untied") {
    ModelConfig config = gpt2_small();
    CHECK(model::describe_model(config).parameter_count() == 124439808);
    config.tie_word_embeddings = false;
    CHECK(model::describe_model(config).parameter_count() == 124439808 + 50257 * 768);
}

TEST_CASE("parameter counts follow the formulas of all families") {
    for (const test::ModelCase& description : test::model_cases()) {
        const ModelConfig& c = description.config;
        const bool gpt2 = c.family == ModelFamily::gpt2;
        const std::int64_t hidden = c.hidden_size;
        const std::int64_t query = c.num_attention_heads * c.head_dim;
        const std::int64_t key_value = c.num_key_value_heads * c.head_dim;
        const std::int64_t wide = c.intermediate_size;
        std::int64_t block = hidden * (query + 2 * key_value) + query * hidden + (gpt2 ? 2 : 3) * hidden * wide;
        block += (gpt2 ? 4 : 2) * hidden;
        if (c.attention_bias) block += query + 2 * key_value + hidden;
        if (c.family == ModelFamily::qwen3) block += 2 * c.head_dim;
        if (c.mlp_bias) block += (gpt2 ? 1 : 2) * wide + hidden;
        const std::int64_t tables =
            c.vocab_size * hidden * (c.tie_word_embeddings ? 1 : 2) + (gpt2 ? c.max_position_embeddings * hidden : 0);
        CHECK(model::describe_model(c).parameter_count() ==
              c.num_hidden_layers * block + tables + (gpt2 ? 2 : 1) * hidden);
    }
}

TEST_CASE("names are unique and every parameter belongs to a unit") {
    for (const test::ModelCase& description : test::model_cases()) {
        const ModelSpec spec = model::describe_model(description.config);
        std::set<std::string> names;
        for (const ParameterSpec& parameter : spec.parameters) names.insert(parameter.name);
        CHECK(names.size() == spec.parameters.size());
        std::vector<int> uses(spec.parameters.size(), 0);
        for (const model::UnitSpec& unit : spec.units) {
            for (const std::int64_t parameter : unit.parameters) ++uses.at(static_cast<std::size_t>(parameter));
        }
        CHECK(uses[0] == (description.config.tie_word_embeddings ? 2 : 1));
        for (std::size_t i = 1; i < uses.size(); ++i) CHECK(uses[i] == 1);
        CHECK(spec.blocks() == description.config.num_hidden_layers);
        CHECK(spec.units.front().name == "embedding");
        CHECK(spec.units[1].name == "block 0");
        CHECK(spec.units.back().name == "head");
    }
}

TEST_CASE("a fused gpt2 matrix has the row blocks q, k and v, and residual projections start smaller") {
    const ModelSpec spec = model::describe_model(gpt2_small());
    const ParameterSpec& fused = find(spec, "transformer.h.11.attn.c_attn.weight");
    CHECK(fused.shape == std::vector<std::int64_t>{2304, 768});
    CHECK(fused.kind == ParameterKind::block_matrix);
    CHECK(fused.stored_transposed);
    REQUIRE(fused.row_blocks.size() == 3);
    CHECK(fused.row_blocks[0].name == "q");
    CHECK(fused.row_blocks[1].row_begin == 768);
    CHECK(fused.row_blocks[2].row_begin == 1536);
    CHECK(fused.row_blocks[2].row_count == 768);
    CHECK(fused.standard_deviation == 0.02);
    for (const char* name : {"transformer.h.0.attn.c_proj.weight", "transformer.h.0.mlp.c_proj.weight"}) {
        CHECK(find(spec, name).standard_deviation == Approx(0.02 / std::sqrt(24.0)));
    }
    CHECK(find(spec, "transformer.wte.weight").kind == ParameterKind::vocabulary);
    CHECK(!find(spec, "transformer.wte.weight").stored_transposed);
    CHECK(find(spec, "transformer.wpe.weight").kind == ParameterKind::vocabulary);
    CHECK(find(spec, "transformer.wpe.weight").initialisation == Initialisation::normal);
    CHECK(find(spec, "transformer.h.3.ln_2.weight").initialisation == Initialisation::ones);
    CHECK(find(spec, "transformer.h.3.attn.c_attn.bias").initialisation == Initialisation::zeros);
    CHECK(find(spec, "transformer.h.3.attn.c_attn.bias").kind == ParameterKind::vector);
}

TEST_CASE("a llama block lists separate projections with the biases its configuration asks for") {
    const test::ModelCase description = test::llama_case("", 2, true, false);
    const ModelSpec spec = model::describe_model(description.config);
    CHECK(find(spec, "model.layers.1.self_attn.q_proj.weight").shape == std::vector<std::int64_t>{24, 13});
    CHECK(find(spec, "model.layers.1.self_attn.k_proj.weight").shape == std::vector<std::int64_t>{12, 13});
    CHECK(find(spec, "model.layers.1.self_attn.v_proj.bias").shape == std::vector<std::int64_t>{12});
    CHECK(find(spec, "model.layers.1.self_attn.o_proj.weight").shape == std::vector<std::int64_t>{13, 24});
    CHECK(find(spec, "model.layers.0.mlp.down_proj.bias").shape == std::vector<std::int64_t>{13});
    CHECK(find(spec, "lm_head.weight").shape == std::vector<std::int64_t>{23, 13});
    CHECK(!find(spec, "model.layers.1.self_attn.q_proj.weight").stored_transposed);
    CHECK(find(spec, "model.layers.1.self_attn.q_proj.weight").row_blocks.empty());
}

TEST_CASE("padding rows are in memory, not in files, not counted and start at zero") {
    for (const bool tied : {true, false}) {
        ModelConfig config = test::llama_case("", 2, false, tied).config;
        const std::int64_t parameters = model::describe_model(config).parameter_count();
        const double flops = model::flops_per_token(model::describe_model(config), 8);
        config.padded_vocab_size = 32;
        const ModelSpec spec = model::describe_model(config);
        CHECK(spec.parameter_count() == parameters);
        CHECK(model::flops_per_token(spec, 8) == flops);
        const ParameterSpec& embedding = find(spec, "model.embed_tokens.weight");
        CHECK(embedding.shape == std::vector<std::int64_t>{32, 13});
        CHECK(embedding.stored_rows() == 23);
        CHECK(spec.parameters.back().stored_rows() == (tied ? 1 : 23));  // the last norm, or the head

        const std::vector<float> whole = initial_rows(embedding, 0, 32, 3);
        const std::vector<float> zeros(9 * 13, 0.0F);
        CHECK(std::vector<float>(whole.begin() + 23 * 13, whole.end()) == zeros);
        ParameterSpec plain = embedding;
        plain.shape = {23, 13};
        plain.padding_rows = 0;
        CHECK(initial_rows(plain, 0, 23, 3) == std::vector<float>(whole.begin(), whole.begin() + 23 * 13));
        // Cuts above, across and below the border of the padding.
        CHECK(initial_rows(embedding, 20, 5, 3) ==
              std::vector<float>(whole.begin() + 20 * 13, whole.begin() + 25 * 13));
        CHECK(initial_rows(embedding, 25, 7, 3) == std::vector<float>(7 * 13, 0.0F));
    }
    ModelConfig config = gpt2_small();
    CHECK(model::describe_model(config).config.padded_vocab_size == config.vocab_size);
    CHECK(find(model::describe_model(config), "transformer.wpe.weight").stored_rows() ==
          config.max_position_embeddings);
}

TEST_CASE("panels tile the padded vocabulary, the last one shorter") {
    ModelConfig config = gpt2_small();
    config.padded_vocab_size = 50304;
    const ModelSpec spec = model::describe_model(config);
    REQUIRE(spec.panels() == 13);
    std::int64_t next = 0;
    for (std::int64_t panel = 0; panel < spec.panels(); ++panel) {
        CHECK(spec.panel_begin(panel) == next);
        next += spec.panel_rows(panel);
    }
    CHECK(next == 50304);
    CHECK(spec.panel_rows(0) == 4096);
    CHECK(spec.panel_rows(12) == 50304 - 12 * 4096);
    CHECK_THROWS_AS(spec.panel_begin(13), InternalError);
    for (const model::UnitSpec& unit : spec.units) {
        const bool has_table = &unit == &spec.units.front() || &unit == &spec.units.back();
        REQUIRE((unit.table >= 0) == has_table);
        if (has_table) CHECK(unit.parameters[static_cast<std::size_t>(unit.table)] == 0);  // tied
    }
    CHECK(spec.units.front().has_ordinary_parameters());
    CHECK(!model::describe_model(test::llama_case("", 2, false, false).config).units.front().has_ordinary_parameters());
}

TEST_CASE("a qwen3 block has norms of query and key heads, and heads that need not tile the hidden size") {
    const test::ModelCase description = test::qwen3_case("", false);
    const ModelSpec spec = model::describe_model(description.config);
    CHECK(find(spec, "model.layers.1.self_attn.q_norm.weight").shape == std::vector<std::int64_t>{6});
    CHECK(find(spec, "model.layers.0.self_attn.k_norm.weight").shape == std::vector<std::int64_t>{6});
    CHECK(find(spec, "model.layers.0.self_attn.k_norm.weight").initialisation == Initialisation::ones);
    CHECK(find(spec, "model.layers.0.self_attn.k_norm.weight").kind == ParameterKind::vector);
    CHECK(find(spec, "model.layers.1.self_attn.q_proj.weight").shape == std::vector<std::int64_t>{24, 13});
    const auto has_norm = [](const ParameterSpec& p) { return p.name.find("q_norm") != std::string::npos; };
    const ModelSpec llama = model::describe_model(test::llama_case("", 2, false, false).config);
    CHECK(std::none_of(llama.parameters.begin(), llama.parameters.end(), has_norm));
}

TEST_CASE("sizes that do not fit together are refused") {
    ModelConfig config = gpt2_small();
    config.head_dim = 32;
    CHECK_THROWS_AS(model::describe_model(config), InternalError);
    config = test::llama_case("", 3, false, false).config;
    CHECK_THROWS_AS(model::describe_model(config), InternalError);
    config = test::llama_case("", 2, false, false).config;
    config.head_dim = 5;
    CHECK_THROWS_AS(model::describe_model(config), InternalError);
    config = gpt2_small();
    config.intermediate_size = 2147483647;
    CHECK(model::describe_model(config).parameter_count() ==
          12 * (2147483647LL * (2 * 768 + 1) + 4 * 768 * 768 + 9 * 768) + (50257 + 1024 + 2) * 768);
    config = test::llama_case("", 2, false, false).config;
    config.hidden_size = config.intermediate_size = config.vocab_size = 2147483647;
    config.head_dim = config.num_attention_heads = config.num_key_value_heads = 2147483646;
    CHECK(test::message_of<ConfigError>([&] { static_cast<void>(model::describe_model(config)); }) ==
          "config: model: its sizes give 7.9e+28 parameters, at most 1e+18 fit");
    config = gpt2_small();
    config.padded_vocab_size = config.vocab_size - 1;
    CHECK_THROWS_AS(model::describe_model(config), InternalError);
}

TEST_CASE("FLOPs per token are 6 per multiplied parameter and 12 L H D T for attention") {
    ModelConfig config = gpt2_small();
    CHECK(model::flops_per_token(model::describe_model(config), 1024) == 6.0 * 124439808 + 12.0 * 12 * 768 * 1024);
    config.tie_word_embeddings = false;
    CHECK(model::flops_per_token(model::describe_model(config), 256) == 6.0 * 124439808 + 12.0 * 12 * 768 * 256);
}

TEST_CASE("initial values depend on seed, name and element, not on how a parameter is cut") {
    const ModelSpec spec = model::describe_model(test::gpt2_case("", true).config);
    const ParameterSpec& fused = find(spec, "transformer.h.0.attn.c_attn.weight");
    const std::vector<float> whole = initial_rows(fused, 0, fused.rows(), 3);
    const std::vector<float> rows = initial_rows(fused, 17, 5, 3);
    CHECK(rows == std::vector<float>(whole.begin() + 17 * 15, whole.begin() + 22 * 15));
    CHECK(initial_rows(fused, 0, fused.rows(), 4) != whole);
    const ParameterSpec& next = find(spec, "transformer.h.1.attn.c_attn.weight");
    CHECK(initial_rows(next, 0, next.rows(), 3) != whole);

    const ParameterSpec& norm = find(spec, "transformer.ln_f.weight");
    CHECK(initial_rows(norm, 0, 1, 3) == std::vector<float>(15, 1.0F));
    const ParameterSpec& bias = find(spec, "transformer.ln_f.bias");
    CHECK(initial_rows(bias, 0, 1, 3) == std::vector<float>(15, 0.0F));
    CHECK_THROWS_AS(initial_rows(fused, 44, 2, 3), InternalError);

    std::vector<float> rounded = whole;
    for (float& value : rounded) value = device::widened(device::rounded<device::BFloat16>(value));
    CHECK(rounded != whole);
    CHECK(initial_rows(fused, 0, fused.rows(), 3, device::DType::bfloat16) == rounded);
}

TEST_CASE("normal initial values have mean 0 and the deviation asked for") {
    ParameterSpec parameter;
    parameter.name = "w";
    parameter.shape = {1000, 100};
    parameter.initialisation = Initialisation::normal;
    parameter.standard_deviation = 0.02;
    double sum = 0.0;
    double square = 0.0;
    for (const float value : initial_rows(parameter, 0, 1000, 1)) {
        sum += value;
        square += static_cast<double>(value) * value;
    }
    // Five standard errors of a sample of 100000.
    CHECK(std::abs(sum / 1e5) < 5 * 0.02 / std::sqrt(1e5));
    CHECK(std::abs(std::sqrt(square / 1e5) / 0.02 - 1.0) < 5 / std::sqrt(2e5));
}
