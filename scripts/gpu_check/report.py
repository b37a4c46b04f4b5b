#!/usr/bin/env python3
"""The report of scripts/gpu_check.sh.

    report.py losses RUNS    compares the losses of the runs cpu_TYPE and gpu_TYPE step by step
    report.py table RESULTS  prints all that RESULTS holds as tables and writes report.json; exit code 1 if a check failed
"""

import json
import os
import sys

# Largest relative difference of a loss between CPU and GPU over the 30 steps of the small run. Sums have other orders on
# the two; in bfloat16 a difference in the last bit of a weight grows with the steps.
TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}
# In nat: a small run whose loss falls by less does not learn.
LEARNED = 0.5


def losses_of(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [record["loss"] for record in records if record["kind"] == "train"]


def compare_losses(runs):
    good = True
    for number_type, limit in TOLERANCE.items():
        cpu = losses_of(os.path.join(runs, "cpu_" + number_type))
        gpu = losses_of(os.path.join(runs, "gpu_" + number_type))
        if not cpu or len(cpu) != len(gpu):
            print(f"{number_type}: {len(cpu)} and {len(gpu)} steps: nothing to compare")
            good = False
            continue
        worst = max(abs(a - b) / abs(a) for a, b in zip(cpu, gpu))
        learns = gpu[-1] < gpu[0] - LEARNED
        print(f"{number_type}: {len(cpu)} and {len(gpu)} steps, {gpu[0]:.4f} -> {gpu[-1]:.4f} "
              f"(CPU {cpu[-1]:.4f}), largest relative difference {worst:.2e}, allowed {limit:.0e}")
        good = good and worst <= limit and learns
    return 0 if good else 1


def load(folder, name):
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def aligned(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths)))
            for row in rows]


def fact(bench, beginning):
    return next((value for name, value in bench["facts"].items() if name.startswith(beginning)), None)


def number(value, scale=1.0, digits=1):
    return "-" if value is None else f"{value * scale:.{digits}f}"


def checks_table(folder, report):
    rows = [["check", "result", "seconds"]]
    failed = 0
    with open(os.path.join(folder, "checks.tsv"), encoding="utf-8") as file:
        for line in file:
            name, code, seconds = line.rstrip("\n").split("\t")
            skipped = code == "skipped"
            failed += 0 if skipped or code == "0" else 1
            rows.append([name, "skipped" if skipped else "passed" if code == "0" else f"FAILED ({code})", seconds])
            report["checks"].append(
                {"name": name, "exit_code": None if skipped else int(code), "seconds": int(seconds)})
    return rows, failed


def operations_table(folder, report):
    bench = load(folder, "operations")
    if bench is None:
        return None
    report["operations"] = bench
    rows = [["operation, use, shape", "us", "TFLOP/s", "GB/s", "% of products", "% of copies"]]
    for row in bench["rows"]:
        name = ", ".join(str(row[key]) for key in ("operation", "use", "shape") if row.get(key))
        rows.append([name, number(row.get("median_seconds"), 1e6), number(row.get("flops_per_second"), 1e-12),
                     number(row.get("bytes_per_second"), 1e-9, 0), number(row.get("share_of_flops_peak"), 100),
                     number(row.get("share_of_bytes_peak"), 100)])
    return rows


def steps_table(folder, report):
    rows = [["model", "order of sums", "step ms", "tokens/s", "MFU %", "forward ms", "backward ms", "optimizer ms"]]
    for name in ("124m", "350m", "1500m"):
        for suffix, order in (("_deterministic_true", "fixed"), ("_deterministic_false", "free"), ("_adamw", "free, AdamW")):
            bench = load(folder, "step_" + name + suffix)
            if bench is None:
                continue
            report["steps"][name + suffix] = bench
            part = {row["part"]: row["median_seconds"] for row in bench["rows"]}
            rows.append([name, order, number(part.get("step"), 1e3), number(fact(bench, "tokens/s"), 1, 0),
                         number(fact(bench, "MFU"), 100)] +
                        [number(part.get(key), 1e3) for key in ("forward", "backward", "optimizer")])
        torch = load(folder, "torch_" + name)
        if torch is not None:
            report["torch"][name] = torch
            rows.append([name, "PyTorch " + torch["torch"] + ", AdamW", number(torch["step_seconds"], 1e3),
                         number(torch["tokens_per_second"], 1, 0), "-", "-", "-", "-"])
    return rows if len(rows) > 1 else None


def optimizer_table(folder, report):
    rows = [["model", "optimizer ms", "TFLOP/s", "% of products"]]
    for name in ("124m", "350m", "1500m"):
        bench = load(folder, "optimizer_" + name)
        if bench is None:
            continue
        report["optimizer"][name] = bench
        row = bench["rows"][0]
        rows.append([name, number(row["median_seconds"], 1e3), number(row.get("flops_per_second"), 1e-12),
                     number(row.get("share_of_peak"), 100)])
    return rows if len(rows) > 1 else None


def table(folder):
    with open(os.path.join(folder, "gpu.txt"), encoding="utf-8") as file:
        gpu = file.readline().strip()
    report = {"gpu": gpu, "checks": [], "operations": None, "steps": {}, "optimizer": {}, "torch": {}}
    checks, failed = checks_table(folder, report)
    tables = [("Operations (bfloat16; shares of the best product and of a large copy in the same run)",
               operations_table(folder, report)),
              ("Training steps (GPT-2, bfloat16 weights; MFU = forward and backward FLOPs / (step time x peak of products))",
               steps_table(folder, report)),
              ("Optimizer steps", optimizer_table(folder, report)), ("Checks", checks)]
    print(gpu)
    for title, rows in tables:
        if rows is not None:
            print("\n" + title)
            print("\n".join(aligned(rows)))
    with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    print(f"\n{'all checks passed' if failed == 0 else str(failed) + ' checks FAILED'}; {os.path.join(folder, 'report.json')}")
    return 0 if failed == 0 else 1


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("losses", "table"):
        print(__doc__, file=sys.stderr)
        return 2
    return compare_losses(sys.argv[2]) if sys.argv[1] == "losses" else table(sys.argv[2])


if __name__ == "__main__":
    sys.exit(main())
