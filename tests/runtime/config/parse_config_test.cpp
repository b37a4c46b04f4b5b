#include "mfsdp/runtime/config/parse_config.h"

#include "runtime/config/config_files.h"

#include <algorithm>

#include <nlohmann/json.hpp>

using config_test::error_of;
using config_test::kGpt2;
using config_test::kLlama;
using config_test::parse;
using config_test::TemporaryFile;
using nlohmann::json;
using namespace mfsdp::runtime;
namespace optim = mfsdp::optim;

TEST_CASE("values, defaults and derived nulls of a gpt2 configuration arrive in the structs") {
    const TrainConfig config = parse(kGpt2);
    CHECK(config.model.family == mfsdp::model::ModelFamily::gpt2);
    CHECK(config.model.vocab_size == 300);
    CHECK(config.model.hidden_size == 64);
    CHECK(config.model.head_dim == 16);
    CHECK(config.model.num_key_value_heads == 4);
    CHECK(config.model.intermediate_size == 256);
    CHECK(config.model.max_position_embeddings == 128);
    CHECK(config.model.norm_epsilon == 1e-5);
    CHECK(config.model.attention_bias);
    CHECK(config.model.tie_word_embeddings);
    CHECK(config.data.train == std::vector<std::string>{"data/*.bin"});
    CHECK(config.train.steps == 100);
    CHECK(config.train.nonfinite == NonfinitePolicy::skip);
    CHECK(config.optimizer.decay_steps == 100);
    CHECK(config.optimizer.matrix.lr == 3e-4);
    CHECK(config.optimizer.element.lr == 3e-4);
    CHECK(config.optimizer.element.weight_decay == 0.1);
    CHECK(config.optimizer.element.beta2 == 0.95);
    CHECK(config.parallel.strategy == Strategy::matrix_fsdp);
    CHECK(!config.parallel.mesh.shard);
    CHECK(!config.parallel.prefetch_bytes);
    CHECK(config.precision.grad_dtype == NumberType::float32);
    CHECK(config.checkpoint.export_at_end);
    CHECK(config.telemetry.run_dir == "runs/run");
    CHECK(config.device == DeviceChoice::automatic);
    CHECK(!config.threads);
    CHECK(config.notices.empty());
}

