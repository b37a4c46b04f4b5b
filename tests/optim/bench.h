#pragma once

#include "mfsdp/base/error.h"
#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/device/counting_device.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/device/device.h"
#include "mfsdp/optim/state_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

namespace mfsdp::optim::test {

/// A matrix on the host. Expected values are computed with T = double, tensors hold T = float.
template <class T>
struct HostMatrix {
    std::int64_t rows = 0, columns = 0;
    std::vector<T> values;

    HostMatrix() = default;
    HostMatrix(std::int64_t row_count, std::int64_t column_count)
        : rows(row_count), columns(column_count), values(static_cast<std::size_t>(row_count * column_count)) {}
    T& at(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * columns + c)]; }
    [[nodiscard]] const T& at(std::int64_t r, std::int64_t c) const {
        return values[static_cast<std::size_t>(r * columns + c)];
    }
};
using Matrix = HostMatrix<float>;
using Exact = HostMatrix<double>;

template <class To, class From>
HostMatrix<To> convert(const HostMatrix<From>& matrix) {
    HostMatrix<To> result(matrix.rows, matrix.columns);
    for (std::size_t i = 0; i < matrix.values.size(); ++i) result.values[i] = static_cast<To>(matrix.values[i]);
    return result;
}

template <class T>
HostMatrix<T> transposed(const HostMatrix<T>& matrix) {
    HostMatrix<T> result(matrix.columns, matrix.rows);
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
        for (std::int64_t c = 0; c < matrix.columns; ++c) result.at(c, r) = matrix.at(r, c);
    }
    return result;
}

/// a b, a plain loop.
template <class T>
HostMatrix<T> product(const HostMatrix<T>& a, const HostMatrix<T>& b) {
    HostMatrix<T> result(a.rows, b.columns);
    for (std::int64_t r = 0; r < a.rows; ++r) {
        for (std::int64_t k = 0; k < a.columns; ++k) {
            for (std::int64_t c = 0; c < b.columns; ++c) result.at(r, c) += a.at(r, k) * b.at(k, c);
        }
    }
    return result;
}

template <class T>
HostMatrix<T> scaled(const HostMatrix<T>& matrix, T factor) {
    HostMatrix<T> result = matrix;
    for (T& value : result.values) value *= factor;
    return result;
}

inline Exact gaussian(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    Exact result(rows, columns);
    for (double& value : result.values) {
        double sum = -6.0;  // twelve uniforms: near enough to normal, and the same with every standard library
        for (int i = 0; i < 12; ++i) sum += static_cast<double>(engine() >> 11) * 0x1p-53;
        value = static_cast<double>(static_cast<float>(sum));
    }
    return result;
}

inline bool same_bits(const Matrix& a, const Matrix& b) {
    return a.rows == b.rows && a.columns == b.columns && !a.values.empty() &&
           std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

/// Largest |got - want| divided by the largest |want|; infinity if anything is not a number, or shapes differ.
inline double error_of(const Matrix& got, const Exact& want) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (got.rows != want.rows || got.columns != want.columns || want.values.empty()) return kInfinity;
    double difference = 0.0, largest = 0.0;
    for (std::size_t i = 0; i < want.values.size(); ++i) {
        const double delta = std::abs(static_cast<double>(got.values[i]) - want.values[i]);
        if (!(delta <= difference)) difference = std::isnan(delta) ? kInfinity : delta;
        largest = std::max(largest, std::abs(want.values[i]));
    }
    if (difference == 0.0) return 0.0;
    return largest == 0.0 ? kInfinity : difference / largest;
}

