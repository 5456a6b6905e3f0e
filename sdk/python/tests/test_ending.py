"""How a run ends: results, errors, parking, and the code the process leaves with."""

from __future__ import annotations

import dataclasses
import datetime
import re
import signal
import time
import unittest
from typing import Any

from child import HAS_PYDANTIC, Ending, run
from leasehold_handler import MalformedResult, park
from leasehold_handler._result import encode


@dataclasses.dataclass
class Point:
    x: float


def handler(body: str, before: str = "") -> str:
    """A handler whose function has this body."""
    lines = [before, "from leasehold_handler import park, run_handler", "def handle(request):"]
    lines += [f"    {line}" for line in body.splitlines()]
    return "\n".join([*lines, "run_handler(handle)"])


class Results(unittest.TestCase):
    def test_what_may_be_returned(self) -> None:
        for body, expected in [
            ("return {}", {}),
            ("import types\nreturn types.MappingProxyType({'a': 1})", {"a": 1}),
            (
                "import dataclasses\n"
                "@dataclasses.dataclass\nclass D:\n    text: str\n    pair: tuple\n"
                "return D('é東\\u2028\\x00', (1, 2.5))",
                {"text": "é東\u2028\x00", "pair": [1, 2.5]},
            ),
            ("return {'n': 2**80, 'one': True, 1: None}", {"n": 2**80, "one": True, "1": None}),
        ]:
            with self.subTest(body=body):
                ending = run(handler(body))
                self.assertEqual((ending.code, ending.object, ending.stderr), (0, expected, ""))

    def test_what_may_not_be_returned_is_a_failure(self) -> None:
        ending = run(handler("return {'a': [1, float('nan')]}"))
        self.assertEqual((ending.code, ending.object["error"]), (1, "MalformedResult"))
        self.assertIn("result['a'][1] is nan", ending.object["message"])

    def test_what_may_not(self) -> None:
        circle: dict[str, object] = {}
        circle["a"] = circle
        for result, words in [
            (None, "the handler returned None; return a dict"),
            ([1], "the handler returned a value of type list"),
            ("text", "the handler returned a value of type str"),
            (Point, "the handler returned the class Point itself"),
            ({"a": float("-inf")}, "result['a'] is -inf"),
            (Point(float("inf")), "result['x'] is inf"),
            ({"a": {1, 2}}, "result['a'] is a value of type set"),
            ({"at": {"b": datetime.date.today()}}, "result['at']['b'] is a value of type date"),
            ({"a": b"x"}, "result['a'] is a value of type bytes"),
            ({(1, 2): 3}, "result has a key of type tuple"),
            ({"a": ["\udc80"]}, "result['a'][0] is text that is not Unicode"),
            ({"\ud800": 1}, "result holds a key that is not Unicode"),
            (circle, "nested too deeply or holds itself"),
        ]:
            with self.subTest(result=result):
                with self.assertRaisesRegex(MalformedResult, re.escape(words)):
                    encode(result)

    def test_the_largest_result_and_one_byte_more(self) -> None:
        frame = len('{"a":""}')
        largest = run(handler(f"return {{'a': 'x' * {(1 << 20) - frame}}}"))
        self.assertEqual((largest.code, len(largest.stdout)), (0, 1 << 20))
        larger = run(handler(f"return {{'a': 'é' + 'x' * {(1 << 20) - frame - 1}}}"))
        self.assertEqual((larger.code, larger.object["error"]), (1, "ResultTooLarge"))
        self.assertIn("1,048,577", larger.object["message"])
        self.assertIn("1,048,576 are the most", larger.object["message"])

    def test_an_async_handler(self) -> None:
        source = """
            import asyncio
            from leasehold_handler import park, run_handler

            async def handle(request):
                await asyncio.sleep(0)
                if request:
                    park("later", 1)
                return {"done": True}

            run_handler(handle)
        """
        self.assertEqual(run(source).object, {"done": True})
        self.assertEqual(run(source, {"a": 1}).code, 75)

    @unittest.skipUnless(HAS_PYDANTIC, "this Python has no pydantic")
    def test_models(self) -> None:
        import pydantic

        class Model(pydantic.BaseModel):
            model_config = pydantic.ConfigDict(ser_json_inf_nan="constants")
            a: Any

        class Numbers(pydantic.RootModel):
            root: list

        self.assertEqual(encode(Model(a=datetime.date(2031, 2, 3))), b'{"a":"2031-02-03"}')
        for result, words in [
            (Model(a=float("inf")), "the result holds Infinity"),
            (Model(a="\udc80"), "Model as JSON"),
            (Model(a=object()), "Model as JSON"),
            (Numbers(root=[]), "Numbers is not an object"),
        ]:
            with self.subTest(result=result):
                with self.assertRaisesRegex(MalformedResult, words):
                    encode(result)


