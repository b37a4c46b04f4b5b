#include "mfsdp/runtime/data/tokenizer.h"

#include "mfsdp/base/error.h"

#include "runtime/data/characters.h"
#include "support/catch.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

#include <fstream>
#include <random>

#include <nlohmann/json.hpp>

using namespace mfsdp;
using namespace mfsdp::runtime;
using mfsdp::test::message_of;
using mfsdp::test::read_file;
using mfsdp::test::TemporaryDirectory;
using mfsdp::test::write_file;
using nlohmann::json;
using Ids = std::vector<std::int32_t>;

namespace {

const std::string kFolder = MFSDP_SOURCE_DIR "/tests/runtime/data/gpt2_tokenizer";

// Ids recorded by the published algorithm in another language: tests/runtime/data/gpt2_tokenizer/make.py.
json recorded() { return json::parse(std::ifstream(kFolder + "/vectors.json")); }

std::string random_bytes(std::mt19937_64& random, std::size_t count) {
    // Pieces that make words, contractions, wide and ill-formed characters likely.
    static const std::vector<std::string> kPieces = {
        " ",    "  ",       "\n",           "'s",   "'ll",      "the",
        "a",    "\xC3\xA9", "\xE8\xA1\x8C", "12",   "!",        "\xF0\x9F\x98\x80",
        "\xFF", "\xE8\xA1", "\t",           "\r\n", "\xC2\xA0", "'"};
    std::string text;
    while (text.size() < count) {
        text += random() % 3 == 0 ? std::string(1, static_cast<char>(random())) : kPieces[random() % kPieces.size()];
    }
    return text;
}

// The tokenizer's files with one of them changed.
class ChangedFiles {
  public:
    ChangedFiles()
        : vocab_(json::parse(std::ifstream(kFolder + "/vocab.json"))), merges_(read_file(kFolder + "/merges.txt")) {}

    json& vocab() { return vocab_; }
    std::string& merges() { return merges_; }
    [[nodiscard]] std::string message() const { return message_with(vocab_.dump()); }
    [[nodiscard]] std::string message_with(const std::string& vocab_text) const {
        write_file(folder_ / "vocab.json", vocab_text);
        write_file(folder_ / "merges.txt", merges_);
        const std::string message = message_of<DataError>([&] { (void)make_gpt2_tokenizer(folder_.path()); });
        const std::string place = "data: " + folder_.path() + "/";
        return message.starts_with(place) ? message.substr(place.size()) : message;
    }

  private:
    TemporaryDirectory folder_;
    json vocab_;
    std::string merges_;
};

}  // namespace

TEST_CASE("the byte tokenizer gives each byte as its id and takes them back") {
    const auto tokenizer = make_byte_tokenizer();
    CHECK(tokenizer->vocab_size() == 257);
    CHECK(tokenizer->end_of_document() == 256);
    CHECK(tokenizer->encode("").empty());
    std::string text;
    for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
    Ids expected(256);
    for (int byte = 0; byte < 256; ++byte) expected[static_cast<std::size_t>(byte)] = byte;
    CHECK(tokenizer->encode(text) == expected);
    expected.push_back(256);
    CHECK(tokenizer->decode(expected) == text);
    CHECK_THROWS_AS(tokenizer->decode(Ids{257}), InternalError);
    CHECK_THROWS_AS(tokenizer->decode(Ids{-1}), InternalError);
}

TEST_CASE("a GPT-2 tokenizer needs ICU and says so", "[icu]") {
    if (gpt2_tokenizer_available()) {
        CHECK_NOTHROW(make_tokenizer(kFolder));
    } else {
        CHECK(message_of<ConfigError>([] { (void)make_tokenizer(kFolder); }).find("built without ICU") !=
              std::string::npos);
    }
}

TEST_CASE("ids of the GPT-2 tokenizer equal the recorded ones of the published algorithm", "[icu]") {
    if (!gpt2_tokenizer_available()) return;
    const auto tokenizer = make_tokenizer(kFolder);
    CHECK(tokenizer->vocab_size() == 457);
    CHECK(tokenizer->end_of_document() == 456);
    CHECK(tokenizer->needs_utf8());
    const json vectors = recorded().at("vectors");
    REQUIRE(vectors.size() > 90);
    std::size_t ids_seen = 0;
    for (int pass = 0; pass < 2; ++pass) {  // the second meets remembered words
        for (const json& vector : vectors) {
            const auto text = vector.at("text").get<std::string>();
            CAPTURE(text);
            const Ids ids = tokenizer->encode(text);
            CHECK(ids == vector.at("ids").get<Ids>());
            CHECK(tokenizer->decode(ids) == text);
            ids_seen += ids.size();
        }
    }
    CHECK(ids_seen > 3000);
}

TEST_CASE("decoding what was encoded gives the same bytes, whatever they are", "[icu]") {
    if (!gpt2_tokenizer_available()) return;
    const auto tokenizer = make_tokenizer(kFolder);
    std::mt19937_64 random(5);
    for (std::size_t bytes = 0; bytes < 300; ++bytes) {
        const std::string text = random_bytes(random, bytes);
        REQUIRE(tokenizer->decode(tokenizer->encode(text)) == text);
    }
    CHECK(tokenizer->decode(Ids{456}) == "<|endoftext|>");
    CHECK_THROWS_AS(tokenizer->decode(Ids{457}), InternalError);
}

