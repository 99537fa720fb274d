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
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")
_MONTH = r"(?P<name>[A-Za-z]+)\.?"
_YEAR = r"(?P<year>[0-9]{4}|[0-9]{2})"
_CLOCK = r":(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?(?: ?(?P<half>[AaPp][Mm]))?"
_CLOCK_AND_ZONE = (r"(?:[Tt ](?P<hour>[0-9]{1,2})" + _CLOCK
                   + r"(?P<zone>[Zz]|(?P<sign>[+-])(?P<zone_hour>[0-9]{2})(?::?(?P<zone_minute>[0-9]{2}))?)?)?")
_YEAR_FIRST = tuple(re.compile(r"(?P<year>[0-9]{4})" + rest + _CLOCK_AND_ZONE) for rest in (
    r"-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})", r"(?P<mark>[/.])(?P<month>[0-9]{1,2})(?P=mark)(?P<day>[0-9]{1,2})"))
_NAMED = tuple(re.compile(form + _YEAR + _CLOCK_AND_ZONE) for form in (
    _MONTH + r"[ \-/,.]*(?P<day>[0-9]{1,2})[ \-/,.]+", r"(?P<day>[0-9]{1,2})[ \-/,.]*" + _MONTH + r"[ \-/,.]*"))
_DAY_FIRST = re.compile(r"(?P<day>[0-9]{1,2})(?P<mark>[./-])(?P<month>[0-9]{1,2})(?P=mark)" + _YEAR + _CLOCK_AND_ZONE)
_MONTH_FIRST = re.compile(r"(?P<month>[0-9]{1,2})(?P<mark>[./-])(?P<day>[0-9]{1,2})(?P=mark)" + _YEAR + _CLOCK_AND_ZONE)
_TIME = re.compile(r"(?P<hour>[0-9]{1,4})" + _CLOCK)
_DATE_FORMS = {"": (*_YEAR_FIRST, *_NAMED), "day_first": (*_YEAR_FIRST, *_NAMED, _DAY_FIRST),
               "month_first": (*_YEAR_FIRST, *_NAMED, _MONTH_FIRST), "time": (_TIME,)}
_EXPECTED_DATES = {
    "": ", expected the year first, such as 2026-01-31, 2026-01-31T12:30:05 or 2026-01-31T12:30:05+01:00",
    "day_first": " with the day first, such as 31.01.2026 or 31/1/26 12:30",
    "month_first": " with the month first, such as 1/31/2026 or 1/31/26 12:30",
    "time": ", expected a time such as 12:30:05, as in the rest of the column"}
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


def category_reader(names: Sequence[str], numbers: NumberReader) -> tuple[Callable[[str], str], bool]:
    """Returns how a cell's text becomes one of the categories, and whether the categories are texts: if not, they are
    whole numbers, which are written as `numbers` reads them, or booleans, which may be written in several ways."""
    if names and all(_whole_number(name) is not None for name in names):
        return lambda text: _whole_number(numbers.plain(text)) or text, False
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


_SPACES = " \t\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"


class NumberReader:
    """Reads the numbers of a column as the server does: `decimal` and `thousands` are the marks of the training data's
    numbers, `unit` is what may stand beside them, or None in a column of plain numbers. `plain_first` says that numbers
    with a decimal point are tried before those marks."""

    def __init__(self, decimal: str, thousands: str, plain_first: bool, unit: str | None = None) -> None:
        self._decimal, self._thousands, self._plain_first, self._unit = decimal, thousands, plain_first, unit
        self._plain = decimal == "." and not thousands

    def __call__(self, text: str) -> float:
        try:
            return self._read(text)
        except ValueError:
            if self._unit is None:
                raise
        if (value := self._read_spelled(text)) is None:
            unit = f", with or without {quoted(self._unit)}" if self._unit else ""
            raise ValueError(f"{quoted(text)} is not a number{unit}")
        return value

    def _read(self, text: str) -> float:
        return read_number(self.plain(text))

    def plain(self, text: str) -> str:
        """Returns a number in the training data's style as a plain one, and other texts as they are."""
        if self._plain or (self._plain_first and _NUMBER.fullmatch(text)):
            return text
        return self._to_plain(text) or text

    def _to_plain(self, text: str) -> str | None:
        """Converts a number in the training data's style to a plain one."""
        mark = f"[{_SPACES}]" if self._thousands == " " else re.escape(self._thousands)
        groups = f"(?!0{mark})[0-9]{{1,3}}(?:{mark}[0-9]{{3}})+|" if self._thousands else ""
        match = re.fullmatch(f"([+-]|{_MINUS_SIGN})?({groups}[0-9]*)(?:{re.escape(self._decimal)}([0-9]*))?((?:[eE][+-]?[0-9]+)?)",
                             text)
        if match is None:
            return None
        sign, whole, fraction, exponent = match.groups()
        digits = re.sub("[^0-9]", "", whole)
        plain = f"{'-' if sign in ('-', _MINUS_SIGN) else ''}{digits}{'' if fraction is None else '.' + fraction}{exponent}"
        return plain if _NUMBER.fullmatch(plain) else None

    def _read_spelled(self, text: str) -> float | None:
        """Reads a number with the column's unit or in parentheses; None if it is none."""
        text = text.strip(_SPACES)
        negative = text.startswith("(") and text.endswith(")")
        if negative:
            text = text[1:-1].strip(_SPACES)
        match = re.fullmatch(f"([^0-9]*?)({re.escape(self._decimal)}?[0-9](?:.*[0-9])?)([^0-9]*)", text)
        if match is None:
            return None
        before, number, after = match.groups()
        before, after = before.strip(_SPACES), after.removeprefix(self._decimal).strip(_SPACES)
        for sign in ("-", _MINUS_SIGN):
            if before.startswith(sign) or before.endswith(sign) or after.endswith(sign):
                negative = not negative
                before, after = before.removeprefix(sign).removesuffix(sign), after.removesuffix(sign)
                break
        else:
            before = before.removeprefix("+")
        unit = f"{before.strip(_SPACES)} {after.strip(_SPACES)}".strip()
        if unit not in ("", self._unit):
            return None
        try:
            value = self._read(number)
        except ValueError:
            return None
        return -value if negative else value


