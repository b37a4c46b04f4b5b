#include "mfsdp/optim/matrix_stepper.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include <algorithm>
#include <tuple>

namespace mfsdp::optim {

namespace {

using device::DType;
using device::PooledBuffer;
using device::Tensor;

constexpr std::int64_t kFloatBytes = device::size_of(DType::float32);

void check(const MatrixStep& matrix, std::int64_t step) {
    MFSDP_ASSERT(matrix.weight.rank == 2 && same_shape(matrix.weight, matrix.gradient),
                 "weight " + matrix.weight.describe() + " and gradient " + matrix.gradient.describe() +
                     " are matrices of one shape");
    MFSDP_ASSERT(matrix.step >= 1 && matrix.step == step, "steps are counted from 1, and all matrices take the same");
    std::int64_t row = 0;
    for (const model::RowBlock& block : matrix.blocks) {
        MFSDP_ASSERT(block.row_begin == row && block.row_count >= 1,
                     "row block " + block.name + " starts where the one before it ends");
        row += block.row_count;
    }
    MFSDP_ASSERT(matrix.blocks.empty() || row == matrix.weight.rows(),
                 "row blocks tile the rows of weight " + matrix.weight.describe());
}

/// Rows of `whole` that belong to block `index` of a parameter.
Tensor part(const MatrixStep& matrix, std::size_t index, const Tensor& whole) {
    if (matrix.blocks.empty()) return whole;
    const model::RowBlock& block = matrix.blocks[index];
    return whole.slice(0, block.row_begin, block.row_count);
}

/// Bytes that a matrix takes in each buffer of a wave.
std::int64_t bytes_in_wave(const MatrixStep& matrix) { return device::align_up(matrix.weight.count() * kFloatBytes); }

/// The shape of the sums of squares of a block, and their number.
struct SquareSumsShape {
    std::int64_t rows, columns;

    explicit SquareSumsShape(const BlockWork& block)
        : rows(std::min(block.rows, block.columns)),
          columns(device::square_sums_of(std::max(block.rows, block.columns))) {}
    [[nodiscard]] std::int64_t bytes() const { return rows * columns * device::size_of(DType::float64); }
};

std::tuple<std::int64_t, std::int64_t, std::size_t> shape_of(const MatrixStep& matrix) {
    return {matrix.weight.rows(), matrix.weight.columns(), matrix.blocks.size()};
}

}  // namespace

MatrixStepper::MatrixStepper(MatrixOptimizer& optimizer) : optimizer_(optimizer) {
    MFSDP_ASSERT(optimizer.averages() <= kMaxAverages, optimizer.name() + " has too many averages");
}

MatrixStepper::StateCounts MatrixStepper::counts_of(std::int64_t rows, std::int64_t columns) {
    for (const StateCounts& known : known_counts_) {
        if (known.rows == rows && known.columns == columns) return known;
    }
    const std::vector<StateSpec> states = optimizer_.block_states(rows, columns);
    const auto element = static_cast<std::size_t>(
        std::count_if(states.begin(), states.end(), [](const StateSpec& state) { return state.element; }));
    MFSDP_ASSERT(element <= kMaxElementStates, optimizer_.name() + " has too many elementwise states");
    known_counts_.push_back({rows, columns, element, states.size() - element});
    return known_counts_.back();
}

std::span<BlockWork> MatrixStepper::blocks_of(const Owned& owned) {
    return std::span(blocks_).subspan(owned.first_block, owned.block_count);
}

void MatrixStepper::add_blocks(Owned& owned) {
    const MatrixStep& matrix = *owned.matrix;
    owned.first_block = blocks_.size();
    owned.block_count = std::max<std::size_t>(1, matrix.blocks.size());
    owned.element_states = counts_of(matrix.weight.rows(), matrix.weight.columns()).element;
    std::size_t used = owned.element_states;
    for (std::size_t i = 0; i < owned.block_count; ++i) {
        const std::int64_t rows = part(matrix, i, matrix.weight).rows(), columns = matrix.weight.columns();
        const std::size_t count = counts_of(rows, columns).block;
        MFSDP_ASSERT(used + count <= matrix.states.size(),
                     optimizer_.name() + " has more states than were given for weight " + matrix.weight.describe());
        blocks_.push_back({.rows = rows,
                           .columns = columns,
                           .out = {},
                           .input = {},
                           .averages = {},
                           .states = matrix.states.subspan(used, count),
                           .number = matrix.number + static_cast<std::int64_t>(i)});
        used += count;
    }
    MFSDP_ASSERT(used == matrix.states.size(),
                 optimizer_.name() + " has " + std::to_string(used) + " states for weight " + matrix.weight.describe());
}

void MatrixStepper::take_in(std::span<const MatrixStep> matrices) {
    matrices_.clear();
    blocks_.clear();
    for (const MatrixStep& matrix : matrices) {
        check(matrix, step_);
        matrices_.push_back({&matrix, matrices_.size(), 0, 0, 0});
    }
    // By shape and then as given: std::stable_sort would allocate.
    std::sort(matrices_.begin(), matrices_.end(), [](const Owned& a, const Owned& b) {
        return std::tuple_cat(shape_of(*a.matrix), std::tuple(a.position)) <
               std::tuple_cat(shape_of(*b.matrix), std::tuple(b.position));
    });
    for (Owned& owned : matrices_) add_blocks(owned);
    averages_.resize(blocks_.size() * static_cast<std::size_t>(optimizer_.averages()));
}

void MatrixStepper::step(device::Stream& stream, device::BufferPool& workspace, std::span<const MatrixStep> matrices) {
    if (matrices.empty()) return;
    stream_ = &stream;
    workspace_ = &workspace;
    step_ = matrices.front().step;
    take_in(matrices);
    const bool observes = optimizer_.observes(step_);
    if (observes) {
        for (const Owned& owned : matrices_) observe(owned);
        optimizer_.refresh(stream, workspace, blocks_, step_);
    }
    if (optimizer_.directs(step_)) direct_all();
    if (!observes) optimizer_.refresh(stream, workspace, blocks_, step_);
}

void MatrixStepper::accumulate(const Owned& owned, const Tensor& input) {
    const MatrixStep& matrix = *owned.matrix;
    const auto states = matrix.states.first(owned.element_states);
    const std::span<BlockWork> blocks = blocks_of(owned);
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].input = part(matrix, i, input);
    if (!blocks[0].square_sums.defined()) {
        optimizer_.accumulate(*stream_, input, {}, matrix.gradient, states, matrix.gradient_scale);
        return;
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        std::array<Tensor, kMaxElementStates> parts;
        std::transform(states.begin(), states.end(), parts.begin(),
                       [&](const Tensor& state) { return part(matrix, i, state); });
        optimizer_.accumulate(*stream_, blocks[i].input, blocks[i].square_sums, part(matrix, i, matrix.gradient),
                              std::span(parts).first(states.size()), matrix.gradient_scale);
    }
}

