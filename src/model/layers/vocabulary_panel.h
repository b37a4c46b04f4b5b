#pragma once

#include "mfsdp/model/parameter_spec.h"

#include <algorithm>
#include <cstdint>

namespace mfsdp::model {

/// The rows of a vocabulary table that one visit works on.
struct VocabularyPanel {
    VocabularyPanel(const ModelSpec& spec, std::int64_t panel)
        : begin(spec.panel_begin(panel)),
          rows(spec.panel_rows(panel)),
          tokens(std::clamp(spec.config.vocab_size - begin, std::int64_t{0}, rows)),
          is_first(panel == 0),
          is_last(panel == spec.panels() - 1) {}

    std::int64_t begin;
    std::int64_t rows;    ///< with padding
    std::int64_t tokens;  ///< without; 0 in a panel of padding alone
    bool is_first;
    bool is_last;
};

}  // namespace mfsdp::model
