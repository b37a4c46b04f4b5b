// mfsdp-bench: measures operations, steps, optimizers and transfers, and what links cost.

#include "mfsdp/base/file_descriptor.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/runtime/bench/benchmarks.h"
#include "mfsdp/runtime/config/environment.h"
#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/runtime/train/launch.h"

#include "program.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace mfsdp;

/// What the command line says.
struct Arguments {
    apps::ConfigArguments config;
    runtime::OperationsQuestion operations;
    std::string output = "links.json";
    std::vector<std::string> shapes = {"512x512", "2048x512", "1024x4096"};
    std::optional<std::int64_t> threads;
    std::string device;  // empty: that of the configuration
    double seconds = 0.3;
    int steps = 5;
    bool as_json = false;
    bool bfloat16 = false;
};

runtime::DeviceChoice device_choice(const std::string& name) {
    if (name == "cpu") return runtime::DeviceChoice::cpu;
    return name == "cuda" ? runtime::DeviceChoice::cuda : runtime::DeviceChoice::automatic;
}

using Benchmark = std::function<runtime::BenchTable(const runtime::BenchContext&, const runtime::BenchEnvironment&)>;

CLI::App* add_command(CLI::App& app, Arguments& arguments, const std::string& name, const std::string& description) {
    CLI::App* const command = app.add_subcommand(name, description);
    command->add_flag("--json", arguments.as_json, "print JSON");
    command
        ->add_option(
            "--threads", arguments.threads,
            "compute threads per rank (default: as mfsdp-train: `threads` of the configuration, OMP_NUM_THREADS,\n"
            "or cores / ranks)")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{4096}));  // as `threads` of the configuration
    command
        ->add_option("--device", arguments.device,
                     "auto, cpu or cuda (default: `device` of the configuration, else auto)")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
    command->add_option("--seconds", arguments.seconds, "how long to repeat each measurement (default: 0.3)")
        ->check(apps::kPositive);
    return command;
}

void add_steps(CLI::App& command, Arguments& arguments) {
    arguments.config.add_to(command);
    command.add_option("--steps", arguments.steps, "steps to measure, after one to warm up (default: 5)")
        ->check(CLI::Range(1, 100000));
}

/// Of "1024x4096"; the check of the argument has seen it.
runtime::MatrixShape matrix_shape(const std::string& text) {
    const auto cross = text.find('x');
    return {std::stoll(text.substr(0, cross)), std::stoll(text.substr(cross + 1))};
}

/// Why a text is no shape; empty if it is one.
std::string shape_problem(const std::string& text) {
    const auto is_size = [](std::string_view side) {
        return !side.empty() && side.size() <= 5 && side.front() != '0' &&
               side.find_first_not_of("0123456789") == std::string_view::npos;
    };
    const auto cross = text.find('x');
    const bool valid = cross != std::string::npos && is_size(std::string_view(text).substr(0, cross)) &&
                       is_size(std::string_view(text).substr(cross + 1));
    return valid ? "" : "must be rows x columns, as 1024x4096, each of at most five digits";
}

void write_text(const std::string& path, const std::string& text) {
    base::FileDescriptor file(path, base::FileMode::create, base::FileUse::configuration);
    file.write_exact(std::as_bytes(std::span(text)), 0);
    file.close();
}

