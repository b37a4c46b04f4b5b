#include "mfsdp/optim/soap.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include "optim/factored_optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace mfsdp::optim {

namespace {

using device::DType;
using device::PooledBuffer;
using device::Tensor;

constexpr std::int64_t kFloatBytes = device::size_of(DType::float32);

/// States of a block ahead of those of its sides.
constexpr std::size_t kExpAvg = 0, kExpAvgSq = 1, kMoments = 2;

/// Memory of a batch of basis refreshes: for each task the product A Q, which becomes the new basis, and the order of
/// its columns.
class BasisMemory {
  public:
    BasisMemory(device::Stream& stream, device::BufferPool& workspace, std::span<const RefreshTask> tasks) {
        std::int64_t product_bytes = 0, order_bytes = 0;
        for (const RefreshTask& task : tasks) {
            product_offsets_[count_] = product_bytes;
            order_offsets_[count_] = order_bytes;
            sizes_[count_++] = task.size;
            product_bytes += device::align_up(task.size * task.size * kFloatBytes);
            order_bytes += device::align_up(task.size * device::size_of(DType::int64));
        }
        products_ = PooledBuffer(workspace, stream, product_bytes);
        orders_ = PooledBuffer(workspace, stream, order_bytes);
    }
    [[nodiscard]] Tensor product(std::size_t task) const {
        return products_.view(DType::float32, {sizes_[task], sizes_[task]}, product_offsets_[task]);
    }
    [[nodiscard]] Tensor order(std::size_t task) const {
        return orders_.view(DType::int64, {sizes_[task]}, order_offsets_[task]);
    }

  private:
    std::array<std::int64_t, device::kMaxTasks> sizes_{}, product_offsets_{}, order_offsets_{};
    std::size_t count_ = 0;
    PooledBuffer products_, orders_;
};

class Soap final : public FactoredOptimizer {
  public:
    explicit Soap(const SoapOptions& options)
        : FactoredOptimizer("basis", kMoments,
                            {.frequency = options.precondition_frequency,
                             .shift = options.skip_first_step ? -1 : 0,  // a skipped first step is no update
                             .staggered = options.stagger_refresh}),
          options_(options),
          factor_beta_(options.shampoo_beta.value_or(options.beta2)) {
        MFSDP_ASSERT(options.beta1 >= 0.0 && options.beta1 < 1.0 && options.beta2 >= 0.0 && options.beta2 < 1.0 &&
                         factor_beta_ >= 0.0 && factor_beta_ < 1.0,
                     "the betas are in [0, 1)");
        MFSDP_ASSERT(options.precondition_frequency >= 1, "bases are renewed every step at most");
    }

    [[nodiscard]] std::string name() const override { return "soap"; }

