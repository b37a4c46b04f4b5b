#include "mfsdp/base/error.h"

#include "runtime/config/resolve.h"

#include <algorithm>
#include <array>
#include <utility>

namespace mfsdp::runtime {

namespace {

template <typename Enum>
using Names = std::vector<std::pair<std::string_view, Enum>>;

/// Typed access to a checked document. A missing key or an unknown name is a gap between the schema and this file.
class Reader {
  public:
    explicit Reader(const Document& document) : document_(document) {}

    [[nodiscard]] bool has(std::string_view path) const { return document_.find(path) != nullptr; }
    [[nodiscard]] std::int64_t integer(std::string_view path) const { return value(path).integer; }
    [[nodiscard]] double number(std::string_view path) const { return value(path).number; }
    [[nodiscard]] bool boolean(std::string_view path) const { return value(path).boolean; }
    [[nodiscard]] const std::string& text(std::string_view path) const { return value(path).text; }

    [[nodiscard]] std::optional<std::int64_t> optional_integer(std::string_view path) const {
        if (value(path).is(JsonValue::Kind::null)) return std::nullopt;
        return integer(path);
    }

    [[nodiscard]] std::optional<std::string> optional_text(std::string_view path) const {
        if (value(path).is(JsonValue::Kind::null)) return std::nullopt;
        return text(path);
    }

    [[nodiscard]] std::vector<std::string> strings(std::string_view path) const {
        std::vector<std::string> result;
        for (const auto& item : value(path).items) result.push_back(item.text);
        return result;
    }

    [[nodiscard]] double entry(std::string_view path, std::size_t index) const {
        return value(path).items.at(index).number;
    }

    template <typename Enum>
    [[nodiscard]] Enum name(std::string_view path, const Names<Enum>& names) const {
        const std::string& given = text(path);
        const auto found = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.first == given; });
        MFSDP_ASSERT(found != names.end(), "every name of the schema has an enumerator: " + std::string(path));
        return found->second;
    }

  private:
    [[nodiscard]] const JsonValue& value(std::string_view path) const {
        const JsonValue* found = document_.find(path);
        MFSDP_ASSERT(found != nullptr, "the schema has every key that is read: " + std::string(path));
        return *found;
    }

    const Document& document_;
};

model::ModelConfig bind_gpt2(const Reader& read) {
    model::ModelConfig model;
    model.family = model::ModelFamily::gpt2;
    model.hidden_size = read.integer("model.n_embd");
    model.num_hidden_layers = read.integer("model.n_layer");
    model.num_attention_heads = read.integer("model.n_head");
    model.num_key_value_heads = model.num_attention_heads;
    model.head_dim = model.hidden_size / model.num_attention_heads;
    model.intermediate_size = read.integer("model.n_inner");
    model.max_position_embeddings = read.integer("model.n_positions");
    model.norm_epsilon = read.number("model.layer_norm_epsilon");
    model.attention_bias = true;
    model.mlp_bias = true;
    return model;
}

/// llama and qwen3, which has no mlp_bias.
model::ModelConfig bind_llama(const Reader& read) {
    model::ModelConfig model;
    model.family = read.text("model.model_type") == "llama" ? model::ModelFamily::llama : model::ModelFamily::qwen3;
    model.hidden_size = read.integer("model.hidden_size");
    model.num_hidden_layers = read.integer("model.num_hidden_layers");
    model.num_attention_heads = read.integer("model.num_attention_heads");
    model.num_key_value_heads = read.integer("model.num_key_value_heads");
    model.head_dim = read.integer("model.head_dim");
    model.intermediate_size = read.integer("model.intermediate_size");
    model.max_position_embeddings = read.integer("model.max_position_embeddings");
    model.norm_epsilon = read.number("model.rms_norm_eps");
    model.rope_theta = read.number("model.rope_theta");
    model.attention_bias = read.boolean("model.attention_bias");
    model.mlp_bias = read.has("model.mlp_bias") && read.boolean("model.mlp_bias");
    return model;
}