TEST_CASE("a text that arrives in pieces has the ids of the whole", "[icu]") {
    if (!gpt2_tokenizer_available()) return;
    const auto tokenizer = make_tokenizer(kFolder);
    std::mt19937_64 random(6);
    for (int repeat = 0; repeat < 200; ++repeat) {
        const std::string text = random_bytes(random, 200);
        const Ids whole = tokenizer->encode(text);
        Ids pieces;
        std::string waiting;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t count = std::min<std::size_t>(1 + random() % 9, text.size() - at);
            waiting += text.substr(at, count);
            at += count;
            const std::size_t done = tokenizer->encode_some(waiting, false, pieces);
            REQUIRE(done <= waiting.size());
            waiting.erase(0, done);
        }
        REQUIRE(tokenizer->encode_some(waiting, true, pieces) == waiting.size());
        REQUIRE(pieces == whole);
    }
}

TEST_CASE("ill-formed UTF-8 is found with the part that U+FFFD replaces", "[icu]") {
    if (!has_unicode()) return;
    const auto tokenizer = make_tokenizer(kFolder);
    const json replaced = recorded().at("replaced");
    REQUIRE(replaced.size() >= 8);
    for (const json& vector : replaced) {
        std::string text;
        for (const int byte : vector.at("bytes")) text += static_cast<char>(byte);
        std::string mended;
        while (true) {
            const Utf8Fault fault = find_utf8_fault(text, true);
            mended += text.substr(0, fault.at);
            if (fault.bytes == 0) break;
            mended += "\xEF\xBF\xBD";
            text.erase(0, fault.at + fault.bytes);
        }
        CHECK(tokenizer->encode(mended) == vector.at("ids").get<Ids>());
    }
    const auto fault = [](std::string_view text, bool is_last) {
        const Utf8Fault found = find_utf8_fault(text, is_last);
        return std::pair(found.at, found.bytes);
    };
    using Pair = std::pair<std::size_t, std::size_t>;
    CHECK(fault("0123456789", true) == Pair{10, 0});
    CHECK(fault("0123456789\xE8\xA1", false) == Pair{10, 0});  // may still become a character
    CHECK(fault("0123456789\xE8\xA1", true) == Pair{10, 2});
    CHECK(fault("0123456789\xE8"
                "a",
                false) == Pair{10, 1});
    CHECK(fault("\x80", false) == Pair{0, 1});
    CHECK(fault("\xC3\xA9\xC0\xAF", false) == Pair{2, 1});
}

TEST_CASE("each broken rule of a vocabulary has its message") {
    using Files = ChangedFiles;
    if (gpt2_tokenizer_available()) CHECK(Files().message() == "<no exception>");
    const std::string open = "cannot open: No such file or directory";
    CHECK(message_of<DataError>([] { (void)make_tokenizer("/no/such"); }) == "data: /no/such/vocab.json: " + open);
    CHECK(Files().message_with("[1]") == "vocab.json: is not one object of tokens and ids");
    CHECK(Files().message_with("3") == "vocab.json: is not one object of tokens and ids");
    CHECK(Files().message_with("{\"a\":{\"b\":1}}") == "vocab.json: is not one object of tokens and ids");
    CHECK(Files().message_with("{\"a\":1").starts_with("vocab.json: is not UTF-8 JSON: "));
    CHECK(Files().message_with("{\"\xFF\":1}").starts_with("vocab.json: is not UTF-8 JSON: "));
    CHECK(Files().message_with("").starts_with("vocab.json: is not UTF-8 JSON: "));
    CHECK(Files().message_with(std::string("{}\0", 3)) == "vocab.json: contains a zero byte");
    CHECK(Files().message_with("{\"a\":1,\"a\":2}") == "vocab.json: has the token 'a' twice");
    CHECK(Files().message_with("{\"a\":1,\"b\":1}") == "vocab.json: two tokens have the id 1");
    CHECK(Files().message_with("{\"\":1}") == "vocab.json: a token without a name has id 1");
    for (const char* id : {"-1", "1.0", "\"1\"", "16777216", "99999999999999999999", "null"}) {
        CHECK(Files()
                  .message_with("{\"a\":" + std::string(id) + "}")
                  .ends_with("is not a whole number from 0 to 16777215"));
    }
    Files no_space;
    no_space.vocab().erase("\xC4\xA0");  // U+0120, a space
    CHECK(no_space.message() == "vocab.json: no token '\xC4\xA0', which stands for byte 32");
    Files no_end;
    no_end.vocab().erase("<|endoftext|>");
    CHECK(no_end.message() == "vocab.json: no token '<|endoftext|>' to end documents with");
    Files files;
    const std::string merges = files.merges();
    files.merges() = "#version: 0.2\nt h\nt\n";
    CHECK(files.message() == "merges.txt: line 3: expected two tokens with a space between");
    files.merges() = "t h\n#version: 0.2 x\n";
    CHECK(files.message() == "merges.txt: line 2: expected two tokens with a space between");
    for (const char* line : {" t h", "t h ", "t  h", " ", "t "}) {
        files.merges() = line;
        CHECK(files.message() == "merges.txt: line 1: expected two tokens with a space between");
    }
    files.merges() = "t x";
    CHECK(files.message() == "merges.txt: line 1: 'tx' is not in vocab.json");
    files.merges() = "t h\r\n\r\nth x y";
    CHECK(files.message() == "merges.txt: line 3: expected two tokens with a space between");
    files.merges() = merges + merges.substr(merges.find('\n') + 1);
    CHECK(files.message() == "merges.txt: line 202: the pair was merged on a line before");
}
