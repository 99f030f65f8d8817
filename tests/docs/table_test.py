"""bench/table as a program: what it prints, what it notices, what it takes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RESULT = """{
 "question": "How fast?",
 "columns": ["method", "tok/s", "ratio"],
 "rows": [
  ["`ar`", 1200.50, 0.90],
  ["`surge`", 12345, [1.10, 1.00, 1.20]],
  ["`sd`", null, "–"]
 ],
 "bold": ["ratio"],
 "conclusion": "Fast.",
 "command": ["bench/fast"],
 "provenance": {
  "clock": "real"
 }
}
"""
TABLE = """| method | tok/s | ratio |
|---|---|---|
| `ar` | 1200.50 | **0.90** |
| `surge` | 12,345 | **1.10 [1.00, 1.20]** |
| `sd` | – | **–** |
"""


class Table(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        for folder in ("bench/results", "docs"):
            os.makedirs(os.path.join(self.root, folder))
        shutil.copy(os.path.join(ROOT, "bench", "table"), os.path.join(self.root, "bench", "table"))
        self.write("bench/results/fast.json", RESULT)
        self.write("README.md", "# Readme\n")

    def write(self, path, text):
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def run_table(self, *words, given="", status=0):
        done = subprocess.run([sys.executable, os.path.join(self.root, "bench", "table"), *words], input=given, text=True,
                              encoding="utf-8", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    def test_prints_figures_with_the_digits_that_were_written(self):
        self.assertEqual(self.run_table("fast"), TABLE)

    def test_fills_a_page_and_finds_it_equal_then(self):
        self.write("docs/page.md", "# Page\n\n## Old? <!-- result: fast -->\n\nold\n\n## Other\n\n"
                                   "<!-- table: fast -->\n| old |\n\nText.\n")
        self.assertIn("docs/page.md:3: differs", self.run_table("--check", status=1))
        self.run_table("--write")
        block = "## How fast? <!-- result: fast -->\n\n" + TABLE + "\nFast. `bench/fast`\n"
        self.assertEqual(self.read("docs/page.md"),
                         "# Page\n\n" + block + "\n## Other\n\n<!-- table: fast -->\n" + TABLE + "\nText.\n")
        self.assertEqual(self.run_table("--check"), "")
        self.assertEqual(self.run_table("--page", os.path.join(self.root, "docs/page.md")), self.read("docs/page.md"))

    def test_notices_a_figure_that_was_changed_on_the_page_or_in_the_file(self):
        self.write("docs/page.md", "<!-- table: fast -->\n" + TABLE.replace("0.90", "0.91"))
        self.assertIn("has:  | `ar` | 1200.50 | **0.91** |", self.run_table("--check", status=1))
        self.write("docs/page.md", "<!-- table: fast -->\n" + TABLE)
        self.write("bench/results/fast.json", RESULT.replace("0.90", "0.9"))
        self.assertIn("want: | `ar` | 1200.50 | **0.9** |", self.run_table("--check", status=1))

    def test_takes_what_a_script_prints_and_keeps_what_was_there(self):
        self.run_table("--put", "fast", given="noise\n| method | tok/s |\n|---|---|\n| `ar` | **1,300** |\n\nmore\n")
        self.assertEqual(self.run_table("fast"), "| method | tok/s |\n|---|---|\n| `ar` | 1300 |\n")
        result = json.loads(self.read("bench/results/fast.json"))
        self.assertEqual(result["question"], "How fast?")
        self.assertEqual(result["earlier"][0]["rows"][1], ["`surge`", 12345, [1.1, 1.0, 1.2]])
        self.assertIn("[1.10, 1.00, 1.20]", self.read("bench/results/fast.json"))

    def test_a_figure_in_two_tables_has_one_owner(self):
        self.write("bench/results/both.json", '{"question": "?", "columns": ["", "ours"], "rows": [["`surge`", "@fast/1/2"]]}')
        self.assertEqual(self.run_table("both"), "|  | ours |\n|---|---|\n| `surge` | 1.10 |\n")
        self.write("bench/results/both.json", '{"question": "?", "columns": ["", "ours"], "rows": [["`surge`", "@fast/9/2"]]}')
        self.assertEqual(self.run_table("both", status=1), "table: there is no cell @fast/9/2\n")

    def test_says_in_a_line_what_is_wrong(self):
        self.assertEqual(self.run_table("slow", status=1),
                         "table: there is no bench/results/slow.json; see bench/table --list\n")
        self.write("bench/results/fast.json", RESULT.replace("1200.50, 0.90", "1200.50"))
        self.assertIn("2 cells under 3 columns", self.run_table("fast", status=1))
        self.write("bench/results/fast.json", RESULT.replace("null", "nil"))
        self.assertIn("bench/results/fast.json: ", self.run_table("--list", status=1))


if __name__ == "__main__":
    unittest.main()