TEST_CASE("every key of a llama configuration can be set") {
    const TrainConfig config = parse(kLlama, {"model.num_key_value_heads=2",
                                              "model.head_dim=32",
                                              "model.rms_norm_eps=1e-5",
                                              "model.rope_theta=5e5",
                                              "model.attention_bias=true",
                                              "model.mlp_bias=true",
                                              "model.tie_word_embeddings=true",
                                              "model.initializer_range=0.01",
                                              "data.format=bytes",
                                              "data.shuffle=false",
                                              "data.seed=9223372036854775807",
                                              "data.mask_alignment=token",
                                              "train.seed=7",
                                              "optimizer.min_lr=1e-4",
                                              "optimizer.warmup_steps=10",
                                              "optimizer.decay_steps=20",
                                              "optimizer.decay_style=wsd",
                                              "optimizer.weight_decay=0.2",
                                              "optimizer.clip_grad=0",
                                              "optimizer.qk_clip_threshold=50",
                                              "optimizer.qk_clip_alpha=0.3",
                                              "optimizer.matrix.lr=0.02",
                                              "optimizer.matrix.weight_decay=0",
                                              "optimizer.matrix.exclude=[\"*.mlp.*\"]",
                                              "optimizer.matrix.split_qkv=false",
                                              "optimizer.matrix.momentum=0.9",
                                              "optimizer.matrix.momentum_form=heavy_ball",
                                              "optimizer.matrix.nesterov=false",
                                              "optimizer.matrix.num_ns_steps=10",
                                              "optimizer.matrix.coefficient_type=dsv4",
                                              "optimizer.matrix.scale_mode=spectral",
                                              "optimizer.matrix.extra_scale_factor=2",
                                              "optimizer.matrix.ns_dtype=float16",
                                              "optimizer.matrix.ns_method=gram",
                                              "optimizer.matrix.cautious_weight_decay=true",
                                              "optimizer.matrix.normuon=true",
                                              "optimizer.matrix.normuon_beta2=0.9",
                                              "optimizer.matrix.normuon_epsilon=1e-6",
                                              "optimizer.element.lr=1e-3",
                                              "optimizer.element.weight_decay=0.05",
                                              "optimizer.element.betas=[0.8, 0.99]",
                                              "optimizer.element.eps=1e-6",
                                              "optimizer.element.decay_vectors=true"});
    CHECK(config.model.family == mfsdp::model::ModelFamily::llama);
    CHECK(config.model.num_key_value_heads == 2);
    CHECK(config.model.head_dim == 32);
    CHECK(config.model.norm_epsilon == 1e-5);
    CHECK(config.model.rope_theta == 500000.0);
    CHECK((config.model.attention_bias && config.model.mlp_bias && config.model.tie_word_embeddings));
    CHECK(config.model.initializer_range == 0.01);
    CHECK(config.data.format == DataFormat::bytes);
    CHECK(!config.data.shuffle);
    CHECK(config.data.seed == 9223372036854775807);
    CHECK(config.data.mask_alignment == MaskAlignment::token);
    CHECK(config.train.seed == 7);
    const OptimizerConfig& optimizer = config.optimizer;
    CHECK(optimizer.min_lr == 1e-4);
    CHECK(optimizer.warmup_steps == 10);
    CHECK(optimizer.decay_steps == 20);
    CHECK(optimizer.decay_style == DecayStyle::wsd);
    CHECK(optimizer.weight_decay == 0.2);
    CHECK(optimizer.clip_grad == 0.0);
    CHECK(optimizer.qk_clip.threshold == 50.0);
    CHECK(optimizer.qk_clip.alpha == 0.3);
    CHECK(optimizer.matrix.lr == 0.02);
    CHECK(optimizer.matrix.weight_decay == 0.0);
    CHECK(optimizer.matrix.exclude == std::vector<std::string>{"*.mlp.*"});
    CHECK(!optimizer.matrix.split_qkv);
    CHECK(optimizer.matrix.muon.momentum == 0.9);
    CHECK(optimizer.matrix.muon.momentum_form == optim::MomentumForm::heavy_ball);
    CHECK(!optimizer.matrix.muon.nesterov);
    CHECK(optimizer.matrix.muon.num_ns_steps == 10);
    CHECK(optimizer.matrix.muon.coefficient_type == optim::CoefficientType::dsv4);
    CHECK(optimizer.matrix.muon.scale_mode == optim::ScaleMode::spectral);
    CHECK(optimizer.matrix.muon.extra_scale_factor == 2.0);
    CHECK(optimizer.matrix.muon.ns_dtype == mfsdp::device::DType::float16);
    CHECK(optimizer.matrix.muon.ns_method == optim::NewtonSchulzMethod::gram);
    CHECK(optimizer.matrix.muon.cautious_weight_decay);
    CHECK(optimizer.matrix.muon.normuon);
    CHECK(optimizer.matrix.muon.normuon_beta2 == 0.9);
    CHECK(optimizer.matrix.muon.normuon_epsilon == 1e-6);
    CHECK(optimizer.element.lr == 1e-3);
    CHECK(optimizer.element.weight_decay == 0.05);
    CHECK(optimizer.element.beta1 == 0.8);
    CHECK(optimizer.element.beta2 == 0.99);
    CHECK(optimizer.element.eps == 1e-6);
    CHECK(optimizer.element.decay_vectors);
}

