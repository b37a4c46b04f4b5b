#pragma once

#include "mfsdp/base/error.h"
#include "mfsdp/device/counting_device.h"
#include "mfsdp/model/transformer.h"

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

namespace mfsdp::test {

/// Loss of one micro-batch: the sum over the targets that count, and their number.
struct MicroBatchLoss {
    double loss_sum = 0.0;
    std::int64_t targets = 0;
    double log_z_squares = 0.0;
    [[nodiscard]] double mean() const { return loss_sum / static_cast<double>(targets); }
    bool operator==(const MicroBatchLoss&) const = default;
};

/// A whole model on one device without stores, ranks or schedules: all weights and all gradients in plain buffers.
/// Parameters are named by their index in ModelSpec::parameters and are in memory orientation.
///
///     SingleRank rank(*device, spec, {.batch_size = 2, .sequence_length = 16});
///     rank.load(parameter, values);                     // or rank.initialise(seed)
///     const MicroBatchLoss loss = rank.run(inputs, targets);
///     rank.gradient(parameter);                         // of loss.loss_sum; a tied weight has the sum of both uses
///
/// Weights and gradients are float32; where the model computes in another type they are rounded on the way in and
/// widened on the way out.
class SingleRank {
  public:
    /// The activation pool has exactly the size that a rehearsal on the counting device needs. `device` and `spec`
    /// must outlive the object.
    SingleRank(device::Device& device, const model::ModelSpec& spec, const model::TransformerOptions& options)
        : SingleRank(device, spec, options,
                     device.kind() == device::DeviceKind::counting ? kLimitless : activation_bytes(spec, options)) {}

    [[nodiscard]] const model::ModelSpec& spec() const { return spec_; }
    [[nodiscard]] std::int64_t parameters() const { return static_cast<std::int64_t>(spec_.parameters.size()); }
    [[nodiscard]] device::Stream& stream() { return *stream_; }
    [[nodiscard]] device::MemoryLedger& ledger() { return ledger_; }
    [[nodiscard]] const device::BufferPool& activations() const { return activations_; }

    /// Device tensors in the parameter's shape: an optimizer may read the gradient and change the weight on stream().
    [[nodiscard]] device::Tensor weight(std::int64_t parameter) const {
        return view(weights_, parameter, device::DType::float32);
    }
    [[nodiscard]] device::Tensor gradient(std::int64_t parameter) const {
        return view(gradients_, parameter, device::DType::float32);
    }

    void load(std::int64_t parameter, const std::vector<float>& values) { write(weight(parameter), values.data()); }
    void initialise(std::uint64_t seed) {
        for (std::int64_t i = 0; i < parameters(); ++i) {
            model::initialise(*stream_, spec_.parameters[index(i)], weight(i), 0, seed);
        }
    }
    [[nodiscard]] std::vector<float> read_weight(std::int64_t parameter) { return read(weight(parameter)); }
    [[nodiscard]] std::vector<float> read_gradient(std::int64_t parameter) { return read(gradient(parameter)); }
    /// From now on run() asks for no gradient of this parameter and leaves what read_gradient() gives.
    void freeze(std::int64_t parameter) { frozen_.insert(parameter); }

    /// Forward and backward of one micro-batch of whole sequences (at most options.batch_size of them, row-major);
    /// gradients are written, not added to.
    MicroBatchLoss run(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& targets) {
        const model::MicroBatch micro_batch = upload(inputs, targets);
        visit_all(model::Purpose::train, micro_batch);
        finish_gradients();
        return loss(micro_batch);
    }

    /// Loss without gradients.
    MicroBatchLoss evaluate(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& targets) {
        const model::MicroBatch micro_batch = upload(inputs, targets);
        visit_all(model::Purpose::evaluate, micro_batch);
        return loss(micro_batch);
    }

    /// [B, T, V], row-major; with `last_only` [B, 1, V].
    std::vector<float> logits(const std::vector<std::int32_t>& inputs, bool last_only = false) {
        model::MicroBatch micro_batch = upload(inputs, inputs);
        const std::int64_t rows = micro_batch.inputs.shape[0];
        const std::int64_t positions = last_only ? 1 : micro_batch.inputs.shape[1];
        const std::int64_t vocabulary = spec_.config.vocab_size;
        const device::Buffer out(stream_->device(), ledger_, device::MemoryCategory::workspace,
                                 rows * positions * vocabulary * static_cast<std::int64_t>(sizeof(float)));
        micro_batch.logits = out.view(device::DType::float32, {rows, positions, vocabulary});
        visit_all(model::Purpose::generate, micro_batch);
        return read(micro_batch.logits);
    }

