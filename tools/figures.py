#!/usr/bin/env python3
"""Draws the figures of the study of schedules from the results of bench/study, as PNG and SVG.

    tools/figures.py [--study bench/out/study] [--out bench/out/figures] [NAME...]      by default every figure

What a figure shows is chosen by the settings in the results, not by their names; a figure whose results are not there is
left out, with a word. Needs matplotlib, for instance Debian's python3-matplotlib (which is /usr/bin/python3's).

Exit status: 0; 1 when nothing could be drawn; 2 for a wrong command line.
"""

import argparse
import glob
import json
import math
import os
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
except ImportError:
    sys.exit(f"figures.py: {sys.executable} has no matplotlib: apt-get install python3-matplotlib and run this with "
             "/usr/bin/python3, or pip install matplotlib")

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TASKS = {"humaneval": "HumanEval", "gsm8k": "GSM8K", "mt_bench": "MT-Bench"}
# A colour and a marker for each method, the same in every figure; colours that the colour-blind can tell apart.
METHODS = {"ar": ("#7f7f7f", "s"), "sd": ("#e69f00", "v"), "specinfer": ("#009e73", "^"), "ssd": ("#cc79a7", "D"),
           "pipespec": ("#56b4e9", "P"), "specpipe": ("#0072b2", "o"), "surge": ("#d55e00", "X")}
NAMES = {"ar": "plain pipeline", "sd": "SD", "specinfer": "SpecInfer", "ssd": "SSD", "pipespec": "PipeSpec",
         "specpipe": "SpecPipe", "surge": "Surge"}

plt.rcParams.update({
    "figure.dpi": 100, "savefig.dpi": 160, "font.family": "DejaVu Sans", "font.size": 9.5, "axes.titlesize": 10,
    "figure.titlesize": 12, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e4e4e4", "grid.linewidth": 0.8, "axes.axisbelow": True, "axes.edgecolor": "#666666",
    "xtick.color": "#333333", "ytick.color": "#333333", "legend.frameon": False, "lines.linewidth": 1.8,
    "lines.markersize": 7, "svg.hashsalt": "sluice", "svg.fonttype": "none"})


class Missing(Exception):
    """What a figure would need that is not there."""


# --- What was measured ------------------------------------------------------------------------------------------------


class Point:
    """All runs of one method under one setting, at one temperature."""

    def __init__(self, settings, method, temp, runs, plain):
        self.settings, self.method, self.temp, self.runs, self.plain = settings, method, temp, runs, plain

    def of(self, task):
        return [run for run in self.runs if task in (None, run["task"])]

    def tokens(self, task=None):
        return sum(len(run["tokens"]) - 1 for run in self.of(task))

    def seconds_a_token(self, task=None):
        """The time between tokens."""
        return sum(run["seconds"]["decode"] for run in self.of(task)) / max(1, self.tokens(task))

    def speedup(self, task=None):
        seconds = self.seconds_a_token(task)
        return self.plain.seconds_a_token(task) / seconds if seconds > 0 else math.nan

    def hits(self, task=None):
        """The share of tokens that the tree held when the target named them."""
        return 1 - sum(run["flushes"] for run in self.of(task)) / max(1, self.tokens(task))

    def stage_seconds(self):
        return self.settings["costs"]["stage"]["points"][0][1]

    def draft_speed(self):
        """Passes of the largest draft model in the time of a stage."""
        draft = self.settings["costs"]["draft"]
        draft = draft[-1] if isinstance(draft, list) else draft
        return self.stage_seconds() / draft["points"][0][1]

    def label(self):
        """What sets this setting of the method apart."""
        s = self.settings
        tree = f"{s['tree_nodes']} nodes, depth {s['depth']}" if s["tree_nodes"] else "tree " + ",".join(map(str, s["tree"]))
        return {"specpipe": f"width {s['width']}", "surge": f"width {s['width']}, {s['draft_rows']} draft rows",
                "specinfer": tree, "sd": f"{s['depth']} tokens", "ssd": f"{s['depth']} tokens",
                "pipespec": f"lookahead {s['lookahead']}"}.get(self.method, "")


