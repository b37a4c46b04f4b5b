#include "mfsdp/base/error.h"
#include "mfsdp/base/hash64.h"
#include "mfsdp/model/transformer.h"

#include <algorithm>
#include <string>

namespace mfsdp::model {

namespace {

/// Normal values in the rows that are in files, zeros in the padding of a vocabulary table.
void fill_normal(device::Stream& stream, const ParameterSpec& parameter, const device::Tensor& out,
                 std::int64_t row_begin, std::uint64_t seed) {
    const std::int64_t columns = parameter.columns();
    const std::int64_t rows = out.count() / columns;
    const std::int64_t stored = std::clamp(parameter.stored_rows() - row_begin, std::int64_t{0}, rows);
    const device::Tensor values = out.reshape({rows, columns});
    if (stored > 0) {
        device::launch(stream, device::FillNormal{.out = values.slice(0, 0, stored),
                                                  .key = base::hash64(std::to_string(seed) + ":" + parameter.name),
                                                  .first_index = row_begin * columns,
                                                  .standard_deviation = parameter.standard_deviation});
    }
    if (stored < rows) {
        device::launch(stream, device::Fill{.out = values.slice(0, stored, rows - stored), .value = 0.0});
    }
}

}  // namespace

void initialise(device::Stream& stream, const ParameterSpec& parameter, device::Tensor out, std::int64_t row_begin,
                std::uint64_t seed) {
    const std::int64_t columns = parameter.columns();
    MFSDP_ASSERT(
        (out.dtype == device::DType::float32 || out.dtype == device::DType::bfloat16) && row_begin >= 0 &&
            out.count() % columns == 0 && row_begin + out.count() / columns <= parameter.rows(),
        "rows of " + parameter.name + " lie inside it, got " + out.describe() + " at row " + std::to_string(row_begin));
    if (out.empty()) return;
    switch (parameter.initialisation) {
        case Initialisation::zeros:
            device::launch(stream, device::Fill{.out = out, .value = 0.0});
            return;
        case Initialisation::ones:
            device::launch(stream, device::Fill{.out = out, .value = 1.0});
            return;
        case Initialisation::normal:
            fill_normal(stream, parameter, out, row_begin, seed);
            return;
    }
    MFSDP_ASSERT(false, "every way of initialising is handled above");
}

double flops_per_token(const ModelSpec& spec, std::int64_t sequence_length) {
    const ModelConfig& config = spec.config;
    // The input embedding is a table to look up, not a product, unless it is the head as well.
    const std::int64_t looked_up = config.tie_word_embeddings ? 0 : config.vocab_size * config.hidden_size;
    const auto products = static_cast<double>(spec.parameter_count() - looked_up);
    const double attention = static_cast<double>(config.num_hidden_layers) *
                             static_cast<double>(config.num_attention_heads * config.head_dim) *
                             static_cast<double>(sequence_length);
    return 6.0 * products + 12.0 * attention;
}

}  // namespace mfsdp::model