model::ModelConfig bind_model(const Reader& read) {
    model::ModelConfig model = read.text("model.model_type") == "gpt2" ? bind_gpt2(read) : bind_llama(read);
    model.vocab_size = read.integer("model.vocab_size");
    const std::int64_t divisor = read.integer("model.make_vocab_size_divisible_by");
    model.padded_vocab_size = (model.vocab_size + divisor - 1) / divisor * divisor;
    model.initializer_range = read.number("model.initializer_range");
    model.tie_word_embeddings = read.boolean("model.tie_word_embeddings");
    return model;
}

DataConfig bind_data(const Reader& read) {
    DataConfig data;
    data.train = read.strings("data.train");
    data.valid = read.strings("data.valid");
    data.format = read.name<DataFormat>("data.format", {{"tokens", DataFormat::tokens}, {"bytes", DataFormat::bytes}});
    data.shuffle = read.boolean("data.shuffle");
    data.seed = read.integer("data.seed");
    data.mask_alignment = read.name<MaskAlignment>("data.mask_alignment",
                                                   {{"input", MaskAlignment::input}, {"token", MaskAlignment::token}});
    return data;
}

TrainSection bind_train(const Reader& read) {
    TrainSection train;
    train.steps = read.integer("train.steps");
    train.seq_len = read.integer("train.seq_len");
    train.micro_batch_size = read.integer("train.micro_batch_size");
    train.global_batch_size = read.integer("train.global_batch_size");
    train.seed = read.integer("train.seed");
    train.eval_interval = read.integer("train.eval_interval");
    train.eval_samples = read.integer("train.eval_samples");
    train.sample_interval = read.integer("train.sample_interval");
    train.sample_tokens = read.integer("train.sample_tokens");
    train.sample_prompt = read.text("train.sample_prompt");
    train.z_loss = read.number("train.z_loss");
    train.frozen = read.strings("train.frozen");
    train.nonfinite = read.name<NonfinitePolicy>("train.nonfinite",
                                                 {{"skip", NonfinitePolicy::skip}, {"stop", NonfinitePolicy::stop}});
    train.max_consecutive_skips = read.integer("train.max_consecutive_skips");
    return train;
}

optim::MuonOptions bind_muon(const Reader& read) {
    using optim::CoefficientType, optim::MomentumForm, optim::NewtonSchulzMethod, optim::ScaleMode;
    optim::MuonOptions muon;
    muon.momentum = read.number("optimizer.matrix.momentum");
    muon.momentum_form = read.name<MomentumForm>(
        "optimizer.matrix.momentum_form", {{"ema", MomentumForm::ema}, {"heavy_ball", MomentumForm::heavy_ball}});
    muon.nesterov = read.boolean("optimizer.matrix.nesterov");
    muon.num_ns_steps = read.integer("optimizer.matrix.num_ns_steps");
    muon.coefficient_type = read.name<CoefficientType>("optimizer.matrix.coefficient_type",
                                                       {{"quintic", CoefficientType::quintic},
                                                        {"simple", CoefficientType::simple},
                                                        {"polar_express", CoefficientType::polar_express},
                                                        {"dsv4", CoefficientType::dsv4}});
    muon.scale_mode =
        read.name<ScaleMode>("optimizer.matrix.scale_mode", {{"match_rms_adamw", ScaleMode::match_rms_adamw},
                                                             {"original", ScaleMode::original},
                                                             {"unit_rms_norm", ScaleMode::unit_rms_norm},
                                                             {"spectral", ScaleMode::spectral}});
    muon.extra_scale_factor = read.number("optimizer.matrix.extra_scale_factor");
    muon.ns_dtype = read.name<device::DType>("optimizer.matrix.ns_dtype", {{"float32", device::DType::float32},
                                                                           {"bfloat16", device::DType::bfloat16},
                                                                           {"float16", device::DType::float16}});
    muon.ns_method =
        read.name<NewtonSchulzMethod>("optimizer.matrix.ns_method", {{"auto", NewtonSchulzMethod::automatic},
                                                                     {"standard", NewtonSchulzMethod::standard},
                                                                     {"gram", NewtonSchulzMethod::gram}});
    muon.cautious_weight_decay = read.boolean("optimizer.matrix.cautious_weight_decay");
    muon.normuon = read.boolean("optimizer.matrix.normuon");
    if (!muon.normuon) return muon;
    muon.normuon_beta2 = read.number("optimizer.matrix.normuon_beta2");
    muon.normuon_epsilon = read.number("optimizer.matrix.normuon_epsilon");
    return muon;
}

