#include "device/cpu/element.h"
#include "device/cpu/kernels.h"
#include "device/cpu/mix.h"
#include "device/cpu/pieces.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace mfsdp::device::cpu {

namespace {

template <class T>
void fill(const Context& context, const Tensor& tensor, T value) {
    T* const out = context.data<T>(tensor);
    for_pieces(context.threads, tensor.count(), kPieceElements,
               [=](std::int64_t begin, std::int64_t size) { std::fill_n(out + begin, size, value); });
}

void copy_bytes(ThreadPool& threads, void* out, const void* in, std::int64_t bytes) {
    auto* const target = static_cast<std::byte*>(out);
    const auto* const source = static_cast<const std::byte*>(in);
    for_pieces(threads, bytes, 4 * kPieceElements, [=](std::int64_t begin, std::int64_t size) {
        std::memcpy(target + begin, source + begin, static_cast<std::size_t>(size));
    });
}

/// Distance in elements from the tensor's address to the beginning of a row, rows counted over all leading dimensions.
std::int64_t row_offset(const Tensor& tensor, std::int64_t row) {
    std::int64_t offset = 0;
    for (int axis = tensor.rank - 2; axis >= 0; --axis) {
        const auto index = static_cast<std::size_t>(axis);
        offset += row % tensor.shape[index] * tensor.strides[index];
        row /= tensor.shape[index];
    }
    return offset;
}

/// Calls body(out offset, in offset, size), in elements, for pieces of all rows of two tensors of one shape; dense
/// tensors are one row.
template <class Body>
void for_pieces_of_rows(ThreadPool& threads, const Tensor& out, const Tensor& in, const Body& body) {
    if (out.is_dense() && in.is_dense()) {
        for_pieces(threads, out.count(), kPieceElements,
                   [&](std::int64_t begin, std::int64_t size) { body(begin, begin, size); });
        return;
    }
    for_row_pieces(threads, out.rows(), out.columns(), [&](std::int64_t row, std::int64_t begin, std::int64_t size) {
        body(row_offset(out, row) + begin, row_offset(in, row) + begin, size);
    });
}

template <class To, class From>
void convert(const Context& context, const Copy& operation) {
    To* const out = context.data<To>(operation.out);
    const From* const in = context.data<const From>(operation.in);
    for_pieces_of_rows(context.threads, operation.out, operation.in,
                       [=](std::int64_t to, std::int64_t from, std::int64_t size) {
                           for_vectors(size, [=](std::int64_t i, std::int64_t lanes) {
                               store_lanes(out + to + i, load_lanes(in + from + i, lanes), lanes);
                           });
                       });
}

/// out[i] = value(i, lanes) for all vectors of a dense tensor.
template <class T, class Value>
void store_elements(const Context& context, const Tensor& tensor, const Value& value) {
    T* const out = context.data<T>(tensor);
    for_pieces(context.threads, tensor.count(), kPieceElements, [&](std::int64_t begin, std::int64_t size) {
        for_vectors(size, [&](std::int64_t i, std::int64_t lanes) {
            store_lanes(out + begin + i, value(begin + i, lanes), lanes);
        });
    });
}

/// Calls body with the element types of the three tensors, each float32, bfloat16 or float16.
template <class Body>
void with_three_types(const Tensor& out, const Tensor& a, const Tensor& b, const Body& body) {
    with_float_type(out.dtype, [&](auto out_type) {
        with_float_type(a.dtype, [&](auto a_type) {
            with_float_type(b.dtype, [&](auto b_type) { body(out_type, a_type, b_type); });
        });
    });
}

/// The standard normal value of one index. Source: Box and Muller 1958, the cosine half of a pair, so that an index
/// needs nothing of its neighbours.
double normal(std::uint64_t key, std::uint64_t index) {
    constexpr double kUnit = 0x1p-53;
    const std::uint64_t state = key + kMixIncrement * (2 * index);
    const double radius = static_cast<double>((mix(state + kMixIncrement) >> 11) + 1) * kUnit;  // in (0, 1]
    const double turn = static_cast<double>(mix(state + 2 * kMixIncrement) >> 11) * kUnit;      // in [0, 1)
    return std::sqrt(-2.0 * std::log(radius)) * std::cos(2.0 * std::numbers::pi * turn);
}

}  // namespace

