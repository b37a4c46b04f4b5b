#include "mfsdp/optim/soap.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include "optim/task_batches.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace mfsdp::optim {

namespace {

using device::DType;
using device::PooledBuffer;
using device::Tensor;

constexpr std::int64_t kFloatBytes = device::size_of(DType::float32);
constexpr std::int64_t kIndexBytes = device::size_of(DType::int64);

/// The states of a matrix by what they are.
struct SoapStates {
    Tensor exp_avg, exp_avg_sq;
    std::span<const Tensor> factors, bases;
    Tensor failures{};

    SoapStates(std::span<const Tensor> states, std::size_t sides)
        : exp_avg(states[0]),
          exp_avg_sq(states[1]),
          factors(states.subspan(2, sides)),
          bases(states.subspan(2 + sides, sides)) {
        if (sides > 0) failures = states[2 + 2 * sides];
    }
};

/// Memory of a batch of basis refreshes: for each task the product A Q, which becomes the new basis, the order of its
/// columns, and what became of it.
class RefreshMemory {
  public:
    RefreshMemory(device::Stream& stream, device::BufferPool& workspace, std::span<const std::int64_t> sizes) {
        std::int64_t product_bytes = 0, order_bytes = 0;
        for (const std::int64_t size : sizes) {
            product_offsets_[count_] = product_bytes;
            order_offsets_[count_] = order_bytes;
            sizes_[count_++] = size;
            product_bytes += device::align_up(size * size * kFloatBytes);
            order_bytes += device::align_up(size * kIndexBytes);
        }
        products_ = PooledBuffer(workspace, stream, product_bytes);
        orders_ = PooledBuffer(workspace, stream, order_bytes);
        statuses_ = PooledBuffer(workspace, stream, device::kMaxTasks * kIndexBytes);
    }
    [[nodiscard]] Tensor product(std::size_t task) const {
        return products_.view(DType::float32, {sizes_[task], sizes_[task]}, product_offsets_[task]);
    }
    [[nodiscard]] Tensor order(std::size_t task) const {
        return orders_.view(DType::int64, {sizes_[task]}, order_offsets_[task]);
    }
    [[nodiscard]] Tensor statuses(std::size_t first, std::size_t count) const {
        return statuses_.view(DType::int64, {static_cast<std::int64_t>(count)},
                              static_cast<std::int64_t>(first) * kIndexBytes);
    }
    [[nodiscard]] Tensor status(std::size_t task) const { return statuses(task, 1); }

  private:
    std::array<std::int64_t, device::kMaxTasks> sizes_{}, product_offsets_{}, order_offsets_{};
    std::size_t count_ = 0;
    PooledBuffer products_, orders_, statuses_;
};

class Soap final : public MatrixOptimizer {
  public:
    explicit Soap(const SoapOptions& options)
        : options_(options), factor_beta_(options.shampoo_beta.value_or(options.beta2)) {
        MFSDP_ASSERT(options.beta1 >= 0.0 && options.beta1 < 1.0 && options.beta2 >= 0.0 && options.beta2 < 1.0 &&
                         factor_beta_ >= 0.0 && factor_beta_ < 1.0,
                     "the betas are in [0, 1)");
        MFSDP_ASSERT(options.precondition_frequency >= 1, "bases are renewed every step at most");
    }

    [[nodiscard]] std::string name() const override { return "soap"; }

    [[nodiscard]] std::vector<StateSpec> block_states(std::int64_t rows, std::int64_t columns) const override {
        std::vector<StateSpec> states{{.name = "exp_avg", .shape = {rows, columns}, .element = false},
                                      {.name = "exp_avg_sq", .shape = {rows, columns}, .element = false}};
        const Sides sides = sides_of(rows, columns);
        const auto add = [&](const std::string& what, StateStart start) {
            for (const Side& side : sides.all()) {
                states.push_back({.name = std::string(side.left ? "left_" : "right_").append(what),
                                  .shape = {side.size, side.size},
                                  .element = false,
                                  .start = start});
            }
        };
        add("factor", StateStart::zeros);
        add("basis", StateStart::identity);
        if (sides.count() > 0) {
            states.push_back({.name = "refresh_failures", .shape = {}, .element = false, .dtype = DType::int64});
        }
        return states;
    }

