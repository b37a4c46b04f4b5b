#pragma once

#include "mfsdp/base/exact_sum.h"
#include "mfsdp/optim/gradient_norm.h"

#include "optim/golden_support.h"
#include "support/single_rank.h"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace mfsdp::optim::test {

/// What one optimizer step reports.
struct StepReport {
    double loss = 0.0, gradient_norm = 0.0;
};

/// Trains a whole model on one rank with the optimizers of a variant: leaves of the micro-batches are added in order,
/// the norm is that of the sum divided by the targets, and each parameter takes one step of its group's optimizer.
class GoldenTrainer {
  public:
    GoldenTrainer(device::Device& device, const model::ModelSpec& spec, const nlohmann::json& variant,
                  std::int64_t micro_batch_rows, std::int64_t sequence_length)
        : rank_(device, spec, {.batch_size = micro_batch_rows, .sequence_length = sequence_length}),
          workspace_(device, rank_.ledger(), device::MemoryCategory::workspace, std::int64_t{1} << 26),
          norm_words_(device, rank_.ledger(), device::MemoryCategory::workspace, 8 * kWords),
          clip_grad_(variant.at("clip_grad").is_null() ? 0.0 : variant.at("clip_grad").get<double>()),
          micro_batch_tokens_(micro_batch_rows * sequence_length) {
        for (const model::ParameterSpec& parameter : spec.parameters) {
            slots_.emplace_back();
            slots_.back().sum = buffer(parameter);
        }
        for (const nlohmann::json& group : variant.at("groups")) add_group(group);
        for (const Slot& slot : slots_) {
            MFSDP_ASSERT(!slot.states.empty(), "every parameter of the model is in a group of the variant");
        }
    }

    [[nodiscard]] mfsdp::test::SingleRank& rank() { return rank_; }

    /// One step on a global batch; the last micro-batch may have fewer rows.
    StepReport step(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& targets) {
        double loss_sum = 0.0;
        std::int64_t target_count = 0;
        for (std::size_t begin = 0; begin < inputs.size(); begin += tokens()) {
            const auto loss = rank_.run(part(inputs, begin), part(targets, begin));
            loss_sum += loss.loss_sum;
            target_count += loss.targets;
            for (std::int64_t i = 0; i < rank_.parameters(); ++i) add_leaf(i, begin == 0);
        }
        const StepReport report{.loss = loss_sum / static_cast<double>(target_count),
                                .gradient_norm = norm(target_count)};
        const device::GradientScale scale{
            .inverse_targets = static_cast<float>(1.0 / static_cast<double>(target_count)),
            .clip = static_cast<float>(clip_factor(report.gradient_norm, clip_grad_))};
        ++steps_;
        for (std::int64_t i = 0; i < rank_.parameters(); ++i) update(i, scale);
        return report;
    }

    [[nodiscard]] double evaluate(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& targets) {
        double loss_sum = 0.0;
        std::int64_t target_count = 0;
        for (std::size_t begin = 0; begin < inputs.size(); begin += tokens()) {
            const auto loss = rank_.evaluate(part(inputs, begin), part(targets, begin));
            loss_sum += loss.loss_sum;
            target_count += loss.targets;
        }
        return loss_sum / static_cast<double>(target_count);
    }

  private:
    static constexpr std::int64_t kWords = ExactSum::kWords + 1;

    /// A parameter's gradient sum, optimizer and state.
    struct Slot {
        device::Buffer sum;
        std::deque<device::Buffer> states;
        std::shared_ptr<MatrixOptimizer> matrix;  ///< null: AdamW
        AdamWOptions adamw;
        std::vector<model::RowBlock> blocks;
        double learning_rate = 0.0, weight_decay = 0.0;
    };

