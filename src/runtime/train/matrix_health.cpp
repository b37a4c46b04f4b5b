#include "mfsdp/runtime/train/matrix_health.h"

#include "mfsdp/device/device.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace mfsdp::runtime {

namespace {

using device::DType;
using device::Tensor;

/// Scratch of one measurement.
class Measurement {
  public:
    Measurement(device::Stream& stream, device::BufferPool& workspace, const optim::MatrixStep& matrix)
        : stream_(stream),
          workspace_(workspace),
          matrix_(matrix),
          norm_memory_(workspace, stream, device::size_of(DType::float64)),
          before_memory_(workspace, stream, matrix.weight.bytes()),
          norm_(Tensor::dense(norm_memory_.data(), DType::float64, {1})),
          before_(like_weight(before_memory_)) {
        device::launch(stream_, device::Copy{.out = before_, .in = matrix.weight});
    }

    [[nodiscard]] MatrixHealth after_step() const {
        const double elements = static_cast<double>(matrix_.weight.count());
        MatrixHealth health;
        const double weight = norm_of(before_);
        const device::PooledBuffer memory(workspace_, stream_, matrix_.weight.bytes());
        const Tensor difference = like_weight(memory);
        device::launch(stream_, device::ScaledAdd{.out = difference, .a = matrix_.weight, .b = before_, .beta = -1.0F});
        if (weight > 0.0) health.update_ratio = norm_of(difference) / weight;
        const device::GradientScale& scale = matrix_.gradient_scale;
        health.gradient_rms = norm_of(matrix_.gradient) * static_cast<double>(scale.inverse_targets) *
                              static_cast<double>(scale.clip) / std::sqrt(elements);

        const auto decay = static_cast<float>(1.0 - matrix_.learning_rate * matrix_.weight_decay);
        device::launch(
            stream_,
            device::ScaledAdd{.out = difference, .a = before_, .b = matrix_.weight, .alpha = decay, .beta = -1.0F});
        if (matrix_.blocks.empty()) health.orthogonality_error = orthogonality_error(difference);
        for (const model::RowBlock& block : matrix_.blocks) {
            health.orthogonality_error = std::max(
                health.orthogonality_error, orthogonality_error(difference.slice(0, block.row_begin, block.row_count)));
        }
        return health;
    }

  private:
    [[nodiscard]] Tensor like_weight(const device::PooledBuffer& memory) const {
        return Tensor::dense(memory.data(), DType::float32, {matrix_.weight.rows(), matrix_.weight.columns()});
    }
    [[nodiscard]] double norm_of(const Tensor& in) const {
        double result = 0.0;
        device::launch(stream_, device::FrobeniusNorm{.norm = norm_, .in = in});
        device::launch(stream_, device::CopyToHost{&result, norm_});
        stream_.synchronize();
        return result;
    }
    /// With O of norm 1, |s O O^T - I|^2 = s^2 |O O^T|^2 - s, for the trace of O O^T is 1.
    [[nodiscard]] double orthogonality_error(const Tensor& direction) const {
        if (!(norm_of(direction) > 0.0)) return 0.0;  // norm_ still holds it for the division
        device::launch(stream_, device::DivideByNorm{.out = direction, .in = direction, .norm = norm_});
        const std::int64_t side = std::min(direction.rows(), direction.columns());
        const device::PooledBuffer memory(workspace_, stream_, side * side * device::size_of(DType::float32));
        const Tensor gram = Tensor::dense(memory.data(), DType::float32, {side, side});
        const bool wide = direction.rows() == side;
        device::launch(
            stream_,
            device::Matmul{.out = gram, .a = direction, .b = direction, .transpose_a = !wide, .transpose_b = wide});
        const double norm = norm_of(gram);
        return std::sqrt(std::max(static_cast<double>(side) * norm * norm - 1.0, 0.0));
    }

    device::Stream& stream_;
    device::BufferPool& workspace_;
    const optim::MatrixStep& matrix_;
    device::PooledBuffer norm_memory_;
    device::PooledBuffer before_memory_;
    Tensor norm_;
    Tensor before_;
};

}  // namespace

MatrixHealth step_and_measure(device::Stream& stream, device::BufferPool& workspace, optim::MatrixOptimizer& optimizer,
                              const optim::MatrixStep& matrix) {
    const Measurement measurement(stream, workspace, matrix);
    optimizer.step(stream, workspace, matrix);
    return measurement.after_step();
}

std::vector<MatrixHealth> gather_health(comm::Communicator& communicator, const std::vector<MatrixHealth>& mine) {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const auto count = static_cast<std::int64_t>(mine.size());
    std::vector<std::int64_t> counts(ranks);
    communicator.all_gather(std::as_bytes(std::span(&count, 1)), std::as_writable_bytes(std::span(counts)));
    const auto most = static_cast<std::size_t>(*std::max_element(counts.begin(), counts.end()));
    std::vector<MatrixHealth> padded = mine;
    padded.resize(most);
    std::vector<MatrixHealth> all(most * ranks);
    communicator.all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
    std::vector<MatrixHealth> result;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * most);
        result.insert(result.end(), begin, begin + counts[rank]);
    }
    std::sort(result.begin(), result.end(),
              [](const MatrixHealth& a, const MatrixHealth& b) { return a.parameter < b.parameter; });
    return result;
}

}  // namespace mfsdp::runtime