    [[nodiscard]] OptimizerCost cost(std::int64_t rows, std::int64_t columns) const override {
        OptimizerCost cost{.step = {},
                           .refresh = {},
                           .frequency = options_.precondition_frequency,
                           .staggered = options_.stagger_refresh,
                           .skipped_steps = options_.skip_first_step ? 1 : 0};
        const std::int64_t elements = rows * columns;
        // The scaled gradient, moments and weights; and what a renewed basis moves of the moments.
        cost.step.element_bytes = kFloatBytes * elements * (options_.normalize_update ? 14 : 11);
        cost.refresh.element_bytes = kFloatBytes * elements * 8;
        const Sides sides = sides_of(rows, columns);
        for (const Side& side : sides.all()) {
            const std::int64_t d = side.size;
            cost.step.product_flops += 5 * elements * d;  // the factor's triangle, into the basis and back
            cost.step.element_bytes += kFloatBytes * 2 * d * d;
            cost.refresh.product_flops += 3 * d * d * d + 4 * elements * d;  // A Q, the test; rotation of exp_avg
            cost.refresh.orthogonal_flops += 8 * d * d * d / 3;
            cost.refresh.element_bytes += kFloatBytes * 8 * d * d;
        }
        return cost;
    }

    [[nodiscard]] std::vector<RehearsalStep> rehearsal_steps(std::span<const std::int64_t> numbers) const override {
        std::vector<std::int64_t> shifts;
        for (const std::int64_t number : numbers) shifts.push_back(updates(shift(number)));
        std::vector<RehearsalStep> steps = refresh_period(1, options_.precondition_frequency, shifts);
        steps.push_back({1, 0.0});
        return steps;
    }

    [[nodiscard]] bool observes(std::int64_t step) const override { return step == 1; }
    [[nodiscard]] bool directs(std::int64_t step) const override { return step > 1 || !options_.skip_first_step; }

    void accumulate(device::Stream& stream, const Tensor& input, const Tensor& gradient,
                    std::span<const Tensor> /*element_states*/, const device::GradientScale& scale) override {
        if (gradient.count() == 0) return;
        device::launch(stream, device::ScaleGradient{.out = input, .gradient = gradient, .scale = scale});
    }

    void observe(device::Stream& stream, device::BufferPool& /*workspace*/, std::span<const BlockWork> blocks,
                 std::int64_t /*step*/) override {
        for (const BlockWork& block : blocks) take_into_factors(stream, block);
    }

    void direction(device::Stream& stream, device::BufferPool& workspace, std::span<const BlockWork> blocks,
                   std::int64_t step) override {
        for (const BlockWork& block : blocks) {
            // The basis is that of earlier gradients, so the factors may take this one in before it is overwritten; the
            // first step's gradient is in them already.
            if (step > 1) take_into_factors(stream, block);
            direct(stream, workspace, block, updates(step));
        }
    }

    void refresh(device::Stream& stream, device::BufferPool& workspace, std::span<const BlockWork> blocks,
                 std::int64_t step) override {
        const bool first = step == 1;
        const auto due = [&](const BlockWork& block) { return first || is_due(step, block.number); };
        const auto sides = [&](const BlockWork& block) { return sides_of(block.rows, block.columns); };
        const auto bytes = [first](std::int64_t size) {
            return kFloatBytes * (first ? device::InverseRoots::task_floats(size)
                                        : device::OrthonormalBases::task_floats(size) + size * size);
        };
        for_task_batches(blocks, due, sides, bytes, [&](std::span<const BlockWork* const> batch) {
            if (first) {
                make_bases(stream, workspace, batch);
            } else {
                renew_bases(stream, workspace, batch);
            }
        });
    }

