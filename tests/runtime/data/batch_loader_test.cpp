#include "mfsdp/runtime/data/batch_loader.h"

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/shuffle.h"

#include "support/catch.h"
#include "support/throws.h"
#include "token_files.h"

#include <filesystem>
#include <numeric>

using namespace mfsdp;
using namespace mfsdp::runtime;
using namespace mfsdp::test;

namespace {

struct Batch {
    std::vector<std::int32_t> inputs;
    std::vector<std::int32_t> targets;
};

template <typename Load>
Batch batch_of(std::size_t tokens, const Load& load) {
    Batch batch{std::vector<std::int32_t>(tokens, -7), std::vector<std::int32_t>(tokens, -7)};
    load(batch.inputs, batch.targets);
    return batch;
}

Batch load(const BatchLoader& loader, const DataOptions& options, std::int64_t step, std::int64_t micro_batch) {
    return batch_of(static_cast<std::size_t>(options.micro_batch_size * options.seq_len),
                    [&](auto& inputs, auto& targets) {
                        loader.load(step * options.global_batch_size, micro_batch, inputs, targets);
                    });
}

// The text of the definition: sample i of the stream t.
void append_sample(Batch& batch, const std::vector<std::int64_t>& t, std::int64_t sample, std::int64_t seq_len) {
    for (std::int64_t k = 0; k < seq_len; ++k) {
        batch.inputs.push_back(static_cast<std::int32_t>(t.at(static_cast<std::size_t>(sample * seq_len + k))));
        batch.targets.push_back(static_cast<std::int32_t>(t.at(static_cast<std::size_t>(sample * seq_len + k + 1))));
    }
}

std::vector<std::int64_t> counting_ids(std::int64_t count) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
}

DataOptions options_for(std::vector<std::string> patterns, std::int64_t seq_len, std::int64_t micro_batch,
                        std::int64_t global_batch) {
    DataOptions options;
    options.patterns = std::move(patterns);
    options.vocab_size = 1000;
    options.seq_len = seq_len;
    options.micro_batch_size = micro_batch;
    options.global_batch_size = global_batch;
    return options;
}

}  // namespace

TEST_CASE("steps take the samples in order, over the ends of epochs, with and without shuffle") {
    const TemporaryDirectory folder;
    const std::vector<std::int64_t> t = counting_ids(33);  // S = 8 samples of 4, nothing over
    write_file(folder / "t.bin", gpt2_file(t));
    DataOptions options = options_for({folder / "t.bin"}, 4, 2, 6);  // 8 samples, batches of 6: the second spans epochs
    for (const bool shuffle : {false, true}) {
        options.shuffle = shuffle;
        options.seed = 77;
        const BatchLoader loader(options);
        REQUIRE(loader.micro_batches() == 3);
        REQUIRE(loader.samples_per_epoch() == 8);
        CHECK(loader.unused_tokens() == 0);
        std::int64_t g = 0;
        for (std::int64_t step = 0; step < 5; ++step) {
            for (std::int64_t m = 0; m < 3; ++m) {
                Batch expected;
                for (int row = 0; row < 2; ++row, ++g) {
                    const std::int64_t place = g % 8;
                    append_sample(expected, t, shuffle ? Shuffle(77, g / 8, 8).sample(place) : place, 4);
                }
                const Batch batch = load(loader, options, step, m);
                CHECK(batch.inputs == expected.inputs);
                CHECK(batch.targets == expected.targets);
            }
        }
        CHECK(loader.epoch(12) == 1.5);
    }
}

TEST_CASE("the cut of a corpus into files changes nothing") {
    const TemporaryDirectory folder;
    const std::vector<std::int64_t> t = counting_ids(50);
    write_file(folder / "whole.bin", gpt2_file(t));
    for (int part = 0, begin = 0; begin < 50; ++part) {
        const int end = std::min(50, begin + 1 + 3 * part);
        const std::vector<std::int64_t> piece(t.begin() + begin, t.begin() + end);
        write_file(folder / ("part" + std::to_string(part)), part % 2 == 0 ? llama3_file(piece) : gpt2_file(piece));
        begin = end;
    }
    const DataOptions whole = options_for({folder / "whole.bin"}, 7, 1, 3);
    const DataOptions parts = options_for({folder / "part*"}, 7, 1, 3);
    const BatchLoader from_whole(whole);
    const BatchLoader from_parts(parts);
    CHECK(from_whole.unused_tokens() == 0);
    REQUIRE(from_parts.stream().files().size() > 4);
    for (std::int64_t step = 0; step < 6; ++step) {
        for (std::int64_t m = 0; m < 3; ++m) {
            const Batch a = load(from_whole, whole, step, m);
            const Batch b = load(from_parts, parts, step, m);
            CHECK(a.inputs == b.inputs);
            CHECK(a.targets == b.targets);
        }
    }
}

