#include "mfsdp/optim/shampoo.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include "optim/factored_optimizer.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::optim {

namespace {

using device::DType;
using device::PooledBuffer;
using device::Tensor;

constexpr std::int64_t kFloatBytes = device::size_of(DType::float32);
constexpr std::int64_t kDoubleBytes = device::size_of(DType::float64);

class Shampoo final : public FactoredOptimizer {
  public:
    explicit Shampoo(const ShampooOptions& options)
        : FactoredOptimizer("root", 0,
                            {.start = options.start_step > 0 ? options.start_step : options.precondition_frequency,
                             .frequency = options.precondition_frequency,
                             .staggered = options.stagger_refresh}),
          options_(options),
          graft_beta2_(options.graft_beta2.value_or(options.beta2)) {
        MFSDP_ASSERT(options.beta1 >= 0.0 && options.beta1 < 1.0 && options.beta2 >= 0.0 && options.beta2 <= 1.0,
                     "beta1 is in [0, 1), beta2 in [0, 1]");
        MFSDP_ASSERT(options.precondition_frequency >= 1, "roots are renewed every step at most");
        MFSDP_ASSERT(graft_beta2_ < 1.0 || !averages_squares(), "the graft's mean of squares needs a beta below 1");
    }

    [[nodiscard]] std::string name() const override { return "shampoo"; }

    [[nodiscard]] std::vector<StateSpec> block_states(std::int64_t rows, std::int64_t columns) const override {
        std::vector<StateSpec> states{{.name = "momentum", .shape = {rows, columns}}};
        if (keeps_squares()) states.push_back({.name = "graft_exp_avg_sq", .shape = {rows, columns}});
        add_side_states(states, sides_of(rows, columns));
        return states;
    }

    [[nodiscard]] OptimizerCost cost(std::int64_t rows, std::int64_t columns) const override {
        OptimizerCost cost{.step = {},
                           .refresh = {},
                           .frequency = options_.precondition_frequency,
                           .staggered = options_.stagger_refresh};
        const std::int64_t elements = rows * columns;
        // Gradient, momentum, squares and the scaled gradient; average and graft; the length of both; weights.
        cost.step.element_bytes = kFloatBytes * elements * (keeps_squares() ? 20 : 14);
        const Sides sides = sides_of(rows, columns);
        for (const Side& side : sides.all()) {
            const std::int64_t d = side.size;
            cost.step.product_flops += 3 * elements * d;  // the factor's triangle, root times average
            cost.step.element_bytes += kFloatBytes * 2 * d * d;
            if (options_.root_method == RootMethod::eigen) {
                cost.refresh.eigen_flops += 9 * d * d * d;
                cost.refresh.product_flops += 3 * d * d * d;  // two tests and the root, a triangle each
            } else {
                device::NewtonRoot root;
                root.order = options_.root_order;
                cost.refresh.product_flops += device::NewtonRoot::kCountedRounds * root.products_in_round() * d * d * d;
            }
            cost.refresh.element_bytes += kFloatBytes * 4 * d * d;
        }
        return cost;
    }

    [[nodiscard]] bool direction_reads_input() const override { return false; }
    [[nodiscard]] std::int64_t averages() const override { return keeps_squares() ? 2 : 1; }
    [[nodiscard]] bool observes(std::int64_t /*step*/) const override { return true; }

    void accumulate(device::Stream& stream, const Tensor& input, const Tensor& /*square_sums*/, const Tensor& gradient,
                    std::span<const Tensor> element_states, const device::GradientScale& scale) override {
        if (gradient.count() == 0) return;
        // rmsprop and adam average squares, adagrad adds them up.
        const bool average = averages_squares();
        device::launch(stream, device::GraftMoments{
                                   .out = input,
                                   .momentum = element_states[0],
                                   .square = keeps_squares() ? element_states[1] : Tensor{},
                                   .gradient = gradient,
                                   .scale = scale,
                                   .beta1 = static_cast<float>(options_.beta1),
                                   .one_minus_beta1 = static_cast<float>(1.0 - options_.beta1),
                                   .beta2 = average ? static_cast<float>(graft_beta2_) : 1.0F,
                                   .square_factor = average ? static_cast<float>(1.0 - graft_beta2_) : 1.0F,
                               });
    }

    void average(device::Stream& stream, std::span<const Tensor> out, std::span<const Tensor> element_states,
                 std::int64_t step) override {
        if (out[0].count() == 0) return;
        const auto t = static_cast<double>(step);
        const bool corrected = options_.grafting == Grafting::adam;  // keeps its own correction in any case
        device::launch(
            stream,
            device::GraftDirection{
                .average = out[0],
                .graft = keeps_squares() ? out[1] : Tensor{},
                .momentum = element_states[0],
                .square = keeps_squares() ? element_states[1] : Tensor{},
                .correction = static_cast<float>(first_correction(t)),
                .root_correction = corrected ? static_cast<float>(std::sqrt(1.0 - std::pow(graft_beta2_, t))) : 1.0F,
                .epsilon = static_cast<float>(options_.grafting_epsilon),
            });
    }

    void observe(device::Stream& stream, device::BufferPool& /*workspace*/, std::span<const BlockWork> blocks,
                 std::int64_t /*step*/) override {
        const double alpha = options_.beta2 == 1.0 ? 1.0 : 1.0 - options_.beta2;
        for (const BlockWork& block : blocks) take_into_factors(stream, block, alpha, options_.beta2);
    }

    void direction(device::Stream& stream, device::BufferPool& workspace, std::span<const BlockWork> blocks,
                   std::int64_t step) override {
        for (const BlockWork& block : blocks) direct(stream, workspace, block, step);
    }