    [[nodiscard]] WeightRule weight_rule(std::int64_t rows, std::int64_t columns, double learning_rate,
                                         double weight_decay, std::int64_t step) const override {
        double rate = learning_rate;
        const auto t = static_cast<double>(updates(step));
        if (options_.bias_correction && options_.epsilon_mode == BiasEpsilon::uncorrected) {
            rate *= std::sqrt(1.0 - std::pow(options_.beta2, t)) / (1.0 - std::pow(options_.beta1, t));
        }
        // The direction then has length 1: this makes its RMS 1.
        if (options_.normalize_update) rate *= std::sqrt(static_cast<double>(rows) * static_cast<double>(columns));
        const double decay = 1.0 - learning_rate * weight_decay;
        // (W - rate u) decay, if the decay comes last.
        if (options_.decay_order == DecayOrder::after) rate *= decay;
        return {.decay = static_cast<float>(decay), .step = static_cast<float>(rate)};
    }

  private:
    /// t of the formulas: a skipped first step is no update.
    [[nodiscard]] std::int64_t updates(std::int64_t step) const { return options_.skip_first_step ? step - 1 : step; }

    [[nodiscard]] bool is_due(std::int64_t step, std::int64_t number) const {
        return step > 1 && (updates(step) + shift(number)) % options_.precondition_frequency == 0;
    }
    [[nodiscard]] std::int64_t shift(std::int64_t number) const { return options_.stagger_refresh ? number : 0; }

    [[nodiscard]] Sides sides_of(std::int64_t rows, std::int64_t columns) const {
        Sides sides;
        const bool left = !options_.one_sided || rows <= columns, right = !options_.one_sided || columns < rows;
        if (left && rows <= options_.max_preconditioner_dim) sides.add({true, rows});
        if (right && columns <= options_.max_preconditioner_dim) sides.add({false, columns});
        return sides;
    }

    void take_into_factors(device::Stream& stream, const BlockWork& block) const {
        const Sides sides = sides_of(block.rows, block.columns);
        const SoapStates states(block.states, sides.count());
        for (std::size_t i = 0; i < sides.count(); ++i) {
            device::launch(stream, device::SymmetricProduct{.out = states.factors[i],
                                                            .a = block.input,
                                                            .transpose = !sides.all()[i].left,
                                                            .alpha = static_cast<float>(1.0 - factor_beta_),
                                                            .beta = static_cast<float>(factor_beta_)});
        }
    }

    /// Lines 1 to 5 of docs/optimizers.md, SOAP; the factors are untouched.
    void direct(device::Stream& stream, device::BufferPool& workspace, const BlockWork& block, std::int64_t t) const {
        const Sides sides = sides_of(block.rows, block.columns);
        const SoapStates states(block.states, sides.count());
        const std::int64_t bytes = block.rows * block.columns * kFloatBytes;
        const PooledBuffer one_memory(workspace, stream, bytes), other_memory(workspace, stream, bytes);
        const Tensor one = one_memory.view(DType::float32, {block.rows, block.columns});
        const Tensor other = other_memory.view(DType::float32, {block.rows, block.columns});

        const Tensor rotated = rotate(stream, sides, states.bases, block.input, one, other, true);
        // Adam works in place unless that is the input, which may be needed as it is.
        const Tensor moved = rotated.data == block.input.data ? one : rotated;
        const bool corrects = options_.bias_correction && options_.epsilon_mode == BiasEpsilon::corrected;
        const auto updates = static_cast<double>(t);
        device::launch(stream,
                       device::EigenbasisMoments{
                           .out = moved,
                           .exp_avg = states.exp_avg,
                           .exp_avg_sq = states.exp_avg_sq,
                           .gradient = rotated,
                           .beta1 = static_cast<float>(options_.beta1),
                           .one_minus_beta1 = static_cast<float>(1.0 - options_.beta1),
                           .beta2 = static_cast<float>(options_.beta2),
                           .one_minus_beta2 = static_cast<float>(1.0 - options_.beta2),
                           .correction = corrects ? static_cast<float>(1.0 - std::pow(options_.beta1, updates)) : 1.0F,
                           .root_correction =
                               corrects ? static_cast<float>(std::sqrt(1.0 - std::pow(options_.beta2, updates))) : 1.0F,
                           .epsilon = static_cast<float>(options_.epsilon)});
        const Tensor& free = moved.data == one.data ? other : one;
        const Tensor back = rotate(stream, sides, states.bases, moved, free, block.out, false);
        if (back.data != block.out.data) device::launch(stream, device::Copy{.out = block.out, .in = back});
        if (options_.normalize_update) normalise(stream, workspace, block.out);
    }

