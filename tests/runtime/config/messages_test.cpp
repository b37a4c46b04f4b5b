#include "runtime/config/config_files.h"

#include <string>
#include <vector>

using config_test::error_of;
using config_test::kGpt2;
using config_test::kLlama;

namespace {

struct MessageCase {
    const std::string* file;
    std::vector<std::string> overrides;
    std::string expected;  // the whole message; lines in the order of the report
};

void check_cases(const std::vector<MessageCase>& cases) {
    REQUIRE(!cases.empty());
    for (const auto& [file, overrides, expected] : cases) {
        REQUIRE(!overrides.empty());
        INFO(overrides.front());
        CHECK(error_of(*file, overrides) == expected);
    }
}

}  // namespace

TEST_CASE("a valid configuration has no error") {
    CHECK(error_of(kGpt2) == "");
    CHECK(error_of(kLlama) == "");
}

TEST_CASE("an unknown key is answered with the nearest known key or with all of them") {
    check_cases({
        {&kGpt2,
         {"optimizer.matrix.momentun=0.9"},
         "config: optimizer.matrix.momentun: unknown key, did you mean \"momentum\"?"},
        {&kGpt2, {"optimiser.lr=1"}, "config: optimiser: unknown key, did you mean \"optimizer\"?"},
        {&kGpt2, {"telemetry.run_dri=x"}, "config: telemetry.run_dri: unknown key, did you mean \"run_dir\"?"},
        {&kGpt2, {"recompute.zzzzzz=1"}, "config: recompute.zzzzzz: unknown key, known are mode, every"},
        {&kLlama,
         {"parallel.mesh.replicas=1"},
         "config: parallel.mesh.replicas: unknown key, did you mean \"replicate\"?"},
    });
}

TEST_CASE("a key of another optimizer or model family is named as such") {
    check_cases({
        {&kGpt2,
         {"optimizer.matrix.shampoo_beta=0.9"},
         "config: optimizer.matrix.shampoo_beta: not a key of muon (soap has it)"},
        {&kGpt2,
         {"optimizer.matrix.grafting=adam"},
         "config: optimizer.matrix.grafting: not a key of muon (shampoo has it)"},
        {&kGpt2,
         {"optimizer.matrix.betas=[0.9,0.9]"},
         "config: optimizer.matrix.betas: not a key of muon (shampoo, soap have it)"},
        {&kGpt2,
         {"optimizer.matrix={\"name\": \"none\", \"momentum\": 0.9}"},
         "config: optimizer.matrix.momentum: not a key of none (muon has it)"},
        {&kGpt2,
         {"optimizer.matrix={\"name\": \"soap\", \"grafting\": \"adam\"}"},
         "config: optimizer.matrix.grafting: not a key of soap (shampoo has it)"},
        {&kGpt2,
         {"optimizer.matrix={\"name\": \"shampoo\", \"epsilon_mode\": \"corrected\"}"},
         "config: optimizer.matrix.epsilon_mode = corrected: must be one of relative, absolute"},
        {&kGpt2,
         {"optimizer.matrix.normuon_beta2=0.9"},
         "config: optimizer.matrix.normuon_beta2: not used by normuon false"},
        {&kGpt2, {"optimizer.qk_clip_alpha=0.3"}, "config: optimizer.qk_clip_alpha: not used by qk_clip_threshold 0"},
        {&kGpt2,
         {"optimizer.qk_clip_alpha=0.3", "optimizer.qk_clip_threshold=-1"},
         "config: optimizer.qk_clip_threshold = -1: must be >= 0"},
        {&kLlama, {"model.n_embd=64"}, "config: model.n_embd: not a key of llama"},
        {&kGpt2, {"model.mlp_bias=true"}, "config: model.mlp_bias: not a key of gpt2"},
    });
}