    [[nodiscard]] WeightRule weight_rule(std::int64_t /*rows*/, std::int64_t /*columns*/, double learning_rate,
                                         double weight_decay, std::int64_t /*step*/) const override {
        return {.decay = static_cast<float>(1.0 - learning_rate * weight_decay),
                .step = static_cast<float>(learning_rate)};
    }

  protected:
    [[nodiscard]] Sides sides_of(std::int64_t rows, std::int64_t columns) const override {
        Sides sides;
        if (rows <= options_.max_preconditioner_dim) sides.add({true, rows});
        if (columns <= options_.max_preconditioner_dim) sides.add({false, columns});
        return sides;
    }

    [[nodiscard]] std::int64_t task_bytes(std::int64_t size, std::int64_t /*step*/) const override {
        // Newton's roots, each on all threads, follow one another and use the same memory.
        return iterates() ? 0 : kFloatBytes * device::InverseRoots::task_floats(size);
    }

    void renew(device::Stream& stream, device::BufferPool& workspace, const RefreshBatch& batch,
               std::int64_t step) override {
        if (iterates()) {
            iterate_roots(stream, workspace, batch, step);
            return;
        }
        decompose(stream, workspace, batch,
                  device::InverseRoots{.workspace = {},
                                       .order = options_.root_order,
                                       .factor_scale = factor_scale(step),
                                       .epsilon = options_.epsilon,
                                       .relative = options_.epsilon_mode == EpsilonMode::relative});
    }

  private:
    [[nodiscard]] bool iterates() const { return options_.root_method == RootMethod::coupled_newton; }
    [[nodiscard]] bool averages_squares() const {
        return options_.grafting == Grafting::adam || options_.grafting == Grafting::rmsprop;
    }
    [[nodiscard]] bool keeps_squares() const { return averages_squares() || options_.grafting == Grafting::adagrad; }
    [[nodiscard]] double first_correction(double t) const {
        return options_.bias_correction ? 1.0 - std::pow(options_.beta1, t) : 1.0;
    }

    /// 1 / bc2: what makes a mean of the factor.
    [[nodiscard]] double factor_scale(std::int64_t step) const {
        if (options_.beta2 == 1.0 || !options_.bias_correction) return 1.0;
        return 1.0 / (1.0 - std::pow(options_.beta2, static_cast<double>(step)));
    }

    void iterate_roots(device::Stream& stream, device::BufferPool& workspace, const RefreshBatch& batch,
                       std::int64_t step) const {
        for (const RefreshTask& task : batch.tasks()) {
            const std::int64_t floats = device::NewtonRoot::workspace_floats(task.size);
            const PooledBuffer scratch = take_floats(stream, workspace, floats);
            device::launch(stream, device::NewtonRoot{.factor = task.factor,
                                                      .root = task.result,
                                                      .status = task.status,
                                                      .workspace = scratch.view(DType::float32, {floats}),
                                                      .order = options_.root_order,
                                                      .factor_scale = factor_scale(step),
                                                      .epsilon = options_.epsilon,
                                                      .relative = options_.epsilon_mode == EpsilonMode::relative});
        }
    }

    /// out = left_root average right_root, with the length of the graft; before the start the graft's own direction.
    void direct(device::Stream& stream, device::BufferPool& workspace, const BlockWork& block,
                std::int64_t step) const {
        const Tensor& average = block.averages[0];
        const Tensor& graft = keeps_squares() ? block.averages[1] : average;
        if (step < turns().start) {
            if (graft.data != block.out.data) device::launch(stream, device::Copy{.out = block.out, .in = graft});
            return;
        }
        const PooledBuffer norms(workspace, stream, 2 * kDoubleBytes);
        const Tensor graft_norm = norms.view(DType::float64, {1}), norm = norms.view(DType::float64, {1}, kDoubleBytes);
        const bool grafts = options_.grafting != Grafting::none;
        if (grafts) device::launch(stream, device::FrobeniusNorm{.norm = graft_norm, .in = graft});
        precondition(stream, workspace, block);
        if (!grafts) return;
        device::launch(stream, device::FrobeniusNorm{.norm = norm, .in = block.out});
        device::launch(stream, device::ScaleByRatio{
                                   .out = block.out, .in = block.out, .numerator = graft_norm, .denominator = norm});
    }

    void precondition(device::Stream& stream, device::BufferPool& workspace, const BlockWork& block) const {
        const Sides sides = sides_of(block.rows, block.columns);
        const SideStates states = side_states(block, sides);
        const Tensor& average = block.averages[0];
        if (sides.count() == 0) {
            if (average.data != block.out.data) device::launch(stream, device::Copy{.out = block.out, .in = average});
            return;
        }
        const PooledBuffer memory(workspace, stream, block.rows * block.columns * kFloatBytes);
        const Tensor scratch = memory.view(DType::float32, {block.rows, block.columns});
        if (sides.count() == 2) {
            device::launch(stream, device::Matmul{.out = scratch, .a = states.results[0], .b = average});
            device::launch(stream, device::Matmul{.out = block.out, .a = scratch, .b = states.results[1]});
            return;
        }
        device::launch(stream, sides.has(true) ? device::Matmul{.out = scratch, .a = states.results[0], .b = average}
                                               : device::Matmul{.out = scratch, .a = average, .b = states.results[0]});
        device::launch(stream, device::Copy{.out = block.out, .in = scratch});
    }

    ShampooOptions options_;
    double graft_beta2_;
};

}  // namespace

std::unique_ptr<MatrixOptimizer> make_shampoo(const ShampooOptions& options) {
    return std::make_unique<Shampoo>(options);
}

}  // namespace mfsdp::optim
