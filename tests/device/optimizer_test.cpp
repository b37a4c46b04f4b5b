#include "mfsdp/device/ops/optimizer.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/exact_sum.h"
#include "mfsdp/device/cpu_device.h"

#include "device/transfers.h"
#include "support/catch.h"
#include "support/cuda_devices.h"

#include <cmath>
#include <limits>

namespace mfsdp::device {

namespace {

using test::Bench;
using test::random_values;
using test::same_bits;

double wide(float x) { return static_cast<double>(x); }

AdamWStep example_step() {
    AdamWStep step{.count = 1, .scale = {1.0F / 37.0F, 0.25F}, .root_correction = 0.3F};
    step.tasks[0].decay = 0.999F;
    step.tasks[0].step_size = 0.01F;
    return step;
}

/// Sums of squares by momentum and alone, of rows and of the transpose's columns, have one set of bits on all devices.
void check_square_sums(const std::vector<mfsdp::test::MakeDevice>& devices) {
    struct Shape {
        std::int64_t rows, columns;
    };
    std::vector<std::vector<double>> first;
    for (const mfsdp::test::MakeDevice& make : devices) {
        Bench bench(make());
        std::size_t index = 0;
        for (const Shape& shape : {Shape{1, 1}, Shape{3000, 1}, Shape{700, 7}, Shape{33, 128}, Shape{50, 1000},
                                   Shape{3, 1024}, Shape{2, 1028}, Shape{5, 3001}, Shape{3, 4096}}) {
            const std::int64_t rows = shape.rows, columns = shape.columns;
            const std::int64_t count = rows * columns, sums_of_row = square_sums_of(columns);
            const auto make_sums = [&] {
                return bench.reserve(DType::float64, rows * sums_of_row).reshape({rows, sums_of_row});
            };
            for (const std::int64_t offset : {0, 1}) {
                INFO(bench.device().description() << ", " << rows << " x " << columns << ", offset " << offset);
                const auto matrix = [&](std::uint64_t seed) {
                    return bench.send(random_values(count, seed), offset).reshape({rows, columns});
                };
                const auto turned = [&](const Tensor& in) {
                    const Tensor out = bench.reserve(DType::float32, count, offset).reshape({in.columns(), in.rows()});
                    launch(bench.stream(), Transpose{out, in});
                    return out;
                };
                const Tensor update = matrix(1), momentum = matrix(2), gradient = matrix(3);
                const Tensor momentum_turned = turned(momentum), gradient_turned = turned(gradient);
                const Tensor update_turned = turned(update);
                const Tensor sums[] = {make_sums(), make_sums(), make_sums(), make_sums()};
                launch(bench.stream(), MomentumUpdate{momentum, update, gradient, sums[0]});
                launch(bench.stream(), MomentumUpdate{momentum_turned, update_turned, gradient_turned, sums[1], true});
                launch(bench.stream(), BlockSquareSums{sums[2], update});
                launch(bench.stream(), BlockSquareSums{sums[3], update_turned, true});
                const Tensor norms = bench.reserve(DType::float64, 2);
                launch(bench.stream(), NormOfSquareSums{norms.slice(0, 0, 1), sums[1]});
                launch(bench.stream(), FrobeniusNorm{norms.slice(0, 1, 1), update});

                const std::vector<float> values = bench.fetch(update);
                CHECK(same_bits(bench.fetch(turned(update_turned)), values));
                CHECK(same_bits(bench.fetch(turned(momentum_turned)), bench.fetch(momentum)));
                if (first.size() == index) first.push_back(bench.fetch<double>(sums[0]));
                for (const Tensor& each : sums) CHECK(same_bits(bench.fetch<double>(each), first[index]));
                long double squares = 0.0L;
                for (const float x : values) squares += static_cast<long double>(x) * static_cast<long double>(x);
                const std::vector<double> norm = bench.fetch<double>(norms);
                CHECK(norm[0] == norm[1]);
                CHECK(norm[0] == Approx(static_cast<double>(std::sqrt(squares))).epsilon(1e-14));
            }
            ++index;
        }
        CHECK(index == 9);
    }
}

std::vector<mfsdp::test::MakeDevice> cpu_devices() {
    std::vector<mfsdp::test::MakeDevice> devices;
    for (const int threads : {1, 3}) devices.emplace_back([=] { return make_cpu_device({.threads = threads}); });
    return devices;
}

}  // namespace

TEST_CASE("three AdamW steps follow the formulas computed in double") {
    Bench bench(make_cpu_device({}));
    constexpr std::int64_t kCount = 100;
    AdamWStep step = example_step();
    AdamWStep::Task& task = step.tasks[0];
    const std::vector<float> start = random_values(kCount, 1);
    task.weight = bench.send(start);
    task.exp_avg = bench.send(std::vector<float>(kCount, 0.0F));
    task.exp_avg_sq = bench.send(std::vector<float>(kCount, 0.0F));
    std::vector<double> w(start.begin(), start.end()), m(kCount, 0.0), v(kCount, 0.0);
    for (std::uint64_t t = 1; t <= 3; ++t) {
        const std::vector<float> gradient = random_values(kCount, 10 + t);
        task.gradient = bench.send(gradient);
        step.root_correction = static_cast<float>(std::sqrt(1.0 - std::pow(0.95, static_cast<double>(t))));
        launch(bench.stream(), step);
        for (std::size_t i = 0; i < w.size(); ++i) {
            const double g = wide(gradient[i]) * wide(step.scale.inverse_targets) * wide(step.scale.clip);
            w[i] *= wide(task.decay);
            m[i] += wide(step.one_minus_beta1) * (g - m[i]);
            v[i] = wide(step.beta2) * v[i] + wide(step.one_minus_beta2) * g * g;
            w[i] -= wide(task.step_size) * m[i] / (std::sqrt(v[i]) / wide(step.root_correction) + wide(step.epsilon));
        }
    }
    const std::vector<float> weight = bench.fetch(task.weight), average = bench.fetch(task.exp_avg);
    const std::vector<float> squares = bench.fetch(task.exp_avg_sq);
    REQUIRE(weight.size() == w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
        CHECK(wide(weight[i]) == Approx(w[i]).epsilon(1e-6).margin(1e-7));
        CHECK(wide(average[i]) == Approx(m[i]).epsilon(1e-6).margin(1e-9));
        CHECK(wide(squares[i]) == Approx(v[i]).epsilon(1e-6));
    }
}

TEST_CASE("the gradient is scaled by 1 / targets first and by the clip factor second, each product rounded") {
    Bench bench(make_cpu_device({}));
    const float third = 1.0F / 3.0F, clip = 0.7F;
    const std::vector<float> gradient = random_values(100, 1);
    const Tensor momentum = bench.send(std::vector<float>(100, 0.0F)), update = bench.reserve(DType::float32, 100);
    launch(bench.stream(), MomentumUpdate{.momentum = momentum,
                                          .update = update,
                                          .gradient = bench.send(gradient),
                                          .scale = {third, clip},
                                          .beta = 0.9F,
                                          .gradient_factor = 1.0F,
                                          .nesterov = false});
    std::vector<float> wanted, other_order;
    for (const float g : gradient) {
        const float mean = g * third, clipped = g * clip;
        wanted.push_back(mean * clip);
        other_order.push_back(clipped * third);
    }
    REQUIRE_FALSE(same_bits(wanted, other_order));
    CHECK(same_bits(bench.fetch(momentum), wanted));
    CHECK(same_bits(bench.fetch(update), wanted));
}

TEST_CASE("optimizer kernels have the same bits for any number of threads, any length and any alignment") {
    constexpr std::int64_t kCount = 70001;
    const std::vector<float> a = random_values(kCount, 2), b = random_values(kCount, 3), c = random_values(kCount, 4);
    std::vector<float> positive = random_values(kCount, 5);
    for (float& x : positive) x = std::abs(x);
    std::vector<std::vector<float>> first;
    for (const int threads : {1, 2, 3, 4, 8}) {
        for (const std::int64_t count : {kCount, std::int64_t{1003}, std::int64_t{8}, std::int64_t{5}}) {
            const std::int64_t offset = count % 8;
            Bench bench(make_cpu_device({.threads = threads}));
            AdamWStep step = example_step();
            AdamWStep::Task& task = step.tasks[0];
            task.weight = bench.send(a, offset).slice(0, 0, count);
            task.exp_avg = bench.send(b, offset).slice(0, 0, count);
            task.exp_avg_sq = bench.send(positive, offset).slice(0, 0, count);
            task.gradient = bench.send(c, offset).slice(0, 0, count);
            launch(bench.stream(), step);
            const Tensor update = bench.reserve(DType::float32, count, offset);
            const Tensor momentum = bench.send(b, offset).slice(0, 0, count);
            launch(bench.stream(), MomentumUpdate{momentum, update, task.gradient});
            const std::vector<std::vector<float>> results{bench.fetch(task.weight), bench.fetch(task.exp_avg),
                                                          bench.fetch(task.exp_avg_sq), bench.fetch(momentum),
                                                          bench.fetch(update)};
            if (first.empty()) first = results;
            for (std::size_t i = 0; i < results.size(); ++i) {
                CHECK(same_bits(results[i], std::vector<float>(first[i].begin(), first[i].begin() + count)));
            }
        }
    }
}

TEST_CASE("dividing by a norm beyond float32's normal range keeps the direction") {
    Bench bench(make_cpu_device({}));
    const auto divide = [&](const std::vector<float>& values, double norm) {
        const Tensor in = bench.send(values);
        launch(bench.stream(), DivideByNorm{in, in, bench.send(DType::float64, std::vector<double>{norm})});
        return bench.fetch(in);
    };
    CHECK(divide({3.0F, -4.0F}, 5.0) == std::vector<float>{0.6F, -0.8F});
    CHECK(divide({0.0F, -0.0F, 1.0F}, 0.0) == std::vector<float>{0.0F, 0.0F, 0.0F});
    // 3 and 4 times 2^-149, float32's smallest value: the norm 5 * 2^-149 is not a normal float.
    CHECK(divide({3 * 0x1p-149F, 4 * 0x1p-149F}, 5 * 0x1p-149) == std::vector<float>{0.6F, 0.8F});
    const float large = std::numeric_limits<float>::max();
    CHECK(divide({large, large}, wide(large) * 4.0) == std::vector<float>{0.25F, 0.25F});
    CHECK(std::isnan(divide({1.0F}, std::nan(""))[0]));
}

TEST_CASE("norms of tiny, huge and empty matrices are right to the last digits") {
    Bench bench(make_cpu_device({.threads = 2}));
    const Tensor norm = bench.reserve(DType::float64, 1);
    const auto norm_of = [&](const Tensor& in) {
        launch(bench.stream(), FrobeniusNorm{norm, in});
        return bench.fetch<double>(norm)[0];
    };
    CHECK(norm_of(bench.send(std::vector<float>{3 * 0x1p-149F, 4 * 0x1p-149F})) == 5 * 0x1p-149);
    CHECK(norm_of(bench.send(std::vector<float>(4, 0x1p127F)).reshape({2, 2})) == 0x1p128);
    CHECK(norm_of(bench.send(std::vector<float>{1.0F}).slice(0, 0, 0)) == 0.0);
    CHECK(norm_of(bench.send(std::vector<float>(300 * 9000, 0.5F)).reshape({300, 9000})) ==
          Approx(0.5 * std::sqrt(300.0 * 9000.0)).epsilon(1e-14));
}

TEST_CASE("sums of squares by momentum, alone and of the transpose have the same bits on the CPU and emulated CUDA") {
    std::vector<mfsdp::test::MakeDevice> devices = cpu_devices();
    const std::vector<mfsdp::test::MakeDevice> emulated = mfsdp::test::emulated_cuda_devices();
#ifdef MFSDP_EMULATED_CUDA_MODULE
    REQUIRE(emulated.size() == 1);
#endif
    devices.insert(devices.end(), emulated.begin(), emulated.end());
    check_square_sums(devices);
}

TEST_CASE("sums of squares have the same bits on the GPU as on the CPU") {
    const std::vector<mfsdp::test::MakeDevice> gpu = mfsdp::test::gpu_devices();
    if (gpu.empty()) return;
    std::vector<mfsdp::test::MakeDevice> devices = cpu_devices();
    devices.insert(devices.end(), gpu.begin(), gpu.end());
    check_square_sums(devices);
}

TEST_CASE("a sum of squares has the same words however rows are spread over calls and threads") {
    constexpr std::int64_t kRows = 500, kColumns = 9001;  // rows of several blocks
    const std::vector<float> values = random_values(kRows * kColumns, 6);
    std::vector<std::vector<std::int64_t>> results;
    for (const int threads : {1, 2, 8}) {
        for (const std::int64_t rows_per_call : {kRows, std::int64_t{77}}) {
            Bench bench(make_cpu_device({.threads = threads}));
            const Tensor matrix = bench.send(values).reshape({kRows, kColumns});
            const Tensor words = bench.send(DType::int64, std::vector<std::int64_t>(ExactSum::kWords + 1, 0));
            for (std::int64_t row = 0; row < kRows; row += rows_per_call) {
                launch(bench.stream(), SquareSum{words, matrix.slice(0, row, std::min(rows_per_call, kRows - row))});
            }
            results.push_back(bench.fetch<std::int64_t>(words));
        }
    }
    for (const auto& result : results) CHECK(same_bits(result, results.front()));
    ExactSum sum;
    std::copy_n(results.front().begin(), ExactSum::kWords, sum.words.begin());
    long double wanted = 0.0L;
    for (const float x : values) wanted += static_cast<long double>(x) * static_cast<long double>(x);
    CHECK(sum.value() == Approx(static_cast<double>(wanted)).epsilon(1e-13));
    CHECK(results.front().back() == 0);
}

TEST_CASE("optimizer operations refuse tensors that do not belong together") {
    Bench bench(make_cpu_device({}));
    const auto floats = [&](std::int64_t count) { return bench.reserve(DType::float32, count); };
    AdamWStep step{.count = 2};
    for (std::size_t i : {0, 1}) {
        step.tasks[i] = {.weight = floats(6), .exp_avg = floats(6), .exp_avg_sq = floats(6), .gradient = floats(6)};
    }
    REQUIRE_NOTHROW(step.check());
    CHECK(step.cost().bytes == 2 * 7 * 24);
    AdamWStep none = step, many = step;
    none.count = 0;
    many.count = kMaxAdamWTasks + 1;
    CHECK_THROWS_WITH(none.check(), Catch::Contains("adamw_step: 0 tasks, wanted 1 to 32"));
    CHECK_THROWS_AS(many.check(), InternalError);
    AdamWStep short_state = step;
    short_state.tasks[1].exp_avg = floats(5);
    CHECK_THROWS_WITH(short_state.check(), Catch::Contains("adamw_step: exp_avg is float32 [5], wanted 6 elements"));
    AdamWStep shared = step;
    shared.tasks[1].exp_avg_sq = shared.tasks[1].exp_avg;
    CHECK_THROWS_AS(shared.check(), InternalError);
    const Tensor momentum = floats(6);
    const Tensor gradient = step.tasks[0].gradient;
    const Tensor sums = bench.reserve(DType::float64, 3), row_sum = sums.slice(0, 0, 1).reshape({1, 1});
    CHECK_NOTHROW(MomentumUpdate{momentum, floats(6), gradient}.check());
    CHECK(MomentumUpdate{momentum, floats(6), gradient}.cost().bytes == 4 * 24);
    CHECK_NOTHROW(MomentumUpdate{momentum, floats(6), gradient, row_sum}.check());
    CHECK(MomentumUpdate{momentum, floats(6), gradient, row_sum}.cost().bytes == 4 * 24 + 8);
    CHECK_THROWS_AS((MomentumUpdate{momentum, momentum, gradient}.check()), InternalError);
    CHECK_THROWS_AS((MomentumUpdate{momentum, gradient, gradient}.check()), InternalError);
    CHECK_THROWS_AS((MomentumUpdate{gradient, floats(6), gradient}.check()), InternalError);
    CHECK_THROWS_AS((MomentumUpdate{momentum, floats(6), gradient, row_sum, true}.check()), InternalError);
    CHECK_THROWS_WITH((MomentumUpdate{momentum, floats(6), gradient, sums}.check()),
                      Catch::Contains("momentum_update: square_sums is float64 [3], wanted float64 [1, 1]"));
    const Tensor matrix = momentum.reshape({2, 3});
    CHECK_NOTHROW(BlockSquareSums{sums.reshape({3, 1}), matrix, true}.check());
    CHECK_THROWS_AS((BlockSquareSums{sums.reshape({3, 1}), matrix}.check()), InternalError);
    CHECK_THROWS_AS((NormOfSquareSums{sums.slice(0, 0, 1), sums}.check()), InternalError);
    CHECK_THROWS_AS((NormOfSquareSums{row_sum, row_sum}.check()), InternalError);
    CHECK_THROWS_AS((FrobeniusNorm{floats(1), momentum}.check()), InternalError);
    const Tensor norm = bench.reserve(DType::float64, 1);
    CHECK_THROWS_AS((DivideByNorm{floats(5), momentum, norm}.check()), InternalError);
    CHECK_THROWS_AS((DivideByNorm{momentum.reshape({1, 2, 3}), momentum.reshape({1, 2, 3}), norm}.check()),
                    InternalError);
    CHECK_THROWS_AS((WeightUpdate{momentum.reshape({2, 3}), floats(6).reshape({3, 2})}.check()), InternalError);
    CHECK_THROWS_AS((SquareSum{bench.reserve(DType::int64, ExactSum::kWords), momentum}.check()), InternalError);

    // Masters, states and gradients are float32; what Newton-Schulz works on may have 16 bits.
    const Tensor half = bench.reserve(DType::bfloat16, 6), integers = bench.reserve(DType::int32, 6);
    using Task = AdamWStep::Task;
    for (Tensor Task::*const member : {&Task::weight, &Task::exp_avg, &Task::gradient}) {
        AdamWStep mixed = step;
        mixed.tasks[1].*member = half;
        CHECK_THROWS_AS(mixed.check(), InternalError);
    }
    CHECK_THROWS_AS((MomentumUpdate{momentum, floats(6), half}.check()), InternalError);
    CHECK_THROWS_AS((BlockSquareSums{row_sum, half}.check()), InternalError);
    CHECK_THROWS_AS((SquareSum{bench.reserve(DType::int64, ExactSum::kWords + 1), half}.check()), InternalError);
    CHECK_NOTHROW(FrobeniusNorm{norm, half}.check());
    CHECK_THROWS_AS((FrobeniusNorm{norm, integers}.check()), InternalError);
    CHECK_NOTHROW(DivideByNorm{half, momentum, norm}.check());
    CHECK(DivideByNorm{half, momentum, norm}.cost().bytes == 24 + 12 + 8);
    CHECK_THROWS_AS((DivideByNorm{momentum, half, norm}.check()), InternalError);
    Tensor in_its_place = momentum;
    in_its_place.dtype = DType::bfloat16;
    CHECK_THROWS_AS((DivideByNorm{in_its_place, momentum, norm}.check()), InternalError);
    const Tensor wide = momentum.reshape({2, 3}), tall = floats(6).reshape({3, 2});
    CHECK_NOTHROW(DivideByNorm{tall, wide, norm, true}.check());
    CHECK_THROWS_AS((DivideByNorm{tall, wide, norm}.check()), InternalError);
    CHECK_THROWS_AS((DivideByNorm{floats(6).reshape({2, 3}), wide, norm, true}.check()), InternalError);
    CHECK_THROWS_AS((DivideByNorm{momentum.reshape({3, 2}), wide, norm, true}.check()), InternalError);
    CHECK_THROWS_AS((DivideByNorm{floats(6), momentum, norm, true}.check()), InternalError);
    Tensor overlapping = tall;
    overlapping.strides[0] = 1;
    CHECK_THROWS_WITH((DivideByNorm{overlapping, wide, norm, true}.check()),
                      Catch::Contains("divide_by_norm: the rows of out overlap"));
    CHECK_NOTHROW(WeightUpdate{momentum, half}.check());
    CHECK(WeightUpdate{momentum, half}.cost().bytes == 2 * 24 + 12);
    CHECK_THROWS_AS((WeightUpdate{half, momentum}.check()), InternalError);
}

}  // namespace mfsdp::device
