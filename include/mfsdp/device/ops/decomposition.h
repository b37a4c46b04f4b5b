#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace mfsdp::device {

// Decompositions of symmetric matrices. Each task of an operation is one matrix and runs on one thread, the tasks of an
// operation run side by side: a library with several threads would give other bits. Tasks may wait for the host where
// the device asks for it. Memory of the solver is part of `workspace`.

/// What became of a task, an int64 [1] on the device.
enum class TaskStatus : std::int64_t {
    done = 0,
    zero = 1,        ///< the matrix is zero and has nothing to decompose
    failed = 2,      ///< neither float32 nor float64 gave an acceptable result
    not_finite = 3,  ///< the matrix holds an infinity or NaN
};

/// At most so many tasks in one operation.
inline constexpr std::int64_t kMaxTasks = 16;

/// root = V diag((max(lambda, 0) + e)^(-1/order)) V^T of A = factor_scale * (factor + factor^T) / 2 with the
/// eigenvalues lambda and vectors V, by a symmetric solver on A / max|A|: the first accepted of one in float32 and one
/// in float64.
///
/// A task keeps its root as it is unless its status becomes `done`. Accepted is what is finite, with
/// max|V^T V - I| < 1e-4 and |A V - V diag(lambda)| < 1e-4 |A|.
/// factor, root [n, n] float32 dense; status [1] int64
/// workspace    float32 [sum over tasks of task_floats(n)], at a multiple of 64 bytes
/// e = epsilon * largest eigenvalue if `relative`, else epsilon. Source: docs/optimizers.md, Shampoo.
struct InverseRoots {
    static constexpr std::string_view kName = "inverse_roots";
    struct Task {
        Tensor factor, root, status;
    };
    std::array<Task, kMaxTasks> tasks{};
    std::int64_t count = 0;
    Tensor workspace;
    std::int64_t order = 4;  ///< 1, 2, 3, ...
    double factor_scale = 1.0;
    double epsilon = 1e-6;
    bool relative = true;

    [[nodiscard]] static std::int64_t task_floats(std::int64_t n);
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// The same root by the coupled Newton iteration, on all threads; order 2, 4 or 8. Error in float32 for order 4 and
/// condition 1e2 / 1e4 / 1e6: 6e-7, 1.3e-5, 9e-4. The largest eigenvalue of a relative e is that of 100 power steps.
///
/// `status` as above, `failed` where the error max|Y - I| ends above 0.1. workspace float32 [workspace_floats(n)]
/// Counted with 20 rounds; the iteration stops after 100.
struct NewtonRoot {
    static constexpr std::string_view kName = "newton_root";
    Tensor factor, root, status, workspace;
    std::int64_t order = 4;
    double factor_scale = 1.0;
    double epsilon = 1e-6;
    bool relative = true;

    static constexpr std::int64_t kCountedRounds = 20;
    [[nodiscard]] static std::int64_t workspace_floats(std::int64_t n);
    /// Products in one round: X N, the powers of N, N^order Y.
    [[nodiscard]] std::int64_t products_in_round() const;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// basis = the eigenvectors of (factor + factor^T) / 2 as columns, largest eigenvalue first, found and accepted as
/// above; the identity unless the status becomes `done`. Shapes and workspace as above.
struct SymmetricBases {
    static constexpr std::string_view kName = "symmetric_bases";
    struct Task {
        Tensor factor, basis, status;
    };
    std::array<Task, kMaxTasks> tasks{};
    std::int64_t count = 0;
    Tensor workspace;

    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// One step of orthogonal iteration on an eigenbasis Q of A, from T = A Q (docs/optimizers.md, SOAP, line 8):
/// energy_j = Q[:, j] . T[:, j], order = stable sort by falling energy, product = Q factor of the Householder QR of
/// T[:, order].
///
/// product  [n, n] float32 dense: T, replaced by the new basis; by `basis` unless the status becomes `done`
/// basis    [n, n] float32 dense: Q
/// order    [n] int64: order[j] is the old place of the new column j; 0, 1, 2, ... unless the status becomes `done`
/// workspace  float32 [sum over tasks of task_floats(n)]
/// `zero` where T is zero; `failed` where the result is not finite or max|Q^T Q - I| >= 1e-4.
struct OrthonormalBases {
    static constexpr std::string_view kName = "orthonormal_bases";
    struct Task {
        Tensor product, basis, order, status;
    };
    std::array<Task, kMaxTasks> tasks{};
    std::int64_t count = 0;
    Tensor workspace;

    [[nodiscard]] static std::int64_t task_floats(std::int64_t n);
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out = in if the task of `status` is done, else out stays. float32, dense, same shape, apart.
struct AcceptedCopy {
    static constexpr std::string_view kName = "accepted_copy";
    Tensor out, in, status;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// failures [1] int64 counts refreshes in a row that failed: 0 if no task of `statuses` [k] int64 did, else one more;
/// kNotFinite more if a matrix was not finite.
struct CountFailures {
    static constexpr std::string_view kName = "count_failures";
    static constexpr std::int64_t kNotFinite = std::int64_t{1} << 32;
    Tensor failures, statuses;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out[i, j] = in[row_order[i], column_order[j]], float32 [m, n] dense, apart; orders int64 [m], [n] permutations, an
/// undefined one leaves its side as it is.
struct Permute {
    static constexpr std::string_view kName = "permute";
    Tensor out, in;
    Tensor row_order{}, column_order{};
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
