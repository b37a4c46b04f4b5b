#include "mfsdp/runtime/train/report.h"

#include "mfsdp/base/counted.h"
#include "mfsdp/base/error.h"
#include "mfsdp/runtime/config/names.h"
#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/runtime/placement/group_layout.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>

namespace mfsdp::runtime {

namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
    std::array<char, 512> text{};
    const int length = std::snprintf(text.data(), text.size(), pattern, values...);
    MFSDP_ASSERT(length >= 0 && static_cast<std::size_t>(length) < text.size(), "lines of reports are short");
    return text.data();
}

std::string category_name(std::int64_t category) {
    return std::string(device::name(static_cast<device::MemoryCategory>(category)));
}

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

/// One figure of a rank, for columns and their maximum / mean.
struct Column {
    std::string title;
    std::function<double(const Rehearsal&)> value;
};

std::vector<Column> columns() {
    std::vector<Column> result;
    for (std::int64_t category = 0; category < device::kMemoryCategories; ++category) {
        result.push_back({category_name(category), [category](const Rehearsal& rank) {
                              return mebibytes(rank.memory[static_cast<std::size_t>(category)]);
                          }});
    }
    result.push_back({"memory", [](const Rehearsal& rank) { return mebibytes(rank.total_memory()); }});
    result.push_back({"gather sent", [](const Rehearsal& rank) {
                          return mebibytes(rank.transfers.bytes_sent[0] - rank.optimizer_bytes_sent);
                      }});
    result.push_back({"reduce sent", [](const Rehearsal& rank) { return mebibytes(rank.transfers.bytes_sent[1]); }});
    result.push_back({"received", [](const Rehearsal& rank) {
                          return mebibytes(rank.transfers.bytes_received[0] + rank.transfers.bytes_received[1]);
                      }});
    result.push_back({"optimizer sent", [](const Rehearsal& rank) { return mebibytes(rank.optimizer_bytes_sent); }});
    result.push_back(
        {"optimizer GFLOP", [](const Rehearsal& rank) { return static_cast<double>(rank.optimizer_flops) / 1e9; }});
    result.push_back({"worst step GFLOP",
                      [](const Rehearsal& rank) { return static_cast<double>(rank.optimizer_worst_flops) / 1e9; }});
    return result;
}

/// "block 0: gather ring, reduce direct"
std::string algorithms(const RunPlan& run, std::size_t group) {
    const GroupAlgorithms& chosen = run.engine.store.algorithms[group];
    const std::vector<GroupSlot>& slots = run.plan.groups[group].slots;
    std::string text =
        run.plan.groups[group].name + ": gather " + std::string(comm::name(chosen.gather)) + ", reduce direct";
    const bool publishes = std::any_of(slots.begin(), slots.end(), [&](const GroupSlot& slot) {
        const MatrixShard& shard = run.plan.shards[static_cast<std::size_t>(slot.parameter)];
        return !shard.frozen() && shard.at_rest != shard.gradient;
    });
    if (publishes) text += ", publish " + std::string(comm::name(chosen.publish));
    return text;
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
    static constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < kUnits.size()) {
        value /= 1024.0;
        ++unit;
    }
    return format(unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
}

std::string describe_run(const RunPlan& run, const TrainConfig& config, int threads, const std::string& device) {
    return format(
        "%s, %.1f M parameters; %s x %s, strategy %s, policy %s; "
        "%lld sequences of %lld tokens per step in %lld micro-batches; %s",
        std::string(model::name(run.spec.config.family)).c_str(), static_cast<double>(run.spec.parameter_count()) / 1e6,
        base::counted(run.plan.ranks, "rank").c_str(), base::counted(threads, "thread").c_str(),
        std::string(name(config.parallel.strategy)).c_str(), std::string(name(config.parallel.planner.policy)).c_str(),
        static_cast<long long>(config.train.global_batch_size), static_cast<long long>(config.train.seq_len),
        static_cast<long long>(run.engine.micro_batches), device.c_str());
}

std::string describe_memory(const Rehearsal& rehearsal) {
    std::string text = "memory of a rank: " + bytes_text(rehearsal.total_memory());
    for (std::int64_t category = 0; category < device::kMemoryCategories; ++category) {
        const std::int64_t bytes = rehearsal.memory[static_cast<std::size_t>(category)];
        if (bytes > 0) text += ", " + category_name(category) + " " + bytes_text(bytes);
    }
    return text;
}

std::string describe_idle(std::int64_t idle, std::int64_t slots) {
    return format("ranks do not divide the micro-batches: %lld of %lld rank turns of a step are idle (%.1f %%)",
                  static_cast<long long>(idle), static_cast<long long>(slots),
                  100.0 * static_cast<double>(idle) / static_cast<double>(slots));
}

