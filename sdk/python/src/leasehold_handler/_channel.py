"""The streams of the process: the result's own, and standard error for everything else."""

from __future__ import annotations

import math
import os
import sys

from ._result import encode_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# With every character escaped this keeps a progress line below the 4096 bytes that a pipe takes in
# one piece, so that what other threads and processes write cannot get into the middle of it.
NOTE_CHARS_MAX = 500

# Exit hooks (log shippers, trace exporters, temporary folders) get this long. The result is on its
# way by then, and the worker waits for nothing but our exit.
EXIT_HOOKS_SECONDS = 5.0


def progress(percent: float, note: str = "") -> None:
    """Says how far the run has come: a line on standard error that the worker reads.

    `percent` is rounded down and kept within 0 to 100, because a rounding error should not fail
    work that is nearly done; what is no number is refused with `TypeError`. A note is cut after 500
    characters. Raises nothing else: a worker that no longer reads does not end the run.
    """
    if isinstance(percent, bool) or not isinstance(percent, (int, float)):
        raise TypeError(f"progress: percent is a number from 0 to 100, not {percent!r}")
    whole = 0 if math.isnan(percent) else math.floor(min(max(percent, 0), 100))
    line = encode_words({"percent": whole, "note": str(note)[:NOTE_CHARS_MAX]})
    say(f"leasehold:progress {line.decode()}\n")


def say(text: str) -> None:
    """Writes to standard error itself, whatever `sys.stderr` has become."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
        write_all(2, text.encode("utf-8", "backslashreplace"))
    except (OSError, ValueError):
        # Standard error is closed; there is nowhere left to say so.
        pass


def write_all(fd: int, data: bytes) -> None:
    """Writes all of it, in as many pieces as the pipe takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


class Channel:
    """The standard output this process was started with, kept for the result alone.

    Descriptor 1 and `sys.stdout` lead to standard error from here on, also for C libraries and for
    the subprocesses of the handler, which do not inherit the kept descriptor.
    """

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.set_blocking(self._fd, True)
        # In this order: what was printed before, and is still in the buffer, goes to standard
        # error as well.
        os.dup2(2, 1)
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")

    def finish(self, data: bytes, code: int) -> NoReturn:
        """Writes what the run came to, and ends the process with this code.

        The interpreter's own way out is not taken, because it waits without limit: threads that are
        still running are not waited for, and exit hooks have a limited time. Neither can change the
        code.
        """
        try:
            write_all(self._fd, data)
            os.close(self._fd)
        except OSError as error:
            say(f"leasehold_handler: cannot write the result: {error}\n")
            code = 1
        _leave(code)


def _leave(code: int) -> NoReturn:
    import atexit
    import threading
    import time

    def leave_late() -> None:
        time.sleep(EXIT_HOOKS_SECONDS)
        limit = f"{EXIT_HOOKS_SECONDS:g} s"
        say(f"leasehold_handler: exit hooks took over {limit} and were left behind\n")
        os._exit(code)

    try:
        threading.Thread(target=leave_late, daemon=True).start()
        atexit._run_exitfuncs()
    except BaseException as error:
        say(f"leasehold_handler: an exit hook failed: {error!r}\n")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            # Replaced or closed, and nobody's loss.
            pass
    os._exit(code)
