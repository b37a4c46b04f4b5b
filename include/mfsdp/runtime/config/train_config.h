#pragma once

#include "mfsdp/comm/builders/builders.h"
#include "mfsdp/model/model_config.h"
#include "mfsdp/model/transformer.h"
#include "mfsdp/optim/learning_rate.h"
#include "mfsdp/optim/muon.h"
#include "mfsdp/optim/qk_clip.h"
#include "mfsdp/optim/shampoo.h"
#include "mfsdp/optim/soap.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mfsdp::runtime {

// The typed form of one configuration file (docs of every key: docs/config.md). Plain values only: each layer has its
// own option structs, filled from these at the edge. Every `null` that can be derived from the file alone is already
// derived; an empty optional is left only where the number of ranks or the machine decides.

enum class DataFormat { tokens, bytes };
enum class MaskAlignment { input, token };
enum class NonfinitePolicy { skip, stop };
using DecayStyle = optim::DecayStyle;
enum class MatrixOptimizerName { none, muon, shampoo, soap };
enum class Strategy { matrix_fsdp, fsdp_gather, fsdp_gather_once, zero1_owner, ddp };
enum class PlannerPolicy { balanced, bytes, flops, round_robin };
using GatherAlgorithm = comm::GatherAlgorithm;
enum class ReduceAlgorithm { automatic, direct, grouped };
enum class TransportChoice { automatic, self, mpi, nccl };
enum class NumberType { float32, bfloat16 };
enum class ConsoleStyle { automatic, bar, lines };
enum class LogLevel { debug, info, warn, error };
enum class DeviceChoice { automatic, cpu, cuda };

struct DataConfig {
    std::vector<std::string> train;  ///< file patterns, at least one; not expanded yet
    std::vector<std::string> valid;  ///< the same for validation; empty: none
    DataFormat format = DataFormat::tokens;
    bool shuffle = true;
    std::int64_t seed = 1234;
    MaskAlignment mask_alignment = MaskAlignment::input;
};

struct TrainSection {
    std::int64_t steps = 0;              ///< optimizer steps of the whole run
    std::int64_t seq_len = 0;            ///< tokens per sequence, <= model.max_position_embeddings
    std::int64_t micro_batch_size = 0;   ///< sequences per rank and micro-step
    std::int64_t global_batch_size = 0;  ///< sequences per step, a multiple of micro_batch_size
    std::int64_t seed = 1234;            ///< of the initial weights
    std::int64_t eval_interval = 0;      ///< steps between validations; 0: never
    std::int64_t eval_samples = 0;       ///< sequences of a validation; 0: all
    std::int64_t sample_interval = 0;    ///< steps between text samples, and one at the end; 0: never
    std::int64_t sample_tokens = 64;
    std::string sample_prompt;  ///< text for the byte tokenizer, else ids: "12 7 9"
    double z_loss = 0.0;
    std::vector<std::string> frozen;  ///< patterns over parameter names
    NonfinitePolicy nonfinite = NonfinitePolicy::skip;
    std::int64_t max_consecutive_skips = 10;
};

struct MatrixOptimizerConfig {
    MatrixOptimizerName name = MatrixOptimizerName::muon;
    double lr = 0.0;                   ///< peak rate
    double weight_decay = 0.1;         ///< times the unscaled rate
    std::vector<std::string> exclude;  ///< patterns of matrices left to the element section
    // The rest is read only when a matrix optimizer is named.
    bool split_qkv = true;
    bool split_heads = false;
    std::int64_t max_refresh_failures = 3;  ///< of shampoo and soap; more in a row end the run
    optim::MuonOptions muon;
    optim::ShampooOptions shampoo;
    optim::SoapOptions soap;
};

struct ElementOptimizerConfig {
    double lr = 0.0;  ///< peak rate
    double weight_decay = 0.1;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    bool decay_vectors = false;  ///< weight decay on norms and biases too
};