optim::ShampooOptions bind_shampoo(const Reader& read) {
    using optim::EpsilonMode, optim::Grafting, optim::RootMethod;
    optim::ShampooOptions shampoo;
    shampoo.beta1 = read.entry("optimizer.matrix.betas", 0);
    shampoo.beta2 = read.entry("optimizer.matrix.betas", 1);
    shampoo.epsilon = read.number("optimizer.matrix.epsilon");
    shampoo.epsilon_mode = read.name<EpsilonMode>(
        "optimizer.matrix.epsilon_mode", {{"relative", EpsilonMode::relative}, {"absolute", EpsilonMode::absolute}});
    shampoo.root_order = static_cast<std::int64_t>(1.0 / read.number("optimizer.matrix.inverse_exponent"));
    shampoo.root_method = read.name<RootMethod>(
        "optimizer.matrix.root_method", {{"eigen", RootMethod::eigen}, {"coupled_newton", RootMethod::coupled_newton}});
    shampoo.grafting = read.name<Grafting>("optimizer.matrix.grafting", {{"adam", Grafting::adam},
                                                                         {"rmsprop", Grafting::rmsprop},
                                                                         {"adagrad", Grafting::adagrad},
                                                                         {"sgd", Grafting::sgd},
                                                                         {"none", Grafting::none}});
    shampoo.grafting_epsilon = read.number("optimizer.matrix.grafting_epsilon");
    shampoo.start_step = read.integer("optimizer.matrix.start_preconditioning_step");
    shampoo.precondition_frequency = read.integer("optimizer.matrix.precondition_frequency");
    shampoo.max_preconditioner_dim = read.integer("optimizer.matrix.max_preconditioner_dim");
    shampoo.stagger_refresh = read.boolean("optimizer.matrix.stagger_refresh");
    return shampoo;
}

optim::SoapOptions bind_soap(const Reader& read) {
    using optim::BiasEpsilon, optim::DecayOrder;
    optim::SoapOptions soap;
    soap.beta1 = read.entry("optimizer.matrix.betas", 0);
    soap.beta2 = read.entry("optimizer.matrix.betas", 1);
    soap.shampoo_beta = read.number("optimizer.matrix.shampoo_beta");
    soap.epsilon = read.number("optimizer.matrix.eps");
    soap.epsilon_mode =
        read.name<BiasEpsilon>("optimizer.matrix.epsilon_mode",
                               {{"corrected", BiasEpsilon::corrected}, {"uncorrected", BiasEpsilon::uncorrected}});
    soap.decay_order = read.name<DecayOrder>("optimizer.matrix.weight_decay_order",
                                             {{"before", DecayOrder::before}, {"after", DecayOrder::after}});
    soap.one_sided = read.boolean("optimizer.matrix.one_sided");
    soap.normalize_update = read.boolean("optimizer.matrix.normalize_grads");
    soap.skip_first_step = read.boolean("optimizer.matrix.skip_first_step");
    soap.precondition_frequency = read.integer("optimizer.matrix.precondition_frequency");
    soap.max_preconditioner_dim = read.integer("optimizer.matrix.max_preconditioner_dim");
    soap.stagger_refresh = read.boolean("optimizer.matrix.stagger_refresh");
    return soap;
}

