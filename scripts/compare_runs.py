#!/usr/bin/env python3
"""Compares runs by their metrics.jsonl: validation losses, and steps and seconds to a given one.

Seconds are the run's own clock: the sum of step_time_s, which leaves validation, samples and exports out. Between two
validations the loss is taken to fall on a straight line. Runs whose names differ in a last "-NUMBER" alone are seeds of
one entry, which is then their mean with (least to most)."""

import argparse
import html
import json
import math
import pathlib
import re
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 400, 56, 16, 120, 44
COLOURS = ["#4269d0", "#ff725c", "#3ca951", "#9467bd", "#97714a", "#6cc5b0", "#efb118", "#333333"]


class Run:
    """step -> validation loss, and step -> seconds of training up to it, of one metrics.jsonl."""

    def __init__(self, folder):
        self.losses, self.seconds = {}, {}
        self.step_time = 0.0  # of the last steps
        file = pathlib.Path(folder) / "metrics.jsonl"
        lines = file.read_bytes().split(b"\n")[:-1]  # what ends without a newline was cut off, by a full disk say
        for number, text in enumerate(lines, 1):
            try:
                self._read(json.loads(text))
            except (ValueError, KeyError, TypeError) as error:
                sys.exit(f"{file}:{number}: not a line of metrics ({type(error).__name__}: {error})")
        if not self.losses:
            sys.exit(f"{file}: no validation loss; train.eval_interval and data.valid ask for it")

    def _read(self, line):
        if line["kind"] == "run":  # a second start begins anew
            self.losses, self.seconds = {}, {0: 0.0}
        elif line["kind"] == "eval":
            self.losses[line["step"]] = float(line["eval_loss"])
        elif line["kind"] == "train":
            step, self.step_time = line["step"], float(line["step_time_s"])
            before = max(self.seconds)
            self.seconds[step] = self.seconds[before] + self.step_time * (step - before)

    def steps_to(self, target):
        """The step, with its fraction, at which the loss first is `target`; None if it never is."""
        before = None
        for step, loss in sorted(self.losses.items()):
            if not math.isfinite(loss):
                before = None
            elif loss > target:
                before = (step, loss)
            elif before is None or loss == before[1]:
                return float(step)
            else:
                return before[0] + (step - before[0]) * (before[1] - target) / (before[1] - loss)
        return None

    def seconds_to(self, step):
        before = max(each for each in self.seconds if each <= step)
        after = min((each for each in self.seconds if each > step), default=None)
        if after is None:  # no line tells of the steps since
            return self.seconds[before] + self.step_time * (step - before)
        part = (step - before) / (after - before)
        return self.seconds[before] + part * (self.seconds[after] - self.seconds[before])


def spread(values, digits):
    """Mean (least to most)."""
    if any(value is None for value in values):
        return "not reached"
    mean = f"{sum(values) / len(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def mean_losses(name, runs):
    steps = set.intersection(*(set(run.losses) for run in runs))
    if not steps:
        sys.exit(f"{name}: its runs were never validated at the same step")
    return {step: sum(run.losses[step] for run in runs) / len(runs) for step in sorted(steps)}


def print_table(entries, target):
    wanted = "" if target is None else f" steps to {target:g} | seconds |"
    print(f"| run | seeds | steps | validation loss | seconds of training |{wanted}")
    print("|---|---|---|---|---|" + ("---|---|" if wanted else ""))
    for name, runs in entries.items():
        last = max(mean_losses(name, runs))
        cells = [name.replace("|", "\\|"), str(len(runs)), str(last), spread([run.losses[last] for run in runs], 3),
                 spread([run.seconds_to(last) for run in runs], 1)]
        if target is not None:
            steps = [run.steps_to(target) for run in runs]
            seconds = [None if step is None else run.seconds_to(step) for run, step in zip(runs, steps)]
            cells += [spread(steps, 0), spread(seconds, 1)]
        print("| " + " | ".join(cells) + " |")


def draw(entries, target):
    """Mean validation losses over steps, as SVG."""
    curves = {}
    for name, runs in entries.items():
        curves[name] = {step: loss for step, loss in mean_losses(name, runs).items() if math.isfinite(loss)}
    losses = [loss for curve in curves.values() for loss in curve.values()]
    if not losses:
        sys.exit("no validation loss is a finite number: there is nothing to draw")
    low, high, last = min(losses), max(losses), max(step for curve in curves.values() for step in curve) or 1
    margin = 0.05 * (high - low) or 1.0
    low, high = low - margin, high + margin

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)

    def text(at_x, at_y, anchor, words, colour="#333333"):
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'

    def line(x1, y1, x2, y2, style):
        return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for i in range(6):
        loss, step = low + (high - low) * i / 5, last * i / 5
        parts += [line(LEFT, y(loss), WIDTH - RIGHT, y(loss), 'stroke="#dddddd"'),
                  text(LEFT - 6, y(loss) + 4, "end", f"{loss:.2f}"),
                  text(x(step), HEIGHT - BOTTOM + 18, "middle", f"{step:.0f}")]
    if target is not None and low < target < high:
        parts.append(line(LEFT, y(target), WIDTH - RIGHT, y(target), 'stroke="#888888" stroke-dasharray="4 3"'))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "middle", "step"))
    parts.append(f'<text transform="translate(14 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle" fill="#333333">'
                 'validation loss</text>')
    for i, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in curve.items())
        row = TOP + 16 + 18 * i
        parts += [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
                  line(WIDTH - RIGHT + 12, row - 4, WIDTH - RIGHT + 30, row - 4, f'stroke="{colour}" stroke-width="2"'),
                  text(WIDTH - RIGHT + 36, row, "start", html.escape(name))]
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(prog="scripts/compare_runs.py", description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN_DIR", help="telemetry.run_dir of a run")
    parser.add_argument("--target", type=float, metavar="LOSS", help="validation loss to count steps and seconds to")
    parser.add_argument("--svg", metavar="FILE", help="draws the mean validation losses")
    arguments = parser.parse_args()
    entries = {}
    for path in dict.fromkeys(pathlib.Path(folder).resolve() for folder in arguments.runs):
        entry = path.with_name(re.sub(r"(?<=.)-\d+$", "", path.name)) if path.name else path
        try:
            entries.setdefault(entry, []).append(Run(path))
        except OSError as error:
            sys.exit(f"{error.filename}: {error.strerror}")
    names = [entry.name for entry in entries]
    entries = {entry.name if names.count(entry.name) == 1 else str(entry): runs for entry, runs in entries.items()}
    print_table(entries, arguments.target)
    if arguments.svg:
        try:
            pathlib.Path(arguments.svg).write_text(draw(entries, arguments.target))
        except OSError as error:
            sys.exit(f"{error.filename}: {error.strerror}")


main()
