#include "mfsdp/device/ops/decomposition.h"
#include "mfsdp/device/ops/symmetric.h"

#include "device/cuda/host_copies.h"
#include "device/cuda/reduce.h"
#include "device/cuda/square_sums.h"
#include "device/cuda/symmetric_solver.h"
#include "device/cuda/vectors.h"
#include "device/ops/newton_iteration.h"

#include <cmath>

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

/// What NewtonIteration asks of a backend. The host waits for every number that is returned.
class NewtonPrimitives {
  public:
    NewtonPrimitives(const Context& context, const NewtonRoot& operation)
        : context_(context),
          operation_(operation),
          n_(operation.factor.rows()),
          count_(n_ * n_),
          vector_(data<float>(operation.workspace) + NewtonPieces(n_).vectors) {}

    [[nodiscard]] ScaledFactor scale(const Tensor& y) const {
        auto* const state = new_state();
        launch_kernel(symmetrise_kernel, grid_of(count_), context_.stream, data<float>(y), state,
                      data<const float>(operation_.factor), n_);
        const SolverState found = fetch(state);
        if (found.not_finite != 0) return {.status = TaskStatus::not_finite};
        if (found.largest_bits == 0) return {.status = TaskStatus::zero};
        launch_kernel(divide_kernel, grid_of(count_), context_.stream, data<float>(y), count_, found.largest());
        return {.largest = found.largest()};
    }

    [[nodiscard]] double largest_eigenvalue(const Tensor& y) const {
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
            launch_kernel(multiply_vector_kernel, rows, context_.stream, products, data<const float>(y), vector_, n_);
            launch_kernel(next_vector_kernel, one, context_.stream, vector_, state, products, n_);
        }
        return fetch(state).quotient;
    }

    void add_ridge(const Tensor& y, float ridge) const {
        launch_kernel(add_ridge_kernel, grid_of(n_), context_.stream, data<float>(y), n_, ridge);
    }

    [[nodiscard]] double norm(const Tensor& y) const {
        const SquareSums squares = sum_squares<float>(context_, y);
        // The sum takes the place of the vector, which is no longer needed; 8 bytes fit where 2 n floats did.
        auto* const sum = reinterpret_cast<double*>(vector_);
        launch_kernel(sum_of_squares_kernel, Grid{1, static_cast<unsigned>(threads_for(n_, kSumThreads))},
                      context_.stream, sum, squares);
        return std::sqrt(fetch(sum));
    }

    void start(const Tensor& y, const Tensor& x, float z_of_y, float z_of_x) const {
        launch_kernel(start_kernel, grid_of(count_), context_.stream, data<float>(y), data<float>(x), n_, z_of_y,
                      z_of_x);
    }

    [[nodiscard]] float error(const Tensor& y) const {
        auto* const state = new_state();
        launch_kernel(error_kernel, grid_of(count_), context_.stream, state, data<const float>(y), n_);
        return std::bit_cast<float>(fetch(state).deviation_bits);
    }

    void write_step(const Tensor& step, const Tensor& y, float diagonal, float factor) const {
        launch_kernel(step_kernel, grid_of(count_), context_.stream, data<float>(step), data<const float>(y), n_,
                      diagonal, factor);
    }

    void multiply(const Tensor& out, const Tensor& a, const Tensor& b) const {
        cuda::run(context_, SymmetricProduct{.out = out, .a = a, .b = b});
    }

    void write_root(const Tensor& x, float back) const {
        launch_kernel(write_root_kernel, grid_of(count_), context_.stream, data<float>(operation_.root),
                      data<const float>(x), count_, back);
    }

  private:
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

    const Context& context_;
    const NewtonRoot& operation_;
    std::int64_t n_, count_;
    float* vector_;
};

}  // namespace

void run(const Context& context, const NewtonRoot& operation) {
    const NewtonPrimitives primitives(context, operation);
    const TaskStatus status = NewtonIteration(operation, primitives).run();
    launch_kernel(write_status_kernel, Grid{1, 1}, context.stream, data<std::int64_t>(operation.status), status);
}

}  // namespace mfsdp::device::cuda
