#include "mfsdp/optim/newton_schulz.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include <algorithm>
#include <span>
#include <utility>

namespace mfsdp::optim {

namespace {

using Row = std::array<double, 3>;

/// A row of Polar Express, used at x / 1.05: as published the polynomials run away just above 1, and a rank-one matrix
/// has its singular value at 1, give or take a rounding.
constexpr Row safe(double a, double b, double c) {
    constexpr double kSafety = 1.05;
    constexpr double kCube = kSafety * kSafety * kSafety;
    return {a / kSafety, b / kCube, c / (kCube * kSafety * kSafety)};
}

constexpr Row kKeller{3.4445, -4.7750, 2.0315};
constexpr Row kNewton{2.0, -1.5, 0.5};

constexpr std::array<Row, 1> kSimpleRows{kKeller};
constexpr std::array<Row, 5> kQuinticRows{{{4.0848, -6.8946, 2.9270},
                                           {3.9505, -6.3029, 2.6377},
                                           {3.7418, -5.5913, 2.3037},
                                           {2.8769, -3.1427, 1.2046},
                                           {2.8366, -3.0525, 1.2012}}};
constexpr std::array<Row, 8> kPolarExpressRows{safe(8.28721201814563, -23.595886519098837, 17.300387312530933),
                                               safe(4.107059111542203, -2.9478499167379106, 0.5448431082926601),
                                               safe(3.9486908534822946, -2.908902115962949, 0.5518191394370137),
                                               safe(3.3184196573706015, -2.488488024314874, 0.51004894012372),
                                               safe(2.300652019954817, -1.6689039845747493, 0.4188073119525673),
                                               safe(1.891301407787398, -1.2679958271945868, 0.37680408948524835),
                                               safe(1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
                                               Row{1.875, -1.25, 0.375}};
constexpr std::array<Row, 10> kDsv4Rows{kKeller, kKeller, kKeller, kKeller, kKeller,
                                        kKeller, kKeller, kKeller, kNewton, kNewton};

std::span<const Row> table(CoefficientType type) {
    switch (type) {
        case CoefficientType::quintic:
            return kQuinticRows;
        case CoefficientType::simple:
            return kSimpleRows;
        case CoefficientType::polar_express:
            return kPolarExpressRows;
        case CoefficientType::dsv4:
            return kDsv4Rows;
    }
    MFSDP_ASSERT(false, "every coefficient type has a table");
    return {};
}

using device::DType;
using device::PooledBuffer;
using device::Tensor;

/// Matrix `index` of a batch.
Tensor matrix(const Tensor& batch, std::int64_t index) {
    Tensor result = batch.slice(0, index, 1);
    result.rank = 2;
    for (std::size_t axis = 0; axis < 2; ++axis) {
        result.shape[axis] = batch.shape[axis + 1];
        result.strides[axis] = batch.strides[axis + 1];
    }
    return result;
}

/// A matrix as a batch of one.
Tensor batched(const Tensor& tensor) { return tensor.rank == 3 ? tensor : tensor.split(0, 1, tensor.rows()); }

struct Extent {
    std::int64_t count, s, l;  // matrices, their smaller and larger side
    bool tall;
};

/// Steps at which the Gram variant multiplies its iterate out and begins anew: rounding in R and Q grows from step to
/// step, and after three it shows (power-law spectra: errors of 28 times and more without).
bool restarts(std::int64_t step) { return step > 1 && step % 3 == 0; }

/// A batch on its way through the iteration.
class Iteration {
  public:
    Iteration(device::Stream& stream, device::BufferPool& workspace, const Tensor& out, const Tensor& in,
              const Tensor& square_sums, const NewtonSchulzOptions& options, bool gram)
        : stream_(stream),
          options_(options),
          extent_{in.shape[0], std::min(in.shape[1], in.shape[2]), std::max(in.shape[1], in.shape[2]),
                  in.shape[1] > in.shape[2]},
          out_(out),
          in_(in),
          square_sums_(square_sums),
          has_sums_(square_sums.defined()) {
        const std::int64_t count = extent_.count, s = extent_.s, l = extent_.l;
        const std::int64_t bytes = device::size_of(options.dtype);
        const auto take = [&](std::size_t index, std::int64_t columns) {
            memory_[index] = PooledBuffer(workspace, stream, count * s * columns * bytes);
            return memory_[index].view(options.dtype, {count, s, columns});
        };
        norm_memory_ = PooledBuffer(workspace, stream, count * device::size_of(DType::float64));
        const std::int64_t sums = device::square_sums_of(l);
        if (!has_sums_) {
            sums_memory_ = PooledBuffer(workspace, stream, count * s * sums * device::size_of(DType::float64));
            square_sums_ = sums_memory_.view(DType::float64, {count, s, sums});
        }
        MFSDP_ASSERT(square_sums_.shape[0] == count && square_sums_.shape[1] == s && square_sums_.shape[2] == sums,
                     "square_sums " + square_sums_.describe() + " are not those of " + in.describe());
        iterate_ = take(0, l);
        next_ = take(1, l);
        gram_ = take(2, s);
        polynomial_ = take(3, s);
        if (gram) {
            accumulated_ = take(4, s);
            spare_ = take(5, s);
        }
        if (extent_.tall && options.dtype != DType::float32) {
            wide_memory_ = PooledBuffer(workspace, stream, count * s * l * device::size_of(DType::float32));
            wide_ = wide_memory_.view(DType::float32, {count, s, l});
        }
    }

    void run_standard() {
        normalise();
        for (std::int64_t step = 1; step <= options_.steps; ++step) {
            const auto [a, b, c] = coefficients(step);
            multiply_symmetric(gram_, iterate_, {}, 1.0, 0.0);
            evaluate(b, c);
            // The scalars ride on the products, so beside the three products there are only two copies.
            const Tensor target = step == options_.steps ? last_target() : next_;
            launch(device::Copy{.out = target, .in = iterate_});
            launch(device::Matmul{.out = target, .a = polynomial_, .b = iterate_, .beta = static_cast<float>(a)});
            std::swap(iterate_, next_);
        }
        finish();
    }

    /// R = X X^T and Q, the product of all polynomials since the last restart, instead of X at every step.
    void run_gram() {
        normalise();
        multiply_symmetric(gram_, iterate_, {}, 1.0, 0.0);
        bool accumulates = false;
        for (std::int64_t step = 1; step <= options_.steps; ++step) {
            if (restarts(step)) {
                launch(device::Matmul{.out = next_, .a = accumulated_, .b = iterate_});
                std::swap(iterate_, next_);
                multiply_symmetric(gram_, iterate_, {}, 1.0, 0.0);
                accumulates = false;
            }
            const auto [a, b, c] = coefficients(step);
            evaluate(b, c);
            for (std::int64_t i = 0; i < extent_.count; ++i) {
                launch(device::AddToDiagonal{.out = matrix(polynomial_, i), .value = static_cast<float>(a)});
            }
            if (accumulates) {
                multiply_symmetric(spare_, polynomial_, accumulated_, 1.0, 0.0);
                std::swap(accumulated_, spare_);
            } else {
                launch(device::Copy{.out = accumulated_, .in = polynomial_});
            }
            accumulates = true;
            if (step == options_.steps || restarts(step + 1)) continue;
            multiply_symmetric(spare_, polynomial_, gram_, 1.0, 0.0);
            multiply_symmetric(gram_, spare_, polynomial_, 1.0, 0.0);
        }
        launch(device::Matmul{.out = last_target(), .a = accumulated_, .b = iterate_});
        finish();
    }

  private:
    template <class Op>
    void launch(const Op& operation) {
        device::launch(stream_, operation);
    }
    void multiply_symmetric(const Tensor& out, const Tensor& a, const Tensor& b, double alpha, double beta) {
        launch(device::SymmetricProduct{
            .out = out, .a = a, .b = b, .alpha = static_cast<float>(alpha), .beta = static_cast<float>(beta)});
    }
    [[nodiscard]] std::array<double, 3> coefficients(std::int64_t step) const {
        return newton_schulz_coefficients(options_.coefficient_type, step - 1);
    }

    /// iterate = in / |in| in the wide orientation.
    void normalise() {
        const Tensor norms = norm_memory_.view(DType::float64, {extent_.count});
        for (std::int64_t i = 0; i < extent_.count; ++i) {
            const Tensor source = matrix(in_, i), sums = matrix(square_sums_, i), norm = norms.slice(0, i, 1);
            if (!has_sums_) {
                launch(device::BlockSquareSums{.square_sums = sums, .in = source, .by_columns = extent_.tall});
            }
            launch(device::NormOfSquareSums{.norm = norm, .square_sums = sums});
            launch(device::DivideByNorm{
                .out = matrix(iterate_, i), .in = source, .norm = norm, .transposed = extent_.tall});
        }
    }

    /// polynomial = b R + c R R
    void evaluate(double b, double c) {
        launch(device::Copy{.out = polynomial_, .in = gram_});
        multiply_symmetric(polynomial_, gram_, {}, c, b);
    }

    /// Where the last product goes. `in` has been read: a wide result goes straight to its place, even if that is `in`.
    [[nodiscard]] Tensor last_target() {
        result_ = !extent_.tall ? out_ : options_.dtype == DType::float32 ? next_ : wide_;
        return result_;
    }
    void finish() {
        for (std::int64_t i = 0; extent_.tall && i < extent_.count; ++i) {
            launch(device::Transpose{.out = matrix(out_, i), .in = matrix(result_, i)});
        }
    }

    device::Stream& stream_;
    NewtonSchulzOptions options_;
    Extent extent_;
    Tensor out_, in_, square_sums_;
    bool has_sums_;
    std::array<PooledBuffer, 6> memory_;
    PooledBuffer norm_memory_, sums_memory_, wide_memory_;
    Tensor iterate_, next_, gram_, polynomial_, accumulated_, spare_;
    Tensor wide_;    // float32: what a tall matrix with 16-bit iterates becomes
    Tensor result_;  // of the last product
};

}  // namespace

std::array<double, 3> newton_schulz_coefficients(CoefficientType type, std::int64_t index) {
    MFSDP_ASSERT(index >= 0, "Newton-Schulz steps are counted from 0");
    const std::span<const Row> rows = table(type);
    return rows[static_cast<std::size_t>(std::min(index, static_cast<std::int64_t>(rows.size()) - 1))];
}

bool uses_gram(const NewtonSchulzOptions& options, std::int64_t rows, std::int64_t columns) {
    if (options.method != NewtonSchulzMethod::automatic) return options.method == NewtonSchulzMethod::gram;
    const std::int64_t s = std::min(rows, columns), l = std::max(rows, columns);
    // Its recurrences lose too much in bfloat16, and float32 is the reference.
    if (options.dtype != DType::float16 || 2 * l < 3 * s) return false;
    NewtonSchulzOptions gram = options, standard = options;
    gram.method = NewtonSchulzMethod::gram;
    standard.method = NewtonSchulzMethod::standard;
    return newton_schulz_flops(gram, rows, columns) < newton_schulz_flops(standard, rows, columns);
}

std::int64_t newton_schulz_flops(const NewtonSchulzOptions& options, std::int64_t rows, std::int64_t columns) {
    const std::int64_t s = std::min(rows, columns), l = std::max(rows, columns);
    const std::int64_t long_product = s * s * l, cube = s * s * s;  // of one triangle; a whole product is twice that
    if (!uses_gram(options, rows, columns)) return options.steps * (3 * long_product + cube);
    std::int64_t flops = 3 * long_product;  // X X^T at the start, Q X at the end
    for (std::int64_t step = 1; step <= options.steps; ++step) {
        if (restarts(step)) flops += 3 * long_product;
        const bool accumulates = step > 1 && !restarts(step);
        const bool goes_on = step < options.steps && !restarts(step + 1);
        flops += cube * (1 + (accumulates ? 1 : 0) + (goes_on ? 2 : 0));
    }
    return flops;
}

void newton_schulz(device::Stream& stream, device::BufferPool& workspace, Tensor out, Tensor in,
                   const NewtonSchulzOptions& options, Tensor square_sums) {
    MFSDP_ASSERT((in.rank == 2 || in.rank == 3) && !in.empty() && same_shape(out, in),
                 "out " + out.describe() + " has the shape of the matrices in " + in.describe());
    MFSDP_ASSERT(options.steps >= 1, "Newton-Schulz takes at least one step");
    const Tensor all = batched(in);
    const bool gram = uses_gram(options, all.shape[1], all.shape[2]);
    if (square_sums.defined()) square_sums = batched(square_sums);
    Iteration iteration(stream, workspace, batched(out), all, square_sums, options, gram);
    if (gram) {
        iteration.run_gram();
    } else {
        iteration.run_standard();
    }
}

}  // namespace mfsdp::optim
