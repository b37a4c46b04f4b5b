#include "mfsdp/device/ops/decomposition.h"
#include "mfsdp/device/ops/symmetric.h"

#include "device/cuda/host_copies.h"
#include "device/cuda/reduce.h"
#include "device/cuda/square_sums.h"
#include "device/cuda/symmetric_solver.h"
#include "device/cuda/vectors.h"
#include "device/ops/newton_limits.h"

#include <cmath>
#include <utility>

namespace mfsdp::device::cuda {

namespace {

constexpr int kSumThreads = 1024;

/// y = (factor + factor^T) / 2, and the largest of its absolute values.
__global__ void __launch_bounds__(kThreads)
    symmetrise_kernel(float* y, SolverState* state, const float* factor, std::int64_t n) {
    const std::int64_t i = global_index();
    float size = 0.0F;
    if (i < n * n) {
        const std::int64_t row = quotient(i, n), column = i - row * n;
        const float value = 0.5F * factor[i] + 0.5F * factor[column * n + row];
        y[i] = value;
        size = fabsf(value);
    }
    const bool finite = size < INFINITY;
    const float largest = largest_of_row(finite ? size : 0.0F);
    const int bad = __syncthreads_or(finite ? 0 : 1);
    if (threadIdx.x > 0) return;
    if (bad != 0) atomicMax(&state->not_finite, 1);
    atomicMax(&state->largest_bits, std::bit_cast<int>(largest));
}

__global__ void __launch_bounds__(kThreads) divide_kernel(float* values, std::int64_t count, float divisor) {
    const std::int64_t i = global_index();
    if (i < count) values[i] /= divisor;
}

/// What power steps find: the quotient of Rayleigh, and whether a step met the zero vector.
struct PowerState {
    double quotient, next_length;
    int stopped;
};

__global__ void __launch_bounds__(kThreads) start_vector_kernel(float* vector, PowerState* state, std::int64_t n) {
    const std::int64_t i = global_index();
    if (i == 0) *state = {0.0, 0.0, 0};
    if (i < n) vector[i] = 1.0F + 0.5F * sinf(static_cast<float>(i % 1024));  // a vector without symmetries
}

/// products[row] = y[row, :] . vector, one warp to a row.
__global__ void __launch_bounds__(kThreads)
    multiply_vector_kernel(double* products, const float* y, const float* vector, std::int64_t n) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    double sum[1] = {0.0};
    for (std::int64_t column = threadIdx.x; row < n && column < n; column += kWarpSize) {
        sum[0] = fma(static_cast<double>(y[row * n + column]), static_cast<double>(vector[column]), sum[0]);
    }
    combine_over_lanes(sum, Plus{});
    if (threadIdx.x == 0 && row < n) products[row] = sum[0];
}

/// The quotient of this step, and the next vector. One block.
__global__ void __launch_bounds__(kSumThreads)
    next_vector_kernel(float* vector, PowerState* state, const double* products, std::int64_t n) {
    double sums[3] = {0.0, 0.0, 0.0};  // along the vector; its length and that of the next, squared
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const auto x = static_cast<double>(vector[i]);
        const double product = products[i];
        sums[0] = fma(x, product, sums[0]);
        sums[1] = fma(x, x, sums[1]);
        sums[2] = fma(product, product, sums[2]);
    }
    sum_over_row(sums);
    const bool stops = state->stopped != 0 || sums[1] == 0.0 || sums[2] == 0.0;
    __syncthreads();  // all have read the state
    if (stops) {
        if (threadIdx.x == 0) state->stopped = 1;
        return;
    }
    if (threadIdx.x == 0) state->quotient = sums[0] / sums[1];
    const double length = sqrt(sums[2]);
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        vector[i] = static_cast<float>(static_cast<double>(static_cast<float>(products[i])) / length);
    }
}

__global__ void __launch_bounds__(kThreads) add_ridge_kernel(float* y, std::int64_t n, float ridge) {
    const std::int64_t i = global_index();
    if (i < n) y[i * (n + 1)] += ridge;
}

__global__ void __launch_bounds__(kSumThreads) sum_of_squares_kernel(double* sum, SquareSums squares) {
    double total[1] = {0.0};
    for (std::int64_t row = threadIdx.x; row < squares.rows; row += blockDim.x) total[0] += squares.row(row);
    sum_over_row(total);
    if (threadIdx.x == 0) *sum = total[0];
}