int run(const Arguments& arguments, bool reads_config, const Benchmark& benchmark) {
    try {
        const std::unique_ptr<comm::Communicator> communicator =
            runtime::make_communicator(runtime::ParallelConfig{}.init_timeout_seconds);
        return runtime::run_program(*communicator, [&] {
            std::unique_ptr<device::Device> device;
            runtime::Machine machine;
            runtime::TrainConfig config;
            int threads = 1;
            runtime::run_together(*communicator, [&] {
                if (reads_config)
                    config = runtime::parse_train_config(arguments.config.path, arguments.config.overrides);
                if (arguments.threads) config.threads = arguments.threads;
                if (!arguments.device.empty()) config.device = device_choice(arguments.device);
            });
            runtime::run_together(*communicator, [&] {
                machine = runtime::choose_machine(config, *communicator, apps::machine_options());
            });
            runtime::run_together(*communicator, [&] {
                const std::vector<int> nodes = communicator->node_of_rank();
                threads = runtime::resolve_threads(
                    config,
                    std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(communicator->rank())]));
                device = runtime::make_device(machine, config, threads);
            });
            const runtime::BenchEnvironment environment =
                runtime::describe_environment(apps::version_line("mfsdp-bench"), *communicator, *device, threads);
            const bool decomposes = device->kind() != device::DeviceKind::cpu || device::cpu_has_lapack();
            const runtime::BenchTable table = benchmark(
                {*communicator, *device, machine, {.seconds = arguments.seconds}, decomposes, threads}, environment);
            if (communicator->rank() != 0) return;
            std::cout << (arguments.as_json ? bench_json(table, environment) : bench_text(table, environment));
            if (!std::cout.flush()) throw Error(ExitCode::unexpected, "stdout: cannot be written");
        });
    } catch (const Error& error) {  // no communicator to report through
        std::cerr << error.what() << '\n';
        return static_cast<int>(error.code());
    }
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{
        "Measures this machine with the code that trains. Figures are medians; shares are of what large products and\n"
        "copies reach in the same run. Under mpirun or alone; ops is for one rank.\n"
        "  mfsdp-bench step --config configs/gpt2_124m.json --set train.seq_len=64\n"
        "  mpirun -np 4 mfsdp-bench calibrate --output links.json     then: parallel.calibration = links.json"};
    Arguments arguments;
    app.require_subcommand(1);
    CLI::App* const ops = add_command(app, arguments, "ops", "every operation of the table at layer shapes");
    CLI::App* const step = add_command(app, arguments, "step", "training steps of a configuration, on made-up tokens");
    CLI::App* const optimizer =
        add_command(app, arguments, "optimizer", "the optimizer step of a configuration, or single matrices");
    CLI::App* const gather =
        add_command(app, arguments, "gather", "gathers and reductions of a configuration's groups");
    CLI::App* const calibrate = add_command(app, arguments, "calibrate", "what links between ranks cost, into a file");
    arguments.config.add_to(*ops, false);
    ops->add_option("--micro-batch", arguments.operations.batch_size, "sequences (default: 4)")->check(apps::kPositive);
    ops->add_option("--seq-len", arguments.operations.sequence_length, "tokens of a sequence (default: 64)")
        ->check(apps::kPositive);
    ops->add_option("--only", arguments.operations.only, "only operations and uses that contain this text");
    ops->add_flag("--bfloat16", arguments.bfloat16, "weights and activations in bfloat16 (default: float32)");
    add_steps(*step, arguments);
    arguments.config.add_to(*optimizer, false);
    CLI::Option* const optimizer_config = optimizer->get_option("--config");
    optimizer->get_option("--set")->needs(optimizer_config);
    optimizer
        ->add_option("--steps", arguments.steps, "with --config: steps to measure, after one to warm up (default: 5)")
        ->needs(optimizer_config)
        ->check(CLI::Range(1, 100000));
    optimizer
        ->add_option("--shape", arguments.shapes,
                     "without --config: one matrix of each of these shapes under every optimizer\n"
                     "(default: 512x512 2048x512 1024x4096; the last takes minutes)")
        ->excludes(optimizer_config)
        ->check(CLI::Validator(shape_problem, "ROWSxCOLUMNS"));
    arguments.config.add_to(*gather);
    calibrate->add_option("--output", arguments.output, "file for parallel.calibration (default: links.json)");
    apps::add_common_options(app, "mfsdp-bench");
    if (const auto code = apps::parse_arguments(app, argc, argv)) return *code;

    const auto parsed = [&] { return runtime::parse_train_config(arguments.config.path, arguments.config.overrides); };
    if (ops->parsed()) {
        return run(arguments, !arguments.config.path.empty(), [&](const auto& context, const auto&) {
            runtime::OperationsQuestion question = arguments.operations;
            if (!arguments.config.path.empty()) question.model = parsed().model;
            if (arguments.bfloat16) question.dtype = device::DType::bfloat16;
            return runtime::bench_operations(context, question);
        });
    }
    if (calibrate->parsed()) {
        return run(arguments, false, [&](const auto& context, const auto& environment) {
            if (context.communicator.size() < 2) {
                throw ConfigError("bench: calibrate measures links between ranks: start at least two with mpirun");
            }
            return runtime::bench_calibrate(context, environment,
                                            [&](const std::string& text) { write_text(arguments.output, text); });
        });
    }
    if (optimizer->parsed() && arguments.config.path.empty()) {
        return run(arguments, false, [&](const auto& context, const auto&) {
            if (context.communicator.size() > 1) {
                throw ConfigError("bench: optimizer without --config measures single matrices: start one rank");
            }
            std::vector<runtime::MatrixShape> shapes;
            for (const std::string& text : arguments.shapes) shapes.push_back(matrix_shape(text));
            return runtime::bench_matrices(context, shapes);
        });
    }
    return run(arguments, true, [&](const auto& context, const auto&) {
        if (step->parsed()) return runtime::bench_step(context, parsed(), arguments.steps);
        if (optimizer->parsed()) return runtime::bench_optimizer(context, parsed(), arguments.steps);
        return runtime::bench_gather(context, parsed());
    });
}
