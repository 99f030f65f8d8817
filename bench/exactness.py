#!/usr/bin/env python3
"""The promise over its whole grid: every pipeline gives the tokens of plain decoding through one stage.

    bench/exactness.py [--data DIR --tasks humaneval,mt_bench] [--limit 20] [--tokens 24] [--out exactness.json]

Runs build/sluice for stages x executor x (plain decoding, and SpecPipe at every width) x temperature x prompt. Each
cell's runs are kept in OUT's folder of cells, so that an interrupted run goes on where it was; --minutes stops it after
a while. Prints a line of summary and writes it, with every difference found, to OUT. Exit status 1 if there is one.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time

STAGES, WIDTHS, EXECUTORS = (1, 2, 3, 5, 6, 10, 15, 30), (1, 4, 16, 64), ("virtual", "threads")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PROMPTS = [
    "Why is the sky blue?", "List the numbers from one to thirty.", "Write a function that reverses a string.",
    "A train goes 60 km in 45 minutes. How fast is it?", "Translate 'good morning' into five languages.",
    "Explain recursion to a child.", "Write the same sentence three times.", "Name the planets in order.",
    "Write a class for a bank account with deposit and withdraw.", "What rhymes with orange?",
    "Tom has 3 boxes of 12 pens and gives away 7. How many are left?", "Describe a storm at sea in two sentences.",
    "Give me a recipe for pancakes.", "What is the difference between a list and a tuple?", "Count down from twenty.",
    "Write a haiku about winter, then repeat it.", "Is 91 a prime number? Show your steps.",
    "Write SQL that finds duplicate e-mail addresses.", "Who wrote Faust?", "Write a table of squares up to 10."
]


def cells():
    """Each cell: stages, executor, method, width. The reference comes first, the others in a fixed random order, so
    that a part of the grid is a sample of it."""
    grid = [(stages, executor, method, width) for stages, executor in itertools.product(STAGES, EXECUTORS)
            for method, width in [("ar", 1)] + [("specpipe", width) for width in WIDTHS]]
    reference = (1, "virtual", "ar", 1)
    grid.remove(reference)
    random.Random(0).shuffle(grid)
    return [reference] + grid


def run_cell(args, data, cell, path):
    stages, executor, method, width = cell
    with open(path + ".log", "w") as log:
        subprocess.run([args.sluice, "bench", "--data", data, "--tasks", args.tasks, "--limit", str(args.limit),
                        "--methods", method, "--temps", args.temps, "--stages", str(stages),
                        *(["--width", str(width)] if method != "ar" else []),
                        "--executor", executor, "-n", str(args.tokens), "--seed", "1", "--ignore-eos", "--context", "2048",
                        "--json", path + ".part"] + (["-m", args.model] if args.model else []),
                       check=True, stdout=log, stderr=log)
    os.replace(path + ".part", path)
    os.remove(path + ".log")


def answers(path):
    """What was asked -> the tokens of the answer, and how often guesses were hit and missed."""
    with open(path) as file:
        runs = json.load(file)["runs"]
    asked = {(run["task"], run["id"], run.get("turn", 0), run["temp"]): run["tokens"] for run in runs}
    return asked, sum(run["accepted"] for run in runs), sum(run["flushes"] for run in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=os.path.join(ROOT, "build", "sluice"))
    parser.add_argument("-m", "--model", help="default: the model that the set-up brings")
    parser.add_argument("--data", help="folder of TASK.jsonl files; default: twenty prompts of its own")
    parser.add_argument("--tasks", default="mt_bench,gsm8k,humaneval")
    parser.add_argument("--limit", type=int, default=20, help="prompts a task")
    parser.add_argument("--temps", default="0,1")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--minutes", type=float, help="stop after so long; the next call goes on")
    parser.add_argument("--out", default="exactness.json")
    args = parser.parse_args()

    begin = time.monotonic()
    folder = os.path.splitext(args.out)[0] + ".cells"
    os.makedirs(folder, exist_ok=True)
    settings = {key: getattr(args, key) for key in ("model", "data", "tasks", "limit", "temps", "tokens")}
    with open(os.path.join(folder, "settings.json"), "a+") as file:
        file.seek(0)
        text = file.read()
        if text and json.loads(text) != settings:
            sys.exit(f"exactness.py: {folder} holds cells of other settings; give another --out or remove it")
        if not text:
            json.dump(settings, file)

    differences, n_cells, n_answers, n_tokens, hits, flushes, reference = [], 0, 0, 0, 0, 0, None
    with tempfile.TemporaryDirectory() as own:
        if not args.data:
            args.data, args.tasks = own, "generic"
            with open(os.path.join(own, "generic.jsonl"), "w") as file:
                for number, prompt in enumerate(PROMPTS):
                    print(json.dumps({"id": str(number), "turns": [prompt]}), file=file)
        grid = cells()
        for cell in grid:
            path = os.path.join(folder, "-".join(map(str, cell)) + ".json")
            if not os.path.exists(path):
                if args.minutes and time.monotonic() - begin > 60 * args.minutes:
                    continue
                run_cell(args, args.data, cell, path)
            got, cell_hits, cell_flushes = answers(path)
            reference = reference or got
            n_cells, hits, flushes = n_cells + 1, hits + cell_hits, flushes + cell_flushes
            for asked, tokens in got.items():
                n_answers, n_tokens = n_answers + 1, n_tokens + len(tokens)
                if tokens == reference[asked]:
                    continue
                at = next((i for i, (a, b) in enumerate(zip(tokens, reference[asked])) if a != b), "the end")
                differences.append({"cell": cell, "asked": asked, "at": at})
                print("differs:", differences[-1], file=sys.stderr)

    result = {"settings": settings, "cells": n_cells, "of": len(grid), "answers": n_answers, "tokens": n_tokens,
              "hits": hits, "flushes": flushes, "differences": differences}
    with open(args.out + ".part", "w") as file:
        json.dump(result, file, indent=1)
    os.replace(args.out + ".part", args.out)
    print(f"{n_cells} of {len(grid)} cells, {n_answers} answers, {n_tokens} tokens, {hits} hits, {flushes} flushes: "
          f"{len(differences)} answers differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
