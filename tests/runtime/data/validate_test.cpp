#include "mfsdp/runtime/data/validate.h"

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/inspect.h"
#include "mfsdp/runtime/data/tokenizer.h"

#include "support/catch.h"
#include "support/throws.h"
#include "token_files.h"

#include <filesystem>

using namespace mfsdp;
using namespace mfsdp::runtime;
using namespace mfsdp::test;
using Lines = std::vector<std::string>;

namespace {

ValidateReport validate(const std::vector<std::string>& patterns, std::int64_t vocab_size = 0, std::int64_t seq_len = 0,
                        DataFormat format = DataFormat::tokens) {
    ValidateOptions options;
    options.patterns = patterns;
    options.vocab_size = vocab_size;
    options.seq_len = seq_len;
    options.format = format;
    return validate_tokens(options);
}

TrainConfig masked_run(const std::string& pattern) {
    TrainConfig config;
    config.model.vocab_size = 100;
    config.data.train = {pattern};
    config.data.shuffle = false;
    config.train.seq_len = 2;
    config.train.micro_batch_size = 1;
    config.train.global_batch_size = 2;
    config.train.steps = 5;
    return config;
}

}  // namespace

TEST_CASE("sound files of every kind have no problems") {
    const TemporaryDirectory folder;
    write_file(folder / "1.bin", gpt2_file({1, 2, 65535}));
    write_file(folder / "2.bin", llama3_file({70000, 2}));
    write_file(folder / "3.bin", llmq_file({9, 99999}, 100000, "01"));
    const ValidateReport report = validate({folder / "*.bin"}, 100000, 6);
    CHECK(report.problems.empty());
    CHECK(report.files == 3);
    CHECK(report.tokens == 7);
    write_file(folder / "a.txt", "abc");
    const ValidateReport text = validate({folder / "*.txt"}, 257, 3, DataFormat::bytes);
    CHECK(text.problems.empty());
    CHECK(text.tokens == 4);
    CHECK_THROWS_AS(validate({folder / "*.txt"}, 256, 3, DataFormat::bytes), ConfigError);
}

TEST_CASE("all problems of all files are reported, those behind the first too") {
    const TemporaryDirectory folder;
    const auto at = [&](const std::string& name) { return "data: " + (folder / name) + ": "; };
    write_file(folder / "1.bin", gpt2_file({1, 300, 2, 301}) + "x");
    write_file(folder / "2.bin", "short");
    write_file(folder / "3.bin", token_header({42}));
    std::string llmq = llmq_file({5, -1, 250, 90}, 200);
    llmq[12] = 2;
    llmq[24] = 7;
    write_file(folder / "4.bin", llmq);
    write_file(folder / "5.bin", llmq_file({5, -1, 150, 90}, 100));
    write_file(folder / "6.bin", llama3_file({4294967295}));
    const ValidateReport report = validate({folder / "none*", folder / "*.bin", folder / "2.bin"}, 120, 100);
    CHECK(report.problems ==
          Lines{"data: pattern '" + (folder / "none*") + "' matches no file",
                at("2.bin") + "matched by '" + (folder / "*.bin") + "' and '" + (folder / "2.bin") + "'",
                at("1.bin") + "1033 bytes, but the header asks for 1032",
                at("1.bin") + "token 1 is 300, the model has 120 ids",
                at("1.bin") + "token 3 is 301, the model has 120 ids",
                at("2.bin") + "5 bytes, shorter than the 1024-byte header",
                at("3.bin") + "unknown magic 42; for raw text set data.format = \"bytes\" (mfsdp-data: --format bytes)",
                at("4.bin") + "2 bytes per token, expected 4", at("4.bin") + "mask flag 7, expected 0 or 1",
                at("4.bin") + "tokenized for 200 ids, the model has 120",
                at("5.bin") + "token 1 is -1, the model has 120 ids",
                at("5.bin") + "token 2 is 150, the model has 120 ids",
                at("6.bin") + "token 0 is 4294967295, the model has 120 ids",
                "data: 9 tokens in all, one sample needs 101"});
}

TEST_CASE("without the model's vocabulary ids are held to what the header says") {
    const TemporaryDirectory folder;
    write_file(folder / "1.bin", llmq_file({5, 99, 100}, 100));
    write_file(folder / "2.bin", llama3_file({4294967295, 2147483647}));
    CHECK(validate({folder / "*.bin"}).problems ==
          Lines{"data: " + (folder / "1.bin") + ": token 2 is 100, the header says 100 ids",
                "data: " + (folder / "2.bin") + ": token 0 is 4294967295, ids lie in 0 .. 2147483647"});
}

TEST_CASE("a flood of wrong ids is named in part and counted in whole, to the end of a long file") {
    const TemporaryDirectory folder;
    std::vector<std::int64_t> ids(3'000'000, 7);
    for (std::size_t i = 0; i < ids.size(); i += 1000) ids[i] = 500;
    ids.back() = 501;
    write_file(folder / "1.bin", gpt2_file(ids));
    const ValidateReport report = validate({folder / "1.bin"}, 500);
    CHECK(report.tokens == 3'000'000);
    REQUIRE(report.problems.size() == 11);
    CHECK(report.problems[9] == "data: " + (folder / "1.bin") + ": token 9000 is 500, the model has 500 ids");
    CHECK(report.problems[10] == "data: " + (folder / "1.bin") + ": and 2991 more such tokens");
}

