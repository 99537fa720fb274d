"""Converts arrays and frames to the formats that the server reads: IDX and CSV (docs/datasets.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainyard.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Array = np.ndarray[Any, Any]

_IDX_U8, _IDX_I32, _IDX_F32 = 0x08, 0x0C, 0x0D


def _refuse(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, reason="DATASET_INVALID")


def _idx(code: int, array: Array, wire_type: str) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(wire_type).tobytes()


def images_to_idx(images: Array) -> bytes:
    """Converts images [N, H, W] or [N, C, H, W] to an IDX file.

    Integers of any type must be in 0..255 and become bytes; floats become 32-bit floats and must be finite. The server
    scales bytes by 1/255 and standardizes both. InvalidArgumentError describes anything else.
    """
    import numpy as np

    images = np.asarray(images)
    if images.ndim not in (3, 4) or images.size == 0:
        raise _refuse(f"images: shape {list(images.shape)}, expected [N, H, W] or [N, C, H, W] with N >= 1")
    if images.dtype.kind in "iu":
        low, high = int(images.min()), int(images.max())
        if low < 0 or high > 255:
            raise _refuse(f"images: whole numbers from {low} to {high}, expected 0..255, or floats")
        return _idx(_IDX_U8, images, "u1")
    if images.dtype.kind == "f":
        with np.errstate(over="ignore"):
            narrow = images.astype(">f4")
        if not np.isfinite(narrow).all():
            raise _refuse("images: NaN, infinity or numbers beyond 32-bit floats, expected finite ones")
        return _idx(_IDX_F32, narrow, ">f4")
    raise _refuse(f"images: type {images.dtype}, expected whole numbers 0..255 or floats")


def labels_to_idx(labels: Array) -> bytes:
    """Converts class labels [N], which are whole numbers of at least 0, to an IDX file."""
    import numpy as np

    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.size == 0:
        raise _refuse(f"labels: shape {list(labels.shape)}, expected [N] with N >= 1")
    if labels.dtype.kind not in "iu":
        raise _refuse(f"labels: type {labels.dtype}, expected whole numbers of at least 0")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high > 0x7FFFFFFF:
        raise _refuse(f"labels: from {low} to {high}, expected 0..2147483647")
    return _idx(_IDX_U8, labels, "u1") if high < 256 else _idx(_IDX_I32, labels, ">i4")


def _number(value: object) -> str:
    # a missing value is an empty field; NaN differs from itself
    return "" if value is None or value != value else repr(value)


def table_to_csv(rows: Array, target: Array | None = None) -> bytes:
    """Converts a numeric table [N, F] to CSV, NaN as missing. With `target` [N] it has a header: x0, x1, ...,
    target."""
    import numpy as np

    rows = np.asarray(rows)
    if rows.ndim != 2 or rows.size == 0:
        raise _refuse(f"rows: shape {list(rows.shape)}, expected [N, F] with N, F >= 1")
    if rows.dtype.kind not in "iufb":
        raise _refuse(f"rows: type {rows.dtype}, expected numbers; use a DataFrame for columns of text")
    numbers = rows.astype(np.int64) if rows.dtype.kind == "b" else rows
    # item() gives Python numbers, whose repr is the shortest text that parses to the same number. A 32-bit float
    # widened to 64 bits would show its rounding error, so NumPy formats those.
    lines: list[str]
    if numbers.dtype.kind == "f" and numbers.dtype.itemsize < 8:
        lines = [",".join("" if text == "nan" else text for text in row) for row in numbers.astype(str).tolist()]
    else:
        lines = [",".join(map(_number, row)) for row in numbers.tolist()]
    if target is None:
        return _lines(lines)
    target = np.asarray(target)
    if target.shape != (len(lines),):
        raise _refuse(f"target: shape {list(target.shape)}, expected [{len(lines)}], one for each row")
    if target.dtype.kind in "iufb":
        fields = target.astype(str).tolist()
    else:
        fields = [csv_field(str(value)) for value in target.tolist()]
    header = ",".join([*(f"x{i}" for i in range(rows.shape[1])), "target"])
    return "\n".join([header, *(f"{line},{field}" for line, field in zip(lines, fields)), ""]).encode()


def csv_field(text: str) -> str:
    """Returns `text` as one CSV field, quoted if necessary."""
    if text == "" or text != text.strip() or any(c in text for c in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _lines(lines: Sequence[str]) -> bytes:
    # An empty line is not a row, so a row whose only value is missing is written as quotes.
    return "".join((line or '""') + "\n" for line in lines).encode()


class _NotACell(ValueError):
    """Describes a value that no cell can contain, and suggests a remedy."""


def _check_cell(value: object) -> None:
    kind = type(value).__name__
    if isinstance(value, Mapping):
        raise _NotACell(f"a {kind} in a cell, expected a number, a text, a date or a missing value; pandas.json_normalize "
                        "makes a column of each of its keys")
    if isinstance(value, (bytes, bytearray)):
        raise _NotACell(f"{kind} in a cell, expected a number, a text, a date or a missing value; decode() "
                        "converts it to text")
    if isinstance(value, (list, tuple, set, frozenset)) or getattr(value, "ndim", 0) > 0:
        raise _NotACell(f"a {kind} in a cell, expected a number, a text, a date or a missing value; "
                        "pandas.DataFrame(frame['COLUMN'].tolist()) makes a column of each of its elements")


def _is_missing(value: object) -> bool:
    _check_cell(value)
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def values_to_csv(rows: Sequence[Sequence[object]], header: Iterable[object] | None = None) -> bytes:
    """Converts rows of Python values to CSV; None and NaN are missing values."""
    def cell(value: object) -> str:
        if isinstance(value, str):
            return csv_field(value)
        return "" if _is_missing(value) else str(value)

    lines = [",".join(csv_field(str(name)) for name in header)] if header is not None else []
    for index, row in enumerate(rows):
        try:
            lines.append(",".join(map(cell, row)))
        except _NotACell as error:
            raise _refuse(f"rows[{index}]: {error}") from None
    return _lines(lines)


def check_frame(frame: object) -> None:
    """Raises InvalidArgumentError unless `frame` is a pandas DataFrame with unique column names."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise _refuse(f"frame: a {type(frame).__name__} of {type(frame).__module__.partition('.')[0]}, expected a pandas "
                      "DataFrame; pandas.DataFrame(...) makes one from a dict of columns or a list of dicts, and "
                      "to_pandas() converts the frames of other libraries")
    if frame.columns.nlevels > 1:
        raise _refuse(f"frame: columns of {frame.columns.nlevels} levels (a MultiIndex), expected one name for each; "
                      "frame.columns = ['_'.join(map(str, names)) for names in frame.columns] joins them")


