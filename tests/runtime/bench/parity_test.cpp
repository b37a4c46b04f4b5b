// scripts/parity_torch.py works out batches and learning rates anew in Python; here they are compared with the
// program's. What needs PyTorch is not run.

#include "mfsdp/optim/learning_rate.h"
#include "mfsdp/runtime/data/batch_loader.h"

#include "runtime/data/token_files.h"
#include "support/catch.h"
#include "support/process.h"
#include "support/temporary_directory.h"

#include <nlohmann/json.hpp>

using namespace mfsdp;
using nlohmann::json;

namespace {

const std::string kScripts = MFSDP_SOURCE_DIR "/scripts/";

/// A resolved configuration, as far as the script reads it for data and rates.
json resolved(const std::string& pattern, const std::string& format) {
    return {{"data",
             {{"train", json::array({pattern})},
              {"format", format},
              {"shuffle", true},
              {"seed", 1234},
              {"mask_alignment", "input"}}},
            {"train", {{"steps", 12}, {"seq_len", 7}, {"micro_batch_size", 2}, {"global_batch_size", 6}}},
            {"optimizer",
             {{"lr", 1e-2}, {"min_lr", 1e-3}, {"warmup_steps", 3}, {"decay_steps", 8}, {"decay_style", "cosine"}}}};
}

/// What the script says of the first steps.
json described(const test::TemporaryDirectory& directory, const json& config, int steps) {
    const std::string path = directory / "config.json";
    test::write_file(path, config.dump());
    const test::ProcessResult result = test::run_command(
        "python3 " + kScripts + "parity_torch.py --config " + path + " --describe " + std::to_string(steps), 60);
    INFO(result.output);
    REQUIRE(result.exit_code == 0);
    return json::parse(result.output);
}

runtime::BatchLoader loader_of(const json& config, std::int64_t vocab_size) {
    const json &data = config.at("data"), &train = config.at("train");
    runtime::DataOptions options;
    options.patterns = data.at("train").get<std::vector<std::string>>();
    options.format = data.at("format") == "bytes" ? runtime::DataFormat::bytes : runtime::DataFormat::tokens;
    options.mask_alignment =
        data.at("mask_alignment") == "token" ? runtime::MaskAlignment::token : runtime::MaskAlignment::input;
    options.vocab_size = vocab_size;
    options.seq_len = train.at("seq_len");
    options.micro_batch_size = train.at("micro_batch_size");
    options.global_batch_size = train.at("global_batch_size");
    options.shuffle = data.at("shuffle");
    options.seed = data.at("seed");
    return runtime::BatchLoader(options);
}

/// Compares every token of the described steps with the loader's; gives their number.
std::int64_t compare_batches(const json& config, const json& document, std::int64_t vocab_size) {
    const runtime::BatchLoader loader = loader_of(config, vocab_size);
    CHECK(document.at("samples") == loader.samples_per_epoch());
    const json& train = config.at("train");
    const auto tokens = train.at("micro_batch_size").get<std::size_t>() * train.at("seq_len").get<std::size_t>();
    std::vector<std::int32_t> inputs(tokens), targets(tokens);
    std::int64_t compared = 0, next_sample = 0;
    for (const json& step : document.at("steps")) {
        for (std::int64_t m = 0; m < loader.micro_batches(); ++m) {
            loader.load(next_sample, m, inputs, targets);
            std::vector<std::int32_t> their_inputs, their_targets;
            for (const json& sequence : step.at("micro_batches").at(static_cast<std::size_t>(m))) {
                for (const json& token : sequence.at(0)) their_inputs.push_back(token.get<std::int32_t>());
                for (const json& token : sequence.at(1)) their_targets.push_back(token.get<std::int32_t>());
            }
            CHECK(their_inputs == inputs);
            CHECK(their_targets == targets);
            compared += static_cast<std::int64_t>(their_inputs.size());
        }
        next_sample += train.at("global_batch_size").get<std::int64_t>();
    }
    return compared;
}

}  // namespace

