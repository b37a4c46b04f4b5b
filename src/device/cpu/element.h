#pragma once

#include "mfsdp/base/error.h"
#include "mfsdp/device/dtype.h"
#include "mfsdp/device/half.h"

#include "device/cpu/float8.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace mfsdp::device::cpu {

// Eight elements of 16 bits to and from Float8: loads widen, stores round to nearest even. The same names as for floats
// (float8.h), so that a kernel is one template over its element types.

/// Eight elements of 16 bits.
using Half8 = std::uint16_t __attribute__((vector_size(16)));

[[nodiscard]] inline Half8 load_halves(const void* source) {
    Half8 result;
    std::memcpy(&result, source, sizeof result);
    return result;
}

/// The first `lanes` (0 to 8) elements of source, zeros in the other lanes.
[[nodiscard]] inline Half8 load_first_halves(const void* source, std::int64_t lanes) {
    Half8 result{};
    std::memcpy(&result, source, static_cast<std::size_t>(lanes) * sizeof(std::uint16_t));
    return result;
}

// gcc 12 would make two and three instructions of each of these where the processor has one.
[[nodiscard]] inline Word8 zero_extended(Half8 halves) {
#ifdef __AVX2__
    return Word8(_mm256_cvtepu16_epi32(__m128i(halves)));
#else
    return __builtin_convertvector(halves, Word8);
#endif
}

/// The low halves of eight words whose high halves are zero.
[[nodiscard]] inline Half8 low_halves(Word8 words) {
#ifdef __AVX2__
    const __m256i packed = _mm256_packus_epi32(__m256i(words), __m256i(words));
    return Half8(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0b1000)));
#else
    return __builtin_convertvector(words, Half8);
#endif
}

[[nodiscard]] inline Float8 widen(Half8 halves, BFloat16 /*type*/) {
    return reinterpret_cast<Float8>(zero_extended(halves) << 16);
}

[[nodiscard]] inline Half8 narrow(Float8 value, BFloat16 /*type*/) {
    const Word8 bits = reinterpret_cast<Word8>(value);
    const Word8 number = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    // NOLINTNEXTLINE(misc-redundant-expression): a NaN is what differs from itself.
    return low_halves(value != value ? (bits >> 16 | 0x40U) : number);
}

[[nodiscard]] inline Float8 widen(Half8 halves, Float16 /*type*/) {
#ifdef __F16C__
    return Float8(_mm256_cvtph_ps(__m128i(halves)));
#else
    Float8 result;
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = widened(Float16{halves[lane]});
    return result;
#endif
}

[[nodiscard]] inline Half8 narrow(Float8 value, Float16 /*type*/) {
#ifdef __F16C__
    return Half8(_mm256_cvtps_ph(__m256(value), _MM_FROUND_TO_NEAREST_INT));
#else
    Half8 result;
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = rounded<Float16>(value[lane]).bits;
    return result;
#endif
}

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

template <class T>
requires kIsHalf<T>
[[nodiscard]] inline Float8 load(const T* source) { return widen(load_halves(source), T{}); }

template <class T>
requires kIsHalf<T>
inline void store(T* target, Float8 value) {
    const Half8 halves = narrow(value, T{});
    std::memcpy(static_cast<void*>(target), &halves, sizeof halves);
}

template <class T>
requires kIsHalf<T>
[[nodiscard]] inline Float8 load_lanes(const T* source, std::int64_t lanes, float fill = 0.0F) {
    if (lanes == kLanes) return load(source);
    const Float8 value = widen(load_first_halves(source, lanes), T{});
    return fill == 0.0F ? value : keep_first(value, lanes, fill);
}

template <class T>
requires kIsHalf<T>
inline void store_lanes(T* target, Float8 value, std::int64_t lanes) {
    const Half8 halves = narrow(value, T{});
    std::memcpy(static_cast<void*>(target), &halves, static_cast<std::size_t>(lanes) * sizeof(T));
}

/// An element type as an argument: what the functions below hand to a generic lambda.
template <class T>
struct Type {
    using Element = T;
};
template <class Tag>
using ElementOf = typename Tag::Element;

/// Calls body(Type<T>{}) for the element type of a value tensor or parameter gradient: float32 or bfloat16.
template <class Body>
inline void with_value_type(DType dtype, const Body& body) {
    if (dtype == DType::bfloat16) return body(Type<BFloat16>{});
    MFSDP_ASSERT(dtype == DType::float32, "check() lets float32 and bfloat16 pass");
    body(Type<float>{});
}

/// Calls body(Type<T>{}) for float32, bfloat16 or float16.
template <class Body>
inline void with_float_type(DType dtype, const Body& body) {
    if (dtype == DType::float16) return body(Type<Float16>{});
    with_value_type(dtype, body);
}

}  // namespace mfsdp::device::cpu