TEST_CASE("a header that promises more than the file holds is checked as far as the file goes") {
    const TemporaryDirectory folder;
    const std::string file = llmq_file({1, 2, 3, 900}, 100, "1111");
    write_file(folder / "1.bin", file.substr(0, 1024 + 3 * 4 + 2));
    const ValidateReport report = validate({folder / "1.bin"}, 100);
    CHECK(report.problems == Lines{"data: " + (folder / "1.bin") + ": 1038 bytes, but the header asks for 1041"});
    CHECK(report.tokens == 3);
}

TEST_CASE("the data of a run are checked with its batches: each step needs a target that counts") {
    const TemporaryDirectory folder;
    // Samples of two targets; bits of inputs: sample 0 and 1 are masked, 2 is not, 3, 4, 5 are.
    write_file(folder / "1.bin", llmq_file(std::vector<std::int64_t>(13, 5), 100, "0000100000000"));
    TrainConfig config = masked_run(folder / "1.bin");
    CHECK(validate_run_data(config).problems == Lines{"data: samples 0..1 have no unmasked target",
                                                      "data: samples 4..5 have no unmasked target",
                                                      "data: samples 6..7 have no unmasked target"});
    config.data.mask_alignment = MaskAlignment::token;  // bit 4 is now that of the last target of sample 1
    CHECK(validate_run_data(config).problems == Lines{"data: samples 2..3 have no unmasked target",
                                                      "data: samples 4..5 have no unmasked target",
                                                      "data: samples 8..9 have no unmasked target"});
    config.train.global_batch_size = 6;
    CHECK(validate_run_data(config).problems.empty());
    config.data.valid = {folder / "1.bin"};
    CHECK(validate_run_data(config).files == 2);
    config.train.eval_samples = 7;  // there are six
    CHECK_THROWS_AS(validate_run_data(config), ConfigError);
    write_file(folder / "valid.bin", llmq_file({5, 100}, 100));
    config.data.valid = {folder / "valid.bin"};
    const std::string place = "data: " + (folder / "valid.bin") + ": ";
    CHECK(validate_run_data(config).problems ==
          Lines{place + "token 1 is 100, the model has 100 ids", "data: 2 tokens in all, one sample needs 3"});
    config.data.valid.clear();
    config.model.vocab_size = 5;
    CHECK(validate_run_data(config).problems.size() == 11 + 1);  // ten of thirteen ids, the rest, the header
}

TEST_CASE("inspect shows what a file holds") {
    const TemporaryDirectory folder;
    write_file(folder / "1.bin", llmq_file({104, 105, 256, 10, 256}, 300, "10110"));
    write_file(folder / "2.bin", gpt2_file({257, 1}));
    const auto tokenizer = make_byte_tokenizer();
    InspectOptions options;
    options.patterns = {folder / "*.bin"};
    options.seq_len = 2;
    options.first_ids = 4;
    options.tokenizer = tokenizer.get();
    CHECK(inspect_tokens(options) == (folder / "1.bin") +
                                         "\n"
                                         "  kind          BIN.TOK\n"
                                         "  bytes         1045\n"
                                         "  tokens        5\n"
                                         "  vocabulary    300 ids\n"
                                         "  masks         3 of 5 bits are set\n"
                                         "  documents     2 end here, each with id 256\n"
                                         "  first ids     104 105 256 10\n"
                                         "  text          \"hi\\n\"\n" +
                                         (folder / "2.bin") +
                                         "\n"
                                         "  kind          llm.c GPT-2\n"
                                         "  bytes         1028\n"
                                         "  tokens        2\n"
                                         "  vocabulary    not named in the header\n"
                                         "  masks         none\n"
                                         "  documents     0 end here, each with id 256\n"
                                         "  first ids     257 1\n"
                                         "  text          id 257 is none of the tokenizer's 257\n"
                                         "all: 2 files, 7 tokens, 3 samples of 2 tokens, 0 tokens unused\n");
    options.tokenizer = nullptr;
    options.first_ids = 0;
    options.seq_len = 0;
    options.format = DataFormat::bytes;
    write_file(folder / "3.txt", "\xE8\xA1");
    options.patterns = {folder / "3.txt"};
    CHECK(inspect_tokens(options) == (folder / "3.txt") +
                                         "\n"
                                         "  kind          raw bytes\n"
                                         "  bytes         2\n"
                                         "  tokens        3\n"
                                         "  vocabulary    257 ids\n"
                                         "  masks         none\n"
                                         "  documents     1\n"
                                         "all: 1 file, 3 tokens\n");
    options.format = DataFormat::tokens;
    CHECK_THROWS_AS(inspect_tokens(options), DataError);
}
