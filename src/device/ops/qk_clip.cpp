#include "mfsdp/device/ops/qk_clip.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

void QkClip::check() const {
    require_shape({kName, "logits", logits}, DType::float32, {logits.count()});
    require_dense({kName, "logits", logits});
    MFSDP_ASSERT(
        key_heads >= 1 && logits.count() >= 1 && logits.count() % key_heads == 0,
        "qk_clip: " + std::to_string(key_heads) + " key heads divide the query heads of logits " + logits.describe());
    MFSDP_ASSERT(threshold > 0.0 && exponent >= 0.0, "qk_clip: the threshold is positive");
    MFSDP_ASSERT(weight.rank == 1 || weight.rank == 2,
                 "qk_clip: weight is a matrix or a bias, got " + weight.describe());
    require_rank({kName, "weight", weight}, DType::float32, weight.rank);
    require_contiguous_columns({kName, "weight", weight});
    MFSDP_ASSERT(rows_in_group >= 1 && row_begin >= 0 && row_begin + weight.shape[0] <= key_heads * rows_in_group,
                 "qk_clip: rows from " + std::to_string(row_begin) + " on of weight " + weight.describe() +
                     " belong to " + std::to_string(key_heads) + " groups of " + std::to_string(rows_in_group));
    MFSDP_ASSERT(weight.rank == 1 || weight.rows() <= 1 || weight.strides[0] >= weight.columns(),
                 "qk_clip: the rows of weight overlap");
}
Cost QkClip::cost() const { return {weight.count(), 2 * weight.bytes() + logits.bytes()}; }

}  // namespace mfsdp::device