    [[nodiscard]] std::vector<StateSpec> block_states(std::int64_t rows, std::int64_t columns) const override {
        std::vector<StateSpec> states{{.name = "exp_avg", .shape = {rows, columns}, .element = false},
                                      {.name = "exp_avg_sq", .shape = {rows, columns}, .element = false}};
        add_side_states(states, sides_of(rows, columns));
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

    [[nodiscard]] bool observes(std::int64_t step) const override { return step == 1; }
    [[nodiscard]] bool directs(std::int64_t step) const override { return step > 1 || !options_.skip_first_step; }

    void accumulate(device::Stream& stream, const Tensor& input, const Tensor& /*square_sums*/, const Tensor& gradient,
                    std::span<const Tensor> /*element_states*/, const device::GradientScale& scale) override {
        if (gradient.count() == 0) return;
        device::launch(stream, device::ScaleGradient{.out = input, .gradient = gradient, .scale = scale});
    }

    void observe(device::Stream& stream, device::BufferPool& /*workspace*/, std::span<const BlockWork> blocks,
                 std::int64_t /*step*/) override {
        for (const BlockWork& block : blocks) take_in(stream, block);
    }

    void direction(device::Stream& stream, device::BufferPool& workspace, std::span<const BlockWork> blocks,
                   std::int64_t step) override {
        for (const BlockWork& block : blocks) {
            // The basis is that of earlier gradients, so the factors may take this one in before it is overwritten; the
            // first step's gradient is in them already.
            if (step > 1) take_in(stream, block);
            direct(stream, workspace, block, updates(step));
        }
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

  protected:
    [[nodiscard]] Sides sides_of(std::int64_t rows, std::int64_t columns) const override {
        Sides sides;
        const bool left = !options_.one_sided || rows <= columns, right = !options_.one_sided || columns < rows;
        if (left && rows <= options_.max_preconditioner_dim) sides.add({true, rows});
        if (right && columns <= options_.max_preconditioner_dim) sides.add({false, columns});
        return sides;
    }

    [[nodiscard]] std::int64_t task_bytes(std::int64_t size, std::int64_t step) const override {
        return kFloatBytes * (step == 1 ? device::InverseRoots::task_floats(size)
                                        : device::OrthonormalBases::task_floats(size) + size * size);
    }

    /// The first bases are made from factors that hold one gradient.
    void renew(device::Stream& stream, device::BufferPool& workspace, const RefreshBatch& batch,
               std::int64_t step) override {
        if (step == 1) {
            decompose(stream, workspace, batch, device::SymmetricBases{});
        } else {
            renew_bases(stream, workspace, batch);
        }
    }

  private:
    /// t of the formulas: a skipped first step is no update.
    [[nodiscard]] std::int64_t updates(std::int64_t step) const { return options_.skip_first_step ? step - 1 : step; }

    void take_in(device::Stream& stream, const BlockWork& block) const {
        take_into_factors(stream, block, 1.0 - factor_beta_, factor_beta_);
    }

    /// Lines 1 to 5 of docs/optimizers.md, SOAP; the factors are untouched.
    void direct(device::Stream& stream, device::BufferPool& workspace, const BlockWork& block, std::int64_t t) const {
        const Sides sides = sides_of(block.rows, block.columns);
        const SideStates states = side_states(block, sides);
        const std::int64_t bytes = block.rows * block.columns * kFloatBytes;
        const PooledBuffer one_memory(workspace, stream, bytes), other_memory(workspace, stream, bytes);
        const Tensor one = one_memory.view(DType::float32, {block.rows, block.columns});
        const Tensor other = other_memory.view(DType::float32, {block.rows, block.columns});

        const Tensor rotated = rotate(stream, sides, states.results, block.input, one, other, true);
        // Adam works in place unless that is the input, which may be needed as it is.
        const Tensor moved = rotated.data == block.input.data ? one : rotated;
        const bool corrects = options_.bias_correction && options_.epsilon_mode == BiasEpsilon::corrected;
        const auto updates = static_cast<double>(t);
        device::launch(stream,
                       device::EigenbasisMoments{
                           .out = moved,
                           .exp_avg = block.states[kExpAvg],
                           .exp_avg_sq = block.states[kExpAvgSq],
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
        const Tensor back = rotate(stream, sides, states.results, moved, free, block.out, false);
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

    /// Lines 8 and 9: T = A Q for every side, all QR steps in one launch, then what follows the bases.
    void renew_bases(device::Stream& stream, device::BufferPool& workspace, const RefreshBatch& batch) const {
        const std::span<const RefreshTask> tasks = batch.tasks();
        const BasisMemory memory(stream, workspace, tasks);
        device::OrthonormalBases bases;
        std::int64_t floats = 0;
        for (std::size_t i = 0; i < tasks.size(); ++i) {
            const RefreshTask& task = tasks[i];
            device::launch(stream, device::Matmul{.out = memory.product(i), .a = task.factor, .b = task.result});
            bases.tasks[i] = {memory.product(i), task.result, memory.order(i), task.status};
            floats += device::OrthonormalBases::task_floats(task.size);
        }
        bases.count = std::ssize(tasks);
        {
            const PooledBuffer scratch = take_floats(stream, workspace, floats);
            bases.workspace = scratch.view(DType::float32, {floats});
            device::launch(stream, bases);
        }
        for (const RefreshBatch::Part& part : batch.parts()) follow(stream, workspace, batch, part, memory);
    }

    /// Moves a block's moments to its new bases and takes these over. What failed keeps everything of its side.
    void follow(device::Stream& stream, device::BufferPool& workspace, const RefreshBatch& batch,
                const RefreshBatch::Part& part, const BasisMemory& memory) const {
        const BlockWork& block = *part.block;
        const Sides sides = sides_of(block.rows, block.columns);
        const Tensor &exp_avg = block.states[kExpAvg], &exp_avg_sq = block.states[kExpAvgSq];
        const std::int64_t bytes = block.rows * block.columns * kFloatBytes;
        const PooledBuffer one_memory(workspace, stream, bytes), other_memory(workspace, stream, bytes);
        const Tensor one = one_memory.view(DType::float32, {block.rows, block.columns});
        const Tensor other = other_memory.view(DType::float32, {block.rows, block.columns});

        device::Permute permute{.out = one, .in = exp_avg_sq};
        for (std::size_t i = 0; i < part.count; ++i) {
            (sides.all()[i].left ? permute.row_order : permute.column_order) = memory.order(part.first + i);
        }
        device::launch(stream, permute);
        device::launch(stream, device::Copy{.out = exp_avg_sq, .in = one});

        for (std::size_t i = 0; i < part.count; ++i) {
            const RefreshTask& task = batch.tasks()[part.first + i];
            const Tensor renewed = memory.product(part.first + i);
            if (sides.all()[i].left) {
                device::launch(stream, device::Matmul{.out = one, .a = task.result, .b = exp_avg});
                device::launch(stream, device::Matmul{.out = other, .a = renewed, .b = one, .transpose_a = true});
            } else {
                device::launch(stream, device::Matmul{.out = one, .a = exp_avg, .b = task.result, .transpose_b = true});
                device::launch(stream, device::Matmul{.out = other, .a = one, .b = renewed});
            }
            device::launch(stream, device::AcceptedCopy{.out = exp_avg, .in = other, .status = task.status});
            device::launch(stream, device::AcceptedCopy{.out = task.result, .in = renewed, .status = task.status});
        }
    }

    SoapOptions options_;
    double factor_beta_;
};

}  // namespace

std::unique_ptr<MatrixOptimizer> make_soap(const SoapOptions& options) { return std::make_unique<Soap>(options); }

}  // namespace mfsdp::optim
