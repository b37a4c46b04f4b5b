#pragma once

#include "mfsdp/device/operation_table.h"

#include "device/cuda/scratch.h"

#include <cuda_runtime.h>

namespace mfsdp::device::cuda {

class FusedAttention;
class HostCopies;
class Products;
class Solver;

/// What a kernel needs beside its operation.
struct Context {
    cudaStream_t stream = nullptr;
    /// Multiprocessors of the GPU, for the number of blocks; results must not depend on it.
    int multiprocessors = 1;
    /// The same bits on every run, whatever it costs.
    bool deterministic = true;
    Products& products;                         ///< plans of matrix products
    Solver& solver;                             ///< of dense matrices
    Scratch& scratch;                           ///< of the stream
    HostCopies& host_copies;                    ///< pinned memory of the stream
    FusedAttention* fused_attention = nullptr;  ///< null: our own kernels alone
};

/// The memory of a tensor; null if the tensor is undefined.
template <class T>
[[nodiscard]] T* data(const Tensor& tensor) {
    return reinterpret_cast<T*>(tensor.data);
}

// One function for each operation of the table, usually in src/device/cuda/<file of the operation's header>.cu.
// Arguments have been checked. It issues its work to the stream and returns; nothing is launched for empty results.
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

}  // namespace mfsdp::device::cuda
