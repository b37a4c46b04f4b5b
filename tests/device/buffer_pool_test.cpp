#include "mfsdp/device/buffer_pool.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/counting_device.h"
#include "mfsdp/device/cpu_device.h"

#include "support/catch.h"

#include <chrono>
#include <deque>
#include <random>
#include <thread>
#include <utility>

namespace mfsdp::device {

namespace {

constexpr MemoryCategory kCategory = MemoryCategory::activations;

/// A random but fixed sequence of allocations and releases, as a step would make it; gives the offsets handed out.
std::vector<std::int64_t> play(BufferPool& pool, Stream& one, Stream& other) {
    std::mt19937 random(3);
    std::deque<BufferPool::Block> held;
    std::vector<std::int64_t> offsets;
    for (int i = 0; i < 200; ++i) {
        Stream& user = random() % 2 == 0 ? one : other;
        if (held.size() < 8 && random() % 3 != 0) {
            held.push_back(pool.allocate(static_cast<std::int64_t>(random() % 5000), user));
            offsets.push_back(held.back().offset);
        } else if (!held.empty()) {
            const std::size_t which = random() % held.size();
            one.wait(other.record());
            pool.release(held[which], one.record());
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
        }
    }
    for (const BufferPool::Block& block : held) pool.release(block, one.record());
    return offsets;
}

}  // namespace

TEST_CASE("blocks are placed first-fit, lowest offset first, in multiples of 256 bytes") {
    const auto device = make_cpu_device({});
    const auto stream = device->make_stream();
    MemoryLedger ledger;
    BufferPool pool(*device, ledger, kCategory, 2048);
    const auto a = pool.allocate(100, *stream), b = pool.allocate(300, *stream), c = pool.allocate(256, *stream);
    CHECK(a.offset == 0);
    CHECK(a.bytes == 256);
    CHECK(b.offset == 256);
    CHECK(b.bytes == 512);
    CHECK(c.offset == 768);
    CHECK(c.data - a.data == 768);
    CHECK(pool.in_use() == 1024);
    pool.release(a, {});
    pool.release(b, {});
    CHECK(pool.allocate(600, *stream).offset == 0);
    CHECK(pool.allocate(300, *stream).offset == 1024);
    CHECK(pool.high_water() == 1536);
    CHECK(ledger.in_use(kCategory) == 2048);
    const auto none = pool.allocate(0, *stream);
    CHECK(none.data == nullptr);
    pool.release(none, {});
}

TEST_CASE("an exhausted pool says its category, what was wanted and what it has") {
    const auto device = make_cpu_device({});
    const auto stream = device->make_stream();
    MemoryLedger ledger;
    BufferPool pool(*device, ledger, MemoryCategory::gathered, 1024);
    const auto held = pool.allocate(512, *stream);
    CHECK_THROWS_AS(pool.allocate(513, *stream), DeviceError);
    CHECK_THROWS_WITH(pool.allocate(513, *stream), Catch::Contains("gathered") && Catch::Contains("768 bytes") &&
                                                       Catch::Contains("1024 bytes") &&
                                                       Catch::Contains("512 are in use"));
    CHECK(pool.allocate(512, *stream).offset == 512);
    pool.release(held, {});
    CHECK_THROWS_AS(pool.release(held, {}), InternalError);
    CHECK_THROWS_AS(pool.allocate(-1, *stream), InternalError);
    CHECK_THROWS_AS(BufferPool(*device, ledger, MemoryCategory::gathered, -1), InternalError);
}

TEST_CASE("released memory is handed out at once, and its next user waits for the release") {
    const auto device = make_cpu_device({.asynchronous_streams = true});
    const auto one = device->make_stream(), other = device->make_stream();
    MemoryLedger ledger;
    BufferPool pool(*device, ledger, kCategory, 1024);
    HostTimeline gate;
    const auto first = pool.allocate(1024, *one);
    one->wait(Event{&gate, 1});
    pool.release(first, one->record());
    const auto second = pool.allocate(512, *other);
    CHECK(second.data == first.data);
    const Event ready = other->record();
    const auto third = pool.allocate(512, *one);  // the rest of the first block is pending too
    CHECK(third.offset == 512);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK_FALSE(ready.done());
    gate.advance(1);
    ready.wait();
    CHECK(ready.done());
}

TEST_CASE("a part of released memory that nobody has taken stays behind its event") {
    const auto device = make_cpu_device({.asynchronous_streams = true});
    const auto one = device->make_stream(), other = device->make_stream(), third = device->make_stream();
    MemoryLedger ledger;
    BufferPool pool(*device, ledger, kCategory, 1024);
    HostTimeline gate;
    const auto whole = pool.allocate(1024, *one);
    one->wait(Event{&gate, 1});
    pool.release(whole, one->record());
    const auto low = pool.allocate(256, *other);
    const auto high = pool.allocate(768, *third);
    CHECK(low.offset == 0);
    CHECK(high.offset == 256);
    const Event ready = third->record();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK_FALSE(ready.done());
    gate.advance(1);
    ready.wait();
}

TEST_CASE("pooled memory keeps its values while streams with random delays hand it to one another") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        const auto device = make_cpu_device({.threads = 2, .asynchronous_streams = true, .delay_seed = seed});
        const std::unique_ptr<Stream> streams[] = {device->make_stream(), device->make_stream(), device->make_stream()};
        MemoryLedger ledger;
        BufferPool pool(*device, ledger, kCategory, 2 * 1024);
        std::vector<float> results(60, 0.0F);
        for (std::size_t i = 0; i < results.size(); ++i) {
            Stream& stream = *streams[i % 3];
            const PooledBuffer buffer(pool, stream, i % 2 == 0 ? 1024 : 512);
            const Tensor x = buffer.view(DType::float32, {128});
            launch(stream, Fill{x, static_cast<double>(i)});
            launch(stream, ScaledAdd{x, x, x, 1.0F, 1.0F});
            launch(stream, CopyToHost{&results[i], x.slice(0, 127, 1)});
        }
        for (const auto& stream : streams) stream->synchronize();
        bool right = true;
        for (std::size_t i = 0; i < results.size(); ++i) right = right && results[i] == 2.0F * static_cast<float>(i);
        CHECK(right);
        CHECK(pool.in_use() == 0);
    }
}

