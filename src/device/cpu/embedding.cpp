#include "device/cpu/float8.h"
#include "device/cpu/kernels.h"

#include <algorithm>
#include <cstring>

namespace mfsdp::device::cpu {

namespace {

constexpr std::int64_t kRowsPerPiece = 32;
/// Columns that one piece of a backward adds up: 256 bytes of each row, so that pieces share no cache line.
constexpr std::int64_t kColumnsPerPiece = 64;

std::int64_t pieces(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

std::size_t float_bytes(std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(float); }

void add_to(float* target, const float* source, std::int64_t count) {
    for_vectors(count, [=](std::int64_t i, std::int64_t lanes) {
        store_lanes(target + i, load_lanes(target + i, lanes) + load_lanes(source + i, lanes), lanes);
    });
}

}  // namespace

void run(const Context& context, const EmbeddingForward& operation) {
    const std::int64_t tokens = operation.out.shape[0];
    const std::int64_t columns = operation.out.shape[1];
    float* const out = context.data<float>(operation.out);
    const float* const table = context.data<float>(operation.table);
    const std::int32_t* const ids = context.data<std::int32_t>(operation.ids);
    if (columns == 0) return;
    context.threads.parallel_for(pieces(tokens, kRowsPerPiece), [&](std::int64_t piece) {
        const std::int64_t end = std::min(tokens, (piece + 1) * kRowsPerPiece);
        for (std::int64_t i = piece * kRowsPerPiece; i < end; ++i) {
            std::memcpy(out + i * columns, table + ids[i] * columns, float_bytes(columns));
        }
    });
}

void run(const Context& context, const EmbeddingBackward& operation) {
    const std::int64_t tokens = operation.grad_out.shape[0];
    const std::int64_t columns = operation.grad_table.shape[1];
    const std::int64_t rows = operation.grad_table.shape[0];
    float* const grad_table = context.data<float>(operation.grad_table);
    const float* const grad_out = context.data<float>(operation.grad_out);
    const std::int32_t* const ids = context.data<std::int32_t>(operation.ids);
    if (columns == 0) return;
    context.threads.parallel_for(pieces(rows, kRowsPerPiece), [&](std::int64_t piece) {
        const std::int64_t begin = piece * kRowsPerPiece;
        const std::int64_t end = std::min(rows, begin + kRowsPerPiece);
        std::memset(grad_table + begin * columns, 0, float_bytes((end - begin) * columns));
    });
    // A token may occur in any row of the table, so pieces are columns: each adds all tokens in their order.
    context.threads.parallel_for(pieces(columns, kColumnsPerPiece), [&](std::int64_t piece) {
        const std::int64_t begin = piece * kColumnsPerPiece;
        const std::int64_t width = std::min(columns - begin, kColumnsPerPiece);
        for (std::int64_t i = 0; i < tokens; ++i) {
            add_to(grad_table + ids[i] * columns + begin, grad_out + i * columns + begin, width);
        }
    });
}

void run(const Context& context, const PositionForward& operation) {
    const std::int64_t batch = operation.x.shape[0];
    const std::int64_t length = operation.x.shape[1];
    const std::int64_t columns = operation.x.shape[2];
    float* const x = context.data<float>(operation.x);
    const float* const positions = context.data<float>(operation.positions);
    context.threads.parallel_for(pieces(batch * length, kRowsPerPiece), [&](std::int64_t piece) {
        const std::int64_t end = std::min(batch * length, (piece + 1) * kRowsPerPiece);
        for (std::int64_t row = piece * kRowsPerPiece; row < end; ++row) {
            add_to(x + row * columns, positions + row % length * columns, columns);
        }
    });
}

void run(const Context& context, const PositionBackward& operation) {
    const std::int64_t batch = operation.grad_x.shape[0];
    const std::int64_t length = operation.grad_x.shape[1];
    const std::int64_t columns = operation.grad_x.shape[2];
    const std::int64_t rows = operation.grad_positions.shape[0];
    float* const grad_positions = context.data<float>(operation.grad_positions);
    const float* const grad_x = context.data<float>(operation.grad_x);
    if (columns == 0) return;
    context.threads.parallel_for(pieces(rows, kRowsPerPiece), [&](std::int64_t piece) {
        const std::int64_t end = std::min(rows, (piece + 1) * kRowsPerPiece);
        for (std::int64_t row = piece * kRowsPerPiece; row < end; ++row) {
            float* const target = grad_positions + row * columns;
            if (row >= length || batch == 0) {
                std::memset(target, 0, float_bytes(columns));
                continue;
            }
            std::memcpy(target, grad_x + row * columns, float_bytes(columns));
            for (std::int64_t b = 1; b < batch; ++b) add_to(target, grad_x + (b * length + row) * columns, columns);
        }
    });
}

}  // namespace mfsdp::device::cpu
