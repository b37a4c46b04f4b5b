#ifdef MFSDP_EMULATED_CUDA_MODULE

#include "mfsdp/base/error.h"
#include "mfsdp/device/buffer_pool.h"

#include "device/transfers.h"
#include "support/catch.h"
#include "support/emulated_cuda.h"
#include "support/throws.h"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace mfsdp::device {

namespace {

using mfsdp::test::configure_emulated_cuda;
using mfsdp::test::make_emulated_cuda_device;
using mfsdp::test::message_of;
using test::same_bits;

std::string asynchronous(std::uint64_t seed) { return "asynchronous=1,seed=" + std::to_string(seed); }

std::unique_ptr<Device> make(const CudaDeviceOptions& options) { return make_cuda_device(options); }

}  // namespace

TEST_CASE("the CUDA device says why there is none") {
    CHECK(
        message_of<ConfigError>([] { (void)make({.module_path = "/nowhere/libmfsdp_cuda.so"}); }) ==
        "device: the CUDA backend cannot be opened: /nowhere/libmfsdp_cuda.so: cannot open shared object file: No such "
        "file or directory");
    CHECK(message_of<ConfigError>([] { (void)make({.module_path = "libm.so.6"}); }) ==
          "device: libm.so.6 is no CUDA backend of this build; build and install both together");
    configure_emulated_cuda("devices=0");
    CHECK(message_of<ConfigError>([] { (void)make({.module_path = MFSDP_EMULATED_CUDA_MODULE}); }) ==
          "device: no GPU can be used: no CUDA-capable device is detected");
    CHECK_THROWS_AS(cuda_device_count(MFSDP_EMULATED_CUDA_MODULE), ConfigError);
    configure_emulated_cuda("devices=2");
    CHECK(cuda_device_count(MFSDP_EMULATED_CUDA_MODULE) == 2);
    CHECK(message_of<ConfigError>([] { (void)make({.ordinal = 2, .module_path = MFSDP_EMULATED_CUDA_MODULE}); }) ==
          "device: there is no GPU 2, this process sees 2 (numbered from 0)");
    CHECK_THROWS_AS(make({.ordinal = -1, .module_path = MFSDP_EMULATED_CUDA_MODULE}), ConfigError);
    CHECK(make({.ordinal = 1, .module_path = MFSDP_EMULATED_CUDA_MODULE})->kind() == DeviceKind::cuda);
}

TEST_CASE("the CUDA device describes what decides bits") {
    const auto device = make_emulated_cuda_device();
    CHECK(device->description().find("cuda emulated GPU sm_90, runtime 13.") == 0);
    CHECK(device->description().find("cuBLASLt") != std::string::npos);
    CHECK(device->description().find("attention by own kernels") != std::string::npos);
    CHECK(device->description().find("not fixed") == std::string::npos);
    const auto other = make({.deterministic = false, .module_path = MFSDP_EMULATED_CUDA_MODULE});
    CHECK(other->description() == device->description() + ", order of sums not fixed");
}

TEST_CASE("memory of the CUDA device is aligned, out of the host's reach, and returned") {
    {
        const auto device = make_emulated_cuda_device("memory_bytes=100000");
        MemoryLedger ledger;
        const Buffer buffer(*device, ledger, MemoryCategory::weights, 1000);
        CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % kAlignment == 0);
        CHECK(device->host_address(buffer.data()) == nullptr);
        CHECK(
            message_of<OutOfMemoryError>([&] { Buffer(*device, ledger, MemoryCategory::state, 99001); }) ==
            "device: 99001 bytes do not fit, 99000 of the GPU's 100000 bytes are free: 99001 for state; bytes in use: "
            "weights 1000");
        const Buffer rest(*device, ledger, MemoryCategory::state, 99000);
    }
    CHECK(mfsdp::test::emulated_cuda_leaks().empty());
}