    /// Bytes of the activation pool for one micro-batch, found by running it on the counting device.
    [[nodiscard]] static std::int64_t activation_bytes(const model::ModelSpec& spec,
                                                       const model::TransformerOptions& options) {
        const auto device = device::make_counting_device({});
        SingleRank rehearsal(*device, spec, options, kLimitless);
        const std::vector<std::int32_t> tokens(index(options.batch_size * options.sequence_length));
        rehearsal.run(tokens, tokens);
        return rehearsal.activations().high_water();
    }

  private:
    static constexpr std::int64_t kLimitless = -1;
    using Buffers = std::vector<device::Buffer>;

    SingleRank(device::Device& device, const model::ModelSpec& spec, const model::TransformerOptions& options,
               std::int64_t pool_bytes)
        : spec_(spec),
          options_(options),
          stream_(device.make_stream()),
          activations_(device, ledger_, device::MemoryCategory::activations, pool_bytes),
          transformer_(spec, options, ledger_, activations_, *stream_) {
        const auto buffer = [&](device::MemoryCategory category, std::int64_t elements, std::int64_t size) {
            return device::Buffer(device, ledger_, category, elements * size);
        };
        for (const model::ParameterSpec& parameter : spec.parameters) {
            weights_.push_back(buffer(device::MemoryCategory::weights, parameter.count(), 4));
            gradients_.push_back(buffer(device::MemoryCategory::gradients, parameter.count(), 4));
            rounded_weights_.push_back(
                buffer(device::MemoryCategory::gathered, rounds_weights() ? parameter.count() : 0, 2));
            leaves_.push_back(
                buffer(device::MemoryCategory::gradient_buffers, rounds_gradients() ? parameter.count() : 0, 2));
        }
        if (spec.config.tie_word_embeddings) {
            tied_leaf_ = buffer(device::MemoryCategory::gradient_buffers, spec.parameters[index(embedding())].count(),
                                device::size_of(options.gradient_type));
        }
        const std::int64_t tokens = options.batch_size * options.sequence_length;
        inputs_ = buffer(device::MemoryCategory::transfer, tokens, 4);
        targets_ = buffer(device::MemoryCategory::transfer, tokens, 4);
        totals_ = buffer(device::MemoryCategory::transfer, 3 * device::kAlignment, 1);
    }

    static std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }
    [[nodiscard]] std::int64_t embedding() const { return spec_.units.front().parameters.front(); }
    [[nodiscard]] bool rounds_weights() const { return options_.compute_type != device::DType::float32; }
    [[nodiscard]] bool rounds_gradients() const { return options_.gradient_type != device::DType::float32; }

    [[nodiscard]] device::Tensor view(const device::Buffer& buffer, std::int64_t parameter, device::DType dtype) const {
        const model::ParameterSpec& description = spec_.parameters[index(parameter)];
        if (description.shape.size() == 1) return buffer.view(dtype, {description.shape[0]});
        return buffer.view(dtype, {description.shape[0], description.shape[1]});
    }
    [[nodiscard]] device::Tensor view(const Buffers& buffers, std::int64_t parameter, device::DType dtype) const {
        return view(buffers[index(parameter)], parameter, dtype);
    }
    /// Where the model writes a gradient; a tied table has two places, one per use.
    [[nodiscard]] device::Tensor leaf(std::int64_t parameter, bool second_use) const {
        if (second_use) return view(tied_leaf_, parameter, options_.gradient_type);
        return rounds_gradients() ? view(leaves_, parameter, options_.gradient_type) : gradient(parameter);
    }

