#include "emulated_cuda/kernel.h"

#include "emulated_cuda/fiber.h"
#include "emulated_cuda/runtime.h"
#include "emulated_cuda/workers.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace emulated_cuda {

thread_local ThreadView* current = nullptr;

namespace {

constexpr unsigned kWarpSize = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr std::size_t kMaxSharedBytes = 227 * 1024;

/// Where threads of a warp meet.
struct Warp {
    unsigned live = 0, arrived = 0, generation = 0;
    // Two of each: a lane may give its next word while others still read the last ones.
    std::array<std::array<std::uint64_t, kWarpSize>, 2> words{};
    std::array<unsigned, 2> given{};  // bit i: lane i has given a word

    void give(unsigned lane, std::uint64_t word) {
        const unsigned set = generation % 2;
        if (arrived == 0) given[set] = 0;
        given[set] |= 1U << lane;
        words[set][lane] = word;
    }
};

struct Grid {
    dim3 blocks, threads;
    std::size_t shared_bytes = 0;
    std::function<void()> thread;
    bool backwards = false;
};

/// Runs blocks on the calling thread of the host, one after the other. Fibers take the block's threads in turn: one
/// that returns without having waited for others is followed by the next on the same fiber, so that kernels without
/// barriers cost no switch. Fibers are kept for later blocks.
class BlockRunner {
  public:
    void run(const Grid& grid, std::uint64_t block);

    int barrier(int predicate);
    void meet_warp();
    std::uint64_t exchange(std::uint64_t word, unsigned source);
    unsigned ballot(int predicate);

  private:
    /// One fiber and the thread of the kernel that it runs at present.
    struct Lane {
        ThreadView view;
        Warp* warp = nullptr;
        const unsigned* awaited = nullptr;  ///< the fiber goes on once this is not `seen` any more
        unsigned seen = 0;
        bool idle = true;
        std::unique_ptr<Fiber> fiber;
    };

    void begin(const Grid& grid, std::uint64_t block);
    void start_threads();
    void finish_threads();
    bool resume_warp(std::size_t begin, std::size_t end);
    void work(Lane& lane);
    void take_next_thread(Lane& lane);
    void resume(Lane& lane);
    void wait_while(const unsigned& generation, unsigned seen);
    void release_block_if_complete();
    void release_warp_if_complete(Warp& warp);