TEST_CASE("a value of the wrong type is quoted as it was written") {
    check_cases({
        {&kGpt2, {"train.steps=1e6"}, "config: train.steps = 1e6: expected integer, got number"},
        {&kGpt2, {"train.steps=100.0"}, "config: train.steps = 100.0: expected integer, got number"},
        {&kGpt2, {"train.steps=many"}, "config: train.steps = many: expected integer, got string"},
        {&kGpt2, {"train.steps=null"}, "config: train.steps = null: expected integer, got null"},
        {&kGpt2, {"train.seed=[1, 2]"}, "config: train.seed = [1,2]: expected integer, got list"},
        {&kGpt2, {"optimizer.lr=true"}, "config: optimizer.lr = true: expected number, got boolean"},
        {&kGpt2, {"optimizer.lr=NaN"}, "config: optimizer.lr = NaN: expected number, got string"},
        {&kGpt2,
         {"optimizer.matrix.nesterov=1"},
         "config: optimizer.matrix.nesterov = 1: expected boolean, got integer"},
        {&kGpt2, {"data.train=a.bin"}, "config: data.train = a.bin: expected list of strings, got string"},
        {&kGpt2, {"data.train=[\"a\", 5]"}, "config: data.train[1] = 5: expected string, got integer"},
        {&kGpt2,
         {"optimizer.element.betas=0.9"},
         "config: optimizer.element.betas = 0.9: expected list of numbers, got number"},
        {&kGpt2,
         {"optimizer.element.betas=[0.9, null]"},
         "config: optimizer.element.betas[1] = null: expected number, got null"},
        {&kGpt2, {"device={}"}, "config: device = {}: expected string, got object"},
        {&kGpt2, {"telemetry.run_dir=7"}, "config: telemetry.run_dir = 7: expected string, got integer"},
        {&kGpt2, {"parallel=ddp"}, "config: parallel = ddp: expected object, got string"},
        {&kGpt2, {"parallel.mesh=[1, 4]"}, "config: parallel.mesh = [1,4]: expected object, got list"},
        {&kGpt2, {"$schema=5"}, "config: $schema = 5: expected string, got integer"},
    });
}

TEST_CASE("a value outside of its range is told the allowed one") {
    check_cases({
        {&kGpt2, {"optimizer.clip_grad=-1"}, "config: optimizer.clip_grad = -1: must be >= 0"},
        {&kGpt2, {"optimizer.lr=0"}, "config: optimizer.lr = 0: must be > 0"},
        {&kGpt2, {"optimizer.lr=1e-400"}, "config: optimizer.lr = 1e-400: must be > 0"},
        {&kGpt2,
         {"optimizer.element.eps=1e-320"},
         "config: optimizer.element.eps = 1e-320: must be representable in float32"},
        {&kGpt2, {"optimizer.lr=1e39"}, "config: optimizer.lr = 1e39: must be representable in float32"},
        {&kGpt2, {"train.steps=0"}, "config: train.steps = 0: must be >= 1"},
        {&kGpt2, {"train.seed=-5"}, "config: train.seed = -5: must be >= 0"},
        {&kGpt2,
         {"train.seed=9223372036854775808"},
         "config: train.seed = 9223372036854775808: must be <= 9223372036854775807"},
        {&kGpt2, {"train.seed=-99999999999999999999"}, "config: train.seed = -99999999999999999999: must be >= 0"},
        {&kGpt2,
         {"model.n_layer=9223372036854775807"},
         "config: model.n_layer = 9223372036854775807: must be <= 65536"},
        {&kGpt2, {"model.vocab_size=1"}, "config: model.vocab_size = 1: must be >= 2"},
        {&kLlama, {"model.head_dim=15"}, "config: model.head_dim = 15: must be >= 2, even"},
        {&kGpt2, {"optimizer.matrix.momentum=1"}, "config: optimizer.matrix.momentum = 1: must be in [0, 1)"},
        {&kGpt2, {"optimizer.matrix.num_ns_steps=21"}, "config: optimizer.matrix.num_ns_steps = 21: must be in 1..20"},
        {&kGpt2, {"optimizer.element.betas=[0.9]"}, "config: optimizer.element.betas = [0.9]: must be two in [0, 1)"},
        {&kGpt2, {"optimizer.element.betas=[0.9, 1]"}, "config: optimizer.element.betas[1] = 1: must be two in [0, 1)"},
        {&kGpt2,
         {"parallel.collectives.chunk_bytes=1032"},
         "config: parallel.collectives.chunk_bytes = 1032: must be >= 1024, multiple of 16"},
        {&kGpt2,
         {"parallel.collectives.chunk_bytes=512"},
         "config: parallel.collectives.chunk_bytes = 512: must be >= 1024, multiple of 16"},
        {&kGpt2,
         {"optimizer.decay_style=exponential"},
         "config: optimizer.decay_style = exponential: must be one of constant, linear, cosine, wsd"},
        {&kGpt2,
         {"model.activation_function=relu"},
         "config: model.activation_function = relu: must be one of gelu_new"},
        {&kGpt2, {"data.train=[]"}, "config: data.train = []: must be a list of at least one pattern"},
        {&kGpt2, {"data.train=[\"\"]"}, "config: data.train[0] = : must be a pattern"},
        {&kGpt2, {"telemetry.run_dir="}, "config: telemetry.run_dir = : must be a path"},
        {&kGpt2,
         {"model.hf_config=/no/such/file"},
         "config: model.hf_config = /no/such/file: must be an existing file"},
    });
}

