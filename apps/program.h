#pragma once

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/train/machine.h"
#include "mfsdp/version.h"

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace mfsdp::apps {

// What the programs have in common.

/// The file of a run and the values that replace some of its own.
struct ConfigArguments {
    std::string path;
    std::vector<std::string> overrides;

    void add_to(CLI::App& app, bool required = true) {
        app.add_option("--config", path, "JSON file that describes the run (docs/config.md)")->required(required);
        app.add_option("--set", overrides, "KEY=VALUE: replaces one value, e.g. --set train.steps=100 (repeatable)")
            ->expected(1)
            ->allow_extra_args(false)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
};

/// A number above zero that is finite: CLI11's own check lets "nan" pass.
inline const CLI::Validator kPositive(
    [](const std::string& text) {
        const double value = std::strtod(text.c_str(), nullptr);
        return std::isfinite(value) && value > 0.0 ? std::string() : "must be a finite number > 0, not " + text;
    },
    "POSITIVE");

/// Where the CUDA backend is, if not beside the program: for tests, which put a backend on the CPU in its place.
inline runtime::MachineOptions machine_options() {
    const char* const module = std::getenv("MFSDP_CUDA_MODULE");
    return {module == nullptr ? "" : module};
}

/// "mfsdp-train 0.1.0 (git 5c0cd26a1b2c)"
inline std::string version_line(const std::string& program) {
    return program + " " + std::string(version()) + " (git " + std::string(git_revision()) + ")";
}

/// --version, and the exit codes under --help.
inline void add_common_options(CLI::App& app, const std::string& program) {
    app.set_version_flag("--version", version_line(program), "version and git revision");
    app.footer(
        "Exit codes: 0 done, 1 unexpected error, 2 usage, configuration or launch, 3 data,\n"
        "4 weights cannot be written, 5 numerical failure, 6 communication error or timeout.");
}

/// The exit code if the program ends here: wrong arguments, or --help or --version, whose output a full disk cuts
/// short.
inline std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (app.exit(error) != 0) return static_cast<int>(ExitCode::configuration);
        if (std::cout.flush()) return 0;
        std::cerr << "stdout: cannot be written\n";
        return static_cast<int>(ExitCode::unexpected);
    }
    return std::nullopt;
}

/// Runs the body of a program of one process and turns what it throws into one message and the exit code. Output that
/// a full disk cut short is no success.
template <class Body>
int run_alone(const Body& body) {
    try {
        body();
        if (std::cout.flush()) return 0;
        std::cerr << "stdout: cannot be written\n";
        return static_cast<int>(ExitCode::unexpected);
    } catch (const Error& error) {
        std::cerr << error.what() << '\n';
        return static_cast<int>(error.code());
    } catch (const std::bad_alloc&) {
        std::cerr << "memory: the machine has none left for this\n";
        return static_cast<int>(ExitCode::unexpected);
    }
}

}  // namespace mfsdp::apps
