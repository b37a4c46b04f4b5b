#include "mfsdp/runtime/data/token_stream.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/hash64.h"

#include "support/catch.h"
#include "support/throws.h"
#include "token_files.h"

#include <algorithm>

using namespace mfsdp;
using namespace mfsdp::runtime;
using namespace mfsdp::test;

TEST_CASE("windows cross file borders, whatever kinds and sizes the files have") {
    const TemporaryDirectory folder;
    write_file(folder / "1.bin", gpt2_file({0, 1, 2}));
    write_file(folder / "2.bin", llama3_file({3}));
    write_file(folder / "3.bin", llmq_file({4, 5, 6, 7}, 50, "0101"));
    const TokenStream stream({folder / "*.bin"}, DataFormat::tokens, 50);
    REQUIRE(stream.tokens() == 8);
    CHECK(stream.has_masks());
    const std::vector<std::uint8_t> expected_bits = {1, 1, 1, 1, 0, 1, 0, 1};
    for (std::size_t begin = 0; begin <= 8; ++begin) {
        for (std::size_t end = begin; end <= 8; ++end) {
            std::vector<std::int32_t> ids(end - begin);
            std::vector<std::uint8_t> bits(end - begin);
            stream.read(static_cast<std::int64_t>(begin), ids);
            stream.read_masks(static_cast<std::int64_t>(begin), bits);
            for (std::size_t i = 0; i < ids.size(); ++i) {
                REQUIRE(ids[i] == static_cast<std::int32_t>(begin + i));
                REQUIRE(bits[i] == expected_bits[begin + i]);
            }
        }
    }
    std::vector<std::int32_t> nine(9);
    CHECK_THROWS_AS(stream.read(0, nine), InternalError);
}

TEST_CASE("more files than are kept open are read right") {
    const TemporaryDirectory folder;
    std::vector<std::string> paths;
    for (int i = 0; i < 300; ++i) {
        paths.push_back(folder / std::to_string(i));
        write_file(paths.back(), gpt2_file({i}));
    }
    const TokenStream stream(paths, DataFormat::tokens, 300);
    std::vector<std::int32_t> ids(300);
    for (int pass = 0; pass < 2; ++pass) {
        std::fill(ids.begin(), ids.end(), -1);
        stream.read(0, ids);
        for (int i = 0; i < 300; ++i) REQUIRE(ids[static_cast<std::size_t>(i)] == i);
    }
}

TEST_CASE("the fingerprint is the hash of the canonical list of files") {
    const TemporaryDirectory folder;
    write_file(folder / "a.txt", "123456789");
    write_file(folder / "b\".txt", std::string(70000, '\0'));
    const TokenStream stream({folder / "*.txt"}, DataFormat::bytes, 257);
    // crc32c of "123456789" is published; that of 65536 zero bytes was computed bit by bit from the definition.
    std::uint32_t zeros = 0xFFFFFFFFU;
    for (int bit = 0; bit < 65536 * 8; ++bit) zeros = (zeros & 1U) != 0 ? (zeros >> 1) ^ 0x82F63B78U : zeros >> 1;
    char zeros_text[9] = {};
    std::snprintf(zeros_text, sizeof(zeros_text), "%08x", ~zeros);
    const std::string list = R"([{"bytes":9,"crc32c":"e3069283","name":"a.txt","tokens":10},)"
                             R"({"bytes":70000,"crc32c":")" +
                             std::string(zeros_text) + R"(","name":"b\".txt","tokens":70001}])";
    CHECK(stream.fingerprint() == base::hash64(list));
    write_file(folder / "a.txt", "123456780");
    CHECK(TokenStream({folder / "*.txt"}, DataFormat::bytes, 257).fingerprint() != base::hash64(list));
}