TEST_CASE("the sequence of samples does not depend on how a step is cut into micro-batches") {
    const TemporaryDirectory folder;
    write_file(folder / "t.bin", gpt2_file(counting_ids(64)));
    const DataOptions wide = options_for({folder / "t.bin"}, 5, 4, 4);
    const DataOptions narrow = options_for({folder / "t.bin"}, 5, 1, 4);
    const BatchLoader wide_loader(wide);
    const BatchLoader narrow_loader(narrow);
    for (std::int64_t step = 0; step < 7; ++step) {
        std::vector<std::int32_t> joined;
        for (std::int64_t m = 0; m < 4; ++m) {
            const Batch batch = load(narrow_loader, narrow, step, m);
            joined.insert(joined.end(), batch.inputs.begin(), batch.inputs.end());
        }
        CHECK(load(wide_loader, wide, step, 0).inputs == joined);
    }
}

TEST_CASE("a step may start at any global sample, as after a resume with another batch size") {
    const TemporaryDirectory folder;
    write_file(folder / "t.bin", gpt2_file(counting_ids(64)));
    const DataOptions options = options_for({folder / "t.bin"}, 5, 2, 4);
    const BatchLoader loader(options);
    std::vector<std::int32_t> inputs(10);
    std::vector<std::int32_t> targets(10);
    loader.load(6, 1, inputs, targets);  // g = 8, 9: step 2, micro-batch 0
    CHECK(inputs == load(loader, options, 2, 0).inputs);
    CHECK_THROWS_AS(loader.load(0, 2, inputs, targets), InternalError);
    inputs.resize(9);
    CHECK_THROWS_AS(loader.load(0, 0, inputs, targets), InternalError);
}

TEST_CASE("masked targets are -100 in both alignments, also where the bit is in the file before") {
    const TemporaryDirectory folder;
    const std::string bits = "1011001";  // of the stream: file border after position 3
    write_file(folder / "1.bin", llmq_file({10, 11, 12}, 100, bits.substr(0, 3)));
    write_file(folder / "2.bin", llmq_file({13, 14, 15, 16}, 100, bits.substr(3)));
    DataOptions options = options_for({folder / "*.bin"}, 3, 2, 2);
    options.shuffle = false;
    const std::vector<std::int32_t> inputs = {10, 11, 12, 13, 14, 15};
    options.mask_alignment = MaskAlignment::input;  // t[p+1] counts if bit p is set
    const Batch by_input = load(BatchLoader(options), options, 0, 0);
    CHECK(by_input.inputs == inputs);
    CHECK(by_input.targets == std::vector<std::int32_t>{11, -100, 13, 14, -100, -100});
    options.mask_alignment = MaskAlignment::token;  // t[p+1] counts if bit p+1 is set
    const Batch by_token = load(BatchLoader(options), options, 0, 0);
    CHECK(by_token.inputs == inputs);
    CHECK(by_token.targets == std::vector<std::int32_t>{-100, 12, 13, -100, -100, 16});
}

TEST_CASE("a mask reaches to the end of a sample longer than one read of it") {
    const TemporaryDirectory folder;
    std::string bits(9001, '1');
    bits[8999] = '0';
    write_file(folder / "1.bin", llmq_file(std::vector<std::int64_t>(9001, 5), 100, bits));
    const DataOptions options = options_for({folder / "1.bin"}, 9000, 1, 1);
    const Batch batch = load(BatchLoader(options), options, 0, 0);
    CHECK(batch.targets[8998] == 5);
    CHECK(batch.targets[8999] == -100);
}

TEST_CASE("text files are documents that end with id 256, and windows span them") {
    const TemporaryDirectory folder;
    write_file(folder / "1.txt", "ab");
    write_file(folder / "2.txt", "cde");
    DataOptions options = options_for({folder / "*.txt"}, 3, 1, 1);
    options.format = DataFormat::bytes;
    options.shuffle = false;
    const BatchLoader loader(options);
    CHECK(loader.samples_per_epoch() == 2);
    CHECK(load(loader, options, 0, 0).inputs == std::vector<std::int32_t>{'a', 'b', 256});
    CHECK(load(loader, options, 0, 0).targets == std::vector<std::int32_t>{'b', 256, 'c'});
    CHECK(load(loader, options, 1, 0).targets == std::vector<std::int32_t>{'d', 'e', 256});
}

