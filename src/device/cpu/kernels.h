#pragma once

#include "mfsdp/device/cpu_device.h"
#include "mfsdp/device/operation_table.h"

#include "device/cpu/product.h"
#include "device/cpu/thread_pool.h"

#include <cstddef>

namespace mfsdp::device::cpu {

/// What a kernel needs beside its operation: threads, and the way from a device address to memory.
struct Context {
    ThreadPool& threads;
    /// Added to a device address to reach its memory: 0, or the distance of the guard mode's reservation.
    std::ptrdiff_t displacement = 0;
    /// Libraries that compute panels of matrix products.
    LibraryProducts products{};
    /// Which decompositions are made to fail, for tests.
    SolverFault solver_fault = SolverFault::none;

    template <class T>
    [[nodiscard]] T* data(const Tensor& tensor) const {
        return tensor.data == nullptr ? nullptr : reinterpret_cast<T*>(tensor.data + displacement);
    }
};

/// Elements between the rows of a matrix; a 1-D tensor is one row.
[[nodiscard]] inline std::int64_t row_stride(const Tensor& matrix) {
    return matrix.rank == 2 ? matrix.strides[0] : matrix.columns();
}

// One kernel for each operation of the table, usually in src/device/cpu/<file of the operation's header>.cpp. Arguments
// have been checked. The kernel returns when its result is written.
void run(const Context& context, const Matmul& operation);
void run(const Context& context, const Fill& operation);
void run(const Context& context, const Copy& operation);
void run(const Context& context, const Add& operation);
void run(const Context& context, const ScaledAdd& operation);
void run(const Context& context, const Transpose& operation);
void run(const Context& context, const CopyFromHost& operation);
void run(const Context& context, const CopyToHost& operation);
void run(const Context& context, const FillNormal& operation);
void run(const Context& context, const EmbeddingForward& operation);
void run(const Context& context, const EmbeddingBackward& operation);
void run(const Context& context, const PositionForward& operation);
void run(const Context& context, const PositionBackward& operation);
void run(const Context& context, const LayerNormForward& operation);
void run(const Context& context, const LayerNormBackward& operation);
void run(const Context& context, const RmsNormForward& operation);
void run(const Context& context, const RmsNormBackward& operation);
void run(const Context& context, const GeluForward& operation);
void run(const Context& context, const GeluBackward& operation);
void run(const Context& context, const SwiGluForward& operation);
void run(const Context& context, const SwiGluBackward& operation);
void run(const Context& context, const ColumnSum& operation);
void run(const Context& context, const Rotary& operation);
void run(const Context& context, const AttentionForward& operation);
void run(const Context& context, const AttentionBackward& operation);
void run(const Context& context, const LogSumExpUpdate& operation);
void run(const Context& context, const CrossEntropyBackward& operation);
void run(const Context& context, const LossSum& operation);
void run(const Context& context, const AdamWStep& operation);
void run(const Context& context, const MomentumUpdate& operation);
void run(const Context& context, const BlockSquareSums& operation);
void run(const Context& context, const NormOfSquareSums& operation);
void run(const Context& context, const FrobeniusNorm& operation);
void run(const Context& context, const DivideByNorm& operation);
void run(const Context& context, const WeightUpdate& operation);
void run(const Context& context, const SquareSum& operation);
void run(const Context& context, const RowMoment& operation);
void run(const Context& context, const DivideRows& operation);
void run(const Context& context, const ScaleByRatio& operation);
void run(const Context& context, const CautiousUpdate& operation);
void run(const Context& context, const QkClip& operation);
void run(const Context& context, const ScaleGradient& operation);
void run(const Context& context, const GraftMoments& operation);
void run(const Context& context, const GraftDirection& operation);
void run(const Context& context, const EigenbasisMoments& operation);
void run(const Context& context, const SymmetricProduct& operation);
void run(const Context& context, const AddToDiagonal& operation);
void run(const Context& context, const FillIdentity& operation);
void run(const Context& context, const InverseRoots& operation);
void run(const Context& context, const NewtonRoot& operation);
void run(const Context& context, const SymmetricBases& operation);
void run(const Context& context, const OrthonormalBases& operation);
void run(const Context& context, const AcceptedCopy& operation);
void run(const Context& context, const CountFailures& operation);
void run(const Context& context, const Permute& operation);

}  // namespace mfsdp::device::cpu
