#include "model/layers/mlp.h"

#include "mfsdp/device/device.h"

namespace mfsdp::model {

using device::launch;
using device::Tensor;

namespace {

bool has_bias(const ModelConfig& config) { return config.family == ModelFamily::gpt2 || config.mlp_bias; }

}  // namespace

Mlp::Mlp(ParameterCursor& cursor, const ModelConfig& config)
    : hidden_size_(config.hidden_size),
      intermediate_size_(config.intermediate_size),
      gate_(cursor, has_bias(config)),
      up_(config.family == ModelFamily::gpt2 ? std::nullopt : std::optional<Linear>(Linear(cursor, has_bias(config)))),
      down_(cursor, has_bias(config)) {}

void Mlp::forward(const LayerContext& context, UnitTensors weights, Activation input, MlpRecord& record) const {
    const std::int64_t tokens = context.tokens();
    record.input = std::move(input);
    record.gate = Activation(context, {tokens, intermediate_size_});
    if (!up_) {
        record.hidden = Activation(context, {tokens, intermediate_size_});
        gate_.forward(context, weights, record.gate.tensor(), record.input.tensor(), record.hidden.tensor());
        return;
    }
    gate_.forward(context, weights, record.gate.tensor(), record.input.tensor());
    record.up = Activation(context, {tokens, intermediate_size_});
    up_->forward(context, weights, record.up.tensor(), record.input.tensor());
    record.hidden = Activation(context, {tokens, intermediate_size_});
    launch(context.stream, device::SwiGluForward{
                               .out = record.hidden.tensor(), .gate = record.gate.tensor(), .up = record.up.tensor()});
}

Activation Mlp::project(const LayerContext& context, UnitTensors weights, const MlpRecord& record) const {
    Activation out(context, {context.tokens(), hidden_size_});
    down_.forward(context, weights, out.tensor(), record.hidden.tensor());
    return out;
}

Activation Mlp::backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                         const Tensor& grad_out, MlpRecord& record) const {
    const std::int64_t tokens = context.tokens();
    down_.backward_parameters(context, gradients, grad_out, record.hidden.tensor());
    record.hidden.release();
    const Activation grad_gate(context, {tokens, intermediate_size_});
    down_.backward_input(context, weights, grad_gate.tensor(), grad_out);

    // The gradient of the hidden values turns into that of the gate in place.
    Activation grad_up;
    if (up_) {
        grad_up = Activation(context, {tokens, intermediate_size_});
        launch(context.stream, device::SwiGluBackward{.grad_gate = grad_gate.tensor(),
                                                      .grad_up = grad_up.tensor(),
                                                      .grad_out = grad_gate.tensor(),
                                                      .gate = record.gate.tensor(),
                                                      .up = record.up.tensor()});
    } else {
        launch(context.stream,
               device::GeluBackward{
                   .grad_in = grad_gate.tensor(), .grad_out = grad_gate.tensor(), .in = record.gate.tensor()});
    }
    record.gate.release();
    record.up.release();

    gate_.backward_parameters(context, gradients, grad_gate.tensor(), record.input.tensor());
    if (up_) up_->backward_parameters(context, gradients, grad_up.tensor(), record.input.tensor());
    record.input.release();
    Activation grad_input(context, {tokens, hidden_size_});
    gate_.backward_input(context, weights, grad_input.tensor(), grad_gate.tensor());
    if (up_) up_->backward_input(context, weights, grad_input.tensor(), grad_up.tensor(), true);
    return grad_input;
}

}  // namespace mfsdp::model
