#include "mfsdp/base/error.h"
#include "mfsdp/model/huggingface.h"

#include "model/huggingface_files.h"
#include "support/catch.h"
#include "support/model_cases.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

using namespace mfsdp;
using model::HuggingFaceReader;
using model::ModelSpec;
using model::ParameterSpec;
using test::gpt2_config;
using test::import_model;
using test::message_of;
using test::RawTensor;
using test::TemporaryDirectory;

namespace {

ModelSpec gpt2_spec(const std::string& more = "") {
    return model::describe_model(test::parse_config(gpt2_config(more)));
}

/// What the reader says about a directory with these tensors; without `shards` in one file.
std::string refusal_of(const std::vector<RawTensor>& tensors, const std::string& config, std::size_t shards = 0) {
    const TemporaryDirectory directory;
    test::write_file(directory / "config.json", config);
    if (shards == 0) {
        test::write_raw(directory / "model.safetensors", tensors);
    } else {
        test::write_shards(directory, tensors, shards);
    }
    std::string message = message_of<DataError>([&] { HuggingFaceReader reader(directory.path()); });
    const auto at = message.find(directory.path());
    return at == std::string::npos ? message : message.replace(at, directory.path().size(), "DIR");
}

/// Bytes that this process has asked the system to read so far.
std::int64_t bytes_read() {
    std::ifstream file("/proc/self/io");
    std::string name;
    std::int64_t value = -1;
    file >> name >> value;
    REQUIRE(name == "rchar:");
    return value;
}

}  // namespace

TEST_CASE("directories in one file and in shards, of F32 and of BF16, give equal values") {
    for (const test::ModelCase& description : test::model_cases()) {
        INFO(description.name);
        const ModelSpec spec = model::describe_model(description.config);
        test::Weights expected;
        for (const char* dtype : {"F32", "BF16"}) {
            const auto tensors = test::stored_tensors(spec, dtype);
            const TemporaryDirectory single;
            test::write_raw(single / "model.safetensors", tensors);
            if (expected.empty()) expected = import_model(single.path(), spec);
            CHECK(import_model(single.path(), spec) == expected);
            for (const std::size_t shards : {1, 2, 5}) {
                const TemporaryDirectory sharded;
                test::write_shards(sharded, tensors, shards);
                CHECK(import_model(sharded.path(), spec) == expected);
            }
        }
        for (std::size_t k = 0; k < expected.size(); ++k) {
            const ParameterSpec& parameter = spec.parameters[k];
            const auto last = static_cast<float>((parameter.count() - 1) % 8);
            CHECK(expected[k].back() == static_cast<float>(k % 16) * 0.0625F + last);  // turned or not
        }
    }
}

TEST_CASE("values of 16 bits are widened exactly") {
    const TemporaryDirectory directory;
    ModelSpec spec = gpt2_spec();
    auto tensors = test::stored_tensors(spec, "F32");
    RawTensor& bias = tensors.back();
    const auto read = [&](const std::string& dtype, const std::vector<std::uint16_t>& bits) {
        bias.dtype = dtype;
        bias.bytes.assign(reinterpret_cast<const char*>(bits.data()), 2 * bits.size());
        bias.bytes.resize(2 * 15);
        test::write_raw(directory / "model.safetensors", tensors);
        std::vector<float> values = HuggingFaceReader(directory.path(), spec).read(spec.parameters.back());
        values.resize(bits.size());
        return values;
    };
    // 1, -2, the largest, the smallest normal and subnormal number, -0, 1/3, infinity.
    const std::vector<float> halves = read("F16", {0x3C00, 0xC000, 0x7BFF, 0x0400, 0x0001, 0x8000, 0x3555, 0xFC00});
    CHECK(halves == std::vector<float>{1.0F, -2.0F, 65504.0F, 0x1p-14F, 0x1p-24F, -0.0F, 0x1.554p-2F, -INFINITY});
    CHECK(std::signbit(halves[5]));
    CHECK(read("BF16", {0x3F80, 0xC000, 0x7F7F, 0x0001, 0x3EAB, 0xFF80}) ==
          std::vector<float>{1.0F, -2.0F, 0x1.FEp127F, 0x1p-133F, 0x1.56p-2F, -INFINITY});
}

