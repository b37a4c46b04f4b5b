#include "mfsdp/optim/muon.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::optim {

namespace {

constexpr std::int64_t kFloatBytes = device::size_of(device::DType::float32);

/// Distance in bytes from a block to the one behind it, or 0 if the two cannot be in one batch.
std::int64_t distance(const BlockWork& a, const BlockWork& b) {
    if (!same_shape(a.out, b.out)) return 0;
    const std::int64_t out = b.out.data - a.out.data, input = b.input.data - a.input.data;
    return out == input && out >= a.out.bytes() ? out : 0;
}

/// How many of the first blocks have one shape and lie at equal distances: they share every call.
std::size_t run_length(std::span<const BlockWork> blocks) {
    if (blocks.size() < 2) return blocks.size();
    const std::int64_t bytes = distance(blocks[0], blocks[1]);
    std::size_t count = 1;
    while (bytes != 0 && count < blocks.size() && distance(blocks[count - 1], blocks[count]) == bytes) ++count;
    return count;
}

/// A run of blocks as one tensor [b, rows, columns].
device::Tensor batch(std::span<const BlockWork> run, device::Tensor BlockWork::*member) {
    const device::Tensor& first = run.front().*member;
    device::Tensor result = first.split(0, 1, first.rows());
    result.shape[0] = static_cast<std::int64_t>(run.size());
    if (run.size() > 1) result.strides[0] = distance(run[0], run[1]) / kFloatBytes;
    return result;
}

/// The sums of squares of a run of blocks as one tensor; undefined if they have none.
device::Tensor batch_of_sums(std::span<const BlockWork> run) {
    const device::Tensor& first = run.front().square_sums;
    if (!first.defined()) return {};
    const auto count = static_cast<std::int64_t>(run.size());
    MFSDP_ASSERT(run.back().square_sums.data == first.data + (count - 1) * first.bytes(),
                 "the sums of squares of blocks in one batch follow each other");
    return device::Tensor::dense(first.data, first.dtype, {count, first.shape[0], first.shape[1]});
}

class Muon final : public MatrixOptimizer {
  public:
    explicit Muon(const MuonOptions& options)
        : options_(options),
          newton_schulz_{options.coefficient_type, options.num_ns_steps, options.ns_dtype, options.ns_method} {
        MFSDP_ASSERT(options.num_ns_steps >= 1, "Newton-Schulz takes at least one step");
        MFSDP_ASSERT(options.momentum >= 0.0 && options.momentum < 1.0, "the momentum is in [0, 1)");
    }

    [[nodiscard]] std::string name() const override { return "muon"; }

    [[nodiscard]] std::vector<StateSpec> block_states(std::int64_t rows, std::int64_t columns) const override {
        std::vector<StateSpec> states{{.name = "momentum", .shape = {rows, columns}}};
        if (options_.normuon) states.push_back({.name = "row_exp_avg_sq", .shape = {rows}, .element = false});
        return states;
    }

    [[nodiscard]] OptimizerCost cost(std::int64_t rows, std::int64_t columns) const override {
        const std::int64_t s = std::min(rows, columns), l = std::max(rows, columns);
        const std::int64_t size = device::size_of(options_.ns_dtype);
        // Momentum, division and weights pass over nine float32 matrices, turning a tall one's direction back over two,
        // the row step over seven, copies within the iteration over an iterate and a Gram matrix.
        const std::int64_t passes = 9 + (rows > columns ? 2 : 0) + (options_.normuon ? 7 : 0);
        return {.step = {.product_flops = newton_schulz_flops(newton_schulz_, rows, columns),
                         .element_bytes =
                             kFloatBytes * passes * s * l + options_.num_ns_steps * size * 2 * (s * l + s * s)}};
    }

    [[nodiscard]] bool leaves_square_sums() const override { return true; }