TEST_CASE("the parity script reads the same raw text in the same order, over several epochs") {
    const test::TemporaryDirectory directory;
    test::write_file(directory / "b.txt", "the second file of the pattern, with an umlaut: \xC3\xBC");
    test::write_file(directory / "a.txt", "the first one");
    json config = resolved(directory / "*.txt", "bytes");
    CHECK(compare_batches(config, described(directory, config, 5), 257) == 5 * 6 * 7);
    config["data"]["shuffle"] = false;
    CHECK(compare_batches(config, described(directory, config, 2), 257) == 2 * 6 * 7);
}

TEST_CASE("the parity script reads every kind of token file and its masks") {
    const test::TemporaryDirectory directory;
    std::vector<std::int64_t> ids;
    std::string masks;
    for (std::int64_t i = 0; i < 101; ++i) {
        ids.push_back(i * 37 % 300);
        masks += i % 3 == 1 ? '0' : '1';
    }
    test::write_file(directory / "a.bin", test::gpt2_file(ids));
    test::write_file(directory / "b.bin", test::llama3_file(ids));
    test::write_file(directory / "c.bin", test::llmq_file(ids, 300, masks));
    for (const std::string alignment : {"input", "token"}) {
        INFO(alignment);
        json config = resolved(directory / "*.bin", "tokens");
        config["data"]["mask_alignment"] = alignment;
        const json document = described(directory, config, 7);
        CHECK(compare_batches(config, document, 300) == 7 * 6 * 7);
        CHECK(document.dump().find("-100") != std::string::npos);
    }
}

TEST_CASE("the parity script shuffles as published") {
    const test::TemporaryDirectory directory;
    test::write_file(directory / "vectors.py",
                     "import sys\n"
                     "sys.dont_write_bytecode = True\n"
                     "sys.path.insert(0, '" +
                         kScripts +
                         "parity')\n"
                         "from token_data import shuffled\n"
                         "for samples, places, epoch in ((10, 10, 0), (10, 10, 1), (1000003, 3, 0)):\n"
                         "    print(*[shuffled(place, samples, 1234, epoch) for place in range(places)])\n");
    const test::ProcessResult result = test::run_command("python3 " + (directory / "vectors.py"), 60);
    CHECK(result.output == "5 4 8 1 9 0 7 6 2 3\n0 3 1 6 4 7 8 5 9 2\n511934 99597 943160\n");
}

TEST_CASE("the parity script has the same learning rates") {
    using optim::DecayStyle;
    const test::TemporaryDirectory directory;
    test::write_file(directory / "a.txt", "text enough for one sample");
    for (const auto& [name, style] :
         {std::pair{"constant", DecayStyle::constant}, std::pair{"linear", DecayStyle::linear},
          std::pair{"cosine", DecayStyle::cosine}, std::pair{"wsd", DecayStyle::wsd}}) {
        json config = resolved(directory / "*.txt", "bytes");
        config["optimizer"]["decay_style"] = name;
        const json document = described(directory, config, 12);
        REQUIRE(document.at("steps").size() == 12);
        const optim::LearningRateSchedule schedule{3, 8, 12, style, 0.1};
        for (std::int64_t step = 1; step <= 12; ++step) {
            INFO(name << ", step " << step);
            const double factor = document.at("steps")[static_cast<std::size_t>(step - 1)].at("factor");
            CHECK(std::abs(factor - schedule.factor(step)) < 1e-14);
        }
    }
}

TEST_CASE("without PyTorch the parity script says what is missing and exits with 77") {
    // -S leaves out every installed package, whatever this machine has.
    const test::ProcessResult result =
        test::run_command("python3 -I -S " + kScripts + "parity_torch.py --config nothing.json", 60);
    INFO(result.output);
    CHECK(result.exit_code == 77);
    CHECK(result.output.find("not installed: torch, transformers") != std::string::npos);
}
