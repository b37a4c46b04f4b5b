// mfsdp-data: makes, shows and checks token files.

#include "mfsdp/base/counted.h"
#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/runtime/data/inspect.h"
#include "mfsdp/runtime/data/tokenize.h"
#include "mfsdp/runtime/data/validate.h"

#include "program.h"

#include <chrono>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace mfsdp;

constexpr const char* kPatternHelp =
    "files or quoted patterns, in this order; the matches of each sorted by their bytes";
constexpr const char* kFormatHelp = "tokens: the kind is found by the file's magic; bytes: raw text";
const std::map<std::string, runtime::DataFormat> kFormats = {{"tokens", runtime::DataFormat::tokens},
                                                             {"bytes", runtime::DataFormat::bytes}};
const std::map<std::string, runtime::TokenFileKind> kKinds = {{"gpt2", runtime::TokenFileKind::gpt2},
                                                              {"llama3", runtime::TokenFileKind::llama3},
                                                              {"bin.tok", runtime::TokenFileKind::llmq}};
const std::map<std::string, runtime::IllFormedText> kIllFormed = {{"refuse", runtime::IllFormedText::refuse},
                                                                  {"replace", runtime::IllFormedText::replace}};

/// An option that takes one of the names; CLI11's own way with enums would take their numbers too.
template <typename Value>
CLI::Option* add_choice(CLI::App& app, const std::string& option, Value& value,
                        const std::map<std::string, Value>& names, const std::string& help) {
    std::string standard;
    std::vector<std::string> allowed;
    for (const auto& [name, meaning] : names) {
        allowed.push_back(name);
        if (meaning == value) standard = name;
    }
    return app
        .add_option_function<std::string>(
            option, [&value, &names](const std::string& name) { value = names.at(name); }, help)
        ->check(CLI::IsMember(allowed))
        ->default_str(standard);
}

/// Three digits and no exponent: "3.26", "512".
std::string rate_text(double value) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(value < 10 ? 2 : value < 100 ? 1 : 0) << value;
    return text.str();
}

class Tokenize {
  public:
    explicit Tokenize(CLI::App& app) {
        command_ = app.add_subcommand("tokenize",
                                      "Turns text files into a folder of token files: the ids of each document, then\n"
                                      "the id that ends it. The folder appears whole or not at all.");
        command_->add_option("files", options_.patterns, kPatternHelp)->required();
        command_
            ->add_option("--output", options_.output.directory, "folder to make; its files are tokens_000000.bin, ...")
            ->required();
        command_
            ->add_option(
                "--tokenizer", tokenizer_,
                "bytes (id of a byte, 256 ends a document), or a folder with GPT-2's vocab.json and merges.txt")
            ->capture_default_str();
        add_choice(*command_, "--kind", options_.output.kind, kKinds,
                   "gpt2: llm.c and modded-nanogpt, 16 bits; llama3: llm.c, 32 bits; bin.tok: LLMQ, 32 bits");
        command_
            ->add_option("--max-tokens-per-file", options_.output.max_tokens_per_file, "size of all files but the last")
            ->check(CLI::Range(std::int64_t{1}, std::int64_t{std::numeric_limits<std::int32_t>::max()}))
            ->capture_default_str();
        command_->add_option(
            "--separator", options_.separator,
            "text between the documents of one file, not part of them (default: a file is a document)");
        add_choice(*command_, "--ill-formed", options_.ill_formed, kIllFormed,
                   "text that is not UTF-8: refuse it, or replace such parts by U+FFFD; bytes take any");
        command_->add_option("--end-of-document", end_of_document_, "name in vocab.json of the id that ends a document")
            ->capture_default_str();
    }

    [[nodiscard]] bool chosen() const { return command_->parsed(); }

    void run() const {
        const auto begin = std::chrono::steady_clock::now();
        const auto tokenizer = runtime::make_tokenizer(tokenizer_, end_of_document_);
        const runtime::TokenizeReport report = runtime::tokenize_files(options_, *tokenizer);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        std::cout << base::counted(report.text_files, "text file") << ", " << base::counted(report.text_bytes, "byte")
                  << ": " << base::counted(report.documents, "document") << ", "
                  << base::counted(report.tokens, "token") << " in " << base::counted(report.token_files, "file")
                  << " of " << options_.output.directory << "; "
                  << rate_text(static_cast<double>(report.text_bytes) / 1e6 / seconds) << " MB/s\n";
        if (report.empty_documents > 0) {
            std::cout << base::counted(report.empty_documents, "document") << " without text left out\n";
        }
        if (report.replaced_parts > 0) {
            std::cout << base::counted(report.replaced_parts, "part")
                      << " of the text, not UTF-8, replaced by U+FFFD\n";
        }
    }

