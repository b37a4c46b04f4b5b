#pragma once

#include "mfsdp/model/parameter_spec.h"

#include <cstdint>
#include <vector>

namespace mfsdp::optim {

struct QkClipOptions {
    double threshold = 0.0;  ///< 0: off
    double alpha = 0.5;      ///< share of a group's factor that its query rows take
};

/// Rows of a parameter (elements of a bias) that are the projection of queries or keys of one block, whole: group g has
/// the rows [row_begin + g rows_in_group, row_begin + (g + 1) rows_in_group).
struct HeadRows {
    std::int64_t block = 0;
    bool keys = false;
    std::int64_t row_begin = 0, row_count = 0;
    std::int64_t rows_in_group = 1;
};

/// What QK-clip scales in a parameter of the model: of a fused projection queries and keys, of others nothing.
[[nodiscard]] std::vector<HeadRows> head_rows(const model::ModelSpec& spec, std::int64_t parameter);

}  // namespace mfsdp::optim
