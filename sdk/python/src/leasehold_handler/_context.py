"""Which run this is, as the worker says it in the environment."""

from __future__ import annotations

import os


class Context:
    """What the worker says about this run. Each is `None` where the worker does not say it.

    The environment is read at each access, so a test may set a variable and look.
    """

    __slots__ = ()

    @property
    def item_id(self) -> str | None:
        """The work item. Stays the same over all attempts."""
        return _text("LEASEHOLD_ITEM_ID")

    @property
    def kind(self) -> str | None:
        """What to do, such as `RESIZE_IMAGE`."""
        return _text("LEASEHOLD_KIND")

    @property
    def attempt(self) -> int | None:
        """The first attempt is 1."""
        return _number("LEASEHOLD_ATTEMPT")

    @property
    def fence(self) -> int | None:
        """The fencing number: rises with every claim of the item and never falls.

        Another store that keeps the highest number it has seen, and refuses a write with a lower
        one, cannot be written to by a run that has been replaced.
        """
        return _number("LEASEHOLD_FENCE")

    @property
    def org_id(self) -> str | None:
        """The tenant whose work this is."""
        return _text("LEASEHOLD_ORG_ID")

    @property
    def traceparent(self) -> str | None:
        """The trace that caused the work, in the form of W3C Trace Context."""
        return _text("TRACEPARENT")

    def __repr__(self) -> str:
        return (
            f"Context(item_id={self.item_id!r}, kind={self.kind!r}, attempt={self.attempt!r}, "
            f"fence={self.fence!r}, org_id={self.org_id!r}, traceparent={self.traceparent!r})"
        )


def _text(variable: str) -> str | None:
    return os.environ.get(variable) or None


def _number(variable: str) -> int | None:
    text = _text(variable)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{variable} is not a whole number: {text!r}") from None


context = Context()