def load(folder):
    points = []
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(path) as file:
            result = json.load(file)
        if not isinstance(result, dict) or "costs" not in result.get("settings", {}):
            continue  # a profile, or not ours
        if not result["complete"]:
            print(f"{path}: left out, it is incomplete")
            continue
        groups = {}
        for run in result["runs"]:
            groups.setdefault((run["method"], run["temp"]), []).append(run)
        for (method, temp), runs in groups.items():
            if ("ar", temp) not in groups:
                continue
            asked = {(run["task"], run["id"], run["turn"]) for run in runs}  # a bench cut short compares like with like
            plain = Point(result["settings"], "ar", temp,
                          [run for run in groups[("ar", temp)] if (run["task"], run["id"], run["turn"]) in asked], None)
            plain.plain = plain
            points.append(Point(result["settings"], method, temp, runs, plain))
    return points


class Study:
    def __init__(self, points):
        self.points = points
        self.tasks = [task for task in TASKS if any(point.tokens(task) for point in points)]

    def find(self, method=None, temp=0, profile="paper-8x", **settings):
        """The points of these settings; a setting may be a function that says whether its value will do."""

        def fits(point):
            return (method in (None, point.method) and point.temp == temp
                    and (profile(point.settings["profile"]) if callable(profile) else point.settings["profile"] == profile)
                    and all(want(point.settings[key]) if callable(want) else point.settings[key] == want
                            for key, want in settings.items()))

        return [point for point in self.points if fits(point)]

    def best(self, method, **settings):
        """Of a method's points the one with the least time between tokens, or None."""
        return min(self.find(method, **settings), key=lambda point: point.seconds_a_token(), default=None)


# --- How it looks -----------------------------------------------------------------------------------------------------


def panels(study, title, ylabel, xlabel, share_y=True):
    """A panel for each task, side by side."""
    n = len(study.tasks)
    figure, axes = plt.subplots(1, n, figsize=(3.4 * n + 0.5, 3.6), sharey=share_y, squeeze=False)
    for axis, task in zip(axes[0], study.tasks):
        axis.set_title(TASKS[task])
        axis.set_xlabel(xlabel)
    axes[0][0].set_ylabel(ylabel)
    figure.suptitle(title + " (simulated time)")
    return figure, axes[0]


def legend_below(figure, axis, columns=4):
    handles, labels = axis.get_legend_handles_labels()
    columns = min(columns, len(labels))
    figure.legend(handles, labels, loc="lower center", ncol=columns, bbox_to_anchor=(0.5, 0.035))
    return math.ceil(len(labels) / columns)


def finish(figure, study, legend_rows, points):
    """Leaves room for the legend and says below what was measured."""
    of = points[0].settings
    profiles = list(dict.fromkeys(point.settings["profile"] for point in points))
    profile = " and ".join(profiles) if len(profiles) < 3 else os.path.commonprefix(profiles) + "…"
    prompts = max(len({run["id"] for run in point.of(task)}) for point in points for task in study.tasks)
    figure.text(0.5, 0.01, f"{of['model']}, profile {profile}, {prompts} prompt{'s' if prompts > 1 else ''} a task, "
                f"{of['max_tokens']} tokens an answer", ha="center", va="bottom", fontsize=7.5, color="#666666")
    height = figure.get_size_inches()[1]
    figure.tight_layout(rect=(0, 0.045 + (0.24 * legend_rows) / height, 1, 1))


def from_zero(axes):
    """For panels that share their y axis, when all is drawn."""
    axes[0].set_ylim(bottom=0)
    axes[0].yaxis.set_major_locator(MaxNLocator(7, integer=True))


def style(method, label=None, **more):
    color, marker = METHODS[method]
    return {"color": color, "marker": marker, "label": label or NAMES[method], "markeredgecolor": "white",
            "markeredgewidth": 0.6, **more}


def ticks(axis, values):
    axis.xaxis.set_major_locator(FixedLocator(values))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))


def grouped_bars(axis, groups, series):
    """series: (values, method, label); values by group."""
    width = 0.8 / len(series)
    for i, (values, method, label) in enumerate(series):
        at = [g - 0.4 + width * (i + 0.5) for g in range(len(groups))]
        yield axis.bar(at, values, width * 0.92, color=METHODS[method][0], label=label)
    axis.set_xticks(range(len(groups)), groups)
    axis.grid(axis="x", visible=False)


def line(axis, xs_ys, kind):
    xs, ys = zip(*sorted(xs_ys))
    axis.plot(xs, ys, **kind)
    return xs


def together(method, point):
    label = point.label()
    return NAMES[method] + (f", {label}" if label else "")


# --- The figures ------------------------------------------------------------------------------------------------------


