#include "mfsdp/runtime/data/tokenize.h"

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/token_stream.h"

#include "support/catch.h"
#include "support/throws.h"
#include "token_files.h"

#include <filesystem>

#include <signal.h>
#include <sys/resource.h>

using namespace mfsdp;
using namespace mfsdp::runtime;
using namespace mfsdp::test;
using Ids = std::vector<std::int64_t>;

namespace {

const std::string kGpt2Folder = MFSDP_SOURCE_DIR "/tests/runtime/data/gpt2_tokenizer";

TokenizeOptions options_for(const TemporaryDirectory& folder, std::vector<std::string> patterns) {
    TokenizeOptions options;
    options.patterns = std::move(patterns);
    options.output.directory = folder / "out";
    options.output.max_tokens_per_file = 1000;
    return options;
}

Ids stream_of(const std::string& folder) {
    const TokenStream stream({folder + "/*.bin"}, DataFormat::tokens, std::int64_t{1} << 31);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(stream.tokens()));
    stream.read(0, ids);
    return {ids.begin(), ids.end()};
}

std::size_t entries_of(const std::string& folder) {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

Ids bytes_of(const std::string& text) {
    Ids ids;
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
}

/// No file of this process grows beyond `bytes` while it lives.
class SmallFiles {
  public:
    explicit SmallFiles(rlim_t bytes) : signal_(::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    SmallFiles(const SmallFiles&) = delete;
    SmallFiles& operator=(const SmallFiles&) = delete;
    ~SmallFiles() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        ::signal(SIGXFSZ, signal_);
    }

  private:
    rlimit before_{};
    void (*signal_)(int);
};

Ids joined(std::initializer_list<Ids> parts) {
    Ids all;
    for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
}

}  // namespace

TEST_CASE("each kind of token file is written byte for byte as its format says") {
    const TemporaryDirectory folder;
    write_file(folder / "a.txt", "ab\xFF");
    write_file(folder / "b.txt", "c");
    const Ids ids = {'a', 'b', 255, 256, 'c', 256};
    const auto header_and_body = [&](TokenFileKind kind) {
        TokenizeOptions options = options_for(folder, {folder / "*.txt"});
        options.output.kind = kind;
        std::filesystem::remove_all(options.output.directory);
        const TokenizeReport report = tokenize_files(options, *make_byte_tokenizer());
        CHECK(report.text_files == 2);
        CHECK(report.text_bytes == 4);
        CHECK(report.documents == 2);
        CHECK(report.empty_documents == 0);
        CHECK(report.tokens == 6);
        CHECK(report.token_files == 1);
        CHECK(entries_of(options.output.directory) == 1);
        return read_file(options.output.directory + "/tokens_000000.bin");
    };
    // token_files.h fills the words that no format names; here they are zero.
    const auto without_filler = [](std::string file) {
        for (std::size_t at = 0; at < 1024; at += 4) {
            if (file.compare(at, 4, "ZZZZ") == 0) file.replace(at, 4, 4, '\0');
        }
        return file;
    };
    CHECK(header_and_body(TokenFileKind::gpt2) == without_filler(gpt2_file(ids)));
    CHECK(header_and_body(TokenFileKind::llama3) == without_filler(llama3_file(ids)));
    CHECK(header_and_body(TokenFileKind::llmq) == without_filler(llmq_file(ids, 257)));
}

TEST_CASE("a text cut into token files of any size is one stream of the same tokens") {
    const TemporaryDirectory folder;
    std::string text;
    for (int i = 0; i < 60; ++i) text += static_cast<char>(i * 7);
    write_file(folder / "a.txt", text);
    const Ids expected = joined({bytes_of(text), {256}});
    for (const std::int64_t limit : {1, 2, 7, 60, 61, 62}) {
        TokenizeOptions options = options_for(folder, {folder / "a.txt"});
        options.output.max_tokens_per_file = limit;
        options.output.directory = folder / ("out" + std::to_string(limit));
        const TokenizeReport report = tokenize_files(options, *make_byte_tokenizer());
        CHECK(report.token_files == (61 + limit - 1) / limit);
        CHECK(entries_of(options.output.directory) == static_cast<std::size_t>(report.token_files));
        CHECK(stream_of(options.output.directory) == expected);
    }
}

