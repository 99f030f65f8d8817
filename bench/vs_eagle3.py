#!/usr/bin/env python3
"""Whether an EAGLE-3 head accepts as much in llama.cpp as here: the same file, prompts and draft length, greedy.

    bench/vs_eagle3.py --llama llama.cpp/build/bin/llama-speculative-simple -m TARGET.gguf --head HEAD.gguf --data DIR
                       [--tasks humaneval,gsm8k,mt_bench] [--limit 4] [-n 128] [--depth 3]

Prints tokens a verification by task, of both, and their ratio over all prompts. Prompts are wrapped as ChatML, which is
what SmolLM2's template makes of them. Exit status 1 if the ratio is off by more than 3 %.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def chat_ml(text):
    return ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")


def ours(args, text):
    command = [args.ours, "run", "-m", args.model, "--head", args.head, "--method", "eagle3", "--depth", str(args.depth), "-n",
               str(args.n), "--executor", "virtual", "--ignore-eos", "--json", "--raw", text]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return len(answer["tokens"]), answer["accepted"]


def theirs(args, text):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        command = [args.llama, "-m", args.model, "-md", args.head, "--spec-type", "draft-eagle3", "--spec-draft-n-max",
                   str(args.depth), "-f", file.name, "-n", str(args.n), "--temp", "0", "--ignore-eos", "-c", "2048"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    output = done.stdout + done.stderr
    return tuple(int(re.search(rf"{key}\s+= (\d+)", output).group(1)) for key in ("n_predict", "n_accept"))


def length(counts):
    tokens, accepted = map(sum, zip(*counts))
    return tokens / (tokens - accepted)  # every verification gives one token more than it accepts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default=os.path.join(ROOT, "build", "sluice"))
    parser.add_argument("--llama", required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--head", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tasks", default="humaneval,gsm8k,mt_bench")
    parser.add_argument("--limit", type=int, default=4)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--depth", type=int, default=3)
    args = parser.parse_args()
    everything = {"ours": [], "llama": []}
    print("| task | prompts | ours, tokens a verification | llama.cpp's |\n|---|---|---|---|")
    for task in args.tasks.split(","):
        with open(os.path.join(args.data, task + ".jsonl"), encoding="utf-8") as lines:
            prompts = [chat_ml(json.loads(line)["turns"][0]) for line in lines][: args.limit]
        counts = {"ours": [ours(args, text) for text in prompts], "llama": [theirs(args, text) for text in prompts]}
        print(f"| {task} | {len(prompts)} | {length(counts['ours']):.3f} | {length(counts['llama']):.3f} |", flush=True)
        for who, found in counts.items():
            everything[who] += found
    ratio = length(everything["ours"]) / length(everything["llama"])
    print(f"\nall: ours / llama.cpp {ratio:.3f}")
    return 0 if abs(ratio - 1) <= 0.03 else 1


if __name__ == "__main__":
    sys.exit(main())
