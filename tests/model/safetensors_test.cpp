#include "mfsdp/model/safetensors.h"

#include "mfsdp/base/error.h"
#include "mfsdp/model/safetensors_writer.h"

#include "support/catch.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

#include <cstring>
#include <filesystem>
#include <numeric>

using mfsdp::DataError;
using mfsdp::InternalError;
using mfsdp::model::safetensors_layout;
using mfsdp::model::SafetensorsFile;
using mfsdp::model::SafetensorsTensor;
using mfsdp::model::SafetensorsWriter;
using mfsdp::test::message_of;
using mfsdp::test::read_file;
using mfsdp::test::TemporaryDirectory;
using mfsdp::test::write_file;

namespace {

std::string golden(const std::string& model) {
    return std::string(MFSDP_SOURCE_DIR) + "/tests/golden/models/" + model + "/model.safetensors";
}

std::string length_word(std::uint64_t value) {
    std::string text(8, '\0');
    std::memcpy(text.data(), &value, 8);
    return text;
}

std::string file_text(const std::string& json, std::size_t data_bytes) {
    return length_word(json.size()) + json + std::string(data_bytes, '\0');
}

std::vector<float> ramp(std::size_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 1.0F);
    return values;
}

struct Damage {
    const char* json;
    std::size_t data_bytes;
    const char* message;
};

// One row per rule; the message follows `data: <file>: `.
const Damage kDamages[] = {
    {"", 0, "the header does not start with '{'"},
    {" {}", 0, "the header does not start with '{'"},
    {"[]", 0, "the header does not start with '{'"},
    {"\xEF\xBB\xBF{}", 0, "the header does not start with '{'"},
    {"{", 0, "the header is not UTF-8 JSON"},
    {"{} x", 0, "the header is not UTF-8 JSON"},
    {"{\"a\xFF\":1}", 0, "the header is not UTF-8 JSON"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8, "the header has the key 'a' twice"},
    {R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4,
     "the header has the key 'shape' twice"},
    {R"({"__metadata__":{"format":1}})", 0, "__metadata__ 'format' is not a string"},
    {R"({"__metadata__":[]})", 0, "__metadata__ is not an object"},
    {R"({"a":3})", 0, "tensor a: its description is not an object"},
    {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "tensor a: no dtype"},
    {R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})", 4, "tensor a: dtype is not a string"},
    {R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "tensor a: unknown dtype 'F33'"},
    {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor a: no shape"},
    {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "tensor a: shape is not an array"},
    {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "tensor a: shape -1 is not a whole number >= 0"},
    {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4,
     "tensor a: shape 1.0 is not a whole number >= 0"},
    {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4,
     "tensor a: shape \"1\" is not a whole number >= 0"},
    {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
     "tensor a: shape 18446744073709551615 does not fit into 63 bits"},
    {R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4,
     "tensor a: shape 1e+20 is not a whole number >= 0"},
    {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4,
     "tensor a: the size of F32 [4294967296,4294967296] overflows"},
    {R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0,
     "tensor a: the size of F32 [0,4294967296,4294967296] overflows"},
    {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4,
     "tensor a: shape of 17 dimensions, at most 16"},
    {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor a: no data_offsets"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "tensor a: data_offsets is not a pair"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4.5]}})", 4,
     "tensor a: offset 4.5 is not a whole number >= 0"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "tensor a: offset -4 is not a whole number >= 0"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8, "tensor a: offsets [0,8], F32 [1] has 4 bytes"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "tensor a: offsets [4,0], F32 [1] has 4 bytes"},
    {R"({"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,16]}})", 16,
     "tensor a: offsets [0,16], BF16 [2,2] has 8 bytes"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
     "tensor a: gap: starts at 4, the tensors before end at 0"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
     12, "tensor b: gap: starts at 8, the tensors before end at 4"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
     12, "tensor b: overlap: starts at 4, the tensors before end at 8"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
     8, "tensor b: overlap: starts at 4, the tensors before end at 8"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5,
     "the tensors end at byte 4 of the data, the file has 5"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
     "the tensors end at byte 8 of the data, the file has 4"},
    {"{}", 1, "the tensors end at byte 0 of the data, the file has 1"},
};

}  // namespace

TEST_CASE("the reader refuses a damaged header with the rule it breaks") {
    const TemporaryDirectory folder;
    const std::string path = folder / "damaged.safetensors";
    for (const Damage& damage : kDamages) {
        CAPTURE(damage.json, damage.message);
        write_file(path, file_text(damage.json, damage.data_bytes));
        const std::string message = message_of<DataError>([&] { SafetensorsFile{path}; });
        const std::string expected = "data: " + path + ": " + damage.message;
        // The parser adds its own words after the rule.
        if (std::string(damage.message).ends_with("JSON")) {
            CHECK(message.substr(0, expected.size()) == expected);
        } else {
            CHECK(message == expected);
        }
    }
}

