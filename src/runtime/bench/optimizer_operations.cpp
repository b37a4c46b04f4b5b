#include "mfsdp/base/exact_sum.h"
#include "mfsdp/device/operation_table.h"

#include "runtime/bench/case_list.h"

#include <algorithm>
#include <numeric>

namespace mfsdp::runtime {

namespace {

using namespace device;

class OptimizerCases {
  public:
    OptimizerCases(CaseList& cases, const model::ModelSpec& spec, const model::ParameterSpec& largest)
        : cases_(cases), spec_(spec), rows_(largest.rows()), columns_(largest.columns()) {}

    void add() {
        add_common();
        add_row_steps();
        add_moments();
        add_symmetric();
        add_decompositions();
    }

  private:
    void add_common() {
        const std::int64_t r = rows_, c = columns_;
        constexpr DType kFloat = DType::float32;  // masters, gradients' sums and states
        const auto matrix = [r, c](Workbench& bench) { return bench.tensor(kFloat, {r, c}); };
        const auto sums = [r, c](Workbench& bench) {
            return bench.tensor(DType::float64, {std::min(r, c), square_sums_of(std::max(r, c))});
        };
        cases_.add<AdamWStep>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            // Squares are not negative.
            const Tensor squares = matrix(bench);
            launch(bench.stream(), Fill{squares, 1.0});
            AdamWStep step{.count = 1};
            step.tasks[0] = {
                .weight = matrix(bench), .exp_avg = matrix(bench), .exp_avg_sq = squares, .gradient = matrix(bench)};
            return step;
        });
        cases_.add<MomentumUpdate>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return MomentumUpdate{matrix(bench), matrix(bench), matrix(bench), sums(bench), r > c};
        });
        cases_.add<BlockSquareSums>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return BlockSquareSums{sums(bench), matrix(bench), r > c};
        });
        cases_.add<NormOfSquareSums>("of the largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return NormOfSquareSums{bench.tensor(DType::float64, {1}), sums(bench)};
        });
        cases_.add<FrobeniusNorm>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return FrobeniusNorm{bench.tensor(DType::float64, {1}), matrix(bench)};
        });
        cases_.add<DivideByNorm>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            const Tensor norm = bench.tensor(DType::float64, {1});
            launch(bench.stream(), Fill{norm, 2.0});
            return DivideByNorm{matrix(bench), matrix(bench), norm};
        });
        cases_.add<WeightUpdate>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return WeightUpdate{.weight = matrix(bench), .direction = matrix(bench)};
        });
        cases_.add<SquareSum>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return SquareSum{bench.tensor(DType::int64, {ExactSum::kWords + 1}), matrix(bench)};
        });
    }

    /// NorMuon, cautious decay and QK-clip.
    void add_row_steps() {
        const std::int64_t r = rows_, c = columns_;
        const auto matrix = [r, c](Workbench& bench) { return bench.tensor(DType::float32, {r, c}); };
        const auto one = [](Workbench& bench) {
            const Tensor value = bench.tensor(DType::float64, {1});
            launch(bench.stream(), Fill{value, 1.0});
            return value;
        };
        cases_.add<RowMoment>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return RowMoment{bench.tensor(DType::float32, {r}), matrix(bench)};
        });
        cases_.add<DivideRows>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            const Tensor moment = bench.tensor(DType::float32, {r});
            launch(bench.stream(), Fill{moment, 1.0});
            return DivideRows{matrix(bench), matrix(bench), moment};
        });
        cases_.add<ScaleByRatio>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return ScaleByRatio{matrix(bench), matrix(bench), one(bench), one(bench)};
        });
        cases_.add<CautiousUpdate>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return CautiousUpdate{matrix(bench), matrix(bench)};
        });
        const model::ModelConfig& config = spec_.config;
        const std::int64_t heads = config.num_attention_heads, d = config.head_dim, h = config.hidden_size;
        cases_.add<QkClip>("queries", {heads * d, h}, [=](Workbench& bench) {
            // Every head is above the threshold, and scaled by nearly 1 so that repeats change little.
            const Tensor logits = bench.tensor(DType::float32, {heads});
            launch(bench.stream(), Fill{logits, 100.001});
            return QkClip{.weight = bench.tensor(DType::float32, {heads * d, h}),
                          .logits = logits,
                          .key_heads = heads,
                          .rows_in_group = d};
        });
    }

    /// The elementwise part of Shampoo and SOAP.
    void add_moments() {
        const std::int64_t r = rows_, c = columns_;
        const auto matrix = [r, c](Workbench& bench) { return bench.tensor(DType::float32, {r, c}); };
        const auto squares = [matrix](Workbench& bench) {
            const Tensor tensor = matrix(bench);
            launch(bench.stream(), Fill{tensor, 1.0});
            return tensor;
        };
        cases_.add<ScaleGradient>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return ScaleGradient{matrix(bench), matrix(bench)};
        });
        cases_.add<GraftMoments>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return GraftMoments{
                .out = matrix(bench), .momentum = matrix(bench), .square = squares(bench), .gradient = matrix(bench)};
        });
        cases_.add<GraftDirection>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return GraftDirection{
                .average = matrix(bench), .graft = matrix(bench), .momentum = matrix(bench), .square = squares(bench)};
        });
        cases_.add<EigenbasisMoments>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            return EigenbasisMoments{.out = matrix(bench),
                                     .exp_avg = matrix(bench),
                                     .exp_avg_sq = squares(bench),
                                     .gradient = matrix(bench)};
        });
        cases_.add<Permute>("largest matrix of a block", {r, c}, [=](Workbench& bench) {
            const Tensor reversed = bench.tensor(DType::int64, {c});
            std::vector<std::int64_t> order(static_cast<std::size_t>(c));
            std::iota(order.rbegin(), order.rend(), std::int64_t{0});
            launch(bench.stream(), CopyFromHost{reversed, order.data()});
            bench.stream().synchronize();
            return Permute{.out = matrix(bench), .in = matrix(bench), .column_order = reversed};
        });
    }

    void add_symmetric() {
        const std::int64_t s = std::min(rows_, columns_);
        const std::int64_t l = std::max(rows_, columns_);
        for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
            const std::string of_type = " in " + std::string(name(type));
            cases_.add<SymmetricProduct>("X X^T" + of_type, {s, s, l}, [=](Workbench& bench) {
                return SymmetricProduct{.out = bench.tensor(type, {s, s}), .a = bench.tensor(type, {s, l})};
            });
            cases_.add<SymmetricProduct>("b A + c A A" + of_type, {s, s, s}, [=](Workbench& bench) {
                const Tensor out = bench.tensor(type, {s, s});
                launch(bench.stream(), Fill{out, 0.0});
                return SymmetricProduct{.out = out, .a = bench.tensor(type, {s, s}), .beta = 0.5F};
            });
        }
        cases_.add<AddToDiagonal>("smaller side of the largest matrix", {s, s}, [=](Workbench& bench) {
            return AddToDiagonal{bench.tensor(DType::float32, {s, s}), 0.5F};
        });
        cases_.add<FillIdentity>("smaller side of the largest matrix", {s, s}, [=](Workbench& bench) {
            return FillIdentity{bench.tensor(DType::float32, {s, s})};
        });
    }

    /// A symmetric matrix of rapidly falling eigenvalues, as factors are: G G^T plus little on the diagonal.
    static Tensor factor(Workbench& bench, std::int64_t n) {
        const Tensor half = bench.tensor(DType::float32, {n, n}), result = bench.tensor(DType::float32, {n, n});
        launch(bench.stream(), SymmetricProduct{.out = result, .a = half});
        return result;
    }

    void add_decompositions() {
        const std::int64_t n = std::min(rows_, columns_);
        const auto status = [](Workbench& bench) { return bench.tensor(DType::int64, {1}); };
        const auto square = [n](Workbench& bench) { return bench.tensor(DType::float32, {n, n}); };
        const auto scratch = [](Workbench& bench, std::int64_t floats) {
            return bench.tensor(DType::float32, {floats});
        };
        cases_.add<InverseRoots>("smaller side of the largest matrix", {n, n}, [=](Workbench& bench) {
            InverseRoots roots;
            roots.tasks[0] = {factor(bench, n), square(bench), status(bench)};
            roots.count = 1;
            roots.workspace = scratch(bench, InverseRoots::task_floats(n));
            return roots;
        });
        cases_.add<NewtonRoot>("smaller side of the largest matrix", {n, n}, [=](Workbench& bench) {
            return NewtonRoot{.factor = factor(bench, n),
                              .root = square(bench),
                              .status = status(bench),
                              .workspace = scratch(bench, NewtonRoot::workspace_floats(n))};
        });
        cases_.add<SymmetricBases>("smaller side of the largest matrix", {n, n}, [=](Workbench& bench) {
            SymmetricBases bases;
            bases.tasks[0] = {factor(bench, n), square(bench), status(bench)};
            bases.count = 1;
            bases.workspace = scratch(bench, InverseRoots::task_floats(n));
            return bases;
        });
        cases_.add<OrthonormalBases>("smaller side of the largest matrix", {n, n}, [=](Workbench& bench) {
            OrthonormalBases bases;
            bases.tasks[0] = {square(bench), square(bench), bench.tensor(DType::int64, {n}), status(bench)};
            bases.count = 1;
            bases.workspace = scratch(bench, OrthonormalBases::task_floats(n));
            return bases;
        });
        cases_.add<AcceptedCopy>("smaller side of the largest matrix", {n, n}, [=](Workbench& bench) {
            return AcceptedCopy{square(bench), square(bench), status(bench)};
        });
        cases_.add<CountFailures>("two sides", {2}, [=](Workbench& bench) {
            return CountFailures{bench.tensor(DType::int64, {1}), bench.tensor(DType::int64, {2})};
        });
    }

    CaseList& cases_;
    const model::ModelSpec& spec_;
    std::int64_t rows_, columns_;
};

}  // namespace

void add_optimizer_cases(CaseList& cases, const model::ModelSpec& spec, const model::ParameterSpec& largest) {
    OptimizerCases(cases, spec, largest).add();
}

}  // namespace mfsdp::runtime