void run(const Context& context, const Fill& operation) {
    const double value = operation.value;
    switch (operation.out.dtype) {
        case DType::float32:
            return fill(context, operation.out, static_cast<float>(value));
        case DType::float64:
            return fill(context, operation.out, value);
        case DType::int32:
            return fill(context, operation.out, static_cast<std::int32_t>(value));
        case DType::int64:
            return fill(context, operation.out, static_cast<std::int64_t>(value));
        case DType::bfloat16:
            return fill(context, operation.out, rounded<BFloat16>(static_cast<float>(value)));
        case DType::float16:
            return fill(context, operation.out, rounded<Float16>(static_cast<float>(value)));
    }
}

void run(const Context& context, const Copy& operation) {
    const Tensor &out = operation.out, &in = operation.in;
    if (out.dtype == in.dtype) {
        const std::int64_t width = size_of(out.dtype);
        auto* const target = context.data<std::byte>(out);
        const auto* const source = context.data<const std::byte>(in);
        for_pieces_of_rows(context.threads, out, in, [=](std::int64_t to, std::int64_t from, std::int64_t size) {
            std::memcpy(target + to * width, source + from * width, static_cast<std::size_t>(size * width));
        });
        return;
    }
    with_float_type(out.dtype, [&](auto to) {
        with_float_type(in.dtype, [&](auto from) {
            convert<ElementOf<decltype(to)>, ElementOf<decltype(from)>>(context, operation);
        });
    });
}

void run(const Context& context, const Add& operation) {
    with_three_types(operation.out, operation.a, operation.b, [&](auto out, auto a_type, auto b_type) {
        const auto* const a = context.data<const ElementOf<decltype(a_type)>>(operation.a);
        const auto* const b = context.data<const ElementOf<decltype(b_type)>>(operation.b);
        store_elements<ElementOf<decltype(out)>>(context, operation.out, [=](std::int64_t i, std::int64_t lanes) {
            return load_lanes(a + i, lanes) + load_lanes(b + i, lanes);
        });
    });
}

void run(const Context& context, const ScaledAdd& operation) {
    const Float8 alpha = broadcast(operation.alpha), beta = broadcast(operation.beta);
    const bool has_b = operation.b.defined();
    with_three_types(operation.out, operation.a, has_b ? operation.b : operation.a,
                     [&](auto out, auto a_type, auto b_type) {
                         const auto* const a = context.data<const ElementOf<decltype(a_type)>>(operation.a);
                         const auto* const b = context.data<const ElementOf<decltype(b_type)>>(operation.b);
                         if (has_b) {
                             store_elements<ElementOf<decltype(out)>>(
                                 context, operation.out, [=](std::int64_t i, std::int64_t lanes) {
                                     return fma(alpha, load_lanes(a + i, lanes), beta * load_lanes(b + i, lanes));
                                 });
                         } else {
                             store_elements<ElementOf<decltype(out)>>(
                                 context, operation.out,
                                 [=](std::int64_t i, std::int64_t lanes) { return alpha * load_lanes(a + i, lanes); });
                         }
                     });
}

void run(const Context& context, const CopyFromHost& operation) {
    copy_bytes(context.threads, context.data<std::byte>(operation.out), operation.source, operation.out.bytes());
}

void run(const Context& context, const CopyToHost& operation) {
    copy_bytes(context.threads, operation.target, context.data<const std::byte>(operation.in), operation.in.bytes());
}

void run(const Context& context, const FillNormal& operation) {
    // A normal costs as much as a hundred elements of the other operations.
    constexpr std::int64_t kPiece = 1024;
    const auto first = static_cast<std::uint64_t>(operation.first_index);
    const std::uint64_t key = mix(operation.key);  // neighbouring keys must not give shifted sequences
    const double deviation = operation.standard_deviation;
    with_value_type(operation.out.dtype, [&](auto type) {
        using T = ElementOf<decltype(type)>;
        T* const out = context.data<T>(operation.out);
        for_pieces(context.threads, operation.out.count(), kPiece, [=](std::int64_t begin, std::int64_t size) {
            for (std::int64_t i = begin; i < begin + size; ++i) {
                out[i] = rounded<T>(static_cast<float>(deviation * normal(key, first + static_cast<std::uint64_t>(i))));
            }
        });
    });
}

}  // namespace mfsdp::device::cpu
