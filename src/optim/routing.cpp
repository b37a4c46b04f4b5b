#include "mfsdp/optim/routing.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <sstream>

#include <fnmatch.h>

namespace mfsdp::optim {

namespace {

/// A matrix with one row or column has one singular value: orthogonalising it would only normalise it.
bool has_two_sides(const model::ParameterSpec& parameter) {
    return parameter.shape.size() == 2 && std::min(parameter.shape[0], parameter.shape[1]) > 1;
}

bool is_candidate(const model::ParameterSpec& parameter) {
    return parameter.kind == model::ParameterKind::block_matrix && has_two_sides(parameter);
}

bool matches(const std::string& pattern, const std::string& parameter_name) {
    return ::fnmatch(pattern.c_str(), parameter_name.c_str(), 0) == 0;
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& parameter_name) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return matches(pattern, parameter_name); });
}

void check_patterns(const model::ModelSpec& spec, const RoutingOptions& options) {
    for (const std::string& pattern : options.exclude) {
        const bool used =
            std::any_of(spec.parameters.begin(), spec.parameters.end(), [&](const model::ParameterSpec& parameter) {
                return is_candidate(parameter) && matches(pattern, parameter.name);
            });
        if (!used) {
            throw ConfigError("config: optimizer.matrix.exclude: the pattern \"" + pattern +
                              "\" matches no matrix of the model's blocks; give a shell pattern over full parameter "
                              "names or remove it");
        }
    }
}

Role role_of(const model::ParameterSpec& parameter, const RoutingOptions& options) {
    if (is_candidate(parameter)) {
        const bool excluded =
            matches_any(options.exclude, parameter.name) || matches_any(options.frozen, parameter.name);
        return options.use_matrix_optimizer && !excluded ? Role::matrix : Role::rows;
    }
    if (parameter.kind == model::ParameterKind::vocabulary && has_two_sides(parameter)) return Role::rows;
    return Role::tail;
}

void append_row(std::ostringstream& out, const std::string& optimizer, const std::string& role,
                const std::string& tensors, const std::string& elements) {
    const auto padded = [](const std::string& text, std::size_t width, bool left) {
        const std::string space(width > text.size() ? width - text.size() : 0, ' ');
        return left ? text + space : space + text;
    };
    out << padded(optimizer, 12, true) << padded(role, 8, true) << padded(tensors, 10, false)
        << padded(elements, 18, false) << '\n';
}

}  // namespace

std::string_view name(Role role) {
    switch (role) {
        case Role::matrix:
            return "matrix";
        case Role::rows:
            return "rows";
        case Role::tail:
            return "tail";
    }
    return "?";
}

std::vector<Role> route(const model::ModelSpec& spec, const RoutingOptions& options) {
    check_patterns(spec, options);
    std::vector<Role> roles;
    roles.reserve(spec.parameters.size());
    for (const model::ParameterSpec& parameter : spec.parameters) roles.push_back(role_of(parameter, options));
    // A matrix optimizer that takes nothing is a wrong configuration, not a run with AdamW: that one has a name.
    if (options.use_matrix_optimizer && std::find(roles.begin(), roles.end(), Role::matrix) == roles.end()) {
        throw ConfigError(
            "config: optimizer.matrix: 0 matrices are left to the matrix optimizer, at least 1 is needed; shorten "
            "optimizer.matrix.exclude or train.frozen, or set optimizer.matrix.name = none");
    }
    return roles;
}

std::vector<bool> frozen_parameters(const model::ModelSpec& spec, const std::vector<std::string>& patterns) {
    std::vector<bool> frozen;
    for (const model::ParameterSpec& parameter : spec.parameters) {
        frozen.push_back(matches_any(patterns, parameter.name));
    }
    for (const std::string& pattern : patterns) {
        const bool used =
            std::any_of(spec.parameters.begin(), spec.parameters.end(),
                        [&](const model::ParameterSpec& parameter) { return matches(pattern, parameter.name); });
        if (!used) throw ConfigError("config: train.frozen: pattern '" + pattern + "' matches no parameter");
    }
    if (std::find(frozen.begin(), frozen.end(), false) == frozen.end()) {
        throw ConfigError("config: train.frozen: the patterns match every parameter, nothing is left to train");
    }
    return frozen;
}

std::string routing_table(const model::ModelSpec& spec, const std::vector<Role>& roles,
                          const std::string& matrix_optimizer_name, const std::vector<bool>& frozen) {
    MFSDP_ASSERT(roles.size() == spec.parameters.size() && (frozen.empty() || frozen.size() == roles.size()),
                 "there is one role for every parameter of the model");
    struct Total {
        std::int64_t tensors = 0, elements = 0;
    };
    std::array<Total, 3> totals{};
    Total not_trained;
    for (std::size_t i = 0; i < roles.size(); ++i) {
        const bool trained = frozen.empty() || !frozen[i];
        Total& total = trained ? totals[static_cast<std::size_t>(roles[i])] : not_trained;
        total.tensors += 1;
        total.elements += spec.parameters[i].count();
    }
    std::ostringstream out;
    append_row(out, "optimizer", "role", "tensors", "elements");
    for (const Role role : {Role::matrix, Role::rows, Role::tail}) {
        const Total& total = totals[static_cast<std::size_t>(role)];
        append_row(out, role == Role::matrix ? matrix_optimizer_name : "adamw", std::string(name(role)),
                   std::to_string(total.tensors), std::to_string(total.elements));
    }
    if (not_trained.tensors > 0) {
        append_row(out, "frozen", "", std::to_string(not_trained.tensors), std::to_string(not_trained.elements));
    }
    return out.str();
}

}  // namespace mfsdp::optim