    void accumulate(device::Stream& stream, const device::Tensor& input, const device::Tensor& square_sums,
                    const device::Tensor& gradient, std::span<const device::Tensor> element_states,
                    const device::GradientScale& gradient_scale) override {
        MFSDP_ASSERT(element_states.size() == 1, "muon has one state for each matrix");
        if (gradient.count() == 0) return;
        const bool ema = options_.momentum_form == MomentumForm::ema;
        device::launch(stream, device::MomentumUpdate{
                                   .momentum = element_states[0],
                                   .update = input,
                                   .gradient = gradient,
                                   .square_sums = square_sums,
                                   .by_columns = input.rows() > input.columns(),
                                   .scale = gradient_scale,
                                   .beta = static_cast<float>(options_.momentum),
                                   .gradient_factor = ema ? static_cast<float>(1.0 - options_.momentum) : 1.0F,
                                   .nesterov = options_.nesterov,
                               });
    }

    void direction(device::Stream& stream, device::BufferPool& workspace, std::span<const BlockWork> blocks,
                   std::int64_t /*step*/) override {
        while (!blocks.empty()) {
            const std::size_t count = run_length(blocks);
            newton_schulz(stream, workspace, batch(blocks.first(count), &BlockWork::out),
                          batch(blocks.first(count), &BlockWork::input), newton_schulz_,
                          batch_of_sums(blocks.first(count)));
            for (const BlockWork& block : blocks.first(count)) {
                if (options_.normuon) balance_rows(stream, workspace, block);
            }
            blocks = blocks.subspan(count);
        }
    }

    // Decay follows the plain rate: the scale is there for the size of the direction only.
    [[nodiscard]] WeightRule weight_rule(std::int64_t rows, std::int64_t columns, double learning_rate,
                                         double weight_decay, std::int64_t /*step*/) const override {
        const double scale = muon_scale(options_, rows, columns);
        return {.decay = static_cast<float>(1.0 - learning_rate * weight_decay),
                .step = static_cast<float>(learning_rate * scale),
                .cautious = options_.cautious_weight_decay};
    }

  private:
    /// NorMuon: each row divided by the root of its second moment, and the whole brought back to its length.
    void balance_rows(device::Stream& stream, device::BufferPool& workspace, const BlockWork& block) const {
        const device::PooledBuffer norms(workspace, stream, 2 * device::size_of(device::DType::float64));
        const device::Tensor before = norms.view(device::DType::float64, {1});
        const device::Tensor after = norms.view(device::DType::float64, {1}, device::size_of(device::DType::float64));
        const device::Tensor& moment = block.states[0];
        device::launch(stream, device::RowMoment{.moment = moment,
                                                 .in = block.out,
                                                 .beta = static_cast<float>(options_.normuon_beta2),
                                                 .one_minus_beta = static_cast<float>(1.0 - options_.normuon_beta2)});
        device::launch(stream, device::FrobeniusNorm{.norm = before, .in = block.out});
        device::launch(stream, device::DivideRows{.out = block.out,
                                                  .in = block.out,
                                                  .moment = moment,
                                                  .epsilon = static_cast<float>(options_.normuon_epsilon)});
        device::launch(stream, device::FrobeniusNorm{.norm = after, .in = block.out});
        device::launch(
            stream, device::ScaleByRatio{.out = block.out, .in = block.out, .numerator = before, .denominator = after});
    }

    MuonOptions options_;
    NewtonSchulzOptions newton_schulz_;
};

}  // namespace

double muon_scale(const MuonOptions& options, std::int64_t rows, std::int64_t columns) {
    const auto r = static_cast<double>(rows);
    const auto c = static_cast<double>(columns);
    switch (options.scale_mode) {
        case ScaleMode::match_rms_adamw:
            return options.extra_scale_factor * (0.2 * std::sqrt(std::max(r, c)));
        case ScaleMode::original:
            return options.extra_scale_factor * std::sqrt(std::max(1.0, r / c));
        case ScaleMode::unit_rms_norm:
            return options.extra_scale_factor * std::sqrt(r / c);
        case ScaleMode::spectral:
            return options.extra_scale_factor * std::sqrt(std::max(r, c));
    }
    MFSDP_ASSERT(false, "every scale mode has a formula");
    return 0.0;
}

std::unique_ptr<MatrixOptimizer> make_muon(const MuonOptions& options) { return std::make_unique<Muon>(options); }

}  // namespace mfsdp::optim
