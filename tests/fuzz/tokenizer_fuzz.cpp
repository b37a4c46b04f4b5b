// GPT-2 tokenizers: files are refused with a DataError; texts come back as they were, in pieces as in whole.
//
// Input, cut at bytes 0x1E: two parts are vocab.json and merges.txt as they are; three are merges of the letters of
// a vocabulary that fits them, two letters a line, a text, and a first byte for the length of the pieces.

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/tokenizer.h"

#include "fuzz.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

using namespace mfsdp;
using namespace mfsdp::runtime;

namespace {

using Ids = std::vector<std::int32_t>;

// A folder whose two files are files in memory.
class Folder {
  public:
    Folder() {
        std::string path = "/tmp/mfsdp-fuzz-XXXXXX";
        FUZZ_REQUIRE(::mkdtemp(path.data()) != nullptr);
        path_ = path;
        FUZZ_REQUIRE(::symlink(vocab.path().c_str(), (path_ + "/vocab.json").c_str()) == 0);
        FUZZ_REQUIRE(::symlink(merges.path().c_str(), (path_ + "/merges.txt").c_str()) == 0);
    }
    ~Folder() {
        ::unlink((path_ + "/vocab.json").c_str());
        ::unlink((path_ + "/merges.txt").c_str());
        ::rmdir(path_.c_str());
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

    const fuzz::MemoryFile vocab{0};
    const fuzz::MemoryFile merges{1};

  private:
    std::string path_;
};

nlohmann::json byte_names() {
    nlohmann::json names;
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        const int character = printable ? byte : next++;
        std::string name(1, static_cast<char>(character));
        if (character >= 128)
            name = {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 63))};
        names[name] = byte;
    }
    names["<|endoftext|>"] = 256;
    return names;
}

bool is_printable(char letter) { return letter > ' ' && letter < '\x7f'; }

// Lines "left right" from bytes: letters until a space, letters until a newline. What is no such line is left out.
std::string sound_merges(const std::string& text, nlohmann::json& vocabulary) {
    std::string merges;
    std::set<std::string> seen;
    std::size_t at = 0;
    while (at < text.size()) {
        std::string line = text.substr(at, text.find('\n', at) - at);
        at += line.size() + 1;
        const std::size_t space = line.find(' ');
        if (space == std::string::npos || space == 0 || space + 1 == line.size()) continue;
        const std::string left = line.substr(0, space), right = line.substr(space + 1);
        const auto all_letters = [](const std::string& part) {
            return std::all_of(part.begin(), part.end(), is_printable);
        };
        if (!all_letters(left) || !all_letters(right) || !vocabulary.contains(left) || !vocabulary.contains(right))
            continue;
        if (left == "<|endoftext|>" || right == "<|endoftext|>" || !seen.insert(line).second) continue;
        if (!vocabulary.contains(left + right)) vocabulary[left + right] = vocabulary.size();
        merges += line + '\n';
    }
    return merges;
}

void check_text(Tokenizer& tokenizer, const std::string& text, std::size_t piece) {
    const Ids whole = tokenizer.encode(text);
    FUZZ_REQUIRE(tokenizer.decode(whole) == text);
    FUZZ_REQUIRE(tokenizer.encode(text) == whole);  // with its words remembered
    Ids pieces;
    std::string waiting;
    for (std::size_t at = 0; at < text.size(); at += piece) {
        waiting += text.substr(at, piece);
        waiting.erase(0, tokenizer.encode_some(waiting, false, pieces));
    }
    FUZZ_REQUIRE(tokenizer.encode_some(waiting, true, pieces) == waiting.size());
    FUZZ_REQUIRE(pieces == whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Folder folder;
    static const nlohmann::json bytes = byte_names();
    static std::string known_merges;  // most inputs differ in the text only, and a tokenizer takes time to make
    static std::unique_ptr<Tokenizer> known;
    std::vector<std::string> parts = fuzz::parts_of(data, size);
    if (parts.size() < 2) return 0;
    const bool sound = parts.size() > 2;
    try {
        if (sound) {
            nlohmann::json vocabulary = bytes;
            const std::string merges = sound_merges(parts[0], vocabulary);
            if (!known || merges != known_merges) {
                folder.vocab.set(vocabulary.dump());
                folder.merges.set(merges);
                known_merges = merges;
                known = make_gpt2_tokenizer(folder.path());
            }
            check_text(*known, parts[1], 1 + static_cast<unsigned char>(parts[2].empty() ? 0 : parts[2][0]) % 17U);
        } else {
            folder.vocab.set(parts[0]);
            folder.merges.set(parts[1]);
            (void)make_gpt2_tokenizer(folder.path())->encode("any text  at all 12's");
        }
    } catch (const DataError& error) {
        if (sound) std::fprintf(stderr, "%s\n", error.what());
        FUZZ_REQUIRE(!sound);
        FUZZ_REQUIRE(std::string_view(error.what()).starts_with("data: " + folder.path()));
    }
    return 0;
}