def seven_stages(study):
    """The best setting of each method on the pipeline of seven stages."""
    found = {method: point for method in METHODS if (point := study.best(method, stages=7)) is not None}
    if len(found) < 2:
        raise Missing("two methods at 7 stages under paper-8x: specpipe, surge or specinfer")
    return found


def tbt_by_method(study):
    best = seven_stages(study)
    figure, axis = plt.subplots(figsize=(8.2, 4.2))
    series = [([1000 * point.seconds_a_token(task) for task in study.tasks], method, together(method, point))
              for method, point in best.items()]
    for bars in grouped_bars(axis, [TASKS[task] for task in study.tasks], series):
        axis.bar_label(bars, fmt="%.0f", fontsize=8, padding=2, color="#333333")
    axis.set_ylabel("time between tokens, ms")
    axis.set_title("Time between tokens at 7 stages, each method at its best setting (simulated time)", fontsize=12, pad=12)
    finish(figure, study, legend_below(figure, axis, 2), list(best.values()))
    return figure


def speedup_by_stages(study):
    points = study.find("specpipe", width=16)
    stages = sorted({point.settings["stages"] for point in points})
    if len(stages) < 2:
        raise Missing("specpipe at width 16 with several numbers of stages")
    figure, axes = panels(study, "SpecPipe by the number of stages, width 16", "speed-up over plain decoding", "stages")
    for axis, task in zip(axes, study.tasks):
        axis.plot([1, max(stages)], [1, max(stages)], color="#999999", linestyle=":", label="a token every step")
        line(axis, [(1, 1)] + [(p.settings["stages"], p.speedup(task)) for p in points if p.settings["stages"] > 1],
             style("specpipe"))
        ticks(axis, sorted({1, *stages}))
    from_zero(axes)
    finish(figure, study, legend_below(figure, axes[0]), points)
    return figure


def speedup_by_width(study):
    specpipe = study.find("specpipe", stages=7)
    surge = study.find("surge", stages=7, draft_rows=16)
    widths = sorted({point.settings["width"] for point in specpipe + surge})
    if len(widths) < 2:
        raise Missing("specpipe or surge at 7 stages with several widths")
    figure, axes = panels(study, "Speed-up by width at 7 stages: nodes a level (SpecPipe), rows a step (Surge)",
                          "speed-up over plain decoding", "width")
    for axis, task in zip(axes, study.tasks):
        axis.axhline(7, color="#999999", linestyle=":", label="a token every step")
        axis.set_xscale("log", base=2)
        for method, points in (("specpipe", specpipe), ("surge", surge)):
            if points:
                line(axis, [(p.settings["width"], p.speedup(task)) for p in points], style(method))
        ticks(axis, widths)
    from_zero(axes)
    finish(figure, study, legend_below(figure, axes[0]), specpipe + surge)
    return figure


def by_chain(study, title, xlabel, lines):
    """Speed-ups by a number of tokens: lines of (points, setting on the x axis, style)."""
    if all(len(points) < 2 for points, _, _ in lines):
        raise Missing("several draft lengths or lookaheads under the profiles of bench/study")
    figure, axes = panels(study, title, "speed-up over plain decoding", xlabel)
    for axis, task in zip(axes, study.tasks):
        axis.axhline(1, color="#999999", linestyle=":")
        for points, key, kind in lines:
            at = [(point.settings[key], point.speedup(task)) for point in points]
            counted = [(x, y) for x, y in at if x != "auto"]
            if counted:
                line(axis, counted, kind)
            for speedup in (y for x, y in at if x == "auto"):  # which stands over no number
                axis.axhline(speedup, color=kind["color"], linestyle=":", label=kind["label"] + ", lookahead auto")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    from_zero(axes)
    finish(figure, study, legend_below(figure, axes[0]), [point for points, _, _ in lines for point in points])
    return figure


def speedup_by_lookahead(study):
    two, three = "pipespec-8b-70b", "pipespec-1b-8b-70b"
    return by_chain(study, "PipeSpec and SD by lookahead", "tokens drafted (SD) or waited for (PipeSpec)",
                    [(study.find("sd", profile=two), "depth", style("sd", "SD, 8B for 70B")),
                     (study.find("pipespec", profile=two, sources=[]), "lookahead", style("pipespec", "PipeSpec, 8B for 70B")),
                     (study.find("pipespec", profile=two, sources=["ngram", "draft"]), "lookahead",
                      style("pipespec", "PipeSpec, n-grams and 8B for 70B", linestyle="-.")),
                     (study.find("pipespec", profile=three), "lookahead",
                      style("pipespec", "PipeSpec, 1B and 8B for 70B", linestyle="--"))])


