// mfsdp-train: trains a transformer as one JSON file describes.

#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/runtime/config/schema_documents.h"
#include "mfsdp/runtime/train/launch.h"
#include "mfsdp/runtime/train/trainer.h"

#include "program.h"

#include <exception>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
    using namespace mfsdp;
    CLI::App app{
        "Trains a transformer under owner-shaped ZeRO-3 with matrix optimizers.\n"
        "Start one process per rank: mpirun -np 4 mfsdp-train --config configs/quickstart.json"};
    apps::ConfigArguments arguments;
    arguments.add_to(app);
    bool print = false;
    app.add_flag("--print-config", print, "print the configuration with every default filled in, and exit");
    app.add_option_function<std::string>(
           "--print-schema",
           [](const std::string& form) {
               std::cout << (form == "json" ? runtime::editor_schema() : runtime::key_tables());
               throw CLI::Success();
           },
           "print what the schema table generates, and exit: json (configs/schema.json, for editors) or keys (the\n"
           "tables of docs/config.md)")
        ->trigger_on_parse()
        ->check(CLI::IsMember({"json", "keys"}));
    apps::add_common_options(app, "mfsdp-train");
    if (const auto code = apps::parse_arguments(app, argc, argv)) return *code;

    if (print) {
        return apps::run_alone([&] {
            std::cout << runtime::print_config(runtime::parse_train_config(arguments.path, arguments.overrides));
        });
    }
    runtime::outlive_lost_outputs();
    // Before the ranks meet, because it says how long they may take; what is wrong with it is for rank 0 to report.
    runtime::TrainConfig config;
    std::exception_ptr refused;
    try {
        config = runtime::parse_train_config(arguments.path, arguments.overrides);
    } catch (const Error&) {
        refused = std::current_exception();
    }
    try {
        const auto communicator = runtime::make_communicator(config.parallel.init_timeout_seconds);
        return runtime::run_program(*communicator, [&] {
            runtime::run_together(*communicator, [&] {
                if (refused) std::rethrow_exception(refused);
            });
            runtime::train(config, *communicator, apps::machine_options());
        });
    } catch (const Error& error) {  // no communicator to report through
        std::cerr << error.what() << '\n';
        return static_cast<int>(error.code());
    }
}
