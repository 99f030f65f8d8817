#!/usr/bin/env python3
"""Sets our decoding and prefill beside llama-bench: same file, same threads, runs in turn.

    bench/vs_llama.py --ours build/bench/sluice_speed --llama-bench llama.cpp/build/bin/llama-bench MODEL.gguf …

With --device (ggml:cpu, ggml:cuda0) a stage there, with --width-lock N, instead of our own kernels. With --widths, batches of a few tokens, ours and llama.cpp's from an empty cache. Prints the median of each figure and the ratio ours / llama.cpp (above 1: ours is faster). `cpu` divides tokens by the
processor time of a process instead of by elapsed time: the figure to look at when the machine is not idle.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess


def run(command):
    """The program's output and the processor seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def repetitions(args, prompt, decode):
    """A batch of a few tokens is repeated until it takes about as long as a long one."""
    return 1 if decode else max(1, args.prompt // prompt)


def ours(args, model, threads, prompt, decode):
    out, cpu = run([args.ours, "-m", model, "--threads", str(threads), "--prompt", str(prompt), "--decode", str(decode),
                    "--repeat", str(repetitions(args, prompt, decode)), "--device", args.device,
                    "--width-lock", str(args.width_lock)])
    figures = json.loads(out)
    rate = 1e3 / figures["decode_ms_per_token"] if decode else figures["prefill_tokens_per_second"]
    return rate, cpu


def llama(args, model, threads, prompt, decode):
    # -d: tokens that are in the cache before the timed ones
    sizes = ["-p", "0", "-n", str(decode), "-d", str(prompt)] if decode else ["-p", str(prompt), "-n", "0"]
    repeat = str(repetitions(args, prompt, decode))
    out, cpu = run([args.llama_bench, "-m", model, "-t", str(threads), "-r", repeat, "--no-warmup", "-o", "json", *sizes])
    return statistics.median(json.loads(out)[-1]["samples_ts"]), cpu


def compare(args, model, threads, prompt, decode):
    """Medians of (rate, cpu) for both, measured in turn, in every other round in the other order."""
    both = {ours: [], llama: []}
    for turn in range(args.rounds):
        for side in list(both)[:: -1 if turn % 2 else 1]:
            both[side].append(side(args, model, threads, prompt, decode))
    return [[statistics.median(column) for column in zip(*results)] for results in both.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--ours", default="build/bench/sluice_speed")
    parser.add_argument("--llama-bench", default="llama-bench")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width-lock", type=int, default=0, help="rows of every pass there; 0: no lock")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--widths", help="instead: batches of so many tokens, as 2,4,8")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    print("| model | threads | what | ours, tok/s | llama.cpp | ratio | cpu ratio |\n" + "|---" * 7 + "|")
    for model in args.models:
        for threads in map(int, args.threads.split(",")):
            sizes = [("prefill", args.prompt, 0), ("decode", 1, args.decode)]
            if args.widths:
                sizes = [(f"width {width}", int(width), 0) for width in args.widths.split(",")]
            for what, prompt, decode in sizes:
                (rate, cpu), (their_rate, their_cpu) = compare(args, model, threads, prompt, decode)
                print(f"| {os.path.basename(model)} | {threads} | {what} | {rate:.1f} | {their_rate:.1f}"
                      f" | {rate / their_rate:.2f} | {their_cpu / cpu:.2f} |", flush=True)


if __name__ == "__main__":
    main()
