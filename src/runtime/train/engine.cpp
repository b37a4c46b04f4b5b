#include "mfsdp/runtime/train/engine.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/stopwatch.h"
#include "mfsdp/optim/gradient_norm.h"

#include <cmath>
#include <exception>
#include <string>

namespace mfsdp::runtime {

namespace {

using base::Stopwatch;
using device::DType;
using device::MemoryCategory;
using device::Tensor;

constexpr std::int64_t kWords = ExactSum::kWords + 1;
constexpr std::int64_t kWordBytes = 8;

}  // namespace

Engine::Engine(const Parts& parts, const EngineOptions& options, const PoolSizes& pools)
    : options_(options),
      compute_(parts.device.make_stream()),
      context_{parts.spec, parts.plan, parts.mesh, parts.rank, parts.device, ledger_, parts.executor, *compute_},
      agreement_(parts.agreement) {
    const auto ranks = static_cast<std::int64_t>(parts.plan.ranks);
    micro_steps_ = (options.micro_batches + ranks - 1) / ranks;
    own_ = (options.micro_batches - parts.rank + ranks - 1) / ranks;
    weights_ = std::make_unique<ParameterStore>(context_, options.store, micro_steps_, pools.gathered);
    gradients_ = std::make_unique<GradientStore>(context_, *weights_, options.micro_batches, options.store.build,
                                                 pools.gradient_buffers);
    optimizer_ = std::make_unique<OwnedOptimizer>(context_, *weights_, *gradients_, options.optimizer, pools.workspace);
    activations_ =
        std::make_unique<device::BufferPool>(parts.device, ledger_, MemoryCategory::activations, pools.activations);
    transformer_ = std::make_unique<model::Transformer>(
        parts.spec, model::TransformerOptions{options.micro_batch_size, options.sequence_length}, ledger_,
        *activations_, *compute_);

    const std::int64_t tokens = 2 * own_ * options.micro_batch_size * options.sequence_length;
    tokens_ = device::Buffer(parts.device, ledger_, MemoryCategory::transfer, tokens * device::size_of(DType::int32));
    totals_ = device::Buffer(parts.device, ledger_, MemoryCategory::transfer, (2 * own_ + kWords) * kWordBytes);
    host_tokens_.resize(static_cast<std::size_t>(tokens));
    host_loss_sums_.resize(static_cast<std::size_t>(own_));
    host_counts_.resize(static_cast<std::size_t>(own_));
    losses_.resize(static_cast<std::size_t>(own_));
    host_words_.resize(static_cast<std::size_t>(kWords));
    for (const comm::TransferSchedule* schedule : weights_->publish_schedules())
        publish_bytes_ += schedule->bytes_sent();
}

Engine::~Engine() {
    // A failure in mid-step leaves transfers and queued operations behind, which must not outlive the memory they use.
    context_.executor.abandon();
    try {
        compute_->synchronize();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): already on its way up
    }
}

void Engine::settle() {
    weights_->quiesce();
    compute_->synchronize();
}

PoolSizes Engine::high_water() const {
    return {weights_->gathered_high_water(), gradients_->leaf_high_water(), activations_->high_water(),
            optimizer_->workspace_high_water()};
}

std::vector<const comm::TransferSchedule*> Engine::schedules() const {
    std::vector<const comm::TransferSchedule*> all = weights_->schedules();
    for (const comm::TransferSchedule* schedule : gradients_->schedules()) all.push_back(schedule);
    return all;
}

bool Engine::has_micro_batch(std::int64_t micro_step) const { return micro_step < own_; }

model::MicroBatch Engine::micro_batch(std::int64_t micro_step) const {
    const std::int64_t count = options_.micro_batch_size * options_.sequence_length;
    const auto tokens = [&](std::int64_t half) {
        return tokens_.view(DType::int32, {options_.micro_batch_size, options_.sequence_length},
                            (half * own_ + micro_step) * count * device::size_of(DType::int32));
    };
    return {tokens(0), tokens(1), totals_.view(DType::float64, {1}, micro_step * kWordBytes),
            totals_.view(DType::int64, {1}, (own_ + micro_step) * kWordBytes)};
}

void Engine::load_tokens(const LoadMicroBatch& load) {
    const auto count = static_cast<std::size_t>(options_.micro_batch_size * options_.sequence_length);
    const std::span<std::int32_t> all(host_tokens_);
    for (std::int64_t i = 0; i < own_; ++i) {
        const auto at = static_cast<std::size_t>(i) * count;
        load(i * context_.plan.ranks + context_.rank, all.subspan(at, count), all.subspan(all.size() / 2 + at, count));
    }
    if (own_ > 0) {
        const auto size = static_cast<std::int64_t>(host_tokens_.size());
        device::launch(*compute_, device::CopyFromHost{tokens_.view(DType::int32, {size}), host_tokens_.data()});
    }
}

