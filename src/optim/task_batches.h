#pragma once

#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/device/ops/decomposition.h"
#include "mfsdp/optim/matrix_optimizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace mfsdp::optim {

/// A side of a block that has a factor.
struct Side {
    bool left = true;
    std::int64_t size = 0;
};

/// The sides of a block that have factors, left first.
class Sides {
  public:
    void add(Side side) { sides_[count_++] = side; }
    [[nodiscard]] std::span<const Side> all() const& { return std::span(sides_).first(count_); }
    std::span<const Side> all() && = delete;  // it would outlive them
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] bool has(bool left) const {
        return std::any_of(all().begin(), all().end(), [left](const Side& side) { return side.left == left; });
    }

  private:
    std::array<Side, 2> sides_{};
    std::size_t count_ = 0;
};

/// Bytes of scratch that the tasks of one launch take together, unless a single block takes more: with staggered
/// refreshes the matrices due in a step usually fit, and where all are due at once they take turns.
inline constexpr std::int64_t kTaskBytes = std::int64_t{1} << 29;

/// Calls body(blocks) for one part of the due blocks after the other, each part's tasks being one launch. due(block)
/// and sides(block) say what is to be done, bytes(size) what one task takes.
template <class Due, class SidesOf, class Bytes, class Body>
void for_task_batches(std::span<const BlockWork> blocks, const Due& due, const SidesOf& sides, const Bytes& bytes,
                      const Body& body) {
    std::array<const BlockWork*, device::kMaxTasks> batch{};
    std::size_t count = 0;
    std::int64_t tasks = 0, total = 0;
    const auto flush = [&] {
        if (count > 0) body(std::span<const BlockWork* const>(batch).first(count));
        count = 0;
        tasks = total = 0;
    };
    for (const BlockWork& block : blocks) {
        const Sides of_block = sides(block);
        if (of_block.count() == 0 || !due(block)) continue;
        std::int64_t wanted = 0;
        for (const Side& side : of_block.all()) wanted += bytes(side.size);
        const auto more = static_cast<std::int64_t>(of_block.count());
        if (count > 0 && (tasks + more > device::kMaxTasks || total + wanted > kTaskBytes)) flush();
        batch[count++] = &block;
        tasks += more;
        total += wanted;
    }
    flush();
}

}  // namespace mfsdp::optim
