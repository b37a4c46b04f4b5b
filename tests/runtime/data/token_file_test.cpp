#include "mfsdp/runtime/data/token_file.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"
#include "support/throws.h"
#include "token_files.h"

#include <numeric>

using namespace mfsdp;
using namespace mfsdp::runtime;
using namespace mfsdp::test;
using base::FileDescriptor;
using base::FileMode;
using base::FileUse;

namespace {

FileDescriptor open_file(const std::string& path) { return FileDescriptor(path, FileMode::read, FileUse::data); }

std::vector<std::int32_t> all_tokens(const std::string& path, DataFormat format, std::int64_t vocab_size) {
    const FileDescriptor file = open_file(path);
    const TokenFile layout = inspect_token_file(file, format, vocab_size);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(layout.tokens));
    read_tokens(file, layout, vocab_size, 0, ids);
    return ids;
}

std::string inspect_message(const std::string& path, const std::string& content, std::int64_t vocab_size = 100) {
    write_file(path, content);
    return message_of<DataError>([&] { (void)inspect_token_file(open_file(path), DataFormat::tokens, vocab_size); });
}

}  // namespace

TEST_CASE("every kind of token file gives its ids") {
    const TemporaryDirectory folder;
    const std::string path = folder / "tokens.bin";
    write_file(path, gpt2_file({5, 0, 65535, 7}));
    CHECK(all_tokens(path, DataFormat::tokens, 65536) == std::vector<std::int32_t>{5, 0, 65535, 7});
    write_file(path, llama3_file({128000, 1}));
    CHECK(all_tokens(path, DataFormat::tokens, 128256) == std::vector<std::int32_t>{128000, 1});
    write_file(path, llmq_file({9, 8, 151000}, 151936));
    CHECK(all_tokens(path, DataFormat::tokens, 151936) == std::vector<std::int32_t>{9, 8, 151000});
    write_file(path, "h\xFF\n");
    CHECK(all_tokens(path, DataFormat::bytes, 257) == std::vector<std::int32_t>{'h', 255, '\n', 256});
}

TEST_CASE("any range of any width reads the ids of that range") {
    const TemporaryDirectory folder;
    const std::vector<std::int64_t> ids = {250, 1, 2, 3, 4, 5, 6, 200};
    std::string text;
    for (const std::int64_t id : ids) text += static_cast<char>(id);
    write_file(folder / "a", gpt2_file(ids));
    write_file(folder / "b", llama3_file(ids));
    write_file(folder / "c", text);
    for (const char* name : {"a", "b", "c"}) {
        const FileDescriptor file = open_file(folder / name);
        const bool is_text = *name == 'c';
        const TokenFile layout = inspect_token_file(file, is_text ? DataFormat::bytes : DataFormat::tokens, 300);
        std::vector<std::int64_t> expected = ids;
        if (is_text) expected.push_back(256);
        REQUIRE(layout.tokens == static_cast<std::int64_t>(expected.size()));
        for (std::size_t begin = 0; begin <= expected.size(); ++begin) {
            for (std::size_t end = begin; end <= expected.size(); ++end) {
                std::vector<std::int32_t> out(end - begin, -7);
                read_tokens(file, layout, 300, static_cast<std::int64_t>(begin), out);
                REQUIRE(std::equal(out.begin(), out.end(), expected.begin() + static_cast<std::ptrdiff_t>(begin)));
            }
        }
        std::vector<std::int32_t> too_many(expected.size() + 1);
        CHECK_THROWS_AS(read_tokens(file, layout, 300, 0, too_many), InternalError);
    }
}

TEST_CASE("mask bits are read from the low end of each byte, at any start, and are 1 where there are none") {
    const TemporaryDirectory folder;
    std::string masks;
    for (int p = 0; p < 21; ++p) masks += p * p % 3 == 1 ? '1' : '0';
    std::vector<std::int64_t> ids(21, 4);
    write_file(folder / "masked", llmq_file(ids, 10, masks));
    write_file(folder / "plain", llmq_file(ids, 10));
    const FileDescriptor masked = open_file(folder / "masked");
    const TokenFile layout = inspect_token_file(masked, DataFormat::tokens, 10);
    CHECK(layout.has_masks);
    for (std::size_t begin = 0; begin <= 21; ++begin) {
        std::vector<std::uint8_t> bits(21 - begin, 9);
        read_masks(masked, layout, static_cast<std::int64_t>(begin), bits);
        for (std::size_t i = 0; i < bits.size(); ++i) REQUIRE(bits[i] == (masks[begin + i] == '1' ? 1 : 0));
    }
    const FileDescriptor plain = open_file(folder / "plain");
    std::vector<std::uint8_t> bits(21, 0);
    read_masks(plain, inspect_token_file(plain, DataFormat::tokens, 10), 0, bits);
    CHECK(std::accumulate(bits.begin(), bits.end(), 0) == 21);
}

