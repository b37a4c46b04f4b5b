#pragma once

#include "mfsdp/device/stream.h"
#include "mfsdp/device/tensor.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::optim {

/// What a state holds before the first step.
enum class StateStart : std::uint8_t { zeros, identity };

/// A state tensor declared before it is allocated, so that planner, memory accounting and checkpoints know it.
struct StateSpec {
    std::string name;                 ///< as in docs/formats.md: "momentum", "left_factor", ...
    std::vector<std::int64_t> shape;  ///< empty: one number
    bool element =
        true;  ///< elementwise: shaped like the weight, may be cut by rows; else it belongs to the whole block
    device::DType dtype = device::DType::float32;
    StateStart start = StateStart::zeros;
    std::string block{};  ///< of a block state of a fused parameter: the name of its row block

    [[nodiscard]] std::int64_t count() const;
    [[nodiscard]] std::int64_t bytes() const { return count() * device::size_of(dtype); }
};

/// The name of a state in checkpoints: `<parameter>/<state>`, or `<parameter>[<block>]/<state>` (docs/formats.md).
[[nodiscard]] std::string state_key(const std::string& parameter, const StateSpec& state);

/// Writes the value that a state starts from; `tensor` has its type and number of elements, dense.
void start_state(device::Stream& stream, const device::Tensor& tensor, const StateSpec& state);

}  // namespace mfsdp::optim
