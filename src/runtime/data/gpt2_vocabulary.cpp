#include "runtime/data/gpt2_vocabulary.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/file_descriptor.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

namespace mfsdp::runtime {
namespace {

using Json = nlohmann::json;
using Ids = std::unordered_map<std::string, std::int32_t>;

constexpr std::int64_t kMaxFileBytes = 256 << 20;  // a hundred times any real one
constexpr std::int64_t kMaxIds = 1 << 24;          // the table by id must not grow with one wrong number

std::string read_text(const base::FileDescriptor& file) {
    if (!file.is_regular_file()) base::raise_file_error(file.use(), file.path(), "not a regular file");
    const std::int64_t bytes = file.size();
    if (bytes > kMaxFileBytes) {
        base::raise_file_error(file.use(), file.path(),
                               std::to_string(bytes) + " bytes, at most " + std::to_string(kMaxFileBytes));
    }
    std::string text(static_cast<std::size_t>(bytes), '\0');
    file.read_exact(std::as_writable_bytes(std::span(text)), 0);
    return text;
}

/// The files write every byte as one printable character: printable ones of Latin-1 as themselves, the other 68 in
/// their order as U+0100, U+0101, ...
class ByteAlphabet {
  public:
    ByteAlphabet() {
        std::uint32_t next = 256;
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
            names_[byte] = utf8(printable ? byte : next++);
            bytes_.emplace(names_[byte], static_cast<char>(byte));
        }
    }

    [[nodiscard]] const std::string& name(std::size_t byte) const { return names_[byte]; }

    /// The bytes that `name` stands for; a name with a character that is no byte's (a special token) stands for itself.
    [[nodiscard]] std::string bytes(const std::string& name) const {
        std::string result;
        for (std::size_t at = 0; at < name.size();) {
            const std::size_t length = static_cast<unsigned char>(name[at]) < 0x80 ? 1 : 2;  // no name is longer
            const auto found = bytes_.find(name.substr(at, length));
            if (found == bytes_.end()) return name;
            result += found->second;
            at += length;
        }
        return result;
    }

  private:
    static std::string utf8(std::uint32_t character) {  // below 0x800
        if (character < 0x80) return std::string(1, static_cast<char>(character));
        return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
    }

    std::array<std::string, 256> names_;
    std::unordered_map<std::string, char> bytes_;
};

class VocabularyFile {
  public:
    explicit VocabularyFile(const std::string& path)
        : file_(path, base::FileMode::read, base::FileUse::data), json_(parse(read_text(file_))) {}

    /// Fills tokens, byte ids and the end of a document; returns the id of each name.
    Ids read(const ByteAlphabet& alphabet, const std::string& end_of_document, Gpt2Vocabulary& vocabulary) const {
        Ids ids;
        for (const auto& [name, value] : json_.items()) {
            const std::int32_t id = read_id(name, value);
            const auto place = static_cast<std::size_t>(id);
            if (place >= vocabulary.tokens.size()) vocabulary.tokens.resize(place + 1);
            require(!name.empty(), "a token without a name has id " + std::to_string(id));
            require(vocabulary.tokens[place].empty(), "two tokens have the id " + std::to_string(id));
            vocabulary.tokens[place] = alphabet.bytes(name);
            ids.emplace(name, id);
        }
        for (std::size_t byte = 0; byte < vocabulary.byte_ids.size(); ++byte) {
            const auto found = ids.find(alphabet.name(byte));
            require(found != ids.end(),
                    "no token '" + alphabet.name(byte) + "', which stands for byte " + std::to_string(byte));
            vocabulary.byte_ids[byte] = found->second;
        }
        const auto end = ids.find(end_of_document);
        require(end != ids.end(), "no token '" + end_of_document + "' to end documents with");
        vocabulary.end_of_document = end->second;
        return ids;
    }

  private:
    void require(bool holds, const std::string& otherwise) const {
        if (!holds) base::raise_file_error(file_.use(), file_.path(), otherwise);
    }

