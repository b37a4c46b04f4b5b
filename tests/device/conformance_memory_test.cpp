#include "device/conformance_memory.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/half.h"

#include "support/catch.h"

#include <algorithm>
#include <cstring>

namespace mfsdp::device::conformance {

namespace {

constexpr std::byte kGuard{0xFE};   // huge or NaN in every floating-point type: whoever reads it shows
constexpr std::byte kPoison{0xFF};  // NaN in every floating-point type
constexpr std::int64_t kGuardElements = 64;

template <class T>
void write_as(std::byte* target, double value) {
    const T element = static_cast<T>(value);
    std::memcpy(target, &element, sizeof element);
}

template <class T>
double read_as(const std::byte* source) {
    T element;
    std::memcpy(&element, source, sizeof element);
    return static_cast<double>(element);
}

template <class T>
void write_half(std::byte* target, T element) {
    std::memcpy(target, &element, sizeof element);
}

template <class T>
double read_half(const std::byte* source) {
    T element;
    std::memcpy(&element, source, sizeof element);
    return static_cast<double>(widened(element));
}

void write_element(std::byte* target, DType dtype, double value) {
    switch (dtype) {
        case DType::float32:
            return write_as<float>(target, value);
        case DType::float64:
            return write_as<double>(target, value);
        case DType::int32:
            return write_as<std::int32_t>(target, value);
        case DType::int64:
            return write_as<std::int64_t>(target, value);
        case DType::bfloat16:
            return write_half(target, device::rounded<BFloat16>(static_cast<float>(value)));
        case DType::float16:
            return write_half(target, device::rounded<Float16>(static_cast<float>(value)));
    }
}

double read_element(const std::byte* source, DType dtype) {
    switch (dtype) {
        case DType::float32:
            return read_as<float>(source);
        case DType::float64:
            return read_as<double>(source);
        case DType::int32:
            return read_as<std::int32_t>(source);
        case DType::int64:
            return read_as<std::int64_t>(source);
        case DType::bfloat16:
            return read_half<BFloat16>(source);
        case DType::float16:
            return read_half<Float16>(source);
    }
    throw InternalError("conformance: there is no such type");
}

/// A view of `shape` at `address`; with gaps, each dimension but the last is followed by some unused elements.
Tensor view(std::byte* address, DType dtype, const Shape& shape, RowGaps gaps) {
    constexpr std::int64_t kVector = 16;  // elements
    Tensor result;
    result.data = address;
    result.dtype = dtype;
    std::int64_t stride = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        result.shape[axis] = shape[axis];
        result.strides[axis] = stride;
        stride *= shape[axis];
        if (gaps == RowGaps::odd) stride += 3 + 2 * static_cast<std::int64_t>(axis);
        if (gaps == RowGaps::aligned) stride = (stride + kVector - 1) / kVector * kVector + kVector;
    }
    result.rank = static_cast<int>(shape.size());
    return result;
}

/// Elements from the first to the last of a view.
std::int64_t extent(const Tensor& tensor) {
    if (tensor.count() == 0) return 0;
    std::int64_t last = 0;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(tensor.rank); ++axis) {
        last += (tensor.shape[axis] - 1) * tensor.strides[axis];
    }
    return last + 1;
}

}  // namespace

PlacedArgument::PlacedArgument(Device& device, MemoryLedger& ledger, const ArgumentOfRow& argument, Placing placing,
                               const std::vector<double>& values)
    : written_(argument.access != Access::read) {
    const RowGaps gaps = argument.gaps == Gaps::allowed ? placing.gaps : RowGaps::none;
    const std::int64_t size = size_of(argument.dtype);
    tensor_ = view(nullptr, argument.dtype, argument.shape, gaps);
    const std::int64_t guard = align_up(kGuardElements * size);
    first_ = static_cast<std::size_t>(guard + (placing.off_by_one ? size : 0));
    const std::int64_t bytes = align_up(static_cast<std::int64_t>(first_) + extent(tensor_) * size) + guard;
    buffer_ = Buffer(device, ledger, MemoryCategory::workspace, bytes);
    tensor_.data = buffer_.data() + first_;
    sent_.assign(static_cast<std::size_t>(bytes), kGuard);
    visit_rows([&](std::int64_t first, std::size_t offset, std::int64_t count) {
        std::byte* const row = sent_.data() + offset;
        if (argument.access == Access::write) {
            std::fill_n(row, count * size, kPoison);
            return;
        }
        for (std::int64_t i = 0; i < count; ++i) {
            write_element(row + i * size, argument.dtype, values[static_cast<std::size_t>(first + i)]);
        }
    });
}