struct OptimizerConfig {
    double lr = 0.0;      ///< peak rate; the sections' own lr are what is applied
    double min_lr = 0.0;  ///< only min_lr / lr counts: the last step has that part of each section's lr
    std::int64_t warmup_steps = 0;
    std::int64_t decay_steps = 0;  ///< resolved: the last decay_steps steps decay
    DecayStyle decay_style = DecayStyle::cosine;
    double weight_decay = 0.1;
    double clip_grad = 1.0;  ///< limit of the global L2 norm of the raw gradient; 0: none
    optim::QkClipOptions qk_clip;
    MatrixOptimizerConfig matrix;
    ElementOptimizerConfig element;
};

struct MeshConfig {
    std::int64_t replicate = 1;
    std::optional<std::int64_t> shard;  ///< empty: ranks / replicate
};

struct PlannerConfig {
    PlannerPolicy policy = PlannerPolicy::balanced;
    double bytes_weight = 1.0;  ///< of policy balanced
    double flops_weight = 1.0;
};

struct CollectivesConfig {
    GatherAlgorithm gather = GatherAlgorithm::automatic;
    ReduceAlgorithm reduce = ReduceAlgorithm::automatic;
    std::int64_t chunk_bytes = 4194304;  ///< >= 1024, a multiple of 16
    std::int64_t channels = 1;
};

struct ParallelConfig {
    Strategy strategy = Strategy::matrix_fsdp;
    MeshConfig mesh;
    PlannerConfig planner;
    CollectivesConfig collectives;
    std::optional<std::string> calibration;  ///< file of link costs; empty: built-in figures
    TransportChoice transport = TransportChoice::automatic;
    std::int64_t prefetch_units = 1;             ///< units gathered ahead
    std::optional<std::int64_t> prefetch_bytes;  ///< limit of their bytes; empty: none
    bool reshard_after_forward = true;
    std::int64_t init_timeout_seconds = 300;
    std::int64_t train_timeout_seconds = 600;
};

struct PrecisionConfig {
    NumberType param_dtype = NumberType::float32;
    NumberType grad_dtype = NumberType::float32;  ///< resolved: null means param_dtype
    bool deterministic = true;                    ///< false: a GPU's libraries may add in varying order
};

struct RecomputeConfig {
    model::RecomputeMode mode = model::RecomputeMode::none;
    std::int64_t every = 1;  ///< in every so many blocks
};

struct CheckpointConfig {
    bool export_at_end = true;  ///< final weights in <run_dir>/model
};

struct TelemetryConfig {
    std::string run_dir;  ///< resolved: null means runs/<name of the config file>
    std::int64_t log_interval = 1;
    ConsoleStyle console = ConsoleStyle::automatic;
    LogLevel log_level = LogLevel::info;
    bool rank_logs = false;            ///< a log file for every rank
    std::int64_t health_interval = 0;  ///< steps between health lines of the matrices; 0: never
};

struct TrainConfig {
    model::ModelConfig model;
    std::optional<std::string> init_from;  ///< Hugging Face directory with the initial weights; empty: random
    DataConfig data;
    TrainSection train;
    OptimizerConfig optimizer;
    ParallelConfig parallel;
    PrecisionConfig precision;
    RecomputeConfig recompute;
    CheckpointConfig checkpoint;
    TelemetryConfig telemetry;
    DeviceChoice device = DeviceChoice::automatic;
    std::optional<std::int64_t> threads;  ///< per rank; empty: OMP_NUM_THREADS if set, else cores / ranks on the node

    std::string source_path;           ///< the file this came from, for messages and logs
    std::vector<std::string> notices;  ///< worth one log line each, e.g. which keys of hf_config were only kept
    std::string model_bookkeeping;     ///< JSON object: keys of hf_config to be written back to exported models
    std::string document;  ///< canonical JSON, every default filled in, `null` kept: what print_config lays out
    std::string resolved;  ///< the same with each `null` replaced that the file alone decides: what config_hash covers
};

}  // namespace mfsdp::runtime
