#include "mfsdp/base/error.h"
#include "mfsdp/runtime/bench/benchmarks.h"
#include "mfsdp/runtime/bench/operations.h"

namespace mfsdp::runtime {

namespace {

void add_cases(const BenchContext& context, const OperationsQuestion& question, const std::string& model_name,
               const model::ModelConfig& model, const MachinePeak& peak, BenchTable& table) {
    const std::vector<OperationCase> cases =
        operation_cases(model, question.batch_size, question.sequence_length, question.dtype);
    for (const OperationCase& operation : cases) {
        const std::string label = std::string(operation.operation) + " " + operation.use;
        if (label.find(question.only) == std::string::npos) continue;
        const OperationFigures figures = measure(operation, context.device, context.timing);
        const double flops = static_cast<double>(figures.cost.flops) / figures.timing.median_seconds;
        const double bytes = static_cast<double>(figures.cost.bytes) / figures.timing.median_seconds;
        table.row({model_name, std::string(operation.operation), operation.use, operation.shape,
                   std::int64_t{figures.timing.repeats}, figures.timing.median_seconds, figures.timing.least_seconds,
                   figures.cost.flops, flops, flops / peak.flops_per_second, figures.cost.bytes, bytes,
                   bytes / peak.bytes_per_second});
    }
}

}  // namespace

model::ModelConfig gpt2_124m() {
    model::ModelConfig config;
    config.family = model::ModelFamily::gpt2;
    config.vocab_size = 50257;
    config.hidden_size = 768;
    config.num_hidden_layers = 12;
    config.num_attention_heads = config.num_key_value_heads = 12;
    config.head_dim = 64;
    config.intermediate_size = 3072;
    config.max_position_embeddings = 1024;
    config.attention_bias = config.mlp_bias = true;
    config.tie_word_embeddings = true;
    return config;
}

model::ModelConfig llama_1b() {
    model::ModelConfig config;
    config.family = model::ModelFamily::llama;
    config.vocab_size = 128256;
    config.hidden_size = 2048;
    config.num_hidden_layers = 16;
    config.num_attention_heads = 32;
    config.num_key_value_heads = 8;
    config.head_dim = 64;
    config.intermediate_size = 8192;
    config.max_position_embeddings = 4096;
    config.rope_theta = 500000.0;
    config.tie_word_embeddings = true;
    return config;
}

BenchTable bench_operations(const BenchContext& context, const OperationsQuestion& question) {
    if (context.communicator.size() != 1) {
        throw ConfigError("bench: ops measures one rank, started with " + std::to_string(context.communicator.size()));
    }
    BenchTable table{.benchmark = "ops"};
    const MachinePeak peak = measure_peak(context.device, question.dtype, context.timing);
    table.fact("dtype", std::string(device::name(question.dtype)));
    table.fact("sequences of a micro-batch", question.batch_size);
    table.fact("tokens of a sequence", question.sequence_length);
    table.fact("peak of products, FLOP/s", peak.flops_per_second);
    table.fact("peak of copies, bytes/s", peak.bytes_per_second);
    table.columns = {{"model", "model"},
                     {"operation", "operation"},
                     {"use", "use"},
                     {"shape", "shape"},
                     {"repeats", "repeats"},
                     {"median_seconds", "median ms", 1e3, 3},
                     {"least_seconds", "least ms", 1e3, 3},
                     {"flops", "MFLOP", 1e-6, 1},
                     {"flops_per_second", "GFLOP/s", 1e-9, 1},
                     {"share_of_flops_peak", "% of peak", 1e2, 1},
                     {"bytes", "MB", 1e-6, 2},
                     {"bytes_per_second", "GB/s", 1e-9, 2},
                     {"share_of_bytes_peak", "% of copy", 1e2, 1}};
    if (question.model) {
        add_cases(context, question, "config", *question.model, peak, table);
    } else {
        add_cases(context, question, "gpt2_124m", gpt2_124m(), peak, table);
        add_cases(context, question, "llama_1b", llama_1b(), peak, table);
    }
    if (table.rows.empty()) throw ConfigError("bench: --only " + question.only + ": no operation or use has this text");
    return table;
}

}  // namespace mfsdp::runtime
