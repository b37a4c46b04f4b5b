#pragma once

#include "mfsdp/runtime/store/parameter_store.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace mfsdp::runtime {

/// The gradients of one rank: leaves of the present micro-batch, and the accumulators in which the ordered sum lands.
///
/// A leaf is the finished gradient of one group by one micro-batch, in grad_dtype and the group's layout. The reduce
/// schedule sends its parts to their owners, which add them in float32 in micro-batch order. A group with two users (a
/// panel of a tied table) has one accumulator per use, added once at the end of the step.
class GradientStore {
  public:
    /// At most this many leaves are in flight on a rank; the compute stream waits before a third is made.
    static constexpr std::size_t kLeavesInFlight = 2;

    /// `leaf_bytes` < 0: a limitless pool, for rehearsals.
    GradientStore(const RankContext& context, const ParameterStore& weights, std::int64_t micro_batches,
                  const StoreOptions& options, std::int64_t leaf_bytes);

    /// Memory for the gradients that a visit writes, one tensor per parameter of its unit in the unit's order (the
    /// panel of its table), undefined where the visit writes none; contents undefined. Ends with reduce() of the same
    /// visit.
    [[nodiscard]] std::span<const device::Tensor> begin_leaf(const Visit& visit);
    /// Hands the visit's leaves (if this rank made any in this micro-step) to their reduce schedules. Every rank calls
    /// it for every visit, in the same order.
    void reduce(const Visit& visit);
    /// After the last micro-step: compute waits for all reductions and joins the uses of shared groups.
    void finish();

    /// The sum over all micro-batches of the rows that this rank updates; valid after finish().
    [[nodiscard]] device::Tensor gradient(const OwnedRows& rows) const;

    /// Every schedule that this store starts, in an order that is the same on all ranks.
    [[nodiscard]] std::vector<const comm::TransferSchedule*> schedules() const;
    [[nodiscard]] std::int64_t leaf_high_water() const { return pool_.high_water(); }
    /// Seconds the host has waited for reductions since the last call, as ParameterStore's for gathers.
    [[nodiscard]] double take_exposed_seconds();

  private:
    struct Group {
        std::int64_t elements = 0;                     // of a leaf
        std::vector<std::int64_t> leaf_offsets;        // by slot; -1: frozen
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
    void bind_leaf(std::int64_t group, std::int64_t unit);

    RankContext context_;
    device::DType dtype_;  // of leaves
    std::vector<Group> groups_;
    std::vector<std::size_t> variant_of_micro_step_;
    device::Buffer accumulators_;
    device::Buffer scratch_;
    device::BufferPool pool_;
    std::vector<InFlight> in_flight_;  // oldest first
    std::vector<device::Tensor> bound_;
    device::Event last_transfer_;
    double exposed_seconds_ = 0.0;
};

}  // namespace mfsdp::runtime
