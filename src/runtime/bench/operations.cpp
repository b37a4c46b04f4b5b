#include "mfsdp/runtime/bench/operations.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/operation_table.h"

#include "runtime/bench/case_list.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

namespace mfsdp::runtime {

namespace {

using namespace device;

/// Collects the cases of one model.
class Cases {
  public:
    Cases(const model::ModelConfig& config, std::int64_t batch_size, std::int64_t sequence_length, DType values)
        : spec_(model::describe_model(config)),
          batch_(batch_size),
          length_(sequence_length),
          tokens_(batch_size * sequence_length),
          hidden_(config.hidden_size),
          panel_(spec_.panel_rows(0)),
          values_(values) {}

    std::vector<OperationCase> run() {
        add_products();
        add_vocabulary();
        add_layer();
        add_attention();
        add_optimizer_cases(cases_, spec_, *largest_);
        add_elementwise();
        return cases_.take();
    }

  private:
    template <class Op, class Make>
    void add(std::string use, std::initializer_list<std::int64_t> sizes, Make make) {
        cases_.add<Op>(std::move(use), sizes, std::move(make));
    }

    /// out [m, n] of a product over k.
    void add_product(const std::string& use, std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a,
                     bool transpose_b, DType out) {
        add<Matmul>(use, {m, n, k}, [=, values = values_](Workbench& bench) {
            return Matmul{.out = bench.tensor(out, {m, n}),
                          .a = transpose_a ? bench.tensor(values, {k, m}) : bench.tensor(values, {m, k}),
                          .b = transpose_b ? bench.tensor(values, {n, k}) : bench.tensor(values, {k, n}),
                          .transpose_a = transpose_a,
                          .transpose_b = transpose_b};
        });
    }

    /// The three products of a weight [rows, columns].
    void add_weight(const std::string& name, std::int64_t rows, std::int64_t columns) {
        add_product(name + " forward", tokens_, rows, columns, false, true, values_);
        add_product(name + " input gradient", tokens_, columns, rows, false, false, values_);
        add_product(name + " weight gradient", rows, columns, tokens_, true, false, values_);
    }

    void add_products() {
        for (const std::int64_t index : spec_.units[1].parameters) {
            const model::ParameterSpec& parameter = spec_.parameters[static_cast<std::size_t>(index)];
            if (parameter.kind != model::ParameterKind::block_matrix) continue;
            // "transformer.h.0.attn.c_attn.weight" is known as "attn.c_attn".
            std::string name = parameter.name.substr(0, parameter.name.rfind('.'));
            name = name.substr(name.find(".0.") + 3);
            add_weight(name, parameter.rows(), parameter.columns());
            if (largest_ == nullptr || parameter.count() > largest_->count()) largest_ = &parameter;
        }
        MFSDP_ASSERT(largest_ != nullptr, "a block has matrices");
        const std::int64_t rows = std::min(largest_->rows(), largest_->columns());
        const std::int64_t columns = std::max(largest_->rows(), largest_->columns());
        add_product("Newton-Schulz X X^T", rows, rows, columns, false, true, DType::float32);
        add_product("Newton-Schulz A A", rows, rows, rows, false, false, DType::float32);
        add_product("Newton-Schulz B X", rows, columns, rows, false, false, DType::float32);
    }

    void add_vocabulary() {
        const std::int64_t n = tokens_, c = hidden_, v = panel_;
        const DType values = values_;
        add_weight("head panel", v, c);
        add<EmbeddingForward>("a panel of the table", {n, v, c}, [=](Workbench& bench) {
            return EmbeddingForward{bench.tensor(values, {n, c}), bench.tensor(values, {v, c}), bench.ids(n, v)};
        });
        add<EmbeddingBackward>("a panel of the table", {n, v, c}, [=](Workbench& bench) {
            return EmbeddingBackward{bench.tensor(values, {v, c}), bench.tensor(values, {n, c}), bench.ids(n, v)};
        });
        add<LogSumExpUpdate>("head panel", {n, v}, [=](Workbench& bench) {
            return LogSumExpUpdate{.maximum = bench.tensor(DType::float32, {n}),
                                   .sum = bench.tensor(DType::float32, {n}),
                                   .target_logit = bench.tensor(DType::float32, {n}),
                                   .logits = bench.tensor(DType::float32, {n, v}),
                                   .targets = bench.ids(n, v),
                                   .first = true};
        });
        add<CrossEntropyBackward>("head panel", {n, v}, [=](Workbench& bench) {
            return CrossEntropyBackward{.grad = bench.tensor(values, {n, v}),
                                        .logits = bench.tensor(DType::float32, {n, v}),
                                        .maximum = bench.tensor(DType::float32, {n}),
                                        .sum = bench.tensor(DType::float32, {n}),
                                        .targets = bench.ids(n, v)};
        });
        add<LossSum>("a micro-batch", {n}, [=](Workbench& bench) {
            return LossSum{.loss_sum = bench.tensor(DType::float64, {1}),
                           .target_count = bench.tensor(DType::int64, {1}),
                           .log_z_squares = bench.tensor(DType::float64, {1}),
                           .maximum = bench.tensor(DType::float32, {n}),
                           .sum = bench.tensor(DType::float32, {n}),
                           .target_logit = bench.tensor(DType::float32, {n}),
                           .targets = bench.ids(n, v)};
        });
    }

