#pragma once

#include "model/layers/activation.h"

#include <cstdint>
#include <span>

namespace mfsdp::model {

/// Hands out a unit's tensors in the order of UnitSpec::parameters; layers take theirs in their constructors.
class ParameterCursor {
  public:
    std::size_t next() { return next_++; }
    [[nodiscard]] std::size_t used() const { return next_; }

  private:
    std::size_t next_ = 0;
};

/// Weights or gradients of a unit. A gradient that is an undefined tensor belongs to a frozen parameter.
using UnitTensors = std::span<const device::Tensor>;

/// y = x W^T + b with W [out, in]. The matrices in and out of it may have strided rows.
class Linear {
  public:
    Linear(ParameterCursor& cursor, bool bias)
        : weight_(cursor.next()), bias_(bias ? cursor.next() : 0), has_bias_(bias) {}

    /// Writes GELU of y too, where `gelu` is defined.
    void forward(const LayerContext& context, UnitTensors weights, const device::Tensor& out, const device::Tensor& in,
                 const device::Tensor& gelu = {}) const;
    /// Writes the gradients of weight and bias, but of a frozen one.
    void backward_parameters(const LayerContext& context, UnitTensors gradients, const device::Tensor& grad_out,
                             const device::Tensor& in) const;
    /// Writes the gradient of the input, or adds to it.
    void backward_input(const LayerContext& context, UnitTensors weights, const device::Tensor& grad_in,
                        const device::Tensor& grad_out, bool accumulate = false) const;

  private:
    std::size_t weight_;
    std::size_t bias_;
    bool has_bias_;
};

}  // namespace mfsdp::model
