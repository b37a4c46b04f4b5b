#pragma once

#include "mfsdp/runtime/store/parameter_store.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace mfsdp::runtime {

/// The gradients of one rank: leaves of the present micro-batch, and the accumulators in which the ordered sum lands.
///
/// A leaf is the finished gradient of one group by one micro-batch, in the group's full layout. The reduce schedule
/// sends its parts to their owners, which add them in micro-batch order. A group with two users (a tied weight) has one
/// accumulator per use, added once at the end of the step.
class GradientStore {
  public:
    /// At most this many leaves are in flight on a rank; the compute stream waits before a third is made.
    static constexpr std::size_t kLeavesInFlight = 2;

    /// `leaf_bytes` < 0: a limitless pool, for rehearsals.
    GradientStore(const RankContext& context, const ParameterStore& weights, std::int64_t micro_batches,
                  const comm::BuildOptions& build, std::int64_t leaf_bytes);

    /// Memory for the gradients of all parameters of a unit, one tensor per parameter in the unit's order, undefined
    /// contents. Ends with reduce() of the same unit.
    [[nodiscard]] std::span<const device::Tensor> begin_leaf(std::int64_t unit);
    /// Hands the unit's leaves (if this rank made any in this micro-step) to their reduce schedules. Every rank calls
    /// it for every unit and micro-step, in the same order.
    void reduce(std::int64_t unit, std::int64_t micro_step);
    /// After the last micro-step: compute waits for all reductions and joins the uses of shared groups.
    void finish();

    /// The sum over all micro-batches of the rows that this rank updates; valid after finish().
    [[nodiscard]] device::Tensor gradient(const OwnedRows& rows) const;

    [[nodiscard]] std::vector<const comm::TransferSchedule*> schedules() const;
    [[nodiscard]] std::int64_t leaf_high_water() const { return pool_.high_water(); }
    [[nodiscard]] double take_exposed_seconds();

  private:
    struct Group {
        std::int64_t elements = 0;                     // of the full layout
        std::int64_t accumulator_elements = 0;         // of one use, on this rank
        std::int64_t accumulator_offset = 0;           // elements; use u starts at + u * accumulator_elements
        std::vector<comm::TransferSchedule> variants;  // by micro-step variant
        device::BufferPool::Block leaf;
        bool has_leaf = false;
    };
    struct InFlight {
        device::BufferPool::Block block;
        device::Event done;
    };

    static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
    [[nodiscard]] std::int64_t use_of(std::int64_t group, std::int64_t unit) const;
    void retire_oldest();

    RankContext context_;
    std::vector<Group> groups_;
    std::vector<std::size_t> variant_of_micro_step_;
    std::vector<std::vector<std::int64_t>> full_offsets_;  // by group and slot
    device::Buffer accumulators_;
    device::Buffer scratch_;
    device::BufferPool pool_;
    std::vector<InFlight> in_flight_;  // oldest first
    std::vector<device::Tensor> bound_;
    device::Event last_transfer_;
    double exposed_seconds_ = 0.0;
};

}  // namespace mfsdp::runtime