TEST_CASE("too few tokens and a batch without target have their messages") {
    const TemporaryDirectory folder;
    write_file(folder / "1.bin", gpt2_file({1, 2, 3}));
    write_file(folder / "2.bin", gpt2_file({4}));
    CHECK(message_of<DataError>([&] { BatchLoader{options_for({folder / "*.bin"}, 4, 1, 1)}; }) ==
          "data: 4 tokens in all, one sample needs 5");
    const BatchLoader loader(options_for({folder / "*.bin"}, 2, 2, 6));
    CHECK(loader.samples_per_epoch() == 1);
    CHECK(loader.unused_tokens() == 1);
    CHECK(message_of<DataError>([&] { loader.raise_all_masked(12); }) ==
          "data: samples 12..17 have no unmasked target");
    CHECK_THROWS_AS(BatchLoader(options_for({folder / "*.bin"}, 2, 4, 6)), InternalError);
}

TEST_CASE("an id outside the vocabulary stops the batch that reads it") {
    const TemporaryDirectory folder;
    write_file(folder / "1.bin", gpt2_file({1, 2, 3, 4, 5, 1000, 7}));
    DataOptions options = options_for({folder / "1.bin"}, 2, 1, 1);
    options.shuffle = false;
    const BatchLoader loader(options);
    CHECK(load(loader, options, 0, 0).inputs == std::vector<std::int32_t>{1, 2});
    CHECK(message_of<DataError>([&] { (void)load(loader, options, 2, 0); }) ==
          "data: " + (folder / "1.bin") + ": token 5 is 1000, the model has 1000 ids");
}

TEST_CASE("samples beyond token 2^31 of a stream are read from their place, in files of several GiB") {
    const TemporaryDirectory folder;
    const std::int64_t count = 1'500'000'000;  // per file; 3 GB and 6 GB, sparse
    write_file(folder / "1.bin", token_header({20240520, 1, static_cast<std::int32_t>(count)}));
    write_file(folder / "2.bin", token_header({20240801, 7, static_cast<std::int32_t>(count)}));
    std::filesystem::resize_file(folder / "1.bin", static_cast<std::uintmax_t>(1024 + 2 * count));
    std::filesystem::resize_file(folder / "2.bin", static_cast<std::uintmax_t>(1024 + 4 * count));
    const std::int64_t sample = 2'900'000'000 / 5;
    const std::int32_t id = 321;
    const base::FileDescriptor file(folder / "2.bin", base::FileMode::update, base::FileUse::data);
    file.write_exact(std::as_bytes(std::span(&id, 1)), 1024 + 4 * (5 * sample + 2 - count));
    DataOptions options = options_for({folder / "*.bin"}, 5, 1, 1);
    options.shuffle = false;
    const BatchLoader loader(options);
    CHECK(loader.samples_per_epoch() == (2 * count - 1) / 5);
    CHECK(load(loader, options, sample, 0).inputs == std::vector<std::int32_t>{0, 0, 321, 0, 0});
    CHECK(load(loader, options, sample, 0).targets == std::vector<std::int32_t>{0, 321, 0, 0, 0});
    CHECK(load(loader, options, loader.samples_per_epoch() - 1, 0).inputs == std::vector<std::int32_t>(5, 0));
}

TEST_CASE("a file that shrinks between two batches is an error of the batch that misses its tokens") {
    const TemporaryDirectory folder;
    write_file(folder / "1.bin", gpt2_file(counting_ids(41)));
    DataOptions options = options_for({folder / "1.bin"}, 10, 1, 1);
    options.shuffle = false;
    const BatchLoader loader(options);
    const Batch before = load(loader, options, 1, 0);
    std::filesystem::resize_file(folder / "1.bin", 1024 + 2 * 25);
    CHECK(load(loader, options, 1, 0).inputs == before.inputs);
    CHECK(message_of<DataError>([&] { (void)load(loader, options, 2, 0); }) ==
          "data: " + (folder / "1.bin") + ": read 10 of 20 bytes at offset 1064");
    CHECK(message_of<DataError>([&] { (void)load(loader, options, 3, 0); }) ==
          "data: " + (folder / "1.bin") + ": read 0 of 20 bytes at offset 1084");
}