    [[nodiscard]] device::Buffer buffer(const model::ParameterSpec& parameter) {
        return {rank_.stream().device(), rank_.ledger(), device::MemoryCategory::state, 4 * parameter.count()};
    }
    [[nodiscard]] const model::ParameterSpec& spec(std::int64_t i) const {
        return rank_.spec().parameters[static_cast<std::size_t>(i)];
    }
    [[nodiscard]] Slot& slot(std::int64_t i) { return slots_[static_cast<std::size_t>(i)]; }
    [[nodiscard]] std::size_t tokens() const { return static_cast<std::size_t>(micro_batch_tokens_); }
    [[nodiscard]] device::Tensor view(const device::Buffer& memory, std::int64_t i) const {
        device::Tensor tensor = rank_.weight(i);  // shape and strides of the parameter, other memory
        tensor.data = memory.data();
        return tensor;
    }
    [[nodiscard]] std::vector<std::int32_t> part(const std::vector<std::int32_t>& all, std::size_t begin) const {
        const std::size_t end = std::min(begin + tokens(), all.size());
        return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)};
    }

    void add_group(const nlohmann::json& group) {
        Hyperparameters values(group.at("hyperparameters"));
        Slot prototype;
        const auto take_rates = [&](const auto& rated) {
            prototype.learning_rate = rated.learning_rate;
            prototype.weight_decay = rated.weight_decay;
            return rated.options;
        };
        if (group.at("optimizer") == "muon") {
            prototype.matrix = make_muon(take_rates(take_muon(values)));
        } else {
            prototype.adamw = take_rates(take_adamw(values));
        }
        MFSDP_ASSERT(values.empty(), "every hyperparameter is used, but not " + values.rest());
        for (const nlohmann::json& name : group.at("parameters")) {
            Slot& target = slot(find(name.get<std::string>()));
            MFSDP_ASSERT(target.states.empty(), name.get<std::string>() + " is in one group only");
            target.matrix = prototype.matrix;
            target.adamw = prototype.adamw;
            target.learning_rate = prototype.learning_rate;
            target.weight_decay = prototype.weight_decay;
            add_states(find(name.get<std::string>()));
        }
        if (!group.contains("row_blocks")) return;
        for (const auto& [name, sizes] : group.at("row_blocks").items()) {
            std::int64_t row = 0;
            for (const nlohmann::json& size : sizes) {
                slot(find(name)).blocks.push_back({name, row, size.get<std::int64_t>()});
                row += size.get<std::int64_t>();
            }
        }
    }

    [[nodiscard]] std::int64_t find(const std::string& name) const {
        for (std::int64_t i = 0; i < rank_.parameters(); ++i) {
            if (spec(i).name == name) return i;
        }
        throw std::runtime_error("golden: the model has no parameter " + name);
    }

    void add_states(std::int64_t i) {
        const std::size_t count = slot(i).matrix ? 1 : 2;
        for (std::size_t k = 0; k < count; ++k) {
            slot(i).states.push_back(buffer(spec(i)));
            device::launch(rank_.stream(), device::Fill{.out = view(slot(i).states.back(), i), .value = 0.0});
        }
    }

    void add_leaf(std::int64_t i, bool first) {
        const device::Tensor sum = view(slot(i).sum, i);
        if (first) {
            device::launch(rank_.stream(), device::Copy{.out = sum, .in = rank_.gradient(i)});
        } else {
            device::launch(rank_.stream(), device::Add{.out = sum, .a = sum, .b = rank_.gradient(i)});
        }
    }

    [[nodiscard]] double norm(std::int64_t target_count) {
        const device::Tensor words = norm_words_.view(device::DType::int64, {kWords});
        device::launch(rank_.stream(), device::Fill{.out = words, .value = 0.0});
        for (std::int64_t i = 0; i < rank_.parameters(); ++i) {
            device::launch(rank_.stream(), device::SquareSum{.words = words, .in = view(slot(i).sum, i)});
        }
        std::array<std::int64_t, kWords> host{};
        device::launch(rank_.stream(), device::CopyToHost{.target = host.data(), .in = words});
        rank_.stream().synchronize();
        ExactSum sum;
        std::copy(host.begin(), host.end() - 1, sum.words.begin());
        return gradient_norm(sum, target_count);
    }

    void update(std::int64_t i, const device::GradientScale& scale) {
        Slot& parameter = slot(i);
        if (parameter.matrix) {
            const device::Tensor states[] = {view(parameter.states[0], i)};
            parameter.matrix->step(rank_.stream(), workspace_,
                                   {.weight = rank_.weight(i),
                                    .gradient = view(parameter.sum, i),
                                    .states = states,
                                    .blocks = parameter.blocks,
                                    .gradient_scale = scale,
                                    .learning_rate = parameter.learning_rate,
                                    .weight_decay = parameter.weight_decay,
                                    .step = steps_});
            return;
        }
        adamw_step(rank_.stream(), parameter.adamw,
                   {.weight = rank_.weight(i),
                    .gradient = view(parameter.sum, i),
                    .exp_avg = view(parameter.states[0], i),
                    .exp_avg_sq = view(parameter.states[1], i),
                    .gradient_scale = scale,
                    .learning_rate = parameter.learning_rate,
                    .weight_decay = parameter.weight_decay,
                    .step = steps_});
    }

    mfsdp::test::SingleRank rank_;
    device::BufferPool workspace_;
    device::Buffer norm_words_;
    double clip_grad_;
    std::int64_t micro_batch_tokens_;
    std::deque<Slot> slots_;
    std::int64_t steps_ = 0;
};

}  // namespace mfsdp::optim::test
