#include "mfsdp/optim/matrix_optimizer.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include <algorithm>
#include <tuple>

namespace mfsdp::optim {

namespace {

using device::PooledBuffer;
using device::Tensor;

constexpr std::int64_t kFloatBytes = device::size_of(device::DType::float32);

void check_blocks(const MatrixStep& matrix) {
    std::int64_t row = 0;
    for (const model::RowBlock& block : matrix.blocks) {
        MFSDP_ASSERT(block.row_begin == row && block.row_count >= 1,
                     "row block " + block.name + " starts where the one before it ends");
        row += block.row_count;
    }
    MFSDP_ASSERT(matrix.blocks.empty() || row == matrix.weight.rows(),
                 "row blocks tile the rows of weight " + matrix.weight.describe());
}

void check(const MatrixOptimizer& optimizer, const MatrixStep& matrix, std::int64_t step) {
    MFSDP_ASSERT(matrix.weight.rank == 2 && same_shape(matrix.weight, matrix.gradient),
                 "weight " + matrix.weight.describe() + " and gradient " + matrix.gradient.describe() +
                     " are matrices of one shape");
    MFSDP_ASSERT(matrix.step >= 1 && matrix.step == step, "steps are counted from 1, and all matrices take the same");
    check_blocks(matrix);
    const std::size_t states = optimizer.states(matrix.weight.rows(), matrix.weight.columns(), matrix.blocks).size();
    MFSDP_ASSERT(matrix.states.size() == states, optimizer.name() + " has " + std::to_string(states) +
                                                     " states for weight " + matrix.weight.describe());
}

/// One step of an owner's matrices.
class OwnerStep {
  public:
    OwnerStep(MatrixOptimizer& optimizer, device::Stream& stream, device::BufferPool& workspace,
              std::span<const MatrixStep> matrices)
        : optimizer_(optimizer), stream_(stream), workspace_(workspace), step_(matrices.front().step) {
        for (const MatrixStep& matrix : matrices) {
            check(optimizer, matrix, step_);
            matrices_.push_back({&matrix, 0, 0, 0});
        }
        // Matrices of one shape follow each other, so that their blocks can be computed together.
        std::stable_sort(matrices_.begin(), matrices_.end(),
                         [](const Owned& a, const Owned& b) { return key(a) < key(b); });
        for (Owned& owned : matrices_) add_blocks(owned);
        averages_.resize(blocks_.size() * static_cast<std::size_t>(optimizer.averages()));
    }

    void run() {
        if (optimizer_.observes(step_)) {
            for (const Owned& owned : matrices_) observe(owned);
            optimizer_.refresh(stream_, workspace_, blocks_, step_);
        }
        if (optimizer_.directs(step_)) direct_all();
        if (!optimizer_.observes(step_)) optimizer_.refresh(stream_, workspace_, blocks_, step_);
    }

  private:
    struct Owned {
        const MatrixStep* matrix;
        std::size_t first_block, block_count;
        std::size_t element_states;
    };
    using Range = std::span<const Owned>;

    static std::tuple<std::int64_t, std::int64_t, std::size_t> key(const Owned& owned) {
        return {owned.matrix->weight.rows(), owned.matrix->weight.columns(), owned.matrix->blocks.size()};
    }
    [[nodiscard]] std::span<BlockWork> blocks_of(const Owned& owned) {
        return std::span(blocks_).subspan(owned.first_block, owned.block_count);
    }
    [[nodiscard]] static std::span<const Tensor> element_states(const Owned& owned) {
        return owned.matrix->states.first(owned.element_states);
    }
    /// Rows of `whole` that belong to block `index` of a parameter.
    [[nodiscard]] static Tensor part(const Owned& owned, std::size_t index, const Tensor& whole) {
        if (owned.matrix->blocks.empty()) return whole;
        const model::RowBlock& block = owned.matrix->blocks[index];
        return whole.slice(0, block.row_begin, block.row_count);
    }

    void add_blocks(Owned& owned) {
        const MatrixStep& matrix = *owned.matrix;
        owned.first_block = blocks_.size();
        owned.block_count = std::max<std::size_t>(1, matrix.blocks.size());
        std::span<const Tensor> rest;
        for (std::size_t i = 0; i < owned.block_count; ++i) {
            const std::int64_t rows = matrix.blocks.empty() ? matrix.weight.rows() : matrix.blocks[i].row_count;
            const auto specs = optimizer_.block_states(rows, matrix.weight.columns());
            const auto elements = static_cast<std::size_t>(
                std::count_if(specs.begin(), specs.end(), [](const StateSpec& spec) { return spec.element; }));
            if (i == 0) {
                owned.element_states = elements;
                rest = matrix.states.subspan(elements);
            }
            blocks_.push_back({.out = {},
                               .input = {},
                               .averages = {},
                               .states = rest.first(specs.size() - elements),
                               .number = matrix.number + static_cast<std::int64_t>(i)});
            rest = rest.subspan(specs.size() - elements);
        }
    }

    void accumulate(const Owned& owned, const Tensor& input) {
        const MatrixStep& matrix = *owned.matrix;
        optimizer_.accumulate(stream_, input, matrix.gradient, element_states(owned), matrix.gradient_scale);
        for (std::size_t i = 0; i < owned.block_count; ++i) blocks_of(owned)[i].input = part(owned, i, input);
    }

    void observe(const Owned& owned) {
        const Tensor& weight = owned.matrix->weight;
        const PooledBuffer buffer(workspace_, stream_, weight.count() * kFloatBytes);
        accumulate(owned, buffer.view(device::DType::float32, {weight.rows(), weight.columns()}));
        optimizer_.observe(stream_, workspace_, blocks_of(owned), step_);
        for (BlockWork& block : blocks_of(owned)) block.input = {};
    }

