#include "runtime/config/config_files.h"

#include <string>

using config_test::error_of;
using config_test::kGpt2;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("every truncation of a configuration is a ConfigError") {
    const auto closing = kGpt2.rfind('}');
    REQUIRE(closing > 100);
    for (std::size_t length = 0; length <= closing; length += 7) {
        INFO("length " << length);
        CHECK(has(error_of(kGpt2.substr(0, length)), "run.json: line "));
    }
}

TEST_CASE("a syntax error names file, line and column") {
    const std::string error = error_of("{\n  \"train\": { \"steps\": 1,, } }");
    CHECK(has(error, "config: "));
    CHECK(has(error, "run.json: line 2, column 25: syntax error"));
    CHECK(!has(error, "json.exception"));
}

TEST_CASE("a key given twice is an error that names the key") {
    CHECK(error_of(replaced(kGpt2, "\"lr\": 3e-4", "\"lr\": 3e-4, \"lr\": 3e-4")) ==
          "config: optimizer.lr: given twice");
    CHECK(error_of(replaced(kGpt2, "\"precision\"", "\"data\": {\"train\": [\"b\"]}, \"precision\"")) ==
          "config: data: given twice");
}

TEST_CASE("text that is not JSON or not a configuration is a ConfigError") {
    CHECK(has(error_of(""), "syntax error"));
    CHECK(has(error_of("\xff\xfe"), "run.json: line 1"));
    CHECK(has(error_of("[1, 2]"), "expected object, got list"));
    CHECK(has(error_of("null"), "expected object, got null"));
    CHECK(has(error_of("{} {}"), "syntax error"));
    CHECK(has(error_of("{\"train\": {\"steps\": NaN}}"), "syntax error"));
    CHECK(has(error_of("{\"train\": {\"steps\": Infinity}}"), "syntax error"));
    CHECK(has(error_of("{\"optimizer\": {\"lr\": 1e999}}"), "number overflow"));
    CHECK(has(error_of("{\"telemetry\": {\"run_dir\": \"a\xc3(\"}}"), "ill-formed UTF-8"));
    CHECK(has(error_of(std::string("{\"a\0b\": 1}", 10)), "contains a zero byte"));
    CHECK(has(error_of("{/* open"), "comment"));
    CHECK(has(error_of(std::string("{}\0 {{{", 7)), "run.json: contains a zero byte"));
}

TEST_CASE("deep nesting is refused before it can exhaust the stack") {
    const std::string deep(200000, '[');
    CHECK(has(error_of(deep), "nested deeper than 32 levels"));
    std::string objects;
    for (int i = 0; i < 50000; ++i) objects += "{\"a\":";
    CHECK(has(error_of(objects), "nested deeper than 32 levels"));
    std::string path = "a";
    for (int i = 0; i < 1000; ++i) path += ".a";
    CHECK(has(error_of(kGpt2, {path + "=1"}), "expected section.key=value"));
}

TEST_CASE("huge files and objects are refused") {
    CHECK(has(error_of(std::string(2000000, ' ')), "longer than 1048576 bytes"));
    std::string keys = "{";
    for (int i = 0; i < 5000; ++i) keys += '"' + std::to_string(i) + "\":0,";
    CHECK(has(error_of(keys + "\"x\":0}"), "more than 4096 keys in one object"));
}

TEST_CASE("names with dots, zero bytes or control characters cannot pass for known keys") {
    CHECK(
        has(error_of(replaced(kGpt2, "\"data\"", "\"train.steps\": 5, \"data\"")), "config: train.steps: unknown key"));
    CHECK(has(error_of(replaced(kGpt2, "\"data\"", "\"\": 5, \"data\"")), "config: : unknown key"));
    CHECK(has(error_of(replaced(kGpt2, "\"data\"", "\"thr\\u0000eads\": 5, \"data\"")),
              "config: thr\\u0000eads: unknown key"));
    CHECK(has(error_of(replaced(kGpt2, "\"data\"", "\"a\\nb\": 5, \"data\"")), "config: a\\nb: unknown key"));
    CHECK(has(error_of(kGpt2, {"telemetry.run_dir=\"a\\u0000b\""}), "must not contain a zero byte"));
    const std::string error = error_of(kGpt2, {"telemetry.log_level=" + std::string(100000, 'x')});
    CHECK(has(error, "x...: must be one of debug"));
    CHECK(error.size() < 300);
}

TEST_CASE("a file that cannot be read is a ConfigError with the reason") {
    CHECK_THROWS_WITH(mfsdp::runtime::parse_train_config("/no/such/file.json"),
                      "config: /no/such/file.json: cannot be read: No such file or directory");
    CHECK_THROWS_WITH(mfsdp::runtime::parse_train_config("/tmp"), "config: /tmp: cannot be read: not a regular file");
}
