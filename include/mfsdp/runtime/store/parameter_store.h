#pragma once

#include "mfsdp/comm/builders/builders.h"
#include "mfsdp/comm/executor.h"
#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/runtime/placement/group_layout.h"
#include "mfsdp/runtime/store/visit_sequence.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace mfsdp::runtime {

/// The part of a run that every piece of a rank's engine looks at. Everything referred to outlives the engine.
struct RankContext {
    const model::ModelSpec& spec;
    const ShardPlan& plan;
    const comm::Mesh& mesh;
    int rank = 0;
    device::Device& device;
    device::MemoryLedger& ledger;
    comm::Executor& executor;
    device::Stream& compute;
};

/// Builders of one group's schedules.
struct GroupAlgorithms {
    comm::GatherAlgorithm gather = comm::GatherAlgorithm::direct;
    comm::GatherAlgorithm publish = comm::GatherAlgorithm::direct;
};

struct StoreOptions {
    device::DType param_dtype = device::DType::float32;  ///< of weights at rest, on the wire and in use
    device::DType grad_dtype = device::DType::float32;   ///< of leaves, also on the wire
    std::int64_t prefetch_units = 1;   ///< visits gathered ahead: units, or panels of a vocabulary table
    std::int64_t prefetch_bytes = -1;  ///< limit of the bytes of those gathers, on the rank that gathers most; -1: none
    bool reshard_after_forward = true;  ///< false: a unit stays resident from forward to backward
    comm::GatherAlgorithm gather = comm::GatherAlgorithm::automatic;
    comm::SumAlgorithm reduce = comm::SumAlgorithm::direct;
    comm::LinkModel links;
    comm::BuildOptions build;
    std::vector<GroupAlgorithms> algorithms;  ///< by group, from choose_algorithms; empty: chosen by the store
};

/// The builders of every group: what `options.gather` names, or for `automatic` the cheapest by the link model. The
/// same on every rank; pricing looks at all ranks' schedules, so it is done once for a plan.
[[nodiscard]] std::vector<GroupAlgorithms> choose_algorithms(const model::ModelSpec& spec, const ShardPlan& plan,
                                                             const comm::Mesh& mesh, const StoreOptions& options);

class ParameterStore;

/// Weights of a unit for one visit: whoever holds it may compute with them; its end is the release.
class Lease {
  public:
    Lease(Lease&& other) noexcept : store_(other.store_), visit_(other.visit_) { other.store_ = nullptr; }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Lease& operator=(Lease&&) = delete;
    ~Lease();

    /// One tensor per parameter of the unit, in the unit's order: the panel of its table, whole other parameters;
    /// undefined where the visit reads none.
    [[nodiscard]] std::span<const device::Tensor> weights() const;

  private:
    friend class ParameterStore;
    Lease(ParameterStore& store, std::int64_t visit) : store_(&store), visit_(visit) {}
    ParameterStore* store_;
    std::int64_t visit_;
};

/// Rows of a parameter that this rank updates: where they lie.
struct OwnedRows {
    std::int64_t parameter = 0;
    std::int64_t group = 0;
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
    device::Tensor weight;             ///< what is stepped: [row_count, columns] float32, or [n] for a vector
    device::Tensor resting;            ///< the same rows at rest in param_dtype; the same tensor if that is float32
    std::int64_t gradient_offset = 0;  ///< elements from the start of the rank's part of the group's accumulators
};

/// Reads rows [row_begin, row_begin + row_count) of a parameter (in-memory shape) into `values`.
using ReadRows = std::function<void(std::int64_t parameter, std::int64_t row_begin, std::int64_t row_count,
                                    std::span<float> values)>;

/// The weights of one rank: at rest in one buffer, gathered group by group while units use them.
///
/// A group is sharded, gathering or resident. It stays resident if its next use is at most prefetch_units visits away;
/// gathers follow a static sequence of visits and stop at its end. With weights at rest in bfloat16 the rank that
/// updates rows also keeps their float32 masters, which are the truth.
class ParameterStore {
  public:
    /// `gathered_bytes` < 0: a limitless pool, for rehearsals.
    ParameterStore(const RankContext& context, const StoreOptions& options, std::int64_t gathered_bytes);
    ~ParameterStore();

