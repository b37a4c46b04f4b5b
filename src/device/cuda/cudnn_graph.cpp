#include "device/cuda/cudnn_graph.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <iostream>
#include <utility>

namespace mfsdp::device::cuda::cudnn {

namespace {

constexpr std::int64_t kAlignmentBytes = 16;
constexpr std::int64_t kMostCandidates = 32;  // asked for from one heuristic

}  // namespace

void check(cudnnStatus_t status, const char* call, const char* file, int line) {
    if (status == CUDNN_STATUS_SUCCESS) return;
    std::array<char, 1024> details{};
    cudnnGetLastErrorString(details.data(), details.size());
    std::string text = "device: ";
    text.append(call).append(" failed at ").append(file).append(":").append(std::to_string(line));
    text.append(": ").append(cudnnGetErrorString(status));
    if (details.front() != '\0') text.append("; ").append(details.data());
    throw DeviceError(text);
}

Shape dense_strides(const Shape& shape) {
    Shape strides{};
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        strides[i] = stride;
        stride *= shape[i];
    }
    return strides;
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
    MFSDP_CUDNN(cudnnBackendCreateDescriptor(type, &descriptor_));
}

Descriptor::Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

Descriptor::~Descriptor() {
    if (descriptor_ == nullptr || cudnnBackendDestroyDescriptor(descriptor_) == CUDNN_STATUS_SUCCESS) return;
    std::cerr << "device: cudnnBackendDestroyDescriptor failed\n";
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                     const void* values) {
    MFSDP_CUDNN(cudnnBackendSetAttribute(descriptor_, name, type, count, values));
}

void Descriptor::set(cudnnBackendAttributeName_t name, std::int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, static_cast<void*>(&value));
}

void Descriptor::set_true(cudnnBackendAttributeName_t name) {
    const bool value = true;
    set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

std::int64_t Descriptor::integer(cudnnBackendAttributeName_t name) const {
    std::int64_t value = 0;
    std::int64_t count = 0;
    MFSDP_CUDNN(cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_INT64, 1, &count, &value));
    return value;
}

void Descriptor::finalize() { MFSDP_CUDNN(cudnnBackendFinalize(descriptor_)); }

cudnnStatus_t Descriptor::try_finalize() { return cudnnBackendFinalize(descriptor_); }

TensorId Graph::add(cudnnDataType_t type, const Shape& shape, const Shape& strides, bool in_memory, bool by_value) {
    const auto id = static_cast<std::int64_t>(tensors_.size()) + 1;
    Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::ssize(shape), shape.data());
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::ssize(strides), strides.data());
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignmentBytes);
    if (!in_memory) tensor.set_true(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    if (by_value) tensor.set_true(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    tensor.finalize();
    tensors_.push_back(std::move(tensor));
    return {id};
}

cudnnBackendDescriptor_t Graph::tensor(TensorId id) const {
    MFSDP_ASSERT(id.value >= 1 && id.value <= std::ssize(tensors_), "a graph's operations name its own tensors");
    return tensors_[static_cast<std::size_t>(id.value - 1)].get();
}

TensorId Graph::memory(cudnnDataType_t type, const Shape& shape, const Shape& strides) {
    return add(type, shape, strides, true, false);
}

TensorId Graph::scalar() { return add(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, true, true); }

TensorId Graph::matmul(TensorId a, TensorId b, const Shape& shape, cudnnDataType_t type, TensorId into) {
    const TensorId c = into.value != 0 ? into : add(type, shape, dense_strides(shape), false, false);
    Descriptor product(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    product.finalize();
    Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensor(a));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensor(b));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensor(c));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product.get());
    operation.finalize();
    parts_.push_back(std::move(product));
    operations_.push_back(std::move(operation));
    return c;
}

TensorId Graph::pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, std::int64_t axis, TensorId x, TensorId b,
                          TensorId mask, TensorId y) {
    Descriptor formula(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    formula.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    formula.set(CUDNN_ATTR_POINTWISE_MATH_PREC, math);
    if (axis >= 0) formula.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
    formula.finalize();
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, formula.get());
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensor(x));
    if (b.value != 0) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(b));
    if (mask.value != 0) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensor(mask));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensor(y));
    operation.finalize();
    parts_.push_back(std::move(formula));
    operations_.push_back(std::move(operation));
    return y;
}

TensorId Graph::pointwise(cudnnPointwiseMode_t mode, TensorId x, TensorId b, const Shape& shape, cudnnDataType_t type,
                          TensorId into) {
    const TensorId y = into.value != 0 ? into : add(type, shape, dense_strides(shape), false, false);
    const cudnnDataType_t math = type == CUDNN_DATA_BOOLEAN ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
    return pointwise(mode, math, -1, x, b, {}, y);
}

TensorId Graph::index(TensorId x, int axis, const Shape& shape) {
    const TensorId y = add(CUDNN_DATA_INT32, shape, dense_strides(shape), false, false);
    return pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, x, {}, {}, y);
}

