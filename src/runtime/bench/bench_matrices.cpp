#include "mfsdp/optim/muon.h"
#include "mfsdp/optim/shampoo.h"
#include "mfsdp/optim/soap.h"
#include "mfsdp/runtime/bench/benchmarks.h"
#include "mfsdp/runtime/bench/operations.h"

#include "runtime/bench/matrix_run.h"
#include "runtime/bench/work_rates.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

namespace mfsdp::runtime {

namespace {

using device::DType;
using device::Tensor;
using optim::NewtonSchulzMethod;
using optim::NewtonSchulzOptions;

double real(std::int64_t value) { return static_cast<double>(value); }

/// One line of the table.
struct Case {
    std::string work;
    std::function<void()> run;  // until its end
    std::int64_t flops = 0;     // that have to be done
    optim::StepCost cost{};     // by which its time is predicted
    bool in_16_bits = false;    // its products
    std::vector<double> seconds{};
};

/// What is timed for one shape, each beside all others: other load on the machine then changes all of them.
class ShapeBench {
  public:
    ShapeBench(const BenchContext& context, const MatrixShape& shape)
        : context_(context),
          rows_(shape.rows),
          columns_(shape.columns),
          s_(std::min(shape.rows, shape.columns)),
          l_(std::max(shape.rows, shape.columns)),
          probes_(context.device, sizes(context, shape, DType::float32)),
          probes_of_16_bits_(context.device, sizes(context, shape, DType::bfloat16)) {
        add_peak();
        add_adamw();
        add_newton_schulz();
        add_muon();
        if (context.decomposes) {
            add_refreshing("Shampoo", optim::make_shampoo({.start_step = 1, .precondition_frequency = kFrequency}),
                           kFrequency);
            add_refreshing("SOAP", optim::make_soap({.precondition_frequency = kFrequency}), kFrequency + 1);
        }
    }

    void measure() {
        const double least = least_seconds(context_.timing);
        for (int repeat = 0; repeat < std::max(1, context_.timing.least_repeats); ++repeat) {
            probes_.measure(least);
            probes_of_16_bits_.measure(least);
            for (Case& one : cases_) {
                if (!one.seconds.empty() && one.seconds.front() > WorkProbes::kLongSeconds) continue;
                one.seconds.push_back(time_of_runs(one.run, least));
            }
        }
    }

    void add_rows(BenchTable& table) const {
        const double peak = real(cases_.front().flops) / median(cases_.front());
        for (const Case& one : cases_) row(table, one.work, median(one), real(one.flops), predicted(one), peak);
        for (const auto& [name, plain, refreshed] : refreshing_) {
            const Case& a = cases_[plain];
            const Case& b = cases_[refreshed];
            const auto mean = [](double step, double worst) { return step + (worst - step) / real(kFrequency); };
            row(table, name + ", mean of " + std::to_string(kFrequency) + " steps", mean(median(a), median(b)),
                mean(real(a.flops), real(b.flops)), mean(predicted(a), predicted(b)), peak);
        }
    }

  private:
    static constexpr std::int64_t kFrequency = 10;

    struct Refreshing {
        std::string name;
        std::size_t plain, refreshed;
    };

    static WorkSizes sizes(const BenchContext& context, const MatrixShape& shape, DType dtype) {
        const bool square = shape.rows == shape.columns;
        const std::int64_t side = factor_side(*optim::make_shampoo({}), shape.rows, shape.columns);
        const bool decomposes = context.decomposes && dtype == DType::float32 && side > 0;
        return {.shorter = std::min(shape.rows, shape.columns),
                .longer = std::max(shape.rows, shape.columns),
                .product_dtype = dtype,
                .side = side,
                .tasks = square ? 2 : 1,  // of two sides the longer takes the time
                .eigen = decomposes,
                .orthogonal = decomposes,
                .bytes = 16 * shape.rows * shape.columns};
    }

    /// 0: nothing is predicted.
    [[nodiscard]] double predicted(const Case& one) const {
        return one.cost.seconds((one.in_16_bits ? probes_of_16_bits_ : probes_).rates());
    }

    static double median(const Case& one) { return timing_of(one.seconds).median_seconds; }

    void row(BenchTable& table, const std::string& work, double seconds, double flops, double predicted,
             double peak) const {
        BenchValue guess, ratio;
        if (predicted > 0.0) {
            guess = predicted;
            ratio = seconds / predicted;
        }
        table.row({std::to_string(rows_) + " x " + std::to_string(columns_), work, seconds, flops, flops / seconds,
                   flops / seconds / peak, guess, ratio});
    }

