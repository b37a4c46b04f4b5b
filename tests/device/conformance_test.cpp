#include "device/conformance.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/device/cuda_device.h"
#include "mfsdp/device/half.h"

#include "../../src/device/cpu/product.h"
#include "device/conformance_memory.h"
#include "support/catch.h"
#ifdef MFSDP_EMULATED_CUDA_MODULE
#include "support/emulated_cuda.h"
#endif

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace mfsdp::device::conformance {

std::vector<Backend> cpu_backends() {
    std::vector<Backend> result{
        {"cpu", {1, 2, 3, 4, 8}, [](int threads) { return make_cpu_device({.threads = threads}); }},
        {"cpu with guarded addresses",
         {2},
         [](int threads) { return make_cpu_device({.threads = threads, .guard_addresses = true}); }},
    };
    if (cpu::has_onednn()) {
        result.push_back({"cpu with products by oneDNN", {1, 2, 8}, [](int threads) {
                              return make_cpu_device({.threads = threads, .products = ProductKernel::onednn});
                          }});
    }
    return result;
}

std::vector<Backend> emulated_cuda_backends([[maybe_unused]] bool late) {
#ifdef MFSDP_EMULATED_CUDA_MODULE
    return {{late ? "emulated cuda with late streams and threads from the last one" : "emulated cuda", {1}, [=](int) {
                 return mfsdp::test::make_emulated_cuda_device(late ? "asynchronous=1,backwards=1" : "");
             }}};
#else
    WARN("backend emulated cuda: skipped, this build has no CUDA toolkit");
    return {};
#endif
}

std::vector<Backend> gpu_backends() {
    try {
        (void)cuda_device_count({});
    } catch (const ConfigError& reason) {
        WARN("backend cuda: skipped, " << reason.what());
        return {};
    }
    return {{"cuda", {1}, [](int) { return make_cuda_device({}); }}};
}

Filling normal(double standard_deviation) {
    return [standard_deviation](std::int64_t, Random& random) {
        // Not std::normal_distribution: its values differ between libraries.
        const double first = (static_cast<double>(random() >> 11) + 1.0) * 0x1p-53;
        const double second = static_cast<double>(random() >> 11) * 0x1p-53;
        return standard_deviation * std::sqrt(-2.0 * std::log(first)) * std::cos(2.0 * std::numbers::pi * second);
    };
}

Filling uniform(double low, double high) {
    return [=](std::int64_t, Random& random) {
        return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
    };
}

Filling integers(std::int64_t low, std::int64_t high) {
    return [=](std::int64_t, Random& random) {
        return static_cast<double>(low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low)));
    };
}

Filling list(std::vector<double> values) {
    return [values = std::move(values)](std::int64_t index, Random&) {
        return values[static_cast<std::size_t>(index) % values.size()];
    };
}

ArgumentOfRow input(std::string name, Shape shape, Filling filling, Gaps gaps, DType dtype) {
    return {std::move(name), std::move(shape), Access::read, std::move(filling), dtype, gaps};
}

ArgumentOfRow output(std::string name, Shape shape, Gaps gaps, DType dtype) {
    return {std::move(name), std::move(shape), Access::write, list({0.0}), dtype, gaps};
}

ArgumentOfRow in_out(std::string name, Shape shape, Filling filling, Gaps gaps, DType dtype) {
    return {std::move(name), std::move(shape), Access::read_and_write, std::move(filling), dtype, gaps};
}

std::string sizes(std::initializer_list<std::pair<const char*, std::int64_t>> named) {
    std::string text;
    for (const auto& [name, size] : named) {
        if (!text.empty()) text += ' ';
        text.append(name).append("=").append(std::to_string(size));
    }
    return text;
}

std::vector<Row> all_rows() {
    std::vector<Row> rows;
    for (const auto& part : {matmul_rows(), elementwise_rows(), embedding_rows(), norm_rows(), activation_rows(),
                             attention_rows(), cross_entropy_rows(), optimizer_rows(), symmetric_rows(),
                             decomposition_rows(), moments_rows(), row_moment_rows(), qk_clip_rows()}) {
        rows.insert(rows.end(), part.begin(), part.end());
    }
    return rows;
}

std::string suffix(std::initializer_list<DType> types) {
    std::string text;
    if (std::all_of(types.begin(), types.end(), [](DType type) { return type == DType::float32; })) return text;
    for (const DType type : types) text.append(" ").append(name(type));
    return text;
}

double as_stored(double value, DType dtype) {
    const auto single = static_cast<float>(value);
    switch (dtype) {
        case DType::float32:
            return static_cast<double>(single);
        case DType::bfloat16:
            return static_cast<double>(widened(rounded<BFloat16>(single)));
        case DType::float16:
            return static_cast<double>(widened(rounded<Float16>(single)));
        default:
            return value;
    }
}

