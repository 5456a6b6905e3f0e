"""Runs handlers as the worker does: a process, its environment, its output and its exit code."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

HANDLERS = Path(__file__).parent / "handlers"
HAS_PYDANTIC = importlib.util.find_spec("pydantic") is not None

# Found before the real one, it makes a Python that has pydantic look like one that has not.
WITHOUT_PYDANTIC = Path(__file__).parent / "without_pydantic"

# What the worker gives every child of its own environment, and where this suite finds the package.
GIVEN = {
    b"PATH",
    b"HOME",
    b"LANG",
    b"TZ",
    b"TMPDIR",
    b"PYTHONPATH",
    b"PYTHONDONTWRITEBYTECODE",
}

# Far above what any of these runs takes: a child that hangs is to fail its test, not the suite.
SECONDS_MAX = 30


@dataclass
class Ending:
    code: int
    stdout: bytes
    stderr: str

    @property
    def object(self) -> dict[str, object]:
        """Standard output as a whole, as the worker reads it: one JSON object, no odd constants."""

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} on standard output")

        value = json.loads(self.stdout.decode("utf-8"), parse_constant=refuse)
        assert isinstance(value, dict), value
        # A worker's parser takes no lone surrogates, which Python's lets through.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value


def run(
    source: str,
    request: object = None,
    *,
    stdin: bytes | None = None,
    environment: dict[str, str] | None = None,
    hide_pydantic: bool = False,
) -> Ending:
    """Runs a handler given as source text.

    `request` goes into the variable, as JSON unless it is bytes; `stdin` onto standard input.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "handler.py"
        script.write_text(textwrap.dedent(source), encoding="utf-8")
        return run_file(
            script,
            request,
            stdin=stdin,
            environment=environment,
            hide_pydantic=hide_pydantic,
        )


def run_file(
    script: Path,
    request: object = None,
    *,
    stdin: bytes | None = None,
    environment: dict[str, str] | None = None,
    hide_pydantic: bool = False,
) -> Ending:
    if request is None and stdin is None:
        request = {}
    child = subprocess.run(
        [sys.executable, str(script)],
        input=stdin or b"",
        env=_environment(request, environment or {}, hide_pydantic),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=SECONDS_MAX,
        preexec_fn=_default_signals,
    )
    return Ending(child.returncode, child.stdout, child.stderr.decode("utf-8"))


def _environment(request: object, more: dict[str, str], hide_pydantic: bool) -> dict[bytes, bytes]:
    environment = {
        name: value
        for name, value in os.environb.items()
        if name in GIVEN or name.startswith(b"LC_")
    }
    if request is not None:
        environment[b"WORKER_REQUEST"] = (
            request if isinstance(request, bytes) else json.dumps(request).encode()
        )
    if hide_pydantic:
        paths = [os.fsencode(WITHOUT_PYDANTIC), environment.get(b"PYTHONPATH", b"")]
        environment[b"PYTHONPATH"] = os.pathsep.encode().join(filter(None, paths))
    environment.update({os.fsencode(k): os.fsencode(v) for k, v in more.items()})
    return environment


def _default_signals() -> None:
    # A suite started in the background ignores interrupts, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
