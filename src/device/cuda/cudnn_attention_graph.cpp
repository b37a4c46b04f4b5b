#include "device/cuda/cudnn_attention_graph.h"

#include "mfsdp/base/error.h"

// Engines know attention by its formulas: the operations stand exactly as flash attention is written down, in the order
// in which cuDNN's engines look for them, and nothing of size T x T is in memory. cuDNN's one-node form of attention
// has no causal mask in version 9.19.

namespace mfsdp::device::cuda::cudnn {

namespace {

cudnnDataType_t type_of(DType dtype) {
    MFSDP_ASSERT(dtype == DType::bfloat16 || dtype == DType::float16, "cuDNN's attention is for 16 bits");
    return dtype == DType::bfloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

/// Writes the graph of one shape.
class Writer {
  public:
    Writer(const AttentionShape& shape, Graph& graph)
        : shape_(shape),
          graph_(graph),
          type_(type_of(shape.dtype)),
          scores_{shape.batch, shape.heads, shape.positions, shape.positions},
          rows_{shape.batch, shape.heads, shape.positions, 1} {}

    [[nodiscard]] cudnnDataType_t type() const { return type_; }
    [[nodiscard]] const Shape& scores() const { return scores_; }
    [[nodiscard]] const Shape& rows() const { return rows_; }
    [[nodiscard]] Shape values(std::int64_t heads) const {
        return {shape_.batch, heads, shape_.positions, shape_.head_dim};
    }
    /// [B, heads, T, D] as it lies in memory.
    TensorId heads(std::int64_t heads, const HeadStrides& strides) {
        return graph_.memory(type_, values(heads), {strides.batch, strides.head, strides.position, 1});
    }
    /// The same with its last two dimensions exchanged.
    TensorId transposed(std::int64_t heads, const HeadStrides& strides) {
        return graph_.memory(type_, {shape_.batch, heads, shape_.head_dim, shape_.positions},
                             {strides.batch, strides.head, 1, strides.position});
    }
    TensorId statistics() { return graph_.memory(CUDNN_DATA_FLOAT, rows_, dense_strides(rows_)); }

    /// scale * query key^T, `masked` where a position would look ahead.
    TensorId scaled_scores(TensorId query, TensorId key_transposed, TensorId scale, TensorId masked) {
        TensorId s = graph_.matmul(query, key_transposed, scores_, CUDNN_DATA_FLOAT);
        s = graph_.pointwise(CUDNN_POINTWISE_MUL, s, scale, scores_);
        const TensorId row = graph_.index(s, 2, scores_);
        const TensorId column = graph_.index(s, 3, scores_);
        const TensorId sees = graph_.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, scores_, CUDNN_DATA_BOOLEAN);
        return graph_.select(s, masked, sees, scores_);
    }

    /// Rows and columns exchanged, for products that sum over rows.
    TensorId transpose(TensorId x) {
        const std::int64_t t = shape_.positions;
        return graph_.reshape(x, scores_, {shape_.heads * t * t, t * t, 1, t}, type_);
    }

  private:
    const AttentionShape& shape_;
    Graph& graph_;
    cudnnDataType_t type_;
    Shape scores_;
    Shape rows_;
};

}  // namespace

HeadStrides head_strides(const Tensor& tensor) { return {tensor.strides[0], tensor.strides[1], tensor.strides[2]}; }

ForwardGraph forward_graph(const AttentionShape& shape) {
    ForwardGraph result;
    Graph& graph = result.graph;
    Writer write(shape, graph);
    result.query = write.heads(shape.heads, shape.query);
    result.key = write.transposed(shape.key_heads, shape.key);
    result.value = write.heads(shape.key_heads, shape.value);
    result.scale = graph.scalar();
    result.masked = graph.scalar();
    result.out = write.heads(shape.heads, shape.out);
    result.log_sum_exp = write.statistics();

    const TensorId s = write.scaled_scores(result.query, result.key, result.scale, result.masked);
    const TensorId largest = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, s, write.rows());
    const TensorId below = graph.pointwise(CUDNN_POINTWISE_SUB, s, largest, write.scores());
    const TensorId e = graph.pointwise(CUDNN_POINTWISE_EXP, below, {}, write.scores());
    const TensorId z = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, e, write.rows());
    const TensorId log_z = graph.pointwise(CUDNN_POINTWISE_LOG, z, {}, write.rows());
    graph.pointwise(CUDNN_POINTWISE_ADD, largest, log_z, write.rows(), CUDNN_DATA_FLOAT, result.log_sum_exp);
    const TensorId p = graph.pointwise(CUDNN_POINTWISE_DIV, e, z, write.scores(), write.type());
    graph.matmul(p, result.value, write.values(shape.heads), write.type(), result.out);
    return result;
}

