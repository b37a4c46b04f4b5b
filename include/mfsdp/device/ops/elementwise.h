#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <string_view>

namespace mfsdp::device {

/// out[i] = value. Dense, any type; value is converted, for 16 bits through float32.
struct Fill {
    static constexpr std::string_view kName = "fill";
    Tensor out;
    double value = 0.0;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out = in, same shape, rows of either may be strided; not aliased. The types are the same, or both are of float32,
/// bfloat16 and float16: then values are widened exactly and rounded once.
struct Copy {
    static constexpr std::string_view kName = "copy";
    Tensor out, in;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out = a + b, same shape, dense; each float32, bfloat16 or float16, the sum in float32. out may be either of them if
/// it has its type.
struct Add {
    static constexpr std::string_view kName = "add";
    Tensor out, a, b;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out = alpha * a + beta * b, dense, types as in Add; in float32 beta * b is rounded once, the sum is
/// fma(alpha, a, beta * b). b may be undefined (then out = alpha * a). out may be either of them if it has its type.
struct ScaledAdd {
    static constexpr std::string_view kName = "scaled_add";
    Tensor out, a, b;
    float alpha = 1.0F;
    float beta = 0.0F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out [n, m] = in [m, n] transposed, both float32, bfloat16 or float16; rows may be strided; not aliased.
struct Transpose {
    static constexpr std::string_view kName = "transpose";
    Tensor out, in;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// Blocks the stream, not the host: copies host memory to the device. `source` must stay valid until the stream has
/// passed this point. out is dense.
struct CopyFromHost {
    static constexpr std::string_view kName = "copy_from_host";
    Tensor out;
    const void* source = nullptr;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// Copies device memory to the host; `target` may be read after the stream is synchronised. in is dense.
struct CopyToHost {
    static constexpr std::string_view kName = "copy_to_host";
    void* target = nullptr;
    Tensor in;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out[i] = standard deviation * z(key, first_index + i), z standard normal from a counter-based generator: element i
/// of a parameter has the same bits however the parameter is cut. key is made from (seed, parameter name).
struct FillNormal {
    static constexpr std::string_view kName = "fill_normal";
    Tensor out;  ///< float32 or bfloat16 (the float32 value rounded), dense
    std::uint64_t key = 0;
    std::int64_t first_index = 0;
    double standard_deviation = 1.0;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
