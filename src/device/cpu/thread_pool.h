#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace mfsdp::device::cpu {

/// The compute threads of one rank. Work is cut into numbered pieces by shape alone; any thread may take any piece, so
/// the number of threads never shows in the result. Waiting threads sleep (after a short spin only when there are
/// cores to spare), because several ranks may share the cores of a machine.
class ThreadPool {
  public:
    /// `threads` >= 1 compute threads in all, the calling thread being one of them.
    explicit ThreadPool(int threads);
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;
    ~ThreadPool();

    [[nodiscard]] int threads() const;

    /// Calls body(0) .. body(count - 1), each once, on any thread, and returns when all are done. Calls from several
    /// threads take turns. Allocates nothing. If a body throws, one of the exceptions is rethrown here.
    template <class Body>
    void parallel_for(std::int64_t count, Body&& body) {
        using Plain = std::remove_reference_t<Body>;
        run(
            count,
            [](const void* context, std::int64_t index) { (*static_cast<Plain*>(const_cast<void*>(context)))(index); },
            &body);
    }

  private:
    using Piece = void (*)(const void* context, std::int64_t index);
    void run(std::int64_t count, Piece piece, const void* context);

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mfsdp::device::cpu
