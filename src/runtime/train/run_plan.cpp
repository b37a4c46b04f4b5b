#include "mfsdp/runtime/train/run_plan.h"

#include "mfsdp/base/error.h"
#include "mfsdp/optim/muon.h"
#include "mfsdp/optim/row_blocks.h"
#include "mfsdp/optim/shampoo.h"
#include "mfsdp/optim/soap.h"
#include "mfsdp/runtime/config/link_calibration.h"
#include "mfsdp/runtime/config/names.h"
#include "mfsdp/runtime/config/parse_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

namespace mfsdp::runtime {

namespace {

std::shared_ptr<optim::MatrixOptimizer> make_matrix_optimizer(const MatrixOptimizerConfig& config) {
    switch (config.name) {
        case MatrixOptimizerName::none:
            return nullptr;
        case MatrixOptimizerName::muon:
            return optim::make_muon(config.muon);
        case MatrixOptimizerName::shampoo:
            return optim::make_shampoo(config.shampoo);
        case MatrixOptimizerName::soap:
            return optim::make_soap(config.soap);
    }
    return nullptr;
}

device::DType dtype(NumberType type) {
    return type == NumberType::bfloat16 ? device::DType::bfloat16 : device::DType::float32;
}

comm::Mesh make_mesh(const TrainConfig& config, std::vector<int> node_of_rank) {
    const auto ranks = static_cast<std::int64_t>(node_of_rank.size());
    const std::int64_t replicate = config.parallel.mesh.replicate;
    const std::int64_t shard = resolve_shard_size(config.parallel.mesh, ranks);
    return {static_cast<int>(replicate), static_cast<int>(shard), std::move(node_of_rank)};
}

std::int64_t bytes_of(const std::vector<optim::StateSpec>& states) {
    std::int64_t total = 0;
    for (const optim::StateSpec& state : states) total += state.bytes();
    return total;
}

/// What AdamW takes: the bytes of its operation.
optim::StepCost adamw_cost(std::int64_t count) {
    device::AdamWStep step{.count = 1};
    step.tasks[0].weight = device::Tensor::dense(nullptr, device::DType::float32, {count});
    return {.element_bytes = step.cost().bytes};
}

OwnershipCost cost_of(const model::ParameterSpec& spec, std::size_t index, optim::Role role, bool frozen,
                      const EngineOptions& engine) {
    constexpr std::int64_t kFloatBytes = 4;
    const OptimizerSetup& optimizer = engine.optimizer;
    const std::int64_t weight_bytes = device::size_of(engine.store.param_dtype);
    OwnershipCost cost;
    if (frozen) {
        cost.bytes = weight_bytes * spec.count();
        return cost;
    }
    std::int64_t state = 0;
    if (role == optim::Role::matrix) {
        const std::vector<model::RowBlock>& blocks = optimizer.blocks[index];
        state = bytes_of(optimizer.matrix->states(spec.rows(), spec.columns(), blocks));
        for (const model::RowBlock& block : blocks) {
            cost.flops += optimizer.matrix->cost(block.row_count, spec.columns()).mean().weighed_flops();
        }
        if (blocks.empty()) cost.flops = optimizer.matrix->cost(spec.rows(), spec.columns()).mean().weighed_flops();
    } else {
        state = bytes_of(optim::adamw_states(spec.shape));
        cost.flops = adamw_cost(spec.count()).weighed_flops();
    }
    const std::int64_t master_bytes = engine.store.param_dtype == device::DType::float32 ? 0 : kFloatBytes;
    cost.bytes = (weight_bytes + master_bytes + kFloatBytes) * spec.count() + state;  // gradient: float32
    return cost;
}

ParameterRates rates_of(const model::ParameterSpec& spec, optim::Role role, const OptimizerConfig& config) {
    if (role == optim::Role::matrix) return {config.matrix.lr, config.matrix.weight_decay};
    const bool decays = spec.kind != model::ParameterKind::vector || config.element.decay_vectors;
    return {config.element.lr, decays ? config.element.weight_decay : 0.0};
}

/// Rounds of NCCL's transfers are operations of a stream: it runs sums of one channel only.
comm::SumAlgorithm sum_algorithm(const TrainConfig& config, int ranks) {
    const bool nccl = config.device == DeviceChoice::cuda && ranks > 1;
    if (config.parallel.collectives.reduce == ReduceAlgorithm::grouped) return comm::SumAlgorithm::grouped;
    if (!nccl) return comm::SumAlgorithm::direct;
    if (config.parallel.collectives.reduce == ReduceAlgorithm::direct) {
        throw ConfigError(
            "config: parallel.collectives.reduce = direct: NCCL, which device = cuda needs on several "
            "ranks, cannot run it; use grouped or auto");
    }
    return comm::SumAlgorithm::grouped;
}

/// Refuses models and batches whose bytes or FLOPs 64 bits do not count, before any such number is formed.
void require_countable(const model::ModelSpec& spec, const TrainConfig& config, std::int64_t ranks) {
    constexpr double kBytesPerElement = 64.0;        // weight, gradients, state, workspace
    constexpr double kFlopsPerElementAndSide = 128;  // twenty Newton-Schulz steps of three products
    const auto real = [](std::int64_t value) { return static_cast<double>(value); };
    const double micro_steps =
        std::ceil(real(config.train.global_batch_size / config.train.micro_batch_size) / real(ranks));
    const double micro_tokens = real(config.train.micro_batch_size) * real(config.train.seq_len);
    double elements = 0.0, optimizer = 0.0, sides = 0.0;
    for (const model::ParameterSpec& parameter : spec.parameters) {
        double count = 1.0, longest = 1.0;
        for (const std::int64_t size : parameter.shape) {
            count *= real(size);
            longest = std::max(longest, real(size));
        }
        elements += count;
        optimizer += count * (kBytesPerElement + kFlopsPerElementAndSide * count / longest);
        // Logits are cut into chunks, positions have no activations of their own: blocks count.
        if (parameter.kind != model::ParameterKind::vocabulary) sides += longest;
    }
    const double activations = micro_tokens * sides * kBytesPerElement;
    const double products = micro_steps * micro_tokens * 8.0 * elements;
    const double attention = micro_steps * micro_tokens * real(config.train.seq_len) * 4.0 * sides;
    if (std::max({optimizer, activations, products, attention}) < 0x1p62) return;
    throw ConfigError(
        "config: model and train: a step has more bytes or operations than 64 bits count; a dimension, "
        "train.seq_len or a batch size is too large");
}

}  // namespace

RunPlan make_run_plan(const TrainConfig& config, std::vector<int> node_of_rank) {
    RunPlan run;
    run.mesh = make_mesh(config, std::move(node_of_rank));
    run.spec = model::describe_model(config.model);
    require_countable(run.spec, config, std::ssize(run.mesh.node_of_rank));
    const bool use_matrix = config.optimizer.matrix.name != MatrixOptimizerName::none;
    run.frozen = optim::frozen_parameters(run.spec, config.train.frozen);
    run.roles = optim::route(run.spec, {use_matrix, config.optimizer.matrix.exclude, config.train.frozen});

    EngineOptions& engine = run.engine;
    engine.micro_batch_size = config.train.micro_batch_size;
    engine.sequence_length = config.train.seq_len;
    engine.micro_batches = config.train.global_batch_size / config.train.micro_batch_size;
    engine.clip_grad = config.optimizer.clip_grad;
    engine.z_loss = config.train.z_loss;
    engine.recompute = config.recompute.mode;
    engine.recompute_every = config.recompute.every;
    engine.evaluates = config.train.eval_interval > 0;
    engine.generates = config.train.sample_interval > 0;
    engine.measures_health = config.telemetry.health_interval > 0 && use_matrix;
    engine.store.param_dtype = dtype(config.precision.param_dtype);
    engine.store.grad_dtype = dtype(config.precision.grad_dtype);
    engine.store.prefetch_units = config.parallel.prefetch_units;
    engine.store.prefetch_bytes = config.parallel.prefetch_bytes.value_or(-1);
    engine.store.reshard_after_forward = config.parallel.reshard_after_forward;
    engine.store.gather = config.parallel.collectives.gather;
    engine.store.reduce = sum_algorithm(config, run.mesh.ranks());
    if (engine.store.gather == comm::GatherAlgorithm::broadcast && config.device != DeviceChoice::cuda) {
        throw ConfigError("config: parallel.collectives.gather = broadcast: only NCCL broadcasts, and device = " +
                          std::string(name(config.device)) + "; use device = cuda, or gather = auto");
    }
    engine.store.build.chunk_bytes = config.parallel.collectives.chunk_bytes;
    if (const auto& file = config.parallel.calibration) {
        engine.store.links = link_model(read_link_calibration(*file), run.mesh, *file);
    }
    engine.optimizer.matrix = make_matrix_optimizer(config.optimizer.matrix);
    engine.optimizer.qk_clip = config.optimizer.qk_clip;
    if (config.optimizer.qk_clip.threshold > 0.0) {
        engine.max_logits = run.spec.blocks() * config.model.num_attention_heads;
    }
    engine.optimizer.max_refresh_failures = config.optimizer.matrix.max_refresh_failures;
    engine.optimizer.element = {config.optimizer.element.beta1, config.optimizer.element.beta2,
                                config.optimizer.element.eps};
    for (std::size_t i = 0; i < run.spec.parameters.size(); ++i) {
        engine.optimizer.rates.push_back(rates_of(run.spec.parameters[i], run.roles[i], config.optimizer));
        engine.optimizer.blocks.push_back(
            run.roles[i] == optim::Role::matrix
                ? optim::optimizer_blocks(config.model, run.spec.parameters[i],
                                          {config.optimizer.matrix.split_qkv, config.optimizer.matrix.split_heads})
                : std::vector<model::RowBlock>{});
        run.costs.push_back(cost_of(run.spec.parameters[i], i, run.roles[i], run.frozen[i], engine));
    }
    run.plan = make_shard_plan(
        {run.spec, run.roles, run.costs, run.mesh, config.parallel.strategy, config.parallel.planner, run.frozen});
    return run;
}

optim::StepCost optimizer_cost(const RunPlan& run, int rank, std::int64_t step) {
    const OptimizerSetup& optimizer = run.engine.optimizer;
    const std::vector<std::int64_t> numbers = matrix_numbers(run.roles, optimizer.blocks);
    optim::StepCost total;
    for (const MatrixShard& shard : run.plan.shards) {
        const auto index = static_cast<std::size_t>(shard.parameter);
        const model::ParameterSpec& spec = run.spec.parameters[index];
        for (const comm::Segment& segment : shard.optimizer.segments) {
            if (segment.rank != rank) continue;
            if (shard.role != optim::Role::matrix) {
                total += adamw_cost(spec.count() / spec.rows() * segment.row_count);
                continue;
            }
            const std::vector<model::RowBlock>& blocks = optimizer.blocks[index];
            if (blocks.empty()) total += optimizer.matrix->cost(spec.rows(), spec.columns()).at(step, numbers[index]);
            for (std::size_t i = 0; i < blocks.size(); ++i) {
                total += optimizer.matrix->cost(blocks[i].row_count, spec.columns())
                             .at(step, numbers[index] + static_cast<std::int64_t>(i));
            }
        }
    }
    return total;
}

void choose_transfers(RunPlan& run) {
    run.engine.store.algorithms = choose_algorithms(run.spec, run.plan, run.mesh, run.engine.store);
}

Balance balance(const std::vector<RankLoad>& loads) {
    Balance result;
    for (const RankLoad& load : loads) {
        result.largest_bytes = std::max(result.largest_bytes, load.bytes);
        result.largest_flops = std::max(result.largest_flops, load.flops);
        result.mean_bytes += static_cast<double>(load.bytes) / static_cast<double>(loads.size());
        result.mean_flops += static_cast<double>(load.flops) / static_cast<double>(loads.size());
    }
    return result;
}

}  // namespace mfsdp::runtime
