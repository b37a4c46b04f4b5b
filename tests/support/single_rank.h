#pragma once

#include "mfsdp/base/error.h"
#include "mfsdp/device/counting_device.h"
#include "mfsdp/model/transformer.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace mfsdp::test {

/// Loss of one micro-batch: the sum over the targets that count, and their number.
struct MicroBatchLoss {
    double loss_sum = 0.0;
    std::int64_t targets = 0;
    [[nodiscard]] double mean() const { return loss_sum / static_cast<double>(targets); }
};

/// A whole model on one device without stores, ranks or schedules: all weights and all gradients in plain buffers.
/// Parameters are named by their index in ModelSpec::parameters and are in memory orientation.
///
///     SingleRank rank(*device, spec, {.batch_size = 2, .sequence_length = 16});
///     rank.load(parameter, values);                     // or rank.initialise(seed)
///     const MicroBatchLoss loss = rank.run(inputs, targets);
///     rank.gradient(parameter);                         // of loss.loss_sum; a tied weight has the sum of both uses
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
    [[nodiscard]] device::Tensor weight(std::int64_t parameter) const { return view(weights_, parameter); }
    [[nodiscard]] device::Tensor gradient(std::int64_t parameter) const { return view(gradients_, parameter); }

    void load(std::int64_t parameter, const std::vector<float>& values) { write(weight(parameter), values.data()); }
    void initialise(std::uint64_t seed) {
        for (std::int64_t i = 0; i < parameters(); ++i) {
            model::initialise(*stream_, spec_.parameters[index(i)], weight(i), 0, seed);
        }
    }
    [[nodiscard]] std::vector<float> read_weight(std::int64_t parameter) { return read(weight(parameter)); }
    [[nodiscard]] std::vector<float> read_gradient(std::int64_t parameter) { return read(gradient(parameter)); }

    /// Forward and backward of one micro-batch of whole sequences (at most options.batch_size of them, row-major);
    /// gradients are written, not added to.
    MicroBatchLoss run(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& targets) {
        const model::MicroBatch micro_batch = upload(inputs, targets);
        forward(micro_batch);
        for (std::int64_t unit = spec_.head_unit(); unit >= 0; --unit) {
            const auto tensors = unit_tensors(weights_, unit);
            auto gradients = unit_tensors(gradients_, unit);
            const bool tied_head = unit == spec_.head_unit() && spec_.config.tie_word_embeddings;
            if (tied_head) gradients.back() = tied_gradient();
            transformer_.backward(unit, tensors, gradients, micro_batch);
        }
        if (spec_.config.tie_word_embeddings) {
            const device::Tensor sum = gradient(embedding());
            device::launch(*stream_, device::Add{.out = sum, .a = sum, .b = tied_gradient()});
        }
        return loss(micro_batch);
    }

    /// Loss without gradients.
    MicroBatchLoss evaluate(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& targets) {
        const model::MicroBatch micro_batch = upload(inputs, targets);
        forward(micro_batch);
        transformer_.evaluate(unit_tensors(weights_, spec_.head_unit()), micro_batch);
        return loss(micro_batch);
    }

    /// [B, T, V], row-major.
    std::vector<float> logits(const std::vector<std::int32_t>& inputs) {
        const model::MicroBatch micro_batch = upload(inputs, inputs);
        forward(micro_batch);
        const std::int64_t count = static_cast<std::int64_t>(inputs.size()) * spec_.config.vocab_size;
        const device::Buffer out(stream_->device(), ledger_, device::MemoryCategory::workspace,
                                 count * static_cast<std::int64_t>(sizeof(float)));
        const device::Tensor tensor =
            out.view(device::DType::float32,
                     {micro_batch.inputs.shape[0], micro_batch.inputs.shape[1], spec_.config.vocab_size});
        transformer_.logits(unit_tensors(weights_, spec_.head_unit()), tensor);
        return read(tensor);
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
        }
        if (spec.config.tie_word_embeddings) {
            tied_gradient_ = buffer(device::MemoryCategory::gradients, spec.parameters[index(embedding())].count(), 4);
        }
        const std::int64_t tokens = options.batch_size * options.sequence_length;
        inputs_ = buffer(device::MemoryCategory::transfer, tokens, 4);
        targets_ = buffer(device::MemoryCategory::transfer, tokens, 4);
        loss_sum_ = buffer(device::MemoryCategory::transfer, 1, 8);
        target_count_ = buffer(device::MemoryCategory::transfer, 1, 8);
    }

    static std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }
    [[nodiscard]] std::int64_t embedding() const { return spec_.units.front().parameters.front(); }
    [[nodiscard]] device::Tensor tied_gradient() const {
        return tied_gradient_.view(device::DType::float32, {spec_.config.vocab_size, spec_.config.hidden_size});
    }

    [[nodiscard]] device::Tensor view(const std::vector<device::Buffer>& buffers, std::int64_t parameter) const {
        const model::ParameterSpec& description = spec_.parameters[index(parameter)];
        const device::Buffer& buffer = buffers[index(parameter)];
        if (description.shape.size() == 1) return buffer.view(device::DType::float32, {description.shape[0]});
        return buffer.view(device::DType::float32, {description.shape[0], description.shape[1]});
    }
    [[nodiscard]] std::vector<device::Tensor> unit_tensors(const std::vector<device::Buffer>& buffers,
                                                           std::int64_t unit) const {
        std::vector<device::Tensor> tensors;
        for (const std::int64_t parameter : spec_.units[index(unit)].parameters) {
            tensors.push_back(view(buffers, parameter));
        }
        return tensors;
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
            .loss_sum = loss_sum_.view(device::DType::float64, {1}),
            .target_count = target_count_.view(device::DType::int64, {1})};
        write(micro_batch.inputs, inputs.data());
        write(micro_batch.targets, targets.data());
        return micro_batch;
    }
    void forward(const model::MicroBatch& micro_batch) {
        for (std::int64_t unit = 0; unit < spec_.head_unit(); ++unit) {
            transformer_.forward(unit, unit_tensors(weights_, unit), micro_batch);
        }
    }
    [[nodiscard]] MicroBatchLoss loss(const model::MicroBatch& micro_batch) {
        MicroBatchLoss result;
        device::launch(*stream_, device::CopyToHost{.target = &result.loss_sum, .in = micro_batch.loss_sum});
        device::launch(*stream_, device::CopyToHost{.target = &result.targets, .in = micro_batch.target_count});
        stream_->synchronize();
        return result;
    }

    const model::ModelSpec& spec_;
    model::TransformerOptions options_;
    device::MemoryLedger ledger_;
    std::unique_ptr<device::Stream> stream_;
    std::vector<device::Buffer> weights_;
    std::vector<device::Buffer> gradients_;
    device::Buffer tied_gradient_;  // the head's use of the embedding
    device::Buffer inputs_, targets_, loss_sum_, target_count_;
    device::BufferPool activations_;
    model::Transformer transformer_;
};

}  // namespace mfsdp::test