    const Grid* grid_ = nullptr;
    uint3 block_{};
    unsigned thread_count_ = 0, next_ = 0, live_ = 0;
    unsigned arrived_ = 0, generation_ = 0;  // at the block's barrier
    int gathered_ = 0, result_ = 0;          // of its predicates
    Lane* running_ = nullptr;
    std::vector<Warp> warps_;
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::vector<Lane*> active_;
    std::vector<std::byte> shared_;
    std::byte* shared_begin_ = nullptr;
};

BlockRunner& runner() {
    thread_local BlockRunner result;
    return result;
}

void BlockRunner::run(const Grid& grid, std::uint64_t block) {
    begin(grid, block);
    start_threads();
    finish_threads();
    current = nullptr;
}

void BlockRunner::begin(const Grid& grid, std::uint64_t block) {
    grid_ = &grid;
    block_ = {static_cast<unsigned>(block % grid.blocks.x),
              static_cast<unsigned>(block / grid.blocks.x % grid.blocks.y),
              static_cast<unsigned>(block / grid.blocks.x / grid.blocks.y)};
    thread_count_ = grid.threads.x * grid.threads.y * grid.threads.z;
    next_ = 0;
    live_ = thread_count_;
    arrived_ = 0;
    gathered_ = 0;
    const unsigned warps = (thread_count_ + kWarpSize - 1) / kWarpSize;
    if (warps_.size() < warps) warps_.resize(warps);
    for (unsigned w = 0; w < warps; ++w) {
        warps_[w].arrived = 0;
        warps_[w].live = std::min(kWarpSize, thread_count_ - w * kWarpSize);
    }
    constexpr std::size_t kLine = 64;
    if (shared_.size() < grid.shared_bytes + kLine) shared_.resize(grid.shared_bytes + kLine);
    const auto address = reinterpret_cast<std::uintptr_t>(shared_.data());
    shared_begin_ = shared_.data() + (kLine - address % kLine) % kLine;
    std::memset(shared_begin_, 0xFF, grid.shared_bytes);  // whoever reads what no thread has written gets NaN
}

void BlockRunner::start_threads() {
    active_.clear();
    for (std::size_t used = 0; next_ < thread_count_; ++used) {
        if (used == lanes_.size()) {
            lanes_.push_back(std::make_unique<Lane>());
            Lane& lane = *lanes_.back();
            lane.fiber = std::make_unique<Fiber>(used, [this, &lane] { work(lane); });
        }
        Lane& lane = *lanes_[used];
        lane.idle = false;
        resume(lane);
        if (!lane.idle) active_.push_back(&lane);
    }
}

void BlockRunner::finish_threads() {
    while (!active_.empty()) {
        bool progress = false;
        for (std::size_t begin = 0; begin < active_.size();) {
            std::size_t end = begin;
            while (end < active_.size() && active_[end]->warp == active_[begin]->warp) ++end;
            progress = resume_warp(begin, end) || progress;
            begin = end;
        }
        std::erase_if(active_, [](const Lane* lane) { return lane->idle; });
        if (!progress) {
            fail("the threads of block (%u, %u, %u) wait for each other at different barriers", block_.x, block_.y,
                 block_.z);
        }
    }
}

/// Runs the threads of one warp as far as they go without the others.
bool BlockRunner::resume_warp(std::size_t begin, std::size_t end) {
    bool progress = false;
    for (bool again = true; again;) {
        again = false;
        for (std::size_t i = begin; i < end; ++i) {
            Lane& lane = *active_[i];
            if (lane.idle || *lane.awaited == lane.seen) continue;
            resume(lane);
            again = progress = true;
        }
    }
    return progress;
}

void BlockRunner::resume(Lane& lane) {
    running_ = &lane;
    current = &lane.view;
    lane.fiber->resume();
}

/// Body of every fiber: threads of this block, then, once resumed again, of the next.
void BlockRunner::work(Lane& lane) {
    for (;;) {
        while (next_ < thread_count_) {
            take_next_thread(lane);
            grid_->thread();
            --live_;
            --lane.warp->live;
            release_block_if_complete();
            release_warp_if_complete(*lane.warp);
        }
        lane.idle = true;
        if (!lane.fiber->suspend()) return;
    }
}

void BlockRunner::take_next_thread(Lane& lane) {
    const unsigned number = grid_->backwards ? thread_count_ - 1 - next_ : next_;
    ++next_;
    const dim3& size = grid_->threads;
    lane.view.thread = {number % size.x, number / size.x % size.y, number / size.x / size.y};
    lane.view.block = block_;
    lane.view.block_size = size;
    lane.view.grid_size = grid_->blocks;
    lane.view.lane = number % kWarpSize;
    lane.view.dynamic_shared = shared_begin_;
    lane.warp = &warps_[number / kWarpSize];
}

void BlockRunner::wait_while(const unsigned& generation, unsigned seen) {
    Lane& lane = *running_;
    lane.awaited = &generation;
    lane.seen = seen;
    if (!lane.fiber->suspend()) fail("a kernel ended in the middle of a block");
}

void BlockRunner::release_block_if_complete() {
    if (live_ == 0 || arrived_ != live_) return;
    arrived_ = 0;
    result_ = gathered_;
    gathered_ = 0;
    ++generation_;
}

void BlockRunner::release_warp_if_complete(Warp& warp) {
    if (warp.live == 0 || warp.arrived != warp.live) return;
    warp.arrived = 0;
    ++warp.generation;
}

int BlockRunner::barrier(int predicate) {
    const unsigned seen = generation_;
    gathered_ |= predicate != 0 ? 1 : 0;
    ++arrived_;
    release_block_if_complete();
    if (generation_ == seen) wait_while(generation_, seen);
    return result_;
}

void BlockRunner::meet_warp() {
    Warp& warp = *running_->warp;
    const unsigned seen = warp.generation;
    ++warp.arrived;
    release_warp_if_complete(warp);
    if (warp.generation == seen) wait_while(warp.generation, seen);
}

std::uint64_t BlockRunner::exchange(std::uint64_t word, unsigned source) {
    Warp& warp = *running_->warp;
    const unsigned set = warp.generation % 2;
    warp.give(running_->view.lane, word);
    meet_warp();
    if ((warp.given[set] >> source & 1U) == 0) {
        fail("lane %u of a warp reads from lane %u, which takes no part", running_->view.lane, source);
    }
    return warp.words[set][source];
}

unsigned BlockRunner::ballot(int predicate) {
    Warp& warp = *running_->warp;
    const unsigned set = warp.generation % 2;
    warp.give(running_->view.lane, predicate != 0 ? 1 : 0);
    meet_warp();
    unsigned result = 0;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
        if ((warp.given[set] >> lane & 1U) != 0) result |= static_cast<unsigned>(warp.words[set][lane]) << lane;
    }
    return result;
}

bool is_valid(dim3 blocks, dim3 threads, std::size_t shared_bytes) {
    constexpr unsigned kMaxSide = 65535;
    const std::uint64_t in_block = std::uint64_t{threads.x} * threads.y * threads.z;
    return blocks.x >= 1 && blocks.y >= 1 && blocks.z >= 1 && blocks.x <= 0x7FFFFFFFU && blocks.y <= kMaxSide &&
           blocks.z <= kMaxSide && in_block >= 1 && in_block <= kMaxThreads && threads.z <= 64 &&
           shared_bytes <= kMaxSharedBytes;
}

/// Below this many threads of a kernel, waking other threads of the host costs more than it saves.
constexpr std::uint64_t kThreadsWorthHelp = 16384;

}  // namespace

cudaError_t launch(dim3 blocks, dim3 threads, std::size_t shared_bytes, cudaStream_t stream,
                   std::function<void()> thread) {
    if (!is_valid(blocks, threads, shared_bytes)) return cudaErrorInvalidConfiguration;
    if (settings().failing_call == "launch") return cudaErrorLaunchFailure;
    enqueue(stream, [grid = Grid{blocks, threads, shared_bytes, std::move(thread), settings().backwards}] {
        const std::uint64_t count = std::uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
        const std::uint64_t in_block = std::uint64_t{grid.threads.x} * grid.threads.y * grid.threads.z;
        std::atomic<std::uint64_t> next{0};
        const auto work = [&] {
            for (std::uint64_t block = next++; block < count; block = next++) runner().run(grid, block);
        };
        if (count > 1 && count * in_block >= kThreadsWorthHelp) {
            run_with_helpers(work);
        } else {
            work();
        }
    });
    return cudaSuccess;
}

int block_barrier(int predicate) { return runner().barrier(predicate); }
void warp_barrier() { runner().meet_warp(); }
std::uint64_t exchange(std::uint64_t word, unsigned source) { return runner().exchange(word, source); }
unsigned ballot(int predicate) { return runner().ballot(predicate); }

void fail(const char* format, ...) {
    std::fputs("emulated cuda: ", stderr);
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);
}

}  // namespace emulated_cuda