TEST_CASE("the reader refuses header lengths that the file does not have, and a zero byte in the JSON") {
    const TemporaryDirectory folder;
    const std::string path = folder / "damaged.safetensors";
    const auto message = [&](const std::string& content) {
        write_file(path, content);
        return message_of<DataError>([&] { SafetensorsFile{path}; });
    };
    const std::string place = "data: " + path + ": ";
    CHECK(message("") == place + "0 bytes, shorter than the header length");
    CHECK(message("1234567") == place + "7 bytes, shorter than the header length");
    CHECK(message(length_word(3) + "{}") == place + "header of 3 bytes in a file of 10");
    CHECK(message(length_word(100'000'001)) == place + "header of 100000001 bytes, at most 100000000");
    CHECK(message(length_word(~std::uint64_t{0})) == place + "header of 18446744073709551615 bytes, at most 100000000");
    CHECK(message(file_text(std::string("{}\0 ", 4), 0)) == place + "the header contains a zero byte");
}

TEST_CASE("a golden file cut or grown anywhere is refused") {
    const TemporaryDirectory folder;
    const std::string path = folder / "cut.safetensors";
    const std::string whole = read_file(golden("gpt2_tiny"));
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, whole.data(), 8);
    REQUIRE(whole.size() > header_bytes + 1000);
    const auto is_refused = [&](const std::string& content) {
        write_file(path, content);
        return message_of<DataError>([&] { SafetensorsFile{path}; }) != "<no exception>";
    };
    CHECK_FALSE(is_refused(whole));
    CHECK(is_refused(whole + 'x'));
    for (std::size_t length = 0; length < whole.size(); length += length < header_bytes + 100 ? 13 : 977) {
        REQUIRE(is_refused(whole.substr(0, length)));
    }
    REQUIRE(is_refused(whole.substr(0, whole.size() - 1)));
    // One more or less of a digit anywhere in the header breaks a size, an offset or the tiling.
    for (std::size_t at = 8; at < 8 + header_bytes; ++at) {
        if (whole[at] < '0' || whole[at] > '9' || whole[at - 1] == 'F' || whole[at - 1] == '3') continue;  // "F32"
        const bool in_name = whole[at - 1] == '.' || whole[at - 1] == '_';
        std::string changed = whole;
        changed[at] = changed[at] == '9' ? '8' : static_cast<char>(changed[at] + 1);
        if (!in_name) REQUIRE(is_refused(changed));
    }
}

TEST_CASE("a golden file reads with its names in data order and writes back to the same bytes") {
    const TemporaryDirectory folder;
    for (const char* model : {"gpt2_tiny", "llama_tiny_gqa", "llama_tied", "qwen3_tiny"}) {
        const SafetensorsFile file(golden(model));
        REQUIRE(file.entries().size() > 5);
        std::vector<SafetensorsTensor> tensors;
        for (const auto& entry : file.entries()) tensors.insert(tensors.begin(), {entry.name, entry.shape});
        const std::string path = folder / model;
        SafetensorsWriter writer(path, tensors);
        for (const auto& tensor : tensors) {
            std::vector<float> values(static_cast<std::size_t>(file.entry(tensor.name).elements()));
            file.read_float32(tensor.name, values);
            writer.write(tensor.name, values);
        }
        CHECK_FALSE(std::filesystem::exists(path));
        writer.finish();
        CHECK(read_file(path) == read_file(golden(model)));
    }
}

TEST_CASE("zero-size and 0-d tensors are legal, names are escaped, foreign keys are ignored") {
    const TemporaryDirectory folder;
    const std::string path = folder / "odd.safetensors";
    SafetensorsWriter writer(path, {{"scalar", {}}, {"none", {0, 3}}, {"quote\"\\\n", {2}}});
    writer.write("scalar", std::vector<float>{2.5F});
    writer.write("quote\"\\\n", std::vector<float>{1.0F, -1.0F});
    writer.write("none", {});
    writer.finish();
    const SafetensorsFile file(path);
    REQUIRE(file.entries().size() == 3);
    std::vector<float> one(1);
    file.read_float32("scalar", one);
    CHECK(one[0] == 2.5F);
    std::vector<float> two(2);
    file.read_float32("quote\"\\\n", two);
    CHECK(two == std::vector<float>{1.0F, -1.0F});
    CHECK(file.entry("none").elements() == 0);
    CHECK((file.entries()[0].byte_begin % 8) == 0);

    write_file(path, file_text(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"note":{"x":[1]}}})", 4));
    CHECK(SafetensorsFile(path).contains("a"));
}

