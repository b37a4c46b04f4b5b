#pragma once

#include "mfsdp/device/buffer_pool.h"

#include <cstdint>
#include <initializer_list>
#include <utility>

namespace mfsdp::model {

/// What every layer needs in order to issue its work for one micro-batch.
struct LayerContext {
    device::Stream& stream;
    device::BufferPool& activations;
    std::int64_t batch_size = 0;
    std::int64_t sequence_length = 0;
    device::DType compute_type = device::DType::float32;  ///< of weights and activations
    device::Tensor max_logits{};                          ///< [H] of this block, see MicroBatch; may be undefined

    [[nodiscard]] std::int64_t tokens() const { return batch_size * sequence_length; }
};

/// A dense tensor of one micro-batch together with the pool memory behind it. The records that live from a unit's
/// forward to its backward are made of these, and so are temporaries; the end of life is a stream-ordered release.
class Activation {
  public:
    Activation() = default;
    /// Of the compute type.
    Activation(const LayerContext& context, std::initializer_list<std::int64_t> shape)
        : Activation(context, shape, context.compute_type) {}
    Activation(const LayerContext& context, std::initializer_list<std::int64_t> shape, device::DType dtype)
        : tensor_(device::Tensor::dense(nullptr, dtype, shape)) {
        memory_ = device::PooledBuffer(context.activations, context.stream, tensor_.bytes());
        tensor_.data = memory_.data();
    }
    Activation(Activation&& other) noexcept
        : memory_(std::move(other.memory_)), tensor_(std::exchange(other.tensor_, {})) {}
    Activation& operator=(Activation&& other) noexcept {
        memory_ = std::move(other.memory_);
        tensor_ = std::exchange(other.tensor_, {});
        return *this;
    }
    ~Activation() = default;

    [[nodiscard]] const device::Tensor& tensor() const { return tensor_; }
    /// Gives the memory back behind everything issued so far.
    void release() noexcept {
        memory_.reset();
        tensor_ = {};
    }

  private:
    device::PooledBuffer memory_;
    device::Tensor tensor_;
};

}  // namespace mfsdp::model
