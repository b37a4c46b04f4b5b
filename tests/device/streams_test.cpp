#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/device/stream.h"

#include "device/transfers.h"
#include "support/catch.h"
#include "support/cuda_devices.h"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace mfsdp::device {

namespace {

using mfsdp::test::NamedDevice;
using test::same_bits;

std::unique_ptr<Device> asynchronous(std::uint64_t seed) {
    return make_cpu_device({.threads = 2, .asynchronous_streams = true, .delay_seed = seed});
}

/// Devices whose streams pause at random.
std::vector<NamedDevice> asynchronous_devices(std::uint64_t seed) {
    std::vector<NamedDevice> devices{{"the CPU", [seed] { return asynchronous(seed); }}};
    const std::string settings = std::string("asynchronous=1,seed=").append(std::to_string(seed));
    for (const auto& make : mfsdp::test::emulated_cuda_devices({settings})) {
        devices.push_back({"the emulated CUDA device", make});
    }
    return devices;
}

}  // namespace

TEST_CASE("an inline stream has done its work when launch returns, and its events are complete") {
    const auto device = make_cpu_device({});
    const auto stream = device->make_stream();
    MemoryLedger ledger;
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4);
    launch(*stream, Fill{buffer.view(DType::float32, {1}), 3.0});
    CHECK(*reinterpret_cast<const float*>(device->host_address(buffer.data())) == 3.0F);
    CHECK(stream->record().done());
}

TEST_CASE("operations of an asynchronous stream run in the order of issue") {
    for (const std::uint64_t seed : {1, 2, 3}) {
        const auto device = asynchronous(seed);
        const auto stream = device->make_stream();
        MemoryLedger ledger;
        const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4);
        const Tensor x = buffer.view(DType::float32, {1});
        launch(*stream, Fill{x, 1.0});
        for (int i = 0; i < 30; ++i) launch(*stream, ScaledAdd{x, x, x, 2.0F, -1.0F});  // 1 again
        launch(*stream, ScaledAdd{x, x, {}, 5.0F, 0.0F});
        float result = 0.0F;
        launch(*stream, CopyToHost{&result, x});
        stream->synchronize();
        CHECK(result == 5.0F);
    }
}

TEST_CASE("launch returns before an asynchronous stream has done the work") {
    const auto device = asynchronous(1);
    const auto stream = device->make_stream();
    HostTimeline gate;
    MemoryLedger ledger;
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4);
    stream->wait(Event{&gate, 1});
    launch(*stream, Fill{buffer.view(DType::float32, {1}), 3.0});
    const Event after = stream->record();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK_FALSE(after.done());
    gate.advance(1);
    after.wait();
    CHECK(after.done());
    CHECK(*reinterpret_cast<const float*>(buffer.data()) == 3.0F);
}

TEST_CASE("events order streams of the CPU and of the CUDA device, whatever the delays") {
    const auto seed = static_cast<std::uint64_t>(GENERATE(range(1, 11)));
    const NamedDevice tested = GENERATE_COPY(from_range(asynchronous_devices(seed)));
    INFO("on " << tested.name << ", seed " << seed);
    const auto device = tested.make();
    const auto one = device->make_stream(), other = device->make_stream();
    MemoryLedger ledger;
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 512);
    const Tensor x = buffer.view(DType::float32, {1}), step = buffer.view(DType::float32, {1}, 256);
    launch(*one, Fill{x, 0.0});
    launch(*one, Fill{step, 1.0});
    // Ping-pong: each stream adds to what the other left.
    for (int i = 0; i < 10; ++i) {
        launch(*one, Add{x, x, step});
        other->wait(one->record());
        launch(*other, ScaledAdd{x, x, {}, 2.0F, 0.0F});
        one->wait(other->record());
    }
    float result = 0.0F;
    launch(*one, CopyToHost{&result, x});
    one->synchronize();
    CHECK(result == 2046.0F);  // x -> 2 (x + 1), ten times from 0: 2 (2^10 - 1)
}

TEST_CASE(
    "an inline stream of the CPU and a stream of the CUDA device wait for another thread, and throw its failure") {
    const NamedDevice tested = GENERATE(from_range(mfsdp::test::cpu_and_emulated_cuda()));
    INFO("on " << tested.name);
    const auto device = tested.make();
    const auto stream = device->make_stream();
    HostTimeline timeline;
    int written = 0;
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        written = 1;
        timeline.advance(7);
    });
    stream->wait(Event{&timeline, 7});
    CHECK(written == 1);
    other.join();
    timeline.fail(std::make_exception_ptr(CommunicationError("communication: rank 3 is gone.")));
    CHECK_THROWS_AS(stream->wait(Event{&timeline, 8}), CommunicationError);
    stream->wait(Event{});
    stream->wait(stream->record());
    stream->synchronize();
}

TEST_CASE("a failed timeline reaches whoever waits, through streams and events") {
    const auto device = asynchronous(4);
    const auto one = device->make_stream(), other = device->make_stream();
    HostTimeline transfer;
    one->wait(Event{&transfer, 1});
    other->wait(one->record());
    MemoryLedger ledger;
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4);
    float untouched = 3.0F;
    launch(*other, CopyToHost{&untouched, buffer.view(DType::float32, {1})});
    transfer.fail(std::make_exception_ptr(CommunicationError("communication: rank 3 is gone.")));
    CHECK_THROWS_AS(other->synchronize(), CommunicationError);
    CHECK_THROWS_AS(one->synchronize(), CommunicationError);
    CHECK_THROWS_AS(other->record().wait(), CommunicationError);
    CHECK(untouched == 3.0F);  // what comes after the failure is not started
}

TEST_CASE("a stream finishes its work when it is destroyed, and its events outlive it") {
    const auto device = asynchronous(5);
    MemoryLedger ledger;
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4);
    auto stream = device->make_stream();
    for (int i = 0; i < 10; ++i) launch(*stream, Fill{buffer.view(DType::float32, {1}), 1.0 * i});
    const Event end = stream->record();
    stream.reset();
    CHECK(end.done());
    CHECK(*reinterpret_cast<const float*>(buffer.data()) == 9.0F);
}

TEST_CASE("two asynchronous streams share one thread pool and give the bits of an inline stream") {
    const std::vector<float> a = test::random_values(200 * 300, 1), b = test::random_values(300 * 200, 2);
    test::Bench plain(make_cpu_device({.threads = 1}));
    const Tensor wanted = plain.reserve(DType::float32, 200 * 200).reshape({200, 200});
    launch(plain.stream(), Matmul{wanted, plain.send(a).reshape({200, 300}), plain.send(b).reshape({300, 200})});
    test::Bench bench(asynchronous(6));
    const auto second = bench.device().make_stream();
    const Tensor left = bench.send(a).reshape({200, 300}), right = bench.send(b).reshape({300, 200});
    const Tensor x = bench.reserve(DType::float32, 200 * 200).reshape({200, 200});
    const Tensor y = bench.reserve(DType::float32, 200 * 200).reshape({200, 200});
    for (int i = 0; i < 5; ++i) {
        launch(bench.stream(), Matmul{x, left, right});
        launch(*second, Matmul{y, left, right});
    }
    second->synchronize();
    CHECK(same_bits(bench.fetch(x), plain.fetch(wanted)));
    CHECK(same_bits(bench.fetch(y), plain.fetch(wanted)));
}

}  // namespace mfsdp::device