    void add_layer() {
        if (spec_.config.family == model::ModelFamily::gpt2) {
            add_gpt2_layer();
        } else {
            add_llama_layer();
        }
    }

    void add_gpt2_layer() {
        const std::int64_t n = tokens_, c = hidden_, f = spec_.config.intermediate_size;
        const std::int64_t b = batch_, t = length_;
        const DType values = values_;
        add<PositionForward>("positions", {b, t, c}, [=](Workbench& bench) {
            return PositionForward{bench.tensor(values, {b, t, c}), bench.tensor(values, {t, c})};
        });
        add<PositionBackward>("positions", {b, t, c}, [=](Workbench& bench) {
            return PositionBackward{bench.tensor(values, {t, c}), bench.tensor(values, {b, t, c})};
        });
        add<LayerNormForward>("ln_1", {n, c}, [=](Workbench& bench) {
            return LayerNormForward{bench.tensor(values, {n, c}),      bench.tensor(DType::float32, {n}),
                                    bench.tensor(DType::float32, {n}), bench.tensor(values, {n, c}),
                                    bench.tensor(values, {c}),         bench.tensor(values, {c})};
        });
        add<LayerNormBackward>("ln_1", {n, c}, [=](Workbench& bench) {
            return LayerNormBackward{
                bench.tensor(values, {n, c}),      bench.tensor(values, {c}),    bench.tensor(values, {c}),
                bench.tensor(values, {n, c}),      bench.tensor(values, {n, c}), bench.tensor(DType::float32, {n}),
                bench.tensor(DType::float32, {n}), bench.tensor(values, {c}),    true};
        });
        add<Matmul>("mlp.c_fc forward with GELU", {n, f, c}, [=](Workbench& bench) {
            return Matmul{.out = bench.tensor(values, {n, f}),
                          .a = bench.tensor(values, {n, c}),
                          .b = bench.tensor(values, {f, c}),
                          .transpose_b = true,
                          .bias = bench.tensor(values, {f}),
                          .gelu = bench.tensor(values, {n, f})};
        });
        add<GeluForward>("mlp", {n, f}, [=](Workbench& bench) {
            return GeluForward{bench.tensor(values, {n, f}), bench.tensor(values, {n, f})};
        });
        add<GeluBackward>("mlp", {n, f}, [=](Workbench& bench) {
            return GeluBackward{bench.tensor(values, {n, f}), bench.tensor(values, {n, f}),
                                bench.tensor(values, {n, f})};
        });
        add<ColumnSum>("bias gradient", {n, f}, [=](Workbench& bench) {
            return ColumnSum{bench.tensor(values, {f}), bench.tensor(values, {n, f})};
        });
    }

    void add_llama_layer() {
        const std::int64_t n = tokens_, c = hidden_, f = spec_.config.intermediate_size;
        const std::int64_t b = batch_, t = length_, h = spec_.config.num_attention_heads, d = spec_.config.head_dim;
        const DType values = values_;
        add<RmsNormForward>("input_layernorm", {n, c}, [=](Workbench& bench) {
            return RmsNormForward{bench.tensor(values, {n, c}), bench.tensor(DType::float32, {n}),
                                  bench.tensor(values, {n, c}), bench.tensor(values, {c})};
        });
        add<RmsNormBackward>("input_layernorm", {n, c}, [=](Workbench& bench) {
            return RmsNormBackward{bench.tensor(values, {n, c}),
                                   bench.tensor(values, {c}),
                                   bench.tensor(values, {n, c}),
                                   bench.tensor(values, {n, c}),
                                   bench.tensor(DType::float32, {n}),
                                   bench.tensor(values, {c}),
                                   true};
        });
        add<SwiGluForward>("mlp", {n, f}, [=](Workbench& bench) {
            return SwiGluForward{bench.tensor(values, {n, f}), bench.tensor(values, {n, f}),
                                 bench.tensor(values, {n, f})};
        });
        add<SwiGluBackward>("mlp", {n, f}, [=](Workbench& bench) {
            return SwiGluBackward{bench.tensor(values, {n, f}), bench.tensor(values, {n, f}),
                                  bench.tensor(values, {n, f}), bench.tensor(values, {n, f}),
                                  bench.tensor(values, {n, f})};
        });
        add<Rotary>("queries", {b, t, h, d}, [=](Workbench& bench) {
            return Rotary{bench.tensor(values, {b, t, h, d}), bench.tensor(DType::float32, {t, d / 2}),
                          bench.tensor(DType::float32, {t, d / 2})};
        });
    }