TEST_CASE("any range of rows holds the rows of the whole, padding included") {
    for (test::ModelCase description : {test::gpt2_case("gpt2", true), test::qwen3_case("qwen3", false)}) {
        description.config.padded_vocab_size = 30;
        const ModelSpec spec = model::describe_model(description.config);
        const TemporaryDirectory directory;
        test::write_shards(directory, test::stored_tensors(spec, "BF16"), 3);
        const HuggingFaceReader reader(directory.path(), spec);
        for (const ParameterSpec& parameter : spec.parameters) {
            INFO(parameter.name);
            const std::vector<float> whole = reader.read(parameter);
            const std::int64_t columns = parameter.columns();
            for (std::int64_t begin = 0; begin <= parameter.rows(); begin += 4) {
                for (const std::int64_t wanted : {0, 1, 3, 9, 1000}) {
                    const std::int64_t rows = std::min(wanted, parameter.rows() - begin);
                    std::vector<float> part(static_cast<std::size_t>(rows * columns), -1.0F);
                    reader.read_rows(parameter, begin, rows, part);
                    CHECK(std::equal(part.begin(), part.end(), whole.begin() + begin * columns));
                }
            }
            if (parameter.padding_rows > 0) {
                CHECK(std::all_of(whole.end() - 7 * columns, whole.end(), [](float v) { return v == 0.0F; }));
                CHECK(std::any_of(whole.begin(), whole.end(), [](float v) { return v != 0.0F; }));
            }
            std::vector<float> part(static_cast<std::size_t>(columns));
            CHECK_THROWS_AS(reader.read_rows(parameter, parameter.rows(), 1, part), InternalError);
            CHECK_THROWS_AS(reader.read_rows(parameter, 0, 0, part), InternalError);
        }
    }
}

TEST_CASE("a range of rows of a sharded BF16 directory reads its own bytes and no others") {
    test::ModelCase description = test::qwen3_case("", true);
    description.config.vocab_size = 50000;
    const ModelSpec spec = model::describe_model(description.config);
    const TemporaryDirectory directory;
    test::write_shards(directory, test::stored_tensors(spec, "BF16"), 2);
    const HuggingFaceReader reader(directory.path(), spec);
    const auto cost_of = [&](std::int64_t begin, std::int64_t rows) {
        std::vector<float> out(static_cast<std::size_t>(rows * 13));
        const std::int64_t before = bytes_read();
        const std::int64_t between = bytes_read();  // what the question costs
        reader.read_rows(spec.parameters.front(), begin, rows, out);
        return bytes_read() - between - (between - before);
    };
    CHECK(cost_of(49999, 1) == 1 * 13 * 2);
    CHECK(cost_of(20000, 700) == 700 * 13 * 2);
    CHECK(cost_of(0, 50000) == 50000 * 13 * 2);
}

TEST_CASE("Conv1D matrices are turned on the way in") {
    const TemporaryDirectory directory;
    const ModelSpec spec = gpt2_spec();
    auto tensors = test::stored_tensors(spec, "F32");
    for (RawTensor& tensor : tensors) {
        for (std::size_t i = 0; i < tensor.bytes.size() / 4; ++i) {
            const auto value = static_cast<float>(i);
            std::memcpy(tensor.bytes.data() + 4 * i, &value, 4);
        }
    }
    test::write_raw(directory / "model.safetensors", tensors);
    const HuggingFaceReader reader(directory.path(), spec);
    int turned = 0;
    for (const ParameterSpec& parameter : spec.parameters) {
        const std::vector<float> values = reader.read(parameter);
        const std::int64_t row = parameter.rows() - 1;  // the last row and the second column, or the second element
        const std::int64_t expected =
            parameter.stored_transposed ? parameter.rows() + row : row * parameter.columns() + 1;
        CHECK(values.at(static_cast<std::size_t>(row * parameter.columns() + 1)) == static_cast<float>(expected));
        turned += parameter.stored_transposed ? 1 : 0;
    }
    CHECK(turned == 8);
}