/// A device with a stream, memory and a workspace pool, for one test; the CPU unless another one is given.
class Bench {
  public:
    explicit Bench(const device::CpuDeviceOptions& options = {}, std::int64_t workspace_bytes = kWorkspaceBytes)
        : Bench(workspace_bytes, device::make_cpu_device(options)) {}
    [[nodiscard]] static Bench on(std::unique_ptr<device::Device> device) {
        return Bench(kWorkspaceBytes, std::move(device));
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() { stream_->synchronize(); }

    [[nodiscard]] device::Stream& stream() { return *stream_; }
    [[nodiscard]] device::BufferPool& workspace() { return workspace_; }

    /// A tensor with room for `row_stride` elements in each row (default: dense), whose gaps hold NaN.
    [[nodiscard]] device::Tensor make(std::int64_t rows, std::int64_t columns, std::int64_t row_stride = 0) {
        const std::int64_t stride = row_stride == 0 ? columns : row_stride;
        buffers_.emplace_back(*device_, ledger_, device::MemoryCategory::state, rows * stride * 4);
        const device::Tensor all = buffers_.back().view(device::DType::float32, {rows, stride});
        device::launch(*stream_, device::Fill{.out = all, .value = std::numeric_limits<double>::quiet_NaN()});
        return all.slice(1, 0, columns);
    }
    [[nodiscard]] device::Tensor zeros(std::int64_t rows, std::int64_t columns) {
        const device::Tensor tensor = make(rows, columns);
        device::launch(*stream_, device::Fill{.out = tensor, .value = 0.0});
        return tensor;
    }
    /// Room for the sums of squares of a block (MatrixOptimizer::accumulate), NaN.
    [[nodiscard]] device::Tensor make_square_sums(std::int64_t rows, std::int64_t columns) {
        const std::int64_t shorter = std::min(rows, columns), sums = device::square_sums_of(std::max(rows, columns));
        buffers_.emplace_back(*device_, ledger_, device::MemoryCategory::state, shorter * sums * 8);
        const device::Tensor tensor = buffers_.back().view(device::DType::float64, {shorter, sums});
        device::launch(*stream_, device::Fill{.out = tensor, .value = std::numeric_limits<double>::quiet_NaN()});
        return tensor;
    }
    /// A state with the value that it starts from.
    [[nodiscard]] device::Tensor state(const StateSpec& spec) {
        buffers_.emplace_back(*device_, ledger_, device::MemoryCategory::state, spec.bytes());
        const device::Tensor tensor = spec.shape.size() == 2
                                          ? buffers_.back().view(spec.dtype, {spec.shape[0], spec.shape[1]})
                                          : buffers_.back().view(spec.dtype, {spec.count()});
        start_state(*stream_, tensor, spec);
        return tensor;
    }
    [[nodiscard]] device::Tensor upload(const Matrix& matrix, std::int64_t row_stride = 0) {
        const device::Tensor dense = make(matrix.rows, matrix.columns);
        device::launch(*stream_, device::CopyFromHost{.out = dense, .source = matrix.values.data()});
        device::Tensor result = dense;
        if (row_stride != 0) {
            result = make(matrix.rows, matrix.columns, row_stride);
            device::launch(*stream_, device::Copy{.out = result, .in = dense});
        }
        stream_->synchronize();
        return result;
    }
    [[nodiscard]] Matrix download(device::Tensor tensor) {
        Matrix result(tensor.rows(), tensor.columns());
        const device::Tensor dense = make(result.rows, result.columns);
        const device::Tensor source = tensor.rank == 1 ? tensor.reshape({1, tensor.count()}) : tensor;
        device::launch(*stream_, device::Copy{.out = dense, .in = source});
        device::launch(*stream_, device::CopyToHost{.target = result.values.data(), .in = dense});
        stream_->synchronize();
        return result;
    }

  private:
    static constexpr std::int64_t kWorkspaceBytes = std::int64_t{1} << 26;

    Bench(std::int64_t workspace_bytes, std::unique_ptr<device::Device> device)
        : device_(std::move(device)),
          stream_(device_->make_stream()),
          workspace_(*device_, ledger_, device::MemoryCategory::workspace, workspace_bytes) {}

    device::MemoryLedger ledger_;
    std::unique_ptr<device::Device> device_;
    std::unique_ptr<device::Stream> stream_;
    device::BufferPool workspace_;
    std::vector<device::Buffer> buffers_;
};

/// Every way of running the CPU device; all must give the same bits.
inline std::vector<device::CpuDeviceOptions> device_variants() {
    std::vector<device::CpuDeviceOptions> variants;
    for (const int threads : {1, 2, 3, 4, 8}) variants.push_back({.threads = threads});
    variants.push_back({.threads = 2, .asynchronous_streams = true, .delay_seed = 7});
    variants.push_back({.threads = 2, .guard_addresses = true});
    return variants;
}

}  // namespace mfsdp::optim::test