TEST_CASE("Newton-Schulz iterates are bfloat16 unless a type is chosen, and the method is chosen by shape") {
    using optim::NewtonSchulzMethod;
    const auto muon = [](const std::vector<std::string>& overrides) {
        return parse(kGpt2, overrides).optimizer.matrix.muon;
    };
    CHECK(muon({}).ns_dtype == mfsdp::device::DType::bfloat16);
    CHECK(muon({}).ns_method == NewtonSchulzMethod::automatic);
    CHECK(muon({"optimizer.matrix.ns_dtype=float32"}).ns_dtype == mfsdp::device::DType::float32);
    CHECK(muon({"optimizer.matrix.ns_dtype=bfloat16"}).ns_dtype == mfsdp::device::DType::bfloat16);
    CHECK(muon({"optimizer.matrix.ns_method=standard"}).ns_method == NewtonSchulzMethod::standard);
    CHECK(muon({"optimizer.matrix.ns_method=auto"}).ns_method == NewtonSchulzMethod::automatic);
}

TEST_CASE("every key of shampoo can be set, and its defaults are those of the page") {
    const auto matrix = [](const std::vector<std::string>& overrides) {
        std::vector<std::string> all{"optimizer.matrix={\"name\":\"shampoo\"}"};
        all.insert(all.end(), overrides.begin(), overrides.end());
        return parse(kGpt2, all).optimizer.matrix;
    };
    const MatrixOptimizerConfig plain = matrix({});
    CHECK(plain.name == MatrixOptimizerName::shampoo);
    CHECK(plain.max_refresh_failures == 3);
    CHECK(!plain.split_heads);
    CHECK(plain.shampoo.beta1 == 0.9);
    CHECK(plain.shampoo.beta2 == 0.95);
    CHECK(!plain.shampoo.graft_beta2);
    CHECK(plain.shampoo.bias_correction);
    CHECK(plain.shampoo.epsilon == 1e-6);
    CHECK(plain.shampoo.epsilon_mode == optim::EpsilonMode::relative);
    CHECK(plain.shampoo.root_order == 4);
    CHECK(plain.shampoo.root_method == optim::RootMethod::eigen);
    CHECK(plain.shampoo.grafting == optim::Grafting::adam);
    CHECK(plain.shampoo.grafting_epsilon == 1e-8);
    CHECK(plain.shampoo.start_step == 10);
    CHECK(plain.shampoo.precondition_frequency == 10);
    CHECK(plain.shampoo.max_preconditioner_dim == 8192);
    CHECK(plain.shampoo.stagger_refresh);
    const MatrixOptimizerConfig other = matrix(
        {"optimizer.matrix.betas=[0.8,1]", "optimizer.matrix.epsilon=1e-3", "optimizer.matrix.epsilon_mode=absolute",
         "optimizer.matrix.inverse_exponent=0.5", "optimizer.matrix.root_method=coupled_newton",
         "optimizer.matrix.grafting=adagrad", "optimizer.matrix.grafting_epsilon=1e-6",
         "optimizer.matrix.start_preconditioning_step=3", "optimizer.matrix.precondition_frequency=5",
         "optimizer.matrix.max_preconditioner_dim=512", "optimizer.matrix.stagger_refresh=false",
         "optimizer.matrix.max_refresh_failures=0", "optimizer.matrix.split_heads=true"});
    CHECK(other.max_refresh_failures == 0);
    CHECK(other.split_heads);
    CHECK(other.shampoo.beta1 == 0.8);
    CHECK(other.shampoo.beta2 == 1.0);
    CHECK(other.shampoo.epsilon == 1e-3);
    CHECK(other.shampoo.epsilon_mode == optim::EpsilonMode::absolute);
    CHECK(other.shampoo.root_order == 2);
    CHECK(other.shampoo.root_method == optim::RootMethod::coupled_newton);
    CHECK(other.shampoo.grafting == optim::Grafting::adagrad);
    CHECK(other.shampoo.grafting_epsilon == 1e-6);
    CHECK(other.shampoo.start_step == 3);
    CHECK(other.shampoo.precondition_frequency == 5);
    CHECK(other.shampoo.max_preconditioner_dim == 512);
    CHECK(!other.shampoo.stagger_refresh);
    CHECK(matrix({"optimizer.matrix.inverse_exponent=0.125"}).shampoo.root_order == 8);
    CHECK(matrix({"optimizer.matrix.precondition_frequency=7"}).shampoo.start_step == 7);
    CHECK(matrix({"optimizer.matrix.grafting=rmsprop"}).shampoo.grafting == optim::Grafting::rmsprop);
    CHECK(matrix({"optimizer.matrix.grafting=sgd"}).shampoo.grafting == optim::Grafting::sgd);
    CHECK(matrix({"optimizer.matrix.grafting=none"}).shampoo.grafting == optim::Grafting::none);
}

