#pragma once

#include "mfsdp/runtime/config/train_config.h"

#include <string_view>

namespace mfsdp::runtime {

/// The spelling of a choice in configuration files.
[[nodiscard]] std::string_view name(Strategy strategy);
[[nodiscard]] std::string_view name(PlannerPolicy policy);
[[nodiscard]] std::string_view name(MatrixOptimizerName optimizer);
[[nodiscard]] std::string_view name(DeviceChoice device);

}  // namespace mfsdp::runtime
