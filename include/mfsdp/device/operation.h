#pragma once

#include <cstdint>

namespace mfsdp::device {

class Stream;

/// What an operation costs: floating-point operations (a multiply-add is two) and bytes read plus written.
struct Cost {
    std::int64_t flops = 0;
    std::int64_t bytes = 0;
};

/// An operation is a plain struct of tensors and scalars with
///   static constexpr std::string_view kName;
///   void check() const;   // shapes and types, InternalError with the tensor's description
///   Cost cost() const;    // its whole implementation on the counting device
/// A backend gives `void execute(Stream&, const Op&)` for every operation of the list; a missing one does not compile.
template <class Op>
struct OperationSlot {
    virtual void run(Stream& stream, const Op& operation) = 0;

  protected:
    ~OperationSlot() = default;
};

template <class... Ops>
struct OperationSlots : OperationSlot<Ops>... {
    virtual ~OperationSlots() = default;
};

/// Fills every slot of `Table` by calling `static_cast<Backend*>(this)->execute(stream, operation)`.
template <class Backend, class Table, class... Ops>
struct ImplementOperations;

template <class Backend, class... Ops>
struct ImplementOperations<Backend, OperationSlots<Ops...>>
    : ImplementOperations<Backend, OperationSlots<Ops...>, Ops...> {};

template <class Backend, class Table>
struct ImplementOperations<Backend, Table, void> : Table {};

template <class Backend, class Table, class Op>
struct ImplementOperations<Backend, Table, Op> : Table {
    void run(Stream& stream, const Op& operation) override { static_cast<Backend*>(this)->execute(stream, operation); }
};

template <class Backend, class Table, class Op, class Next, class... Rest>
struct ImplementOperations<Backend, Table, Op, Next, Rest...> : ImplementOperations<Backend, Table, Next, Rest...> {
    void run(Stream& stream, const Op& operation) override { static_cast<Backend*>(this)->execute(stream, operation); }
};

}  // namespace mfsdp::device