TEST_CASE("every key of soap can be set, and its defaults are those of the page") {
    const auto matrix = [](const std::vector<std::string>& overrides) {
        std::vector<std::string> all{"optimizer.matrix={\"name\":\"soap\"}"};
        all.insert(all.end(), overrides.begin(), overrides.end());
        return parse(kGpt2, all).optimizer.matrix;
    };
    const MatrixOptimizerConfig plain = matrix({});
    CHECK(plain.name == MatrixOptimizerName::soap);
    CHECK(plain.soap.beta1 == 0.95);
    CHECK(plain.soap.beta2 == 0.95);
    CHECK(plain.soap.shampoo_beta == 0.95);
    CHECK(plain.soap.epsilon == 1e-8);
    CHECK(plain.soap.epsilon_mode == optim::BiasEpsilon::corrected);
    CHECK(plain.soap.decay_order == optim::DecayOrder::before);
    CHECK(!plain.soap.one_sided);
    CHECK(!plain.soap.normalize_update);
    CHECK(plain.soap.skip_first_step);
    CHECK(plain.soap.precondition_frequency == 10);
    CHECK(plain.soap.max_preconditioner_dim == 8192);
    CHECK(plain.soap.stagger_refresh);
    const MatrixOptimizerConfig other =
        matrix({"optimizer.matrix.betas=[0.9,0.99]", "optimizer.matrix.shampoo_beta=0.8", "optimizer.matrix.eps=1e-6",
                "optimizer.matrix.epsilon_mode=uncorrected", "optimizer.matrix.weight_decay_order=after",
                "optimizer.matrix.one_sided=true", "optimizer.matrix.normalize_grads=true",
                "optimizer.matrix.skip_first_step=false", "optimizer.matrix.precondition_frequency=1",
                "optimizer.matrix.max_preconditioner_dim=32000", "optimizer.matrix.stagger_refresh=false"});
    CHECK(other.soap.beta1 == 0.9);
    CHECK(other.soap.beta2 == 0.99);
    CHECK(other.soap.shampoo_beta == 0.8);
    CHECK(other.soap.epsilon == 1e-6);
    CHECK(other.soap.epsilon_mode == optim::BiasEpsilon::uncorrected);
    CHECK(other.soap.decay_order == optim::DecayOrder::after);
    CHECK(other.soap.one_sided);
    CHECK(other.soap.normalize_update);
    CHECK(!other.soap.skip_first_step);
    CHECK(other.soap.precondition_frequency == 1);
    CHECK(other.soap.max_preconditioner_dim == 32000);
    CHECK(!other.soap.stagger_refresh);
    CHECK(matrix({"optimizer.matrix.betas=[0.9,0.99]"}).soap.shampoo_beta == 0.99);
}