namespace {

/// Half the distance between neighbours of 16 bits near `value`.
double rounding_error(double value, DType dtype) {
    if (size_of(dtype) != 2) return 0.0;
    const int fraction_bits = dtype == DType::bfloat16 ? 7 : 10,
              lowest_exponent = dtype == DType::bfloat16 ? -126 : -14;
    const int exponent = value == 0.0 ? lowest_exponent : std::max(std::ilogb(value), lowest_exponent);
    return std::ldexp(0.5, exponent - fraction_bits);
}

}  // namespace

std::string disagreement(std::span<const double> result, std::span<const double> reference, Tolerance tolerance,
                         DType dtype) {
    if (result.size() != reference.size()) {
        return std::to_string(result.size()) + " elements, wanted " + std::to_string(reference.size());
    }
    double largest = 0.0;
    for (const double value : reference) {
        if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
    const bool exact = tolerance.of_value == 0.0 && tolerance.of_largest == 0.0;
    for (std::size_t i = 0; i < result.size(); ++i) {
        const double wanted = exact || !std::isfinite(reference[i]) ? as_stored(reference[i], dtype) : reference[i];
        const double limit = tolerance.of_value * std::abs(wanted) + tolerance.of_largest * largest +
                             (exact || !std::isfinite(wanted) ? 0.0 : rounding_error(wanted, dtype));
        const bool agrees = std::isnan(wanted)      ? std::isnan(result[i])
                            : std::isinf(wanted)    ? result[i] == wanted
                            : std::isnan(result[i]) ? false
                                                    : std::abs(result[i] - wanted) <= limit;
        if (!agrees) {
            return "element " + std::to_string(i) + " is " + Catch::StringMaker<double>::convert(result[i]) +
                   ", wanted " + Catch::StringMaker<double>::convert(wanted) + " within " +
                   Catch::StringMaker<double>::convert(limit);
        }
    }
    return {};
}

namespace {

Values fill_arguments(const Row& row) {
    Random random(row.seed);
    Values values;
    for (const ArgumentOfRow& argument : row.arguments) {
        std::int64_t count = 1;
        for (const std::int64_t size : argument.shape) count *= size;
        auto& elements = values.emplace_back();
        for (std::int64_t i = 0; i < count; ++i) {
            elements.push_back(as_stored(argument.filling(i, random), argument.dtype));
        }
    }
    return values;
}

/// What one launch of a row left in memory.
struct Outcome {
    Values values;                             ///< of all arguments
    std::vector<std::vector<std::byte>> bits;  ///< of the outputs
    std::string damaged;                       ///< arguments with a changed guard, or changed though only read
};

Outcome execute(Device& device, const Row& row, const Values& initial, Placing placing) {
    const auto stream = device.make_stream();
    MemoryLedger ledger;
    std::vector<PlacedArgument> placed;
    placed.reserve(row.arguments.size());
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < row.arguments.size(); ++i) {
        placed.emplace_back(device, ledger, row.arguments[i], placing, initial[i]);
        placed.back().send(*stream);
        tensors.push_back(placed.back().tensor());
    }
    row.launch(*stream, tensors);
    Outcome outcome;
    for (std::size_t i = 0; i < placed.size(); ++i) {
        placed[i].fetch(*stream);
        outcome.values.push_back(placed[i].values());
        if (row.arguments[i].access != Access::read) outcome.bits.push_back(placed[i].bits());
        if (!placed[i].intact()) outcome.damaged += row.arguments[i].name + " ";
    }
    return outcome;
}

/// Compares one outcome with the reference; gives the number of elements compared.
std::size_t check_outcome(const Row& row, const Outcome& outcome, const Values& expected, bool on_gpu) {
    std::size_t compared = 0;
    for (std::size_t i = 0; i < row.arguments.size(); ++i) {
        if (row.arguments[i].access == Access::read) continue;
        INFO("output " << row.arguments[i].name);
        Tolerance tolerance = row.arguments[i].tolerance.value_or(row.tolerance);
        if (on_gpu && row.gpu_tolerance) tolerance = *row.gpu_tolerance;
        CHECK(disagreement(outcome.values[i], expected[i], tolerance, row.arguments[i].dtype) == "");
        compared += expected[i].size();
    }
    CHECK(outcome.damaged == "");
    return compared;
}

void check_row(const Backend& backend, std::span<const std::unique_ptr<Device>> devices, const Row& row) {
    const Values initial = fill_arguments(row);
    Values expected = initial;
    row.reference(expected);
    const Outcome first = execute(*devices.front(), row, initial, {});
    const std::size_t compared = check_outcome(row, first, expected, backend.name == "cuda");
    CHECK((compared > 0 || row.empty_allowed));
    for (std::size_t d = 0; d < devices.size(); ++d) {
        for (const Placing placing :
             {Placing{}, Placing{.off_by_one = true}, Placing{.gaps = RowGaps::odd}, Placing{.gaps = RowGaps::aligned},
              Placing{.off_by_one = true, .gaps = RowGaps::odd}}) {
            INFO(backend.threads[d] << " threads, off by one: " << placing.off_by_one
                                    << ", gaps: " << static_cast<int>(placing.gaps));
            const Outcome other = execute(*devices[d], row, initial, placing);
            CHECK(other.damaged == "");
            CHECK((other.bits == first.bits));
        }
    }
}

void check_backends(const std::vector<Backend>& backends) {
    const std::vector<Row> rows = all_rows();
    for (const Backend& backend : backends) {
        std::vector<std::unique_ptr<Device>> devices;
        for (const int threads : backend.threads) devices.push_back(backend.make(threads));
        for (const Row& row : rows) {
            INFO(backend.name << ": " << row.operation << " " << row.parameters);
            check_row(backend, devices, row);
        }
    }
}

template <class... Ops>
std::vector<std::string_view> names(const OperationSlots<Ops...>*) {
    return {Ops::kName...};
}

}  // namespace