    [[nodiscard]] Json parse(const std::string& text) const {
        // The parser takes a zero byte for the end of its input and would not look at what follows.
        require(text.find('\0') == std::string::npos, "contains a zero byte");
        std::set<std::string> names;
        const auto one_object = [&](int depth, Json::parse_event_t event, Json& value) {
            const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
            require(!opens || (depth == 0 && event == Json::parse_event_t::object_start),
                    "is not one object of tokens and ids");
            if (event == Json::parse_event_t::key) {
                const auto& name = value.get_ref<const std::string&>();
                require(names.insert(name).second, "has the token '" + name + "' twice");
            }
            return true;
        };
        try {
            Json json = Json::parse(text, one_object);
            require(json.is_object(), "is not one object of tokens and ids");
            return json;
        } catch (const Json::exception& error) {
            require(false, std::string("is not UTF-8 JSON: ") + error.what());
        }
        raise_internal_error("unreachable", __FILE__, __LINE__, "require(false) throws");
    }

    [[nodiscard]] std::int32_t read_id(const std::string& name, const Json& value) const {
        const bool valid = value.is_number_unsigned() && value.get<std::uint64_t>() < std::uint64_t{kMaxIds};
        require(valid, "token '" + name + "': id " + value.dump(-1, ' ', false, Json::error_handler_t::replace) +
                           " is not a whole number from 0 to " + std::to_string(kMaxIds - 1));
        return value.get<std::int32_t>();
    }

    base::FileDescriptor file_;
    Json json_;
};

class MergesFile {
  public:
    explicit MergesFile(const std::string& path)
        : file_(path, base::FileMode::read, base::FileUse::data), text_(read_text(file_)) {}

    [[nodiscard]] std::vector<BytePairMerge> read(const Ids& ids) const {
        std::vector<BytePairMerge> merges;
        std::set<std::pair<std::int32_t, std::int32_t>> seen;
        std::string_view rest = text_;
        for (std::int64_t line = 1; !rest.empty(); ++line) {
            std::string_view content = rest.substr(0, rest.find('\n'));
            rest.remove_prefix(std::min(rest.size(), content.size() + 1));
            if (content.ends_with('\r')) content.remove_suffix(1);
            if (content.empty() || (line == 1 && content.starts_with("#version"))) continue;
            merges.push_back(read_line(content, line, ids));
            require(seen.emplace(merges.back().left, merges.back().right).second, line,
                    "the pair was merged on a line before");
        }
        return merges;
    }

  private:
    void require(bool holds, std::int64_t line, const std::string& otherwise) const {
        if (!holds) {
            base::raise_file_error(file_.use(), file_.path(), "line " + std::to_string(line) + ": " + otherwise);
        }
    }

    [[nodiscard]] BytePairMerge read_line(std::string_view content, std::int64_t line, const Ids& ids) const {
        const std::size_t space = content.find(' ');
        require(space != std::string_view::npos && space > 0 && space + 1 < content.size() &&
                    content.find(' ', space + 1) == std::string_view::npos,
                line, "expected two tokens with a space between");
        const std::string left(content.substr(0, space));
        const std::string right(content.substr(space + 1));
        const auto id_of = [&](const std::string& name) {
            const auto found = ids.find(name);
            require(found != ids.end(), line, "'" + name + "' is not in vocab.json");
            return found->second;
        };
        return {id_of(left), id_of(right), id_of(left + right)};
    }

    base::FileDescriptor file_;
    std::string text_;
};

}  // namespace

Gpt2Vocabulary read_gpt2_vocabulary(const std::string& directory, const std::string& end_of_document) {
    Gpt2Vocabulary vocabulary;
    const Ids ids = VocabularyFile(directory + "/vocab.json").read(ByteAlphabet(), end_of_document, vocabulary);
    vocabulary.merges = MergesFile(directory + "/merges.txt").read(ids);
    return vocabulary;
}

}  // namespace mfsdp::runtime
