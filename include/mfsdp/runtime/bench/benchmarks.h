#pragma once

#include "mfsdp/runtime/bench/table.h"
#include "mfsdp/runtime/bench/timing.h"
#include "mfsdp/runtime/config/train_config.h"
#include "mfsdp/runtime/train/machine.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace mfsdp::runtime {

// The benchmarks of mfsdp-bench. Every rank calls them; the table is complete on rank 0.

/// Where a benchmark runs and how long it measures.
struct BenchContext {
    comm::Communicator& communicator;
    device::Device& device;
    const Machine& machine;
    TimingOptions timing;
    bool decomposes = true;  ///< this program has solvers: Shampoo and SOAP can be measured
    int threads = 1;         ///< of a rank
};

/// What operations are timed at.
struct OperationsQuestion {
    std::optional<model::ModelConfig> model;  ///< empty: GPT-2 124M, then Llama 1B
    std::int64_t batch_size = 4;
    std::int64_t sequence_length = 64;
    device::DType dtype = device::DType::float32;  ///< of weights and activations
    std::string only;                              ///< operations and uses that contain this text; empty: all
};
/// Every operation of the table at layer shapes: time, FLOP/s and bytes/s, and their shares of what large products and
/// copies reach in the same run. On one rank.
[[nodiscard]] BenchTable bench_operations(const BenchContext& context, const OperationsQuestion& question);

/// Steps of a configuration on synthetic tokens: forward, backward, optimizer, tokens/s, FLOP/s, share of the ranks'
/// measured peak; bytes moved and memory used beside what the rehearsal planned.
[[nodiscard]] BenchTable bench_step(const BenchContext& context, const TrainConfig& config, int steps);
/// The optimizer step of a configuration, which does not depend on tokens: micro-batches are made one short sequence
/// per rank, so that little else is computed.
[[nodiscard]] BenchTable bench_optimizer(const BenchContext& context, const TrainConfig& config, int steps);
/// A matrix of a weight, rows x columns = out x in.
struct MatrixShape {
    std::int64_t rows = 0, columns = 0;
};
/// One matrix of each shape under every optimizer, on one rank: time, FLOP/s, share of a large product timed in turn
/// with them, and the time that the planner's costs predict from measured rates of the kinds of work.
[[nodiscard]] BenchTable bench_matrices(const BenchContext& context, std::span<const MatrixShape> shapes);
/// Every group's gather and reduce schedule between the ranks: bytes moved and planned, time of the slowest rank,
/// bandwidth, and the time that the link costs predict.
[[nodiscard]] BenchTable bench_gather(const BenchContext& context, const TrainConfig& config);

/// Measures what links cost between ranks. `write` gets the text of the calibration file, on rank 0.
[[nodiscard]] BenchTable bench_calibrate(const BenchContext& context, const BenchEnvironment& environment,
                                         const std::function<void(const std::string&)>& write);

/// GPT-2 small, and the shapes of configs/llama_1b.json.
[[nodiscard]] model::ModelConfig gpt2_124m();
[[nodiscard]] model::ModelConfig llama_1b();

}  // namespace mfsdp::runtime
