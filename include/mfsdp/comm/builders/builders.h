#pragma once

#include "mfsdp/comm/link_model.h"
#include "mfsdp/comm/placement.h"
#include "mfsdp/comm/transfer_schedule.h"

#include <cstdint>
#include <string_view>

namespace mfsdp::comm {

/// Every source sends its pieces to every rank that wants them, all in one round. Chunks of at most chunk_bytes.
/// Bytes sent by rank r: what the others want of its pieces. Pure; the same pair lists on both sides.
[[nodiscard]] TransferSchedule build_direct_gather(const Movement& movement, int rank, const BuildOptions& options);

/// Pieces travel around the ring r -> r+1 in chunks, forwarded while the next arrives; empty pieces have no operation,
/// their ranks still forward. For gathers in which every rank wants everything that it does not hold; ConfigError
/// otherwise. Bytes sent by rank r: the pieces of all ranks but r+1.
[[nodiscard]] TransferSchedule build_ring_gather(const Movement& movement, int rank, const BuildOptions& options);

/// Every rank broadcasts its pieces to all, in chunks, all in one round: for transports that broadcast themselves and
/// for movements that the ring serves, ConfigError otherwise. Bytes sent count as those of the direct gather.
[[nodiscard]] TransferSchedule build_broadcast_gather(const Movement& movement, int rank, const BuildOptions& options);

/// The ordered sum: every contributor sends its leaf's parts to their owners; the owner receives chunk by chunk, within
/// a chunk in contributor order, into two chunks of scratch, adding one while the next arrives; its own leaf is added
/// at its place. The first leaf of a fresh sum is received (or copied) into place.
[[nodiscard]] TransferSchedule build_direct_sum(const Movement& movement, int rank, const BuildOptions& options);

/// The ordered sum as exchanges: one round in which every owner receives a chunk of its rows from every contributor at
/// once, each into scratch of its own (one chunk for each contributor), then one round for each addition, in
/// contributor order. All in one channel, as transports need whose rounds are operations of a stream. Bytes as
/// build_direct_sum.
[[nodiscard]] TransferSchedule build_grouped_sum(const Movement& movement, int rank, const BuildOptions& options);

enum class SumAlgorithm : std::uint8_t { direct, grouped };
[[nodiscard]] TransferSchedule build_sum(SumAlgorithm algorithm, const Movement& movement, int rank,
                                         const BuildOptions& options);

enum class GatherAlgorithm : std::uint8_t { automatic, direct, ring, broadcast };

/// `automatic`: the cheaper of direct and ring by predicted_seconds; the same choice on every rank.
[[nodiscard]] GatherAlgorithm choose_gather(const Movement& movement, GatherAlgorithm wanted, const Mesh& mesh,
                                            const LinkModel& links, const BuildOptions& options);
/// The schedule of the chosen builder. `automatic` must have been resolved by choose_gather: else InternalError.
[[nodiscard]] TransferSchedule build_gather(GatherAlgorithm algorithm, const Movement& movement, int rank,
                                            const BuildOptions& options);
[[nodiscard]] std::string_view name(GatherAlgorithm algorithm);
[[nodiscard]] std::string_view name(SumAlgorithm algorithm);

}  // namespace mfsdp::comm
