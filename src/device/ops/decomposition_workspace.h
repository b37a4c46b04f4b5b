#pragma once

#include <cstdint>

namespace mfsdp::device {

// How the operations of mfsdp/device/ops/decomposition.h divide their workspace, on every backend alike. All numbers
// are floats. Pieces of a task begin on lines of the cache, since the bits of solvers may depend on where their memory
// does.

/// Gives the beginnings of pieces that follow one another.
class WorkspaceCut {
  public:
    [[nodiscard]] constexpr std::int64_t take(std::int64_t floats) {
        constexpr std::int64_t kLine = 16;
        const std::int64_t begin = end_;
        end_ += (floats + kLine - 1) / kLine * kLine;
        return begin;
    }
    [[nodiscard]] constexpr std::int64_t end() const { return end_; }

  private:
    std::int64_t end_ = 0;
};

/// A task of InverseRoots or SymmetricBases.
struct SolverPieces {
    std::int64_t vectors = 0;  ///< n^2
    std::int64_t work = 0;     ///< work_floats(n)
    std::int64_t values = 0;   ///< n float64
    std::int64_t scalars = 0;  ///< n
    std::int64_t words = 0;    ///< word_count(n) of 32 bits: the solver's integers, or what it found out
    std::int64_t end = 0;

    constexpr explicit SolverPieces(std::int64_t n) {
        WorkspaceCut cut;
        vectors = cut.take(n * n);
        work = cut.take(work_floats(n));
        values = cut.take(2 * n);
        scalars = cut.take(n);
        words = cut.take(word_count(n));
        end = cut.end();
    }

    /// The working memory of the solver, 2 n^2 + 6 n + 1, later of the scaled matrix and blocks of up to 256 rows of
    /// the acceptance test; or of a matrix in float64 with its solver's 34 n.
    [[nodiscard]] static constexpr std::int64_t work_floats(std::int64_t n) { return 2 * n * n + 128 * n + 64; }
    [[nodiscard]] static constexpr std::int64_t word_count(std::int64_t n) { return 5 * n + 3; }
};

/// A task of OrthonormalBases.
struct BasisPieces {
    std::int64_t columns = 0;   ///< n^2: of A Q in the new order, then of the new basis
    std::int64_t scalars = 0;   ///< n
    std::int64_t work = 0;      ///< kWorkRows n: of the solver, then blocks of rows of the acceptance test
    std::int64_t energies = 0;  ///< n float64
    std::int64_t end = 0;

    static constexpr std::int64_t kWorkRows = 256;

    constexpr explicit BasisPieces(std::int64_t n) {
        WorkspaceCut cut;
        columns = cut.take(n * n);
        scalars = cut.take(n);
        work = cut.take(kWorkRows * n);
        energies = cut.take(2 * n);
        end = cut.end();
    }
};

/// NewtonRoot: matrices, then what its backend needs beside them.
struct NewtonPieces {
    static constexpr std::int64_t kMatrices = 6;

    std::int64_t vectors;  ///< 2 n
    std::int64_t end;

    constexpr explicit NewtonPieces(std::int64_t n) : vectors(kMatrices * n * n), end(vectors + 2 * n) {}
};

}  // namespace mfsdp::device