TEST_CASE("a mask longer than the buffer of one read is read whole") {
    const TemporaryDirectory folder;
    const std::size_t count = 70001;
    std::string masks(count, '0');
    for (std::size_t p = 0; p < count; p += 7) masks[p] = '1';
    write_file(folder / "long", llmq_file(std::vector<std::int64_t>(count, 1), 10, masks));
    const FileDescriptor file = open_file(folder / "long");
    std::vector<std::uint8_t> bits(count - 3);
    read_masks(file, inspect_token_file(file, DataFormat::tokens, 10), 3, bits);
    bool equal = true;
    for (std::size_t i = 0; i < bits.size(); ++i) equal = equal && bits[i] == ((i + 3) % 7 == 0 ? 1 : 0);
    CHECK(equal);
}

TEST_CASE("each broken rule of header and size has its message") {
    const TemporaryDirectory folder;
    const std::string path = folder / "bad.bin";
    const std::string place = "data: " + path + ": ";
    const std::string good = gpt2_file({1, 2, 3});
    CHECK(inspect_message(path, "") == place + "0 bytes, shorter than the 1024-byte header");
    CHECK(inspect_message(path, good.substr(0, 1023)) == place + "1023 bytes, shorter than the 1024-byte header");
    CHECK(inspect_message(path, token_header({42})) ==
          place + "unknown magic 42; for raw text set data.format = \"bytes\" (mfsdp-data: --format bytes)");
    CHECK(inspect_message(path, token_header({20240520, 2, 3})) ==
          place + "llm.c GPT-2 version 2 is not supported, expected 1");
    CHECK(inspect_message(path, token_header({20240801, 1, 3})) ==
          place + "llm.c Llama-3 version 1 is not supported, expected 7");
    std::string llmq = llmq_file({1, 2, 3}, 50);
    llmq[8] = 3;
    CHECK(inspect_message(path, llmq) == place + "BIN.TOK version 3 is not supported, expected 2");
    llmq[8] = 2;
    llmq[12] = 2;
    CHECK(inspect_message(path, llmq) == place + "2 bytes per token, expected 4");
    CHECK(inspect_message(path, token_header({20240520, 1, 0})) == place + "header says 0 tokens");
    CHECK(inspect_message(path, token_header({20240520, 1, -5})) == place + "header says -5 tokens");
    CHECK(inspect_message(path, good + "x") == place + "1031 bytes, but the header asks for 1030");
    CHECK(inspect_message(path, good.substr(0, 1029)) == place + "1029 bytes, but the header asks for 1030");
    const std::string masked = llmq_file({1, 2, 3}, 50, "111");
    CHECK(inspect_message(path, masked.substr(0, 1036)) == place + "1036 bytes, but the header asks for 1037");
    CHECK(inspect_message(path, llmq_file({1}, 101)) == place + "tokenized for 101 ids, the model has 100");
    CHECK(inspect_message(path, llmq_file({1}, 100)) == "<no exception>");
    CHECK(inspect_message(path, llmq_file({1}, 0)) == place + "tokenized for 0 ids");
    CHECK(inspect_message(path, llmq_file({1}, -7)) == place + "tokenized for -7 ids");
    std::string flagged = llmq_file({1, 2, 3}, 50);
    flagged[24] = 2;
    CHECK(inspect_message(path, flagged) == place + "mask flag 2, expected 0 or 1");
    flagged[24] = flagged[25] = flagged[26] = flagged[27] = '\xFF';
    CHECK(inspect_message(path, flagged) == place + "mask flag -1, expected 0 or 1");
    CHECK(message_of<DataError>([&] { (void)inspect_token_file(open_file(folder.path()), DataFormat::tokens, 100); }) ==
          "data: " + folder.path() + ": not a regular file");
}

TEST_CASE("raw bytes need 257 ids and a byte") {
    const TemporaryDirectory folder;
    const std::string path = folder / "text";
    write_file(path, "x");
    CHECK(message_of<ConfigError>([&] { (void)inspect_token_file(open_file(path), DataFormat::bytes, 256); }) ==
          "config: model.vocab_size = 256: the byte tokenizer needs >= 257");
    write_file(path, "");
    CHECK(message_of<DataError>([&] { (void)inspect_token_file(open_file(path), DataFormat::bytes, 257); }) ==
          "data: " + path + ": 0 bytes, a text file needs at least 1");
}

TEST_CASE("an id outside the vocabulary is named with its place, whatever the width") {
    const TemporaryDirectory folder;
    const std::string path = folder / "ids.bin";
    const auto message = [&](const std::string& content) {
        write_file(path, content);
        return message_of<DataError>([&] { (void)all_tokens(path, DataFormat::tokens, 100); });
    };
    const std::string place = "data: " + path + ": ";
    CHECK(message(gpt2_file({1, 99, 100})) == place + "token 2 is 100, the model has 100 ids");
    CHECK(message(llama3_file({1, 4294967295})) == place + "token 1 is 4294967295, the model has 100 ids");
    CHECK(message(llmq_file({-1, 3}, 100)) == place + "token 0 is -1, the model has 100 ids");
}

