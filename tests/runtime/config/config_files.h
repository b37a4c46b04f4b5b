#pragma once

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/config/parse_config.h"

#include "support/catch.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace config_test {

inline const std::string kGpt2 = R"({
  // comments are allowed
  "model": { "model_type": "gpt2", "vocab_size": 300, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128 },
  "data": { "train": ["data/*.bin"] },
  "train": { "steps": 100, "seq_len": 32, "micro_batch_size": 2, "global_batch_size": 8 },
  "optimizer": { "lr": 3e-4 }, /* so are these */
  "precision": { "param_dtype": "float32" }
})";

inline const std::string kLlama = R"({
  "model": { "model_type": "llama", "vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 128 },
  "data": { "train": ["data/*.bin"] },
  "train": { "steps": 100, "seq_len": 32, "micro_batch_size": 2, "global_batch_size": 8 },
  "optimizer": { "lr": 3e-4 },
  "precision": { "param_dtype": "float32" }
})";

/// A file in a folder of its own that goes with the object.
class TemporaryFile {
  public:
    explicit TemporaryFile(std::string_view content, const std::string& name = "run.json") {
        std::string pattern = (std::filesystem::temp_directory_path() / "mfsdp_config_XXXXXX").string();
        REQUIRE(mkdtemp(pattern.data()) != nullptr);
        folder_ = pattern;
        std::ofstream(path_ = folder_ / name, std::ios::binary) << content;
    }
    ~TemporaryFile() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path folder_;
    std::filesystem::path path_;
};

inline mfsdp::runtime::TrainConfig parse(std::string_view content, const std::vector<std::string>& overrides = {}) {
    const TemporaryFile file(content);
    return mfsdp::runtime::parse_train_config(file.path(), overrides);
}

/// The message of the ConfigError, or "" if there is none.
inline std::string error_of(std::string_view content, const std::vector<std::string>& overrides = {}) {
    try {
        (void)parse(content, overrides);
    } catch (const mfsdp::ConfigError& error) {
        CHECK(error.code() == mfsdp::ExitCode::configuration);
        return error.what();
    }
    return "";
}

}  // namespace config_test
