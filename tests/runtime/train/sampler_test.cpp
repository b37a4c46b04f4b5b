#include "mfsdp/runtime/train/sampler.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"
#include "support/throws.h"
#include "support/training_run.h"

#include <string>

using namespace mfsdp;
using runtime::printable;
using test::message_of;

TEST_CASE("sampled bytes are shown on one line as readable text") {
    CHECK(printable("plain text") == "plain text");
    CHECK(printable("a\nb\tc") == "a\\nb\\tc");
    CHECK(printable(std::string("\0\x1b\x7f", 3)) == "\\x00\\x1b\\x7f");
    CHECK(printable("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80") == "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
    CHECK(printable("\xC3") == "\\xc3");                             // cut off
    CHECK(printable("\xE2\x82") == "\\xe2\\x82");                    // cut off
    CHECK(printable("\xC0\xAF") == "\\xc0\\xaf");                    // longer than needed
    CHECK(printable("\xED\xA0\x80") == "\\xed\\xa0\\x80");           // a surrogate
    CHECK(printable("\xF4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond Unicode
    CHECK(printable("").empty());
}

namespace {

runtime::TrainConfig config_with(runtime::DataFormat format, const std::string& prompt) {
    test::TrainingCase c;
    c.model = test::uneven_gpt2();
    runtime::TrainConfig config = test::training_config(c);
    config.data.format = format;
    config.train.sample_prompt = prompt;
    return config;
}

}  // namespace

TEST_CASE("a prompt that is no id of the model is refused by name") {
    const std::string vocabulary = std::to_string(test::uneven_gpt2().vocab_size);
    for (const std::string word : {"x", "-1", "1x", "99999999999", "1000000"}) {
        CHECK(message_of<ConfigError>([&] {
                  runtime::Sampler(config_with(runtime::DataFormat::tokens, "1 " + word + " 2"), 0);
              }) == "config: train.sample_prompt: '" + word + "' is no id of the model, which has " + vocabulary +
                        " ids; data.format = tokens takes ids like \"12 7 9\"");
    }
    CHECK_NOTHROW(runtime::Sampler(config_with(runtime::DataFormat::tokens, " 1  2 "), 0));
    CHECK_NOTHROW(runtime::Sampler(config_with(runtime::DataFormat::tokens, ""), 3));
    CHECK_NOTHROW(runtime::Sampler(config_with(runtime::DataFormat::bytes, "\xFF anything"), 0));
}
