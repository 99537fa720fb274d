"""Reads lists that the server returns page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.message import Message

from trainyard.errors import InvalidArgumentError

PAGE_SIZE_MAX = 1000


def pages(page: Callable[[str, int], tuple[Iterable[Message], str]], limit: int | None) -> list[Any]:
    """Returns all items of a list call, or the first `limit`."""
    if limit is not None and limit < 1:
        raise InvalidArgumentError(f"limit: {limit}, expected 1 or more", reason="FIELD_OUT_OF_RANGE")
    items: list[Any] = []
    token = ""
    while True:
        size = PAGE_SIZE_MAX if limit is None else min(PAGE_SIZE_MAX, limit - len(items))
        found, token = page(token, size)
        items += found
        if not token or len(items) == limit:
            return items