    Workbench& bench() {
        benches_.emplace_back(context_.device);
        return benches_.back();
    }

    /// What shares are of: a large product, timed in turn with everything else.
    void add_peak() {
        constexpr std::int64_t kSize = 1536;
        Workbench& bench = this->bench();
        const auto square = [&] { return bench.tensor(DType::float32, {kSize, kSize}); };
        const device::Matmul product{.out = square(), .a = square(), .b = square(), .transpose_b = true};
        add("product of 1536 x 1536 x 1536", bench, [=](device::Stream& stream) { device::launch(stream, product); },
            product.cost().flops, {});
    }

    template <class Issue>
    void add(std::string work, Workbench& bench, const Issue& issue, std::int64_t flops, const optim::StepCost& cost) {
        device::Stream& stream = bench.stream();
        cases_.push_back({std::move(work),
                          [&stream, issue] {
                              issue(stream);
                              stream.synchronize();
                          },
                          flops, cost});
    }

    void add_adamw() {
        Workbench& bench = this->bench();
        const auto matrix = [&] { return bench.tensor(DType::float32, {rows_, columns_}); };
        const Tensor squares = matrix();
        device::launch(bench.stream(), device::Fill{squares, 1.0});
        device::AdamWStep step{.count = 1};
        step.tasks[0] = {.weight = matrix(), .exp_avg = matrix(), .exp_avg_sq = squares, .gradient = matrix()};
        const optim::StepCost cost{.element_bytes = step.cost().bytes};
        add(
            "AdamW", bench, [=](device::Stream& stream) { device::launch(stream, step); }, step.cost().flops, cost);
    }

    void add_newton_schulz() {
        add_plain_loop();
        add_newton_schulz("Newton-Schulz", {.method = NewtonSchulzMethod::standard});
        add_newton_schulz("Newton-Schulz in bfloat16",
                          {.dtype = DType::bfloat16, .method = NewtonSchulzMethod::standard});
        add_newton_schulz("Newton-Schulz, Gram in float16",
                          {.dtype = DType::float16, .method = NewtonSchulzMethod::gram});
    }

    /// The iteration as a formula reads: three whole products and a sum in every step.
    void add_plain_loop() {
        Workbench& bench = this->bench();
        const auto tensor = [&](std::int64_t columns) { return bench.tensor(DType::float32, {s_, columns}); };
        const Tensor x = tensor(l_), next = tensor(l_), gram = tensor(s_), square = tensor(s_), sum = tensor(s_);
        const NewtonSchulzOptions options;
        const std::int64_t steps = options.steps;
        const auto issue = [=](device::Stream& stream) {
            Tensor in = x, out = next;
            for (std::int64_t step = 0; step < steps; ++step) {
                const auto [a, b, c] = optim::newton_schulz_coefficients(optim::CoefficientType::quintic, step);
                device::launch(stream, device::Matmul{.out = gram, .a = in, .b = in, .transpose_b = true});
                device::launch(stream, device::Matmul{.out = square, .a = gram, .b = gram});
                device::launch(stream, device::ScaledAdd{.out = sum,
                                                         .a = gram,
                                                         .b = square,
                                                         .alpha = static_cast<float>(b),
                                                         .beta = static_cast<float>(c)});
                device::launch(stream, device::Copy{.out = out, .in = in});
                device::launch(stream, device::Matmul{.out = out, .a = sum, .b = in, .beta = static_cast<float>(a)});
                std::swap(in, out);
            }
            // What was overwritten is made anew, or the next turn would go on from singular values near 1.
            device::launch(stream, device::Copy{.out = x, .in = next});
        };
        add("Newton-Schulz, plain loop", bench, issue, steps * (4 * s_ * s_ * l_ + 2 * s_ * s_ * s_), {});
    }

