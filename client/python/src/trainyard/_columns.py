"""Finds a model's columns in the names of other rows, as src/data/table/column_match.cc does."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence

from trainyard._cells import read_number
from trainyard._shown import quoted

_LISTED_MAX = 16
_SUGGESTED_MAX = 4


def _folded(name: str) -> str:
    """Returns the name without blanks around it and with its ASCII letters in lower case."""
    return name.strip(" \t").encode().lower().decode()


def match_columns(names: Sequence[str], known: Sequence[str]) -> list[str | None]:
    """Returns for each of `names` the same column in `known`, or None. Equal names match first. Of the others, two match
    if they differ only in the case of ASCII letters or in blanks around them, and if no further name does."""
    exact = set(names) & set(known)
    others = Counter(_folded(name) for name in names if name not in exact)
    left = Counter(_folded(name) for name in known if name not in exact)
    by_fold = {_folded(name): name for name in known if name not in exact}

    def match(name: str) -> str | None:
        if name in exact:
            return name
        folded = _folded(name)
        return by_fold[folded] if others[folded] == left[folded] == 1 else None

    return [match(name) for name in names]


def _is_number(text: str) -> bool:
    try:
        read_number(text)
    except ValueError:
        return False
    return True


def has_number_values(fields: Sequence[str], matches: Sequence[str | None]) -> bool:
    """Returns whether numbers among the fields must be values, although columns may be named by numbers: one occurs
    twice, or one names no column and no text does. `matches` has a column for each field."""
    numbers = [field for field in fields if _is_number(field)]
    others = any(match is None and _is_number(field) for field, match in zip(fields, matches))
    texts = any(match is not None and not _is_number(field) for field, match in zip(fields, matches))
    return len(set(numbers)) < len(numbers) or (others and not texts)


def list_columns(names: Sequence[str]) -> str:
    """Returns names in quotes, of which at most 16 are listed."""
    shown = [quoted(name) for name in names[:_LISTED_MAX]]
    if len(names) > len(shown):
        return f"{', '.join(shown)} and {len(names) - len(shown)} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def missing_columns(missing: Sequence[str], others: Sequence[str]) -> str:
    """Returns the refusal of rows without the columns `missing`; `others` are columns of the rows that match none."""
    one = len(missing) == 1
    text = (f"the {'column' if one else 'columns'} {list_columns(missing)}, which the model learned from, "
            f"{'is' if one else 'are'} missing")
    near = [(close[0], name) for name in missing if (close := difflib.get_close_matches(name, others, 1))]
    for other, name in near[:_SUGGESTED_MAX]:
        text += f"; is {quoted(other)} meant to be {quoted(name)}?"
    if others and not near:
        text += f"; the rows have {list_columns(others)} instead"
    return text
