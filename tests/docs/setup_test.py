#!/usr/bin/env python3
"""tools/setup with programs that only say when they begin and end: two at once take turns."""

import os
import re
import shutil
import stat
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SETUP = os.path.join(ROOT, "tools", "setup")

NINJA = """#!/bin/sh
case "$*" in *-n*) exit 0 ;; esac
echo begin >>"$SETUP_TEST_LOG"
sleep 1
echo end >>"$SETUP_TEST_LOG"
"""


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.log = self.write("log", "")
        self.write("bin/cmake", "#!/bin/sh\nmkdir -p build\n", executable=True)
        self.write("bin/ninja", NINJA, executable=True)
        self.write("llama/lib/cmake/llama/llama-config.cmake", "")
        os.mkdir(os.path.join(self.root, "tools"))
        shutil.copy(SETUP, os.path.join(self.root, "tools", "setup"))
        with open(SETUP, encoding="utf-8") as file:
            text = file.read()
        wanted = {name: re.search(rf"^{name}='?([^'\n#]*[^'\n# ])", text, re.M).group(1)
                  for name in ("MODEL", "JINJA", "XGRAMMAR")}
        self.write(".venv/packages", f"{wanted['MODEL']} {wanted['JINJA']}\n")  # the model is there
        self.write(".venv/xgrammar/built", wanted["XGRAMMAR"] + "\n")

    def write(self, name, text, executable=False):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if executable:
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def start(self, *arguments, **others):
        environment = {**os.environ, "PATH": os.path.join(self.root, "bin") + ":" + os.environ["PATH"],
                       "CMAKE_PREFIX_PATH": os.path.join(self.root, "llama"), "SETUP_TEST_LOG": self.log, **others}
        environment.pop("CMAKE_ARGS", None)
        return subprocess.Popen([os.path.join(self.root, "tools", "setup"), *arguments], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def test_two_at_once_take_turns(self):
        running = [self.start(), self.start()]
        said = [process.communicate()[0] for process in running]
        self.assertEqual([process.returncode for process in running], [0, 0], said)
        with open(self.log, encoding="utf-8") as file:
            self.assertEqual(file.read().split(), ["begin", "end"] * 2, said)

    def test_no_colours_where_no_terminal_is(self):
        process = self.start()
        said = process.communicate()[0]
        self.assertEqual(process.returncode, 0, said)
        self.assertIn("setup: configuring", said)
        self.assertNotIn("\033", said)

    def test_what_it_cannot_do_is_said_in_a_line(self):
        for arguments, words in [
                (["--gpu", "metal"], ["cuda, hip, vulkan or none", "'metal'"]),
                (["--gpu"], ["cuda, hip, vulkan or none"]),
                (["--gpu", "hip"], ["hipconfig", "ROCm"]),
                (["--gpu=cuda"], ["nvcc", "CUDA toolkit", "PATH"]),
                (["--gpu", "none"], ["CMAKE_PREFIX_PATH"]),
                (["--tset"], ["'--tset'", "--tests"])]:
            if any(shutil.which(program) for program in words):
                continue
            process = self.start(*arguments)
            said = process.communicate()[0]
            self.assertEqual(process.returncode, 1, said)
            self.assertEqual(said.count("\n"), 1, said)
            for word in words:
                self.assertIn(word, said)

    def test_kernels_for_gpus_are_options_of_ggml_and_stay(self):
        self.write("bin/nvcc", "#!/bin/sh\n", executable=True)
        self.write(".venv/bin/python", "#!/bin/sh\nexit 1\n", executable=True)  # fetches nothing
        for arguments, had, wanted in [
                (["--gpu", "cuda"], "", "-DGGML_CUDA=ON"), ([], "-DGGML_CUDA=ON", "-DGGML_CUDA=ON"),
                (["--gpu", "none"], "-DGGML_CUDA=ON", ""),
                (["--gpu", "cuda"], "-DA=B -DGGML_HIP=ON", "-DA=B -DGGML_CUDA=ON")]:
            self.write(".venv/llama/built", f"another CMAKE_ARGS: {had}\n")
            said = self.start(*arguments, CMAKE_PREFIX_PATH="").communicate()[0]
            self.assertIn(f"77 MB{', for ' + wanted if wanted else ''})", said)


if __name__ == "__main__":
    unittest.main()