    void add_attention() {
        const std::int64_t b = batch_, t = length_, h = spec_.config.num_attention_heads;
        const std::int64_t k = spec_.config.num_key_value_heads, d = spec_.config.head_dim;
        const float scale = 1.0F / std::sqrt(static_cast<float>(d));
        const DType values = values_;
        add<AttentionForward>("causal", {b, t, h, k, d}, [=](Workbench& bench) {
            return AttentionForward{bench.tensor(values, {b, t, h, d}), bench.tensor(DType::float32, {b, h, t}),
                                    bench.tensor(values, {b, t, h, d}), bench.tensor(values, {b, t, k, d}),
                                    bench.tensor(values, {b, t, k, d}), scale};
        });
        add<AttentionBackward>("causal", {b, t, h, k, d}, [=](Workbench& bench) {
            return AttentionBackward{bench.tensor(values, {b, t, h, d}),
                                     bench.tensor(values, {b, t, k, d}),
                                     bench.tensor(values, {b, t, k, d}),
                                     bench.tensor(DType::float32, {b, h, t}),
                                     bench.tensor(values, {b, t, h, d}),
                                     bench.tensor(values, {b, t, h, d}),
                                     bench.tensor(DType::float32, {b, h, t}),
                                     bench.tensor(values, {b, t, h, d}),
                                     bench.tensor(values, {b, t, k, d}),
                                     bench.tensor(values, {b, t, k, d}),
                                     scale};
        });
    }

    void add_elementwise() {
        const std::int64_t n = tokens_, c = hidden_, f = spec_.config.intermediate_size;
        constexpr DType kFloat = DType::float32;
        add<Fill>("activations", {n, f}, [=](Workbench& bench) { return Fill{bench.tensor(kFloat, {n, f}), 0.0}; });
        add<Copy>("activations", {n, f}, [=](Workbench& bench) {
            return Copy{bench.tensor(kFloat, {n, f}), bench.tensor(kFloat, {n, f})};
        });
        add<Add>("residual", {n, c}, [=](Workbench& bench) {
            return Add{bench.tensor(kFloat, {n, c}), bench.tensor(kFloat, {n, c}), bench.tensor(kFloat, {n, c})};
        });
        add<ScaledAdd>("b A + c A A", {c, c}, [=](Workbench& bench) {
            return ScaledAdd{bench.tensor(kFloat, {c, c}), bench.tensor(kFloat, {c, c}), bench.tensor(kFloat, {c, c}),
                             0.5F, 0.5F};
        });
        add<Transpose>("a tall matrix", {f, c}, [=](Workbench& bench) {
            return Transpose{bench.tensor(kFloat, {c, f}), bench.tensor(kFloat, {f, c})};
        });
        add<FillNormal>("initial weights", {f, c}, [=](Workbench& bench) {
            return FillNormal{.out = bench.tensor(kFloat, {f, c}), .key = 1, .standard_deviation = 0.02};
        });
        // The host's side of the two copies lives as long as the cases.
        const auto host = std::make_shared<std::vector<std::int32_t>>(static_cast<std::size_t>(n));
        add<CopyFromHost>("tokens", {n}, [=](Workbench& bench) {
            return CopyFromHost{bench.tensor(DType::int32, {n}), host->data()};
        });
        add<CopyToHost>("tokens", {n}, [=](Workbench& bench) {
            return CopyToHost{host->data(), bench.tensor(DType::int32, {n})};
        });
    }

    model::ModelSpec spec_;
    std::int64_t batch_, length_, tokens_, hidden_, panel_;
    DType values_;
    const model::ParameterSpec* largest_ = nullptr;
    CaseList cases_;
};

}  // namespace

std::vector<OperationCase> operation_cases(const model::ModelConfig& config, std::int64_t batch_size,
                                           std::int64_t sequence_length, device::DType values) {
    return Cases(config, batch_size, sequence_length, values).run();
}

}  // namespace mfsdp::runtime