TEST_CASE("a file cut anywhere is refused, and so is one with any word of its header changed") {
    const TemporaryDirectory folder;
    const std::string path = folder / "damaged.bin";
    struct Sound {
        std::string content;
        std::vector<std::size_t> words;  ///< of the header that mean something
    };
    const std::vector<Sound> files = {{gpt2_file({1, 2, 3}), {0, 1, 2}},
                                      {llama3_file({1, 2, 3}), {0, 1, 2}},
                                      {llmq_file({1, 2, 3}, 100, "101"), {0, 1, 2, 3, 4, 5, 6}},
                                      {llmq_file({1, 2, 3}, 100), {0, 1, 2, 3, 4, 5, 6}}};
    for (const Sound& sound : files) {
        REQUIRE(inspect_message(path, sound.content) == "<no exception>");
        // Changed in place: writing a file anew two thousand times takes a disk many seconds.
        const FileDescriptor file(path, FileMode::update, FileUse::data);
        const auto is_refused = [&] {
            return message_of<DataError>([&] { (void)inspect_token_file(file, DataFormat::tokens, 100); }) !=
                   "<no exception>";
        };
        const std::span<const char> content(sound.content);
        for (std::size_t word = 0; word < 256; ++word) {
            const bool means = std::find(sound.words.begin(), sound.words.end(), word) != sound.words.end();
            for (const std::int32_t value : {-1, 0x7FFFFFFF, 0x01010101}) {
                file.write_exact(std::as_bytes(std::span(&value, 1)), static_cast<std::int64_t>(4 * word));
                REQUIRE(is_refused() == means);
            }
            file.write_exact(std::as_bytes(content.subspan(4 * word, 4)), static_cast<std::int64_t>(4 * word));
        }
        REQUIRE_FALSE(is_refused());
        for (auto length = static_cast<std::int64_t>(sound.content.size()) - 1; length >= 0; --length) {
            file.resize(length);
            REQUIRE(is_refused());
        }
    }
}

TEST_CASE("a file that shrank after its check is a short read") {
    const TemporaryDirectory folder;
    const std::string path = folder / "shrinks.bin";
    write_file(path, gpt2_file({1, 2, 3, 4}));
    const FileDescriptor file = open_file(path);
    const TokenFile layout = inspect_token_file(file, DataFormat::tokens, 100);
    std::filesystem::resize_file(path, 1028);
    std::vector<std::int32_t> ids(3);
    CHECK(message_of<DataError>([&] { read_tokens(file, layout, 100, 1, ids); }) ==
          "data: " + path + ": read 2 of 6 bytes at offset 1026");
}

TEST_CASE("offsets beyond 4 GiB are 64 bit") {
    const TemporaryDirectory folder;
    const std::string path = folder / "large.bin";
    const std::int64_t count = 1'200'000'000;
    write_file(path, token_header({20240801, 7, static_cast<std::int32_t>(count)}));
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(1024 + 4 * count));  // sparse: no block is written
    const FileDescriptor writer(path, FileMode::update, FileUse::data);
    const std::int32_t id = 77;
    writer.write_exact(std::as_bytes(std::span(&id, 1)), 1024 + 4 * (count - 2));
    const TokenFile layout = inspect_token_file(writer, DataFormat::tokens, 100);
    std::vector<std::int32_t> ids(3);
    read_tokens(writer, layout, 100, count - 3, ids);
    CHECK(ids == std::vector<std::int32_t>{0, 77, 0});
}

TEST_CASE("masks and raw bytes beyond 4 GiB are where they belong") {
    const TemporaryDirectory folder;
    const std::int64_t count = 1'100'000'003;
    std::string header = llmq_file({1}, 100, "1").substr(0, 1024);
    const auto tokens = static_cast<std::int32_t>(count);
    std::memcpy(header.data() + 16, &tokens, 4);
    write_file(folder / "masks.bin", header);
    std::filesystem::resize_file(folder / "masks.bin", static_cast<std::uintmax_t>(1024 + 4 * count + (count + 7) / 8));
    const FileDescriptor masks(folder / "masks.bin", FileMode::update, FileUse::data);
    const std::uint8_t last = 0b101;  // of the three positions in the last byte
    masks.write_exact(std::as_bytes(std::span(&last, 1)), 1024 + 4 * count + count / 8);
    std::vector<std::uint8_t> bits(5, 7);
    read_masks(masks, inspect_token_file(masks, DataFormat::tokens, 100), count - 5, bits);
    CHECK(bits == std::vector<std::uint8_t>{0, 0, 1, 0, 1});

    write_file(folder / "raw.txt", "");
    const std::int64_t bytes = 5'000'000'000;
    std::filesystem::resize_file(folder / "raw.txt", static_cast<std::uintmax_t>(bytes));
    const FileDescriptor raw(folder / "raw.txt", FileMode::update, FileUse::data);
    raw.write_exact(std::as_bytes(std::span("z", 1)), bytes - 1);
    const TokenFile layout = inspect_token_file(raw, DataFormat::bytes, 257);
    CHECK(layout.tokens == bytes + 1);
    std::vector<std::int32_t> ids(3);
    read_tokens(raw, layout, 257, bytes - 2, ids);
    CHECK(ids == std::vector<std::int32_t>{0, 'z', 256});
}
