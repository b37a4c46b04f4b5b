#include "model/layers/attention.h"

#include "mfsdp/device/device.h"

#include <cmath>

namespace mfsdp::model {

using device::launch;
using device::Tensor;

Attention::Attention(ParameterCursor& cursor, const ModelConfig& config, const RotaryTables& tables)
    : hidden_size_(config.hidden_size),
      heads_(config.num_attention_heads),
      key_value_heads_(config.num_key_value_heads),
      head_dim_(config.head_dim),
      scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))),
      tables_(tables),
      projections_(make_projections(cursor, config)),
      output_(cursor, config.family == ModelFamily::gpt2 || config.attention_bias) {
    if (config.family != ModelFamily::qwen3) return;
    const HeadNorm query(cursor, config);
    norms_ = {query, HeadNorm(cursor, config)};
}

std::vector<Attention::Projection> Attention::make_projections(ParameterCursor& cursor, const ModelConfig& config) {
    const std::int64_t query = config.num_attention_heads * config.head_dim;
    const std::int64_t key_value = config.num_key_value_heads * config.head_dim;
    if (config.family == ModelFamily::gpt2) return {{Linear(cursor, true), 0, query + 2 * key_value}};
    const bool bias = config.attention_bias;
    std::vector<Projection> projections;
    projections.push_back({Linear(cursor, bias), 0, query});
    projections.push_back({Linear(cursor, bias), query, key_value});
    projections.push_back({Linear(cursor, bias), query + key_value, key_value});
    return projections;
}

Attention::Views Attention::views(const Tensor& fused) const {
    const std::int64_t query = heads_ * head_dim_;
    const std::int64_t key_value = key_value_heads_ * head_dim_;
    Views result;
    result.query = fused.slice(1, 0, query).split(1, heads_, head_dim_);
    result.key = fused.slice(1, query, key_value).split(1, key_value_heads_, head_dim_);
    if (fused.columns() == columns()) {
        result.value = fused.slice(1, query + key_value, key_value).split(1, key_value_heads_, head_dim_);
    }
    return result;
}

Tensor Attention::by_sequence(const LayerContext& context, const Tensor& heads) const {
    return heads.split(0, context.batch_size, context.sequence_length);
}

Tensor Attention::by_head(const Tensor& heads) const { return heads.split(1, heads_, head_dim_); }

Attention::Views Attention::attended(const AttentionRecord& record) const {
    Views result = views(record.query_key_value.tensor());
    if (norms_) {
        const Views turned = views(record.query_key.tensor());
        result.query = turned.query;
        result.key = turned.key;
    }
    return result;
}

void Attention::normalise(const LayerContext& context, UnitTensors weights, AttentionRecord& record) const {
    if (!norms_) return;
    record.query_key = Activation(context, {context.tokens(), query_key_columns()});
    const Views out = views(record.query_key.tensor());
    const Views in = views(record.query_key_value.tensor());
    record.query_reciprocal = norms_->query.forward(context, weights, out.query, in.query);
    record.key_reciprocal = norms_->key.forward(context, weights, out.key, in.key);
}

void Attention::rotate(const LayerContext& context, const Views& views, bool inverse) const {
    if (!tables_.cosine.defined()) return;
    for (const Tensor& part : {views.query, views.key}) {
        launch(
            context.stream,
            device::Rotary{
                .x = by_sequence(context, part), .cosine = tables_.cosine, .sine = tables_.sine, .inverse = inverse});
    }
}

void Attention::forward(const LayerContext& context, UnitTensors weights, Activation input,
                        AttentionRecord& record) const {
    record.input = std::move(input);
    record.query_key_value = Activation(context, {context.tokens(), columns()});
    for (const Projection& projection : projections_) {
        projection.linear.forward(context, weights, projection.of(record.query_key_value.tensor()),
                                  record.input.tensor());
    }
    normalise(context, weights, record);
    const Views parts = attended(record);
    rotate(context, parts, false);

    record.heads = Activation(context, {context.tokens(), heads_ * head_dim_});
    record.log_sum_exp =
        Activation(context, {context.batch_size, heads_, context.sequence_length}, device::DType::float32);
    launch(context.stream, device::AttentionForward{.out = by_sequence(context, by_head(record.heads.tensor())),
                                                    .log_sum_exp = record.log_sum_exp.tensor(),
                                                    .query = by_sequence(context, parts.query),
                                                    .key = by_sequence(context, parts.key),
                                                    .value = by_sequence(context, parts.value),
                                                    .scale = scale_,
                                                    .max_logits = context.max_logits});
}

Activation Attention::project(const LayerContext& context, UnitTensors weights, const AttentionRecord& record) const {
    Activation out(context, {context.tokens(), hidden_size_});
    output_.forward(context, weights, out.tensor(), record.heads.tensor());
    return out;
}

Activation Attention::backward_core(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                                    Activation grad_heads, AttentionRecord& record) const {
    Activation grad_fused(context, {context.tokens(), columns()});
    const Views grads = views(grad_fused.tensor());
    const Activation delta(context, {context.batch_size, heads_, context.sequence_length}, device::DType::float32);
    const Views parts = attended(record);
    launch(context.stream, device::AttentionBackward{.grad_query = by_sequence(context, grads.query),
                                                     .grad_key = by_sequence(context, grads.key),
                                                     .grad_value = by_sequence(context, grads.value),
                                                     .delta = delta.tensor(),
                                                     .grad_out = by_sequence(context, by_head(grad_heads.tensor())),
                                                     .out = by_sequence(context, by_head(record.heads.tensor())),
                                                     .log_sum_exp = record.log_sum_exp.tensor(),
                                                     .query = by_sequence(context, parts.query),
                                                     .key = by_sequence(context, parts.key),
                                                     .value = by_sequence(context, parts.value),
                                                     .scale = scale_});
    record.query_key.release();
    record.heads.release();
    record.log_sum_exp.release();
    rotate(context, grads, true);
    if (norms_) {
        const Views projected = views(record.query_key_value.tensor());
        norms_->query.backward(context, weights, gradients, grads.query, projected.query, record.query_reciprocal);
        norms_->key.backward(context, weights, gradients, grads.key, projected.key, record.key_reciprocal);
        record.query_reciprocal.release();
        record.key_reciprocal.release();
    }
    record.query_key_value.release();
    return grad_fused;
}

Activation Attention::backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                               const Tensor& grad_out, AttentionRecord& record) const {
    output_.backward_parameters(context, gradients, grad_out, record.heads.tensor());
    Activation grad_heads(context, {context.tokens(), heads_ * head_dim_});
    output_.backward_input(context, weights, grad_heads.tensor(), grad_out);
    const Activation grad_fused = backward_core(context, weights, gradients, std::move(grad_heads), record);

    for (const Projection& projection : projections_) {
        projection.linear.backward_parameters(context, gradients, projection.of(grad_fused.tensor()),
                                              record.input.tensor());
    }
    record.input.release();
    Activation grad_input(context, {context.tokens(), hidden_size_});
    bool accumulate = false;  // the projections' contributions are added in their order
    for (const Projection& projection : projections_) {
        projection.linear.backward_input(context, weights, grad_input.tensor(), projection.of(grad_fused.tensor()),
                                         accumulate);
        accumulate = true;
    }
    return grad_input;
}

}  // namespace mfsdp::model
