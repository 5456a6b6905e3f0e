"""The request: where it comes from, and how it becomes what the handler asks for."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import unittest
import warnings
from typing import Dict, List, Literal, Optional, Union

from child import HAS_PYDANTIC, HANDLERS, Ending, run, run_file
from leasehold_handler import MalformedResult, NonEmptyStr, ValidationError
from leasehold_handler._request import parse
from leasehold_handler._result import encode

ECHO = """
    from leasehold_handler import run_handler
    run_handler(lambda request: {"got": request})
"""

UPLOAD = """
    from leasehold_handler import NonEmptyStr, WorkerRequest, run_handler

    class Upload(WorkerRequest):
        asset_upload_type: NonEmptyStr
        tries: int = 3
        tags: list = []

    def handle(request: Upload) -> dict:
        return {"type": request.asset_upload_type, "tries": request.tries, "tags": request.tags}

    run_handler(Upload, handle)
"""


@dataclasses.dataclass(frozen=True)
class Line:
    sku: NonEmptyStr
    price: float


@dataclasses.dataclass
class Order:
    id: int
    lines: List[Line]
    rush: bool = False
    note: Optional[str] = None
    way: Literal["air", "sea"] = "sea"
    ref: Union[int, str] = 0
    labels: Dict[str, str] = dataclasses.field(default_factory=dict)


class WhereItComesFrom(unittest.TestCase):
    def test_the_variable_comes_first(self) -> None:
        ending = run(ECHO, {"n": 1}, stdin=b'{"n": 2}')
        self.assertEqual((ending.code, ending.object), (0, {"got": {"n": 1}}))

    def test_standard_input_without_the_variable(self) -> None:
        text = "ü" * 300_000
        ending = run(ECHO, stdin=f'{{"text": "{text}"}}'.encode())
        self.assertEqual((ending.code, ending.object), (0, {"got": {"text": text}}))

    def test_text_is_utf_8_whatever_the_locale(self) -> None:
        ending = run(
            ECHO,
            '{"city": "Zürich 東京"}'.encode(),
            environment={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        )
        self.assertEqual(ending.object, {"got": {"city": "Zürich 東京"}})

    def test_no_request_at_all(self) -> None:
        self.refused(run(ECHO, stdin=b""), "there is no request")

    def test_what_is_not_one_json_object(self) -> None:
        self.refused(run(ECHO, b""), "not JSON")
        for raw, words in [
            (b"{", "not JSON"),
            (b'{"a": 1} {}', "not JSON"),
            (b'{"a": NaN}', "NaN is no JSON number"),
            (b'{"a": "\xff"}', "not JSON"),
            (b"[" * 200_000, "not JSON"),
            (b"[1]", "not an object"),
            (b"null", "not an object"),
        ]:
            with self.subTest(raw=raw[:20]):
                with self.assertRaisesRegex(ValidationError, words):
                    parse(dict, raw)

    def refused(self, ending: Ending, words: str) -> None:
        self.assertEqual((ending.code, ending.object["error"]), (1, "ValidationError"), ending)
        self.assertIn(words, ending.object["message"])
        self.assertIn("Traceback", ending.stderr)


class PlainTypes(unittest.TestCase):
    """Without pydantic; the runs with it are in `ModelTypes`."""

    def test_a_worker_request(self) -> None:
        ending = run(UPLOAD, {"asset_upload_type": " atmos ", "other": 1}, hide_pydantic=True)
        self.assertEqual(
            (ending.code, ending.object), (0, {"type": "atmos", "tries": 3, "tags": []})
        )

    def test_a_worker_request_names_every_misfit_and_no_value(self) -> None:
        ending = run(
            UPLOAD,
            {"asset_upload_type": "  ", "tries": "hunter2", "tags": {}},
            hide_pydantic=True,
        )
        self.assertEqual((ending.code, ending.object["error"]), (1, "ValidationError"))
        self.assertEqual(
            ending.object["message"],
            "Upload: asset_upload_type is empty; tries is text, not a whole number; "
            "tags is an object, not a list",
        )

    def test_a_worker_request_can_be_made_in_a_test_and_not_changed(self) -> None:
        ending = run(
            """
            from leasehold_handler import NonEmptyStr, WorkerRequest, run_handler

            class Upload(WorkerRequest):
                name: NonEmptyStr

            def handle(request):
                made = Upload(name="a", extra=1)
                try:
                    made.name = "b"
                except AttributeError as error:
                    frozen = str(error)
                return {"same": made == request, "text": repr(made), "frozen": frozen,
                        "hash": hash(made) == hash(request)}

            run_handler(Upload, handle)
            """,
            {"name": "a"},
            hide_pydantic=True,
        )
        self.assertEqual(
            ending.object,
            {
                "same": True,
                "text": "Upload(name='a')",
                "frozen": "Upload is frozen",
                "hash": True,
            },
        )

    def test_a_dataclass(self) -> None:
        ending = run(
            """
            import dataclasses
            from leasehold_handler import run_handler

            @dataclasses.dataclass
            class Order:
                id: int
                rush: bool = False

            run_handler(Order, lambda order: order)
            """,
            {"id": 7, "unknown": 1},
        )
        self.assertEqual((ending.code, ending.object), (0, {"id": 7, "rush": False}))

    def test_a_dataclass_with_others_inside(self) -> None:
        order = parse(
            Order, b'{"id": 7, "lines": [{"sku": " x ", "price": 2}], "ref": "a", "u": 1}'
        )
        self.assertEqual(order, Order(7, [Line("x", 2.0)], ref="a"))
        self.assertIs(type(order.lines[0].price), float)

    def test_a_dataclass_refuses_what_does_not_fit(self) -> None:
        for change, words in [
            ({"id": None}, "id is null, not a whole number"),
            ({"id": True}, "id is true or false, not a whole number"),
            ({"id": 1.0}, "id is a number, not a whole number"),
            ({"lines": {}}, "lines is an object, not a list"),
            ({"lines": [1]}, "lines[0] is a whole number, not an object"),
            ({"lines": [{"sku": ""}]}, "lines[0].sku is empty; lines[0].price is missing"),
            ({"note": 1}, "note is a whole number, not text"),
            ({"way": "road"}, "way is none of 'air', 'sea'"),
            ({"ref": []}, "ref is a list, not a whole number and ref is a list, not text"),
            ({"labels": {"a": 1}}, "labels.a is a whole number, not text"),
            ({"lines": [{"sku": "x", "price": 10**400}]}, "lines[0].price is too large a number"),
        ]:
            with self.subTest(change=change):
                raw = json.dumps({"id": 7, "lines": [], **change}).encode()
                with self.assertRaisesRegex(ValidationError, f"^Order: {re.escape(words)}$"):
                    parse(Order, raw)

    def test_a_type_that_is_none(self) -> None:
        with self.assertRaisesRegex(TypeError, "<class 'int'> is not a pydantic model"):
            parse(int, b"{}")

    def test_dict_by_name(self) -> None:
        self.assertEqual(parse(dict, b'{"a": 1}'), {"a": 1})
        self.assertEqual(parse(Dict[str, object], b'{"a": 1}'), {"a": 1})

    def test_pydantic_is_not_imported_unasked(self) -> None:
        ending = run(
            """
            import sys
            from leasehold_handler import run_handler
            run_handler(lambda request: {"loaded": [m for m in sys.modules if "pydantic" in m]})
            """
        )
        self.assertEqual(ending.object, {"loaded": []})

    def test_a_broken_pydantic_is_not_taken_for_none(self) -> None:
        ending = run(
            """
            import sys
            sys.modules["pydantic"] = None
            import types, importlib.abc, importlib.machinery
            del sys.modules["pydantic"]
            class Broken(importlib.abc.MetaPathFinder):
                def find_spec(self, name, path=None, target=None):
                    if name == "pydantic":
                        raise ModuleNotFoundError("no pydantic_core", name="pydantic_core")
            sys.meta_path.insert(0, Broken())
            from leasehold_handler import WorkerRequest
            """
        )
        self.assertNotEqual(ending.code, 0)
        self.assertIn("no pydantic_core", ending.stderr)


@unittest.skipUnless(HAS_PYDANTIC, "this Python has no pydantic")
class ModelTypes(unittest.TestCase):
    REQUEST = {"asset_upload_type": "atmos", "bucket": "b", "key": "k.wav"}

    def test_a_handler_from_before_runs_with_its_import_line_changed(self) -> None:
        ending = run_file(HANDLERS / "placement.py", {**self.REQUEST, "task_token": "opaque"})
        self.assertEqual((ending.code, ending.stdout), (0, b'{"is_valid":true}'))
        self.assertEqual(ending.stderr, "")

    def test_and_refuses_a_request_by_the_name_it_always_had(self) -> None:
        ending = run_file(HANDLERS / "placement.py", {**self.REQUEST, "bucket": " "})
        self.assertEqual((ending.code, ending.object["error"]), (1, "ValidationError"))
        self.assertIn("bucket", ending.object["message"])

    def test_a_worker_request_is_a_model(self) -> None:
        ending = run(UPLOAD, {"asset_upload_type": " atmos ", "other": 1, "tries": "5"})
        self.assertEqual(ending.object, {"type": "atmos", "tries": 5, "tags": []})

    def test_its_config_can_be_said_again(self) -> None:
        ending = run(
            """
            from pydantic import ConfigDict
            from leasehold_handler import NonEmptyStr, WorkerRequest, run_handler

            class MyRequest(WorkerRequest):
                model_config = ConfigDict(frozen=True, extra="ignore")
                asset_upload_type: NonEmptyStr

            def handle(request):
                try:
                    request.asset_upload_type = "other"
                except Exception as error:
                    return {"refused": type(error).__name__, "extra": hasattr(request, "extra")}

            run_handler(MyRequest, handle)
            """,
            {"asset_upload_type": "atmos", "extra": 1},
        )
        self.assertEqual(ending.object, {"refused": "ValidationError", "extra": False})

    def test_no_value_of_the_request_is_in_the_error(self) -> None:
        ending = run(UPLOAD, {"asset_upload_type": "", "tries": "hunter2"})
        self.assertEqual(ending.object["error"], "ValidationError")
        self.assertIn("tries", ending.object["message"])
        self.assertNotIn("hunter2", ending.stdout.decode() + ending.stderr)

    def test_other_models_and_what_is_not_json(self) -> None:
        import pydantic

        class Due(pydantic.BaseModel):
            when: datetime.datetime

        self.assertEqual(parse(Due, b'{"when": "2031-02-03T04:05:06Z"}').when.year, 2031)
        for raw in (b"{", b"[]", b'{"when": "\xff"}', b"{}"):
            with self.assertRaises(pydantic.ValidationError):
                parse(Due, raw)

    def test_models_of_pydantic_1(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pydantic import v1

        class Old(v1.BaseModel):
            n: float
            text: str = "ü"

        self.assertEqual(encode(parse(Old, b'{"n": "2"}')).decode(), '{"n": 2.0, "text": "ü"}')
        for raw in (b'{"n": "x"}', b"[]", b"{", b'{"n": "\xff"}'):
            with self.assertRaises(v1.ValidationError):
                parse(Old, raw)
        for odd in (Old(n=float("inf")), Old(n=1, text="\udc80")):
            with self.assertRaises(MalformedResult):
                encode(odd)

    def test_a_dataclass_of_pydantic_is_checked_by_pydantic(self) -> None:
        import pydantic
        from pydantic.dataclasses import dataclass

        @dataclass
        class Order:
            id: int

        self.assertEqual(parse(Order, b'{"id": "7"}'), Order(id=7))
        with self.assertRaises(pydantic.ValidationError):
            parse(Order, b'{"id": "x"}')

    def test_text_that_may_not_be_empty_is_so_in_any_model(self) -> None:
        import pydantic

        class Named(pydantic.BaseModel):
            name: NonEmptyStr

        self.assertEqual(parse(Named, b'{"name": " a "}').name, "a")
        for raw in (b'{"name": " "}', b'{"name": 1}'):
            with self.assertRaises(pydantic.ValidationError):
                parse(Named, raw)


if __name__ == "__main__":
    unittest.main()
