#pragma once

#include "mfsdp/device/tensor.h"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace mfsdp::device {

/// Checks of an operation's arguments, used by the `check` functions. Each throws InternalError with a sentence that
/// names the operation, the argument, what it is and what was wanted.

/// One argument, as the sentences name it: "layer_norm_forward: mean".
struct Argument {
    std::string_view operation;
    std::string_view name;
    const Tensor& tensor;
};

/// Types of value tensors (weights in use, activations, their gradients) and of parameter gradients.
inline constexpr std::array kValueTypes{DType::float32, DType::bfloat16};
/// Types of the operations that also serve iterates of optimizers.
inline constexpr std::array kFloatTypes{DType::float32, DType::bfloat16, DType::float16};

/// `tensor` has one of these types.
void require_type(const Argument& argument, std::span<const DType> types);
/// `tensor` has the type of `model`.
void require_same_type(const Argument& argument, const Argument& model);
/// `tensor` has this type and shape, and memory unless it is empty.
void require_shape(const Argument& argument, DType dtype, std::initializer_list<std::int64_t> shape);
/// `tensor` has this type and number of dimensions, and memory unless it is empty.
void require_rank(const Argument& argument, DType dtype, int rank);
/// Elements lie one after another without gaps.
void require_dense(const Argument& argument);
/// Elements of the last dimension lie one after another; the other dimensions may have any stride.
void require_contiguous_columns(const Argument& argument);
/// The two do not start at the same address (an operation that must not work in place).
void require_apart(const Argument& argument, const Argument& other);

}  // namespace mfsdp::device
