#pragma once

#include <cstdint>
#include <string_view>

namespace mfsdp::device {

/// Element type of a tensor. bfloat16 and float16 are storage types: arithmetic is float32.
enum class DType : std::uint8_t { float32, float64, bfloat16, float16, int32, int64 };

[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
    switch (dtype) {
        case DType::bfloat16:
        case DType::float16:
            return 2;
        case DType::float32:
        case DType::int32:
            return 4;
        case DType::float64:
        case DType::int64:
            return 8;
    }
    return 0;
}

[[nodiscard]] constexpr std::string_view name(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return "float32";
        case DType::float64:
            return "float64";
        case DType::bfloat16:
            return "bfloat16";
        case DType::float16:
            return "float16";
        case DType::int32:
            return "int32";
        case DType::int64:
            return "int64";
    }
    return "?";
}

}  // namespace mfsdp::device
