#pragma once

// Memory of one row's arguments on a device, with guards around every element that an operation may not write.

#include "mfsdp/device/device.h"
#include "mfsdp/device/memory.h"

#include "device/conformance.h"

#include <cstddef>
#include <vector>

namespace mfsdp::device::conformance {

/// Unused elements between rows, where the row allows them: so many that rows begin anywhere, or that all of them begin
/// where vectors may and end where they may not.
enum class RowGaps { none, odd, aligned };

/// How the arguments lie in memory; results must not depend on it.
struct Placing {
    bool off_by_one = false;  ///< addresses are one element after a multiple of 256 bytes
    RowGaps gaps = RowGaps::none;
};

/// One argument: a host image of its memory and the same memory on the device.
class PlacedArgument {
  public:
    PlacedArgument(Device& device, MemoryLedger& ledger, const ArgumentOfRow& argument, Placing placing,
                   const std::vector<double>& values);

    void send(Stream& stream) const;
    /// Copies the memory back; the stream is synchronised.
    void fetch(Stream& stream);

    [[nodiscard]] const Tensor& tensor() const { return tensor_; }
    /// Elements of the fetched memory, row-major.
    [[nodiscard]] std::vector<double> values() const;
    /// Bytes of the fetched elements, row-major.
    [[nodiscard]] std::vector<std::byte> bits() const;
    /// Whether all bytes of the fetched memory that the operation may not write are as they were sent.
    [[nodiscard]] bool intact() const;

  private:
    [[nodiscard]] Tensor image_tensor() const;
    /// Byte offset of row-major element `index`.
    [[nodiscard]] std::size_t position(std::int64_t index) const;
    /// Calls visit(index of the first element, its byte offset, elements) for every row; its elements are contiguous.
    template <class Visit>
    void visit_rows(Visit visit) const;

    bool written_;
    std::vector<std::byte> sent_, fetched_;
    Buffer buffer_;
    Tensor tensor_;
    std::size_t first_ = 0;  // byte offset of the first element
};

}  // namespace mfsdp::device::conformance
