"""Parses cells of a table as src/data/table does: CSV records, numbers, dates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import date

from trainyard._shown import quoted

_FLOAT_MAX = 3.4028234663852886e38

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


def read_number(text: str) -> float:
    """Parses a number. ValueError says what is wrong."""
    if _NUMBER.fullmatch(text):
        value = float(text)
        if abs(value) <= _FLOAT_MAX:
            return value
    elif not _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{quoted(text)} is not a number")
    raise ValueError(f"{quoted(text)} is not a finite number of 32 bits")


def read_date(text: str, count: int) -> list[float]:
    """Returns the first `count` numbers into which write_date of src/data/table/date.cc converts a date: the days since
    1970, then the sine and cosine of the position in the year, in the week and in the day. ValueError says what is
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
    parts = [days + in_day]
    for share in ((day - first).days / ((last - first).days + 1), day.weekday() / 7, in_day):
        parts += [math.sin(2 * math.pi * share), math.cos(2 * math.pi * share)]
    return parts[:count]