TEST_CASE("a missing key is required") {
    check_cases({
        {&kGpt2,
         {"train={\"seq_len\": 32, \"micro_batch_size\": 2, \"global_batch_size\": 8}"},
         "config: train.steps: required"},
        {&kGpt2, {"optimizer={\"matrix\": {\"name\": \"none\"}}"}, "config: optimizer.lr: required"},
        {&kGpt2, {"data={}"}, "config: data.train: required"},
        {&kLlama,
         {"model={\"model_type\": \"llama\", \"vocab_size\": 300}"},
         "config: model.hidden_size: required\nconfig: model.num_hidden_layers: required\n"
         "config: model.num_attention_heads: required\nconfig: model.intermediate_size: required\n"
         "config: model.max_position_embeddings: required"},
        {&kGpt2, {"model={\"vocab_size\": 300}"}, "config: model.model_type: required"},
    });
}

TEST_CASE("features that this version lacks accept only their off value") {
    check_cases({
        {&kGpt2, {"checkpoint.async=true"}, "config: checkpoint.async: not supported by this version"},
        {&kGpt2, {"checkpoint.interval=500"}, "config: checkpoint.interval: not supported by this version"},
        {&kGpt2, {"checkpoint.keep_latest_k=3"}, "config: checkpoint.keep_latest_k: not supported by this version"},
        {&kGpt2, {"checkpoint.resume=runs/a"}, "config: checkpoint.resume: not supported by this version"},
        {&kGpt2, {"telemetry.tensorboard=true"}, "config: telemetry.tensorboard: not supported by this version"},
        {&kGpt2, {"parallel.mesh.replicate=2"}, "config: parallel.mesh.replicate: not supported by this version"},
        {&kGpt2, {"telemetry.trace=[1, 2]"}, "config: telemetry.trace: not supported by this version"},
        {&kGpt2, {"data.on_change=restart"}, "config: data.on_change: not supported by this version"},
        {&kGpt2,
         {"parallel.strategy=fsdp_gather", "parallel.matrix_step=redundant"},
         "config: parallel.strategy = fsdp_gather: not supported by this version"},
        {&kGpt2,
         {"parallel.collectives.gather=hierarchical"},
         "config: parallel.collectives.gather = hierarchical: not supported by this version"},
        {&kGpt2, {"model.attn_pdrop=0.1"}, "config: model.attn_pdrop = 0.1: not supported by mfsdp"},
        {&kLlama,
         {"model.rope_scaling={\"type\": \"yarn\"}"},
         "config: model.rope_scaling = {\"type\":\"yarn\"}: not supported by mfsdp"},
    });
    CHECK(
        error_of(kGpt2, {"checkpoint.async=false", "checkpoint.interval=0", "checkpoint.resume=auto",
                         "train.z_loss=0.0", "telemetry.trace=null", "model.attn_pdrop=0.0", "model.rope_scaling=null",
                         "model.sliding_window=null", "model.use_sliding_window=false", "recompute.mode=none"}) == "");
}