    /// Q_L^T in Q_R (into the basis) or Q_L in Q_R^T (out of it), through `first` and, with two sides, `second`. Gives
    /// where the result lies: `in` itself where there is no side.
    static Tensor rotate(device::Stream& stream, const Sides& sides, std::span<const Tensor> bases, const Tensor& in,
                         const Tensor& first, const Tensor& second, bool into) {
        Tensor result = in, next = first;
        for (std::size_t i = 0; i < sides.count(); ++i) {
            if (sides.all()[i].left) {
                device::launch(stream, device::Matmul{.out = next, .a = bases[i], .b = result, .transpose_a = into});
            } else {
                device::launch(stream, device::Matmul{.out = next, .a = result, .b = bases[i], .transpose_b = !into});
            }
            result = next;
            next = second;
        }
        return result;
    }

    /// out = out / |out|; a zero stays zero.
    static void normalise(device::Stream& stream, device::BufferPool& workspace, const Tensor& out) {
        const PooledBuffer memory(workspace, stream, device::size_of(DType::float64));
        const Tensor norm = memory.view(DType::float64, {1});
        device::launch(stream, device::FrobeniusNorm{.norm = norm, .in = out});
        device::launch(stream, device::DivideByNorm{.out = out, .in = out, .norm = norm});
    }

    /// The first bases, from factors that hold one gradient.
    void make_bases(device::Stream& stream, device::BufferPool& workspace,
                    std::span<const BlockWork* const> batch) const {
        device::SymmetricBases bases;
        const PooledBuffer statuses(workspace, stream, device::kMaxTasks * kIndexBytes);
        const auto status = [&](std::int64_t first, std::size_t count) {
            return statuses.view(DType::int64, {static_cast<std::int64_t>(count)}, first * kIndexBytes);
        };
        std::int64_t floats = 0;
        for (const BlockWork* block : batch) {
            const Sides sides = sides_of(block->rows, block->columns);
            const SoapStates states(block->states, sides.count());
            for (std::size_t i = 0; i < sides.count(); ++i) {
                bases.tasks[static_cast<std::size_t>(bases.count)] = {states.factors[i], states.bases[i],
                                                                      status(bases.count, 1)};
                ++bases.count;
                floats += device::InverseRoots::task_floats(sides.all()[i].size);
            }
        }
        const PooledBuffer scratch(workspace, stream, floats * kFloatBytes);
        bases.workspace = scratch.view(DType::float32, {floats});
        device::launch(stream, bases);
        std::int64_t first = 0;
        for (const BlockWork* block : batch) {
            const std::size_t count = sides_of(block->rows, block->columns).count();
            device::launch(stream, device::CountFailures{.failures = SoapStates(block->states, count).failures,
                                                         .statuses = status(first, count)});
            first += static_cast<std::int64_t>(count);
        }
    }