MatrixOptimizerConfig bind_matrix(const Reader& read) {
    MatrixOptimizerConfig matrix;
    matrix.name = read.name<MatrixOptimizerName>("optimizer.matrix.name", {{"none", MatrixOptimizerName::none},
                                                                           {"muon", MatrixOptimizerName::muon},
                                                                           {"shampoo", MatrixOptimizerName::shampoo},
                                                                           {"soap", MatrixOptimizerName::soap}});
    if (matrix.name == MatrixOptimizerName::none) return matrix;
    matrix.lr = read.number("optimizer.matrix.lr");
    matrix.weight_decay = read.number("optimizer.matrix.weight_decay");
    matrix.exclude = read.strings("optimizer.matrix.exclude");
    matrix.split_qkv = read.boolean("optimizer.matrix.split_qkv");
    matrix.split_heads = read.boolean("optimizer.matrix.split_heads");
    if (matrix.name == MatrixOptimizerName::muon) {
        matrix.muon = bind_muon(read);
        return matrix;
    }
    matrix.max_refresh_failures = read.integer("optimizer.matrix.max_refresh_failures");
    if (matrix.name == MatrixOptimizerName::shampoo) {
        matrix.shampoo = bind_shampoo(read);
    } else {
        matrix.soap = bind_soap(read);
    }
    return matrix;
}

OptimizerConfig bind_optimizer(const Reader& read) {
    OptimizerConfig optimizer;
    optimizer.lr = read.number("optimizer.lr");
    optimizer.min_lr = read.number("optimizer.min_lr");
    optimizer.warmup_steps = read.integer("optimizer.warmup_steps");
    optimizer.decay_steps = read.integer("optimizer.decay_steps");
    optimizer.decay_style = read.name<DecayStyle>("optimizer.decay_style", {{"constant", DecayStyle::constant},
                                                                            {"linear", DecayStyle::linear},
                                                                            {"cosine", DecayStyle::cosine},
                                                                            {"wsd", DecayStyle::wsd}});
    optimizer.weight_decay = read.number("optimizer.weight_decay");
    optimizer.clip_grad = read.number("optimizer.clip_grad");
    optimizer.qk_clip.threshold = read.number("optimizer.qk_clip_threshold");
    if (optimizer.qk_clip.threshold > 0.0) optimizer.qk_clip.alpha = read.number("optimizer.qk_clip_alpha");
    optimizer.matrix = bind_matrix(read);
    optimizer.element.lr = read.number("optimizer.element.lr");
    optimizer.element.weight_decay = read.number("optimizer.element.weight_decay");
    optimizer.element.beta1 = read.entry("optimizer.element.betas", 0);
    optimizer.element.beta2 = read.entry("optimizer.element.betas", 1);
    optimizer.element.eps = read.number("optimizer.element.eps");
    optimizer.element.decay_vectors = read.boolean("optimizer.element.decay_vectors");
    return optimizer;
}

PlannerConfig bind_planner(const Reader& read) {
    PlannerConfig planner;
    if (!read.has("parallel.planner.policy")) return planner;
    planner.policy = read.name<PlannerPolicy>("parallel.planner.policy", {{"balanced", PlannerPolicy::balanced},
                                                                          {"bytes", PlannerPolicy::bytes},
                                                                          {"flops", PlannerPolicy::flops},
                                                                          {"round_robin", PlannerPolicy::round_robin}});
    if (planner.policy != PlannerPolicy::balanced) return planner;
    planner.bytes_weight = read.number("parallel.planner.weights.bytes");
    planner.flops_weight = read.number("parallel.planner.weights.flops");
    return planner;
}

CollectivesConfig bind_collectives(const Reader& read) {
    CollectivesConfig collectives;
    if (read.has("parallel.collectives.gather")) {
        collectives.gather =
            read.name<GatherAlgorithm>("parallel.collectives.gather", {{"auto", GatherAlgorithm::automatic},
                                                                       {"direct", GatherAlgorithm::direct},
                                                                       {"ring", GatherAlgorithm::ring},
                                                                       {"broadcast", GatherAlgorithm::broadcast}});
    }
    collectives.reduce =
        read.name<ReduceAlgorithm>("parallel.collectives.reduce", {{"auto", ReduceAlgorithm::automatic},
                                                                   {"direct", ReduceAlgorithm::direct},
                                                                   {"grouped", ReduceAlgorithm::grouped}});
    collectives.chunk_bytes = read.integer("parallel.collectives.chunk_bytes");
    collectives.channels = read.integer("parallel.collectives.channels");
    return collectives;
}

