#pragma once

#include "mfsdp/device/device.h"
#include "mfsdp/runtime/bench/operations.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace mfsdp::runtime {

/// `make(bench)` gives the operation with its operands in the bench's memory.
template <class Make>
auto prepare(Make make) {
    return [make](Workbench& bench) {
        const auto operation = make(bench);
        return PreparedOperation{[&bench, operation] { device::launch(bench.stream(), operation); }, operation.cost()};
    };
}

/// "3072 x 768 x 256"
inline std::string shape_text(std::initializer_list<std::int64_t> sizes) {
    std::string text;
    for (const std::int64_t size : sizes) text.append(text.empty() ? "" : " x ").append(std::to_string(size));
    return text;
}

/// Collects cases.
class CaseList {
  public:
    template <class Op, class Make>
    void add(std::string use, std::initializer_list<std::int64_t> sizes, Make make) {
        cases_.push_back({Op::kName, std::move(use), shape_text(sizes), prepare(std::move(make))});
    }
    [[nodiscard]] std::vector<OperationCase> take() { return std::move(cases_); }

  private:
    std::vector<OperationCase> cases_;
};

/// The operations of all optimizers, on the largest matrix of a block.
void add_optimizer_cases(CaseList& cases, const model::ModelSpec& spec, const model::ParameterSpec& largest);

}  // namespace mfsdp::runtime