TEST_CASE("every key of parallel, telemetry and device can be set") {
    const TrainConfig config = parse(kGpt2, {"parallel.mesh.shard=4",
                                             "parallel.planner.policy=balanced",
                                             "parallel.planner.weights.bytes=2",
                                             "parallel.planner.weights.flops=0.5",
                                             "parallel.collectives.gather=ring",
                                             "parallel.collectives.reduce=direct",
                                             "parallel.collectives.chunk_bytes=2048",
                                             "parallel.transport=mpi",
                                             "parallel.prefetch_units=0",
                                             "parallel.prefetch_bytes=4096",
                                             "parallel.reshard_after_forward=false",
                                             "parallel.init_timeout_seconds=5",
                                             "parallel.train_timeout_seconds=6",
                                             "telemetry.run_dir=/tmp/x",
                                             "telemetry.log_interval=10",
                                             "telemetry.console=lines",
                                             "telemetry.log_level=debug",
                                             "checkpoint.export_at_end=false",
                                             "device=cpu",
                                             "threads=3"});
    CHECK(config.parallel.mesh.shard == 4);
    CHECK(config.parallel.planner.bytes_weight == 2.0);
    CHECK(config.parallel.planner.flops_weight == 0.5);
    CHECK(config.parallel.collectives.gather == GatherAlgorithm::ring);
    CHECK(config.parallel.collectives.reduce == ReduceAlgorithm::direct);
    CHECK(config.parallel.collectives.chunk_bytes == 2048);
    CHECK(config.parallel.transport == TransportChoice::mpi);
    CHECK(config.parallel.prefetch_units == 0);
    CHECK(config.parallel.prefetch_bytes == 4096);
    CHECK(!config.parallel.reshard_after_forward);
    CHECK(config.parallel.init_timeout_seconds == 5);
    CHECK(config.parallel.train_timeout_seconds == 6);
    CHECK(config.telemetry.run_dir == "/tmp/x");
    CHECK(config.telemetry.log_interval == 10);
    CHECK(config.telemetry.console == ConsoleStyle::lines);
    CHECK(config.telemetry.log_level == LogLevel::debug);
    CHECK(!config.checkpoint.export_at_end);
    CHECK(config.device == DeviceChoice::cpu);
    CHECK(config.threads == 3);
}

TEST_CASE("every name of every choice has its own enumerator") {
    const auto strategy = [](const std::string& name) {
        return parse(kGpt2, {"parallel.strategy=" + name}).parallel.strategy;
    };
    CHECK(strategy("matrix_fsdp") == Strategy::matrix_fsdp);
    CHECK(strategy("zero1_owner") == Strategy::zero1_owner);
    CHECK(strategy("ddp") == Strategy::ddp);
    const auto policy = [](const std::string& name) {
        return parse(kGpt2, {"parallel.planner.policy=" + name}).parallel.planner.policy;
    };
    CHECK(policy("bytes") == PlannerPolicy::bytes);
    CHECK(policy("flops") == PlannerPolicy::flops);
    CHECK(policy("round_robin") == PlannerPolicy::round_robin);
    const auto style = [](const std::string& name) {
        return parse(kGpt2, {"optimizer.decay_style=" + name}).optimizer.decay_style;
    };
    CHECK(style("constant") == DecayStyle::constant);
    CHECK(style("linear") == DecayStyle::linear);
    const auto mode = [](const std::string& name) {
        return parse(kGpt2, {"optimizer.matrix.scale_mode=" + name}).optimizer.matrix.muon.scale_mode;
    };
    CHECK(mode("original") == optim::ScaleMode::original);
    CHECK(mode("unit_rms_norm") == optim::ScaleMode::unit_rms_norm);
    const auto coefficients = [](const std::string& name) {
        return parse(kGpt2, {"optimizer.matrix.coefficient_type=" + name}).optimizer.matrix.muon.coefficient_type;
    };
    CHECK(coefficients("simple") == optim::CoefficientType::simple);
    CHECK(coefficients("polar_express") == optim::CoefficientType::polar_express);
    CHECK(parse(kGpt2, {"parallel.collectives.gather=direct"}).parallel.collectives.gather == GatherAlgorithm::direct);
    CHECK(parse(kGpt2, {"parallel.transport=self"}).parallel.transport == TransportChoice::self);
    CHECK(parse(kGpt2, {"telemetry.console=bar"}).telemetry.console == ConsoleStyle::bar);
    CHECK(parse(kGpt2, {"telemetry.log_level=warn"}).telemetry.log_level == LogLevel::warn);
    CHECK(parse(kGpt2, {"telemetry.log_level=error"}).telemetry.log_level == LogLevel::error);
    CHECK(parse(kGpt2, {"optimizer.matrix={\"name\":\"none\"}"}).optimizer.matrix.name == MatrixOptimizerName::none);
}

