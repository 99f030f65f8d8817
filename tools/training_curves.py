#!/usr/bin/env python3
"""Draws how heads learn, from the logs of sluice train: speed-up, agreement and loss against tokens trained.

    tools/training_curves.py RUN... [--out bench/out/figures/training.png]       RUN: the --out of a sluice train

S is the papers': SPD eq. (4) for spd, PPSD's for an exit, and for EAGLE-3 and P-EAGLE the best over the draft length m of
L_acc(m) / (1 + c), where c, the draft's cost in target passes, is m L_s / L for EAGLE-3 and L_s / L for P-EAGLE. All are of
greedy decoding on the held-out conversations. Needs matplotlib, as tools/figures.py does.

Exit status: 0; 1 when a log is missing or says nothing; 2 for a wrong command line.
"""

import argparse
import json
import os
import re
import subprocess
import sys

from figures import ROOT, plt

KINDS = {"spd": ("SPD", "#d55e00"), "eagle3": ("EAGLE-3", "#0072b2"), "p-eagle": ("P-EAGLE", "#56b4e9"),
         "exit": ("PPSD exit", "#009e73"), "draft": ("draft model", "#cc79a7")}
SMOOTH = 50  # steps of a running mean of the loss


class Run:
    def __init__(self, folder, sluice):
        self.name = os.path.basename(os.path.normpath(folder))
        with open(os.path.join(folder, "log.jsonl")) as file:
            lines = [json.loads(line) for line in file if line.strip()]
        self.steps = [(line["tokens"], line["loss"]) for line in lines if "loss" in line]
        self.evaluations = [(line["tokens"], line["evaluation"]) for line in lines if "evaluation" in line]
        if not self.evaluations:
            raise ValueError(f"{folder}/log.jsonl: holds no evaluation yet")
        head = os.path.join(folder, "head.gguf")
        done = subprocess.run([sluice, "inspect", head, "--json"], stdout=subprocess.PIPE, check=True)
        info = json.loads(done.stdout)
        self.kind, self.layers, self.target_layers = info["head"], info["layers"], info["target"]["layers"]

    def label(self):
        return f"{KINDS[self.kind][0]} ({self.name})"

    def speed_ups(self):
        return [(tokens, self.speed_up(e)) for tokens, e in self.evaluations]

    def speed_up(self, evaluation):
        if "speed_up" in evaluation:
            return evaluation["speed_up"]
        own = max(1, self.layers) / self.target_layers
        lengths = evaluation["accepted_length"]
        return max(length / (1 + own * (1 if self.kind == "p-eagle" else m)) for m, length in enumerate(lengths, 1))


def smooth(points):
    mean, total = [], 0.0
    for i, (tokens, loss) in enumerate(points):
        total += loss - (points[i - SMOOTH][1] if i >= SMOOTH else 0.0)
        mean.append((tokens, total / min(i + 1, SMOOTH)))
    return mean[::SMOOTH // 2]


def thin(path):
    """An SVG of hundreds of lines: a path or a row of marks on a line each, hundredths of a point, no date."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'="([^"]*)"', lambda match: '="' + " ".join(match.group(1).split()) + '"', text)
    text = re.sub(r"\s*(<use [^>]*/>)\s*", r"\1", text)
    text = re.sub(r'(?<= )(?:d|x|y)="[^"]*"',
                  lambda match: re.sub(r"\d+\.\d+", lambda n: f"{float(n.group()):.2f}", match.group()), text)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def draw(runs):
    columns = min(4, len(runs))
    legend = 0.1 + 0.22 * -(-len(runs) // columns)  # inches
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2 + legend))
    titles = ("speed-up S, greedy", "min(p, q) summed, temperature 1", f"loss, mean of {SMOOTH} steps")
    for axis, title in zip(axes, titles):
        axis.set_title(title)
        axis.set_xlabel("thousand tokens trained")
    dashes, markers = ["-", "--", ":", "-."], "os^Dv"
    seen = {}
    for run in runs:
        nth = seen[run.kind] = seen.get(run.kind, -1) + 1
        line, point = dashes[nth % len(dashes)], markers[nth // len(dashes) % len(markers)]
        series = (run.speed_ups(), [(t, e["overlap"]) for t, e in run.evaluations if "overlap" in e], smooth(run.steps))
        for axis, points, marker in zip(axes, series, (point, point, None)):
            axis.plot([t / 1000 for t, _ in points], [y for _, y in points], color=KINDS[run.kind][1], linestyle=line,
                      marker=marker, markersize=4, label=run.label())
    for axis in axes[:2]:
        axis.set_ylim(bottom=1 if axis is axes[0] else 0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncol=columns)
    figure.tight_layout(rect=(0, legend / (3.2 + legend), 1, 1))
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folder of log.jsonl and head.gguf")
    parser.add_argument("--out", default=os.path.join(ROOT, "bench", "out", "figures", "training.png"))
    parser.add_argument("--sluice", default=os.path.join(ROOT, "build", "sluice"))
    args = parser.parse_args()
    try:
        runs = [Run(folder, args.sluice) for folder in args.runs]
        os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
        draw(runs).savefig(args.out)
        if args.out.endswith(".svg"):
            thin(args.out)
    except (OSError, ValueError, KeyError, subprocess.CalledProcessError) as failure:
        print(f"training_curves.py: {failure}", file=sys.stderr)
        return 1
    print(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
