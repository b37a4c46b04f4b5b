#include "mfsdp/optim/gradient_norm.h"

#include "optim/bench.h"
#include "support/catch.h"

#include <cmath>

using namespace mfsdp;
using namespace mfsdp::optim;
using namespace mfsdp::optim::test;

namespace {

ExactSum sum_of(std::initializer_list<double> values) {
    ExactSum sum;
    for (const double value : values) sum.add(value);
    return sum;
}

/// Sum of squares of a matrix, its rows handed to the device in pieces and each piece summed by itself, as ranks do.
ExactSum square_sum(Bench& bench, const Matrix& matrix, const std::vector<std::int64_t>& cut) {
    const device::Tensor source = bench.upload(matrix);
    ExactSum total;
    std::int64_t row = 0;
    for (const std::int64_t count : cut) {
        std::array<std::int64_t, ExactSum::kWords + 1> words{};
        device::PooledBuffer buffer(bench.workspace(), bench.stream(), static_cast<std::int64_t>(sizeof(words)));
        const device::Tensor sum = buffer.view(device::DType::int64, {ExactSum::kWords + 1});
        device::launch(bench.stream(), device::Fill{.out = sum, .value = 0.0});
        if (count > 0)
            device::launch(bench.stream(), device::SquareSum{.words = sum, .in = source.slice(0, row, count)});
        device::launch(bench.stream(), device::CopyToHost{.target = words.data(), .in = sum});
        bench.stream().synchronize();
        CHECK(words.back() == 0);
        ExactSum part;
        std::copy(words.begin(), words.end() - 1, part.words.begin());
        total.add(part);
        row += count;
    }
    return total;
}

}  // namespace

TEST_CASE("The norm of matrices of norm 3 and a rest of norm 4 is 5", "[optim]") {
    CHECK(gradient_norm(sum_of({9.0, 16.0}), 1) == 5.0);
    CHECK(gradient_norm(sum_of({9.0, 16.0}), 10) == 0.5);
}

TEST_CASE("The gradient norm is 0 without targets and without a gradient", "[optim]") {
    CHECK(gradient_norm(sum_of({9.0}), 0) == 0.0);
    CHECK(gradient_norm(ExactSum{}, 12) == 0.0);
    CHECK_THROWS_AS(gradient_norm(ExactSum{}, -1), InternalError);
}

TEST_CASE("Gradients are clipped only above the limit, to the limit", "[optim]") {
    CHECK(clip_factor(5.0, 1.0) == 0.2);
    CHECK(clip_factor(0.5, 1.0) == 1.0);
    CHECK(clip_factor(1.0, 1.0) == 1.0);
    CHECK(clip_factor(5.0, 0.0) == 1.0);
    CHECK(clip_factor(0.0, 1.0) == 1.0);
    CHECK(clip_factor(0.0, 0.0) == 1.0);
    CHECK_THROWS_AS(clip_factor(std::nan(""), 1.0), InternalError);
}

TEST_CASE("The gradient norm has the same bits however rows are spread, and is that of a plain loop", "[optim]") {
    const Matrix gradient = convert<float>(gaussian(24, 700, 1));
    long double squares = 0.0L;
    for (const float value : gradient.values)
        squares += static_cast<long double>(value) * static_cast<long double>(value);
    double want = 0.0;
    for (const device::CpuDeviceOptions& options : device_variants()) {
        for (const std::vector<std::int64_t>& cut :
             {std::vector<std::int64_t>{24}, std::vector<std::int64_t>{11, 0, 13},
              std::vector<std::int64_t>{1, 2, 3, 18}}) {
            Bench bench(options);
            const double norm = gradient_norm(square_sum(bench, gradient, cut), 48);
            if (want == 0.0) want = norm;
            CHECK(norm == want);
        }
    }
    CHECK(want == Approx(static_cast<double>(std::sqrt(squares)) / 48.0).epsilon(1e-14));
    // Tiny gradients do not vanish in the squares.
    Bench bench;
    const double tiny = gradient_norm(square_sum(bench, scaled(gradient, std::ldexp(1.0F, -100)), {24}), 48);
    CHECK(tiny == std::ldexp(want, -100));
}
