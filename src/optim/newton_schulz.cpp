#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"
#include "mfsdp/optim/muon.h"

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

/// Scratch of one iteration of a batch: two iterates [b, s, l] and two Gram matrices [b, s, s].
struct Scratch {
    device::Tensor iterate, next, gram, polynomial;
};

/// next = a X + (b A + c A A) X with A = X X^T. The scalars ride on the products, so beside the three products there
/// are only two copies.
void iterate_once(device::Stream& stream, const Scratch& scratch, device::Tensor next, const Row& coefficients) {
    const auto [a, b, c] = coefficients;
    device::launch(
        stream, device::Matmul{.out = scratch.gram, .a = scratch.iterate, .b = scratch.iterate, .transpose_b = true});
    device::launch(stream, device::Copy{.out = scratch.polynomial, .in = scratch.gram});
    device::launch(stream, device::Matmul{.out = scratch.polynomial,
                                          .a = scratch.gram,
                                          .b = scratch.gram,
                                          .alpha = static_cast<float>(c),
                                          .beta = static_cast<float>(b)});
    device::launch(stream, device::Copy{.out = next, .in = scratch.iterate});
    device::launch(
        stream,
        device::Matmul{.out = next, .a = scratch.polynomial, .b = scratch.iterate, .beta = static_cast<float>(a)});
}

/// Matrix `index` of a batch.
device::Tensor matrix(const device::Tensor& batch, std::int64_t index) {
    device::Tensor result = batch.slice(0, index, 1);
    result.rank = 2;
    for (std::size_t axis = 0; axis < 2; ++axis) {
        result.shape[axis] = batch.shape[axis + 1];
        result.strides[axis] = batch.strides[axis + 1];
    }
    return result;
}

/// A matrix as a batch of one.
device::Tensor batched(const device::Tensor& tensor) {
    return tensor.rank == 3 ? tensor : tensor.split(0, 1, tensor.rows());
}

/// scratch.iterate = in / |in| in the wide orientation. The norm is that of the wide copy: its order of additions, and
/// so its last bit, is then the same for a matrix and its transpose.
void normalise(device::Stream& stream, const Scratch& scratch, const device::Tensor& norms, const device::Tensor& in,
               bool tall) {
    for (std::int64_t i = 0; i < in.shape[0]; ++i) {
        const device::Tensor source = matrix(in, i), turned = matrix(scratch.next, i), norm = norms.slice(0, i, 1);
        if (tall) device::launch(stream, device::Transpose{.out = turned, .in = source});
        const device::Tensor& wide = tall ? turned : source;
        device::launch(stream, device::FrobeniusNorm{.norm = norm, .in = wide});
        device::launch(stream, device::DivideByNorm{.out = matrix(scratch.iterate, i), .in = wide, .norm = norm});
    }
}

}  // namespace

std::array<double, 3> newton_schulz_coefficients(CoefficientType type, std::int64_t index) {
    MFSDP_ASSERT(index >= 0, "Newton-Schulz steps are counted from 0");
    const std::span<const Row> rows = table(type);
    return rows[static_cast<std::size_t>(std::min(index, static_cast<std::int64_t>(rows.size()) - 1))];
}

void newton_schulz(device::Stream& stream, device::BufferPool& workspace, device::Tensor out, device::Tensor in,
                   CoefficientType type, std::int64_t steps) {
    MFSDP_ASSERT((in.rank == 2 || in.rank == 3) && !in.empty() && same_shape(out, in),
                 "out " + out.describe() + " has the shape of the matrices in " + in.describe());
    MFSDP_ASSERT(steps >= 1, "Newton-Schulz takes at least one step");
    out = batched(out);
    in = batched(in);
    constexpr device::DType kType = device::DType::float32;
    constexpr std::int64_t kBytes = device::size_of(kType);
    const std::int64_t count = in.shape[0];
    const bool tall = in.shape[1] > in.shape[2];
    const std::int64_t s = std::min(in.shape[1], in.shape[2]);
    const std::int64_t l = std::max(in.shape[1], in.shape[2]);
    const device::PooledBuffer norms(workspace, stream, count * device::size_of(device::DType::float64));
    const device::PooledBuffer iterate(workspace, stream, count * s * l * kBytes);
    const device::PooledBuffer next(workspace, stream, count * s * l * kBytes);
    const device::PooledBuffer gram(workspace, stream, count * s * s * kBytes);
    const device::PooledBuffer polynomial(workspace, stream, count * s * s * kBytes);
    Scratch scratch{iterate.view(kType, {count, s, l}), next.view(kType, {count, s, l}),
                    gram.view(kType, {count, s, s}), polynomial.view(kType, {count, s, s})};

    normalise(stream, scratch, norms.view(device::DType::float64, {count}), in, tall);
    for (std::int64_t index = 0; index < steps; ++index) {
        // `in` has been read: a wide result goes straight to its place, even if that is `in`.
        const bool last = index + 1 == steps;
        iterate_once(stream, scratch, last && !tall ? out : scratch.next, newton_schulz_coefficients(type, index));
        std::swap(scratch.iterate, scratch.next);
    }
    for (std::int64_t i = 0; tall && i < count; ++i) {
        device::launch(stream, device::Transpose{.out = matrix(out, i), .in = matrix(scratch.iterate, i)});
    }
}

}  // namespace mfsdp::optim