void Engine::run_visit(std::int64_t index) {
    const Visit& visit = weights_->visits()[static_cast<std::size_t>(index)];
    {
        const Lease lease = weights_->materialize(index);
        if (has_micro_batch(visit.micro_step)) {
            if (visit.backward) {
                transformer_->backward(visit.unit, lease.weights(), gradients_->begin_leaf(visit.unit),
                                       micro_batch(visit.micro_step));
            } else {
                transformer_->forward(visit.unit, lease.weights(), micro_batch(visit.micro_step));
            }
        }
    }
    if (visit.backward) gradients_->reduce(visit.unit, visit.micro_step);
}

LocalFacts Engine::local_facts() {
    const Tensor words = totals_.view(DType::int64, {kWords}, 2 * own_ * kWordBytes);
    optimizer_->count_squares(words);
    device::launch(*compute_, device::CopyToHost{host_words_.data(), words});
    if (own_ > 0) {
        device::launch(*compute_, device::CopyToHost{host_loss_sums_.data(), totals_.view(DType::float64, {own_})});
        device::launch(*compute_,
                       device::CopyToHost{host_counts_.data(), totals_.view(DType::int64, {own_}, own_ * kWordBytes)});
    }
    compute_->synchronize();

    LocalFacts facts;
    for (std::size_t i = 0; i < facts.squares.words.size(); ++i) facts.squares.words[i] = host_words_[i];
    facts.nonfinite_rows = host_words_.back();
    for (std::size_t i = 0; i < losses_.size(); ++i) losses_[i] = {host_loss_sums_[i], host_counts_[i]};
    facts.losses = losses_;
    const comm::TransferTotals totals = context_.executor.totals();
    // Both lanes are quiet here, so the totals hold whole transfers: this step's, and the publish of the step before.
    facts.bytes_sent_optimizer = published_ ? publish_bytes_ : 0;
    published_ = false;
    facts.bytes_sent_gather = totals.bytes_sent[0] - reported_.bytes_sent[0] - facts.bytes_sent_optimizer;
    facts.bytes_sent_reduce = totals.bytes_sent[1] - reported_.bytes_sent[1];
    reported_ = totals;
    for (std::int64_t category = 0; category < device::kMemoryCategories; ++category) {
        facts.memory_peak_bytes += ledger_.peak(static_cast<MemoryCategory>(category));
    }
    times_.exposed_communication_seconds = weights_->take_exposed_seconds() + gradients_->take_exposed_seconds();
    const double now = base::now_seconds();
    times_.step_seconds = last_agreement_ > 0.0 ? now - last_agreement_ : 0.0;
    last_agreement_ = now;
    facts.times = times_;
    return facts;
}

StepResult Engine::step(std::int64_t number, double rate_factor, const LoadMicroBatch& load) {
    const double optimizer_seconds = times_.optimizer_seconds;
    times_ = {};
    times_.optimizer_seconds = optimizer_seconds;
    {
        const Stopwatch watch(times_.data_seconds);
        load_tokens(load);
    }
    const auto visits = static_cast<std::int64_t>(weights_->visits().size());
    for (std::int64_t index = 0; index < visits; ++index) {
        const Stopwatch watch(weights_->visits()[static_cast<std::size_t>(index)].backward ? times_.backward_seconds
                                                                                           : times_.forward_seconds);
        run_visit(index);
    }
    gradients_->finish();
    weights_->quiesce();

    StepResult result;
    result.facts = agreement_.exchange(local_facts());
    const GlobalFacts& facts = result.facts;
    if (facts.targets == 0) return result;
    result.loss = facts.loss_sum / static_cast<double>(facts.targets);
    result.grad_norm = optim::gradient_norm(facts.squares, facts.targets);
    if (facts.nonfinite_rows > 0 || !std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
        throw NumericalError("train: step " + std::to_string(number) + ": loss " + std::to_string(result.loss) + ", " +
                             std::to_string(facts.nonfinite_rows) +
                             " gradient rows are not finite; nothing was updated (train.nonfinite = stop)");
    }
    result.clip_scale = optim::clip_factor(result.grad_norm, options_.clip_grad);

    times_.optimizer_seconds = 0.0;
    const Stopwatch watch(times_.optimizer_seconds);
    optimizer_->step(
        number, rate_factor,
        {static_cast<float>(1.0 / static_cast<double>(facts.targets)), static_cast<float>(result.clip_scale)});
    weights_->publish();
    published_ = true;
    return result;
}

}  // namespace mfsdp::runtime
