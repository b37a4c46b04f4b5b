#pragma once

#include "mfsdp/comm/link_model.h"
#include "mfsdp/comm/placement.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mfsdp::runtime {

struct LinkCost {
    double latency_seconds = 0.0;
    double bytes_per_second = 0.0;  ///< of one rank, each direction
};

/// What `mfsdp-bench calibrate` found. A class of pairs that it could not measure is empty.
struct LinkCalibration {
    double local_bytes_per_second = 0.0;  ///< copies and adds, bytes read plus bytes written
    std::optional<LinkCost> within_node;
    std::optional<LinkCost> between_nodes;
};

/// The text of a calibration file (docs/schedules.md). `measured` tells people where the figures come from; it is not
/// read.
[[nodiscard]] std::string print_link_calibration(const LinkCalibration& calibration,
                                                 const std::vector<std::pair<std::string, std::string>>& measured);

/// Reads such a file. ConfigError with every problem, each `config: <path>: <key>...`.
[[nodiscard]] LinkCalibration read_link_calibration(const std::string& path);

/// Link costs for the ranks of a mesh. ConfigError if the mesh has a class of pairs that the file at `path` has no
/// costs of: built-in figures beside measured ones would compare unlike things.
[[nodiscard]] comm::LinkModel link_model(const LinkCalibration& calibration, const comm::Mesh& mesh,
                                         const std::string& path);

}  // namespace mfsdp::runtime
