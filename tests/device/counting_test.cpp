#include "mfsdp/base/error.h"
#include "mfsdp/device/counting_device.h"
#include "mfsdp/device/memory.h"

#include "support/catch.h"

#include <set>

namespace mfsdp::device {

namespace {

const CountingDeviceOptions kMachine{1e9, 1e8, 1e-3};

}  // namespace

TEST_CASE("the counting device adds up costs and models time by the slower of computing and moving") {
    const auto device = make_counting_device(kMachine);
    const auto stream = device->make_stream();
    MemoryLedger ledger;
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4 * 3 * 100 * 100);
    const Tensor a = buffer.view(DType::float32, {100, 100});
    const Tensor b = buffer.view(DType::float32, {100, 100}, 40000), c = buffer.view(DType::float32, {100, 100}, 80000);
    launch(*stream, Matmul{c, a, b});
    CHECK(device->total().flops == 2000000);
    CHECK(device->total().bytes == 120000);
    CHECK(stream->record().modelled_seconds == Approx(0.001 + 0.002));  // computing: 2e6 / 1e9
    launch(*stream, Add{c, a, b});
    CHECK(device->total().flops == 2010000);
    CHECK(device->total().bytes == 240000);
    CHECK(stream->record().modelled_seconds == Approx(0.003 + 0.001 + 0.0012));  // moving: 1.2e5 / 1e8
    device->reset_total();
    CHECK(device->total().flops == 0);
    CHECK(device->total().bytes == 0);
}

TEST_CASE("a counting stream that waits goes on at the later of the two times") {
    const auto device = make_counting_device(kMachine);
    const auto one = device->make_stream(), other = device->make_stream();
    MemoryLedger ledger;
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4000);
    const Fill fill{buffer.view(DType::float32, {1000}), 0.0};
    launch(*one, fill);
    launch(*one, fill);
    const double late = one->record().modelled_seconds;
    launch(*other, fill);
    const double early = other->record().modelled_seconds;
    REQUIRE(early < late);
    one->wait(other->record());
    CHECK(one->record().modelled_seconds == late);
    other->wait(one->record());
    CHECK(other->record().modelled_seconds == late);
    other->wait(Event{nullptr, 0, 10.0});
    CHECK(other->record().modelled_seconds == 10.0);
    CHECK(other->record().done());
}

TEST_CASE("the counting device checks operations and hands out distinct addresses without memory") {
    const auto device = make_counting_device({});
    const auto stream = device->make_stream();
    MemoryLedger ledger;
    std::vector<Buffer> buffers;
    std::set<std::byte*> addresses;
    for (int i = 0; i < 100; ++i) {
        buffers.emplace_back(*device, ledger, MemoryCategory::weights, std::int64_t{1} << 40);
        addresses.insert(buffers.back().data());
        CHECK(buffers.back().data() != nullptr);
        CHECK(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 256 == 0);
    }
    CHECK(addresses.size() == 100);
    CHECK(ledger.in_use(MemoryCategory::weights) == 100 * (std::int64_t{1} << 40));
    CHECK(device->host_address(buffers[0].data()) == nullptr);
    CHECK_THROWS_AS(launch(*stream, Add{buffers[0].view(DType::float32, {2}), buffers[1].view(DType::float32, {3}),
                                        buffers[2].view(DType::float32, {2})}),
                    InternalError);
    CHECK(device->total().bytes == 0);
}

}  // namespace mfsdp::device
