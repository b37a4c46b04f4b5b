"""Reads gcov's JSON, one document a line, and prints per file the lines that run and those that never do."""

import collections
import json
import os
import sys

PARTS = ("src/device/cuda/", "src/comm/nccl/")


def spans(lines):
    """Sorted numbers as "3-5, 9"."""
    text = []
    begin = previous = None
    for line in lines + [None]:
        if previous is not None and line != previous + 1:
            text.append(str(begin) if begin == previous else f"{begin}-{previous}")
            begin = None
        if begin is None:
            begin = line
        previous = line
    return ", ".join(text)


def main():
    root = sys.argv[1]
    counts = collections.defaultdict(lambda: collections.defaultdict(int))
    for document in sys.stdin:
        if not document.strip():
            continue
        report = json.loads(document)
        for file in report["files"]:
            path = os.path.join(report["current_working_directory"], file["file"])
            name = os.path.relpath(os.path.normpath(path), root)
            if not name.startswith(PARTS):
                continue
            for line in file["lines"]:  # once for each instance of a template
                counts[name][line["line_number"]] += line["count"]
    if not counts:
        sys.exit("cuda_coverage: no counters were written")
    print("| file | lines | run | never |\n|---|---|---|---|")
    all_lines = all_run = 0
    for name in sorted(counts):
        lines = counts[name]
        never = sorted(number for number, count in lines.items() if count == 0)
        all_lines += len(lines)
        all_run += len(lines) - len(never)
        print(f"| {name.removeprefix('src/')} | {len(lines)} | {len(lines) - len(never)} | {spans(never)} |")
    print(f"| all | {all_lines} | {all_run} ({100 * all_run / all_lines:.1f} %) | |")


main()