/// y *= z_of_y; x = z_of_x I
__global__ void __launch_bounds__(kThreads)
    start_kernel(float* y, float* x, std::int64_t n, float z_of_y, float z_of_x) {
    const std::int64_t i = global_index();
    if (i >= n * n) return;
    const std::int64_t row = quotient(i, n);
    y[i] *= z_of_y;
    x[i] = row == i - row * n ? z_of_x : 0.0F;
}

/// Raises deviation_bits to those of max|Y - I|; NaN's are above all.
__global__ void __launch_bounds__(kThreads) error_kernel(SolverState* state, const float* y, std::int64_t n) {
    MFSDP_SHARED(int, largest);
    const std::int64_t i = global_index();
    int bits = 0;
    if (i < n * n) {
        const std::int64_t row = quotient(i, n);
        bits = std::bit_cast<int>(fabsf(y[i] - (row == i - row * n ? 1.0F : 0.0F)));
    }
    if (threadIdx.x == 0) largest = 0;
    __syncthreads();
    atomicMax(&largest, bits);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(&state->deviation_bits, largest);
}

/// step = diagonal I - factor y
__global__ void __launch_bounds__(kThreads)
    step_kernel(float* step, const float* y, std::int64_t n, float diagonal, float factor) {
    const std::int64_t i = global_index();
    if (i >= n * n) return;
    const std::int64_t row = quotient(i, n);
    step[i] = (row == i - row * n ? diagonal : 0.0F) - factor * y[i];
}

__global__ void __launch_bounds__(kThreads)
    write_root_kernel(float* root, const float* x, std::int64_t count, float back) {
    const std::int64_t i = global_index();
    if (i < count) root[i] = back * x[i];
}

__global__ void write_status_kernel(std::int64_t* status, TaskStatus value) {
    *status = static_cast<std::int64_t>(value);
}

/// The coupled iteration of one root. All matrices are symmetric and commute, so every product is symmetric. The host
/// waits for the error of every round.
class NewtonIteration {
  public:
    NewtonIteration(const Context& context, const NewtonRoot& operation)
        : context_(context), operation_(operation), n_(operation.factor.rows()), count_(n_ * n_) {
        const auto matrix = [&](std::int64_t index) {
            return operation.workspace.slice(0, index * count_, count_).reshape({n_, n_});
        };
        x_ = matrix(0);
        previous_x_ = matrix(1);
        y_ = matrix(2);
        step_ = matrix(3);
        power_ = matrix(4);
        spare_ = matrix(5);
        vector_ = data<float>(operation.workspace) + 6 * count_;
    }

    [[nodiscard]] TaskStatus run() {
        const TaskStatus status = scale();
        if (status != TaskStatus::done) return status;
        start();
        const double error = iterate();
        if (!(error <= kNewtonUseless)) return TaskStatus::failed;
        const auto back = static_cast<float>(std::pow(largest_ * operation_.factor_scale, -1.0 / p()));
        if (!std::isfinite(back)) return TaskStatus::failed;
        launch_kernel(write_root_kernel, grid_of(count_), context_.stream, data<float>(operation_.root),
                      data<const float>(x_), count_, back);
        return TaskStatus::done;
    }

  private:
    [[nodiscard]] double p() const { return static_cast<double>(operation_.order); }

    void multiply(const Tensor& out, const Tensor& a, const Tensor& b) const {
        cuda::run(context_, SymmetricProduct{.out = out, .a = a, .b = b});
    }

    /// What a kernel left in scratch; the host waits for it.
    template <class T>
    [[nodiscard]] T fetch(const T* address) const {
        T value{};
        context_.host_copies.to_host(reinterpret_cast<std::byte*>(&value), reinterpret_cast<const std::byte*>(address),
                                     sizeof value);
        MFSDP_CUDA(cudaStreamSynchronize(context_.stream));
        return value;
    }

    [[nodiscard]] SolverState* new_state() const {
        auto* const state = reinterpret_cast<SolverState*>(context_.scratch.reserve(sizeof(SolverState)));
        reset_state(context_, state);
        return state;
    }

    /// y = A / max|A|, symmetrised.
    [[nodiscard]] TaskStatus scale() {
        auto* const state = new_state();
        launch_kernel(symmetrise_kernel, grid_of(count_), context_.stream, data<float>(y_), state,
                      data<const float>(operation_.factor), n_);
        const SolverState found = fetch(state);
        if (found.not_finite != 0) return TaskStatus::not_finite;
        if (found.largest_bits == 0) return TaskStatus::zero;
        largest_ = static_cast<double>(found.largest());
        launch_kernel(divide_kernel, grid_of(count_), context_.stream, data<float>(y_), count_, found.largest());
        return TaskStatus::done;
    }