TEST_CASE("a null decay length is derived from the style") {
    CHECK(parse(kGpt2, {"optimizer.warmup_steps=10"}).optimizer.decay_steps == 90);
    CHECK(parse(kGpt2, {"optimizer.warmup_steps=10", "optimizer.decay_style=wsd"}).optimizer.decay_steps == 20);
    CHECK(parse(kGpt2, {"optimizer.decay_steps=0"}).optimizer.decay_steps == 0);
    CHECK(parse(kGpt2, {"optimizer.decay_steps=null"}).optimizer.decay_steps == 100);
}

TEST_CASE("overrides apply in order, as JSON if they are JSON, and replace lists whole") {
    CHECK(parse(kGpt2, {"train.steps=5", "train.steps=6"}).train.steps == 6);
    CHECK(parse(kGpt2, {"telemetry.run_dir=runs/a=b"}).telemetry.run_dir == "runs/a=b");
    CHECK(parse(kGpt2, {"telemetry.run_dir=\"5\""}).telemetry.run_dir == "5");
    CHECK(parse(kGpt2, {"data.train=[\"x\", \"y\"]"}).data.train == std::vector<std::string>{"x", "y"});
    CHECK(parse(kGpt2, {"$schema=configs/schema.json"}).train.steps == 100);
}

TEST_CASE("the printed configuration is a valid input that prints the same") {
    const std::vector<std::vector<std::string>> variants = {
        {},
        {"optimizer.matrix={\"name\": \"none\"}"},
        {"parallel.strategy=ddp"},
        {"parallel.strategy=zero1_owner", "parallel.planner.policy=flops", "threads=2"},
        {"optimizer.lr=1", "data.train=[\"a\\\\b\\\"c\", \"\xc3\xa9\"]", "train.seed=9223372036854775807"}};
    for (const std::string* file : {&kGpt2, &kLlama}) {
        for (const auto& overrides : variants) {
            const TrainConfig config = parse(*file, overrides);
            const std::string printed = print_config(config);
            const TrainConfig again = parse(printed);
            CHECK(print_config(again) == printed);
            CHECK(config_hash(again) == config_hash(config));
            const std::string resolved = print_resolved_config(config);
            const TrainConfig from_resolved = parse(resolved);
            CHECK(print_resolved_config(from_resolved) == resolved);
            CHECK(print_config(from_resolved) == resolved);
            CHECK(config_hash(from_resolved) == config_hash(config));
        }
    }
}

TEST_CASE("the printed configuration keeps nulls and the resolved one replaces them") {
    const TrainConfig config = parse(kLlama);
    const json printed = json::parse(print_config(config));
    const std::vector<std::string> choices = {"parallel.mesh.shard=8", "device=cpu", "threads=1"};
    const json resolved = json::parse(print_resolved_config(config, choices));
    CHECK(printed["model"]["head_dim"].is_null());
    CHECK(printed["telemetry"]["run_dir"].is_null());
    CHECK(printed["device"] == "auto");
    CHECK(resolved["model"]["head_dim"] == 16);
    CHECK(resolved["model"]["num_key_value_heads"] == 4);
    CHECK(resolved["optimizer"]["decay_steps"] == 100);
    CHECK(resolved["optimizer"]["matrix"]["lr"] == 3e-4);
    CHECK(resolved["telemetry"]["run_dir"] == "runs/run");
    CHECK(resolved["precision"]["grad_dtype"] == "float32");
    CHECK(resolved["parallel"]["mesh"]["shard"] == 8);
    CHECK(resolved["device"] == "cpu");
    CHECK(resolved["threads"] == 1);
    CHECK_THROWS_AS(print_resolved_config(config, std::vector<std::string>{"parallel.mesh.shards=8"}),
                    mfsdp::InternalError);
}