TEST_CASE("rows are written in any order and read back by range") {
    const TemporaryDirectory folder;
    const std::string path = folder / "rows.safetensors";
    const std::vector<float> values = ramp(15);
    SafetensorsWriter writer(path, {{"w", {5, 3}}, {"b", {4}}});
    writer.write_rows("w", 3, std::span(values).subspan(9, 6));
    writer.write_rows("b", 2, std::span(values).first(2));
    writer.write_rows("w", 0, std::span(values).first(3));
    writer.write_rows("w", 5, {});
    writer.write_rows("b", 0, std::span(values).first(2));
    CHECK_THROWS_AS(writer.finish(), InternalError);                                        // rows 1 and 2 are missing
    CHECK_THROWS_AS(writer.write_rows("w", 2, std::span(values).first(6)), InternalError);  // row 3 twice
    CHECK_THROWS_AS(writer.write_rows("w", 0, std::span(values).first(3)), InternalError);
    CHECK_THROWS_AS(writer.write_rows("w", 1, std::span(values).first(4)), InternalError);  // not whole rows
    CHECK_THROWS_AS(writer.write_rows("w", 4, std::span(values).first(6)), InternalError);  // beyond the end
    CHECK_THROWS_AS(writer.write("x", values), InternalError);
    writer.write_rows("w", 1, std::span(values).subspan(3, 6));
    writer.finish();

    const SafetensorsFile file(path);
    std::vector<float> whole(15);
    file.read_float32("w", whole);
    CHECK(whole == values);
    std::vector<float> rows(6);
    file.read_float32_rows("w", 2, rows);
    CHECK(rows == std::vector<float>(values.begin() + 6, values.begin() + 12));
    CHECK_THROWS_AS(file.read_float32_rows("w", 4, rows), InternalError);
    CHECK_THROWS_AS(file.read_float32("w", rows), InternalError);
}

TEST_CASE("an unfinished file leaves nothing behind and does not touch the one it would replace") {
    const TemporaryDirectory folder;
    const std::string path = folder / "kept.safetensors";
    write_file(path, "old");
    { SafetensorsWriter writer(path, {{"w", {5, 3}}}); }
    CHECK(read_file(path) == "old");
    CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
    CHECK_THROWS_AS(SafetensorsWriter(path, {{"w", {1}}, {"w", {1}}}), InternalError);
    CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("another dtype and an absent tensor are errors that name them") {
    const TemporaryDirectory folder;
    const std::string path = folder / "half.safetensors";
    write_file(path, file_text(R"({"h":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]}})", 4));
    const SafetensorsFile file(path);
    std::vector<float> values(2);
    CHECK(message_of<DataError>([&] { file.read_float32("h", values); }) ==
          "data: " + path + ": tensor h: BF16 [2,1], expected F32");
    write_file(folder / "whole.safetensors", file_text(R"({"h":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}})", 4));
    CHECK(message_of<DataError>([&] {
              SafetensorsFile(folder / "whole.safetensors").read_widened_rows("h", 0, values);
          }) == "data: " + (folder / "whole.safetensors") + ": tensor h: I16 [2], expected F32, BF16 or F16");
    CHECK(message_of<DataError>([&] { file.read_float32("g", values); }) == "data: " + path + ": no tensor g");
}

TEST_CASE("BF16 tensors lie behind F32 ones, hold rounded values and are written piece by piece") {
    const TemporaryDirectory folder;
    const std::string path = folder / "mixed.safetensors";
    constexpr std::size_t kCount = 3 * 65536 + 5;  // several pieces of the writer
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 251);  // 8 bits hold it
    SafetensorsWriter writer(path, {{"a", {kCount}, "BF16"}, {"z", {2}}, {"b", {1}, "BF16"}});
    writer.write("a", values);
    writer.write("z", std::vector<float>{1.0F, 2.0F});
    writer.write("b", std::vector<float>{257.0F});  // 256 and 258 are its neighbours: to the even one
    writer.finish();
    const SafetensorsFile file(path);
    REQUIRE(file.entries().size() == 3);
    CHECK(file.entries()[0].name == "z");
    CHECK(file.entries()[1].name == "a");
    CHECK(file.entries()[2].name == "b");
    CHECK(file.entries()[1].byte_end - file.entries()[1].byte_begin == 2 * kCount);
    std::vector<float> read(kCount);
    file.read_widened_rows("a", 0, read);
    CHECK(read == values);
    std::vector<float> one(1);
    file.read_widened_rows("b", 0, one);
    CHECK(one[0] == 256.0F);
    file.read_widened_rows("z", 1, one);
    CHECK(one[0] == 2.0F);
    CHECK_THROWS_AS(file.read_widened_rows("z", 2, one), InternalError);
    CHECK_THROWS_AS(safetensors_layout({{"a", {1}, "F16"}}), InternalError);
}

TEST_CASE("the layout is a function of names and shapes alone") {
    const auto layout = safetensors_layout({{"b", {2}}, {"a", {3, 2}}});
    const std::string json =
        R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},)"
        R"("b":{"dtype":"F32","shape":[2],"data_offsets":[24,32]}})";
    const std::size_t padded = (json.size() + 7) / 8 * 8;
    CHECK(layout.header == length_word(padded) + json + std::string(padded - json.size(), ' '));
    CHECK(layout.entries.at(1).byte_begin == static_cast<std::int64_t>(8 + padded + 24));
    CHECK(layout.file_bytes == static_cast<std::int64_t>(8 + padded + 32));
    CHECK(safetensors_layout({}).file_bytes == 8 + 32);
}
