#include "mfsdp/device/ops/moments.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <initializer_list>
#include <string>

namespace mfsdp::device {

namespace {

void require_elements(const Argument& argument, std::int64_t count) {
    require_rank(argument, DType::float32, argument.tensor.rank);
    require_dense(argument);
    MFSDP_ASSERT(argument.tensor.count() == count, std::string(argument.operation) + ": " + std::string(argument.name) +
                                                       " is " + argument.tensor.describe() + ", wanted " +
                                                       std::to_string(count) + " elements");
}

/// All of one count, and no two at one address.
void require_alike_and_apart(std::initializer_list<Argument> arguments) {
    const std::int64_t count = arguments.begin()->tensor.count();
    for (const Argument* one = arguments.begin(); one != arguments.end(); ++one) {
        require_elements(*one, count);
        for (const Argument* other = arguments.begin(); other != one; ++other) require_apart(*one, *other);
    }
}

}  // namespace

void ScaleGradient::check() const {
    require_elements({kName, "out", out}, out.count());
    require_elements({kName, "gradient", gradient}, out.count());
}
Cost ScaleGradient::cost() const { return {2 * out.count(), 2 * out.bytes()}; }

void GraftMoments::check() const {
    require_alike_and_apart({{kName, "out", out}, {kName, "momentum", momentum}, {kName, "gradient", gradient}});
    if (!square.defined()) return;
    require_alike_and_apart({{kName, "square", square}, {kName, "out", out}, {kName, "momentum", momentum}});
    require_apart({kName, "square", square}, {kName, "gradient", gradient});
}
Cost GraftMoments::cost() const {
    return {(square.defined() ? 9 : 5) * out.count(), (square.defined() ? 6 : 4) * out.bytes()};
}

void GraftDirection::check() const {
    const std::int64_t count = momentum.count();
    require_elements({kName, "momentum", momentum}, count);
    require_elements({kName, "average", average}, count);
    MFSDP_ASSERT(graft.defined() == square.defined(), "graft_direction: graft and square come together");
    if (!graft.defined()) return;
    require_alike_and_apart({{kName, "average", average}, {kName, "graft", graft}, {kName, "square", square}});
    require_alike_and_apart({{kName, "momentum", momentum}, {kName, "graft", graft}, {kName, "square", square}});
}
Cost GraftDirection::cost() const {
    return {(graft.defined() ? 5 : 1) * average.count(), (graft.defined() ? 4 : 2) * average.bytes()};
}

void EigenbasisMoments::check() const {
    require_alike_and_apart(
        {{kName, "exp_avg", exp_avg}, {kName, "exp_avg_sq", exp_avg_sq}, {kName, "gradient", gradient}});
    require_alike_and_apart({{kName, "exp_avg", exp_avg}, {kName, "exp_avg_sq", exp_avg_sq}, {kName, "out", out}});
}
Cost EigenbasisMoments::cost() const { return {12 * out.count(), 6 * out.bytes()}; }

}  // namespace mfsdp::device
