#include "emulated_cuda/fiber.h"

#include "emulated_cuda/kernel.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated_cuda {

namespace {

constexpr std::size_t kPageBytes = 4096;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = 256 * 1024;
#else
constexpr std::size_t kStackBytes = 64 * 1024;
#endif

void leave([[maybe_unused]] ExecutionPlace& from, [[maybe_unused]] const ExecutionPlace& to,
           [[maybe_unused]] bool forever = false) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(forever ? nullptr : &from.fake_stack, to.stack_bottom, to.stack_bytes);
#endif
}

/// `from` gets the bounds of the stack that was left.
void arrive([[maybe_unused]] const ExecutionPlace& at, [[maybe_unused]] ExecutionPlace& from) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(at.fake_stack, &from.stack_bottom, &from.stack_bytes);
#endif
}

}  // namespace

/// Memory with an inaccessible page below it, so that an overflow faults.
struct Fiber::Stack {
    Fiber* fiber;

    [[nodiscard]] boost::context::stack_context allocate() const {
        void* const memory =
            mmap(nullptr, kStackBytes + kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) fail("there is no memory for a fiber's stack: %s", std::strerror(errno));
        if (mprotect(memory, kPageBytes, PROT_NONE) != 0) fail("mprotect: %s", std::strerror(errno));
        // Stacks are used from the top of a page downwards: all in the same sets of the cache unless they are
        // staggered.
        const std::size_t stagger = fiber->number_ % 61 * 192;
        boost::context::stack_context context;
        context.size = kStackBytes - stagger;
        context.sp = static_cast<std::byte*>(memory) + kPageBytes + context.size;
        fiber->own_.stack_bottom = static_cast<std::byte*>(memory) + kPageBytes;
        fiber->own_.stack_bytes = context.size;
        return context;
    }
    void deallocate(boost::context::stack_context& context) const {
        std::byte* const memory = static_cast<std::byte*>(context.sp) - context.size - kPageBytes;
#ifdef __SANITIZE_ADDRESS__
        // What lies here next must not meet the marks of frames that were left for ever.
        __asan_unpoison_memory_region(memory, kStackBytes + kPageBytes);
#endif
        munmap(memory, kStackBytes + kPageBytes);
    }
};

Fiber::Fiber(std::size_t number, std::function<void()> body)
    : number_(number), body_(std::move(body)), context_(std::allocator_arg, Stack{this}, [this](auto&& caller) {
          arrive(own_, caller_place_);
          caller_ = std::forward<decltype(caller)>(caller);
          body_();
          leave(own_, caller_place_, true);
          return std::move(caller_);
      }) {}

Fiber::~Fiber() {
    ending_ = true;
    if (context_) resume();
}

void Fiber::resume() {
    leave(caller_place_, own_);
    context_ = std::move(context_).resume();
    ExecutionPlace left;
    arrive(caller_place_, left);
}

bool Fiber::suspend() {
    leave(own_, caller_place_);
    caller_ = std::move(caller_).resume();
    arrive(own_, caller_place_);
    return !ending_;
}

}  // namespace emulated_cuda