void MatrixStepper::observe(const Owned& owned) {
    const Tensor& weight = owned.matrix->weight;
    const PooledBuffer buffer(*workspace_, *stream_, weight.count() * kFloatBytes);
    accumulate(owned, buffer.view(DType::float32, {weight.rows(), weight.columns()}));
    optimizer_.observe(*stream_, *workspace_, blocks_of(owned), step_);
    for (BlockWork& block : blocks_of(owned)) block.input = {};
}

void MatrixStepper::direct_all() {
    const Wave all(matrices_);
    for (std::size_t first = 0; first < all.size();) {
        std::size_t last = first;
        std::int64_t elements = 0;
        do {
            elements += all[last++].matrix->weight.count();
        } while (last < all.size() && elements + all[last].matrix->weight.count() <= kWaveElements);
        direct(all.subspan(first, last - first));
        first = last;
    }
}

void MatrixStepper::direct(Wave wave) {
    const std::size_t first = wave.front().first_block;
    const std::size_t count = wave.back().first_block + wave.back().block_count - first;
    const std::span<BlockWork> blocks = std::span(blocks_).subspan(first, count);
    std::int64_t bytes = 0;
    for (const Owned& owned : wave) bytes += bytes_in_wave(*owned.matrix);
    const PooledBuffer input(*workspace_, *stream_, optimizer_.direction_reads_input() ? bytes : 0);
    const PooledBuffer square_sums = place_square_sums(blocks);
    std::array<PooledBuffer, kMaxAverages> averages;
    const auto average_count = static_cast<std::size_t>(optimizer_.averages());
    for (std::size_t i = 0; i < average_count; ++i) averages[i] = PooledBuffer(*workspace_, *stream_, bytes);

    std::int64_t offset = 0;
    for (const Owned& owned : wave) {
        const Tensor& weight = owned.matrix->weight;
        const auto place = [&](const PooledBuffer& buffer) {
            return buffer.view(DType::float32, {weight.rows(), weight.columns()}, offset);
        };
        std::array<Tensor, kMaxAverages> places;
        for (std::size_t i = 0; i < average_count; ++i) places[i] = place(averages[i]);
        prepare(owned, optimizer_.direction_reads_input() ? place(input) : Tensor{},
                std::span(places).first(average_count));
        offset += bytes_in_wave(*owned.matrix);
    }
    optimizer_.direction(*stream_, *workspace_, blocks, step_);
    for (const Owned& owned : wave) update(owned);
}

/// Room for the sums of squares of blocks, without gaps: those of blocks of one shape can then be one batch.
PooledBuffer MatrixStepper::place_square_sums(std::span<BlockWork> blocks) {
    if (!optimizer_.leaves_square_sums()) return {};
    std::int64_t bytes = 0;
    for (const BlockWork& block : blocks) bytes += SquareSumsShape(block).bytes();
    PooledBuffer buffer(*workspace_, *stream_, bytes);
    std::int64_t offset = 0;
    for (BlockWork& block : blocks) {
        const SquareSumsShape shape(block);
        block.square_sums = buffer.view(DType::float64, {shape.rows, shape.columns}, offset);
        offset += shape.bytes();
    }
    return buffer;
}

void MatrixStepper::prepare(const Owned& owned, const Tensor& input, std::span<const Tensor> averages) {
    const MatrixStep& matrix = *owned.matrix;
    if (input.defined()) accumulate(owned, input);
    if (!averages.empty()) optimizer_.average(*stream_, averages, matrix.states.first(owned.element_states), step_);
    // A direction takes the place of what it is made from.
    const Tensor& out = input.defined() ? input : averages.front();
    for (std::size_t i = 0; i < owned.block_count; ++i) {
        const std::size_t first = (owned.first_block + i) * averages.size();
        for (std::size_t k = 0; k < averages.size(); ++k) averages_[first + k] = part(matrix, i, averages[k]);
        BlockWork& block = blocks_of(owned)[i];
        block.out = part(matrix, i, out);
        block.averages = std::span<const Tensor>(averages_).subspan(first, averages.size());
    }
}

void MatrixStepper::update(const Owned& owned) {
    const MatrixStep& matrix = *owned.matrix;
    for (std::size_t i = 0; i < owned.block_count; ++i) {
        const Tensor& direction = blocks_of(owned)[i].out;
        MatrixOptimizer::update(*stream_, part(matrix, i, matrix.weight), direction,
                                optimizer_.weight_rule(direction.rows(), direction.columns(), matrix.learning_rate,
                                                       matrix.weight_decay, step_));
    }
}

}  // namespace mfsdp::optim
