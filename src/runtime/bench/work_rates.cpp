#include "runtime/bench/work_rates.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/stopwatch.h"
#include "mfsdp/device/ops/decomposition.h"

#include <algorithm>

namespace mfsdp::runtime {

namespace {

using device::DType;
using device::Tensor;

double cube(std::int64_t n) {
    const auto side = static_cast<double>(n);
    return side * side * side;
}

}  // namespace

std::int64_t factor_side(const optim::MatrixOptimizer& optimizer, std::int64_t rows, std::int64_t columns) {
    std::int64_t longest = 0;
    for (const optim::StateSpec& state : optimizer.block_states(rows, columns)) {
        if (state.name.ends_with("_factor")) longest = std::max(longest, state.shape[0]);
    }
    return longest;
}

double time_of_runs(const std::function<void()>& run, double least_seconds) {
    const double begin = base::now_seconds();
    double now = begin;
    int runs = 0;
    do {
        run();
        ++runs;
        now = base::now_seconds();
    } while (now - begin < least_seconds);
    return (now - begin) / runs;
}

WorkProbes::WorkProbes(device::Device& device, const WorkSizes& sizes) : device_(device), sizes_(sizes) {
    add_product();
    add_elements();
    if (sizes.eigen) add_eigen();
    if (sizes.orthogonal) add_orthogonal();
}

WorkProbes::Probe& WorkProbes::add(Probe& probe) {
    probe.bench = std::make_unique<Workbench>(device_);
    probes_.push_back(&probe);
    return probe;
}

/// X X^T and A X together, s x s x l.
void WorkProbes::add_product() {
    Probe& probe = add(product_);
    Workbench& bench = *probe.bench;
    const std::int64_t s = sizes_.shorter, l = sizes_.longer;
    const DType type = sizes_.product_dtype;
    const Tensor x = bench.tensor(type, {s, l}), gram = bench.tensor(type, {s, s}), out = bench.tensor(type, {s, l});
    probe.issue = [&bench, x, gram, out] {
        device::launch(bench.stream(), device::SymmetricProduct{.out = gram, .a = x});
        device::launch(bench.stream(), device::Matmul{.out = out, .a = gram, .b = x});
    };
    probe.work = 3.0 * static_cast<double>(s * s * l);
}

/// AdamW of parameters, each with memory of its own.
void WorkProbes::add_elements() {
    constexpr std::int64_t kLeast = std::int64_t{1} << 20, kMost = std::int64_t{1} << 28;
    constexpr std::int64_t kParts = 8, kBuffers = 4;
    Probe& probe = add(elements_);
    Workbench& bench = *probe.bench;
    const std::int64_t elements = std::clamp(sizes_.bytes, kLeast, kMost) / (kParts * kBuffers * 4);
    static_assert(kParts <= device::kMaxAdamWTasks);
    device::AdamWStep step{.count = kParts};
    for (std::int64_t i = 0; i < kParts; ++i) {
        const auto tensor = [&] { return bench.tensor(DType::float32, {elements}); };
        const Tensor squares = tensor();
        device::launch(bench.stream(), device::Fill{squares, 1.0});
        step.tasks[static_cast<std::size_t>(i)] = {
            .weight = tensor(), .exp_avg = tensor(), .exp_avg_sq = squares, .gradient = tensor()};
    }
    probe.work = static_cast<double>(step.cost().bytes);
    probe.issue = [&bench, step] { device::launch(bench.stream(), step); };
}

void WorkProbes::add_eigen() {
    Probe& probe = add(eigen_);
    Workbench& bench = *probe.bench;
    const std::int64_t n = sizes_.side, tasks = sizes_.tasks;
    device::InverseRoots roots;
    for (std::int64_t i = 0; i < tasks; ++i) {
        // Falling eigenvalues, as factors have.
        const Tensor half = bench.tensor(DType::float32, {n, n}), factor = bench.tensor(DType::float32, {n, n});
        device::launch(bench.stream(), device::SymmetricProduct{.out = factor, .a = half});
        roots.tasks[static_cast<std::size_t>(i)] = {factor, bench.tensor(DType::float32, {n, n}),
                                                    bench.tensor(DType::int64, {1})};
    }
    roots.count = tasks;
    roots.workspace = bench.tensor(DType::float32, {tasks * device::InverseRoots::task_floats(n)});
    probe.issue = [&bench, roots] { device::launch(bench.stream(), roots); };
    probe.work = static_cast<double>(tasks) * 9.0 * cube(n);
    probe.products = static_cast<double>(tasks) * 3.0 * cube(n);
}

void WorkProbes::add_orthogonal() {
    Probe& probe = add(orthogonal_);
    Workbench& bench = *probe.bench;
    const std::int64_t n = sizes_.side, tasks = sizes_.tasks;
    const auto square = [&] { return bench.tensor(DType::float32, {n, n}); };
    device::OrthonormalBases bases;
    std::vector<Tensor> originals;
    for (std::int64_t i = 0; i < tasks; ++i) {
        originals.push_back(square());
        bases.tasks[static_cast<std::size_t>(i)] = {square(), square(), bench.tensor(DType::int64, {n}),
                                                    bench.tensor(DType::int64, {1})};
    }
    bases.count = tasks;
    bases.workspace = bench.tensor(DType::float32, {tasks * device::OrthonormalBases::task_floats(n)});
    probe.issue = [&bench, bases, originals] {
        // A step leaves the basis in the product's place, which the next would find decomposed.
        for (std::size_t i = 0; i < originals.size(); ++i) {
            device::launch(bench.stream(), device::Copy{.out = bases.tasks[i].product, .in = originals[i]});
        }
        device::launch(bench.stream(), bases);
    };
    probe.work = static_cast<double>(tasks) * 8.0 / 3.0 * cube(n);
    probe.products = static_cast<double>(tasks) * cube(n);
}

void WorkProbes::measure(double least_seconds) {
    for (Probe* const probe : probes_) {
        if (!probe->seconds.empty() && probe->seconds.front() > kLongSeconds) continue;
        const auto run = [probe] {
            probe->issue();
            probe->bench->stream().synchronize();
        };
        probe->bench->stream().synchronize();
        probe->seconds.push_back(time_of_runs(run, least_seconds));
    }
}

double WorkProbes::rate(const Probe& probe, double product_rate) const {
    if (probe.seconds.empty()) return 0.0;
    const double seconds = timing_of(probe.seconds).median_seconds;
    const double of_products = product_rate > 0.0 ? probe.products / product_rate : 0.0;
    // Where products take most of the time their share is uncertain: at least half of it is the decomposition.
    return probe.work / std::max(seconds - of_products, 0.5 * seconds);
}

optim::WorkRates WorkProbes::rates() const {
    MFSDP_ASSERT(!product_.seconds.empty(), "rates are measured");
    const double products = rate(product_, 0.0);
    return {.product_flops = products,
            .eigen_flops = rate(eigen_, products),
            .orthogonal_flops = rate(orthogonal_, products),
            .element_bytes = rate(elements_, 0.0)};
}

}  // namespace mfsdp::runtime
