// mfsdp-data as its users start it.

#include "support/catch.h"
#include "support/process.h"
#include "support/temporary_directory.h"

#include <filesystem>
#include <string>

using mfsdp::test::count_of;
using mfsdp::test::ProcessResult;
using mfsdp::test::run_command;
using mfsdp::test::TemporaryDirectory;
using mfsdp::test::write_file;

namespace {

const std::string kData = MFSDP_BINARY_DIR "/bin/mfsdp-data";
const std::string kTrain = MFSDP_BINARY_DIR "/bin/mfsdp-train";

void check(const std::string& command, int exit_code, const std::string& part) {
    const ProcessResult result = run_command(command, 60);
    INFO(command << "\n" << result.output);
    CHECK(result.exit_code == exit_code);
    CHECK(count_of(result.output, part) == 1);
}

}  // namespace

TEST_CASE("text becomes token files that are shown, pass their checks and train like the text itself") {
    const TemporaryDirectory folder;
    std::string text;
    for (int line = 0; line < 200; ++line) text += "row " + std::to_string(line * line) + " has one owner\n";
    write_file(folder / "a.txt", text);
    write_file(folder / "b.txt", "the end\n");
    const std::string out = folder / "tokens";
    check(kData + " tokenize --output " + out + " --max-tokens-per-file 1500 \"" + (folder / "*.txt") + "\"", 0,
          "2 text files, " + std::to_string(text.size() + 8) + " bytes: 2 documents, " +
              std::to_string(text.size() + 10) + " tokens in 4 files");
    check(kData + " inspect --tokenizer bytes --seq-len 32 \"" + out + "/*.bin\"", 0, "\"row 0 has one ow\"");
    check(kData + " validate --vocab-size 257 \"" + out + "/*.bin\"", 0, "4 files, ");
    const std::string model =
        " --set data.train=[\\\"" + out + "/*.bin\\\"] --set telemetry.run_dir=" + (folder / "run");
    write_file(
        folder / "run.json",
        R"({"model": {"model_type": "gpt2", "vocab_size": 257, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 32},
                   "data": {"train": ["x"]}, "precision": {"param_dtype": "float32"},
                   "optimizer": {"lr": 0.01, "matrix": {"name": "none"}},
                   "train": {"steps": 2, "seq_len": 32, "micro_batch_size": 1, "global_batch_size": 2}})");
    const std::string run = " --config " + (folder / "run.json");
    check(kData + " validate" + run + model, 0, "no problems");
    const ProcessResult tokens = run_command(kTrain + run + model, 60);
    const ProcessResult bytes =
        run_command(kTrain + run + " --set data.format=bytes --set data.train=[\\\"" + (folder / "*.txt") +
                        "\\\"] --set telemetry.run_dir=" + (folder / "raw"),
                    60);
    INFO(tokens.output << bytes.output);
    CHECK(tokens.exit_code == 0);
    CHECK(bytes.exit_code == 0);
    const std::string weights = mfsdp::test::read_file(folder / "run/model/model.safetensors");
    CHECK(weights.size() > 10000);
    CHECK(weights == mfsdp::test::read_file(folder / "raw/model/model.safetensors"));
}

TEST_CASE("what mfsdp-data cannot do ends with a sentence and the documented exit code") {
    const TemporaryDirectory folder;
    write_file(folder / "a.txt", "text");
    write_file(folder / "bad.bin", "text");
    std::string text(1, ' ');
    text += folder / "a.txt";
    check(kData, 2, "A subcommand is required");
    check(kData + " tokenize" + text, 2, "--output is required");
    check(kData + " tokenize --kind 1 --output " + (folder / "out") + text, 2, "1 not in {bin.tok,gpt2,llama3}");
    check(kData + " tokenize --output " + folder.path() + text, 2, "exists already");
    check(kData + " tokenize --tokenizer /nowhere --output " + (folder / "out") + text, 3,
          "data: /nowhere/vocab.json: cannot open: No such file or directory");
    check(kData + " tokenize --output " + (folder / "out") + " /nowhere.txt", 3,
          "pattern '/nowhere.txt' matches no file");
    check(kData + " inspect " + (folder / "bad.bin"), 3, "shorter than the 1024-byte header");
    check(kData + " validate " + (folder / "bad.bin") + text, 3, "2 files, 0 tokens: 2 problems");
    check(kData + " validate", 2, "nothing to check");
    check(kData + " validate --config x.json --vocab-size 3", 2, "--vocab-size excludes --config");
    check(kData + " inspect --format bytes" + text + " >/dev/full", 1, "stdout: cannot be written");
    CHECK_FALSE(std::filesystem::exists(folder / "out"));
    check(kData + " --help", 0, "Exit codes: ");
}
