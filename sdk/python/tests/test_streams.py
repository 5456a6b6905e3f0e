"""Standard output belongs to the result, standard error to everything else; and the context."""

from __future__ import annotations

import json
import unittest

from child import Ending, run


class Noise(unittest.TestCase):
    def test_nothing_a_handler_prints_gets_into_the_result(self) -> None:
        forged = '{"error": "AbortedStaleTask", "message": "forged"}'
        ending = run(
            f"""
            import ctypes, logging, os, subprocess, sys
            print("banner")
            old = sys.stdout
            logging.basicConfig(stream=sys.stdout)
            from leasehold_handler import run_handler

            def handle(request):
                print("from print \\udc80", end="\\n")
                print({forged!r})
                sys.__stdout__.write("from the original\\n")
                old.write("from a kept reference\\n")
                os.write(1, b"from the descriptor\\n")
                logging.error("from logging")
                subprocess.run(["sh", "-c", "echo from a subprocess; echo 10% >&2"])
                libc = ctypes.CDLL(None)
                libc.puts(b"from C")
                libc.fflush(None)
                return {{"ok": True}}

            run_handler(handle)
            """
        )
        self.assertEqual((ending.code, ending.stdout), (0, b'{"ok":true}'))
        for line in [
            "banner",
            "from print \\udc80",
            forged,
            "from the original",
            "from a kept reference",
            "from the descriptor",
            "ERROR:root:from logging",
            "from a subprocess",
            "from C",
        ]:
            self.assertIn(line + "\n", ending.stderr)

    def test_prints_are_there_when_the_process_is_killed(self) -> None:
        ending = run(
            """
            import os, signal
            from leasehold_handler import run_handler

            def handle(request):
                print("as far as this")
                os.kill(os.getpid(), signal.SIGKILL)

            run_handler(handle)
            """
        )
        self.assertEqual((ending.code, ending.stderr), (-9, "as far as this\n"))

    def test_the_result_is_not_inherited_by_subprocesses(self) -> None:
        ending = run(
            """
            import os, subprocess, sys
            from leasehold_handler import run_handler

            def write_everywhere():
                for fd in range(3, 64):
                    try:
                        os.write(fd, b"x")
                    except OSError:
                        pass

            def handle(request):
                subprocess.run([sys.executable, __file__, "child"], close_fds=False, check=True)
                return {}

            if sys.argv[1:]:
                write_everywhere()
            else:
                run_handler(handle)
            """
        )
        self.assertEqual((ending.code, ending.object), (0, {}))


class Progress(unittest.TestCase):
    PREFIX = "leasehold:progress "

    def lines(self, ending: Ending) -> list[object]:
        return [
            json.loads(line[len(self.PREFIX) :])
            for line in ending.stderr.splitlines()
            if line.startswith(self.PREFIX)
        ]

    def test_lines(self) -> None:
        ending = run(
            """
            from leasehold_handler import progress, run_handler

            def handle(request):
                progress(40, "rows 400 of 1000")
                progress(99.9)
                progress(100.0000001, 'say "ü"\\n\\udc80')
                progress(-1, "x" * 9000)
                progress(float("inf"))
                progress(float("nan"))
                return {}

            run_handler(handle)
            """
        )
        self.assertIn(
            'leasehold:progress {"percent": 40, "note": "rows 400 of 1000"}\n', ending.stderr
        )
        self.assertEqual(
            self.lines(ending),
            [
                {"percent": 40, "note": "rows 400 of 1000"},
                {"percent": 99, "note": ""},
                {"percent": 100, "note": 'say "ü"\n\\udc80'},
                {"percent": 0, "note": "x" * 500},
                {"percent": 100, "note": ""},
                {"percent": 0, "note": ""},
            ],
        )

    def test_it_comes_in_order_and_whatever_stderr_has_become(self) -> None:
        ending = run(
            """
            import io, sys
            from leasehold_handler import progress, run_handler

            def handle(request):
                print("before")
                sys.stderr = io.StringIO()
                progress(1)
                print("after")
                return {}

            run_handler(handle)
            """
        )
        self.assertEqual(
            ending.stderr.splitlines(),
            ["before", 'leasehold:progress {"percent": 1, "note": ""}', "after"],
        )

    def test_no_number(self) -> None:
        for value in ("'40'", "None", "True"):
            ending = run(
                f"""
                from leasehold_handler import progress, run_handler
                run_handler(lambda request: progress({value}))
                """
            )
            self.assertEqual((ending.code, ending.object["error"]), (1, "TypeError"))


class TheContext(unittest.TestCase):
    ECHO = """
        from leasehold_handler import context, run_handler
        run_handler(lambda request: {
            name: getattr(context, name)
            for name in ("item_id", "kind", "attempt", "fence", "org_id", "traceparent")
        })
    """

    def test_what_the_worker_says(self) -> None:
        said = {
            "LEASEHOLD_ITEM_ID": "0198c5a0-0000-7000-8000-000000000001",
            "LEASEHOLD_KIND": "RESIZE_IMAGE",
            "LEASEHOLD_ATTEMPT": "2",
            "LEASEHOLD_FENCE": str(2**62),
            "LEASEHOLD_ORG_ID": "0198c5a0-0000-7000-8000-000000000002",
            "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        }
        self.assertEqual(
            run(self.ECHO, environment=said).object,
            {
                "item_id": said["LEASEHOLD_ITEM_ID"],
                "kind": "RESIZE_IMAGE",
                "attempt": 2,
                "fence": 2**62,
                "org_id": said["LEASEHOLD_ORG_ID"],
                "traceparent": said["TRACEPARENT"],
            },
        )

    def test_what_it_does_not_say(self) -> None:
        self.assertEqual(set(run(self.ECHO).object.values()), {None})

    def test_what_it_cannot_mean(self) -> None:
        ending = run(self.ECHO, environment={"LEASEHOLD_ATTEMPT": "two"})
        self.assertEqual((ending.code, ending.object["error"]), (1, "ValueError"))
        self.assertIn("LEASEHOLD_ATTEMPT", ending.object["message"])


if __name__ == "__main__":
    unittest.main()