BackwardGraph backward_graph(const AttentionShape& shape) {
    BackwardGraph result;
    Graph& graph = result.graph;
    Writer write(shape, graph);
    result.query = write.heads(shape.heads, shape.query);
    result.key = write.transposed(shape.key_heads, shape.key);
    result.value = write.transposed(shape.key_heads, shape.value);
    result.out = write.heads(shape.heads, shape.out);
    result.log_sum_exp = write.statistics();
    result.grad_out = write.heads(shape.heads, shape.grad_out);
    result.scale = graph.scalar();
    result.masked = graph.scalar();
    result.grad_query = write.heads(shape.heads, shape.grad_query);
    result.grad_key = write.heads(shape.key_heads, shape.grad_key);
    result.grad_value = write.heads(shape.key_heads, shape.grad_value);
    const Shape& scores = write.scores();
    const Shape whole = write.values(shape.heads);

    // delta = rows' sums of grad_out * out.
    const TensorId products = graph.pointwise(CUDNN_POINTWISE_MUL, result.grad_out, result.out, whole);
    const TensorId delta = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products, write.rows());

    // P again, from the scores and log Z.
    TensorId s = write.scaled_scores(result.query, result.key, result.scale, result.masked);
    s = graph.pointwise(CUDNN_POINTWISE_SUB, s, result.log_sum_exp, scores);
    const TensorId p = graph.pointwise(CUDNN_POINTWISE_EXP, s, {}, scores);

    // grad_value = P^T grad_out; queries of one key head add up.
    const TensorId p_rounded = graph.pointwise(CUDNN_POINTWISE_IDENTITY, p, {}, scores, write.type());
    const bool grouped = shape.heads != shape.key_heads;
    const auto product_over_rows = [&](TensorId x, TensorId y, TensorId into) {
        if (!grouped) {
            graph.matmul(write.transpose(x), y, whole, write.type(), into);
        } else {
            const TensorId by_head = graph.matmul(write.transpose(x), y, whole, CUDNN_DATA_FLOAT);
            graph.reduce(CUDNN_REDUCE_TENSOR_ADD, by_head, write.values(shape.key_heads), into);
        }
    };
    product_over_rows(p_rounded, result.grad_out, result.grad_value);

    // grad_scores = scale * P * (grad_out value^T - delta)
    TensorId d = graph.matmul(result.grad_out, result.value, scores, CUDNN_DATA_FLOAT);
    d = graph.pointwise(CUDNN_POINTWISE_SUB, d, delta, scores);
    d = graph.pointwise(CUDNN_POINTWISE_MUL, d, p, scores);
    const TensorId grad_scores = graph.pointwise(CUDNN_POINTWISE_MUL, d, result.scale, scores, write.type());
    const TensorId key = graph.reshape(result.key, write.values(shape.key_heads),
                                       {shape.key.batch, shape.key.head, shape.key.position, 1}, write.type());
    graph.matmul(grad_scores, key, whole, write.type(), result.grad_query);
    product_over_rows(grad_scores, result.query, result.grad_key);
    return result;
}

}  // namespace mfsdp::device::cuda::cudnn
