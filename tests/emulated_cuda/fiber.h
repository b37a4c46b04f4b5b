#pragma once

#include <cstddef>
#include <functional>

#include <boost/context/fiber.hpp>

namespace emulated_cuda {

/// A place where the processor can be: the thread that runs a block, or one of its fibers. Knows what AddressSanitizer
/// must be told when it changes. ThreadSanitizer is told nothing: a thread of the host and its fibers are one to it.
/// Told of up to 1024 fibers for each block, it took more than 20 minutes for the table of operations, and saw no more:
/// their switches ordered all that they did.
struct ExecutionPlace {
    const void* stack_bottom = nullptr;
    std::size_t stack_bytes = 0;
    void* fake_stack = nullptr;
};

/// A function with a stack of its own that can stop in the middle and go on later, on the same thread of the host.
class Fiber {
  public:
    /// `body` is run at the first resume. It may return only after suspend() has given false.
    Fiber(std::size_t number, std::function<void()> body);
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;
    ~Fiber();

    /// Runs the fiber from where it stopped until it stops again.
    void resume();
    /// Called by the fiber's body: goes back to whoever resumed it. False if the fiber is being destroyed.
    [[nodiscard]] bool suspend();

  private:
    struct Stack;
    std::size_t number_;
    std::function<void()> body_;
    bool ending_ = false;
    ExecutionPlace own_, caller_place_;
    boost::context::fiber context_, caller_;
};

}  // namespace emulated_cuda
