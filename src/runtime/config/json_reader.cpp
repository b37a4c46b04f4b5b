#include "runtime/config/json_value.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include <nlohmann/json.hpp>

namespace mfsdp::runtime {

namespace {

// Deep enough for any configuration; the recursive writers and destructors must not meet a text that nests 100000 deep.
constexpr std::size_t kMaxDepth = 32;
// Members are looked up one by one; this bounds the time that a wrong file can cost.
constexpr std::size_t kMaxMembers = 4096;
// A hundred times any real one: catches a data or weight file given by mistake before it is read as text.
constexpr std::size_t kMaxBytes = 1048576;

/// Builds a JsonValue from parser events: the library's own tree would lose repeated keys and the spelling of numbers.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
  public:
    TreeBuilder(std::string_view place, std::vector<std::string>& errors) : place_(place), errors_(errors) {}

    bool null() override { return add({}); }

    bool boolean(bool value) override {
        JsonValue result;
        result.kind = JsonValue::Kind::boolean;
        result.boolean = value;
        return add(std::move(result));
    }

    bool number_integer(std::int64_t value) override { return add(JsonValue::from_integer(value)); }

    bool number_unsigned(std::uint64_t value) override {
        if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            return add(JsonValue::from_integer(static_cast<std::int64_t>(value)));
        }
        return number_float(static_cast<double>(value), std::to_string(value));
    }

    bool number_float(double value, const std::string& written) override {
        JsonValue result = JsonValue::from_number(value);
        result.text = written;
        return add(std::move(result));
    }

    bool string(std::string& value) override { return add(JsonValue::from_string(value)); }

    // Never sent by the text parser, but the interface has it.
    bool binary(nlohmann::json::binary_t&) override { return false; }

    bool start_object(std::size_t) override { return open(JsonValue::Kind::object); }
    bool end_object() override { return close(); }
    bool start_array(std::size_t) override { return open(JsonValue::Kind::list); }
    bool end_array() override { return close(); }

    bool key(std::string& name) override {
        Level& level = levels_.back();
        if (level.value.members.size() == kMaxMembers) {
            return fail("more than " + std::to_string(kMaxMembers) + " keys in one object");
        }
        level.name = name;
        if (level.value.find(name) != nullptr) {
            std::string path;
            for (const auto& outer : levels_) path += (path.empty() || outer.name.empty() ? "" : ".") + outer.name;
            errors_.push_back("config: " + message_text(path) + ": given twice");
        }
        return true;
    }

    bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
        std::string reason = error.what();
        // "[json.exception.parse_error.101] parse error at line 1, column 2: ...": the part for users starts at "line".
        if (const auto line = reason.find("line "); line != std::string::npos) {
            reason.erase(0, line);
        } else if (const auto bracket = reason.find("] "); bracket != std::string::npos) {
            reason.erase(0, bracket + 2);
        }
        return fail(reason);
    }

    [[nodiscard]] std::optional<JsonValue> take() { return failed_ ? std::optional<JsonValue>{} : std::move(root_); }

  private:
    struct Level {
        JsonValue value;
        std::string name;  // the key that the next value belongs to
    };

    bool fail(const std::string& reason) {
        failed_ = true;
        errors_.push_back("config: " + place_ + ": " + reason);
        return false;
    }

    bool open(JsonValue::Kind kind) {
        if (levels_.size() == kMaxDepth) return fail("nested deeper than " + std::to_string(kMaxDepth) + " levels");
        levels_.emplace_back().value.kind = kind;
        return true;
    }

    bool close() {
        JsonValue finished = std::move(levels_.back().value);
        levels_.pop_back();
        return add(std::move(finished));
    }

    bool add(JsonValue value) {
        if (levels_.empty()) {
            root_ = std::move(value);
        } else if (Level& level = levels_.back(); level.value.is(JsonValue::Kind::object)) {
            level.value.set(level.name, std::move(value));
        } else {
            level.value.items.push_back(std::move(value));
        }
        return true;
    }

    std::string place_;
    std::vector<std::string>& errors_;
    std::vector<Level> levels_;
    std::optional<JsonValue> root_;
    bool failed_ = false;
};

}  // namespace

std::optional<JsonValue> read_json(std::string_view text, std::string_view place, std::vector<std::string>& errors) {
    // The parser takes a zero byte for the end of its input and would not look at what follows.
    if (text.find('\0') != std::string_view::npos) {
        errors.push_back(std::string("config: ").append(place).append(": contains a zero byte"));
        return std::nullopt;
    }
    TreeBuilder builder(place, errors);
    const bool read = nlohmann::json::sax_parse(text.begin(), text.end(), &builder,
                                                nlohmann::json::input_format_t::json, /*strict=*/true,
                                                /*ignore_comments=*/true);
    return read ? builder.take() : std::nullopt;
}

std::optional<JsonValue> read_json_file(const std::string& path, std::vector<std::string>& errors) {
    // Opening a pipe would wait for its writer.
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
        errors.push_back("config: " + message_text(path) + ": cannot be read: not a regular file");
        return std::nullopt;
    }
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    // Opening a directory succeeds on Linux; only reading tells.
    if (file.is_open()) file.peek();
    if (!file.is_open() || file.bad()) {
        const std::string reason = errno != 0 ? std::strerror(errno) : "unknown reason";
        errors.push_back("config: " + message_text(path) + ": cannot be read: " + reason);
        return std::nullopt;
    }
    file.clear();  // peek at an empty file sets eofbit
    std::string content(kMaxBytes + 1, '\0');
    file.read(content.data(), static_cast<std::streamsize>(content.size()));
    content.resize(static_cast<std::size_t>(file.gcount()));
    if (content.size() > kMaxBytes) {
        errors.push_back("config: " + message_text(path) + ": longer than " + std::to_string(kMaxBytes) +
                         " bytes, not a configuration");
        return std::nullopt;
    }
    return read_json(content, message_text(path), errors);
}

}  // namespace mfsdp::runtime
