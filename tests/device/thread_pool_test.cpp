#include "../../src/device/cpu/thread_pool.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace mfsdp::device::cpu {

TEST_CASE("every piece is run exactly once, for any number of threads and pieces") {
    for (const int threads : {1, 2, 3, 8}) {
        ThreadPool pool(threads);
        CHECK(pool.threads() == threads);
        for (const std::int64_t count : {0, 1, 2, 3, 7, 100, 1000}) {
            std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
            for (int repetition = 1; repetition <= 20; ++repetition) {
                pool.parallel_for(count, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
                bool right = true;
                for (const auto& run : runs) right = right && run == repetition;
                CHECK(right);
            }
        }
    }
}

TEST_CASE("what the pieces wrote is visible when parallel_for returns") {
    ThreadPool pool(4);
    std::vector<std::int64_t> values(64, 0);  // plain memory: a missing barrier is a data race
    for (std::int64_t round = 1; round <= 2000; ++round) {
        pool.parallel_for(64, [&](std::int64_t i) { values[static_cast<std::size_t>(i)] += i; });
        REQUIRE(values[63] == 63 * round);
    }
}

TEST_CASE("several threads work on one call") {
    ThreadPool pool(2);
    // Each of the two pieces waits for the other to begin: one thread alone would never finish the first.
    std::atomic<int> begun{0};
    pool.parallel_for(2, [&](std::int64_t) {
        ++begun;
        while (begun < 2) std::this_thread::yield();
    });
    CHECK(begun == 2);
}

TEST_CASE("calls from several threads take turns") {
    ThreadPool pool(3);
    // Each caller's pieces note whose call is running; a piece that sees another caller's note caught two calls at
    // once.
    std::atomic<int> owner{0}, intrusions{0}, total{0};
    const auto call = [&](int caller) {
        for (int i = 0; i < 300; ++i) {
            std::atomic<int> left{5};
            pool.parallel_for(5, [&](std::int64_t) {
                int seen = 0;
                if (!owner.compare_exchange_strong(seen, caller) && seen != caller) ++intrusions;
                std::this_thread::yield();
                ++total;
                if (--left == 0) owner = 0;
            });
        }
    };
    std::thread first([&] { call(1); });
    std::thread second([&] { call(2); });
    first.join();
    second.join();
    CHECK(total == 2 * 300 * 5);
    CHECK(intrusions == 0);
}

TEST_CASE("an exception of a piece reaches the caller, and the pool goes on working") {
    for (const int threads : {1, 3}) {
        ThreadPool pool(threads);
        for (int i = 0; i < 50; ++i) {
            CHECK_THROWS_AS(pool.parallel_for(100,
                                              [](std::int64_t index) {
                                                  if (index == 17) throw std::runtime_error("piece 17");
                                              }),
                            std::runtime_error);
            std::atomic<int> runs{0};
            pool.parallel_for(10, [&](std::int64_t) { ++runs; });
            CHECK(runs == 10);
        }
    }
}

TEST_CASE("sleeping threads wake for the next call") {
    ThreadPool pool(2);
    for (int i = 0; i < 20; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // much longer than a waiting thread spins
        std::atomic<int> runs{0};
        pool.parallel_for(8, [&](std::int64_t) { ++runs; });
        CHECK(runs == 8);
    }
}

TEST_CASE("a pool without threads is refused") { CHECK_THROWS_AS(ThreadPool(0), InternalError); }

}  // namespace mfsdp::device::cpu
