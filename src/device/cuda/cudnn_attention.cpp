#include "device/cuda/cudnn_attention_graph.h"
#include "device/cuda/fused_attention.h"

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
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

/// The tensors of an operation as engines take them. What does not begin each head on 16 bytes has a dense stand-in in
/// scratch, so that types and shapes alone decide who computes.
template <std::size_t kCount>
class StandIns {
  public:
    explicit StandIns(const std::array<Tensor, kCount>& originals) : originals_(originals), tensors_(originals) {
        for (std::size_t i = 0; i < kCount; ++i) {
            if (is_aligned(originals[i])) continue;
            const auto& s = originals[i].shape;
            tensors_[i] = Tensor::dense(nullptr, originals[i].dtype, {s[0], s[1], s[2], s[3]});
            pieces_[i] = plan_.add<std::byte>(originals[i].bytes());
        }
    }

    /// Shapes and strides at once, memory after `reserve`.
    [[nodiscard]] const Tensor& operator[](std::size_t i) const { return tensors_[i]; }

    /// Gives the workspace beside the stand-ins.
    [[nodiscard]] void* reserve(const Context& context, std::int64_t workspace_bytes) {
        const auto workspace = plan_.add<std::byte>(workspace_bytes);
        std::byte* const base = plan_.bytes() > 0 ? context.scratch.reserve(plan_.bytes()) : nullptr;
        for (std::size_t i = 0; i < kCount; ++i) {
            if (pieces_[i]) tensors_[i].data = pieces_[i]->at(base);
        }
        return workspace_bytes > 0 ? workspace.at(base) : nullptr;
    }
    /// Fills the stand-ins of the first `count` tensors, the operation's inputs; writes back those of all others.
    void read(const Context& context, std::size_t count) const {
        for (std::size_t i = 0; i < count; ++i) {
            if (pieces_[i]) run(context, Copy{tensors_[i], originals_[i]});
        }
    }
    void write_back(const Context& context, std::size_t begin) const {
        for (std::size_t i = begin; i < kCount; ++i) {
            if (pieces_[i]) run(context, Copy{originals_[i], tensors_[i]});
        }
    }

  private:
    std::array<Tensor, kCount> originals_, tensors_;
    std::array<std::optional<ScratchPlan::Piece<std::byte>>, kCount> pieces_{};
    ScratchPlan plan_;
};

class CudnnAttention final : public FusedAttention {
  public:
    explicit CudnnAttention(bool deterministic) : deterministic_(deterministic) {}

    [[nodiscard]] bool forward(const Context& context, const AttentionForward& operation) override {
        const AttentionForward& o = operation;
        if (!takes(o.query)) return decline("forward", o.query, o.key);
        StandIns<4> t({o.query, o.key, o.value, o.out});
        const AttentionShape shape = shape_of(t[0], t[1], t[2], t[3]);
        const Prepared* const prepared = find(forward_, shape, [&] {
            cudnn::ForwardGraph built = cudnn::forward_graph(shape);
            return prepare(built.graph, {built.query, built.key, built.value, built.scale, built.masked, built.out,
                                         built.log_sum_exp});
        });
        if (prepared == nullptr) return decline("forward", o.query, o.key);
        void* const workspace = t.reserve(context, prepared->plan.workspace_bytes());
        t.read(context, 3);
        execute(context, *prepared, workspace,
                {t[0].data, t[1].data, t[2].data, host(o.scale), host(kMasked), t[3].data, o.log_sum_exp.data});
        t.write_back(context, 3);
        return true;
    }

    [[nodiscard]] bool backward(const Context& context, const AttentionBackward& operation) override {
        const AttentionBackward& o = operation;
        if (!takes(o.query)) return decline("backward", o.query, o.key);
        StandIns<8> t({o.query, o.key, o.value, o.out, o.grad_out, o.grad_query, o.grad_key, o.grad_value});
        AttentionShape shape = shape_of(t[0], t[1], t[2], t[3]);
        shape.grad_out = cudnn::head_strides(t[4]);
        shape.grad_query = cudnn::head_strides(t[5]);
        shape.grad_key = cudnn::head_strides(t[6]);
        shape.grad_value = cudnn::head_strides(t[7]);
        const Prepared* const prepared = find(backward_, shape, [&] {
            cudnn::BackwardGraph built = cudnn::backward_graph(shape);
            return prepare(built.graph,
                           {built.query, built.key, built.value, built.out, built.log_sum_exp, built.grad_out,
                            built.scale, built.masked, built.grad_query, built.grad_key, built.grad_value});
        });
        if (prepared == nullptr) return decline("backward", o.query, o.key);
        void* const workspace = t.reserve(context, prepared->plan.workspace_bytes());
        t.read(context, 5);
        execute(context, *prepared, workspace,
                {t[0].data, t[1].data, t[2].data, t[3].data, o.log_sum_exp.data, t[4].data, host(o.scale),
                 host(kMasked), t[5].data, t[6].data, t[7].data});
        t.write_back(context, 5);
        return true;
    }

    void forgo(const AttentionForward& operation, const char* reason) override {
        decline("forward", operation.query, operation.key, reason);
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

    /// By what engines ask of types and shapes; float32 is for our own kernels.
    [[nodiscard]] static bool takes(const Tensor& query) {
        return (query.dtype == DType::bfloat16 || query.dtype == DType::float16) && query.shape[3] % 8 == 0;
    }

    /// Remembers what our own kernels compute instead. Always false.
    bool decline(const char* direction, const Tensor& query, const Tensor& key, const char* reason = nullptr) {
        if (query.count() == 0) return false;
        if (reason == nullptr) {
            reason = query.dtype == DType::float32 ? "cuDNN has it for 16 bits only"
                                                   : "no engine of cuDNN takes its shape or can be built";
        }
        // A step makes no text of what is known already.
        if (!known_.insert({direction, query.dtype, query.shape, key.shape[2]}).second) return false;
        declined_.insert("attention " + std::string(direction) + " of " + query.describe() + " with " +
                         std::to_string(key.shape[2]) + " key heads by own kernels: " + reason);
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

    void execute(const Context& context, const Prepared& prepared, void* workspace,
                 std::initializer_list<void*> addresses) {
        MFSDP_CUDNN(cudnnSetStream(handle_.get(), context.stream));
        prepared.plan.execute(handle_.get(), prepared.ids, std::span(addresses.begin(), addresses.size()), workspace);
    }

    OwnedHandle handle_;
    bool deterministic_;
    Plans forward_, backward_;  // empty: no engine takes the shape
    std::set<std::tuple<std::string_view, DType, std::array<std::int64_t, Tensor::kMaxRank>, std::int64_t>> known_;
    std::set<std::string> declined_;
};

}  // namespace

std::unique_ptr<FusedAttention> make_cudnn_attention(bool deterministic) {
    return std::make_unique<CudnnAttention>(deterministic);
}

}  // namespace mfsdp::device::cuda