  private:
    static runtime::TokenizeOptions defaults() {
        runtime::TokenizeOptions options;
        options.output.max_tokens_per_file = 100'000'000;
        return options;
    }

    CLI::App* command_;
    runtime::TokenizeOptions options_ = defaults();
    std::string tokenizer_ = "bytes";
    std::string end_of_document_ = "<|endoftext|>";
};

class Inspect {
  public:
    explicit Inspect(CLI::App& app) {
        command_ = app.add_subcommand("inspect", "Shows what token files hold.");
        command_->add_option("files", options_.patterns, kPatternHelp)->required();
        add_choice(*command_, "--format", options_.format, kFormats, kFormatHelp);
        command_->add_option("--seq-len", options_.seq_len, "also count the samples of so many tokens")
            ->check(CLI::Range(std::int64_t{1}, std::numeric_limits<std::int64_t>::max()));
        command_->add_option("--ids", options_.first_ids, "how many of the first ids to show")
            ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
            ->capture_default_str();
        command_->add_option(
            "--tokenizer", tokenizer_,
            "bytes, or a folder with GPT-2's vocab.json and merges.txt: shows the first ids as text and\n"
            "counts documents, which reads the whole files (default: bytes for raw text, else none)");
        command_->add_option("--end-of-document", end_of_document_, "name in vocab.json of the id that ends a document")
            ->capture_default_str();
    }

    [[nodiscard]] bool chosen() const { return command_->parsed(); }

    void run() {
        if (tokenizer_.empty() && options_.format == runtime::DataFormat::bytes) tokenizer_ = "bytes";
        std::unique_ptr<runtime::Tokenizer> tokenizer;
        if (!tokenizer_.empty()) tokenizer = runtime::make_tokenizer(tokenizer_, end_of_document_);
        options_.tokenizer = tokenizer.get();
        std::cout << runtime::inspect_tokens(options_);
    }

  private:
    CLI::App* command_;
    runtime::InspectOptions options_;
    std::string tokenizer_;
    std::string end_of_document_ = "<|endoftext|>";
};

class Validate {
  public:
    explicit Validate(CLI::App& app) {
        command_ = app.add_subcommand("validate",
                                      "Checks every rule over whole files, ids included, and reports all problems:\n"
                                      "either of files, or of the data of a run as its configuration says.");
        CLI::Option* const files = command_->add_option("files", options_.patterns, kPatternHelp);
        CLI::Option* const format = add_choice(*command_, "--format", options_.format, kFormats, kFormatHelp);
        CLI::Option* const vocab = command_
                                       ->add_option("--vocab-size", options_.vocab_size,
                                                    "ids of the model (default: what the file's own header promises)")
                                       ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
        CLI::Option* const length = command_->add_option("--seq-len", options_.seq_len, "tokens of the model's samples")
                                        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
        CLI::Option* const config = command_->add_option("--config", config_, "JSON file that describes a run");
        command_->add_option("--set", overrides_, "KEY=VALUE: replaces one value of --config (repeatable)")
            ->expected(1)
            ->allow_extra_args(false)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
            ->needs(config);
        for (CLI::Option* const other : {files, format, vocab, length}) config->excludes(other);
    }

    [[nodiscard]] bool chosen() const { return command_->parsed(); }

    /// Whether no problem was found.
    [[nodiscard]] bool run() const {
        if (config_.empty() && options_.patterns.empty()) {
            throw ConfigError("validate: nothing to check; name files, or a run with --config");
        }
        const runtime::ValidateReport report =
            config_.empty() ? runtime::validate_tokens(options_)
                            : runtime::validate_run_data(runtime::parse_train_config(config_, overrides_));
        for (const std::string& problem : report.problems) std::cerr << problem << '\n';
        const auto problems = static_cast<std::int64_t>(report.problems.size());
        std::cout << base::counted(report.files, "file") << ", " << base::counted(report.tokens, "token") << ": "
                  << (problems == 0 ? "no problems" : base::counted(problems, "problem")) << '\n';
        return problems == 0;
    }

  private:
    CLI::App* command_;
    runtime::ValidateOptions options_;
    std::string config_;
    std::vector<std::string> overrides_;
};

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Makes, shows and checks the token files that mfsdp-train reads."};
    Tokenize tokenize(app);
    Inspect inspect(app);
    Validate validate(app);
    app.require_subcommand(1);
    apps::add_common_options(app, "mfsdp-data");
    if (const auto code = apps::parse_arguments(app, argc, argv)) return *code;
    bool has_problems = false;
    const int code = apps::run_alone([&] {
        if (tokenize.chosen()) tokenize.run();
        if (inspect.chosen()) inspect.run();
        if (validate.chosen()) has_problems = !validate.run();
    });
    return code == 0 && has_problems ? static_cast<int>(ExitCode::data) : code;
}
