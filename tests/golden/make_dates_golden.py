"""Writes dates.json: dates and times as text, and the numbers that Python's datetime computes from
them.

Run: python3 make_dates_golden.py (standard library only; Python 3.11 or newer reads all forms).
"""

import json
import math
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

random.seed(11)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def parts(text: str) -> list[float]:
    when = datetime.fromisoformat(text)
    when = (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    midnight = when.replace(hour=0, minute=0, second=0, microsecond=0)
    in_day = (when - midnight) / timedelta(days=1)
    year_days = (datetime(when.year, 12, 31) - datetime(when.year, 1, 1)).days + 1
    in_year = (when.timetuple().tm_yday - 1) / year_days
    angles = [2 * math.pi * turn for turn in (in_year, when.weekday() / 7, in_day)]
    return [(midnight - EPOCH).days + in_day] + [f(a) for a in angles for f in (math.sin, math.cos)]


def main() -> None:
    texts = ["1970-01-01", "2000-02-29", "1900-02-28", "0002-03-01", "9998-12-31", "2024-12-31", "2023-12-31",
             "2026-01-31T12:30", "2026-01-31 12:30:05", "2026-01-31T12:30:05.25", "2026-01-31T12:30:05,5",
             "2026-01-31T00:00:00Z", "2026-01-01T00:30:00+01:00", "2025-12-31T23:30:00-0530", "2024-02-29T23:59:59+00",
             "1969-12-31T23:59:59.999999"]
    for _ in range(40):
        when = EPOCH + timedelta(seconds=random.uniform(-3e9, 6e9))
        zone = timezone(timedelta(minutes=random.randrange(-14 * 60, 14 * 60)))
        texts.append(when.astimezone(zone).isoformat(timespec="microseconds"))
    rows = [{"text": text, "time": len(text) > 10, "parts": parts(text)} for text in texts]
    lines = ",\n".join(json.dumps(row) for row in rows)
    (Path(__file__).parent / "dates.json").write_text("[\n" + lines + "\n]\n")


main()
