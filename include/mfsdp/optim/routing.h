#pragma once

#include "mfsdp/model/parameter_spec.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::optim {

/// How a parameter is placed and stepped: `matrix` whole on one owner under the matrix optimizer; `rows` a 2-D
/// parameter under AdamW, its rows spread evenly; `tail` everything else of a unit, packed on one tail owner, AdamW.
enum class Role : std::uint8_t { matrix, rows, tail };

[[nodiscard]] std::string_view name(Role role);

struct RoutingOptions {
    bool use_matrix_optimizer = true;    ///< false: optimizer.matrix.name = none
    std::vector<std::string> exclude{};  ///< shell patterns over full names: matrices for the element section
    std::vector<std::string> frozen{};   ///< shell patterns over full names: parameters that are not trained
};

/// By parameter index, whether it is frozen. ConfigError if a pattern matches nothing, or if nothing is left to train.
[[nodiscard]] std::vector<bool> frozen_parameters(const model::ModelSpec& spec,
                                                  const std::vector<std::string>& patterns);

/// The role of every parameter, by full logical shape and name alone, the same on every rank (docs/optimizers.md,
/// routing).
/// A frozen matrix has no optimizer that needs it whole: its role is rows.
/// ConfigError if the matrix optimizer is asked for and no matrix is left to it, or a pattern matches nothing.
[[nodiscard]] std::vector<Role> route(const model::ModelSpec& spec, const RoutingOptions& options);

/// The table printed at start-up: per optimizer and role the number of tensors and elements; frozen ones by themselves.
[[nodiscard]] std::string routing_table(const model::ModelSpec& spec, const std::vector<Role>& roles,
                                        const std::string& matrix_optimizer_name, const std::vector<bool>& frozen = {});

}  // namespace mfsdp::optim