def speedup_by_draft_length(study):
    return by_chain(study, "SD and SSD by draft length, a draft of 0.10 target passes", "tokens drafted a round",
                    [(study.find(method, profile="ssd"), "depth", style(method)) for method in ("sd", "ssd")])


def accuracy_against_tbt(study):
    points = [p for method in ("specpipe", "specinfer", "surge") for p in study.find(method, stages=7)]
    if len(points) < 2:
        raise Missing("several settings at 7 stages under paper-8x")
    figure, axes = panels(study, "Accuracy against the time between tokens, 7 stages", "time between tokens, ms",
                          "accuracy: tokens that the tree held, %")
    step = 1000 * points[0].stage_seconds()
    for axis, task in zip(axes, study.tasks):
        low = min(p.hits(task) for p in points)
        xs = [low + (1 - low) * i / 50 for i in range(51)]
        axis.plot([100 * x for x in xs], [step * (1 + 6 * (1 - x)) for x in xs], color="#999999", linestyle="--",
                  label="SpecPipe eq. (2), were all hits in time: t (1 + (n − 1)(1 − p))")
        for method in ("specpipe", "specinfer", "surge"):
            mine = [p for p in points if p.method == method]
            if mine:
                axis.plot([100 * p.hits(task) for p in mine], [1000 * p.seconds_a_token(task) for p in mine],
                          **style(method, linestyle="none"))
    from_zero(axes)
    finish(figure, study, legend_below(figure, axes[0]), points)
    return figure


def run_lengths(study):
    best = {method: point for method, point in seven_stages(study).items()
            if method != "ar" and all("runs" in run for run in point.runs)}
    if not best:
        raise Missing("results that hold \"runs\"")
    longest = max(max(run["runs"]) for point in best.values() for run in point.runs)
    size = max(1, math.ceil((longest + 1) / 32))
    bins = [size * i - 0.5 for i in range(math.ceil((longest + 1) / size) + 1)]
    figure, grid = plt.subplots(len(best), len(study.tasks), figsize=(3.4 * len(study.tasks) + 0.5, 1.7 * len(best) + 1.5),
                                sharex=True, squeeze=False)
    for row, (method, point) in zip(grid, best.items()):
        for axis, task in zip(row, study.tasks):
            ended = [length for run in point.of(task) for length in run["runs"][:-1]]
            cut = [run["runs"][-1] for run in point.of(task)]
            color = METHODS[method][0]
            axis.hist([ended, cut], bins=bins, stacked=True, color=[color, "white"], edgecolor=color, linewidth=0.8,
                      rwidth=0.9)
            axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            axis.grid(axis="x", visible=False)
            if method == next(iter(best)):
                axis.set_title(TASKS[task])
        row[0].set_ylabel(f"{NAMES[method]}\nruns")
    for axis in grid[-1]:
        axis.set_xlabel("tokens accepted in a row")
    figure.suptitle("Runs of accepted tokens, 7 stages (simulated time)\n", y=0.99)
    figure.text(0.5, 0.935, "filled: ended by a miss; hollow: cut by the end of the answer", ha="center", fontsize=8.5,
                color="#444444")
    finish(figure, study, 0, list(best.values()))
    return figure


def utilisation_by_stage(study):
    best = seven_stages(study)
    figure, axes = panels(study, "Utilisation of the stages, each method at its best setting", "share of time busy, %",
                          "stage")
    for axis, task in zip(axes, study.tasks):
        series = []
        for method, point in best.items():
            runs = [run for run in point.of(task) if run["stage_utilisation"]]
            time = sum(run["seconds"]["decode"] for run in runs)
            busy = [100 * sum(run["stage_utilisation"][stage] * run["seconds"]["decode"] for run in runs) / time
                    for stage in range(7)]
            series.append((busy, method, together(method, point)))
        list(grouped_bars(axis, [str(s) for s in range(1, 8)], series))
        axis.set_ylim(0, 100)
    finish(figure, study, legend_below(figure, axes[0], 2), list(best.values()))
    return figure


