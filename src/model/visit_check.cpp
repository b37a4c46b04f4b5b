#include "model/visit_check.h"

#include "mfsdp/base/error.h"

#include <initializer_list>
#include <string>
#include <vector>

namespace mfsdp::model {

using device::DType;
using device::Tensor;

namespace {

bool has_shape(const Tensor& tensor, std::span<const std::int64_t> shape) {
    if (tensor.rank != static_cast<int>(shape.size())) return false;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        if (tensor.shape[axis] != shape[axis]) return false;
    }
    return true;
}

void check_slot(const Tensor& slot, DType dtype, const char* name) {
    const std::int64_t one = 1;
    MFSDP_ASSERT(has_shape(slot, {&one, 1}) && slot.dtype == dtype && slot.defined(),
                 std::string(name) + " is one " + std::string(device::name(dtype)) + ", got " + slot.describe());
}

void check_logits(const ModelSpec& spec, const MicroBatch& micro_batch) {
    const Tensor& inputs = micro_batch.inputs;
    const Tensor& logits = micro_batch.logits;
    MFSDP_ASSERT(logits.rank == 3 && logits.shape[0] == inputs.shape[0] &&
                     (logits.shape[1] == inputs.shape[1] || logits.shape[1] == 1) &&
                     logits.shape[2] == spec.config.vocab_size && logits.dtype == DType::float32 && logits.is_dense() &&
                     logits.defined(),
                 "logits are dense [B, T or 1, V] float32, got " + logits.describe());
}

/// What a tensor of a unit must be: the parameter, or one panel of it.
struct Wanted {
    const ParameterSpec& parameter;
    std::int64_t panel_rows;  ///< of a table, else -1
    DType dtype;
    const char* what;

    void check(const Tensor& tensor) const {
        const std::int64_t panel[] = {panel_rows, parameter.columns()};
        const bool fits = panel_rows < 0 ? has_shape(tensor, parameter.shape) : has_shape(tensor, panel);
        MFSDP_ASSERT(fits && tensor.dtype == dtype && tensor.is_dense(),
                     "the " + std::string(what) + " of " + parameter.name + " is dense " +
                         std::string(device::name(dtype)) + " in the shape of " +
                         (panel_rows < 0 ? "the parameter" : "its panel") + ", got " + tensor.describe());
    }
};

}  // namespace

void check_micro_batch(const ModelSpec& spec, const TransformerOptions& options, Purpose purpose,
                       const MicroBatch& micro_batch) {
    const Tensor& inputs = micro_batch.inputs;
    MFSDP_ASSERT(
        inputs.rank == 2 && inputs.dtype == DType::int32 && inputs.is_dense() && inputs.count() > 0 && inputs.defined(),
        "inputs are dense [B, T] int32, got " + inputs.describe());
    MFSDP_ASSERT(inputs.shape[0] <= options.batch_size && inputs.shape[1] <= options.sequence_length,
                 "a micro-batch has at most " + std::to_string(options.batch_size) + " sequences of " +
                     std::to_string(options.sequence_length) + " tokens, got " + inputs.describe());
    if (purpose == Purpose::generate) {
        check_logits(spec, micro_batch);
        return;
    }
    const Tensor& targets = micro_batch.targets;
    MFSDP_ASSERT(
        same_shape(inputs, targets) && targets.dtype == DType::int32 && targets.is_dense() && targets.defined(),
        "targets are shaped like the inputs, got " + targets.describe());
    check_slot(micro_batch.loss_sum, DType::float64, "loss_sum");
    check_slot(micro_batch.target_count, DType::int64, "target_count");
    check_slot(micro_batch.log_z_squares, DType::float64, "log_z_squares");
    if (!micro_batch.max_logits.defined()) return;
    const std::int64_t heads[] = {spec.blocks(), spec.config.num_attention_heads};
    MFSDP_ASSERT(has_shape(micro_batch.max_logits, heads) && micro_batch.max_logits.dtype == DType::float32 &&
                     micro_batch.max_logits.is_dense(),
                 "max_logits are dense [blocks, heads] float32, got " + micro_batch.max_logits.describe());
}

void check_tensors(const ModelSpec& spec, const TransformerOptions& options, const UnitVisit& visit,
                   std::span<const Tensor> weights, std::span<const Tensor> gradients) {
    const UnitSpec& unit = spec.units[static_cast<std::size_t>(visit.unit)];
    const bool writes = visit.writes_parameters || visit.writes_panel;
    MFSDP_ASSERT(weights.size() == unit.parameters.size() || !(visit.reads_parameters || visit.reads_panel),
                 unit.name + " has " + std::to_string(unit.parameters.size()) + " parameters, got " +
                     std::to_string(weights.size()) + " weights");
    MFSDP_ASSERT(gradients.size() == unit.parameters.size() || !writes,
                 unit.name + " has " + std::to_string(unit.parameters.size()) + " parameters, got " +
                     std::to_string(gradients.size()) + " gradients");
    for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
        const bool is_table = static_cast<std::int64_t>(i) == unit.table;
        const ParameterSpec& parameter = spec.parameters[static_cast<std::size_t>(unit.parameters[i])];
        const std::int64_t panel_rows = is_table ? spec.panel_rows(visit.panel) : -1;
        if (is_table ? visit.reads_panel : visit.reads_parameters) {
            MFSDP_ASSERT(weights[i].defined(), "the weight of " + parameter.name + " is read in this visit");
            Wanted{parameter, panel_rows, options.compute_type, "weight"}.check(weights[i]);
        }
        if ((is_table ? visit.writes_panel : visit.writes_parameters) && gradients[i].defined()) {
            Wanted{parameter, panel_rows, options.gradient_type, "gradient"}.check(gradients[i]);
        }
    }
}

}  // namespace mfsdp::model