    void visit_all(model::Purpose purpose, const model::MicroBatch& micro_batch) {
        for (std::int64_t i = 0; rounds_weights() && i < parameters(); ++i) {
            device::launch(*stream_,
                           device::Copy{.out = view(rounded_weights_, i, options_.compute_type), .in = weight(i)});
        }
        for (const model::UnitVisit& visit : model::unit_visits(spec_, purpose)) {
            const model::UnitSpec& unit = spec_.units[index(visit.unit)];
            const bool tied_head = visit.unit == spec_.head_unit() && spec_.config.tie_word_embeddings;
            // What a visit does not read or write stays undefined.
            std::vector<device::Tensor> weights(unit.parameters.size());
            std::vector<device::Tensor> gradients(unit.parameters.size());
            for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
                const std::int64_t parameter = unit.parameters[i];
                const bool is_table = static_cast<std::int64_t>(i) == unit.table;
                const auto panel = [&](const device::Tensor& tensor) {
                    if (!is_table) return tensor;
                    return tensor.slice(0, spec_.panel_begin(visit.panel), spec_.panel_rows(visit.panel));
                };
                if (is_table ? visit.reads_panel : visit.reads_parameters) {
                    weights[i] = panel(rounds_weights() ? view(rounded_weights_, parameter, options_.compute_type)
                                                        : weight(parameter));
                }
                if (!frozen_.contains(parameter) && (is_table ? visit.writes_panel : visit.writes_parameters)) {
                    gradients[i] = panel(leaf(parameter, tied_head && is_table));
                }
            }
            transformer_.run(visit, weights, gradients, micro_batch);
        }
    }
    /// Widens the gradients and adds the second use of a tied table.
    void finish_gradients() {
        for (std::int64_t i = 0; rounds_gradients() && i < parameters(); ++i) {
            if (frozen_.contains(i)) continue;
            device::launch(*stream_, device::Copy{.out = gradient(i), .in = leaf(i, false)});
        }
        if (spec_.config.tie_word_embeddings && !frozen_.contains(embedding())) {
            const device::Tensor sum = gradient(embedding());
            device::launch(*stream_, device::Add{.out = sum, .a = sum, .b = leaf(embedding(), true)});
        }
    }

    void write(const device::Tensor& out, const void* source) {
        device::launch(*stream_, device::CopyFromHost{.out = out, .source = source});
        stream_->synchronize();
    }
    [[nodiscard]] std::vector<float> read(const device::Tensor& tensor) {
        std::vector<float> values(index(tensor.count()));
        device::launch(*stream_, device::CopyToHost{.target = values.data(), .in = tensor});
        stream_->synchronize();
        return values;
    }

    [[nodiscard]] model::MicroBatch upload(const std::vector<std::int32_t>& inputs,
                                           const std::vector<std::int32_t>& targets) {
        const auto count = static_cast<std::int64_t>(inputs.size());
        MFSDP_ASSERT(targets.size() == inputs.size() && count > 0 && count % options_.sequence_length == 0,
                     "a micro-batch is made of whole sequences with a target for every token");
        const std::int64_t rows = count / options_.sequence_length;
        const model::MicroBatch micro_batch{
            .inputs = inputs_.view(device::DType::int32, {rows, options_.sequence_length}),
            .targets = targets_.view(device::DType::int32, {rows, options_.sequence_length}),
            .loss_sum = totals_.view(device::DType::float64, {1}),
            .target_count = totals_.view(device::DType::int64, {1}, device::kAlignment),
            .log_z_squares = totals_.view(device::DType::float64, {1}, 2 * device::kAlignment)};
        write(micro_batch.inputs, inputs.data());
        write(micro_batch.targets, targets.data());
        return micro_batch;
    }
    [[nodiscard]] MicroBatchLoss loss(const model::MicroBatch& micro_batch) {
        MicroBatchLoss result;
        const auto copy = [&](void* target, const device::Tensor& in) {
            device::launch(*stream_, device::CopyToHost{.target = target, .in = in});
        };
        copy(&result.loss_sum, micro_batch.loss_sum);
        copy(&result.targets, micro_batch.target_count);
        copy(&result.log_z_squares, micro_batch.log_z_squares);
        stream_->synchronize();
        return result;
    }

    const model::ModelSpec& spec_;
    model::TransformerOptions options_;
    device::MemoryLedger ledger_;
    std::unique_ptr<device::Stream> stream_;
    Buffers weights_, gradients_;       // float32
    Buffers rounded_weights_, leaves_;  // of the compute and the gradient type, where that is not float32
    device::Buffer tied_leaf_;          // the head's use of the embedding
    device::Buffer inputs_, targets_, totals_;
    std::set<std::int64_t> frozen_;
    device::BufferPool activations_;
    model::Transformer transformer_;
};

}  // namespace mfsdp::test