    /// Lines 8 and 9: T = A Q for every side, all QR steps in one launch, then what follows the bases.
    void renew_bases(device::Stream& stream, device::BufferPool& workspace,
                     std::span<const BlockWork* const> batch) const {
        std::array<std::int64_t, device::kMaxTasks> sizes{};
        std::size_t count = 0;
        for (const BlockWork* block : batch) {
            const Sides sides = sides_of(block->rows, block->columns);
            for (const Side& side : sides.all()) sizes[count++] = side.size;
        }
        const RefreshMemory memory(stream, workspace, std::span(sizes).first(count));
        device::OrthonormalBases bases;
        std::int64_t floats = 0;
        for (const BlockWork* block : batch) {
            const Sides sides = sides_of(block->rows, block->columns);
            const SoapStates states(block->states, sides.count());
            for (std::size_t i = 0; i < sides.count(); ++i) {
                const auto task = static_cast<std::size_t>(bases.count++);
                device::launch(
                    stream, device::Matmul{.out = memory.product(task), .a = states.factors[i], .b = states.bases[i]});
                bases.tasks[task] = {memory.product(task), states.bases[i], memory.order(task), memory.status(task)};
                floats += device::OrthonormalBases::task_floats(sides.all()[i].size);
            }
        }
        {
            const PooledBuffer scratch(workspace, stream, floats * kFloatBytes);
            bases.workspace = scratch.view(DType::float32, {floats});
            device::launch(stream, bases);
        }
        std::size_t first = 0;
        for (const BlockWork* block : batch) {
            follow(stream, workspace, *block, memory, first);
            first += sides_of(block->rows, block->columns).count();
        }
    }

    /// Moves a block's moments to its new bases and takes these over. What failed keeps everything of its side.
    void follow(device::Stream& stream, device::BufferPool& workspace, const BlockWork& block,
                const RefreshMemory& memory, std::size_t first_task) const {
        const Sides sides = sides_of(block.rows, block.columns);
        const SoapStates states(block.states, sides.count());
        const std::int64_t bytes = block.rows * block.columns * kFloatBytes;
        const PooledBuffer one_memory(workspace, stream, bytes), other_memory(workspace, stream, bytes);
        const Tensor one = one_memory.view(DType::float32, {block.rows, block.columns});
        const Tensor other = other_memory.view(DType::float32, {block.rows, block.columns});

        device::Permute permute{.out = one, .in = states.exp_avg_sq};
        for (std::size_t i = 0; i < sides.count(); ++i) {
            (sides.all()[i].left ? permute.row_order : permute.column_order) = memory.order(first_task + i);
        }
        device::launch(stream, permute);
        device::launch(stream, device::Copy{.out = states.exp_avg_sq, .in = one});

        for (std::size_t i = 0; i < sides.count(); ++i) {
            const Tensor& basis = states.bases[i];
            const Tensor renewed = memory.product(first_task + i), status = memory.status(first_task + i);
            if (sides.all()[i].left) {
                device::launch(stream, device::Matmul{.out = one, .a = basis, .b = states.exp_avg});
                device::launch(stream, device::Matmul{.out = other, .a = renewed, .b = one, .transpose_a = true});
            } else {
                device::launch(stream,
                               device::Matmul{.out = one, .a = states.exp_avg, .b = basis, .transpose_b = true});
                device::launch(stream, device::Matmul{.out = other, .a = one, .b = renewed});
            }
            device::launch(stream, device::AcceptedCopy{.out = states.exp_avg, .in = other, .status = status});
            device::launch(stream, device::AcceptedCopy{.out = basis, .in = renewed, .status = status});
        }
        device::launch(stream, device::CountFailures{.failures = states.failures,
                                                     .statuses = memory.statuses(first_task, sides.count())});
    }

    SoapOptions options_;
    double factor_beta_;
};

}  // namespace

std::unique_ptr<MatrixOptimizer> make_soap(const SoapOptions& options) { return std::make_unique<Soap>(options); }

}  // namespace mfsdp::optim