    [[nodiscard]] const GroupLayout& layout(std::int64_t group) const { return groups_[index(group)].layout; }
    /// Size that the pool of gathered weights has reached.
    [[nodiscard]] std::int64_t gathered_high_water() const { return pool_.high_water(); }
    /// Most bytes of weights gathered at once: never more than those of 1 + prefetch_units consecutive units.
    [[nodiscard]] std::int64_t peak_gathered_bytes() const { return peak_gathered_bytes_; }
    /// Every schedule that this store starts, in an order that is the same on all ranks.
    [[nodiscard]] std::vector<const comm::TransferSchedule*> schedules() const;
    /// The part of them that gathers weights, by group.
    [[nodiscard]] std::vector<const comm::TransferSchedule*> gather_schedules() const;
    /// The part of them that moves new weights after a step, by group; those of groups that need none are empty.
    [[nodiscard]] std::vector<const comm::TransferSchedule*> publish_schedules() const;

    /// Fills all weights at rest with their initial values.
    void initialise(std::uint64_t seed);
    /// Fills all weights at rest, and their masters, with what `read` gives; it is asked for no row that this rank does
    /// not keep. Blocks.
    void load(const ReadRows& read);
    /// Brings one whole parameter, as it rests, to rank 0's `values` (ignored elsewhere); all ranks call it. Blocks.
    void collect(std::int64_t parameter, std::span<float> values);

    /// What this rank updates after a step.
    [[nodiscard]] const std::vector<OwnedRows>& owned() const { return owned_; }

    /// The visits that follow are those of `sequence`, which must outlive them; the last one of the sequence before has
    /// ended.
    void begin(const std::vector<Visit>& sequence);
    /// Makes the weights of visit `visit` of the sequence usable on the compute stream and starts the gathers of the
    /// next ones. One lease at a time, in the order of visits.
    [[nodiscard]] Lease materialize(std::int64_t visit);
    /// Before weights change: compute waits until no transfer reads or writes them any more.
    void quiesce();
    /// After weights have changed: rounds masters to weights at rest, and moves new weights from where they were
    /// stepped to where they rest.
    void publish();

    /// Seconds the host has waited for gathers since the last call (inline streams; modelled time otherwise unknown).
    [[nodiscard]] double take_exposed_seconds();

  private:
    friend class Lease;
    enum class State : std::uint8_t { sharded, in_pool };
    struct Group {
        explicit Group(GroupLayout group_layout) : layout(std::move(group_layout)) {}
        GroupLayout layout;
        comm::TransferSchedule gather;
        comm::TransferSchedule publish;
        bool gathers = false;             // on some rank
        bool publishes = false;           // on some rank
        std::int64_t at_rest_offset = 0;  // elements from the start of weights_
        std::int64_t gathered_bytes = 0;
        std::int64_t most_gathered_bytes = 0;        // on the rank that gathers most
        std::int64_t pooled_bytes = 0;               // what is asked from the pool: the same for every block
        std::vector<std::int64_t> gathered_offsets;  // by slot; -1: at rest, whole
        std::vector<device::Tensor> resting;         // by slot: where it rests whole
        State state = State::sharded;
        device::BufferPool::Block block;
        device::Event ready;      // of the gather
        device::Event published;  // new weights have arrived
    };
    static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
    [[nodiscard]] std::int64_t value_bytes() const { return device::size_of(options_.param_dtype); }
    [[nodiscard]] bool has_masters() const { return options_.param_dtype != device::DType::float32; }
    void build_group(std::int64_t group);
    void even_out_blocks();
    void list_owned();
    void start_gather(Group& group);
    void prefetch(std::int64_t visit);
    void release(std::int64_t visit) noexcept;
    void bind(const Visit& visit);
    void bind_group(std::int64_t group, std::int64_t unit);
    [[nodiscard]] device::Tensor rows_view(std::int64_t parameter, std::int64_t offset, std::int64_t rows) const;
    [[nodiscard]] comm::TransferBuffers buffers(const Group& group) const;
    void load_rows(const ReadRows& read, std::int64_t parameter, std::int64_t row_begin, const device::Tensor& resting);
    void collect_slot(std::int64_t group, std::int64_t slot, std::span<float> values);

    RankContext context_;
    StoreOptions options_;
    const std::vector<Visit>* visits_ = nullptr;
    std::vector<Group> groups_;
    device::Buffer weights_;
    device::Buffer masters_;
    std::vector<OwnedRows> owned_;
    device::BufferPool pool_;
    std::unique_ptr<device::Stream> lane_;  // carries the waits before a gather
    std::vector<device::Tensor> bound_;     // weights of the present lease
    device::Event last_transfer_;
    double exposed_seconds_ = 0.0;
    std::int64_t gathered_bytes_ = 0;
    std::int64_t peak_gathered_bytes_ = 0;
};

}  // namespace mfsdp::runtime
