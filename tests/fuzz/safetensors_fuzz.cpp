// safetensors: a header is refused with a DataError, or its tensors tile the file, can be read, and written down again
// as the writer's JSON they say the same.
//
// Input: an odd first byte takes the rest as the file. Else bytes 1 and 2 are the number of bytes of data and the rest
// is the JSON, whose length is put before it: few changes of a whole file keep that right.

#include "mfsdp/base/error.h"
#include "mfsdp/model/safetensors.h"

#include "fuzz.h"

#include <cstring>

#include <nlohmann/json.hpp>

using namespace mfsdp;
using namespace mfsdp::model;

namespace {

std::string with_length(const std::string& json, std::size_t data_bytes) {
    const std::uint64_t length = json.size();
    std::string file(reinterpret_cast<const char*>(&length), 8);
    file += json;
    for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i * 31);
    return file;
}

void check_entries(const SafetensorsFile& file, const std::string& content) {
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, content.data(), 8);
    auto expected = static_cast<std::int64_t>(8 + header_bytes);
    for (const SafetensorsEntry& entry : file.entries()) {
        FUZZ_REQUIRE(entry.byte_begin == expected);
        expected = entry.byte_end;
        __int128 bytes = safetensors_element_bytes(entry.dtype);
        FUZZ_REQUIRE(bytes > 0);
        for (const std::int64_t extent : entry.shape) {
            FUZZ_REQUIRE(extent >= 0);
            bytes *= extent;
        }
        FUZZ_REQUIRE(bytes == entry.byte_end - entry.byte_begin);
        FUZZ_REQUIRE(file.contains(entry.name) && &file.entry(entry.name) == &entry);
        if (entry.dtype != "F32") continue;
        std::vector<float> values(static_cast<std::size_t>(entry.elements()));
        file.read_float32(entry.name, values);
        FUZZ_REQUIRE(values.empty() ||
                     std::memcmp(values.data(), content.data() + entry.byte_begin, 4 * values.size()) == 0);
    }
    FUZZ_REQUIRE(expected == static_cast<std::int64_t>(content.size()));
}

std::string written_again(const SafetensorsFile& file, const std::string& content) {
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, content.data(), 8);
    const auto data_begin = static_cast<std::int64_t>(8 + header_bytes);
    nlohmann::json json = nlohmann::json::object();
    for (const SafetensorsEntry& entry : file.entries()) {
        json[entry.name] = {{"dtype", entry.dtype},
                            {"shape", entry.shape},
                            {"data_offsets", {entry.byte_begin - data_begin, entry.byte_end - data_begin}}};
    }
    return with_length(json.dump(), content.size() - static_cast<std::size_t>(data_begin));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const fuzz::MemoryFile memory(0);
    static const fuzz::MemoryFile again(1);
    if (size < 3) return 0;
    const std::string rest(reinterpret_cast<const char*>(data) + (data[0] % 2 == 1 ? 1 : 3),
                           size - (data[0] % 2 == 1 ? 1 : 3));
    const std::string content = data[0] % 2 == 1 ? rest : with_length(rest, data[1] + 256U * data[2]);
    memory.set(content);
    try {
        const SafetensorsFile file(memory.path());
        check_entries(file, content);
        again.set(written_again(file, content));
        const SafetensorsFile same(again.path());
        FUZZ_REQUIRE(same.entries().size() == file.entries().size());
        for (std::size_t i = 0; i < file.entries().size(); ++i) {
            FUZZ_REQUIRE(same.entry(file.entries()[i].name).shape == file.entries()[i].shape);
            FUZZ_REQUIRE(same.entry(file.entries()[i].name).dtype == file.entries()[i].dtype);
        }
    } catch (const DataError& error) {
        FUZZ_REQUIRE(std::string_view(error.what()).starts_with("data: /proc/self/fd/700: "));
    }
    return 0;
}