def frame_to_csv(frame: pd.DataFrame) -> bytes:
    """Converts a frame to CSV with the column names as header, without its index. Missing values are empty fields.

    Columns of pandas' category type are categories for the server only if they contain text or are listed in the
    dataset's `categorical`; `Client.upload_frame` lists them there.
    """
    check_frame(frame)
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if not names or frame.empty:
        raise _refuse(f"frame: {len(frame)} rows of {len(names)} columns, expected at least one of each")
    if twice:
        raise _refuse(f"frame: duplicate column names: {', '.join(twice)}; names must differ, as text")
    for name, column in zip(names, (frame.iloc[:, i] for i in range(len(names)))):
        if column.dtype != object:
            continue
        for row, value in enumerate(column):
            try:
                _check_cell(value)
            except _NotACell as error:
                raise _refuse(f"frame: row {row}, column {name!r}: {error}") from None
    text: str = frame.to_csv(index=False, header=names, na_rep="", lineterminator="\n")
    return text.encode()


def frame_categories(frame: pd.DataFrame) -> list[str]:
    """Returns the names of the columns of pandas' category type."""
    import pandas as pd

    return [str(name) for name, dtype in zip(frame.columns, frame.dtypes) if isinstance(dtype, pd.CategoricalDtype)]


def frame_dates(frame: pd.DataFrame) -> list[str]:
    """Returns the names of the columns of pandas' date types."""
    import pandas as pd

    return [str(name) for name, dtype in zip(frame.columns, frame.dtypes) if pd.api.types.is_datetime64_any_dtype(dtype)]