    /// Bytes that a matrix takes in each buffer of a wave.
    [[nodiscard]] static std::int64_t bytes_in_wave(const Owned& owned) {
        return device::align_up(owned.matrix->weight.count() * kFloatBytes);
    }

    void direct_all() {
        const Range all(matrices_);
        for (std::size_t first = 0; first < all.size();) {
            std::size_t last = first;
            std::int64_t elements = 0;
            do {
                elements += all[last++].matrix->weight.count();
            } while (last < all.size() &&
                     elements + all[last].matrix->weight.count() <= MatrixOptimizer::kWaveElements);
            direct(all.subspan(first, last - first));
            first = last;
        }
    }

    void direct(Range wave) {
        std::int64_t bytes = 0;
        for (const Owned& owned : wave) bytes += bytes_in_wave(owned);
        const std::int64_t averages = optimizer_.averages();
        const PooledBuffer input(workspace_, stream_, optimizer_.direction_reads_input() ? bytes : 0);
        std::vector<PooledBuffer> averaged;
        for (std::int64_t i = 0; i < averages; ++i) averaged.emplace_back(workspace_, stream_, bytes);

        std::int64_t offset = 0;
        for (const Owned& owned : wave) {
            const Tensor& weight = owned.matrix->weight;
            const auto place = [&](const PooledBuffer& buffer) {
                return buffer.view(device::DType::float32, {weight.rows(), weight.columns()}, offset);
            };
            std::vector<Tensor> averages_of_matrix;
            for (const PooledBuffer& buffer : averaged) averages_of_matrix.push_back(place(buffer));
            if (optimizer_.direction_reads_input()) accumulate(owned, place(input));
            optimizer_.average(stream_, averages_of_matrix, element_states(owned), step_);
            // A direction takes the place of what it is made from.
            const Tensor out = optimizer_.direction_reads_input() ? place(input) : averages_of_matrix.front();
            for (std::size_t i = 0; i < owned.block_count; ++i) set_block(owned, i, out, averages_of_matrix);
            offset += bytes_in_wave(owned);
        }
        const std::size_t first = wave.front().first_block;
        const std::size_t count = wave.back().first_block + wave.back().block_count - first;
        optimizer_.direction(stream_, workspace_, std::span<const BlockWork>(blocks_).subspan(first, count), step_);
        for (const Owned& owned : wave) update(owned);
    }

    void set_block(const Owned& owned, std::size_t index, const Tensor& out, std::span<const Tensor> averages) {
        const std::size_t first = (owned.first_block + index) * averages.size();
        for (std::size_t k = 0; k < averages.size(); ++k) averages_[first + k] = part(owned, index, averages[k]);
        BlockWork& block = blocks_of(owned)[index];
        block.out = part(owned, index, out);
        block.averages = std::span<const Tensor>(averages_).subspan(first, averages.size());
    }

    void update(const Owned& owned) {
        const MatrixStep& matrix = *owned.matrix;
        for (std::size_t i = 0; i < owned.block_count; ++i) {
            const Tensor& direction = blocks_of(owned)[i].out;
            MatrixOptimizer::update(stream_, part(owned, i, matrix.weight), direction,
                                    optimizer_.weight_rule(direction.rows(), direction.columns(), matrix.learning_rate,
                                                           matrix.weight_decay, step_));
        }
    }

    MatrixOptimizer& optimizer_;
    device::Stream& stream_;
    device::BufferPool& workspace_;
    std::int64_t step_;
    std::vector<Owned> matrices_;
    std::vector<BlockWork> blocks_;  // of all matrices, in their order
    std::vector<Tensor> averages_;   // what the blocks' spans point to
};

}  // namespace

std::vector<StateSpec> MatrixOptimizer::states(std::int64_t rows, std::int64_t columns,
                                               std::span<const model::RowBlock> blocks) const {
    std::vector<StateSpec> result = block_states(rows, columns);
    if (blocks.empty()) return result;
    std::erase_if(result, [](const StateSpec& state) { return !state.element; });
    for (const model::RowBlock& block : blocks) {
        for (StateSpec& state : block_states(block.row_count, columns)) {
            if (state.element) continue;
            state.block = block.name;
            result.push_back(std::move(state));
        }
    }
    return result;
}

std::vector<std::int64_t> MatrixOptimizer::rehearsal_steps(std::span<const std::int64_t> /*numbers*/) const {
    return {1};
}

void MatrixOptimizer::average(device::Stream& /*stream*/, std::span<const Tensor> out,
                              std::span<const Tensor> /*element_states*/, std::int64_t /*step*/) {
    MFSDP_ASSERT(out.empty(), name() + " has no averages");
}

void MatrixOptimizer::observe(device::Stream& /*stream*/, device::BufferPool& /*workspace*/,
                              std::span<const BlockWork> /*blocks*/, std::int64_t /*step*/) {}

void MatrixOptimizer::refresh(device::Stream& /*stream*/, device::BufferPool& /*workspace*/,
                              std::span<const BlockWork> /*blocks*/, std::int64_t /*step*/) {}

void MatrixOptimizer::update(device::Stream& stream, const Tensor& weight, const Tensor& direction,
                             const WeightRule& rule) {
    if (weight.count() == 0) return;  // a rank may hold no rows
    device::launch(
        stream, device::WeightUpdate{.weight = weight, .direction = direction, .decay = rule.decay, .step = rule.step});
}

void MatrixOptimizer::step(device::Stream& stream, device::BufferPool& workspace,
                           std::span<const MatrixStep> matrices) {
    if (matrices.empty()) return;
    OwnerStep(*this, stream, workspace, matrices).run();
}

}  // namespace mfsdp::optim