// A test for each kind of hardware, so that they run at the same time. Bits depend on values alone: not on the number
// of threads, not on where arguments lie.
TEST_CASE("every operation agrees with its reference on the CPU, with bits that depend on values alone") {
    check_backends(cpu_backends());
}
TEST_CASE("every operation agrees with its reference on the emulated CUDA device with prompt streams") {
    check_backends(emulated_cuda_backends(false));
}
TEST_CASE("every operation agrees with its reference on the emulated CUDA device with late streams") {
    check_backends(emulated_cuda_backends(true));
}
TEST_CASE("every operation agrees with its reference on the GPU, with bits that depend on values alone") {
    check_backends(gpu_backends());
}

TEST_CASE("every operation of the table has a conformance row, and no row is there twice") {
    std::set<std::string> seen;
    std::set<std::string_view> operations;
    for (const Row& row : all_rows()) {
        operations.insert(row.operation);
        const std::string key = std::string(row.operation) + " " + row.parameters;
        INFO(key);
        CHECK(seen.insert(key).second);
    }
    const auto table = names(static_cast<const OperationTable*>(nullptr));
    REQUIRE_FALSE(table.empty());
    for (const std::string_view name : table) {
        INFO(name);
        CHECK(operations.count(name) == 1);
    }
    CHECK(std::set<std::string_view>(table.begin(), table.end()).size() == table.size());
}

TEST_CASE("a comparison fails for a NaN on one side, another length, and a difference above the tolerance") {
    const double nan = std::nan("");
    const auto same = [](std::vector<double> result, std::vector<double> reference, Tolerance tolerance = {}) {
        return disagreement(result, reference, tolerance, DType::float32).empty();
    };
    CHECK(same({1.0, 2.0}, {1.0, 2.0}));
    CHECK(same({nan}, {nan}));
    CHECK(same({INFINITY}, {INFINITY}));
    CHECK_FALSE(same({nan}, {1.0}, {1.0, 1.0}));
    CHECK_FALSE(same({1.0}, {nan}, {1.0, 1.0}));
    CHECK_FALSE(same({-INFINITY}, {INFINITY}, {1.0, 1.0}));
    CHECK_FALSE(same({INFINITY}, {1.0}, {1.0, 1.0}));
    CHECK_FALSE(same({1.0}, {INFINITY}, {1.0, 1.0}));
    CHECK_FALSE(same({1.0}, {1.0, 2.0}));
    CHECK(same({1.01}, {1.0}, {.of_value = 0.011}));
    CHECK_FALSE(same({1.01}, {1.0}, {.of_value = 0.009}));
    CHECK(same({1.01, 10.0}, {1.0, 10.0}, {.of_largest = 0.0011}));
    CHECK_FALSE(same({1.02, 10.0}, {1.0, 10.0}, {.of_largest = 0.0011}));
    CHECK(same({static_cast<double>(0.1F)}, {0.1}));  // exact: the reference rounded to float32

    // Neighbours of 1 in bfloat16 are 1 - 2^-8 and 1 + 2^-7: 1 stands for what is up to 2^-8 above, and no more.
    const auto half = [](double result, double reference, Tolerance tolerance) {
        return disagreement(std::vector<double>{result}, std::vector<double>{reference}, tolerance, DType::bfloat16)
            .empty();
    };
    CHECK(half(1.0, 1.0 + 0x1p-8, {.of_value = 1e-9}));
    CHECK_FALSE(half(1.0, 1.0 + 0x1.1p-8, {.of_value = 1e-9}));
    CHECK(half(1.0, 1.0 + 0x1p-8, {}));  // a tie goes to the even neighbour
    CHECK_FALSE(half(1.0 + 0x1p-7, 1.0 + 0x1p-8, {}));
}

}  // namespace mfsdp::device::conformance