TEST_CASE("published gpt2 files without the prefix and with mask buffers are read") {
    const TemporaryDirectory directory;
    const ModelSpec spec = gpt2_spec();
    const auto named = test::stored_tensors(spec, "F32");
    auto tensors = named;
    for (RawTensor& tensor : tensors) tensor.name = tensor.name.substr(std::string("transformer.").size());
    tensors.push_back({"h.0.attn.bias", "U8", {1, 1, 2, 2}, std::string(4, 1)});
    tensors.push_back({"h.0.attn.masked_bias", "F32", {}, std::string(4, 0)});
    test::write_file(directory / "config.json", gpt2_config());
    test::write_raw(directory / "model.safetensors", tensors);
    const HuggingFaceReader reader(directory.path());
    CHECK(reader.passed_over() == std::vector<std::string>{"h.0.attn.bias", "h.0.attn.masked_bias"});
    const TemporaryDirectory plain;
    test::write_raw(plain / "model.safetensors", named);
    CHECK(import_model(directory.path(), spec) == import_model(plain.path(), spec));
    CHECK(HuggingFaceReader(plain.path(), spec).passed_over().empty());
    for (const char* name : {"foo.attn.bias", "h.attn.bias", "h.0.x.attn.bias", "h.0.attn.bias.bias"}) {
        auto more = tensors;
        more.push_back({name, "F32", {}, std::string(4, 0)});
        CHECK(refusal_of(more, gpt2_config()).find(std::string("unexpected ") + name) != std::string::npos);
    }

    tensors.front().name = "transformer.wte.weight";  // with the prefix, the others without
    CHECK(refusal_of(tensors, gpt2_config()).find("missing transformer.wpe.weight") != std::string::npos);
}

TEST_CASE("a stored head of a tied model must equal the embedding byte for byte") {
    const ModelSpec spec = gpt2_spec();
    auto tensors = test::stored_tensors(spec, "F32");
    RawTensor head = tensors.front();
    head.name = "lm_head.weight";
    const auto read_row = [&](const RawTensor& stored_head, std::int64_t row) {
        const TemporaryDirectory directory;
        auto all = tensors;
        all.push_back(stored_head);
        test::write_raw(directory / "model.safetensors", all);
        const HuggingFaceReader reader(directory.path(), spec);
        std::vector<float> out(15);
        return message_of<DataError>([&] { reader.read_rows(spec.parameters.front(), row, 1, out); });
    };
    CHECK(read_row(head, 22) == "<no exception>");
    RawTensor other = head;
    other.bytes[other.bytes.size() - 3] ^= 1;  // one bit of the last row
    CHECK(read_row(other, 22).find("lm_head.weight differs from the embedding") != std::string::npos);
    CHECK(read_row(other, 21) == "<no exception>");
    other = test::stored_tensors(spec, "BF16").front();  // equal values in another type
    other.name = head.name;
    CHECK(read_row(other, 0).find("lm_head.weight differs from the embedding") != std::string::npos);

    other.shape = {22, 15};
    other.bytes.resize(22 * 15 * 2);
    tensors.push_back(other);
    CHECK(refusal_of(tensors, gpt2_config()).find("tensor lm_head.weight: BF16 [22,15], expected BF16 [23,15]") !=
          std::string::npos);
}

TEST_CASE("tensors that are missing, unexpected or of another shape or type are named, all in one message") {
    const auto complete = test::stored_tensors(gpt2_spec(), "F32");
    CHECK(refusal_of(complete, gpt2_config()) == "<no exception>");
    CHECK(refusal_of(complete, gpt2_config(R"(, "tie_word_embeddings": false)")) ==
          "data: DIR: missing lm_head.weight (wanted the tensors of a gpt2 model with a head of its own)");
    auto tensors = complete;
    tensors.push_back({"transformer.extra", "F32", {1}, std::string(4, 0)});
    tensors.push_back({"lm_head.bias", "F32", {1}, std::string(4, 0)});
    tensors[2].name = "transformer.h.0.ln_1.gain";
    tensors[4].shape = {45, 15};  // Conv1D stores (in, out)
    tensors[5].dtype = "I32";
    for (const std::size_t shards : {0, 3}) {
        CHECK(refusal_of(tensors, gpt2_config(), shards) ==
              "data: DIR: missing transformer.h.0.ln_1.weight; unexpected lm_head.bias, transformer.extra, "
              "transformer.h.0.ln_1.gain; tensor transformer.h.0.attn.c_attn.weight: F32 [45,15], expected F32 [15,45]"
              "; transformer.h.0.attn.c_attn.bias: I32 [45], expected F32, BF16 or F16 [45] "
              "(wanted the tensors of a gpt2 model with a tied head)");
    }
    tensors = complete;
    for (std::size_t i = 2; i < 16; ++i) tensors[i].name += "_";
    const std::string message = refusal_of(tensors, gpt2_config());
    CHECK(message.find("transformer.h.0.mlp.c_fc.bias and 4 more; unexpected") != std::string::npos);
    CHECK(message.find(" and 4 more (wanted") != std::string::npos);
}

