#include "device/ops/newton_iteration.h"

#include "support/catch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace mfsdp::device {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Primitives that follow a script: every product leaves its number where it is written, errors are those of a list,
/// and the root is the number of the X that it was made of.
class ScriptedPrimitives {
  public:
    explicit ScriptedPrimitives(std::vector<double> errors) : errors_(std::move(errors)) {}

    ScaledFactor scaled{};
    double eigenvalue = 1.0;
    mutable int products = 0, rounds = 0;
    mutable float root = -1.0F, ridge = -1.0F, z_of_y = -1.0F, back = -1.0F;

    [[nodiscard]] ScaledFactor scale(const Tensor& /*y*/) const { return scaled; }
    [[nodiscard]] double largest_eigenvalue(const Tensor& /*y*/) const { return eigenvalue; }
    void add_ridge(const Tensor& /*y*/, float value) const { ridge = value; }
    [[nodiscard]] double norm(const Tensor& /*y*/) const { return 2.0; }
    void start(const Tensor& /*y*/, const Tensor& x, float factor, float /*z_of_x*/) const {
        z_of_y = factor;
        at(x) = 0.0F;
    }
    [[nodiscard]] float error(const Tensor& /*y*/) const {
        const auto last = errors_.size() - 1;
        return static_cast<float>(errors_[std::min(static_cast<std::size_t>(rounds), last)]);
    }
    void write_step(const Tensor& /*step*/, const Tensor& /*y*/, float /*diagonal*/, float /*factor*/) const {
        ++rounds;
    }
    void multiply(const Tensor& out, const Tensor& /*a*/, const Tensor& /*b*/) const {
        at(out) = static_cast<float>(++products);
    }
    void write_root(const Tensor& x, float factor) const {
        root = at(x);
        back = factor;
    }

  private:
    [[nodiscard]] static float& at(const Tensor& tensor) { return *reinterpret_cast<float*>(tensor.data); }

    std::vector<double> errors_;
};

/// Runs the iteration of a matrix of one element.
TaskStatus run(const ScriptedPrimitives& primitives, std::int64_t order, bool relative = true) {
    std::array<float, 8> memory{};
    float factor = 1.0F;
    const auto tensor = [](float* address, std::initializer_list<std::int64_t> shape) {
        return Tensor::dense(reinterpret_cast<std::byte*>(address), DType::float32, shape);
    };
    REQUIRE(NewtonRoot::workspace_floats(1) == std::ssize(memory));
    const NewtonRoot operation{.factor = tensor(&factor, {1, 1}),
                               .root = {},
                               .status = {},
                               .workspace = tensor(memory.data(), {8}),
                               .order = order,
                               .factor_scale = 4.0,
                               .epsilon = 0.25,
                               .relative = relative};
    return NewtonIteration(operation, primitives).run();
}

}  // namespace

TEST_CASE("the coupled Newton iteration ends when its error is small, and makes the root of the last X") {
    for (const std::int64_t order : {2, 4, 8}) {
        ScriptedPrimitives primitives({0.5, 0.02, 1e-7});
        primitives.scaled.largest = 4.0F;
        CHECK(run(primitives, order) == TaskStatus::done);
        CHECK(primitives.rounds == 2);
        NewtonRoot counted;
        counted.order = order;
        CHECK(primitives.products == 2 * counted.products_in_round());
        CHECK(primitives.root == static_cast<float>(counted.products_in_round() + 1));
        CHECK(primitives.back == Approx(std::pow(16.0, -1.0 / static_cast<double>(order))));
        CHECK(primitives.z_of_y == Approx((static_cast<double>(order) + 1.0) / 4.0));
    }
}

TEST_CASE("the coupled Newton iteration takes the X before a round whose error grew, if that is a root") {
    ScriptedPrimitives grows({0.5, 0.02, 0.03});
    grows.scaled.largest = 1.0F;
    CHECK(run(grows, 2) == TaskStatus::done);
    CHECK(grows.rounds == 2);
    CHECK(grows.root == 1.0F);  // the first product is that of the first round's X
    ScriptedPrimitives breaks({0.5, 0.02, kInfinity});
    breaks.scaled.largest = 1.0F;
    CHECK(run(breaks, 2) == TaskStatus::done);
    CHECK(breaks.root == 1.0F);
    ScriptedPrimitives stays({0.05});
    stays.scaled.largest = 1.0F;
    CHECK(run(stays, 2) == TaskStatus::done);
    CHECK(stays.rounds == kNewtonRounds);
    CHECK(stays.root == static_cast<float>(3 * (kNewtonRounds - 1) + 1));
}

TEST_CASE("the coupled Newton iteration fails where no X is a root, and leaves the old one") {
    for (const std::vector<double>& errors :
         {std::vector<double>{0.5, 0.3, 0.9}, {kInfinity}, {0.5, 0.2, std::numeric_limits<double>::quiet_NaN()}}) {
        ScriptedPrimitives primitives(errors);
        primitives.scaled.largest = 1.0F;
        CHECK(run(primitives, 4) == TaskStatus::failed);
        CHECK(primitives.root == -1.0F);
    }
    for (const TaskStatus status : {TaskStatus::zero, TaskStatus::not_finite, TaskStatus::failed}) {
        ScriptedPrimitives primitives({1e-7});
        primitives.scaled.status = status;
        CHECK(run(primitives, 4) == status);
        CHECK(primitives.ridge == -1.0F);
        CHECK(primitives.root == -1.0F);
    }
}

TEST_CASE("the ridge of the coupled Newton iteration is measured by the largest eigenvalue or absolute") {
    ScriptedPrimitives primitives({1e-7});
    primitives.scaled.largest = 2.0F;
    primitives.eigenvalue = 3.0;
    CHECK(run(primitives, 2, true) == TaskStatus::done);
    CHECK(primitives.ridge == 0.75F);
    CHECK(run(primitives, 2, false) == TaskStatus::done);
    CHECK(primitives.ridge == 0.25F / 8.0F);  // of a matrix that was divided by 2 and stands for four times itself
}

}  // namespace mfsdp::device