ParallelConfig bind_parallel(const Reader& read) {
    ParallelConfig parallel;
    parallel.strategy = read.name<Strategy>(
        "parallel.strategy",
        {{"matrix_fsdp", Strategy::matrix_fsdp}, {"zero1_owner", Strategy::zero1_owner}, {"ddp", Strategy::ddp}});
    parallel.mesh.replicate = read.integer("parallel.mesh.replicate");
    parallel.mesh.shard = read.optional_integer("parallel.mesh.shard");
    parallel.planner = bind_planner(read);
    parallel.collectives = bind_collectives(read);
    parallel.calibration = read.optional_text("parallel.calibration");
    parallel.transport = read.name<TransportChoice>("parallel.transport", {{"auto", TransportChoice::automatic},
                                                                           {"self", TransportChoice::self},
                                                                           {"mpi", TransportChoice::mpi},
                                                                           {"nccl", TransportChoice::nccl}});
    if (read.has("parallel.prefetch_units")) {
        parallel.prefetch_units = read.integer("parallel.prefetch_units");
        parallel.prefetch_bytes = read.optional_integer("parallel.prefetch_bytes");
        parallel.reshard_after_forward = read.boolean("parallel.reshard_after_forward");
    }
    parallel.init_timeout_seconds = read.integer("parallel.init_timeout_seconds");
    parallel.train_timeout_seconds = read.integer("parallel.train_timeout_seconds");
    return parallel;
}

PrecisionConfig bind_precision(const Reader& read) {
    const Names<NumberType> types = {{"bfloat16", NumberType::bfloat16}, {"float32", NumberType::float32}};
    PrecisionConfig precision;
    precision.param_dtype = read.name("precision.param_dtype", types);
    precision.grad_dtype = read.name("precision.grad_dtype", types);
    precision.deterministic = read.boolean("precision.deterministic");
    return precision;
}

RecomputeConfig bind_recompute(const Reader& read) {
    using model::RecomputeMode;
    return {read.name<RecomputeMode>("recompute.mode", {{"none", RecomputeMode::none},
                                                        {"attention", RecomputeMode::attention},
                                                        {"block", RecomputeMode::block}}),
            read.integer("recompute.every")};
}

TelemetryConfig bind_telemetry(const Reader& read) {
    TelemetryConfig telemetry;
    telemetry.run_dir = read.text("telemetry.run_dir");
    telemetry.log_interval = read.integer("telemetry.log_interval");
    telemetry.console = read.name<ConsoleStyle>(
        "telemetry.console",
        {{"auto", ConsoleStyle::automatic}, {"bar", ConsoleStyle::bar}, {"lines", ConsoleStyle::lines}});
    telemetry.log_level = read.name<LogLevel>(
        "telemetry.log_level",
        {{"debug", LogLevel::debug}, {"info", LogLevel::info}, {"warn", LogLevel::warn}, {"error", LogLevel::error}});
    telemetry.rank_logs = read.boolean("telemetry.rank_logs");
    telemetry.health_interval = read.integer("telemetry.health_interval");
    return telemetry;
}

}  // namespace

TrainConfig bind_document(const Document& document) {
    const Reader read(document);
    TrainConfig config;
    config.model = bind_model(read);
    config.init_from = read.optional_text("model.init_from");
    config.data = bind_data(read);
    config.train = bind_train(read);
    config.optimizer = bind_optimizer(read);
    config.parallel = bind_parallel(read);
    config.precision = bind_precision(read);
    config.recompute = bind_recompute(read);
    config.checkpoint.export_at_end = read.boolean("checkpoint.export_at_end");
    config.telemetry = bind_telemetry(read);
    config.device = read.name<DeviceChoice>(
        "device", {{"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}});
    config.threads = read.optional_integer("threads");
    return config;
}

}  // namespace mfsdp::runtime
