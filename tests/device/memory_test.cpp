#include "mfsdp/device/memory.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"

#include "support/catch.h"

#include <set>
#include <string>
#include <utility>

namespace mfsdp::device {

TEST_CASE("the ledger follows buffers from construction to destruction, by category") {
    const auto device = make_cpu_device({});
    MemoryLedger ledger;
    {
        const Buffer weights(*device, ledger, MemoryCategory::weights, 1000);
        Buffer state(*device, ledger, MemoryCategory::state, 500);
        CHECK(ledger.in_use(MemoryCategory::weights) == 1000);
        CHECK(ledger.in_use(MemoryCategory::state) == 500);
        Buffer moved = std::move(state);
        CHECK(ledger.in_use(MemoryCategory::state) == 500);
        CHECK(moved.bytes() == 500);
    }
    CHECK(ledger.in_use(MemoryCategory::weights) == 0);
    CHECK(ledger.in_use(MemoryCategory::state) == 0);
    CHECK(ledger.peak(MemoryCategory::weights) == 1000);
    ledger.raise_peak(MemoryCategory::weights, 10);
    CHECK(ledger.peak(MemoryCategory::weights) == 1000);
    ledger.raise_peak(MemoryCategory::weights, 2000);
    CHECK(ledger.peak(MemoryCategory::weights) == 2000);
}

TEST_CASE("an empty buffer is legal, and a view that does not fit is refused") {
    const auto device = make_cpu_device({});
    MemoryLedger ledger;
    const Buffer empty(*device, ledger, MemoryCategory::transfer, 0);
    CHECK(empty.data() == nullptr);
    CHECK(empty.view(DType::float32, {0, 4}).count() == 0);
    CHECK_THROWS_AS(empty.view(DType::float32, {1}), InternalError);
    const Buffer buffer(*device, ledger, MemoryCategory::transfer, 100);
    CHECK(buffer.view(DType::float32, {5, 5}).data == buffer.data());
    CHECK(buffer.view(DType::float32, {5}, 80).data == buffer.data() + 80);
    CHECK_THROWS_WITH(buffer.view(DType::float32, {6}, 80), Catch::Contains("float32 [6]") && Catch::Contains("100"));
    CHECK_THROWS_AS(buffer.view(DType::float32, {1}, -4), InternalError);
    CHECK_THROWS_AS(Buffer(*device, ledger, MemoryCategory::transfer, -1), InternalError);
}

TEST_CASE("every memory category has its own name") {
    std::set<std::string_view> names;
    for (std::int64_t i = 0; i < kMemoryCategories; ++i) names.insert(name(static_cast<MemoryCategory>(i)));
    CHECK(names.size() == static_cast<std::size_t>(kMemoryCategories));
    CHECK(names.count("?") == 0);
}

// The sanitizers end the program instead of refusing such an amount.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("memory that the machine does not have is refused with a sentence") {
    const auto device = make_cpu_device({});
    MemoryLedger ledger;
    CHECK_THROWS_AS(Buffer(*device, ledger, MemoryCategory::state, std::int64_t{1} << 56), DeviceError);
    CHECK(ledger.in_use(MemoryCategory::state) == 0);
}
#endif

}  // namespace mfsdp::device