def _month_of(name: str) -> int:
    """Returns the number of a month by its name, or by its first three letters."""
    word = name.lower()
    for number, month in enumerate(_MONTHS, 1):
        if word in (month, month[:3]) or (word == "sept" and number == 9):
            return number
    raise ValueError


def _seconds_of(parts: dict[str, str | None]) -> float:
    """Returns the seconds since midnight."""
    hour, minute, second = (int(parts.get(part) or 0) for part in ("hour", "minute", "second"))
    if minute > 59 or second > 59 or (parts.get("half") and not 1 <= hour <= 12):
        raise ValueError
    if half := parts.get("half"):
        hour = hour % 12 + (12 if half.lower() == "pm" else 0)
    return 3600 * hour + 60 * minute + second + float(f"0.{parts.get('fraction') or 0}")


def _year_of(text: str) -> int:
    return int(text) if len(text) == 4 else int(text) + (2000 if int(text) < 69 else 1900)


def _read_calendar(parts: dict[str, str | None]) -> tuple[int, float]:
    """Returns the days since 1970 and the seconds of the day, in UTC."""
    month = int(parts["month"] or 0) if parts.get("month") else _month_of(parts["name"] or "")
    days = date(_year_of(parts["year"] or ""), month, int(parts["day"] or 0)).toordinal() - _EPOCH
    zone_hour, zone_minute = int(parts["zone_hour"] or 0), int(parts["zone_minute"] or 0)
    if int(parts["hour"] or 0) > 23 or zone_hour > 23 or zone_minute > 59:
        raise ValueError
    ahead = (3600 * zone_hour + 60 * zone_minute) * (-1 if parts["sign"] == "-" else 1)
    shift, seconds = divmod(_seconds_of(parts) - ahead, 86400)
    return days + int(shift), seconds


def _circle(share: float) -> list[float]:
    return [math.sin(2 * math.pi * share), math.cos(2 * math.pi * share)]


def _match_date(text: str, order: str) -> dict[str, str | None]:
    for form in _DATE_FORMS[order]:
        if (match := form.fullmatch(text)) is not None:
            return match.groupdict()
    raise ValueError


def read_date(text: str, count: int, offset: float = 0, order: str = "") -> list[float]:
    """Returns the first `count` numbers into which write_date of src/data/table/date.cc converts a date: the days since
    1970 minus `offset`, then the sine and cosine of the position in the year, in the week and in the day; of a time the
    hours and its position in the day. ValueError says what is wrong."""
    try:
        parts = _match_date(text, order)
        if order == "time":
            seconds = _seconds_of(parts)
            return [seconds / 3600 - offset, *_circle(seconds % 86400 / 86400)][:count]
        days, seconds = _read_calendar(parts)
    except ValueError:
        raise ValueError(f"{quoted(text)} is not a date{_EXPECTED_DATES[order]}") from None
    # The time zone may shift the date out of the years that Python supports, so a day of an equivalent year is used.
    day = date.fromordinal((days + _EPOCH) % _CALENDAR_DAYS + _CALENDAR_DAYS)
    first, last = date(day.year, 1, 1), date(day.year, 12, 31)
    in_day = seconds / 86400
    return [days + in_day - offset, *_circle((day - first).days / ((last - first).days + 1)), *_circle(day.weekday() / 7),
            *_circle(in_day)][:count]
