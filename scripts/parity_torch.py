#!/usr/bin/env python3
"""Trains the same configuration with mfsdp-train and with PyTorch, and puts the losses side by side.

    scripts/parity_torch.py --config configs/quickstart.json [--set KEY=VALUE]... [--steps 100]

Both start from the weights that mfsdp-train makes (exported by a run of one step whose rate moves nothing) and read the
same tokens in the same order, worked out anew here. The model is transformers' GPT2LMHeadModel, LlamaForCausalLM or
Qwen3ForCausalLM; the optimizers are torch.optim.AdamW and torch.optim.Muon, or a plain Muon where PyTorch has none that
computes what the configuration asks for.

Exit codes: 0 the losses agree, 1 they do not, 2 usage, 77 torch or transformers is not installed; else that of
mfsdp-train. `--describe STEPS` needs neither: it prints batches and learning rates of the first steps as JSON.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts", "parity"))
sys.dont_write_bytecode = True
MISSING = 77


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="JSON file of the run, for mfsdp-train")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for mfsdp-train")
    parser.add_argument("--steps", type=int, default=100, help="steps to compare (default: 100)")
    parser.add_argument("--program", default=os.path.join(ROOT, "build/cpu/bin/mfsdp-train"), help="mfsdp-train")
    parser.add_argument("--tolerance", type=float, help="largest relative difference of a loss (default: 1e-5, in bfloat16 1e-2)")
    parser.add_argument("--muon", choices=["auto", "plain"], default="auto", help="auto: torch.optim.Muon if it fits")
    parser.add_argument("--describe", type=int, metavar="STEPS", help="print batches and rates of --config, a resolved one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def run_program(arguments, settings):
    """Output of mfsdp-train; its failure ends this program with its exit code."""
    command = [arguments.program, "--config", arguments.config]
    for setting in arguments.set + settings:
        command += ["--set", setting] if not setting.startswith("--") else [setting]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.stderr.write(result.stdout)
        sys.exit(result.returncode)
    return result.stdout


def train_mfsdp(arguments, folder, settings):
    """Trains in `folder`; gives the resolved configuration and the losses by step."""
    run_program(arguments, settings + [f"telemetry.run_dir={folder}"])
    with open(os.path.join(folder, "config.resolved.json")) as file:
        config = json.load(file)
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        records = [json.loads(line) for line in file]
    return config, [record["loss"] for record in records if record["kind"] == "train"]


def export_start(arguments, folder):
    """The Hugging Face directory with the weights that training starts from."""
    # 1e-300 is 0 in float32, and 1 - rate * decay is 1: one step at this rate leaves every weight as it was.
    settings = ["train.steps=1", "optimizer.warmup_steps=0", "optimizer.decay_steps=0", "optimizer.min_lr=0",
                "optimizer.lr=1e-300", "optimizer.element.lr=1e-300", "checkpoint.export_at_end=true"]
    if json.loads(run_program(arguments, ["--print-config"]))["optimizer"]["matrix"]["name"] != "none":
        settings.append("optimizer.matrix.lr=1e-300")
    train_mfsdp(arguments, folder, settings)
    return os.path.join(folder, "model")


def describe(path, steps):
    from token_data import Batches, rate_factor

    with open(path) as file:
        config = json.load(file)
    batches = Batches(config)
    document = {
        "samples": batches.samples,
        "steps": [{"factor": rate_factor(config, s), "micro_batches": batches.step(s)} for s in range(1, steps + 1)],
    }
    json.dump(document, sys.stdout)


def missing_packages():
    return [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]


def compare(arguments):
    from torch_training import train

    def report(text):
        print(text, file=sys.stderr)

    with tempfile.TemporaryDirectory() as scratch:
        start = export_start(arguments, os.path.join(scratch, "start"))
        settings = [f"train.steps={arguments.steps}", "telemetry.log_interval=1", "checkpoint.export_at_end=false"]
        config, losses = train_mfsdp(arguments, os.path.join(scratch, "run"), settings)
        report(f"mfsdp-train: {len(losses)} steps")
        reference = train(config, start, arguments.steps, arguments.muon == "auto", report)
    differences = [abs(a - b) / abs(b) for a, b in zip(losses, reference)]
    tolerance = arguments.tolerance or (1e-5 if config["precision"]["param_dtype"] == "float32" else 1e-2)
    if arguments.json:
        print(json.dumps({"mfsdp": losses, "torch": reference, "largest_relative_difference": max(differences)}))
    else:
        print("step       mfsdp     PyTorch  relative difference")
        for step, (ours, theirs, difference) in enumerate(zip(losses, reference, differences), 1):
            print(f"{step:4d}  {ours:10.6f}  {theirs:10.6f}  {difference:.2e}")
        print(f"largest relative difference {max(differences):.2e}, allowed {tolerance:.2e}")
    return 0 if max(differences) <= tolerance else 1


def main():
    arguments = parse_arguments()
    if arguments.describe is not None:
        describe(arguments.config, arguments.describe)
        return 0
    missing = missing_packages()
    if missing:
        print(f"not installed: {', '.join(missing)}; pip install torch transformers (nothing was compared)", file=sys.stderr)
        return MISSING
    return compare(arguments)


if __name__ == "__main__":
    sys.exit(main())