TensorId Graph::select(TensorId x, TensorId other, TensorId mask, const Shape& shape) {
    const TensorId y = add(CUDNN_DATA_FLOAT, shape, dense_strides(shape), false, false);
    return pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x, other, mask, y);
}

TensorId Graph::reduce(cudnnReduceTensorOp_t how, TensorId x, const Shape& shape, TensorId into) {
    const TensorId y = into.value != 0 ? into : add(CUDNN_DATA_FLOAT, shape, dense_strides(shape), false, false);
    Descriptor reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    reduction.finalize();
    Descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensor(x));
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensor(y));
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction.get());
    operation.finalize();
    parts_.push_back(std::move(reduction));
    operations_.push_back(std::move(operation));
    return y;
}

TensorId Graph::reshape(TensorId x, const Shape& shape, const Shape& strides, cudnnDataType_t type) {
    const TensorId y = add(type, shape, strides, false, false);
    Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensor(x));
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensor(y));
    operation.finalize();
    operations_.push_back(std::move(operation));
    return y;
}

Descriptor Graph::finish(cudnnHandle_t handle) {
    std::vector<cudnnBackendDescriptor_t> operations;
    for (const Descriptor& operation : operations_) operations.push_back(operation.get());
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(operations),
              static_cast<const void*>(operations.data()));
    if (handle != nullptr) {
        graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, static_cast<const void*>(&handle));
    }
    graph.finalize();
    return graph;
}

Descriptor device_properties(const std::string& json) {
    Descriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(json) + 1, json.c_str());
    properties.finalize();
    return properties;
}

namespace {

bool is_deterministic(const Descriptor& configuration) {
    Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t found = engine.get();
    std::int64_t count = 0;
    MFSDP_CUDNN(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, static_cast<void*>(&found)));
    std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
    MFSDP_CUDNN(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                         std::ssize(notes), &count, notes.data()));
    const auto end = notes.begin() + std::min<std::int64_t>(count, std::ssize(notes));
    return std::find(notes.begin(), end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == end;
}

/// One of the statuses of what the library does not support.
bool is_refusal(cudnnStatus_t status) {
    return status >= CUDNN_STATUS_NOT_SUPPORTED && status < CUDNN_STATUS_INTERNAL_ERROR;
}

void append_candidates(const Descriptor& graph, const Target& target, cudnnBackendHeurMode_t mode,
                       std::vector<Candidate>& all) {
    Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get());
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (target.properties != nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.properties->get());
    // No engine at all is an answer.
    const cudnnStatus_t status = heuristic.try_finalize();
    if (is_refusal(status)) return;
    MFSDP_CUDNN(status);
    std::vector<Descriptor> configurations;
    std::vector<cudnnBackendDescriptor_t> places;
    for (std::int64_t i = 0; i < kMostCandidates; ++i) {
        configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        places.push_back(configurations.back().get());
    }
    std::int64_t count = 0;
    MFSDP_CUDNN(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         kMostCandidates, &count, static_cast<void*>(places.data())));
    for (std::int64_t i = 0; i < std::min(count, kMostCandidates); ++i) {
        Descriptor& configuration = configurations[static_cast<std::size_t>(i)];
        const bool deterministic = is_deterministic(configuration);
        all.push_back({std::move(configuration), deterministic});
    }
}

}  // namespace

std::vector<Candidate> candidates(const Descriptor& graph, const Target& target) {
    std::vector<Candidate> all;
    append_candidates(graph, target, CUDNN_HEUR_MODE_A, all);
    append_candidates(graph, target, CUDNN_HEUR_MODE_FALLBACK, all);
    return all;
}

std::optional<Plan> make_plan(Descriptor graph, const Target& target, bool deterministic) {
    for (Candidate& candidate : candidates(graph, target)) {
        if (deterministic && !candidate.is_deterministic) continue;
        Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidate.configuration.get());
        if (target.properties != nullptr) {
            plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.properties->get());
        } else {
            plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, static_cast<const void*>(&target.handle));
        }
        const cudnnStatus_t status = plan.try_finalize();
        if (status == CUDNN_STATUS_SUCCESS) {
            return Plan(std::move(graph), std::move(candidate.configuration), std::move(plan));
        }
        // On a GPU whatever fails is passed over: another configuration may be built, and our own kernels always can.
        if (!is_refusal(status) && target.properties != nullptr) MFSDP_CUDNN(status);
    }
    return std::nullopt;
}

Plan::Plan(Descriptor graph, Descriptor configuration, Descriptor plan)
    : graph_(std::move(graph)),
      configuration_(std::move(configuration)),
      plan_(std::move(plan)),
      workspace_bytes_(plan_.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)) {}

void Plan::execute(cudnnHandle_t handle, std::span<const std::int64_t> ids, std::span<void* const> addresses,
                   void* workspace) const {
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::ssize(ids), ids.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(addresses),
             static_cast<const void*>(addresses.data()));
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, static_cast<const void*>(&workspace));
    pack.finalize();
    MFSDP_CUDNN(cudnnBackendExecute(handle, plan_.get(), pack.get()));
}

}  // namespace mfsdp::device::cuda::cudnn
