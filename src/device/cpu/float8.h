#pragma once

#include <cstdint>
#include <cstring>
#ifdef __FMA__
#include <immintrin.h>
#endif

namespace mfsdp::device::cpu {

/// Eight floats on which one operation acts at once. A lane has the bits that the same operation would give on one
/// float, so a result never depends on the lane or on how a row was cut into vectors; kernels take the last,
/// incomplete vector of a row through the same code (`load_first`, `store_first`). Without 256-bit instructions the
/// compiler lowers the same operations to what the processor has.
using Float8 = float __attribute__((vector_size(32)));
/// Eight unsigned integers, and what a comparison of two Float8 gives.
using Word8 = std::uint32_t __attribute__((vector_size(32)));
using Mask8 = std::int32_t __attribute__((vector_size(32)));

inline constexpr std::int64_t kLanes = 8;

[[nodiscard]] inline Float8 broadcast(float x) { return Float8{x, x, x, x, x, x, x, x}; }

[[nodiscard]] inline Float8 load(const float* source) {
    Float8 result;
    std::memcpy(&result, source, sizeof result);
    return result;
}

inline void store(float* target, Float8 value) { std::memcpy(target, &value, sizeof value); }

/// The first `lanes` (0 to 8) floats of source, `fill` in the other lanes.
[[nodiscard]] inline Float8 load_first(const float* source, std::int64_t lanes, float fill = 0.0F) {
    Float8 result = broadcast(fill);
    std::memcpy(&result, source, static_cast<std::size_t>(lanes) * sizeof(float));
    return result;
}

inline void store_first(float* target, Float8 value, std::int64_t lanes) {
    std::memcpy(target, &value, static_cast<std::size_t>(lanes) * sizeof(float));
}

/// value with the lanes from `lanes` on replaced by `fill`.
[[nodiscard]] inline Float8 keep_first(Float8 value, std::int64_t lanes, float fill = 0.0F) {
    float parts[kLanes];
    store(parts, value);
    return load_first(parts, lanes, fill);
}

/// a * b + c with one rounding.
[[nodiscard]] inline Float8 fma(Float8 a, Float8 b, Float8 c) {
#ifdef __FMA__
    // The loop below, in one instruction; gcc 12 does not find it by itself once the loop is inlined among others.
    return Float8(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
#else
    Float8 result;
    for (int lane = 0; lane < kLanes; ++lane) result[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
    return result;
#endif
}

/// The larger of each pair; b where a is NaN, so a running maximum in b passes NaN over.
[[nodiscard]] inline Float8 max(Float8 a, Float8 b) { return a > b ? a : b; }

/// The eight lanes added as a tree whose shape never changes.
[[nodiscard]] inline float sum_lanes(Float8 v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

[[nodiscard]] inline float max_lanes(Float8 v) {
    float result = v[0];
    for (int lane = 1; lane < kLanes; ++lane) result = v[lane] > result ? v[lane] : result;
    return result;
}

/// Sum over [0, count) of the vectors that `term(offset, lanes)` gives for elements [offset, offset + lanes); lanes is
/// 8 except at the end, where term must give 0 in the lanes that are left over. Four partial sums, then a tree: the
/// order depends on count alone.
template <class Term>
[[nodiscard]] inline float sum_vectors(std::int64_t count, const Term& term) {
    Float8 first{}, second{}, third{}, fourth{};
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
        first += term(i, kLanes);
        second += term(i + kLanes, kLanes);
        third += term(i + 2 * kLanes, kLanes);
        fourth += term(i + 3 * kLanes, kLanes);
    }
    for (; i + kLanes <= count; i += kLanes) first += term(i, kLanes);
    if (i < count) second += term(i, count - i);
    return sum_lanes((first + second) + (third + fourth));
}

/// Calls body(offset, lanes) for consecutive pieces of [0, count): 8 lanes each, then one of what is left.
template <class Body>
inline void for_vectors(std::int64_t count, const Body& body) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) body(i, kLanes);
    if (i < count) body(i, count - i);
}

/// load for a full vector, load_first for the last one; `lanes` is a constant in the loops above.
[[nodiscard]] inline Float8 load_lanes(const float* source, std::int64_t lanes, float fill = 0.0F) {
    return lanes == kLanes ? load(source) : load_first(source, lanes, fill);
}

inline void store_lanes(float* target, Float8 value, std::int64_t lanes) {
    if (lanes == kLanes) {
        store(target, value);
    } else {
        store_first(target, value, lanes);
    }
}

}  // namespace mfsdp::device::cpu
