#include "mfsdp/runtime/train/engine.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/stopwatch.h"
#include "mfsdp/optim/gradient_norm.h"
#include "mfsdp/runtime/train/launch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <iterator>
#include <limits>
#include <string>

namespace mfsdp::runtime {

namespace {

using base::Stopwatch;
using device::DType;
using device::MemoryCategory;
using device::Tensor;

constexpr std::int64_t kWords = ExactSum::kWords + 1;
constexpr std::int64_t kWordBytes = 8;

// Parts of totals_, each `slots` numbers of 8 bytes; the words follow.
constexpr std::int64_t kLossSums = 0, kLogZSquares = 1, kTargetCounts = 2, kParts = 3;

const char* phase_name(model::Phase phase) {
    switch (phase) {
        case model::Phase::forward:
            return "forward";
        case model::Phase::score:
            return "score";
        case model::Phase::backward:
            return "backward";
        case model::Phase::logits:
            return "logits";
    }
    return "?";
}

std::vector<Visit> visits_if(bool wanted, const Engine::Parts& parts, model::Purpose purpose) {
    return wanted ? visit_sequence(parts.spec, parts.plan, purpose, 1) : std::vector<Visit>{};
}

}  // namespace

Engine::Engine(const Parts& parts, const EngineOptions& options, const PoolSizes& pools)
    : options_(options),
      compute_(parts.device.make_stream()),
      context_{parts.spec, parts.plan, parts.mesh, parts.rank, parts.device, ledger_, parts.executor, *compute_},
      agreement_(parts.agreement) {
    const auto ranks = static_cast<std::int64_t>(parts.plan.ranks);
    step_visits_ =
        visit_sequence(parts.spec, parts.plan, model::Purpose::train, (options.micro_batches + ranks - 1) / ranks);
    evaluation_visits_ = visits_if(options.evaluates, parts, model::Purpose::evaluate);
    generation_visits_ = visits_if(options.generates, parts, model::Purpose::generate);
    own_ = (options.micro_batches - parts.rank + ranks - 1) / ranks;
    slots_ = std::max<std::int64_t>(own_, 1);
    weights_ = std::make_unique<ParameterStore>(context_, options.store, pools.gathered);
    gradients_ = std::make_unique<GradientStore>(context_, *weights_, options.micro_batches, options.store,
                                                 pools.gradient_buffers);
    optimizer_ = std::make_unique<OwnedOptimizer>(context_, *weights_, *gradients_, options.optimizer, pools.workspace);
    activations_ =
        std::make_unique<device::BufferPool>(parts.device, ledger_, MemoryCategory::activations, pools.activations);
    model::TransformerOptions transformer{options.micro_batch_size, options.sequence_length};
    transformer.compute_type = options.store.param_dtype;
    transformer.gradient_type = options.store.grad_dtype;
    transformer.z_loss = static_cast<float>(options.z_loss);
    transformer.recompute = options.recompute;
    transformer.recompute_every = options.recompute_every;
    transformer_ = std::make_unique<model::Transformer>(parts.spec, transformer, ledger_, *activations_, *compute_);

    const auto buffer = [&](std::int64_t bytes) {
        return device::Buffer(parts.device, ledger_, MemoryCategory::transfer, bytes);
    };
    tokens_ = buffer(2 * slots_ * slot_tokens() * device::size_of(DType::int32));
    totals_ = buffer((kParts * slots_ + kWords) * kWordBytes);
    host_tokens_.resize(static_cast<std::size_t>(2 * slots_ * slot_tokens()));
    host_sums_.resize(static_cast<std::size_t>(2 * slots_));
    host_counts_.resize(static_cast<std::size_t>(slots_));
    losses_.resize(static_cast<std::size_t>(slots_));
    host_words_.resize(static_cast<std::size_t>(kWords));
    host_failures_.resize(optimizer_->failure_numbers().size());
    if (clips_heads()) {
        max_logits_ = buffer(options.max_logits * device::size_of(DType::float32));
        host_max_logits_.resize(static_cast<std::size_t>(options.max_logits));
    }
    if (options.generates) {
        logits_ = buffer(parts.spec.config.vocab_size * device::size_of(DType::float32));
        host_logits_.resize(static_cast<std::size_t>(parts.spec.config.vocab_size));
    }
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

Tensor Engine::totals_view(DType dtype, std::int64_t part, std::int64_t begin, std::int64_t count) const {
    return totals_.view(dtype, {count}, (part * slots_ + begin) * kWordBytes);
}

model::MicroBatch Engine::micro_batch(std::int64_t slot) const {
    const auto tokens = [&](std::int64_t half) {
        return tokens_.view(DType::int32, {options_.micro_batch_size, options_.sequence_length},
                            (half * slots_ + slot) * slot_tokens() * device::size_of(DType::int32));
    };
    model::MicroBatch result;
    result.inputs = tokens(0);
    result.targets = tokens(1);
    result.loss_sum = totals_view(DType::float64, kLossSums, slot, 1);
    result.log_z_squares = totals_view(DType::float64, kLogZSquares, slot, 1);
    result.target_count = totals_view(DType::int64, kTargetCounts, slot, 1);
    return result;
}

Tensor Engine::max_logits() const {
    return max_logits_.view(DType::float32, {context_.spec.blocks(), context_.spec.config.num_attention_heads});
}

void Engine::load_micro_batch(const LoadMicroBatch& load, std::int64_t micro_batch, std::int64_t slot) {
    const auto count = static_cast<std::size_t>(slot_tokens());
    const std::span<std::int32_t> all(host_tokens_);
    const auto at = static_cast<std::size_t>(slot) * count;
    load(micro_batch, all.subspan(at, count), all.subspan(all.size() / 2 + at, count));
}

void Engine::send_tokens(std::int64_t slots) {
    if (slots == 0) return;
    const std::int64_t half = slots_ * slot_tokens(), count = slots * slot_tokens();
    for (const std::int64_t begin : {std::int64_t{0}, half}) {
        device::launch(*compute_,
                       device::CopyFromHost{tokens_.view(DType::int32, {count}, begin * device::size_of(DType::int32)),
                                            host_tokens_.data() + begin});
    }
}

void Engine::run_visit(const std::vector<Visit>& sequence, std::int64_t index, const model::MicroBatch* micro_batch) {
    const Visit& visit = sequence[static_cast<std::size_t>(index)];
    const device::Range phase(context_.device, phase_name(visit.work.phase));
    const device::Range unit(context_.device,
                             context_.spec.units[static_cast<std::size_t>(visit.work.unit)].name.c_str());
    {
        const Lease lease = weights_->materialize(index);
        if (micro_batch != nullptr) {
            transformer_->run(visit.work, lease.weights(), gradients_->begin_leaf(visit), *micro_batch);
        }
    }
    gradients_->reduce(visit);
}

void Engine::read_losses(std::int64_t count) {
    if (count > 0) {
        for (const std::int64_t part : {kLossSums, kLogZSquares}) {
            device::launch(*compute_, device::CopyToHost{host_sums_.data() + part * slots_,
                                                         totals_view(DType::float64, part, 0, count)});
        }
        device::launch(*compute_,
                       device::CopyToHost{host_counts_.data(), totals_view(DType::int64, kTargetCounts, 0, count)});
    }
    compute_->synchronize();
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        losses_[i] = {host_sums_[i], host_sums_[static_cast<std::size_t>(slots_) + i], host_counts_[i]};
    }
}

void Engine::end_part() {
    if (options_.times_parts) compute_->synchronize();
}

LocalFacts Engine::local_facts() {
    const Tensor words = totals_view(DType::int64, kParts, 0, kWords);
    optimizer_->count_squares(words);
    device::launch(*compute_, device::CopyToHost{host_words_.data(), words});
    if (!host_failures_.empty()) {
        device::launch(*compute_, device::CopyToHost{host_failures_.data(), optimizer_->refresh_failures()});
    }
    if (clips_heads()) device::launch(*compute_, device::CopyToHost{host_max_logits_.data(), max_logits()});
    read_losses(own_);

    LocalFacts facts;
    facts.max_logits = host_max_logits_;
    for (std::size_t i = 0; i < host_failures_.size(); ++i) {
        if (host_failures_[i] <= facts.refresh_failures.in_a_row) continue;
        facts.refresh_failures = {host_failures_[i], optimizer_->failure_numbers()[i]};
    }
    for (std::size_t i = 0; i < facts.squares.words.size(); ++i) facts.squares.words[i] = host_words_[i];
    facts.nonfinite_rows = host_words_.back();
    facts.losses = std::span(losses_).first(static_cast<std::size_t>(own_));
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

void Engine::require_refreshes(const RefreshFailures& worst) const {
    const std::int64_t limit = options_.optimizer.max_refresh_failures;
    if (worst.in_a_row <= limit) return;
    std::string text = "optimizer: " + optimizer_->matrix_name(worst.matrix);
    if (worst.in_a_row >= device::CountFailures::kNotFinite) {
        text += ": a factor is no longer finite although its gradients were; lower optimizer.clip_grad";
    } else {
        text += ": " + std::to_string(worst.in_a_row) +
                " refreshes in a row failed, optimizer.matrix.max_refresh_failures = " + std::to_string(limit) +
                "; the last good root or basis is in use. Raise the ridge or the limit";
    }
    throw AgreedFailure(ExitCode::numerical, text + ".");  // all ranks have the same facts
}

std::vector<OptimizerStepCost> Engine::rehearse_optimizer(const std::function<device::Cost()>& counted) {
    std::vector<OptimizerStepCost> result;
    for (const optim::RehearsalStep& step : optimizer_->rehearsal_steps()) {
        const device::Cost before = counted();
        optimizer_->step(step.step, 1.0, {});
        const device::Cost after = counted();
        result.push_back({after.flops - before.flops, step.share});
    }
    return result;
}

StepResult Engine::step(std::int64_t update, double rate_factor, const LoadMicroBatch& load,
                        std::vector<MatrixHealth>* health) {
    MFSDP_ASSERT(health == nullptr || options_.measures_health, "EngineOptions::measures_health is set");
    const double optimizer_seconds = times_.optimizer_seconds;
    times_ = {};
    times_.optimizer_seconds = optimizer_seconds;
    {
        const Stopwatch watch(times_.data_seconds);
        const device::Range range(context_.device, "data");
        for (std::int64_t slot = 0; slot < own_; ++slot) {
            load_micro_batch(load, slot * context_.plan.ranks + context_.rank, slot);
        }
        send_tokens(own_);
    }
    if (clips_heads()) {
        device::launch(*compute_, device::Fill{max_logits(), -std::numeric_limits<double>::infinity()});
    }
    weights_->begin(step_visits_);
    for (std::int64_t index = 0; index < std::ssize(step_visits_); ++index) {
        const Visit& visit = step_visits_[static_cast<std::size_t>(index)];
        const bool backward = visit.work.phase == model::Phase::backward;
        const Stopwatch watch(backward ? times_.backward_seconds : times_.forward_seconds);
        model::MicroBatch tokens = micro_batch(std::min(visit.micro_step, slots_ - 1));
        if (clips_heads()) tokens.max_logits = max_logits();
        run_visit(step_visits_, index, visit.micro_step < own_ ? &tokens : nullptr);
        const bool is_last = index + 1 == std::ssize(step_visits_);
        if (is_last ||
            (step_visits_[static_cast<std::size_t>(index + 1)].work.phase == model::Phase::backward) != backward) {
            end_part();
        }
    }
    gradients_->finish();
    weights_->quiesce();

    StepResult result;
    {
        const device::Range range(context_.device, "agreement");
        result.facts = agreement_.exchange(local_facts());
    }
    const GlobalFacts& facts = result.facts;
    require_refreshes(facts.refresh_failures);
    if (facts.loss.targets == 0) return result;
    const auto targets = static_cast<double>(facts.loss.targets);
    result.loss = facts.loss.sum / targets;
    result.z_loss = options_.z_loss * facts.loss.log_z_squares / targets;
    result.grad_norm = optim::gradient_norm(facts.squares, facts.loss.targets);
    // Rows that are not finite are left out of the exact sum: it is no norm then.
    if (facts.nonfinite_rows > 0) result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    result.skipped = facts.nonfinite_rows > 0 || !std::isfinite(result.loss) || !std::isfinite(result.z_loss) ||
                     !std::isfinite(result.grad_norm);
    if (result.skipped) return result;
    result.clip_scale = optim::clip_factor(result.grad_norm, options_.clip_grad);

    times_.optimizer_seconds = 0.0;
    const Stopwatch watch(times_.optimizer_seconds);
    const device::Range range(context_.device, "optimizer");
    optimizer_->step(update, rate_factor, {static_cast<float>(1.0 / targets), static_cast<float>(result.clip_scale)},
                     health);
    if (clips_heads()) {
        std::memmove(host_max_logits_.data(), facts.max_logits.data(), facts.max_logits.size_bytes());
        device::launch(*compute_, device::CopyFromHost{max_logits(), host_max_logits_.data()});
        optimizer_->clip_heads(max_logits());
    }
    weights_->publish();
    end_part();
    published_ = true;
    return result;
}

class Engine::Interlude {
  public:
    explicit Interlude(Engine& engine) : engine_(engine), begin_(base::now_seconds()) {
        engine_.settle();
        before_ = engine_.context_.executor.totals();
    }
    /// Blocks until nothing of it is under way.
    void end() {
        engine_.settle();
        const comm::TransferTotals after = engine_.context_.executor.totals();
        for (std::size_t lane = 0; lane < after.bytes_sent.size(); ++lane) {
            engine_.reported_.bytes_sent[lane] += after.bytes_sent[lane] - before_.bytes_sent[lane];
        }
        static_cast<void>(engine_.weights_->take_exposed_seconds());
        if (engine_.last_agreement_ > 0.0) engine_.last_agreement_ += base::now_seconds() - begin_;
    }

  private:
    Engine& engine_;
    double begin_;
    comm::TransferTotals before_;
};

std::vector<MicroBatchLoss> Engine::evaluate(std::int64_t micro_batches, const LoadMicroBatch& load) {
    MFSDP_ASSERT(!evaluation_visits_.empty(), "EngineOptions::evaluates is set");
    Interlude interlude(*this);
    std::vector<MicroBatchLoss> result;
    const model::MicroBatch tokens = micro_batch(0);
    for (std::int64_t first = 0; first < micro_batches; first += context_.plan.ranks) {
        const bool computes = first + context_.rank < micro_batches;
        if (computes) {
            load_micro_batch(load, first + context_.rank, 0);
            send_tokens(1);
        }
        weights_->begin(evaluation_visits_);
        for (std::int64_t index = 0; index < std::ssize(evaluation_visits_); ++index) {
            run_visit(evaluation_visits_, index, computes ? &tokens : nullptr);
        }
        read_losses(computes ? 1 : 0);
        if (computes) result.push_back(losses_.front());
    }
    interlude.end();
    return result;
}

std::int32_t Engine::next_token(std::span<const std::int32_t> tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    MFSDP_ASSERT(!generation_visits_.empty() && count >= 1 && count <= options_.sequence_length,
                 "1 to sequence_length tokens are continued, and EngineOptions::generates is set");
    Interlude interlude(*this);
    const bool computes = context_.rank == 0;
    model::MicroBatch micro_batch;
    micro_batch.inputs = tokens_.view(DType::int32, {1, count});
    micro_batch.logits = logits_.view(DType::float32, {1, 1, context_.spec.config.vocab_size});
    if (computes) device::launch(*compute_, device::CopyFromHost{micro_batch.inputs, tokens.data()});
    weights_->begin(generation_visits_);
    for (std::int64_t index = 0; index < std::ssize(generation_visits_); ++index) {
        run_visit(generation_visits_, index, computes ? &micro_batch : nullptr);
    }
    if (computes) device::launch(*compute_, device::CopyToHost{host_logits_.data(), micro_batch.logits});
    interlude.end();
    if (!computes) return -1;
    return static_cast<std::int32_t>(std::max_element(host_logits_.begin(), host_logits_.end()) - host_logits_.begin());
}

}  // namespace mfsdp::runtime
