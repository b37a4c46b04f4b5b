#include "model/weight_files.h"

#include "mfsdp/base/error.h"

#include "model/strict_json.h"
#include "model/text_file.h"

#include <set>

namespace mfsdp::model {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

}  // namespace

std::map<std::string, std::string> parse_weight_index(const std::string& text, const std::string& source) {
    const auto fail = [&](const std::string& what) { base::raise_file_error(base::FileUse::data, source, what); };
    const auto json = parse_strict_json(text, fail);
    if (!json.is_object() || !json.contains("weight_map") || !json.at("weight_map").is_object()) {
        fail("holds no object \"weight_map\"");
    }
    std::map<std::string, std::string> map;
    for (const auto& [tensor, file] : json.at("weight_map").items()) {
        if (!file.is_string()) fail("tensor " + tensor + ": its file is " + file.dump() + ", wanted a name");
        const auto name = file.get<std::string>();
        // A path could lead out of the directory.
        if (name.empty() || name != fs::path(name).filename().string() || name == "." || name == "..") {
            fail("tensor " + tensor + ": its file is " + file.dump() + ", wanted a name without a folder");
        }
        map.emplace(tensor, name);
    }
    return map;
}

WeightFiles::WeightFiles(const fs::path& directory) {
    const bool single = fs::exists(directory / kSingleName);
    const bool sharded = fs::exists(directory / kIndexName);
    if (single == sharded) {
        base::raise_file_error(base::FileUse::data, directory.string(),
                               std::string(single ? "holds both " : "holds no weights, wanted ")
                                   .append(kSingleName)
                                   .append(single ? " and " : " or ")
                                   .append(kIndexName));
    }
    if (single) {
        add_file(directory / kSingleName);
    } else {
        add_shards(directory);
    }
    for (const auto& [name, file] : place_) names_.push_back(name);
}

void WeightFiles::add_shards(const fs::path& directory) {
    const auto fail = [&](const std::string& what) {
        base::raise_file_error(base::FileUse::data, directory.string(), what);
    };
    const fs::path index = directory / kIndexName;
    const auto map = parse_weight_index(read_text_file(index), index.string());
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : map) shards.insert(shard);
    for (const std::string& shard : shards) add_file(directory / shard);
    for (const SafetensorsFile& file : files_) {
        const std::string shard = fs::path(file.path()).filename().string();
        for (const SafetensorsEntry& entry : file.entries()) {
            const auto listed = map.find(entry.name);
            if (listed == map.end()) fail("tensor " + entry.name + " is in " + shard + " but not in " + kIndexName);
            if (listed->second != shard) {
                fail("tensor " + entry.name + " is in " + shard + ", but " + kIndexName + " places it in " +
                     listed->second);
            }
        }
    }
    for (const auto& [tensor, shard] : map) {
        if (!contains(tensor)) fail("tensor " + tensor + " is in " + kIndexName + " but not in " + shard);
    }
}

void WeightFiles::add_file(const fs::path& path) {
    files_.emplace_back(path.string());
    for (const SafetensorsEntry& entry : files_.back().entries()) place_.emplace(entry.name, files_.size() - 1);
}

const SafetensorsFile& WeightFiles::file(const std::string& name) const {
    const auto found = place_.find(name);
    MFSDP_ASSERT(found != place_.end(), "the directory has a tensor " + name);
    return files_[found->second];
}

}  // namespace mfsdp::model
