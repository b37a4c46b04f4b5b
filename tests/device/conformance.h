#pragma once

// Conformance of the device operations: one table of rows, run on every backend.
//
// A row is one operation at one set of shapes: its arguments (shape, type, how they are filled, whether rows may have
// gaps), how the operation is made from them, what it must give (a plain loop in double precision that shares nothing
// with the kernels) and how far a result may lie from that.
//
// For every row and every backend the test (conformance_test.cpp) fills the arguments from the row's seed, surrounds
// each with guard elements, poisons pure outputs with NaN, launches the operation through a stream and asserts that
// - outputs agree with the reference within the tolerance; a NaN on one side fails, and so does a row that compared
//   nothing unless it says `empty_allowed`;
// - guards, gaps between rows, and arguments that are only read keep every bit;
// - outputs have the same bits for every number of threads of the backend, for addresses off by one element, and for
//   arguments with gaps where the row allows them.
//
// To add a row: find the file conformance_<header of the operation>_test.cpp and append to its list, e.g.
//
//     rows.push_back(row<Add>("n=7", {input("a", {7}), input("b", {7}), output("out", {7})},
//                             [](Tensors t) { return Add{t[2], t[0], t[1]}; },
//                             [](Values& v) { for (std::size_t i = 0; i < 7; ++i) v[2][i] = v[0][i] + v[1][i]; },
//                             Tolerance{.of_value = 1e-7}));
//
// Arguments are numbered in the order of the list. An argument that is read and written is `in_out`; an operation in
// place is a row whose `make` uses one such argument twice. To add an operation: rows for it; a test counts them. To
// add a backend: one line in the functions below.

#include "mfsdp/device/device.h"
#include "mfsdp/device/tensor.h"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mfsdp::device::conformance {

using Shape = std::vector<std::int64_t>;
/// Elements of every argument, row-major without gaps, in double.
using Values = std::vector<std::vector<double>>;
using Tensors = std::span<const Tensor>;
using Random = std::mt19937_64;
/// Value of element `index`; rounded to the argument's type afterwards.
using Filling = std::function<double(std::int64_t index, Random& random)>;

[[nodiscard]] Filling normal(double standard_deviation = 1.0);
[[nodiscard]] Filling uniform(double low, double high);
[[nodiscard]] Filling integers(std::int64_t low, std::int64_t high);  ///< [low, high)
[[nodiscard]] Filling list(std::vector<double> values);               ///< repeated when it is too short

enum class Access { read, write, read_and_write };
/// Whether the operation takes the argument with gaps between rows (its last dimension is always contiguous).
enum class Gaps { forbidden, allowed };

/// |result - reference| <= of_value |reference| + of_largest max |reference of this output|. Both 0: the result is the
/// reference rounded to float32 and then to the output's type. Outputs of 16 bits may lie half the distance between two
/// neighbours further off, and no more: arithmetic is float32 and a result is rounded once.
struct Tolerance {
    double of_value = 0.0;
    double of_largest = 0.0;
};

struct ArgumentOfRow {
    std::string name;
    Shape shape;
    Access access = Access::read;
    Filling filling;
    DType dtype = DType::float32;
    Gaps gaps = Gaps::forbidden;
    std::optional<Tolerance> tolerance{};  ///< of this output, in place of the row's
};

[[nodiscard]] ArgumentOfRow input(std::string name, Shape shape, Filling filling = normal(),
                                  Gaps gaps = Gaps::forbidden, DType dtype = DType::float32);
[[nodiscard]] ArgumentOfRow output(std::string name, Shape shape, Gaps gaps = Gaps::forbidden,
                                   DType dtype = DType::float32);
[[nodiscard]] ArgumentOfRow in_out(std::string name, Shape shape, Filling filling = normal(),
                                   Gaps gaps = Gaps::forbidden, DType dtype = DType::float32);

struct Row {
    std::string_view operation;
    std::string parameters;
    std::vector<ArgumentOfRow> arguments;
    std::function<void(Stream&, Tensors)> launch;
    /// Gets the initial values and replaces those of the outputs.
    std::function<void(Values&)> reference;
    Tolerance tolerance;
    std::optional<Tolerance> gpu_tolerance{};  ///< where a library of the GPU computes it with other roundings
    std::uint64_t seed = 1;
    bool empty_allowed = false;
};

/// A row of operation `Op`; `make(Tensors)` gives the operation.
template <class Op, class Make>
[[nodiscard]] Row row(std::string parameters, std::vector<ArgumentOfRow> arguments, Make make,
                      std::function<void(Values&)> reference, Tolerance tolerance) {
    const auto issue = [make](Stream& stream, Tensors tensors) { device::launch(stream, Op(make(tensors))); };
    return Row{Op::kName, std::move(parameters), std::move(arguments), issue, std::move(reference), tolerance};
}

/// "n=3 C=8" from {{"n", 3}, {"C", 8}}, for the names of rows.
[[nodiscard]] std::string sizes(std::initializer_list<std::pair<const char*, std::int64_t>> named);

/// "" if all are float32, else " bfloat16 float32" and the like, for the names of rows.
[[nodiscard]] std::string suffix(std::initializer_list<DType> types);
/// value as an element of the type holds it: rounded to float32 first if it has 16 bits.
[[nodiscard]] double as_stored(double value, DType dtype);

/// The same row, for shapes without elements.
[[nodiscard]] inline Row allow_empty(Row row) {
    row.empty_allowed = true;
    return row;
}

struct Backend {
    std::string name;
    std::vector<int> threads;  ///< the bits must not depend on which
    std::function<std::unique_ptr<Device>(int threads)> make;
};
[[nodiscard]] std::vector<Backend> cpu_backends();
/// Work done at once in the order of threads, or `late`: by the streams' own threads, after pauses, from the last
/// thread of a block. Empty, with a warning, in builds without a CUDA toolkit.
[[nodiscard]] std::vector<Backend> emulated_cuda_backends(bool late);
/// The GPU of this machine through the library beside this program; empty, with a warning, where there is none.
[[nodiscard]] std::vector<Backend> gpu_backends();

// One function for each header of operations, in conformance_<header>_test.cpp.
[[nodiscard]] std::vector<Row> matmul_rows();
[[nodiscard]] std::vector<Row> elementwise_rows();
[[nodiscard]] std::vector<Row> embedding_rows();
[[nodiscard]] std::vector<Row> norm_rows();
[[nodiscard]] std::vector<Row> activation_rows();
[[nodiscard]] std::vector<Row> attention_rows();
[[nodiscard]] std::vector<Row> cross_entropy_rows();
[[nodiscard]] std::vector<Row> optimizer_rows();
[[nodiscard]] std::vector<Row> symmetric_rows();
[[nodiscard]] std::vector<Row> decomposition_rows();
[[nodiscard]] std::vector<Row> moments_rows();
[[nodiscard]] std::vector<Row> row_moment_rows();
[[nodiscard]] std::vector<Row> qk_clip_rows();
[[nodiscard]] std::vector<Row> all_rows();

/// Empty if `result` agrees with `reference`, else a sentence with the first element that does not.
[[nodiscard]] std::string disagreement(std::span<const double> result, std::span<const double> reference,
                                       Tolerance tolerance, DType dtype);

}  // namespace mfsdp::device::conformance
