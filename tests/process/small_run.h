#pragma once

#include "support/process.h"
#include "support/temporary_directory.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace mfsdp::test {

inline const std::string kTrain = MFSDP_BINARY_DIR "/bin/mfsdp-train";
inline const std::string kPlan = MFSDP_BINARY_DIR "/bin/mfsdp-plan";

/// A run of a few seconds on text that the test writes.
class SmallRun {
  public:
    SmallRun() {
        std::string text;
        for (int line = 0; line < 400; ++line)
            text += "the owner of row " + std::to_string(line * line) + " keeps it\n";
        write_file(directory_ / "text.txt", text);
        document_ = {{"model",
                      {{"model_type", "gpt2"},
                       {"vocab_size", 257},
                       {"n_embd", 24},
                       {"n_layer", 2},
                       {"n_head", 3},
                       {"n_positions", 32}}},
                     {"data", {{"train", {directory_ / "text.txt"}}, {"format", "bytes"}}},
                     {"train", {{"steps", 6}, {"seq_len", 32}, {"micro_batch_size", 1}, {"global_batch_size", 7}}},
                     {"optimizer", {{"lr", 0.01}, {"matrix", {{"name", "muon"}}}}},
                     {"precision", {{"param_dtype", "float32"}}},
                     {"telemetry", {{"run_dir", directory_ / "run"}}}};
        write();
    }

    nlohmann::json& document() { return document_; }
    void write() { write_file(config(), document_.dump()); }
    [[nodiscard]] std::string config() const { return directory_ / "config.json"; }
    [[nodiscard]] std::string path(std::string_view name) const { return directory_ / name; }
    [[nodiscard]] std::string train(const std::string& extra = "") const {
        return kTrain + " --config " + config() + " " + extra;
    }

    /// Loss and norm of every step, as written: shortest round-trip text, so equal text is equal bits.
    [[nodiscard]] std::vector<std::string> trajectory(const std::string& run_dir) const {
        std::vector<std::string> result;
        std::ifstream file(path(run_dir) + "/metrics.jsonl");
        for (std::string line; std::getline(file, line);) {
            const nlohmann::json record = nlohmann::json::parse(line);
            if (record.at("kind") == "train")
                result.push_back(record.at("loss").dump() + " " + record.at("grad_norm").dump());
        }
        return result;
    }

  private:
    TemporaryDirectory directory_;
    nlohmann::json document_;
};

}  // namespace mfsdp::test
