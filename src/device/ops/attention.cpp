#include "mfsdp/device/ops/attention.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

namespace {

void require_heads(const Argument& argument, const Tensor& query, std::int64_t heads) {
    require_shape(argument, query.dtype, {query.shape[0], query.shape[1], heads, query.shape[3]});
    require_contiguous_columns(argument);
}

/// Shapes that forward and backward share: query [B, T, H, D]; key and value [B, T, K, D] with K dividing H.
void check_inputs(std::string_view operation, const Tensor& query, const Tensor& key, const Tensor& value) {
    require_type({operation, "query", query}, kValueTypes);
    require_rank({operation, "query", query}, query.dtype, 4);
    require_rank({operation, "key", key}, query.dtype, 4);
    const std::int64_t heads = query.shape[2];
    const std::int64_t key_heads = key.shape[2];
    MFSDP_ASSERT(query.shape[3] >= 1 && key_heads >= 1 && heads % key_heads == 0,
                 std::string(operation) + ": key is " + key.describe() + " and query " + query.describe() +
                     ", wanted key heads that divide the query heads and a head dimension of at least 1");
    require_contiguous_columns({operation, "query", query});
    require_heads({operation, "key", key}, query, key_heads);
    require_heads({operation, "value", value}, query, key_heads);
}

void require_statistics(const Argument& argument, const Tensor& query) {
    require_shape(argument, DType::float32, {query.shape[0], query.shape[2], query.shape[1]});
    require_dense(argument);
}

/// Multiply-adds of one T x T x D product under the causal mask, over all heads.
std::int64_t causal_products(const Tensor& query) {
    const std::int64_t pairs = query.shape[1] * (query.shape[1] + 1) / 2;
    return query.shape[0] * query.shape[2] * pairs * query.shape[3];
}

/// Entries of the attention matrix under the causal mask, over all heads.
std::int64_t causal_entries(const Tensor& query) {
    return query.shape[0] * query.shape[2] * (query.shape[1] * (query.shape[1] + 1) / 2);
}

}  // namespace

void Rotary::check() const {
    require_type({kName, "x", x}, kValueTypes);
    require_rank({kName, "x", x}, x.dtype, 4);
    require_rank({kName, "cosine", cosine}, DType::float32, 2);
    MFSDP_ASSERT(x.shape[3] % 2 == 0,
                 std::string(kName) + ": x is " + x.describe() + ", wanted a last dimension of pairs");
    MFSDP_ASSERT(cosine.shape[0] >= x.shape[1], std::string(kName) + ": cosine is " + cosine.describe() +
                                                    ", wanted one row for each position of " + x.describe());
    require_contiguous_columns({kName, "x", x});
    for (const Argument& table : {Argument{kName, "cosine", cosine}, Argument{kName, "sine", sine}}) {
        require_shape(table, DType::float32, {cosine.shape[0], x.shape[3] / 2});
        require_dense(table);
    }
}

Cost Rotary::cost() const { return {3 * x.count(), 2 * x.bytes() + x.shape[1] * x.shape[3] * size_of(DType::float32)}; }

void AttentionForward::check() const {
    check_inputs(kName, query, key, value);
    require_heads({kName, "out", out}, query, query.shape[2]);
    require_statistics({kName, "log_sum_exp", log_sum_exp}, query);
    for (const Argument& input :
         {Argument{kName, "query", query}, Argument{kName, "key", key}, Argument{kName, "value", value}}) {
        require_apart({kName, "out", out}, input);
    }
    if (!max_logits.defined()) return;
    require_shape({kName, "max_logits", max_logits}, DType::float32, {query.shape[2]});
    require_dense({kName, "max_logits", max_logits});
}

Cost AttentionForward::cost() const {
    // Two products of two operations each; scale, maximum, difference, exponential, sum.
    return {4 * causal_products(query) + 5 * causal_entries(query),
            query.bytes() + key.bytes() + value.bytes() + out.bytes() + log_sum_exp.bytes()};
}

void AttentionBackward::check() const {
    check_inputs(kName, query, key, value);
    require_heads({kName, "out", out}, query, query.shape[2]);
    require_heads({kName, "grad_out", grad_out}, query, query.shape[2]);
    require_heads({kName, "grad_query", grad_query}, query, query.shape[2]);
    require_heads({kName, "grad_key", grad_key}, query, key.shape[2]);
    require_heads({kName, "grad_value", grad_value}, query, key.shape[2]);
    require_statistics({kName, "log_sum_exp", log_sum_exp}, query);
    require_statistics({kName, "delta", delta}, query);
    const Argument written[] = {{kName, "grad_query", grad_query},
                                {kName, "grad_key", grad_key},
                                {kName, "grad_value", grad_value},
                                {kName, "delta", delta}};
    const Argument read[] = {{kName, "query", query},       {kName, "key", key},
                             {kName, "value", value},       {kName, "out", out},
                             {kName, "grad_out", grad_out}, {kName, "log_sum_exp", log_sum_exp}};
    for (const Argument& target : written) {
        for (const Argument& source : read) require_apart(target, source);
        for (const Argument& other : written) {
            if (&other != &target) require_apart(target, other);
        }
    }
}

Cost AttentionBackward::cost() const {
    // Five products; scale, difference, exponential, difference and product again; delta is a dot product per row.
    return {10 * causal_products(query) + 5 * causal_entries(query) + 2 * query.count(),
            2 * (query.bytes() + key.bytes() + value.bytes()) + out.bytes() + grad_out.bytes() + log_sum_exp.bytes() +
                2 * delta.bytes()};
}

}  // namespace mfsdp::device
