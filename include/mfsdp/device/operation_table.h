#pragma once

#include "mfsdp/device/ops/activation.h"
#include "mfsdp/device/ops/attention.h"
#include "mfsdp/device/ops/cross_entropy.h"
#include "mfsdp/device/ops/decomposition.h"
#include "mfsdp/device/ops/elementwise.h"
#include "mfsdp/device/ops/embedding.h"
#include "mfsdp/device/ops/matmul.h"
#include "mfsdp/device/ops/moments.h"
#include "mfsdp/device/ops/norm.h"
#include "mfsdp/device/ops/optimizer.h"
#include "mfsdp/device/ops/qk_clip.h"
#include "mfsdp/device/ops/row_moment.h"
#include "mfsdp/device/ops/symmetric.h"

namespace mfsdp::device {

/// The one list of all device operations. Every backend implements every entry, or does not compile.
using OperationTable = OperationSlots<                                            //
    Matmul,                                                                       // matrix products
    Fill, Copy, Add, ScaledAdd, Transpose, CopyFromHost, CopyToHost, FillNormal,  // elementwise and copies
    EmbeddingForward, EmbeddingBackward, PositionForward, PositionBackward,       // embeddings
    LayerNormForward, LayerNormBackward, RmsNormForward, RmsNormBackward,         // normalisation
    GeluForward, GeluBackward, SwiGluForward, SwiGluBackward, ColumnSum,          // MLP
    Rotary, AttentionForward, AttentionBackward,                                  // attention
    LogSumExpUpdate, CrossEntropyBackward, LossSum,                               // head
    AdamWStep, MomentumUpdate, BlockSquareSums, NormOfSquareSums, FrobeniusNorm, DivideByNorm, WeightUpdate,
    SquareSum,                                                       // optimizers
    RowMoment, DivideRows, ScaleByRatio, CautiousUpdate, QkClip,     // NorMuon, cautious decay, QK-clip
    ScaleGradient, GraftMoments, GraftDirection, EigenbasisMoments,  // Shampoo and SOAP, elementwise
    SymmetricProduct, AddToDiagonal, FillIdentity,                   // symmetric matrices
    InverseRoots, NewtonRoot, SymmetricBases, OrthonormalBases,      // decompositions
    AcceptedCopy, CountFailures, Permute>;                           // what follows them

}  // namespace mfsdp::device
