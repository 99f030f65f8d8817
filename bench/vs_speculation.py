#!/usr/bin/env python3
"""Sets our answers beside llama-speculative-simple's or llama-server's: one process, same files, same threads, same
prompts, runs in turn.

    bench/vs_speculation.py --ours build/sluice --llama llama.cpp/build/bin/llama-speculative-simple \\
        -m TARGET.gguf --draft DRAFT.gguf --data DIR [--tasks humaneval,gsm8k] [--limit 2] [-n 96] [--threads 2]

Greedy. Prints tokens/s while decoding by task, for every mode of both, and the ratio of our best mode to their best. The
prompts are wrapped as ChatML, which is what Qwen2.5's template makes of them.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
OURS = {
    "ar": ["--method", "ar"],
    "specpipe ngram": ["--method", "specpipe", "--source", "ngram", "--width", "1"],
    "surge ngram": ["--method", "surge", "--source", "ngram", "--width", "8"],
    "sd ngram 3": ["--method", "sd", "--source", "ngram", "--depth", "3"],
    "sd draft 2": ["--method", "sd", "--source", "draft", "--depth", "2"],
    "sd draft 3": ["--method", "sd", "--source", "draft", "--depth", "3"],
    "sd draft 2 32k": ["--method", "sd", "--source", "draft", "--depth", "2", "--draft-vocab", "32768"],
    "sd fused 3 32k": ["--method", "sd", "--source", "ngram,draft", "--depth", "3", "--draft-vocab", "32768"],
    "sd draft 4 32k": ["--method", "sd", "--source", "draft", "--depth", "4", "--draft-vocab", "32768"],
    "sd fused 4 32k": ["--method", "sd", "--source", "ngram,draft", "--depth", "4", "--draft-vocab", "32768"],
    "sd fused 6 32k": ["--method", "sd", "--source", "ngram,draft", "--depth", "6", "--draft-vocab", "32768"],
    "sd fused 4": ["--method", "sd", "--source", "ngram,draft", "--depth", "4"],
    "sd fused 8 0.5 32k": ["--method", "sd", "--source", "ngram,draft", "--depth", "8", "--draft-p-min", "0.5", "--draft-vocab", "32768"],
    "sd fused 8 0.3 32k": ["--method", "sd", "--source", "ngram,draft", "--depth", "8", "--draft-p-min", "0.3", "--draft-vocab", "32768"],
    "sd fused 8 0.7 32k": ["--method", "sd", "--source", "ngram,draft", "--depth", "8", "--draft-p-min", "0.7", "--draft-vocab", "32768"],
    "sd fused 3": ["--method", "sd", "--source", "ngram,draft", "--depth", "3"],
}
THEIRS = {
    "plain": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "60"],  # so long a match never comes
    "draft 2": ["--spec-type", "draft-simple", "--spec-draft-n-max", "2"],
    "draft 3": ["--spec-type", "draft-simple", "--spec-draft-n-max", "3"],
    "draft 4 0.7": ["--spec-type", "draft-simple", "--spec-draft-n-max", "4", "--spec-draft-p-min", "0.7"],
    "both 3": ["--spec-type", "ngram-simple,draft-simple", "--spec-draft-n-max", "3"],
    "both 4 0.7": ["--spec-type", "ngram-simple,draft-simple", "--spec-draft-n-max", "4", "--spec-draft-p-min", "0.7"],
    "ngram-simple": ["--spec-type", "ngram-simple"],
    "ngram-mod": ["--spec-type", "ngram-mod"],
    "ngram-map-k": ["--spec-type", "ngram-map-k"],
}


def prompts(args, task):
    with open(os.path.join(args.data, task + ".jsonl"), encoding="utf-8") as lines:
        return [json.loads(line)["turns"][0] for line in lines][: args.limit]


def chat_ml(text):
    return f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def ours(args, options, text):
    command = [args.ours, "run", "-m", args.model, "-n", str(args.n), "--threads", str(args.threads), "--json", text, *options]
    if any("draft" in option for option in options):
        command += ["--draft", args.draft]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["tokens_per_second"]


def from_server(args, options, text):
    port = 18080
    command = [args.llama, "-m", args.model, "-t", str(args.threads), "-tb", str(args.threads), "-c", "4096", "-np", "1",
               "--port", str(port), *options]
    if any("draft-simple" in option for option in options):
        command += ["-md", args.draft, "-td", str(args.threads)]
    address = f"http://127.0.0.1:{port}/"
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(address + "health")
                break
            except OSError:
                if server.poll() is not None:
                    sys.exit("vs_speculation: the server did not start: " + " ".join(command))
                time.sleep(0.1)
        question = {"prompt": chat_ml(text), "n_predict": args.n, "temperature": 0}
        request = urllib.request.Request(address + "completion", json.dumps(question).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))["timings"]["predicted_per_second"]
    finally:
        server.terminate()
        server.wait()


def theirs(args, options, text):
    if os.path.basename(args.llama) == "llama-server":
        return from_server(args, options, text)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(chat_ml(text))
        file.flush()
        command = [args.llama, "-m", args.model, "-f", file.name, "-n", str(args.n), "-t", str(args.threads), "-tb",
                   str(args.threads), "--temp", "0", "-c", "4096", *options]
        if any("draft-simple" in option for option in options):
            command += ["-md", args.draft, "-td", str(args.threads)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    speed = re.search(r"decoded\s+\d+ tokens in\s+[\d.]+ seconds, speed:\s+([\d.]+)", done.stdout + done.stderr)
    if speed is None:
        sys.exit("vs_speculation: no speed in the output of " + " ".join(command))
    return float(speed.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--llama", required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tasks", default="humaneval,gsm8k")
    parser.add_argument("--limit", type=int, default=2)
    parser.add_argument("-n", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ours-modes", default=",".join(OURS))
    parser.add_argument("--llama-modes", default=",".join(THEIRS))
    args = parser.parse_args()
    modes = [("ours", name, ours, OURS[name]) for name in args.ours_modes.split(",") if name]
    modes += [("llama", name, theirs, THEIRS[name]) for name in args.llama_modes.split(",") if name]
    for task in args.tasks.split(","):
        speeds = {}
        for text in prompts(args, task):
            for who, name, run, options in modes:
                speeds.setdefault((who, name), []).append(run(args, options, text))
        means = {key: statistics.harmonic_mean(values) for key, values in speeds.items()}
        print(f"\n| {task}, {args.limit} prompts | mode | tokens/s |\n|---|---|---|")
        for (who, name), mean in sorted(means.items(), key=lambda entry: -entry[1]):
            print(f"| {who} | {name} | {mean:.1f} |")
        best = {who: max(mean for (w, _), mean in means.items() if w == who) for who in ("ours", "llama")
                if any(w == who for w, _ in means)}
        if len(best) == 2:
            print(f"\nour best / their best: {best['ours'] / best['llama']:.2f}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