TEST_CASE("the hash follows the values, not the spelling") {
    const std::string hash = config_hash(parse(kGpt2));
    CHECK(hash.size() == 16);
    CHECK(config_hash(parse(kGpt2, {"optimizer.lr=0.0003", "optimizer.clip_grad=1.0", "optimizer.matrix.lr=3e-4",
                                    "model.n_inner=256"})) == hash);
    CHECK(config_hash(parse(kGpt2, {"train.seed=1235"})) != hash);
}

TEST_CASE("the keys of a Hugging Face file are read first and those beside it override") {
    const TemporaryFile file(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_ctx": 24, "n_embd": 32,
        "n_head": 4, "n_inner": null, "n_layer": 2, "n_positions": 24, "vocab_size": 61, "layer_norm_epsilon": 0.001,
        "attn_pdrop": 0.1, "summary_first_dropout": 0.1, "torch_dtype": "float32", "scale_attn_weights": true})",
                             "config.json");
    const std::string model =
        R"(model={"hf_config": ")" + file.path().string() + R"(", "n_layer": 3, "attn_pdrop": 0})";
    const TrainConfig config = parse(kGpt2, {model, "train.seq_len=24"});
    CHECK(config.model.hidden_size == 32);
    CHECK(config.model.num_hidden_layers == 3);
    CHECK(config.model.norm_epsilon == 0.001);
    const json kept = json::parse(config.model_bookkeeping);
    CHECK(kept["n_ctx"] == 24);
    CHECK(kept["summary_first_dropout"] == 0.1);
    CHECK(!kept.contains("torch_dtype"));
    REQUIRE(config.notices.size() == 1);
    CHECK(config.notices.front() ==
          "model.hf_config: kept for exported models, without effect on training: architectures, n_ctx, "
          "summary_first_dropout, scale_attn_weights");
    CHECK(print_config(parse(print_config(config))) == print_config(config));
}

TEST_CASE("golden model files are accepted as hf_config") {
    for (const std::string name : {"gpt2_tiny", "gpt2_masked", "llama_tiny_gqa", "llama_tied", "qwen3_tiny"}) {
        INFO(name);
        const std::string path = std::string(MFSDP_SOURCE_DIR) + "/tests/golden/models/" + name + "/config.json";
        const TrainConfig config = parse(kGpt2, {"model={\"hf_config\": \"" + path + "\"}", "train.seq_len=16"});
        CHECK(config.model.vocab_size == 61);
        CHECK(config.model.hidden_size == 32);
    }
}

