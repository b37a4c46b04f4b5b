#pragma once

#include "mfsdp/runtime/bench/environment.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace mfsdp::runtime {

/// A figure, or a word, of a benchmark; monostate: there is none (a dash, or null).
using BenchValue = std::variant<std::monostate, std::string, std::int64_t, double>;

/// A column of figures: its name in JSON, and how people read it.
struct BenchColumn {
    std::string key;     ///< "median_seconds"
    std::string title;   ///< "median ms"
    double scale = 1.0;  ///< of numbers, for people: 1e3
    int decimals = 2;
};

/// What every benchmark gives: named facts, then rows of figures. Printed as a table or as JSON.
struct BenchTable {
    std::string benchmark;  ///< "ops"
    std::vector<std::pair<std::string, BenchValue>> facts{};
    std::vector<BenchColumn> columns{};
    std::vector<std::vector<BenchValue>> rows{};

    void fact(std::string name, BenchValue value) { facts.emplace_back(std::move(name), std::move(value)); }
    /// One value per column.
    void row(std::initializer_list<BenchValue> values);
};

/// Environment, facts and rows, for people.
[[nodiscard]] std::string bench_text(const BenchTable& table, const BenchEnvironment& environment);
/// `{"benchmark", "environment", "facts", "rows": [{column key: value}]}`; figures in SI units, whatever the table
/// shows.
[[nodiscard]] std::string bench_json(const BenchTable& table, const BenchEnvironment& environment);

}  // namespace mfsdp::runtime
