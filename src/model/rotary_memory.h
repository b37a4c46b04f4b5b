#pragma once

#include "mfsdp/device/device.h"
#include "mfsdp/device/memory.h"
#include "mfsdp/model/model_config.h"

#include "model/layers/attention.h"

namespace mfsdp::model {

/// Owns the rotary tables of a model, or nothing for a family without them.
class RotaryMemory {
  public:
    /// Angles p theta^(-2i/D) for p < sequence_length, computed in double. Waits for the copy to the device.
    RotaryMemory(const ModelConfig& config, std::int64_t sequence_length, device::MemoryLedger& ledger,
                 device::Stream& stream);
    RotaryMemory(const RotaryMemory&) = delete;
    RotaryMemory& operator=(const RotaryMemory&) = delete;

    [[nodiscard]] const RotaryTables& tables() const { return tables_; }

  private:
    device::Buffer memory_;
    RotaryTables tables_;
};

}  // namespace mfsdp::model