TEST_CASE("a directory must hold one set of files that agrees with its index") {
    const ModelSpec spec = gpt2_spec();
    const auto tensors = test::stored_tensors(spec, "F32");
    const TemporaryDirectory directory;
    const auto refusal = [&] {
        std::string message = message_of<DataError>([&] { HuggingFaceReader reader(directory.path(), spec); });
        while (message.find(directory.path()) != std::string::npos) {
            message.replace(message.find(directory.path()), directory.path().size(), "DIR");
        }
        return message;
    };
    const std::string index = directory / "model.safetensors.index.json";
    CHECK(refusal() == "data: DIR: holds no weights, wanted model.safetensors or model.safetensors.index.json");
    test::write_shards(directory, tensors, 2);
    REQUIRE(refusal() == "<no exception>");
    test::write_raw(directory / "model.safetensors", tensors);
    CHECK(refusal() == "data: DIR: holds both model.safetensors and model.safetensors.index.json");
    std::filesystem::remove(directory / "model.safetensors");

    std::map<std::string, std::string> map;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        map[tensors[i].name] = i % 2 == 0 ? "part-0.safetensors" : "part-1.safetensors";
    }
    const auto with = [&](const std::string& tensor, const std::string& file) {
        auto changed = map;
        changed[tensor] = file;
        test::write_index(index, changed);
        return refusal();
    };
    const std::string name = "transformer.ln_f.bias";  // in part 1
    REQUIRE(map.at(name) == "part-1.safetensors");
    CHECK(with("ghost", "part-1.safetensors") ==
          "data: DIR: tensor ghost is in model.safetensors.index.json but not in part-1.safetensors");
    CHECK(
        with(name, "part-0.safetensors") ==
        "data: DIR: tensor transformer.ln_f.bias is in part-1.safetensors, but model.safetensors.index.json places it "
        "in part-0.safetensors");
    CHECK(with(name, "part-9.safetensors").find("data: DIR/part-9.safetensors: cannot open") == 0);
    for (const char* file : {"../part-1.safetensors", "/etc/part-1.safetensors", "..", "", "a/b"}) {
        CHECK(with(name, file).find("wanted a name without a folder") != std::string::npos);
    }
    auto fewer = map;
    fewer.erase(name);
    test::write_index(index, fewer);
    CHECK(refusal() ==
          "data: DIR: tensor transformer.ln_f.bias is in part-1.safetensors but not in model.safetensors.index.json");
    // The same tensor in both files.
    auto doubled = std::vector<RawTensor>{tensors[1]};
    for (std::size_t i = 0; i < tensors.size(); i += 2) doubled.push_back(tensors[i]);
    test::write_index(index, map);
    test::write_raw(directory / "part-0.safetensors", doubled);
    CHECK(refusal().find("tensor " + tensors[1].name + " is in part-0.safetensors, but") != std::string::npos);

    const auto broken = [&](const std::string& text) {
        test::write_file(index, text);
        return refusal();
    };
    const std::string place = "data: DIR/model.safetensors.index.json: ";
    CHECK(broken("[]") == place + "holds no object \"weight_map\"");
    CHECK(broken(R"({"weight_map": []})") == place + "holds no object \"weight_map\"");
    CHECK(broken(R"({"weight_map": {"a": 3}})") == place + "tensor a: its file is 3, wanted a name");
    CHECK(broken(R"({"weight_map": {"a": "x", "a": "y"}})") == place + "has the key 'a' twice");
    CHECK(broken("{").find(place + "is not UTF-8 JSON") == 0);
    CHECK(broken("").find(place + "is not UTF-8 JSON") == 0);
}