TEST_CASE("a CUDA call that fails is a DeviceError with the call and the library's text") {
    const auto fails = [](const std::string& call, const auto& action) {
        const auto device = make_emulated_cuda_device();
        const auto stream = device->make_stream();
        MemoryLedger ledger;
        const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4 * 64);
        const Tensor x = buffer.view(DType::float32, {8, 8});
        launch(*stream, Fill{x, 1.0});
        configure_emulated_cuda("failing_call=" + call);
        const std::string message = message_of<DeviceError>([&] { action(*device, *stream, x); });
        configure_emulated_cuda();
        return message;
    };
    const auto synchronize = [](Device&, Stream& stream, const Tensor&) { stream.synchronize(); };
    CHECK(fails("cudaEventSynchronize", synchronize).find("unspecified launch failure (cudaErrorLaunchFailure, ") !=
          std::string::npos);
    CHECK(fails("cudaEventRecord", synchronize).find("cuda: cudaEventRecord(event(") == 0);
    CHECK(fails("cudaEventQuery", [](Device&, Stream& stream, const Tensor&) {
              (void)stream.record().done();
          }).find("cudaErrorLaunchFailure") != std::string::npos);
    CHECK(fails("cudaMalloc", [](Device& device, Stream&, const Tensor&) {
              (void)device.allocate(8);
          }).find("cudaErrorLaunchFailure") != std::string::npos);
    CHECK(fails("launch", [](Device&, Stream& stream, const Tensor& x) {
              launch(stream, Fill{x, 1.0});
          }).find("cudaErrorLaunchFailure") != std::string::npos);
    CHECK(fails("cudaMemcpyAsync", [](Device&, Stream& stream, const Tensor& x) {
              float target = 0;
              launch(stream, CopyToHost{&target, x.slice(0, 0, 1).slice(1, 0, 1)});
          }).find("cudaMemcpyAsync") != std::string::npos);
    CHECK(fails("cublasLtMatmul", [](Device& device, Stream& stream, const Tensor& x) {
              MemoryLedger ledger;
              const Buffer out(device, ledger, MemoryCategory::workspace, 4 * 64);
              launch(stream, Matmul{out.view(DType::float32, {8, 8}), x, x});
          }).find("cuda: cublasLtMatmul(") == 0);
}

TEST_CASE("a CUDA stream has more events than its ring, and old ones stay true") {
    const auto device = make_emulated_cuda_device(asynchronous(1));
    const auto one = device->make_stream(), other = device->make_stream();
    MemoryLedger ledger;
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4);
    const Tensor x = buffer.view(DType::float32, {1});
    std::vector<Event> events;
    for (int i = 1; i <= 600; ++i) {
        launch(*one, Fill{x, 1.0 * i});
        events.push_back(one->record());
        CHECK(one->record().value == events.back().value);  // nothing was issued between: the same point
    }
    float first = 0.0F, last = 0.0F;
    other->wait(events[3]);
    launch(*other, CopyToHost{&first, x});
    other->synchronize();
    CHECK(first >= 4.0F);
    events[599].wait();
    for (const Event& event : events) CHECK(event.done());
    launch(*other, CopyToHost{&last, x});
    other->synchronize();
    CHECK(last == 600.0F);
}

TEST_CASE("streams of the CUDA device do not wait for each other by themselves") {
    const auto device = make_emulated_cuda_device(asynchronous(6));
    const auto busy = device->make_stream(), other = device->make_stream();
    MemoryLedger ledger;
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 512);
    for (int i = 0; i < 500; ++i) launch(*busy, Fill{buffer.view(DType::float32, {1}), 1.0});
    const Event end = busy->record();
    launch(*other, Fill{buffer.view(DType::float32, {1}, 256), 1.0});
    other->synchronize();
    CHECK_FALSE(end.done());
    busy->synchronize();
    CHECK(end.done());
}

TEST_CASE("a point of a CUDA stream lies behind what the stream waits for, even if it has nothing of its own") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const auto device = make_emulated_cuda_device(asynchronous(seed));
        const auto one = device->make_stream(), between = device->make_stream(), last = device->make_stream();
        MemoryLedger ledger;
        const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4);
        const Tensor x = buffer.view(DType::float32, {1});
        float result = 0.0F;
        between->synchronize();
        for (int i = 1; i <= 100; ++i) launch(*one, Fill{x, 1.0 * i});
        between->wait(one->record());
        last->wait(between->record());
        launch(*last, CopyToHost{&result, x});
        last->synchronize();
        CHECK(result == 100.0F);
        one->synchronize();
    }
}

TEST_CASE("the work of a CUDA stream is done when it is destroyed, and its events outlive it") {
    const auto device = make_emulated_cuda_device(asynchronous(3));
    MemoryLedger ledger;
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 4);
    const Tensor x = buffer.view(DType::float32, {1});
    auto stream = device->make_stream();
    for (int i = 0; i < 300; ++i) launch(*stream, Fill{x, 1.0 * i});
    const Event end = stream->record();
    CHECK_FALSE(end.done());
    stream.reset();
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // an answer may be kept for a moment
    CHECK(end.done());
    // The next stream may get the queue of the last one; points of both are told apart.
    stream = device->make_stream();
    launch(*stream, Fill{x, 11.0});
    const Event next = stream->record();
    CHECK(next.value > end.value);
    CHECK(end.done());
    float result = 0.0F;
    launch(*stream, CopyToHost{&result, x});
    stream->synchronize();
    CHECK(result == 11.0F);
}