def speedup_by_draft_speed(study):
    points = {method: study.find(method, stages=7, profile=lambda name: name.startswith("paper-8x-r"))
              for method in ("specpipe", "surge")}
    if len(points["surge"]) < 2:
        raise Missing("surge under the profiles paper-8x-r…")
    figure, axes = panels(study, "Speed-up by the draft's speed, 7 stages, width 32", "speed-up over plain decoding",
                          "r: draft passes in the time of a stage")
    for axis, task in zip(axes, study.tasks):
        theory = {"surge": lambda p, h: 7 / (7 * (1 - h) + h / p.draft_speed()),  # docs/theory.md: surge_speedup
                  # docs/theory.md: surge_lower_bound, a level at every ⌈a⌉-th step
                  "specpipe": lambda p, h: 7 / (7 * (1 - h) + h * max(1, math.ceil(1 / p.draft_speed() - 1e-9)))}
        for method in ("specpipe", "surge"):
            line(axis, [(p.draft_speed(), p.speedup(task)) for p in points[method]], style(method))
            line(axis, [(p.draft_speed(), theory[method](p, p.hits(task))) for p in points[method]],
                 {"color": METHODS[method][0], "linestyle": "--", "linewidth": 1.2, "alpha": 0.8,
                  "label": f"{NAMES[method]}, were all its hits in time"})
        axis.axhline(7, color="#999999", linestyle=":", label="a token every step")
        axis.set_xlim(0, None)
    from_zero(axes)
    finish(figure, study, legend_below(figure, axes[0], 3), points["surge"])
    return figure


def ssd_hit_rate(study):
    """Of rounds in which k tokens were accepted, the share whose outcome had been foreseen: a run's "hit_rate_by_k" of its
    "rounds_by_k", each with an entry for every k from 0."""
    points = [p for p in study.find("ssd", profile="ssd") if any(run.get("hit_rate_by_k") for run in p.runs)]
    if not points:
        raise Missing("SSD results that hold \"hit_rate_by_k\"")
    points.sort(key=lambda point: point.settings["depth"])
    shown = [p for p in points if p.settings["depth"] in (4, 7, 10)] or points[:3]
    figure, axes = panels(study, "SSD: outcomes foreseen, by tokens accepted", "rounds with a cached outcome, %",
                          "k: tokens of the draft accepted")
    for axis, task in zip(axes, study.tasks):
        for point, dashes in zip(shown, ("-", "--", ":")):
            rounds, hits = {}, {}
            for run in point.of(task):
                for k, (count, rate) in enumerate(zip(run.get("rounds_by_k") or [], run.get("hit_rate_by_k") or [])):
                    rounds[k] = rounds.get(k, 0) + count
                    hits[k] = hits.get(k, 0) + count * rate
            there = [(k, 100 * hits[k] / rounds[k]) for k in rounds if rounds[k]]
            if there:
                line(axis, there, style("ssd", f"K = {point.settings['depth']}", linestyle=dashes))
        axis.set_ylim(0, 103)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    finish(figure, study, legend_below(figure, axes[0]), points)
    return figure


FIGURES = {figure.__name__: figure for figure in (
    tbt_by_method, speedup_by_stages, speedup_by_width, speedup_by_lookahead, speedup_by_draft_length,
    accuracy_against_tbt, run_lengths, utilisation_by_stage, speedup_by_draft_speed, ssd_hit_rate)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(FIGURES))
    parser.add_argument("--study", default=os.path.join(ROOT, "bench", "out", "study"), help="folder of results")
    parser.add_argument("--out", default=os.path.join(ROOT, "bench", "out", "figures"), help="folder for the figures")
    args = parser.parse_args()
    for name in args.names:
        if name not in FIGURES:
            parser.error(f"there is no figure '{name}', only {', '.join(FIGURES)}")
    study, drawn = Study(load(args.study)), 0
    if not study.points:
        print(f"figures.py: {args.study} holds no results; run bench/study first", file=sys.stderr)
        return 1
    os.makedirs(args.out, exist_ok=True)
    for name in args.names or FIGURES:
        try:
            figure = FIGURES[name](study)
        except Missing as missing:
            print(f"{name}: left out, it needs {missing}")
            continue
        figure.savefig(os.path.join(args.out, name + ".png"))
        figure.savefig(os.path.join(args.out, name + ".svg"), metadata={"Date": None})
        plt.close(figure)
        drawn += 1
        print(os.path.join(args.out, name + ".png"))
    return 0 if drawn else 1


if __name__ == "__main__":
    sys.exit(main())
