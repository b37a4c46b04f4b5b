#include "device/cpu/column_blocks.h"
#include "device/cpu/element.h"
#include "device/cpu/float8.h"
#include "device/cpu/kernels.h"
#include "device/cpu/vector_math.h"

#include <algorithm>

namespace mfsdp::device::cpu {

namespace {

constexpr std::int64_t kElementsPerPiece = 8192;

/// Calls body(offset, lanes) for all elements of a dense tensor, in pieces spread over the threads.
template <class Body>
void for_elements(const Context& context, std::int64_t count, const Body& body) {
    context.threads.parallel_for((count + kElementsPerPiece - 1) / kElementsPerPiece, [&](std::int64_t piece) {
        const std::int64_t begin = piece * kElementsPerPiece;
        for_vectors(std::min(count - begin, kElementsPerPiece),
                    [&](std::int64_t i, std::int64_t lanes) { body(begin + i, lanes); });
    });
}

// 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u): the second form does not cancel where the result is small.
constexpr float kTwoRootTwoOverPi = 1.59576912161F;
constexpr float kCubic = 0.044715F;

/// 2u = 2 sqrt(2/pi) (x + kCubic x^3)
Float8 gelu_argument(Float8 x) {
    const Float8 inner = fma(x * x, broadcast(kCubic), broadcast(1.0F));
    return x * broadcast(kTwoRootTwoOverPi) * inner;
}

/// Derivative of x s(2u): s + x s (1 - s) 2u'. Beyond 16 it is 0 or 1 to the last bit, and x^2 must not overflow there.
Float8 gelu_slope(Float8 x) {
    constexpr float kFlat = 16.0F;
    x = x < broadcast(-kFlat) ? broadcast(-kFlat) : x;
    x = x > broadcast(kFlat) ? broadcast(kFlat) : x;
    const Float8 s = sigmoid(gelu_argument(x));
    const Float8 inner_slope = broadcast(kTwoRootTwoOverPi) * fma(x * x, broadcast(3.0F * kCubic), broadcast(1.0F));
    return fma(x * s * (broadcast(1.0F) - s), inner_slope, s);
}

template <class T>
void gelu_forward(const Context& context, const GeluForward& operation) {
    T* const out = context.data<T>(operation.out);
    const T* const in = context.data<const T>(operation.in);
    for_elements(context, operation.in.count(), [=](std::int64_t i, std::int64_t lanes) {
        const Float8 x = load_lanes(in + i, lanes);
        store_lanes(out + i, x * sigmoid(gelu_argument(x)), lanes);
    });
}

template <class T>
void gelu_backward(const Context& context, const GeluBackward& operation) {
    T* const grad_in = context.data<T>(operation.grad_in);
    const T* const grad_out = context.data<const T>(operation.grad_out);
    const T* const in = context.data<const T>(operation.in);
    for_elements(context, operation.in.count(), [=](std::int64_t i, std::int64_t lanes) {
        store_lanes(grad_in + i, load_lanes(grad_out + i, lanes) * gelu_slope(load_lanes(in + i, lanes)), lanes);
    });
}

template <class T>
void swiglu_forward(const Context& context, const SwiGluForward& operation) {
    T* const out = context.data<T>(operation.out);
    const T* const gate = context.data<const T>(operation.gate);
    const T* const up = context.data<const T>(operation.up);
    for_elements(context, operation.gate.count(), [=](std::int64_t i, std::int64_t lanes) {
        const Float8 x = load_lanes(gate + i, lanes);
        store_lanes(out + i, x * sigmoid(x) * load_lanes(up + i, lanes), lanes);
    });
}

template <class T>
void swiglu_backward(const Context& context, const SwiGluBackward& operation) {
    T* const grad_gate = context.data<T>(operation.grad_gate);
    T* const grad_up = context.data<T>(operation.grad_up);
    const T* const grad_out = context.data<const T>(operation.grad_out);
    const T* const gate = context.data<const T>(operation.gate);
    const T* const up = context.data<const T>(operation.up);
    for_elements(context, operation.gate.count(), [=](std::int64_t i, std::int64_t lanes) {
        const Float8 g = load_lanes(grad_out + i, lanes);
        const Float8 x = load_lanes(gate + i, lanes);
        const Float8 s = sigmoid(x);
        const Float8 silu = x * s;
        // silu' = s + x s (1 - s) = s + silu (1 - s)
        const Float8 slope = fma(silu, broadcast(1.0F) - s, s);
        store_lanes(grad_gate + i, g * load_lanes(up + i, lanes) * slope, lanes);
        store_lanes(grad_up + i, g * silu, lanes);
    });
}

}  // namespace

void run(const Context& context, const GeluForward& operation) {
    with_value_type(operation.in.dtype,
                    [&](auto type) { gelu_forward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const GeluBackward& operation) {
    with_value_type(operation.in.dtype,
                    [&](auto type) { gelu_backward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const SwiGluForward& operation) {
    with_value_type(operation.gate.dtype,
                    [&](auto type) { swiglu_forward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const SwiGluBackward& operation) {
    with_value_type(operation.gate.dtype,
                    [&](auto type) { swiglu_backward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const ColumnSum& operation) {
    const std::int64_t stride = operation.in.strides[0];
    with_value_type(operation.in.dtype, [&](auto from) {
        const auto* const in = context.data<const ElementOf<decltype(from)>>(operation.in);
        with_value_type(operation.out.dtype, [&](auto to) {
            ElementOf<decltype(to)>* const totals[1] = {context.data<ElementOf<decltype(to)>>(operation.out)};
            sum_columns(context.threads, operation.in.shape[0], operation.in.shape[1], totals, [=](std::int64_t row) {
                return [values = in + row * stride](std::int64_t column, std::int64_t lanes, Float8* sums) {
                    sums[0] += load_lanes(values + column, lanes);
                };
            });
        });
    });
}

}  // namespace mfsdp::device::cpu
