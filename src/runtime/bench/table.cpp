#include "mfsdp/runtime/bench/table.h"

#include "mfsdp/base/counted.h"
#include "mfsdp/base/error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

namespace mfsdp::runtime {

namespace {

using Json = nlohmann::ordered_json;

std::string number_text(double value, int decimals) {
    if (!std::isfinite(value)) return "-";
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
    return text.data();
}

std::string cell_text(const BenchValue& value, const BenchColumn& column) {
    if (const auto* word = std::get_if<std::string>(&value)) return *word;
    if (const auto* count = std::get_if<std::int64_t>(&value)) {
        if (column.scale == 1.0) return std::to_string(*count);
        return number_text(static_cast<double>(*count) * column.scale, column.decimals);
    }
    if (const auto* number = std::get_if<double>(&value)) return number_text(*number * column.scale, column.decimals);
    return "-";
}

/// Facts carry their unit in their name.
std::string fact_text(const BenchValue& value) {
    const auto* number = std::get_if<double>(&value);
    if (number == nullptr) return cell_text(value, {});
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.6g", *number);
    return text.data();
}

Json value_json(const BenchValue& value) {
    if (const auto* word = std::get_if<std::string>(&value)) return *word;
    if (const auto* count = std::get_if<std::int64_t>(&value)) return *count;
    if (const auto* number = std::get_if<double>(&value); number != nullptr && std::isfinite(*number)) return *number;
    return nullptr;  // JSON has no NaN
}

bool is_word(const BenchTable& table, std::size_t column) {
    return std::any_of(table.rows.begin(), table.rows.end(), [&](const std::vector<BenchValue>& row) {
        return std::holds_alternative<std::string>(row[column]);
    });
}

std::string rows_text(const BenchTable& table) {
    std::vector<std::vector<std::string>> lines(1);
    for (const BenchColumn& column : table.columns) lines[0].push_back(column.title);
    for (const std::vector<BenchValue>& row : table.rows) {
        std::vector<std::string>& cells = lines.emplace_back();
        for (std::size_t i = 0; i < row.size(); ++i) cells.push_back(cell_text(row[i], table.columns[i]));
    }
    std::vector<std::size_t> widths(table.columns.size());
    for (const auto& cells : lines) {
        for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
    }
    std::string text;
    for (const auto& cells : lines) {
        std::string line;
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::string blanks(widths[i] - cells[i].size(), ' ');
            if (i > 0) line += "  ";
            line += is_word(table, i) ? cells[i] + blanks : blanks + cells[i];
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

}  // namespace

void BenchTable::row(std::initializer_list<BenchValue> values) {
    MFSDP_ASSERT(values.size() == columns.size(), "a row has a value for every column of " + benchmark);
    rows.emplace_back(values);
}

std::string bench_text(const BenchTable& table, const BenchEnvironment& environment) {
    std::string text = environment.program + " " + table.benchmark + "; " + environment.compiler;
    if (!environment.libraries.empty()) text += "; " + environment.libraries;
    text += '\n' + environment.host + ": " + environment.processor + ", " + std::to_string(environment.cores) +
            " hardware threads; " + base::counted(environment.ranks, "rank") + " on " +
            base::counted(environment.nodes, "node") + " x " + base::counted(environment.threads, "thread") + "; " +
            environment.device + '\n';
    for (const auto& [name, value] : table.facts) text += name + ": " + fact_text(value) + '\n';
    if (!table.rows.empty()) text += '\n' + rows_text(table);
    return text;
}

std::string bench_json(const BenchTable& table, const BenchEnvironment& environment) {
    Json document{{"benchmark", table.benchmark},
                  {"environment",
                   {{"program", environment.program},
                    {"compiler", environment.compiler},
                    {"libraries", environment.libraries},
                    {"host", environment.host},
                    {"processor", environment.processor},
                    {"hardware_threads", environment.cores},
                    {"device", environment.device},
                    {"ranks", environment.ranks},
                    {"nodes", environment.nodes},
                    {"threads_per_rank", environment.threads}}},
                  {"facts", Json::object()},
                  {"rows", Json::array()}};
    for (const auto& [name, value] : table.facts) document["facts"][name] = value_json(value);
    for (const std::vector<BenchValue>& values : table.rows) {
        Json row = Json::object();
        for (std::size_t i = 0; i < values.size(); ++i) row[table.columns[i].key] = value_json(values[i]);
        document["rows"].push_back(std::move(row));
    }
    return document.dump(2) + '\n';
}

}  // namespace mfsdp::runtime