TEST_CASE("documents end at files and separators, and those without text are left out and counted") {
    const TemporaryDirectory folder;
    write_file(folder / "1.txt", "one<|>two<|><|>3");
    write_file(folder / "2.txt", "");
    write_file(folder / "3.txt", "<|>four<|");
    write_file(folder / "4.txt", ">five<|>");
    TokenizeOptions options = options_for(folder, {folder / "*.txt"});
    options.separator = "<|>";
    const TokenizeReport report = tokenize_files(options, *make_byte_tokenizer());
    CHECK(report.documents == 5);
    CHECK(report.empty_documents == 4);
    const Ids end = {256};
    CHECK(stream_of(options.output.directory) == joined({bytes_of("one"), end, bytes_of("two"), end, bytes_of("3"), end,
                                                         bytes_of("four<|"), end, bytes_of(">five"), end}));
}

TEST_CASE("blocks of reading and separators change no id", "[icu]") {
    if (!gpt2_tokenizer_available()) return;
    const TemporaryDirectory folder;
    // Longer than two blocks, with characters, words, runs of spaces and separators at every place of a block's border.
    const std::string piece = "The owner's matrix  \xE8\xA1\x8C\xE5\x88\x97 \xF0\x9F\x98\x80\n\n  123";
    std::string text, document;
    std::vector<std::string> documents;
    for (std::size_t number = 0; text.size() < (std::size_t{5} << 19); ++number) {
        document = piece;
        for (std::size_t repeat = 0; repeat < number % 40; ++repeat) document += piece + std::string(number % 7, ' ');
        documents.push_back(document);
        text += (text.empty() ? "" : "<sep>") + document;
    }
    write_file(folder / "a.txt", text);
    TokenizeOptions options = options_for(folder, {folder / "a.txt"});
    options.separator = "<sep>";
    options.output.max_tokens_per_file = 1 << 20;
    const auto tokenizer = make_tokenizer(kGpt2Folder);
    const TokenizeReport report = tokenize_files(options, *tokenizer);
    CHECK(report.documents == static_cast<std::int64_t>(documents.size()));
    Ids expected;
    for (const std::string& each : documents) {
        for (const std::int32_t id : tokenizer->encode(each)) expected.push_back(id);
        expected.push_back(456);
    }
    CHECK(report.tokens == static_cast<std::int64_t>(expected.size()));
    CHECK(stream_of(options.output.directory) == expected);
}

TEST_CASE("text that is not UTF-8 is refused with its place or replaced, as asked; bytes take any", "[icu]") {
    if (!gpt2_tokenizer_available()) return;
    const TemporaryDirectory folder;
    const auto tokenizer = make_tokenizer(kGpt2Folder);
    const std::string path = folder / "a.txt";
    // The character and the fault lie across the border of a block.
    std::string text((1 << 20) - 1, 'x');
    text += "\xC3\xA9\xE8\xA1";
    write_file(path, text);
    TokenizeOptions options = options_for(folder, {path});
    options.output.max_tokens_per_file = 1 << 24;
    CHECK(message_of<DataError>([&] { (void)tokenize_files(options, *tokenizer); }) ==
          "data: " + path +
              ": not UTF-8 from byte 1048577 (0xe8) on; --ill-formed=replace takes U+FFFD for such parts");
    CHECK(entries_of(folder.path()) == 1);  // neither the folder nor an unfinished one
    options.ill_formed = IllFormedText::replace;
    CHECK(tokenize_files(options, *tokenizer).replaced_parts == 1);
    Ids expected;
    for (const std::int32_t id : tokenizer->encode(text.substr(0, (1 << 20) + 1) + "\xEF\xBF\xBD")) {
        expected.push_back(id);
    }
    CHECK(stream_of(options.output.directory) == joined({expected, {456}}));
    std::filesystem::remove_all(options.output.directory);
    options.ill_formed = IllFormedText::refuse;
    CHECK(tokenize_files(options, *make_byte_tokenizer()).tokens == (1 << 20) + 4);
}

TEST_CASE("a word that no text has is refused instead of filling the memory", "[icu]") {
    if (!gpt2_tokenizer_available()) return;
    const TemporaryDirectory folder;
    write_file(folder / "a.txt", "x");
    std::filesystem::resize_file(folder / "a.txt", std::uintmax_t{1} << 36);  // sparse: zeros, one word of them
    const TokenizeOptions options = options_for(folder, {folder / "a.txt"});
    const std::string message =
        message_of<DataError>([&] { (void)tokenize_files(options, *make_tokenizer(kGpt2Folder)); });
    CHECK(message ==
          "data: " + (folder / "a.txt") +
              ": more than 16777216 bytes without a border between words before byte 17825792; is this text?");
}

