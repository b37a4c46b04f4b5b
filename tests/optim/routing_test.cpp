#include "mfsdp/optim/routing.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"

#include <algorithm>
#include <iterator>
#include <sstream>

using namespace mfsdp;
using namespace mfsdp::optim;
using model::ParameterKind;

namespace {

model::ModelSpec example() {
    model::ModelSpec spec;
    const auto add = [&](std::string parameter, std::vector<std::int64_t> shape, ParameterKind kind) {
        model::ParameterSpec& added = spec.parameters.emplace_back();
        added.name = std::move(parameter);
        added.shape = std::move(shape);
        added.kind = kind;
    };
    add("embed.weight", {50, 8}, ParameterKind::vocabulary);
    add("layers.0.norm.weight", {8}, ParameterKind::vector);
    add("layers.0.q.weight", {8, 8}, ParameterKind::block_matrix);
    add("layers.0.up.weight", {32, 8}, ParameterKind::block_matrix);
    add("layers.0.gate.weight", {1, 8}, ParameterKind::block_matrix);
    add("layers.1.up.weight", {32, 8}, ParameterKind::block_matrix);
    add("layers.1.thin.weight", {8, 1}, ParameterKind::block_matrix);
    add("scale", {}, ParameterKind::vector);
    add("positions.weight", {1, 8}, ParameterKind::vocabulary);
    add("head.weight", {50, 8}, ParameterKind::vocabulary);
    return spec;
}

std::string roles_of(const RoutingOptions& options) {
    std::string text;
    for (const Role role : route(example(), options)) text += name(role).front();
    return text;
}

}  // namespace

// One letter for each parameter of the example: m matrix, r rows, t tail.

TEST_CASE("Block matrices go to the matrix optimizer, vocabulary to rows and the rest to the tail", "[optim]") {
    CHECK(roles_of({}) == "rtmmtmtttr");
}

TEST_CASE("Excluded matrices and those of a run without matrix optimizer are stepped by rows", "[optim]") {
    CHECK(roles_of({.exclude = {"layers.1.*"}}) == "rtmmtrtttr");
    CHECK(roles_of({.exclude = {"*.up.weight"}}) == "rtmrtrtttr");
    CHECK(roles_of({.exclude = {"layers.[1-9].up.weight", "*.q.weight"}}) == "rtrmtrtttr");
    CHECK(roles_of({.use_matrix_optimizer = false}) == "rtrrtrtttr");
}

TEST_CASE("Routing looks at shape and name alone, never at the order of parameters", "[optim]") {
    model::ModelSpec spec = example();
    std::reverse(spec.parameters.begin(), spec.parameters.end());
    std::vector<Role> roles = route(spec, {});
    std::reverse(roles.begin(), roles.end());
    CHECK(roles == route(example(), {}));
}

TEST_CASE("All projections of the blocks of a described model, and nothing else, go to the matrix optimizer",
          "[optim]") {
    model::ModelConfig config{.family = model::ModelFamily::llama,
                              .vocab_size = 32,
                              .hidden_size = 16,
                              .num_hidden_layers = 3,
                              .num_attention_heads = 4,
                              .num_key_value_heads = 2,
                              .head_dim = 4,
                              .intermediate_size = 24,
                              .max_position_embeddings = 8};
    const auto count = [&](Role role) {
        const std::vector<Role> roles = route(model::describe_model(config), {});
        return std::count(roles.begin(), roles.end(), role);
    };
    CHECK(count(Role::matrix) == 3 * 7);    // q, k, v, o, gate, up, down
    CHECK(count(Role::rows) == 2);          // embedding, head
    CHECK(count(Role::tail) == 3 * 2 + 1);  // norms
    config.tie_word_embeddings = true;
    CHECK(count(Role::rows) == 1);
    config.family = model::ModelFamily::gpt2;
    config.num_key_value_heads = 4;
    CHECK(count(Role::matrix) == 3 * 4);          // c_attn, attn.c_proj, c_fc, mlp.c_proj
    CHECK(count(Role::rows) == 2);                // tokens, positions
    CHECK(count(Role::tail) == 3 * (4 + 4) + 2);  // biases, norms
}

TEST_CASE("Routing refuses a pattern that matches no matrix and a matrix optimizer without matrices", "[optim]") {
    CHECK_THROWS_AS(route(example(), {.exclude = {"layers.7.*"}}), ConfigError);
    try {
        (void)route(example(), {.exclude = {"embed.weight"}});
        FAIL("a pattern for the embedding is refused: it is no matrix of a block");
    } catch (const ConfigError& error) {
        CHECK(std::string(error.what()).find("optimizer.matrix.exclude") != std::string::npos);
        CHECK(std::string(error.what()).find("\"embed.weight\"") != std::string::npos);
    }
    CHECK_THROWS_AS(route(example(), {.exclude = {"*"}}), ConfigError);
    CHECK_NOTHROW(route(example(), {.use_matrix_optimizer = false, .exclude = {"*"}}));
    model::ModelSpec small;
    small.parameters.emplace_back().shape = {4};
    CHECK_THROWS_AS(route(small, {}), ConfigError);
    CHECK_NOTHROW(route(small, {.use_matrix_optimizer = false}));
}

TEST_CASE("The routing table counts tensors and elements of every role", "[optim]") {
    const std::string table = routing_table(example(), route(example(), {}), "muon");
    const auto words = [](const std::string& text) {
        std::istringstream in(text);
        return std::vector<std::string>(std::istream_iterator<std::string>(in), {});
    };
    CHECK(words(table) == std::vector<std::string>{"optimizer", "role", "tensors", "elements",  //
                                                   "muon", "matrix", "3", "576",                // 64 + 256 + 256
                                                   "adamw", "rows", "2", "800",                 // 400 + 400
                                                   "adamw", "tail", "5", "33"});                // 8 + 8 + 8 + 1 + 8
    CHECK_THROWS_AS(routing_table(example(), {}, "muon"), InternalError);
}
