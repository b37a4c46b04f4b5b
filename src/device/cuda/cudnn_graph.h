#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <cudnn.h>

namespace mfsdp::device::cuda::cudnn {

// cuDNN's graph interface, as much of it as attention needs: a graph of operations on 4-D tensors, the plan by which an
// engine computes it, and its execution.

/// Throws DeviceError with the call, its place and cuDNN's text unless the call succeeded.
void check(cudnnStatus_t status, const char* call, const char* file, int line);

using Shape = std::array<std::int64_t, 4>;

/// Strides of a dense row-major tensor.
[[nodiscard]] Shape dense_strides(const Shape& shape);

/// An object of the graph interface.
class Descriptor {
  public:
    Descriptor() = default;
    explicit Descriptor(cudnnBackendDescriptorType_t type);
    Descriptor(Descriptor&& other) noexcept;
    Descriptor& operator=(Descriptor&& other) noexcept;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor();

    [[nodiscard]] cudnnBackendDescriptor_t get() const { return descriptor_; }
    void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
             const void* values);
    void set(cudnnBackendAttributeName_t name, std::int64_t value);
    void set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
    void set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
    void set_true(cudnnBackendAttributeName_t name);
    /// The attribute's number, or the bytes of a text.
    [[nodiscard]] std::int64_t integer(cudnnBackendAttributeName_t name) const;
    void finalize();
    /// The status instead of an exception: a refusal is an answer where engines are asked.
    [[nodiscard]] cudnnStatus_t try_finalize();

  private:
    cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// Names a tensor of a graph.
struct TensorId {
    std::int64_t value = 0;  ///< from 1; 0: none
};

/// Builds a graph operation by operation, as its formulas are written.
class Graph {
  public:
    /// A tensor in memory.
    [[nodiscard]] TensorId memory(cudnnDataType_t type, const Shape& shape, const Shape& strides);
    /// A number that the host gives at execution.
    [[nodiscard]] TensorId scalar();

    // Each returns its result: between operations, dense, of `type`, unless `into` names one in memory.
    TensorId matmul(TensorId a, TensorId b, const Shape& shape, cudnnDataType_t type, TensorId into = {});
    TensorId pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId b, const Shape& shape,
                       cudnnDataType_t type = CUDNN_DATA_FLOAT, TensorId into = {});
    TensorId reduce(cudnnReduceTensorOp_t operation, TensorId x, const Shape& shape, TensorId into = {});
    /// The index along `axis` at every place, as int32.
    TensorId index(TensorId x, int axis, const Shape& shape);
    /// x where mask, else other.
    TensorId select(TensorId x, TensorId other, TensorId mask, const Shape& shape);
    /// The same values under other strides.
    TensorId reshape(TensorId x, const Shape& shape, const Shape& strides, cudnnDataType_t type);

    /// Ready for engines; `handle` may be null where there is no GPU.
    [[nodiscard]] Descriptor finish(cudnnHandle_t handle);

  private:
    TensorId add(cudnnDataType_t type, const Shape& shape, const Shape& strides, bool in_memory, bool by_value);
    [[nodiscard]] cudnnBackendDescriptor_t tensor(TensorId id) const;
    TensorId pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, std::int64_t axis, TensorId x, TensorId b,
                       TensorId mask, TensorId y);

    std::vector<Descriptor> tensors_;  // tensor i + 1
    std::vector<Descriptor> operations_;
    std::vector<Descriptor> parts_;  // what operations refer to
};

/// What computes: a GPU through its handle, or for checks without one the properties of a GPU as cuDNN's JSON.
struct Target {
    cudnnHandle_t handle = nullptr;
    const Descriptor* properties = nullptr;
};
[[nodiscard]] Descriptor device_properties(const std::string& json);

/// How an engine computes a graph.
class Plan {
  public:
    Plan(Descriptor graph, Descriptor configuration, Descriptor plan);

    [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }
    /// Issues the graph to the handle's stream. `addresses[i]` is where tensor `ids[i]` is: device memory, host memory
    /// of scalars.
    void execute(cudnnHandle_t handle, std::span<const std::int64_t> ids, std::span<void* const> addresses,
                 void* workspace) const;

  private:
    Descriptor graph_, configuration_, plan_;
    std::int64_t workspace_bytes_ = 0;
};

/// What engines answer to a graph.
struct Candidate {
    Descriptor configuration;
    bool is_deterministic = true;  ///< by its engine's numerical notes
};
/// Configurations of engines that take the graph, the best by cuDNN's heuristics first.
[[nodiscard]] std::vector<Candidate> candidates(const Descriptor& graph, const Target& target);

/// The plan of the first candidate that can be made into one: empty if no engine takes the graph. `deterministic`
/// passes over engines whose notes say that their results vary from run to run.
[[nodiscard]] std::optional<Plan> make_plan(Descriptor graph, const Target& target, bool deterministic);

}  // namespace mfsdp::device::cuda::cudnn

/// `MFSDP_CUDNN(cudnnCreate(&handle))`: throws DeviceError if the call fails.
#define MFSDP_CUDNN(call) ::mfsdp::device::cuda::cudnn::check((call), #call, __FILE__, __LINE__)
