#include "mfsdp/runtime/data/validate.h"

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/file_patterns.h"
#include "mfsdp/runtime/data/token_file.h"
#include "mfsdp/runtime/data/validation_loader.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace mfsdp::runtime {
namespace {

constexpr std::int64_t kAnyId = std::int64_t{1} << 31;
constexpr std::int64_t kBlock = std::int64_t{1} << 20;

class Validation {
  public:
    explicit Validation(const ValidateOptions& options) : options_(options) {}

    ValidateReport run() {
        MatchedFiles files = match_file_patterns(options_.patterns);
        report_.problems = std::move(files.problems);
        for (const std::string& path : files.paths) {
            try {
                check_file(path);
            } catch (const DataError& error) {  // a file that cannot be opened or read is one more problem
                report_.problems.emplace_back(error.what());
            }
        }
        if (options_.seq_len > 0 && report_.files > 0 && report_.tokens < options_.seq_len + 1) {
            report_.problems.push_back("data: " + std::to_string(report_.tokens) + " tokens in all, one sample needs " +
                                       std::to_string(options_.seq_len + 1));
        }
        return std::move(report_);
    }

  private:
    void check_file(const std::string& path) {
        ++report_.files;
        const base::FileDescriptor file(path, base::FileMode::read, base::FileUse::data);
        const TokenFileCheck check =
            check_token_file(file, options_.format, options_.vocab_size > 0 ? options_.vocab_size : kAnyId);
        for (const std::string& problem : check.problems) report(path, problem);
        if (check.layout.kind != TokenFileKind::bytes) check_ids(file, check);
        report_.tokens += check.whole_tokens;
        if (check.layout.has_masks && check.problems.empty()) read_all_masks(file, check.layout);
    }

    void check_ids(const base::FileDescriptor& file, const TokenFileCheck& check) {
        TokenFile whole = check.layout;
        whole.tokens = check.whole_tokens;
        std::int64_t wrong = 0;
        std::vector<std::int32_t> block;
        for (std::int64_t begin = 0; begin < whole.tokens; begin += kBlock) {
            block.resize(static_cast<std::size_t>(std::min(kBlock, whole.tokens - begin)));
            read_stored_tokens(file, whole, begin, block);
            for (std::size_t i = 0; i < block.size(); ++i) {
                const std::int64_t id = stored_id(whole.kind, block[i]);
                const std::string fault = fault_of(id, whole.vocabulary);
                if (fault.empty() || ++wrong > options_.ids_named) continue;
                report(file.path(), "token " + std::to_string(begin + static_cast<std::int64_t>(i)) + " is " +
                                        std::to_string(id) + fault);
            }
        }
        if (wrong > options_.ids_named) {
            report(file.path(), "and " + std::to_string(wrong - options_.ids_named) + " more such tokens");
        }
    }

    /// Why no model, not the given one, or not the one that the header names can have this id; empty: it can.
    [[nodiscard]] std::string fault_of(std::int64_t id, std::int64_t vocabulary) const {
        if (options_.vocab_size > 0 && (id < 0 || id >= options_.vocab_size)) {
            return ", the model has " + std::to_string(options_.vocab_size) + " ids";
        }
        if (vocabulary > 0 && (id < 0 || id >= vocabulary)) {
            return ", the header says " + std::to_string(vocabulary) + " ids";
        }
        return id < 0 || id >= kAnyId ? ", ids lie in 0 .. 2147483647" : "";
    }

    // That they can be read is all there is to check: any bit is a mask.
    void read_all_masks(const base::FileDescriptor& file, const TokenFile& layout) const {
        std::vector<std::uint8_t> bits;
        for (std::int64_t begin = 0; begin < layout.tokens; begin += kBlock) {
            bits.resize(static_cast<std::size_t>(std::min(kBlock, layout.tokens - begin)));
            read_masks(file, layout, begin, bits);
        }
    }

    void report(const std::string& path, const std::string& problem) {
        report_.problems.push_back("data: " + path + ": " + problem);
    }

    const ValidateOptions& options_;
    ValidateReport report_;
};

/// Targets that count, of each sample of the stream.
std::vector<std::int64_t> unmasked_targets(const BatchLoader& loader, std::int64_t seq_len, MaskAlignment alignment) {
    std::vector<std::int64_t> counts;
    std::vector<std::uint8_t> bits(static_cast<std::size_t>(seq_len));
    const std::int64_t shift = alignment == MaskAlignment::token ? 1 : 0;
    for (std::int64_t sample = 0; sample < loader.samples_per_epoch(); ++sample) {
        loader.stream().read_masks(sample * seq_len + shift, bits);
        counts.push_back(std::count(bits.begin(), bits.end(), std::uint8_t{1}));
    }
    return counts;
}

DataOptions options_for(const TrainConfig& config, const std::vector<std::string>& patterns) {
    return {patterns,
            config.data.format,
            config.data.mask_alignment,
            config.model.vocab_size,
            config.train.seq_len,
            config.train.micro_batch_size,
            config.train.global_batch_size,
            config.data.shuffle,
            static_cast<std::uint64_t>(config.data.seed)};
}

void check_batches(const TrainConfig& config, std::vector<std::string>& problems) {
    const BatchLoader loader(options_for(config, config.data.train));
    if (!loader.stream().has_masks()) return;
    const std::vector<std::int64_t> counts = unmasked_targets(loader, config.train.seq_len, config.data.mask_alignment);
    if (std::all_of(counts.begin(), counts.end(), [](std::int64_t count) { return count > 0; })) return;
    for (std::int64_t step = 0; step < config.train.steps; ++step) {
        const std::int64_t first = step * config.train.global_batch_size;
        bool has_target = false;
        for (std::int64_t i = 0; i < config.train.global_batch_size && !has_target; ++i) {
            has_target = counts[static_cast<std::size_t>(loader.sample(first + i))] > 0;
        }
        if (has_target) continue;
        try {
            loader.raise_all_masked(first);
        } catch (const DataError& error) {
            problems.emplace_back(error.what());
        }
    }
}

}  // namespace

ValidateReport validate_tokens(const ValidateOptions& options) { return Validation(options).run(); }

ValidateReport validate_run_data(const TrainConfig& config) {
    ValidateOptions options;
    options.format = config.data.format;
    options.vocab_size = config.model.vocab_size;
    options.seq_len = config.train.seq_len;
    options.patterns = config.data.train;
    ValidateReport report = validate_tokens(options);
    if (report.problems.empty()) check_batches(config, report.problems);
    if (config.data.valid.empty()) return report;
    options.patterns = config.data.valid;
    ValidateReport valid = validate_tokens(options);
    if (valid.problems.empty())
        (void)ValidationLoader(options_for(config, config.data.valid), config.train.eval_samples);
    report.files += valid.files;
    report.tokens += valid.tokens;
    report.problems.insert(report.problems.end(), valid.problems.begin(), valid.problems.end());
    return report;
}

}  // namespace mfsdp::runtime