TEST_CASE("copies between host and CUDA device of any size arrive whole, through memory that is used again") {
    const auto device = make_emulated_cuda_device(asynchronous(4));
    const auto stream = device->make_stream();
    MemoryLedger ledger;
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{262145}, std::int64_t{5000003}}) {
        const std::vector<float> sent = test::random_values(count, 7);
        std::vector<float> copy = sent, received(sent.size());
        const Buffer buffer(*device, ledger, MemoryCategory::workspace, count * 4);
        const Tensor x = buffer.view(DType::float32, {count});
        launch(*stream, CopyFromHost{x, copy.data()});
        launch(*stream, CopyToHost{received.data(), x});
        stream->synchronize();
        CHECK(same_bits(sent, received));
    }
    // Many small ones at once: each has a place of its own until it is over.
    std::vector<float> values(40), received(40);
    const Buffer buffer(*device, ledger, MemoryCategory::workspace, 40 * 4);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i);
        const Tensor x = buffer.view(DType::float32, {1}, static_cast<std::int64_t>(i) * 4);
        launch(*stream, CopyFromHost{x, &values[i]});
        launch(*stream, CopyToHost{&received[i], x});
    }
    stream->synchronize();
    CHECK(same_bits(values, received));
}

TEST_CASE("pooled memory of the CUDA device is ordered by events between streams") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const auto device = make_emulated_cuda_device(asynchronous(seed));
        MemoryLedger ledger;
        BufferPool pool(*device, ledger, MemoryCategory::activations, 4096);
        const auto one = device->make_stream(), other = device->make_stream();
        std::vector<float> results(40);
        for (std::size_t i = 0; i < results.size(); ++i) {
            Stream& stream = i % 2 == 0 ? *one : *other;
            const PooledBuffer block(pool, stream, 4096);  // all of it: every user follows another stream's
            const Tensor x = block.view(DType::float32, {1024});
            launch(stream, Fill{x, static_cast<double>(i)});
            launch(stream, CopyToHost{&results[i], x.slice(0, 1023, 1)});
        }
        one->synchronize();
        other->synchronize();
        for (std::size_t i = 0; i < results.size(); ++i) CHECK(results[i] == static_cast<float>(i));
    }
}

TEST_CASE("scratch of the CUDA device grows with the shapes that were seen, and no further") {
    const auto device = make_emulated_cuda_device();
    test::Bench bench(make_emulated_cuda_device());
    CHECK(device->working_bytes() == 0);
    // Sums this long take a workspace in the emulated library; rows of an odd length are copied.
    const auto multiply = [&](std::int64_t m, std::int64_t k) {
        const Tensor a = bench.send(test::random_values(m * k + 1, 1)), b = bench.send(test::random_values(k * m, 2));
        Tensor shifted = Tensor::dense(a.data + 4, DType::float32, {m, k});
        const Tensor out = bench.reserve(DType::float32, m * m);
        launch(bench.stream(), Matmul{out.reshape({m, m}), shifted, b.reshape({k, m})});
        return bench.device().working_bytes();
    };
    const std::int64_t small = multiply(8, 2048), large = multiply(16, 2048);
    CHECK(small >= 8 * 2048 * 4 + 2 * 8 * 8 * 4);
    CHECK(large >= 2 * small - 512);
    CHECK(multiply(8, 2048) == large);
    CHECK(multiply(16, 2048) == large);
}

