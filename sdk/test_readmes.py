"""Runs the examples of the three READMEs as a reader would.

A block whose first line is a comment with a file's name is that file. In a console block each line
that begins with `$` is a command, and what follows it is what it must print.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"(?:#|//) (\S+\.\w+)\n")


class Readmes(unittest.TestCase):
    def test_python(self) -> None:
        self.run_examples("python", commands=4)

    def test_sh(self) -> None:
        self.run_examples("sh", commands=4)

    @unittest.skipUnless(shutil.which("node"), "there is no node")
    def test_node(self) -> None:
        self.run_examples("node", commands=3)

    def run_examples(self, sdk: str, commands: int) -> None:
        text = (HERE / sdk / "README.md").read_text(encoding="utf-8")
        blocks = BLOCK.findall(text)
        self.assertEqual(len(blocks), text.count("\n```") / 2, "a block was not read")
        ran = 0
        with tempfile.TemporaryDirectory() as folder:
            for file in (HERE / sdk).glob("leasehold-handler.*"):
                shutil.copy(file, folder)
            for language, body in blocks:
                if language == "console":
                    ran += self.run_console(body, folder)
                else:
                    named = NAMED.match(body)
                    self.assertIsNotNone(named, f"a block names no file:\n{body}")
                    (Path(folder) / named[1]).write_text(body, encoding="utf-8")
        self.assertEqual(ran, commands)

    def run_console(self, body: str, folder: str) -> int:
        # The Python that runs this is the one the examples mean.
        bin_folder = str(Path(sys.executable).parent)
        environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
        steps = re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
        for step in steps:
            command, _, expected = step.partition("\n")
            ran = subprocess.run(
                ["sh", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=60,
            )
            with self.subTest(command=command):
                self.assertEqual(
                    ran.stdout.decode().rstrip("\n"), expected.rstrip("\n"), ran.stderr.decode()
                )
        return len(steps)


if __name__ == "__main__":
    unittest.main()
