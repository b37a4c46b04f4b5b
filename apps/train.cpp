// mfsdp-train: trains a transformer as one JSON file describes.

#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/runtime/config/schema_documents.h"
#include "mfsdp/runtime/train/launch.h"
#include "mfsdp/runtime/train/trainer.h"
#include "mfsdp/version.h"

#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
    using namespace mfsdp;
    CLI::App app{
        "Trains a transformer under owner-shaped ZeRO-3 with matrix optimizers.\n"
        "Start one process per rank: mpirun -np 4 mfsdp-train --config configs/quickstart.json"};
    std::string path;
    std::vector<std::string> overrides;
    bool print = false;
    app.add_option("--config", path, "JSON file that describes the run")->required();
    app.add_option("--set", overrides, "KEY=VALUE: replaces one value, e.g. --set train.steps=100 (repeatable)")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_flag("--print-config", print, "print the configuration with every default filled in, and exit");
    app.add_option_function<std::string>(
           "--print-schema",
           [](const std::string& form) {
               std::cout << (form == "json" ? runtime::editor_schema() : runtime::key_tables());
               throw CLI::Success();
           },
           "json: configs/schema.json for editors; keys: the tables of docs/config.md")
        ->trigger_on_parse()
        ->check(CLI::IsMember({"json", "keys"}));
    app.set_version_flag("--version", std::string(version()));
    app.footer(
        "Exit codes: 0 done, 1 unexpected error, 2 usage or configuration, 3 data, 4 checkpoint,\n"
        "5 numerical failure, 6 communication error or timeout.");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::configuration);
    }
    if (print) {
        try {
            std::cout << runtime::print_config(runtime::parse_train_config(path, overrides));
            if (std::cout.flush()) return 0;
            std::cerr << "stdout: cannot be written\n";
            return static_cast<int>(ExitCode::unexpected);
        } catch (const Error& error) {
            std::cerr << error.what() << '\n';
            return static_cast<int>(error.code());
        }
    }
    try {
        const std::unique_ptr<comm::Communicator> communicator = runtime::make_communicator();
        return runtime::run_program(*communicator, [&] {
            runtime::TrainConfig config;
            runtime::run_together(*communicator, [&] { config = runtime::parse_train_config(path, overrides); });
            runtime::train(config, *communicator);
        });
    } catch (const Error& error) {  // no communicator to report through
        std::cerr << error.what() << '\n';
        return static_cast<int>(error.code());
    }
}
