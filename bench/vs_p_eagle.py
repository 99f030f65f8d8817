#!/usr/bin/env python3
"""P-EAGLE beside EAGLE-3: one process, the same prompts, runs in turn, real time, so that a guess costs what it costs:
layers, output matrix, messages.

    bench/vs_p_eagle.py --eagle3 HEAD --p-eagle HEAD --data DIR [-m TARGET] [--steps 1,2,3,5,7] [--p-min 0,0.5] [--concurrency 1,2,4]

Greedy. For each number of requests at a time, each draft length and each least likelihood of a path beyond which a chain
ends (--draft-p-min): tokens a verification, tokens/s of one request while
it is decoded, and both methods' best beside each other. Run it where nothing else runs.

Exit status: 0; 1 when a run failed or an answer was not plain decoding's; 2 for a wrong command line.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TASKS = "mt_bench,gsm8k,humaneval"


def measure(args, method, head, steps, p_min, concurrency):
    """Of all prompts: (tokens after each answer's first, seconds of decoding, verifications), for the method."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "runs.json")
        words = [args.sluice, "bench", "--data", args.data, "--tasks", TASKS, "--limit", str(args.limit), "--turns", "1",
                 "-n", str(args.tokens), "--methods", method, "--threads", str(args.threads),
                 "--concurrency", str(concurrency), "--json", path]
        words += ["--head", head, "--depth", str(steps), "--draft-p-min", str(p_min)] if method != "ar" else []
        words += ["-m", args.model] if args.model else []
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        with open(path) as file:
            runs = json.load(file)["runs"]
    answers = {(r["task"], r["id"]): r["tokens"] for r in runs}
    tokens = sum(len(r["tokens"]) - 1 for r in runs)
    guessed = sum(r["accepted"] for r in runs)
    return answers, tokens, sum(r["seconds"]["decode"] for r in runs), tokens - guessed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eagle3", required=True)
    parser.add_argument("--p-eagle", required=True)
    parser.add_argument("--data", metavar="DIR", required=True, help="folder of humaneval.jsonl, gsm8k.jsonl and mt_bench.jsonl")
    parser.add_argument("-m", "--model", metavar="TARGET", help="default: the model that the set-up brings")
    parser.add_argument("--steps", default="1,2,3,5,7", help="draft lengths")
    parser.add_argument("--p-min", default="0", help="a chain ends behind a path less likely than this; several are tried")
    parser.add_argument("--concurrency", default="1,2,4", help="requests at a time")
    parser.add_argument("--limit", type=int, default=4, help="prompts a task")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens an answer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="times that each is run; the sums count")
    parser.add_argument("--sluice", default=os.path.join(ROOT, "build", "sluice"))
    args = parser.parse_args()
    heads = {"eagle3": args.eagle3, "p-eagle": args.p_eagle}
    settings = [(int(n), float(p)) for n in args.steps.split(",") for p in args.p_min.split(",")]
    try:
        print("| requests | method | draft length | p-min | tokens a verification | tokens/s of a request |\n" + "|---" * 6 + "|")
        for concurrency in [int(word) for word in args.concurrency.split(",")]:
            plain = None
            sums = {}
            for _ in range(args.rounds):
                for n, p in settings:
                    for method, head in heads.items():
                        answers, tokens, seconds, passes = measure(args, method, head, n, p, concurrency)
                        plain = plain or measure(args, "ar", head, n, p, concurrency)[0]
                        if answers != plain:
                            raise RuntimeError(f"{method}, {n} tokens: not the tokens of plain decoding")
                        total = sums.setdefault((method, n, p), [0, 0.0, 0])
                        for i, value in enumerate((tokens, seconds, passes)):
                            total[i] += value
            rate = {key: total[0] / total[1] for key, total in sums.items()}
            for (method, n, p), total in sorted(sums.items()):
                print(f"| {concurrency} | {method} | {n} | {p:g} | {total[0] / total[2]:.2f} | {rate[method, n, p]:.1f} |", flush=True)
            ours, theirs = (max((rate[m, n, p], n, p) for n, p in settings) for m in ("p-eagle", "eagle3"))
            print(f"| {concurrency} | P-EAGLE ({ours[1]}, {ours[2]:g}) over EAGLE-3 ({theirs[1]}, {theirs[2]:g}) | | | | "
                  f"**{ours[0] / theirs[0]:.2f}** |", flush=True)
        return 0
    except KeyboardInterrupt:
        return 130
    except (OSError, RuntimeError, ValueError) as failure:
        print(f"vs_p_eagle: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
