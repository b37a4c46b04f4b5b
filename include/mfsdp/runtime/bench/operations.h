#pragma once

#include "mfsdp/device/memory.h"
#include "mfsdp/model/parameter_spec.h"
#include "mfsdp/runtime/bench/timing.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::runtime {

/// The memory and the stream on which one case of a benchmark runs.
class Workbench {
  public:
    explicit Workbench(device::Device& device) : device_(device), stream_(device.make_stream()) {}
    Workbench(const Workbench&) = delete;
    Workbench& operator=(const Workbench&) = delete;
    ~Workbench() { stream_->synchronize(); }

    [[nodiscard]] device::Stream& stream() { return *stream_; }
    /// A dense tensor of small values, different from each other; integers are 0.
    [[nodiscard]] device::Tensor tensor(device::DType dtype, std::initializer_list<std::int64_t> shape);
    /// [count] int32, spread over [0, limit).
    [[nodiscard]] device::Tensor ids(std::int64_t count, std::int64_t limit);

  private:
    device::Device& device_;
    device::MemoryLedger ledger_;
    std::unique_ptr<device::Stream> stream_;
    std::vector<device::Buffer> buffers_;
};

/// An operation with its operands: what is timed, and what it costs by its own account (the counting device's).
struct PreparedOperation {
    std::function<void()> issue;
    device::Cost cost;
};

/// One line of the table of operations.
struct OperationCase {
    std::string_view operation;  ///< its kName
    std::string use;             ///< "mlp.c_fc weight gradient"
    std::string shape;           ///< "3072 x 768 x 256"
    std::function<PreparedOperation(Workbench&)> prepare;
};

/// Every operation that a step of this model takes, at its shapes, once each: products of every matrix of a block and
/// of a panel of the head, forward and backward; the rest of a layer; the optimizers on the block's largest matrix.
/// The gpt2 and the llama family together have every operation of the table.
///
/// values  type of weights and activations: float32
[[nodiscard]] std::vector<OperationCase> operation_cases(const model::ModelConfig& config, std::int64_t batch_size,
                                                         std::int64_t sequence_length, device::DType values);

struct OperationFigures {
    Timing timing;
    device::Cost cost;
};
/// Allocates, times, releases.
[[nodiscard]] OperationFigures measure(const OperationCase& operation, device::Device& device,
                                       const TimingOptions& options);

}  // namespace mfsdp::runtime