std::string owner_table(const RunPlan& run) {
    std::string text = "owners (rank: parameter [rows, columns])\n";
    for (const MatrixShard& shard : run.plan.shards) {
        const model::ParameterSpec& parameter = run.spec.parameters[static_cast<std::size_t>(shard.parameter)];
        const std::vector<comm::Segment>& segments = (shard.frozen() ? shard.at_rest : shard.gradient).segments;
        const std::string where =
            segments.size() == 1 ? std::to_string(segments[0].rank)
            : segments[0].row_count == parameter.rows()
                ? "all (replicated)"
                : "rows over " + base::counted(static_cast<std::int64_t>(segments.size()), "rank");
        text += "  " + where + ": " + parameter.name + " [" + std::to_string(parameter.rows()) + ", " +
                std::to_string(parameter.columns()) + "] " +
                (shard.frozen() ? "frozen" : std::string(optim::name(shard.role))) + "\n";
    }
    return text;
}

std::string rank_table(const std::vector<Rehearsal>& ranks) {
    const std::vector<Column> all = columns();
    // A column that is zero on every rank tells nothing.
    std::vector<const Column*> shown;
    for (const Column& column : all) {
        if (std::any_of(ranks.begin(), ranks.end(), [&](const Rehearsal& rank) { return column.value(rank) != 0.0; })) {
            shown.push_back(&column);
        }
    }
    std::string text = "per rank (MiB unless stated)\n  rank";
    const auto width = [](const Column& column) {
        return static_cast<int>(std::max<std::size_t>(column.title.size(), 10));
    };
    for (const Column* column : shown) text += format("  %*s", width(*column), column->title.c_str());
    const auto row = [&](const std::string& title, const std::function<double(const Column&)>& value) {
        text += "\n" + format("%6s", title.c_str());
        for (const Column* column : shown) text += format("  %*.2f", width(*column), value(*column));
    };
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        row(std::to_string(rank), [&](const Column& column) { return column.value(ranks[rank]); });
    }
    const auto most = [&](const Column& column) {
        double result = 0.0;
        for (const Rehearsal& rank : ranks) result = std::max(result, column.value(rank));
        return result;
    };
    const auto mean = [&](const Column& column) {
        double result = 0.0;
        for (const Rehearsal& rank : ranks) result += column.value(rank) / static_cast<double>(ranks.size());
        return result;
    };
    row("max", most);
    row("/mean", [&](const Column& column) { return most(column) / mean(column); });
    return text + "\n";
}

std::string balance_line(const Balance& balance) {
    return format("owned, max / mean over ranks: bytes %s / %s = %.3f, optimizer work in GFLOP %.2f / %.2f = %.3f\n",
                  bytes_text(balance.largest_bytes).c_str(),
                  bytes_text(static_cast<std::int64_t>(balance.mean_bytes)).c_str(),
                  static_cast<double>(balance.largest_bytes) / balance.mean_bytes,
                  static_cast<double>(balance.largest_flops) / 1e9, balance.mean_flops / 1e9,
                  static_cast<double>(balance.largest_flops) / balance.mean_flops);
}

std::string algorithm_table(const RunPlan& run) {
    std::string text = "transfers\n";
    for (std::size_t group = 0; group < run.plan.groups.size(); ++group) text += "  " + algorithms(run, group) + "\n";
    return text;
}

std::string describe_start(const RunPlan& run, const TrainConfig& config, const Rehearsal& rehearsal, int rank) {
    const StoreOptions& store = run.engine.store;
    std::string text = "configuration " + config_hash(config) + ", plan " + run.plan.hash(run.spec) + "\n";
    for (std::size_t group = 0; group < run.plan.groups.size(); ++group) {
        const GroupLayout layout(run.spec, run.plan, static_cast<std::int64_t>(group));
        text += "transfers: " + algorithms(run, group) + "; rank " + std::to_string(rank) + " gathers " +
                bytes_text(layout.gathered_elements(rank) * device::size_of(store.param_dtype)) + ", a leaf has " +
                bytes_text(layout.leaf_elements() * device::size_of(store.grad_dtype)) + "\n";
    }
    text += "transfers: chunks of " + bytes_text(store.build.chunk_bytes) + ", " +
            base::counted(store.prefetch_units, "unit") + " gathered ahead; link costs (s, B/s; within a node, " +
            "between nodes, local) " + store.links.text() + "\n";
    const PoolSizes& pools = rehearsal.pools;
    text += "pools of rank " + std::to_string(rank) + ": gathered " + bytes_text(pools.gathered) +
            ", gradient_buffers " + bytes_text(pools.gradient_buffers) + ", activations " +
            bytes_text(pools.activations) + ", workspace " + bytes_text(pools.workspace) + "\n";
    return text + "timeouts: " + std::to_string(config.parallel.init_timeout_seconds) + " s at start, " +
           std::to_string(config.parallel.train_timeout_seconds) + " s without progress in a transfer\n";
}

}  // namespace mfsdp::runtime
