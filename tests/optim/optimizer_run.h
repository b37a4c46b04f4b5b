#pragma once

#include "mfsdp/optim/matrix_stepper.h"

#include "optim/bench.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace mfsdp::optim::test {

/// One parameter under an optimizer on a device.
class OptimizerRun {
  public:
    OptimizerRun(Bench& bench, MatrixOptimizer& optimizer, const Matrix& initial,
                 std::vector<model::RowBlock> row_blocks = {})
        : bench_(bench),
          optimizer_(optimizer),
          weight_(bench.upload(initial)),
          blocks_(std::move(row_blocks)),
          specs_(optimizer.states(initial.rows, initial.columns, blocks_)) {
        for (const StateSpec& spec : specs_) states_.push_back(bench.state(spec));
    }

    double learning_rate = 0.05, weight_decay = 0.1;
    std::int64_t number = 0;
    std::int64_t steps = 0;

    void step(const Matrix& gradient, device::GradientScale scale = {}) {
        const device::Tensor source = bench_.upload(gradient);
        optimizer_.step(bench_.stream(), bench_.workspace(),
                        {.weight = weight_,
                         .gradient = source,
                         .states = states_,
                         .blocks = blocks_,
                         .number = number,
                         .gradient_scale = scale,
                         .learning_rate = learning_rate,
                         .weight_decay = weight_decay,
                         .step = ++steps});
        bench_.stream().synchronize();
    }

    [[nodiscard]] Matrix weight() { return bench_.download(weight_); }
    [[nodiscard]] const std::vector<StateSpec>& specs() const { return specs_; }
    /// The tensor of a state, by its name and block.
    [[nodiscard]] const device::Tensor& tensor(const std::string& name, const std::string& block = "") const {
        for (std::size_t i = 0; i < specs_.size(); ++i) {
            if (specs_[i].name == name && specs_[i].block == block) return states_[i];
        }
        throw std::runtime_error("the optimizer has no state " + name);
    }
    [[nodiscard]] Matrix state(const std::string& name, const std::string& block = "") {
        return bench_.download(tensor(name, block));
    }
    [[nodiscard]] std::int64_t failures(const std::string& block = "") {
        std::int64_t value = -1;
        device::launch(bench_.stream(), device::CopyToHost{&value, tensor("refresh_failures", block)});
        bench_.stream().synchronize();
        return value;
    }
    void set_state(const std::string& name, const Matrix& values) {
        device::launch(bench_.stream(), device::CopyFromHost{tensor(name), values.values.data()});
        bench_.stream().synchronize();
    }
    /// Weight, states and step of another run, possibly on another device.
    void take_over(OptimizerRun& other) {
        device::launch(bench_.stream(), device::CopyFromHost{weight_, other.weight().values.data()});
        bench_.stream().synchronize();
        for (std::size_t i = 0; i < specs_.size(); ++i) {
            std::vector<std::byte> bytes(static_cast<std::size_t>(specs_[i].bytes()));
            device::launch(other.bench_.stream(), device::CopyToHost{bytes.data(), other.states_[i]});
            other.bench_.stream().synchronize();
            device::launch(bench_.stream(), device::CopyFromHost{states_[i], bytes.data()});
            bench_.stream().synchronize();
        }
        steps = other.steps;
    }
    /// Bytes of all states, one after the other.
    [[nodiscard]] std::vector<std::byte> state_bytes() {
        std::vector<std::byte> all;
        for (std::size_t i = 0; i < specs_.size(); ++i) {
            std::vector<std::byte> bytes(static_cast<std::size_t>(specs_[i].bytes()));
            device::launch(bench_.stream(), device::CopyToHost{bytes.data(), states_[i]});
            bench_.stream().synchronize();
            all.insert(all.end(), bytes.begin(), bytes.end());
        }
        return all;
    }

  private:
    Bench& bench_;
    MatrixOptimizer& optimizer_;
    device::Tensor weight_;
    std::vector<model::RowBlock> blocks_;
    std::vector<StateSpec> specs_;
    std::vector<device::Tensor> states_;
};

/// One step of a matrix on the counting device: what it costs and the workspace it takes.
struct CountedStep {
    device::Cost cost;
    std::int64_t workspace = 0;
};

inline CountedStep count_step(MatrixOptimizer& optimizer, std::int64_t rows, std::int64_t columns, std::int64_t step,
                              const std::vector<model::RowBlock>& blocks = {}) {
    const auto counting = device::make_counting_device({});
    const auto stream = counting->make_stream();
    device::MemoryLedger ledger;
    device::BufferPool pool(*counting, ledger, device::MemoryCategory::workspace, -1);
    std::vector<device::Buffer> buffers;
    const auto tensor = [&](const StateSpec& spec) {
        buffers.emplace_back(*counting, ledger, device::MemoryCategory::state, spec.bytes());
        return spec.shape.size() == 2 ? buffers.back().view(spec.dtype, {spec.shape[0], spec.shape[1]})
                                      : buffers.back().view(spec.dtype, {spec.count()});
    };
    const StateSpec like_weight{.name = "weight", .shape = {rows, columns}};
    const device::Tensor weight = tensor(like_weight), gradient = tensor(like_weight);
    std::vector<device::Tensor> states;
    for (const StateSpec& spec : optimizer.states(rows, columns, blocks)) states.push_back(tensor(spec));
    optimizer.step(*stream, pool,
                   {.weight = weight, .gradient = gradient, .states = states, .blocks = blocks, .step = step});
    return {counting->total(), pool.high_water()};
}

inline bool all_finite(const Matrix& matrix) {
    return !matrix.values.empty() &&
           std::all_of(matrix.values.begin(), matrix.values.end(), [](float value) { return std::isfinite(value); });
}

/// Sum of a_ij b_ij.
inline double inner(const Exact& a, const Exact& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.values.size(); ++i) sum += a.values[i] * b.values[i];
    return sum;
}

/// The sum of outer products whose sizes fall from 1 to 1 / condition; condition infinity leaves the first alone.
inline Exact outer_products(std::int64_t rows, std::int64_t columns, double condition, std::uint64_t seed) {
    Exact result(rows, columns);
    const std::int64_t rank = std::isinf(condition) ? 1 : std::min(rows, columns);
    for (std::int64_t k = 0; k < rank; ++k) {
        const double size =
            rank == 1 ? 1.0 : std::pow(condition, -static_cast<double>(k) / static_cast<double>(rank - 1));
        const std::uint64_t its_seed = seed + static_cast<std::uint64_t>(k);
        const Exact outer = product(gaussian(rows, 1, its_seed), gaussian(1, columns, its_seed + 50));
        for (std::size_t i = 0; i < outer.values.size(); ++i) result.values[i] += size * outer.values[i];
    }
    return result;
}

/// Whether steps with one gradient, from zero weights and without decay, go against it, stay finite, and fail in no
/// refresh.
inline bool descends(Bench& bench, MatrixOptimizer& optimizer, const Exact& gradient, int steps) {
    OptimizerRun run(bench, optimizer, Matrix(gradient.rows, gradient.columns));
    run.weight_decay = 0.0;
    for (int t = 0; t < steps; ++t) run.step(convert<float>(gradient));
    const bool refreshes = std::any_of(run.specs().begin(), run.specs().end(),
                                       [](const StateSpec& spec) { return spec.name == "refresh_failures"; });
    return all_finite(run.weight()) && inner(convert<double>(run.weight()), gradient) < 0.0 &&
           (!refreshes || run.failures() == 0);
}

}  // namespace mfsdp::optim::test