TEST_CASE("keys that contradict each other give the message of the pair") {
    check_cases({
        {&kGpt2,
         {"train.global_batch_size=501"},
         "config: train.global_batch_size = 501: must be a multiple of micro_batch_size = 2 (next: 502)"},
        {&kLlama,
         {"model.hidden_size=4000", "model.num_attention_heads=32", "model.num_key_value_heads=4"},
         "config: model.hidden_size = 4000: with num_attention_heads = 32 head_dim would be 125, must be even"},
        {&kLlama,
         {"model.hidden_size=4001", "model.num_attention_heads=32"},
         "config: model.hidden_size = 4001: must be a multiple of num_attention_heads = 32, or set head_dim"},
        {&kGpt2,
         {"optimizer.matrix={\"name\": \"shampoo\", \"betas\": [1, 0.9]}"},
         "config: optimizer.matrix.betas = [1,0.9]: must be two in [0, 1), the second may be 1"},
        {&kGpt2,
         {"optimizer.matrix={\"name\": \"shampoo\", \"betas\": [0.9, 1]}"},
         "config: optimizer.matrix.grafting = adam: averages squares with betas[1], which must be < 1; sums go with "
         "adagrad, sgd or none"},
        {&kGpt2,
         {"optimizer.matrix={\"name\": \"shampoo\", \"inverse_exponent\": 0.3}"},
         "config: optimizer.matrix.inverse_exponent = 0.3: must be one of 0.125, 0.25, 0.5"},
        {&kGpt2,
         {"optimizer.matrix={\"name\": \"soap\", \"max_preconditioner_dim\": 40000}"},
         "config: optimizer.matrix.max_preconditioner_dim = 40000: must be <= 32000"},
        {&kGpt2,
         {"optimizer.matrix.split_heads=true", "optimizer.matrix.split_qkv=false"},
         "config: optimizer.matrix.split_heads = true: needs split_qkv = true"},
        {&kGpt2,
         {"optimizer.matrix.ns_method=gram"},
         "config: optimizer.matrix.ns_method = gram: needs ns_dtype = float16"},
        {&kGpt2,
         {"optimizer.matrix.ns_method=gram", "optimizer.matrix.ns_dtype=half"},
         "config: optimizer.matrix.ns_dtype = half: must be one of bfloat16, float16, float32"},
        {&kGpt2, {"model.n_head=5"}, "config: model.n_embd = 64: must be a multiple of n_head = 5"},
        {&kLlama,
         {"model.num_attention_heads=32", "model.num_key_value_heads=6"},
         "config: model.num_key_value_heads = 6: must divide num_attention_heads = 32"},
        {&kGpt2, {"train.eval_interval=500"}, "config: train.eval_interval = 500: needs data.valid"},
        {&kLlama, {"train.seq_len=8192"}, "config: train.seq_len = 8192: the model has max_position_embeddings = 128"},
        {&kGpt2, {"train.seq_len=129"}, "config: train.seq_len = 129: the model has n_positions = 128"},
        {&kGpt2, {"optimizer.min_lr=1e-3"}, "config: optimizer.min_lr = 1e-3: must be <= lr = 3e-4"},
        {&kGpt2,
         {"optimizer.warmup_steps=60", "optimizer.decay_steps=60"},
         "config: optimizer.warmup_steps + decay_steps = 120: must be <= train.steps = 100"},
        {&kGpt2,
         {"optimizer.warmup_steps=90", "optimizer.decay_style=wsd"},
         "config: optimizer.warmup_steps + decay_steps = 110: must be <= train.steps = 100"},
        {&kGpt2, {"optimizer.warmup_steps=101"}, "config: optimizer.warmup_steps = 101: must be <= train.steps = 100"},
        {&kGpt2,
         {"parallel.planner.policy=bytes", "parallel.planner.weights={\"bytes\": 1, \"flops\": 2}"},
         "config: parallel.planner.weights: not used by policy bytes"},
        {&kGpt2,
         {"parallel.strategy=ddp", "parallel.planner.weights.bytes=1"},
         "config: parallel.planner.weights: not used by strategy ddp"},
        {&kGpt2,
         {"parallel.strategy=ddp", "parallel.prefetch_units=1"},
         "config: parallel.prefetch_units: not used by strategy ddp"},
        {&kGpt2,
         {"parallel.strategy=zero1_owner", "parallel.reshard_after_forward=false"},
         "config: parallel.reshard_after_forward: not used by strategy zero1_owner"},
        {&kGpt2,
         {"parallel.matrix_step=distributed"},
         "config: parallel.matrix_step: not used by strategy matrix_fsdp"},
        {&kGpt2, {"device=cpu", "parallel.transport=nccl"}, "config: parallel.transport = nccl: needs device = cuda"},
        {&kGpt2,
         {"data.format=bytes", "model.vocab_size=256"},
         "config: model.vocab_size = 256: the byte tokenizer needs >= 257"},
        {&kGpt2,
         {"train.steps=9007199254740992", "train.global_batch_size=16777216"},
         "config: train.steps x global_batch_size x seq_len: more tokens than 64 bits count, must be < 2^63"},
    });
}

TEST_CASE("all errors are reported at once") {
    CHECK(error_of(kGpt2, {"train.steps=0", "optimizer.clip_grad=-1", "data.trian=[]", "train.global_batch_size=7",
                           "precision.param_dtype=float16"}) ==
          "config: data.trian: unknown key, did you mean \"train\"?\n"
          "config: train.steps = 0: must be >= 1\n"
          "config: optimizer.clip_grad = -1: must be >= 0\n"
          "config: precision.param_dtype = float16: must be one of bfloat16, float32\n"
          "config: train.global_batch_size = 7: must be a multiple of micro_batch_size = 2 (next: 8)");
}

TEST_CASE("an override without key or value form is refused") {
    for (const std::string bad : {"optimizer.lr", "=3", ".lr=3", "optimizer.=3", "a..b=3"}) {
        CHECK(error_of(kGpt2, {bad}) == "config: --set " + bad + ": expected section.key=value");
    }
}

TEST_CASE("a mesh that does not fit the number of ranks is refused") {
    using mfsdp::runtime::resolve_shard_size;
    CHECK(resolve_shard_size({}, 7) == 7);
    CHECK(resolve_shard_size({.replicate = 2, .shard = 3}, 6) == 3);
    CHECK(resolve_shard_size({.replicate = 2, .shard = {}}, 8) == 4);
    CHECK_THROWS_WITH(resolve_shard_size({.replicate = 1, .shard = 64}, 8),
                      "config: parallel.mesh: 1 x 64 needs 64 ranks, started with 8");
    CHECK_THROWS_WITH(resolve_shard_size({.replicate = 2, .shard = {}}, 7),
                      "config: parallel.mesh.replicate = 2: must divide the number of ranks, started with 7");
}