TEST_CASE("an output that exists, text without documents and too small a kind are refused") {
    const TemporaryDirectory folder;
    write_file(folder / "a.txt", "");
    TokenizeOptions options = options_for(folder, {folder / "a.txt"});
    CHECK(message_of<DataError>([&] { (void)tokenize_files(options, *make_byte_tokenizer()); }) ==
          "data: no text to tokenize in 1 file");
    write_file(folder / "a.txt", "x");
    for (const char* name : {"taken", "taken/", "dangling"}) {
        std::filesystem::create_directories(folder / "taken");
        if (std::string(name) == "dangling") std::filesystem::create_symlink("/nowhere", folder / name);
        options.output.directory = folder / name;
        const std::string message =
            message_of<ConfigError>([&] { (void)tokenize_files(options, *make_byte_tokenizer()); });
        CHECK(message.ends_with("exists already; choose another or remove it"));
    }
    options.output.directory = folder / "a.txt/out";
    CHECK(message_of<ConfigError>([&] {
              (void)tokenize_files(options, *make_byte_tokenizer());
          }).starts_with("tokenize: output '" + (folder / "a.txt/out") + "': cannot make a folder beside it: "));
    options.output.directory = folder / "deep/er/out/";
    CHECK(tokenize_files(options, *make_byte_tokenizer()).tokens == 2);
    CHECK(stream_of(folder / "deep/er/out") == Ids{'x', 256});
    CHECK(id_limit(TokenFileKind::gpt2) == 65536);
    CHECK_THROWS_AS(id_limit(TokenFileKind::bytes), InternalError);
    options.patterns = {folder / "nothing*"};
    CHECK_THROWS_AS(tokenize_files(options, *make_byte_tokenizer()), DataError);
    options.patterns = {folder.path()};
    options.output.directory = folder / "of_folder";
    CHECK(message_of<DataError>([&] { (void)tokenize_files(options, *make_byte_tokenizer()); }) ==
          "data: " + folder.path() + ": not a regular file");
}

TEST_CASE("a tokenizer with more ids than 16 bits hold needs another kind", "[icu]") {
    if (!gpt2_tokenizer_available()) return;
    const TemporaryDirectory folder;
    write_file(folder / "a.txt", "x");
    std::string vocab = read_file(kGpt2Folder + "/vocab.json");
    vocab.insert(1, "\"far\": 65536, ");
    write_file(folder / "vocab.json", vocab);
    std::filesystem::copy(kGpt2Folder + "/merges.txt", folder / "merges.txt");
    const auto tokenizer = make_tokenizer(folder.path());
    TokenizeOptions options = options_for(folder, {folder / "a.txt"});
    CHECK(message_of<ConfigError>([&] { (void)tokenize_files(options, *tokenizer); }) ==
          "tokenize: the tokenizer has 65537 ids, files of kind llm.c GPT-2 hold 65536; --kind=llama3 holds more");
    options.output.kind = TokenFileKind::llama3;
    CHECK(tokenize_files(options, *tokenizer).tokens == 2);
}

TEST_CASE("an unfinished set of token files leaves nothing, also after a full disk") {
    const TemporaryDirectory folder;
    TokenSetWriter::Options options{folder / "out", TokenFileKind::gpt2, 300, 1000};
    {
        TokenSetWriter writer(options);
        writer.write(std::vector<std::int32_t>(2500, 5));
        CHECK(writer.files() == 3);
        CHECK(entries_of(folder.path()) == 1);
        CHECK_FALSE(std::filesystem::exists(folder / "out"));
        CHECK_THROWS_AS(writer.write(std::vector<std::int32_t>{300}), InternalError);
        CHECK_THROWS_AS(writer.write(std::vector<std::int32_t>{-1}), InternalError);
    }
    CHECK(entries_of(folder.path()) == 0);
    {
        // A limit of file sizes stands for the full disk.
        const SmallFiles limit(1500);
        TokenSetWriter writer(options);
        const std::string message = message_of<DataError>([&] { writer.write(std::vector<std::int32_t>(1000, 5)); });
        CHECK(message.ends_with("tokens_000000.bin: wrote 476 of 2000 bytes at offset 1024: File too large"));
    }
    CHECK(entries_of(folder.path()) == 0);
    TokenSetWriter empty(options);
    CHECK_THROWS_AS(empty.finish(), InternalError);
}