class Errors(unittest.TestCase):
    def test_class_name_message_and_traceback(self) -> None:
        ending = run(
            handler(
                "raise UnsupportedAsset('no \"such\" type:\\n\\tü')",
                "class UnsupportedAsset(Exception): pass",
            )
        )
        self.assertEqual(
            (ending.code, ending.object),
            (1, {"error": "UnsupportedAsset", "message": 'no "such" type:\n\tü'}),
        )
        self.assertIn("Traceback (most recent call last):", ending.stderr)
        self.assertIn("UnsupportedAsset: no", ending.stderr)

    def test_errors_that_are_hard_to_report(self) -> None:
        for body, error, words in [
            ("raise ValueError('\\udc80 \\ud83d')", "ValueError", "\\udc80 \\ud83d"),
            ("raise ValueError('x' * 10_000_000)", "ValueError", "xxx [cut]"),
            ("raise Unsayable", "Unsayable", "its __str__ raised KeyError"),
            ("handle(request)", "RecursionError", "maximum recursion depth"),
            ("raise GeneratorExit('left')", "GeneratorExit", "left"),
            ("import sys\nsys.stderr.close()\nraise OSError('late')", "OSError", "late"),
            ("import os\nos.close(2)\nraise OSError('late')", "OSError", "late"),
            (
                "import sys\nsys.stdout = sys.stderr = None\nraise OSError('late')",
                "OSError",
                "late",
            ),
        ]:
            with self.subTest(body=body):
                unsayable = (
                    "class Unsayable(Exception):\n"
                    "    def __str__(self): raise KeyError\n"
                    "    __repr__ = __str__\n"
                )
                ending = run(handler(body, unsayable))
                self.assertEqual((ending.code, ending.object["error"]), (1, error), ending.stderr)
                self.assertIn(words, ending.object["message"])
                self.assertLess(len(ending.stdout), 32_768)

    def test_exits_and_interrupts_pass_through(self) -> None:
        left = run(handler("import sys\nsys.exit(3)"))
        self.assertEqual((left.code, left.stdout), (3, b""))
        stopped = run(handler("raise KeyboardInterrupt"))
        self.assertEqual((stopped.code, stopped.stdout), (-signal.SIGINT, b""))

    def test_sigterm_ends_the_process_unless_the_handler_says_otherwise(self) -> None:
        term = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
        self.assertEqual(run(handler(term + "return {}")).code, -signal.SIGTERM)
        tidied = run(
            handler(
                "import signal\n"
                "signal.signal(signal.SIGTERM, lambda *_: park('stopped half way', 0))\n"
                + term
                + "return {}"
            )
        )
        self.assertEqual((tidied.code, tidied.object["reason"]), (75, "stopped half way"))


class Parking(unittest.TestCase):
    def test_a_broad_except_does_not_swallow_it(self) -> None:
        ending = run(
            handler(
                "try:\n    park('quota used up: \"ü\" \\udc80', 90.5)\n"
                "except Exception:\n    return {'swallowed': True}\n"
                "finally:\n    print('tidied')"
            )
        )
        self.assertEqual(
            (ending.code, ending.object, ending.stderr),
            (75, {"reason": 'quota used up: "ü" \\udc80', "retry_after": 90.5}, "tidied\n"),
        )

    def test_a_reason_and_a_time_are_needed(self) -> None:
        for reason, retry_after, error in [
            ("", 1, ValueError),
            (None, 1, ValueError),
            ("a", -1, ValueError),
            ("a", float("nan"), ValueError),
            ("a", "1", TypeError),
            ("a", True, TypeError),
        ]:
            with self.subTest(reason=reason, retry_after=retry_after):
                with self.assertRaisesRegex(error, "^park: "):
                    park(reason, retry_after)


class TheWayOut(unittest.TestCase):
    def leaves_well(self, body: str, words: str = "", before: str = "") -> Ending:
        started = time.monotonic()
        ending = run(handler(body + "\nreturn {'ok': True}", before))
        self.assertEqual((ending.code, ending.object), (0, {"ok": True}), ending.stderr)
        self.assertIn(words, ending.stderr)
        self.assertLess(time.monotonic() - started, 15)
        return ending

    def test_threads_that_go_on_are_not_waited_for(self) -> None:
        self.leaves_well(
            "import threading\nthreading.Thread(target=threading.Event().wait).start()"
        )

    def test_exit_hooks_run(self) -> None:
        self.leaves_well("import atexit\natexit.register(print, 'shipped')", "shipped\n")

    def test_exit_hooks_cannot_change_the_ending(self) -> None:
        self.leaves_well(
            "import atexit, sys\natexit.register(lambda: 1 / 0)\natexit.register(sys.exit, 9)",
            "ZeroDivisionError",
        )

    def test_exit_hooks_have_a_limit(self) -> None:
        self.leaves_well(
            "import atexit, threading\natexit.register(threading.Event().wait)",
            "exit hooks took over 0.2 s",
            "from leasehold_handler import _channel\n_channel.EXIT_HOOKS_SECONDS = 0.2",
        )

    def test_a_forked_copy_reports_nothing(self) -> None:
        for end, code in [
            ("raise OSError('in the copy')", 1),
            ("return {'copy': True}", 0),
            ("park('copy', 1)", 1),
        ]:
            with self.subTest(end=end):
                self.leaves_well(
                    f"import os\npid = os.fork()\nif not pid:\n    {end}\n"
                    "print('copy ended', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
                    f"copy ended {code}\n",
                )

    def test_a_worker_that_no_longer_reads(self) -> None:
        ending = run(
            """
            import os
            read, write = os.pipe()
            os.dup2(write, 1)
            os.close(read)
            os.close(write)
            from leasehold_handler import run_handler
            run_handler(lambda request: {})
            """
        )
        self.assertEqual((ending.code, ending.stdout), (1, b""))
        self.assertIn("cannot write the result", ending.stderr)


if __name__ == "__main__":
    unittest.main()
