"""Parses cells of a table as src/data/table does: CSV records, numbers, dates."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date

from trainyard._shown import quoted

# the texts that are missing where a number or date belongs, unless the training data names others
MISSING_NUMBERS = frozenset((
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA", "NULL",
    "NaN", "None", "n/a", "nan", "null", "NAN",
    "?"))

_FLOAT_MAX = 3.4028234663852886e38
_EXACT_MAX = 2.0 ** 53  # whole numbers below it are exact
_MINUS_SIGN = "\N{MINUS SIGN}"

# The pairs of words for false and true; 0 and 1 belong to all of them.
_BOOLEANS = (("false", "true"), ("f", "t")), (("no", "yes"), ("n", "y")), (("off", "on"),)

_FIELD = re.compile(r'[ \t]*(?:"((?:[^"]|"")*)"|([^,"\n]*))(,|\n|\Z)')
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
                   r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?"
                   r"(?:[Zz]|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?")
_EPOCH = date(1970, 1, 1).toordinal()
_CALENDAR_DAYS = 146097  # days in 400 years, after which the calendar repeats


def csv_records(text: str) -> Iterator[list[str]]:
    """Yields the records of CSV that this package has written. Spaces around a field without quotes are removed, and an
    empty line is no record."""
    if '"' not in text:
        for line in text.split("\n"):
            if line.strip(" \t"):
                yield [part.strip(" \t") for part in line.split(",")]
        return
    record: list[str] = []
    quotes = False
    at = 0
    while at < len(text):
        match = _FIELD.match(text, at)
        if match is None:
            # a fault of the code that wrote the CSV, not of its values
            raise ValueError(f"not CSV: {quoted(text[at:])}")
        inner, plain, end = match.groups()
        quotes = quotes or inner is not None
        record.append(plain.rstrip(" \t") if inner is None else inner.replace('""', '"'))
        at = match.end()
        if end != ",":
            if quotes or record != [""]:
                yield record
            record, quotes = [], False


class MissingCells:
    """The texts that mean a missing value: those that the training data names, or the default ones."""

    def __init__(self, named: Sequence[str]) -> None:
        self._texts = frozenset(("", *named))
        self._numbers = self._texts if named else MISSING_NUMBERS
        self._values = {float(text) for text in named if _NUMBER.fullmatch(text)}

    def number(self, text: str) -> bool:
        """Returns whether the text is a missing number or date."""
        if text in self._numbers:
            return True
        return bool(self._values) and _NUMBER.fullmatch(text) is not None and float(text) in self._values

    def text(self, text: str) -> bool:
        """Returns whether the text is a missing category or a missing text."""
        return text in self._texts


def _whole_number(text: str) -> str | None:
    """Returns the name of a category that is a whole number: "7" for "7.0". Leading zeros are kept."""
    text = text.replace(_MINUS_SIGN, "-", 1) if text.startswith(_MINUS_SIGN) else text
    if not _NUMBER.fullmatch(text):
        return None
    if re.fullmatch("[+-]?0[0-9].*", text):
        return text
    value = float(text)
    if abs(value) < _EXACT_MAX:
        return str(int(value)) if value == int(value) else None
    return text.removeprefix("+") if re.fullmatch("[+-]?[0-9]+", text) else None


def _boolean(text: str, pair: int) -> bool | None:
    word = text.lower()
    if word in ("0", "0.0", "1", "1.0"):
        return word[0] == "1"
    return next((words.index(word) == 1 for words in _BOOLEANS[pair] if word in words), None)


def category_reader(names: Sequence[str]) -> tuple[Callable[[str], str], bool]:
    """Returns how a cell's text becomes one of the categories, and whether the categories are texts: if not, they are
    whole numbers or booleans, which may be written in several ways."""
    if names and all(_whole_number(name) is not None for name in names):
        return lambda text: _whole_number(text) or text, False
    for pair in range(len(_BOOLEANS)):
        values = {_boolean(name, pair): name for name in names}
        if names and None not in values and not all(name[0] in "01" for name in names):
            def read(text: str, pair: int = pair, values: dict[bool | None, str] = values) -> str:
                return values.get(_boolean(text, pair), text)
            return read, False
    return lambda text: text, True


def read_number(text: str) -> float:
    """Parses a number. ValueError says what is wrong."""
    if text.startswith(_MINUS_SIGN):
        text = text.replace(_MINUS_SIGN, "-", 1)
    if _NUMBER.fullmatch(text):
        value = float(text)
        if abs(value) <= _FLOAT_MAX:
            return value
    elif not _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{quoted(text)} is not a number")
    raise ValueError(f"{quoted(text)} is not a finite number of 32 bits")


def read_date(text: str, count: int, offset: float = 0) -> list[float]:
    """Returns the first `count` numbers into which write_date of src/data/table/date.cc converts a date: the days since
    1970 minus `offset`, then the sine and cosine of the position in the year, in the week and in the day. ValueError says what is
    wrong."""
    match = _DATE.fullmatch(text)
    problem = ValueError(f"{quoted(text)} is not a date, expected ISO 8601 such as 2026-01-31, 2026-01-31T12:30:05 or "
                         "2026-01-31T12:30:05+01:00")
    if match is None:
        raise problem
    try:
        days = date(*map(int, match.group(1, 2, 3))).toordinal() - _EPOCH
    except ValueError:
        raise problem from None
    hour, minute, second, zone_hour, zone_minute = (int(part or 0) for part in match.group(4, 5, 6, 9, 10))
    if hour > 23 or minute > 59 or second > 59 or zone_hour > 23 or zone_minute > 59:
        raise problem
    fraction = float(f"0.{match[7] or 0}")
    ahead = (3600 * zone_hour + 60 * zone_minute) * (-1 if match[8] == "-" else 1)
    shift, seconds = divmod(3600 * hour + 60 * minute + second + fraction - ahead, 86400)
    days += int(shift)
    # The time zone may shift the date out of the years that Python supports, so a day of an equivalent year is used.
    day = date.fromordinal((days + _EPOCH) % _CALENDAR_DAYS + _CALENDAR_DAYS)
    first, last = date(day.year, 1, 1), date(day.year, 12, 31)
    in_day = seconds / 86400
    parts = [days + in_day - offset]
    for share in ((day - first).days / ((last - first).days + 1), day.weekday() / 7, in_day):
        parts += [math.sin(2 * math.pi * share), math.cos(2 * math.pi * share)]
    return parts[:count]
