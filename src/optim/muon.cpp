#include "mfsdp/optim/muon.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::optim {

namespace {

class Muon final : public MatrixOptimizer {
  public:
    explicit Muon(const MuonOptions& options) : options_(options) {
        MFSDP_ASSERT(options.num_ns_steps >= 1, "Newton-Schulz takes at least one step");
        MFSDP_ASSERT(options.momentum >= 0.0 && options.momentum < 1.0, "the momentum is in [0, 1)");
    }

    [[nodiscard]] std::string name() const override { return "muon"; }

    [[nodiscard]] std::vector<StateSpec> states(std::int64_t rows, std::int64_t columns) const override {
        return {{.name = "momentum", .shape = {rows, columns}, .element = true}};
    }

    [[nodiscard]] std::int64_t flops(std::int64_t rows, std::int64_t columns) const override {
        const std::int64_t s = std::min(rows, columns);
        const std::int64_t l = std::max(rows, columns);
        return options_.num_ns_steps * (4 * s * s * l + 2 * s * s * s);
    }

    void accumulate(device::Stream& stream, device::Tensor update, device::Tensor gradient,
                    std::span<const device::Tensor> states, const device::GradientScale& gradient_scale) override {
        MFSDP_ASSERT(states.size() == 1, "muon has one state for each matrix");
        if (gradient.count() == 0) return;
        const bool ema = options_.momentum_form == MomentumForm::ema;
        device::launch(stream, device::MomentumUpdate{
                                   .momentum = states[0],
                                   .update = update,
                                   .gradient = gradient,
                                   .scale = gradient_scale,
                                   .beta = static_cast<float>(options_.momentum),
                                   .gradient_factor = ema ? static_cast<float>(1.0 - options_.momentum) : 1.0F,
                                   .nesterov = options_.nesterov,
                               });
    }

    void direction(device::Stream& stream, device::BufferPool& workspace, device::Tensor out,
                   device::Tensor in) override {
        newton_schulz(stream, workspace, out, in, options_.coefficient_type, options_.num_ns_steps);
    }

    [[nodiscard]] double scale(std::int64_t rows, std::int64_t columns) const override {
        const auto r = static_cast<double>(rows);
        const auto c = static_cast<double>(columns);
        return options_.extra_scale_factor * mode_scale(r, c);
    }

  private:
    [[nodiscard]] double mode_scale(double r, double c) const {
        switch (options_.scale_mode) {
            case ScaleMode::match_rms_adamw:
                return 0.2 * std::sqrt(std::max(r, c));
            case ScaleMode::original:
                return std::sqrt(std::max(1.0, r / c));
            case ScaleMode::unit_rms_norm:
                return std::sqrt(r / c);
            case ScaleMode::spectral:
                return std::sqrt(std::max(r, c));
        }
        MFSDP_ASSERT(false, "every scale mode has a formula");
        return 0.0;
    }

    MuonOptions options_;
};

}  // namespace

std::unique_ptr<MatrixOptimizer> make_muon(const MuonOptions& options) { return std::make_unique<Muon>(options); }

}  // namespace mfsdp::optim
