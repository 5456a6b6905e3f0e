"""The request: where it comes from, and how it becomes what the handler asks for."""

from __future__ import annotations

import unittest

from child import HAS_PYDANTIC, HANDLERS, Ending, run, run_file

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

ORDER = """
    from __future__ import annotations
    import dataclasses
    from typing import Dict, List, Literal, Optional, Union
    from leasehold_handler import NonEmptyStr, run_handler

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

    run_handler(Order, lambda order: order)
"""


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
        for raw, words in [
            (b"", "not JSON"),
            (b"{", "not JSON"),
            (b'{"a": 1} {}', "not JSON"),
            (b'{"a": NaN}', "NaN is no JSON number"),
            (b'{"a": "\xff"}', "not JSON"),
            (b"[" * 100_000, "not JSON"),
            (b"[1]", "not an object"),
            (b"null", "not an object"),
        ]:
            with self.subTest(raw=raw[:20]):
                self.refused(run(ECHO, raw), words)

    def refused(self, ending: Ending, words: str) -> None:
        self.assertEqual(
            (ending.code, ending.object["error"]), (1, "ValidationError"), ending
        )
        self.assertIn(words, ending.object["message"])
        self.assertIn("Traceback", ending.stderr)


class PlainTypes(unittest.TestCase):
    """Without pydantic; the runs with it are in `ModelTypes`."""

    def test_a_worker_request(self) -> None:
        ending = run(
            UPLOAD, {"asset_upload_type": " atmos ", "other": 1}, hide_pydantic=True
        )
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
            ORDER, {"id": 7, "lines": [{"sku": " x ", "price": 2}], "unknown": True}
        )
        self.assertEqual(
            (ending.code, ending.object),
            (
                0,
                {
                    "id": 7,
                    "lines": [{"sku": "x", "price": 2.0}],
                    "rush": False,
                    "note": None,
                    "way": "sea",
                    "ref": 0,
                    "labels": {},
                },
            ),
            ending.stderr,
        )

    def test_a_dataclass_refuses_what_does_not_fit(self) -> None:
        good = {"id": 7, "lines": []}
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
            ({"lines": [{"sku": "x", "price": 10**400}]}, "lines[0].price is too large"),
        ]:
            with self.subTest(change=change):
                ending = run(ORDER, {**good, **change})
                self.assertEqual(ending.code, 1, ending)
                self.assertEqual(ending.object["error"], "ValidationError")
                self.assertIn(f"Order: {words}", ending.object["message"])

    def test_a_type_that_is_none(self) -> None:
        ending = run(
            "from leasehold_handler import run_handler\nrun_handler(int, lambda n: {})"
        )
        self.assertEqual((ending.code, ending.object["error"]), (1, "TypeError"))
        self.assertIn("<class 'int'>", ending.object["message"])

    def test_dict_by_name(self) -> None:
        for name in ("dict", "dict[str, object]"):
            source = f"""
                from leasehold_handler import run_handler
                run_handler({name}, lambda request: request)
            """
            self.assertEqual(run(source, {"a": 1}).object, {"a": 1})

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
        ending = run_file(
            HANDLERS / "placement.py", {**self.REQUEST, "task_token": "opaque"}
        )
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
        self.assertEqual(
            ending.object, {"refused": "ValidationError", "extra": False}
        )

    def test_no_value_of_the_request_is_in_the_error(self) -> None:
        ending = run(UPLOAD, {"asset_upload_type": "", "tries": "hunter2"})
        self.assertEqual(ending.object["error"], "ValidationError")
        self.assertIn("tries", ending.object["message"])
        self.assertNotIn("hunter2", ending.stdout.decode() + ending.stderr)

    def test_other_models_and_what_is_not_json(self) -> None:
        source = """
            from pydantic import BaseModel
            from leasehold_handler import run_handler

            class Any(BaseModel):
                when: "datetime.datetime"

            import datetime
            Any.model_rebuild()
            run_handler(Any, lambda request: {"year": request.when.year})
        """
        self.assertEqual(run(source, {"when": "2031-02-03T04:05:06Z"}).object, {"year": 2031})
        for raw in (b"{", b"[]", b'{"when": "\xff"}', b"{}"):
            self.assertEqual(run(source, raw).object["error"], "ValidationError", raw)

    def test_models_of_pydantic_1(self) -> None:
        source = """
            import warnings
            warnings.simplefilter("ignore")
            from pydantic.v1 import BaseModel
            from leasehold_handler import run_handler

            class Old(BaseModel):
                n: float

            run_handler(Old, lambda request: Old(n=request.n * 1e300))
        """
        self.assertEqual(run(source, {"n": "2"}).object, {"n": 2e300})
        self.assertEqual(run(source, {"n": "x"}).object["error"], "ValidationError")
        self.assertEqual(run(source, {"n": 1e300}).object["error"], "MalformedResult")

    def test_a_dataclass_of_pydantic_is_checked_by_pydantic(self) -> None:
        source = """
            from pydantic.dataclasses import dataclass
            from leasehold_handler import run_handler

            @dataclass
            class Order:
                id: int

            run_handler(Order, lambda order: order)
        """
        self.assertEqual(run(source, {"id": "7"}).object, {"id": 7})
        self.assertEqual(run(source, {"id": "x"}).object["error"], "ValidationError")


if __name__ == "__main__":
    unittest.main()
