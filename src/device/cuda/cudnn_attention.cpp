#include "device/cuda/cudnn_attention_graph.h"
#include "device/cuda/fused_attention.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace mfsdp::device::cuda {

namespace {

using cudnn::AttentionShape;

/// A handle of cuDNN on the present GPU.
class OwnedHandle {
  public:
    OwnedHandle() { MFSDP_CUDNN(cudnnCreate(&handle_)); }
    OwnedHandle(const OwnedHandle&) = delete;
    OwnedHandle& operator=(const OwnedHandle&) = delete;
    ~OwnedHandle() { cudnnDestroy(handle_); }
    [[nodiscard]] cudnnHandle_t get() const { return handle_; }

  private:
    cudnnHandle_t handle_ = nullptr;
};

/// A plan and the tensors that it asks for, in the order in which their addresses are given.
struct Prepared {
    cudnn::Plan plan;
    std::vector<std::int64_t> ids;
};

/// Every head starts where 16 bytes can be read at once.
bool is_aligned(const Tensor& tensor) {
    constexpr std::int64_t kElements = 8;
    return reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0 && tensor.strides[0] % kElements == 0 &&
           tensor.strides[1] % kElements == 0 && tensor.strides[2] % kElements == 0;
}

AttentionShape shape_of(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& out) {
    AttentionShape shape;
    shape.dtype = query.dtype;
    shape.batch = query.shape[0];
    shape.positions = query.shape[1];
    shape.heads = query.shape[2];
    shape.key_heads = key.shape[2];
    shape.head_dim = query.shape[3];
    shape.query = cudnn::head_strides(query);
    shape.key = cudnn::head_strides(key);
    shape.value = cudnn::head_strides(value);
    shape.out = cudnn::head_strides(out);
    return shape;
}

class CudnnAttention final : public FusedAttention {
  public:
    explicit CudnnAttention(bool deterministic) : deterministic_(deterministic) {}

    [[nodiscard]] bool forward(const Context& context, const AttentionForward& operation) override {
        const AttentionForward& o = operation;
        if (!takes({o.query, o.key, o.value, o.out})) return decline("forward", o.query, o.key);
        const AttentionShape shape = shape_of(o.query, o.key, o.value, o.out);
        const Prepared* const prepared = find(forward_, shape, [&] {
            cudnn::ForwardGraph built = cudnn::forward_graph(shape);
            return prepare(built.graph, {built.query, built.key, built.value, built.scale, built.masked, built.out,
                                         built.log_sum_exp});
        });
        if (prepared == nullptr) return decline("forward", o.query, o.key);
        execute(context, *prepared,
                {o.query.data, o.key.data, o.value.data, host(o.scale), host(kMasked), o.out.data, o.log_sum_exp.data});
        return true;
    }

    [[nodiscard]] bool backward(const Context& context, const AttentionBackward& operation) override {
        const AttentionBackward& o = operation;
        if (!takes({o.query, o.key, o.value, o.out, o.grad_out, o.grad_query, o.grad_key, o.grad_value})) {
            return decline("backward", o.query, o.key);
        }
        AttentionShape shape = shape_of(o.query, o.key, o.value, o.out);
        shape.grad_query = cudnn::head_strides(o.grad_query);
        shape.grad_key = cudnn::head_strides(o.grad_key);
        shape.grad_value = cudnn::head_strides(o.grad_value);
        shape.grad_out = cudnn::head_strides(o.grad_out);
        const Prepared* const prepared = find(backward_, shape, [&] {
            cudnn::BackwardGraph built = cudnn::backward_graph(shape);
            return prepare(built.graph,
                           {built.query, built.key, built.value, built.out, built.log_sum_exp, built.grad_out,
                            built.scale, built.masked, built.grad_query, built.grad_key, built.grad_value});
        });
        if (prepared == nullptr) return decline("backward", o.query, o.key);
        execute(context, *prepared,
                {o.query.data, o.key.data, o.value.data, o.out.data, o.log_sum_exp.data, o.grad_out.data, host(o.scale),
                 host(kMasked), o.grad_query.data, o.grad_key.data, o.grad_value.data});
        return true;
    }

    [[nodiscard]] std::string description() const override {
        const std::size_t version = cudnnGetVersion();
        return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
               std::to_string(version % 100);
    }

    [[nodiscard]] std::string remarks() const override {
        std::string text;
        for (const std::string& line : declined_) text.append(text.empty() ? "" : "\n").append(line);
        return text;
    }

  private:
    using Plans = std::map<AttentionShape, std::optional<Prepared>>;

    /// What positions ahead score: nothing, even after the row's largest score is subtracted.
    static constexpr float kMasked = std::numeric_limits<float>::lowest();

    static void* host(const float& value) { return const_cast<float*>(&value); }

    /// By what engines ask of types and addresses; float32 is for our own kernels.
    [[nodiscard]] static bool takes(std::initializer_list<Tensor> tensors) {
        const Tensor& query = *tensors.begin();
        if (query.dtype != DType::bfloat16 && query.dtype != DType::float16) return false;
        if (query.shape[3] % 8 != 0) return false;
        for (const Tensor& tensor : tensors) {
            if (tensor.count() == 0 || !is_aligned(tensor)) return false;
        }
        return true;
    }

    /// Remembers what our own kernels compute instead. Always false.
    bool decline(const char* direction, const Tensor& query, const Tensor& key) {
        if (query.count() == 0) return false;
        declined_.insert(
            "attention " + std::string(direction) + " of " + query.describe() + " with " +
            std::to_string(key.shape[2]) + " key heads by own kernels: " +
            (query.dtype == DType::float32 ? "cuDNN has it for 16 bits only" : "no engine of cuDNN takes its shape"));
        return false;
    }

    template <class Make>
    static const Prepared* find(Plans& plans, const AttentionShape& shape, const Make& make) {
        auto place = plans.find(shape);
        if (place == plans.end()) place = plans.emplace(shape, make()).first;
        return place->second ? &*place->second : nullptr;
    }

    [[nodiscard]] std::optional<Prepared> prepare(cudnn::Graph& graph, std::initializer_list<cudnn::TensorId> ids) {
        std::optional<cudnn::Plan> plan =
            cudnn::make_plan(graph.finish(handle_.get()), {handle_.get(), nullptr}, deterministic_);
        if (!plan) return std::nullopt;
        Prepared prepared{std::move(*plan), {}};
        for (const cudnn::TensorId id : ids) prepared.ids.push_back(id.value);
        return prepared;
    }

    void execute(const Context& context, const Prepared& prepared, std::initializer_list<void*> addresses) {
        MFSDP_CUDNN(cudnnSetStream(handle_.get(), context.stream));
        const std::int64_t bytes = prepared.plan.workspace_bytes();
        void* const workspace = bytes > 0 ? context.scratch.reserve(bytes) : nullptr;
        prepared.plan.execute(handle_.get(), prepared.ids, std::span(addresses.begin(), addresses.size()), workspace);
    }

    OwnedHandle handle_;
    bool deterministic_;
    Plans forward_, backward_;  // empty: no engine takes the shape
    std::set<std::string> declined_;
};

}  // namespace

std::unique_ptr<FusedAttention> make_cudnn_attention(bool deterministic) {
    return std::make_unique<CudnnAttention>(deterministic);
}

}  // namespace mfsdp::device::cuda