    /// The largest eigenvalue of y: the quotient of Rayleigh after power steps.
    [[nodiscard]] double largest_eigenvalue() const {
        constexpr unsigned kRowsOfBlock = kThreads / kWarpSize;
        ScratchPlan plan;
        const auto state_piece = plan.add<PowerState>(1);
        const auto products_piece = plan.add<double>(n_);
        std::byte* const base = context_.scratch.reserve(plan.bytes());
        PowerState* const state = state_piece.at(base);
        double* const products = products_piece.at(base);
        const Grid rows{static_cast<unsigned>(pieces_of(n_, kRowsOfBlock)), dim3(kWarpSize, kRowsOfBlock)};
        const Grid one{1, static_cast<unsigned>(threads_for(n_, kSumThreads))};
        launch_kernel(start_vector_kernel, grid_of(n_), context_.stream, vector_, state, n_);
        for (int round = 0; round < kPowerSteps; ++round) {
            launch_kernel(multiply_vector_kernel, rows, context_.stream, products, data<const float>(y_), vector_, n_);
            launch_kernel(next_vector_kernel, one, context_.stream, vector_, state, products, n_);
        }
        return fetch(state).quotient;
    }

    [[nodiscard]] double norm_of_y() const {
        const SquareSums squares = sum_squares<float>(context_, y_);
        // The sum takes the place of the vector, which is no longer needed; 8 bytes fit where 2 n floats did.
        auto* const sum = reinterpret_cast<double*>(vector_);
        launch_kernel(sum_of_squares_kernel, Grid{1, static_cast<unsigned>(threads_for(n_, kSumThreads))},
                      context_.stream, sum, squares);
        return std::sqrt(fetch(sum));
    }

    /// A += e I; z = (p + 1) / (2 |A|); X = z^(1/p) I; Y = z A.
    void start() {
        const double unit = operation_.relative ? 1.0 : 1.0 / (largest_ * operation_.factor_scale);
        const double ridge = operation_.epsilon * (operation_.relative ? largest_eigenvalue() : unit);
        launch_kernel(add_ridge_kernel, grid_of(n_), context_.stream, data<float>(y_), n_, static_cast<float>(ridge));
        const double z = (p() + 1.0) / (2.0 * norm_of_y());
        launch_kernel(start_kernel, grid_of(count_), context_.stream, data<float>(y_), data<float>(x_), n_,
                      static_cast<float>(z), static_cast<float>(std::pow(z, 1.0 / p())));
    }

    /// max|Y - I|; infinity where Y is not finite.
    [[nodiscard]] double error() const {
        auto* const state = new_state();
        launch_kernel(error_kernel, grid_of(count_), context_.stream, state, data<const float>(y_), n_);
        const auto largest = std::bit_cast<float>(fetch(state).deviation_bits);
        return std::isfinite(largest) ? static_cast<double>(largest) : HUGE_VAL;
    }

    /// Until the error is small or grows; gives the error of the X that is kept.
    [[nodiscard]] double iterate() {
        double last = error();
        for (int round = 0; round < kNewtonRounds && last >= kNewtonConverged; ++round) {
            one_round();
            const double now = error();
            if (!(now <= kNewtonGrowth * last)) {
                std::swap(x_, previous_x_);
                return last;
            }
            last = now;
        }
        return last;
    }

    /// N = ((p + 1) I - Y) / p; X = X N; Y = N^p Y.
    void one_round() {
        const auto diagonal = static_cast<float>((p() + 1.0) / p()), factor = static_cast<float>(1.0 / p());
        launch_kernel(step_kernel, grid_of(count_), context_.stream, data<float>(step_), data<const float>(y_), n_,
                      diagonal, factor);
        multiply(previous_x_, x_, step_);
        std::swap(x_, previous_x_);
        Tensor power = step_, target = power_;
        for (std::int64_t reached = 1; reached < operation_.order; reached *= 2) {
            multiply(target, power, power);
            std::swap(power, target);
        }
        multiply(spare_, power, y_);
        std::swap(spare_, y_);
    }

    const Context& context_;
    const NewtonRoot& operation_;
    std::int64_t n_, count_;
    Tensor x_, previous_x_, y_, step_, power_, spare_;
    float* vector_;
    double largest_ = 0.0;
};

}  // namespace

void run(const Context& context, const NewtonRoot& operation) {
    const TaskStatus status = NewtonIteration(context, operation).run();
    launch_kernel(write_status_kernel, Grid{1, 1}, context.stream, data<std::int64_t>(operation.status), status);
}

}  // namespace mfsdp::device::cuda