TEST_CASE("a Hugging Face file that asks for another computation is refused") {
    const auto error_with = [](const std::string& content, const std::string& beside = "") {
        const TemporaryFile file(content, "config.json");
        std::string error = error_of(kGpt2, {"model={\"hf_config\": \"" + file.path().string() + "\"" + beside + "}"});
        const auto at = error.find(file.path().string());
        for (auto found = at; found != std::string::npos; found = error.find(file.path().string())) {
            error.replace(found, file.path().string().size(), "FILE");
        }
        return error;
    };
    const std::string llama = R"("model_type": "llama", "vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 128)";
    CHECK(error_with("{" + llama + "}") == "");
    CHECK(error_with("{" + llama + R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})") == "");
    CHECK(error_with("{" + llama + R"(, "rope_parameters": {"rope_type": "yarn"}})") ==
          "config: model.rope_parameters = {\"rope_type\":\"yarn\"}: not supported by mfsdp");
    CHECK(error_with("{" + llama +
                     R"(, "partial_rotary_factor": 1.0, "rope_parameters": {"partial_rotary_factor": 1}})") == "");
    CHECK(error_with("{" + llama + R"(, "partial_rotary_factor": 0.5})") ==
          "config: model.partial_rotary_factor = 0.5: not supported by mfsdp");
    CHECK(error_with("{" + llama + R"(, "rope_parameters": {"partial_rotary_factor": 0.25}})") ==
          "config: model.rope_parameters = {\"partial_rotary_factor\":0.25}: not supported by mfsdp");
    CHECK(error_with("{" + llama + R"(, "scale_attn_by_inverse_layer_idx": true})") ==
          "config: model.scale_attn_by_inverse_layer_idx = true: not supported by mfsdp");
    CHECK(error_with("{" + llama + R"(, "rope_scaling": {"factor": 8}})") ==
          "config: model.rope_scaling = {\"factor\":8}: not supported by mfsdp");
    CHECK(error_with("{" + llama + "}", ", \"model_type\": \"gpt2\"")
              .starts_with("config: model.model_type = gpt2: FILE is a llama model"));
    CHECK(error_with("{" + llama + R"(, "layer_types": ["full_attention"]})") == "");
    CHECK(error_with("{" + llama + R"(, "layer_types": ["full_attention", "sliding_attention"]})") ==
          "config: model.layer_types = [\"full_attention\",\"sliding_attention\"]: not supported by mfsdp");
    const std::string qwen3 = "{\"model_type\": \"qwen3\"" + llama.substr(llama.find(','));
    CHECK(error_with(qwen3 + "}") ==
          "config: model.head_dim: required, FILE does not say it\n"
          "config: model.num_key_value_heads: required, FILE does not say it");
    CHECK(error_with(qwen3 + R"(, "head_dim": 32})", ", \"num_key_value_heads\": 2") == "");
    CHECK(error_with("[]") == "config: model.hf_config = FILE: expected an object, the file holds a list");
    CHECK(error_with("{").starts_with("config: FILE: line 1, column 2: syntax error"));
}

TEST_CASE("a qwen3 model has its own keys and a vocabulary rounded up in memory") {
    const std::string qwen3 = R"(model={"model_type": "qwen3", "vocab_size": 300, "hidden_size": 64, "head_dim": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
        "max_position_embeddings": 128)";
    const mfsdp::model::ModelConfig model = parse(kGpt2, {qwen3 + "}"}).model;
    CHECK(model.family == mfsdp::model::ModelFamily::qwen3);
    CHECK(model.head_dim == 32);
    CHECK(model.num_key_value_heads == 2);
    CHECK(!model.mlp_bias);
    CHECK(model.vocab_size == 300);
    CHECK(model.padded_vocab_size == 384);
    const auto padded = [&](const std::string& divisor) {
        return parse(kGpt2, {qwen3 + ", \"make_vocab_size_divisible_by\": " + divisor + "}"}).model.padded_vocab_size;
    };
    CHECK(padded("1") == 300);
    CHECK(padded("300") == 300);
    CHECK(padded("7") == 301);
    CHECK(error_of(kGpt2, {qwen3 + ", \"make_vocab_size_divisible_by\": 0}"}) ==
          "config: model.make_vocab_size_divisible_by = 0: must be >= 1");
    CHECK(error_of(kGpt2, {qwen3 + ", \"mlp_bias\": false}"}) == "config: model.mlp_bias: not a key of qwen3");
}

TEST_CASE("every configuration of the project is valid") {
    std::vector<std::filesystem::path> files;
    const std::filesystem::path folder = std::string(MFSDP_SOURCE_DIR) + "/configs";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        if (entry.is_regular_file() && entry.path().filename() != "schema.json") files.push_back(entry.path());
    }
    REQUIRE(files.size() >= 11);
    for (const auto& file : files) {
        INFO(file);
        const TrainConfig config = parse_train_config(file);
        CHECK(config.telemetry.run_dir == "runs" / std::filesystem::relative(file, folder).replace_extension());
        CHECK(print_config(parse(print_config(config))) == print_config(config));
    }
}