    void add_newton_schulz(const std::string& work, const NewtonSchulzOptions& options) {
        const std::int64_t flops = optim::newton_schulz_flops(options, rows_, columns_);
        optim::MuonOptions muon;  // takes the iteration's workspace and some more
        muon.ns_dtype = options.dtype;
        muon.ns_method = options.method;
        directions_.push_back(std::make_unique<Direction>(context_.device, rows_, columns_,
                                                          matrix_workspace(optim::make_muon(muon), rows_, columns_)));
        Direction& direction = *directions_.back();
        cases_.push_back({work,
                          [&direction, options] {
                              optim::newton_schulz(direction.bench.stream(), direction.pool, direction.out,
                                                   direction.in, options);
                              direction.bench.stream().synchronize();
                          },
                          flops,
                          {.product_flops = flops},
                          options.dtype != DType::float32});
    }

    void add_muon() {
        add_optimizer("Muon", optim::make_muon({.ns_dtype = DType::bfloat16}));
        add_optimizer("NorMuon", optim::make_muon({.ns_dtype = DType::bfloat16, .normuon = true}));
    }

    void add_optimizer(const std::string& work, std::shared_ptr<optim::MatrixOptimizer> optimizer) {
        const optim::StepCost cost = optimizer->cost(rows_, columns_).step;
        add_step(work, matrix_run(std::move(optimizer)), 2, cost, true);
    }

    void add_step(const std::string& work, MatrixRun& run, std::int64_t step, const optim::StepCost& cost,
                  bool in_16_bits) {
        cases_.push_back({work,
                          [&run, step] {
                              run.step(step);
                              run.stream().synchronize();
                          },
                          cost.flops(), cost, in_16_bits});
    }

    /// A step without and one with a refresh, `refresh_step`.
    void add_refreshing(const std::string& name, std::shared_ptr<optim::MatrixOptimizer> optimizer,
                        std::int64_t refresh_step) {
        const optim::OptimizerCost cost = optimizer->cost(rows_, columns_);
        MatrixRun& run = matrix_run(std::move(optimizer));
        refreshing_.push_back({name, cases_.size(), cases_.size() + 1});
        add_step(name + ", step", run, 2, cost.step, false);
        add_step(name + ", step with a refresh", run, refresh_step, cost.worst(), false);
    }

    /// A run after its first step, which fills factors and bases.
    MatrixRun& matrix_run(std::shared_ptr<optim::MatrixOptimizer> optimizer) {
        const std::int64_t workspace = matrix_workspace(optimizer, rows_, columns_);
        runs_.push_back(std::make_unique<MatrixRun>(context_.device, std::move(optimizer), rows_, columns_, workspace));
        runs_.back()->step(1);
        runs_.back()->stream().synchronize();
        return *runs_.back();
    }

    /// Operands and workspace of an iteration by itself.
    struct Direction {
        Workbench bench;
        device::MemoryLedger ledger;
        device::BufferPool pool;
        Tensor in, out;

        Direction(device::Device& device, std::int64_t rows, std::int64_t columns, std::int64_t workspace)
            : bench(device),
              pool(device, ledger, device::MemoryCategory::workspace, workspace),
              in(bench.tensor(DType::float32, {rows, columns})),
              out(bench.tensor(DType::float32, {rows, columns})) {}
    };

    const BenchContext& context_;
    std::int64_t rows_, columns_, s_, l_;
    WorkProbes probes_, probes_of_16_bits_;
    std::deque<Workbench> benches_;
    std::vector<std::unique_ptr<MatrixRun>> runs_;
    std::vector<std::unique_ptr<Direction>> directions_;
    std::vector<Case> cases_;
    std::vector<Refreshing> refreshing_;
};

}  // namespace

BenchTable bench_matrices(const BenchContext& context, std::span<const MatrixShape> shapes) {
    BenchTable table{.benchmark = "matrices",
                     .columns = {{"shape", "matrix"},
                                 {"work", "work"},
                                 {"median_seconds", "median ms", 1e3, 2},
                                 {"flops", "GFLOP", 1e-9, 2},
                                 {"flops_per_second", "GFLOP/s", 1e-9, 1},
                                 {"share_of_peak", "% of product", 1e2, 1},
                                 {"predicted_seconds", "predicted ms", 1e3, 2},
                                 {"measured_over_predicted", "measured / predicted", 1.0, 2}}};
    table.fact("lines of a shape", std::string("timed in turn, so that they see the same load of the machine"));
    if (!context.decomposes) table.fact("Shampoo, SOAP", std::string("left out, this program has no LAPACK"));
    for (const MatrixShape& shape : shapes) {
        ShapeBench bench(context, shape);
        bench.measure();
        bench.add_rows(table);
    }
    return table;
}

}  // namespace mfsdp::runtime
