// Configuration files: refused with a ConfigError, or printed and read again they are the same run.
//
// Input, cut at bytes 0x1E: the file; the file of `model.hf_config` = "/proc/self/fd/701"; then values for --set.

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/config/parse_config.h"

#include "fuzz.h"

using namespace mfsdp;
using namespace mfsdp::runtime;

namespace {

void check_values(const TrainConfig& config) {
    FUZZ_REQUIRE(!config.data.train.empty());
    FUZZ_REQUIRE(config.train.steps >= 1 && config.train.seq_len >= 1 && config.train.micro_batch_size >= 1);
    FUZZ_REQUIRE(config.train.global_batch_size % config.train.micro_batch_size == 0);
    FUZZ_REQUIRE(config.model.vocab_size >= 2 && config.model.hidden_size >= 1 && config.model.head_dim >= 1);
    FUZZ_REQUIRE(config.train.seq_len <= config.model.max_position_embeddings);
    FUZZ_REQUIRE(config.optimizer.lr > 0 && config.optimizer.clip_grad >= 0);
    FUZZ_REQUIRE(!config.threads || *config.threads >= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const fuzz::MemoryFile memory(0);
    static const fuzz::MemoryFile hugging_face(1);
    std::vector<std::string> parts = fuzz::parts_of(data, size);
    memory.set(parts[0]);
    hugging_face.set(parts.size() > 1 ? parts[1] : "");
    parts.erase(parts.begin(), parts.begin() + (parts.size() > 1 ? 2 : 1));
    bool accepted = false;
    try {
        const TrainConfig config = parse_train_config(memory.path(), parts);
        accepted = true;
        check_values(config);
        const std::string printed = print_config(config);
        const std::string resolved = print_resolved_config(config);
        memory.set(printed);
        const TrainConfig again = parse_train_config(memory.path());
        FUZZ_REQUIRE(print_config(again) == printed);
        FUZZ_REQUIRE(config_hash(again) == config_hash(config));
        memory.set(resolved);
        const TrainConfig final_one = parse_train_config(memory.path());
        FUZZ_REQUIRE(print_resolved_config(final_one) == resolved);
        FUZZ_REQUIRE(config_hash(final_one) == config_hash(config));
    } catch (const ConfigError& error) {
        if (accepted) std::fprintf(stderr, "%s\n", error.what());
        FUZZ_REQUIRE(!accepted);
        FUZZ_REQUIRE(std::string_view(error.what()).starts_with("config: "));
    }
    return 0;
}
