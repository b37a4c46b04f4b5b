#include "mfsdp/runtime/data/validation_loader.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"
#include "support/throws.h"
#include "token_files.h"

#include <numeric>

using namespace mfsdp;
using namespace mfsdp::runtime;
using namespace mfsdp::test;

namespace {

DataOptions options_for(const std::string& path) {
    DataOptions options;
    options.patterns = {path};
    options.vocab_size = 1000;
    options.seq_len = 4;
    options.micro_batch_size = 3;
    options.global_batch_size = 6;
    return options;
}

}  // namespace

TEST_CASE("validation takes the first samples in order and fills the last micro-batch with masked ones") {
    const TemporaryDirectory directory;
    std::vector<std::int64_t> ids(31);  // 7 samples of 4 tokens, 2 tokens over
    std::iota(ids.begin(), ids.end(), 100);
    write_file(directory / "valid.bin", gpt2_file(ids));
    for (const std::int64_t wanted : {0, 7, 4, 1}) {
        const ValidationLoader loader(options_for(directory / "valid.bin"), wanted);
        const std::int64_t samples = wanted == 0 ? 7 : wanted;
        CHECK(loader.samples() == samples);
        REQUIRE(loader.micro_batches() == (samples + 2) / 3);
        for (std::int64_t m = 0; m < loader.micro_batches(); ++m) {
            std::vector<std::int32_t> inputs(12, -7), targets(12, -7);
            loader.load(m, inputs, targets);
            for (std::int64_t row = 0; row < 3; ++row) {
                for (std::int64_t t = 0; t < 4; ++t) {
                    const std::int64_t sample = m * 3 + row, place = row * 4 + t;
                    const bool exists = sample < samples;
                    INFO("micro-batch " << m << ", row " << row << ", position " << t);
                    CHECK(inputs[static_cast<std::size_t>(place)] == (exists ? 100 + sample * 4 + t : 0));
                    CHECK(targets[static_cast<std::size_t>(place)] ==
                          (exists ? 100 + sample * 4 + t + 1 : std::int64_t{kMaskedTarget}));
                }
            }
        }
    }
}

TEST_CASE("more validation samples than there are is an error that says how many there are") {
    const TemporaryDirectory directory;
    std::vector<std::int64_t> ids(31);
    std::iota(ids.begin(), ids.end(), 0);
    write_file(directory / "valid.bin", gpt2_file(ids));
    CHECK(message_of<ConfigError>([&] { ValidationLoader(options_for(directory / "valid.bin"), 8); }) ==
          "config: train.eval_samples = 8: data.valid has 7 sequences of train.seq_len = 4");
}