TEST_CASE("offsets and high-water are the same inline, on threads and on the counting device") {
    const auto counting = make_counting_device({});
    const auto one = counting->make_stream(), other = counting->make_stream();
    MemoryLedger rehearsal;
    std::int64_t high_water = 0;
    std::vector<std::int64_t> offsets;
    {
        BufferPool pool(*counting, rehearsal, kCategory, -1);
        offsets = play(pool, *one, *other);
        high_water = pool.high_water();
        CHECK(rehearsal.in_use(kCategory) == high_water);
    }
    CHECK(rehearsal.in_use(kCategory) == 0);
    CHECK(rehearsal.peak(kCategory) == high_water);
    REQUIRE(high_water > 10000);
    REQUIRE(offsets.size() > 50);
    for (const bool asynchronous : {false, true}) {
        const auto device = make_cpu_device({.asynchronous_streams = asynchronous});
        const auto first = device->make_stream(), second = device->make_stream();
        MemoryLedger ledger;
        BufferPool pool(*device, ledger, kCategory, high_water);  // exactly what the rehearsal needed
        CHECK(play(pool, *first, *second) == offsets);
        CHECK(pool.high_water() == high_water);
        CHECK(ledger.peak(kCategory) == rehearsal.peak(kCategory));
        first->synchronize();
        second->synchronize();
    }
}

TEST_CASE("on the counting device the next user of pooled memory starts when the last one has ended") {
    const auto device = make_counting_device({1e9, 1e8, 1.0});
    const auto one = device->make_stream(), other = device->make_stream();
    MemoryLedger ledger;
    BufferPool pool(*device, ledger, kCategory, -1);
    {
        const PooledBuffer buffer(pool, *one, 256);
        launch(*one, Fill{buffer.view(DType::float32, {64}), 0.0});
    }
    const PooledBuffer next(pool, *other, 256);
    CHECK(other->record().modelled_seconds == one->record().modelled_seconds);
    CHECK(other->record().modelled_seconds > 1.0);
}

TEST_CASE("a pooled buffer gives its block back once, when it ends, is moved from or is reset") {
    const auto device = make_cpu_device({});
    const auto stream = device->make_stream();
    MemoryLedger ledger;
    BufferPool pool(*device, ledger, kCategory, 4096);
    PooledBuffer a(pool, *stream, 1000);
    CHECK(a.view(DType::float32, {250}).data == a.data());
    CHECK_THROWS_AS(a.view(DType::float32, {257}), InternalError);
    PooledBuffer b = std::move(a);
    CHECK(pool.in_use() == 1024);
    a = PooledBuffer(pool, *stream, 100);
    CHECK(pool.in_use() == 1280);
    b = std::move(a);
    CHECK(pool.in_use() == 256);
    b.reset();
    b.reset();
    CHECK(pool.in_use() == 0);
    CHECK(b.data() == nullptr);
}

}  // namespace mfsdp::device
