#include "local_operations.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/half.h"

#include <cstring>
#include <string>

namespace mfsdp::comm {

namespace {

template <class Source, class Apply>
void for_each_element(std::byte* target, const std::byte* source, std::int64_t count, Apply apply) {
    auto* __restrict to = reinterpret_cast<float*>(target);
    const auto* __restrict from = reinterpret_cast<const Source*>(source);
    for (std::int64_t i = 0; i < count; ++i) apply(to[i], from[i]);
}

}  // namespace

std::byte* address_of(const TransferBuffers& buffers, BufferRole role, std::int64_t offset, device::DType dtype) {
    std::byte* base = buffers[role];
    MFSDP_ASSERT(base != nullptr, "a started schedule has its buffer '" + std::string(name(role)) + "' bound");
    return base + offset * device::size_of(dtype);
}

void perform_on_host(const TransferOperation& operation, std::byte* target, const std::byte* source) {
    const bool same = operation.source_dtype == operation.target_dtype;
    const bool to_float = operation.target_dtype == device::DType::float32;
    const bool widens = to_float && operation.source_dtype == device::DType::bfloat16;
    const std::int64_t count = operation.count;
    if (operation.kind == OperationKind::copy && same) {
        std::memcpy(target, source, static_cast<std::size_t>(count * device::size_of(operation.source_dtype)));
    } else if (operation.kind == OperationKind::copy && widens) {
        for_each_element<device::BFloat16>(target, source, count,
                                           [](float& to, device::BFloat16 from) { to = widened(from); });
    } else if (operation.kind == OperationKind::add && to_float && same) {
        for_each_element<float>(target, source, count, [](float& to, float from) { to += from; });
    } else if (operation.kind == OperationKind::add && widens) {
        for_each_element<device::BFloat16>(target, source, count,
                                           [](float& to, device::BFloat16 from) { to += widened(from); });
    } else {
        throw InternalError("comm: no local operation of a schedule turns " +
                            std::string(device::name(operation.source_dtype)) + " into " +
                            std::string(device::name(operation.target_dtype)));
    }
}

}  // namespace mfsdp::comm