Tensor PlacedArgument::image_tensor() const {
    return Tensor::dense(buffer_.data(), DType::int32, {static_cast<std::int64_t>(sent_.size()) / 4});
}

std::size_t PlacedArgument::position(std::int64_t index) const {
    std::int64_t offset = 0;
    for (std::size_t axis = static_cast<std::size_t>(tensor_.rank); axis-- > 0;) {
        offset += index % tensor_.shape[axis] * tensor_.strides[axis];
        index /= tensor_.shape[axis];
    }
    return first_ + static_cast<std::size_t>(offset * size_of(tensor_.dtype));
}

template <class Visit>
void PlacedArgument::visit_rows(Visit visit) const {
    const std::int64_t count = tensor_.count();
    const std::int64_t columns = tensor_.rank > 0 ? tensor_.shape[static_cast<std::size_t>(tensor_.rank - 1)] : 1;
    for (std::int64_t first = 0; first < count; first += columns) visit(first, position(first), columns);
}

void PlacedArgument::send(Stream& stream) const { launch(stream, CopyFromHost{image_tensor(), sent_.data()}); }

void PlacedArgument::fetch(Stream& stream) {
    fetched_.resize(sent_.size());
    launch(stream, CopyToHost{fetched_.data(), image_tensor()});
    stream.synchronize();
}

std::vector<double> PlacedArgument::values() const {
    std::vector<double> result;
    result.reserve(static_cast<std::size_t>(tensor_.count()));
    const std::int64_t size = size_of(tensor_.dtype);
    visit_rows([&](std::int64_t, std::size_t offset, std::int64_t count) {
        const std::byte* const row = fetched_.data() + offset;
        for (std::int64_t i = 0; i < count; ++i) result.push_back(read_element(row + i * size, tensor_.dtype));
    });
    return result;
}

std::vector<std::byte> PlacedArgument::bits() const {
    std::vector<std::byte> result;
    result.reserve(static_cast<std::size_t>(tensor_.bytes()));
    visit_rows([&](std::int64_t, std::size_t offset, std::int64_t count) {
        const std::byte* const row = fetched_.data() + offset;
        result.insert(result.end(), row, row + count * size_of(tensor_.dtype));
    });
    return result;
}

bool PlacedArgument::intact() const {
    std::vector<std::byte> expected = sent_;
    if (written_) {
        visit_rows([&](std::int64_t, std::size_t offset, std::int64_t count) {
            std::copy_n(fetched_.data() + offset, count * size_of(tensor_.dtype), expected.data() + offset);
        });
    }
    return expected == fetched_;
}

TEST_CASE("a placed argument notices a write beside its elements and a write to what is only read") {
    const auto device = cpu_backends().front().make(1);
    const auto stream = device->make_stream();
    MemoryLedger ledger;
    const auto access = GENERATE(Access::read, Access::write);
    PlacedArgument placed(*device, ledger, {"x", {3, 5}, access, normal(), DType::float32, Gaps::allowed},
                          {.off_by_one = true, .gaps = RowGaps::odd}, std::vector<double>(15, 1.0));
    const Tensor& x = placed.tensor();
    placed.send(*stream);
    placed.fetch(*stream);
    CHECK(placed.intact());
    REQUIRE(placed.values().size() == 15);

    SECTION("an element") {
        launch(*stream, Fill{Tensor::dense(x.data, DType::float32, {1}), 2.0});
        placed.fetch(*stream);
        CHECK(placed.intact() == (access == Access::write));
        CHECK(placed.values()[0] == 2.0);
    }
    SECTION("the gap after the first row") {
        launch(*stream, Fill{Tensor::dense(x.data + 5 * 4, DType::float32, {1}), 2.0});
        placed.fetch(*stream);
        CHECK_FALSE(placed.intact());
    }
    SECTION("the guard before the first element") {
        launch(*stream, Fill{Tensor::dense(x.data - 4, DType::float32, {1}), 2.0});
        placed.fetch(*stream);
        CHECK_FALSE(placed.intact());
    }
}

}  // namespace mfsdp::device::conformance
