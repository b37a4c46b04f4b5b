#ifdef MFSDP_EMULATED_CUDA_MODULE

#include "mfsdp/device/memory.h"
#include "mfsdp/device/ops/decomposition.h"
#include "mfsdp/device/ops/symmetric.h"

#include "support/catch.h"
#include "support/emulated_cuda.h"

#include <cmath>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace mfsdp::device {

namespace {

constexpr std::int64_t kSide = 20;

/// Memory of one test on a device, filled and read through copies.
class Memory {
  public:
    explicit Memory(const std::string& settings)
        : device_(mfsdp::test::make_emulated_cuda_device(settings)), stream_(device_->make_stream()) {}

    [[nodiscard]] Stream& stream() { return *stream_; }

    template <class T>
    [[nodiscard]] Tensor make(DType dtype, std::initializer_list<std::int64_t> shape, const std::vector<T>& values) {
        const Tensor tensor = make(dtype, shape);
        launch(*stream_, CopyFromHost{tensor, values.data()});
        stream_->synchronize();
        return tensor;
    }
    [[nodiscard]] Tensor make(DType dtype, std::initializer_list<std::int64_t> shape) {
        std::int64_t count = 1;
        for (const std::int64_t size : shape) count *= size;
        buffers_.emplace_back(*device_, ledger_, MemoryCategory::workspace, count * size_of(dtype));
        return buffers_.back().view(dtype, shape);
    }
    template <class T>
    [[nodiscard]] std::vector<T> read(const Tensor& tensor) {
        std::vector<T> values(static_cast<std::size_t>(tensor.count()));
        launch(*stream_, CopyToHost{values.data(), tensor});
        stream_->synchronize();
        return values;
    }

  private:
    std::unique_ptr<Device> device_;
    std::unique_ptr<Stream> stream_;
    MemoryLedger ledger_;
    std::vector<Buffer> buffers_;
};

std::vector<float> correlations() {
    std::vector<float> values;
    for (std::int64_t i = 0; i < kSide * kSide; ++i) {
        values.push_back(static_cast<float>(std::pow(0.6, std::abs(i / kSide - i % kSide))));
    }
    return values;
}

struct Root {
    std::vector<float> values;
    std::int64_t status;
};

Root inverse_root(const std::string& settings) {
    Memory memory(settings);
    InverseRoots roots{.count = 1, .workspace = memory.make(DType::float32, {InverseRoots::task_floats(kSide)})};
    roots.tasks[0] = {memory.make(DType::float32, {kSide, kSide}, correlations()),
                      memory.make(DType::float32, {kSide, kSide}, std::vector<float>(kSide * kSide, 7.0F)),
                      memory.make(DType::int64, {1})};
    launch(memory.stream(), roots);
    return {memory.read<float>(roots.tasks[0].root), memory.read<std::int64_t>(roots.tasks[0].status)[0]};
}

}  // namespace

TEST_CASE("on the CUDA device a decomposition that does not converge in float32 is done in float64") {
    const Root usual = inverse_root("");
    const Root again = inverse_root("failing_call=cusolverDnSsyevd");
    CHECK(usual.status == static_cast<std::int64_t>(TaskStatus::done));
    CHECK(again.status == static_cast<std::int64_t>(TaskStatus::done));
    REQUIRE(usual.values.size() == kSide * kSide);
    CHECK(usual.values != again.values);  // another solver, so other roundings
    for (std::size_t i = 0; i < usual.values.size(); ++i) {
        CHECK(std::abs(usual.values[i] - again.values[i]) < 1e-5F);
    }
}

TEST_CASE("on the CUDA device a basis whose decomposition fails is kept, with its order") {
    // The first leaves what is not orthonormal and is not noticed by the call that follows it.
    for (const std::string call : {"cusolverDnSgeqrf", "cusolverDnSorgqr"}) {
        INFO(call);
        Memory memory("failing_call=" + call);
        std::vector<float> basis(kSide * kSide, 0.0F);
        for (std::size_t i = 0; i < kSide; ++i) basis[i * kSide + i] = 1.0F;
        OrthonormalBases bases{.count = 1,
                               .workspace = memory.make(DType::float32, {OrthonormalBases::task_floats(kSide)})};
        bases.tasks[0] = {memory.make(DType::float32, {kSide, kSide}, correlations()),
                          memory.make(DType::float32, {kSide, kSide}, basis), memory.make(DType::int64, {kSide}),
                          memory.make(DType::int64, {1})};
        launch(memory.stream(), bases);
        CHECK(memory.read<std::int64_t>(bases.tasks[0].status)[0] == static_cast<std::int64_t>(TaskStatus::failed));
        CHECK(memory.read<float>(bases.tasks[0].product) == basis);
        const auto order = memory.read<std::int64_t>(bases.tasks[0].order);
        for (std::int64_t i = 0; i < kSide; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
    }
}

TEST_CASE(
    "on the CUDA device a symmetric product is the mirror image of its upper triangle to the bit, whatever its factors "
    "are") {
    constexpr std::int64_t kSize = 300, kInner = 5;  // several panels of the emulated device
    Memory memory("");
    std::vector<float> a, b;
    for (std::int64_t i = 0; i < kSize * kInner; ++i) {
        a.push_back(static_cast<float>(i * 37 % 101) * 0.01F - 0.5F);
        b.push_back(static_cast<float>(i * 53 % 97) * 0.01F - 0.5F);
    }
    const Tensor out = memory.make(DType::float32, {kSize, kSize});
    launch(memory.stream(), SymmetricProduct{.out = out,
                                             .a = memory.make(DType::float32, {kSize, kInner}, a),
                                             .b = memory.make(DType::float32, {kSize, kInner}, b)});
    const auto values = memory.read<float>(out);
    std::int64_t compared = 0;
    for (std::size_t row = 0; row < kSize; ++row) {
        for (std::size_t column = row; column < kSize; ++column, ++compared) {
            double expected = 0.0;
            for (std::size_t k = 0; k < kInner; ++k) {
                expected += static_cast<double>(a[row * kInner + k]) * static_cast<double>(b[column * kInner + k]);
            }
            if (std::abs(static_cast<double>(values[row * kSize + column]) - expected) > 1e-6)
                FAIL(row << " " << column);
            if (values[row * kSize + column] != values[column * kSize + row]) FAIL(row << " " << column);
        }
    }
    CHECK(compared == kSize * (kSize + 1) / 2);
}

}  // namespace mfsdp::device

#endif
