#pragma once

#include "mfsdp/comm/placement.h"
#include "mfsdp/comm/transfer_schedule.h"

#include <string>

namespace mfsdp::comm {

/// What links cost: built-in figures, or those of a calibration file.
struct LinkModel {
    double latency_seconds_within_node = 5e-6;
    double bytes_per_second_within_node = 1e10;  ///< of one rank, each direction
    double latency_seconds_between_nodes = 2e-5;
    double bytes_per_second_between_nodes = 1.25e10;
    double bytes_per_second_local = 2e10;  ///< copies and adds

    /// Modelled time of one rank's schedule with its peers taken as ready: rounds of a channel one after the other, a
    /// round as long as latency + bytes / bandwidth of its sends, its receives or its local work, whichever is longest.
    [[nodiscard]] double seconds(const TransferSchedule& schedule, int rank, const Mesh& mesh) const;
    /// All figures, for comparison between ranks: they choose algorithms by them.
    [[nodiscard]] std::string text() const;
};

}  // namespace mfsdp::comm
