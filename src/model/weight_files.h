#pragma once

#include "mfsdp/model/safetensors.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::model {

/// Tensor -> file of a model.safetensors.index.json (its text): `{"weight_map": {name: file}}` with plain file names,
/// so that none leads out of the directory. DataError naming `source` and the tensor otherwise.
[[nodiscard]] std::map<std::string, std::string> parse_weight_index(const std::string& text, const std::string& source);

/// The tensors of a model directory, in one model.safetensors or in the files that model.safetensors.index.json lists.
///
/// DataError, naming file and tensor: neither or both are there; a tensor that the index has and its file lacks, or the
/// reverse. Source: docs/formats.md, safetensors.
class WeightFiles {
  public:
    explicit WeightFiles(const std::filesystem::path& directory);

    /// In the order of the names' bytes.
    [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
    [[nodiscard]] bool contains(const std::string& name) const { return place_.contains(name); }
    [[nodiscard]] const SafetensorsEntry& entry(const std::string& name) const { return file(name).entry(name); }
    /// The file that holds a tensor.
    [[nodiscard]] const SafetensorsFile& file(const std::string& name) const;

  private:
    void add_file(const std::filesystem::path& path);
    void add_shards(const std::filesystem::path& directory);

    std::vector<SafetensorsFile> files_;
    std::map<std::string, std::size_t> place_;  ///< tensor -> file
    std::vector<std::string> names_;
};

}  // namespace mfsdp::model