TEST_CASE("a product on the CUDA device has the same bits alone, in a batch of any size, and wherever it lies") {
    const auto factors = GENERATE(DType::float32, DType::bfloat16);
    const auto out_type = GENERATE(DType::float32, DType::bfloat16);
    const std::int64_t k = GENERATE(48, 2048);  // the emulated library takes no batches of the longer sums
    constexpr std::int64_t kBatch = 3, kM = 16, kN = 24;
    test::Bench bench(make_emulated_cuda_device());
    const auto stored = [&](std::int64_t count, std::uint64_t seed, std::int64_t offset) {
        const Tensor wide = bench.send(test::random_values(count, seed));
        const Tensor narrow = bench.reserve(factors, count, offset);
        launch(bench.stream(), Copy{narrow, wide});
        return narrow;
    };
    const auto bits = [&](const Tensor& tensor) {
        return bench.fetch<std::int32_t>(Tensor::dense(tensor.data, DType::int32, {tensor.bytes() / 4}));
    };
    const auto matrix = [](const Tensor& batch, std::int64_t i) {
        Tensor result = batch.slice(0, i, 1);
        result.rank = 2;
        result.shape = {batch.shape[1], batch.shape[2]};
        result.strides = {batch.strides[1], batch.strides[2]};
        return result;
    };
    const auto multiply = [&](std::int64_t offset) {
        const Tensor a = stored(kBatch * kM * k, 1, offset).reshape({kBatch, kM, k});
        const Tensor b = stored(kBatch * k * kN, 2, offset).reshape({kBatch, k, kN});
        const Tensor out = bench.reserve(out_type, kBatch * kM * kN, offset).reshape({kBatch, kM, kN});
        std::vector<std::vector<std::int32_t>> results;
        launch(bench.stream(), Matmul{out, a, b});
        results.push_back(bits(out));
        for (std::int64_t first = 0; first + 2 <= kBatch; ++first) {
            launch(bench.stream(), Matmul{out.slice(0, first, 2), a.slice(0, first, 2), b.slice(0, first, 2)});
        }
        results.push_back(bits(out));
        for (std::int64_t i = 0; i < kBatch; ++i) {
            launch(bench.stream(), Matmul{matrix(out, i), matrix(a, i), matrix(b, i)});
        }
        results.push_back(bits(out));
        return results;
    };
    const auto aligned = multiply(0), shifted = multiply(1);
    for (const auto& result : aligned) CHECK(result == aligned[0]);
    for (const auto& result : shifted) CHECK(result == aligned[0]);
}

TEST_CASE("GELU beside a product is the library's own for bfloat16 where it has it, and else the kernel's") {
    struct Case {
        std::int64_t columns, inner;
        DType type, bias_type;
        bool fused;
    };
    constexpr auto kWide = DType::float32, kNarrow = DType::bfloat16;
    const Case tested = GENERATE(values<Case>({
        {24, 48, kNarrow, kNarrow, true},
        {24, 48, kNarrow, kWide, false},      // no product with such a bias
        {20, 48, kNarrow, kNarrow, false},    // rows of no multiple of eight elements
        {24, 2048, kNarrow, kNarrow, false},  // the emulated library has no such algorithm
        {24, 48, kWide, kWide, false},
    }));
    const std::int64_t n = tested.columns, k = tested.inner;
    const DType type = tested.type;
    const bool fused = tested.fused;
    constexpr std::int64_t kRows = 16;
    test::Bench bench(make_emulated_cuda_device());
    const auto matrix = [&](DType stored, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
        const Tensor result = bench.reserve(stored, rows * columns).reshape({rows, columns});
        launch(bench.stream(),
               Copy{result, bench.send(test::random_values(rows * columns, seed)).reshape({rows, columns})});
        return result;
    };
    const auto bits = [&](const Tensor& tensor) {
        const Tensor dense = bench.reserve(type, kRows * n).reshape({kRows, n});
        launch(bench.stream(), Copy{dense, tensor});
        return bench.fetch<std::int32_t>(Tensor::dense(dense.data, DType::int32, {dense.bytes() / 4}));
    };
    const Matmul with_gelu{.out = matrix(type, kRows, n, 1),
                           .a = matrix(type, kRows, k, 2),
                           .b = matrix(type, n, k, 3),
                           .transpose_b = true,
                           .bias = matrix(tested.bias_type, 1, n, 4).reshape({n}),
                           .gelu = matrix(type, kRows, n, 5)};
    Matmul plain = with_gelu;
    plain.out = matrix(type, kRows, n, 6);
    plain.gelu = {};
    const Tensor separate = matrix(type, kRows, n, 7);
    launch(bench.stream(), plain);
    launch(bench.stream(), GeluForward{separate, plain.out});
    launch(bench.stream(), with_gelu);
    CHECK(same_bits(bits(with_gelu.out), bits(plain.out)));
    // The library takes GELU before it rounds, the kernel after.
    CHECK(same_bits(bits(with_gelu.gelu), bits(separate)) == !fused);

    Matmul apart = with_gelu;
    apart.out = matrix(type, kRows, n + 8, 8).slice(1, 0, n);
    apart.gelu = matrix(type, kRows, n + 24, 9).slice(1, 8, n);
    launch(bench.stream(), apart);
    CHECK(same_bits(bits(apart.out), bits(with_gelu.out)));
    CHECK(same_bits(bits(apart.gelu), bits(with_gelu.gelu)));

    // A product and GELU by the library launch no kernel of ours.
    configure_emulated_cuda("failing_call=launch");
    if (fused) {
        CHECK_NOTHROW(launch(bench.stream(), with_gelu));
    } else {
        CHECK_THROWS_AS(launch(bench.stream(), with_gelu), DeviceError);
    }
    configure_emulated_cuda();
    bench.stream().synchronize();
}

}  // namespace mfsdp::device

#endif
