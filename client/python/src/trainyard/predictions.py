"""Converts Python values to prediction requests of allowed size, and the responses back."""

from __future__ import annotations

import html
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trainyard import v1
from trainyard._shown import short_number
from trainyard.data import frame_to_csv, images_to_idx, table_to_csv, values_to_csv
from trainyard.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from PIL import Image

REQUEST_BYTES_MAX = 3 << 20
REQUEST_IMAGES_MAX = 4096
_ROWS_SHOWN = 10  # of a printed table

Rows: TypeAlias = ("np.ndarray[Any, Any] | pd.DataFrame | Sequence[str] | Sequence[Sequence[object]] | "
                   "Sequence[Mapping[str, object]] | Mapping[str, Sequence[object]] | Sequence[Path] | Sequence[bytes] | "
                   "Sequence[Image.Image] | Sequence[np.ndarray[Any, Any]]")


@dataclass(frozen=True)
class UnseenCategory:
    """A value of a categorical column that training never saw; it counts as missing."""

    row: int  # from 0
    column: str
    value: str  # its first 64 bytes


@dataclass(frozen=True)
class Predictions:
    """One prediction for each row, in order."""

    classification: bool
    classes: tuple[str, ...]  # classification: the class names, else empty
    labels: tuple[str, ...]  # classification: the name of the predicted class, else empty
    # Classification: one value per class, in the order of `classes`. With more than 65,536 classes, `classes` is empty,
    # and these are the values of the 100 most probable classes, whose names are in top_labels. Else empty.
    probabilities: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]  # regression: in the target's units, else empty
    unseen: tuple[UnseenCategory, ...] = ()  # at most 1000 per request
    unseen_count: int = 0  # how many there were in all
    # These two describe the computation and do not affect the predictions.
    warm: bool = field(default=False, compare=False)  # true: no request waited for a worker to load the model
    compute_us: int = field(default=0, compare=False)  # the worker's computing time, summed over all requests
    top_labels: tuple[tuple[str, ...], ...] = ()  # one tuple per row, only with more than 65,536 classes
    ignored_columns: tuple[str, ...] = ()  # of the rows; the training data did not have them

    def __len__(self) -> int:
        return len(self.labels) if self.classification else len(self.values)

    def rows(self) -> Iterator[dict[str, str]]:
        """Yields each row as texts: `prediction`, and of a classification `probability` of the predicted class."""
        for i in range(len(self)):
            if not self.classification:
                yield {"row": str(i), "prediction": short_number(self.values[i])}
                continue
            yield {"row": str(i), "prediction": self.labels[i], "probability": f"{max(self.probabilities[i]):.1%}"}

    def __str__(self) -> str:
        """Returns a table of the first rows."""
        shown = list(itertools.islice(self.rows(), _ROWS_SHOWN))
        if not shown:
            return "no predictions"
        table = [list(shown[0]), *(list(row.values()) for row in shown)]
        widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in table]
        more = len(self) - len(shown)
        return "\n".join([*lines, *([f"and {more} more rows; to_frame() has all"] if more else [])])

    def _repr_html_(self) -> str:
        shown = list(itertools.islice(self.rows(), _ROWS_SHOWN))
        head = "".join(f"<th>{html.escape(name)}</th>" for name in (shown[0] if shown else ()))
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in shown)
        more = len(self) - len(shown)
        return (f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
                + (f"<div>and {more} more rows; to_frame() has all</div>" if more else ""))

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Returns the probabilities [N, K] of a classification, or the values [N] of a regression. Needs NumPy."""
        import numpy as np

        return np.asarray(self.probabilities if self.classification else self.values, dtype=np.float64)

    def to_frame(self) -> pd.DataFrame:
        """Returns a column `prediction`, and p_CLASS for each class, or `probability` if there are more than 65,536
        classes. Needs pandas."""
        import pandas as pd

        if not self.classification:
            return pd.DataFrame({"prediction": self.values})
        if self.top_labels:
            return pd.DataFrame({"prediction": self.labels, "probability": [shares[0] for shares in self.probabilities]})
        shares = pd.DataFrame(list(self.probabilities), columns=[f"p_{name}" for name in self.classes])
        shares.insert(0, "prediction", list(self.labels))
        return shares


def _refuse(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, reason="DATASET_INVALID")


def _pieces(rows: Any, encode: Any) -> Iterator[bytes]:
    """Yields `encode(rows)`, or if that does not fit into a request, the encoded parts of the rows."""
    data: bytes = encode(rows)
    if len(data) <= REQUEST_BYTES_MAX:
        yield data
        return
    if len(rows) == 1:
        raise _refuse(f"a row of {len(data)} bytes, expected at most {REQUEST_BYTES_MAX}")
    # Splits into parts with as many rows as fit on average, with some room for longer rows.
    step = max(1, min(len(rows) // 2, len(rows) * REQUEST_BYTES_MAX * 9 // (len(data) * 10)))
    for begin in range(0, len(rows), step):
        yield from _pieces(rows[begin:begin + step], encode)


def _text(rows: Sequence[str]) -> bytes:
    return ("\n".join(rows) + "\n").encode()


def _list_requests(name: str, rows: Sequence[Any]) -> Iterator[v1.PredictRequest]:
    kinds = {str if isinstance(row, str) else dict if isinstance(row, Mapping) else list for row in rows}
    if len(kinds) > 1:
        raise _refuse("rows: a mix of texts, dicts and lists, expected only one kind")
    if kinds == {str}:
        for i, row in enumerate(rows):
            if "\n" in row or "\r" in row:
                raise _refuse(f"rows[{i}]: a text with a line break, which ends a row; replace it with a space, or give "
                              "a DataFrame with the text column's name")
        yield from (v1.PredictRequest(name=name, text=piece) for piece in _pieces(rows, _text))
        return
    header: list[object] | None = None
    if kinds == {dict}:
        header = list(rows[0])
        for i, row in enumerate(rows):
            if row.keys() != rows[0].keys():
                raise _refuse(f"rows[{i}]: has {', '.join(map(str, row))}; expected the first row's "
                              f"{', '.join(map(str, header))}")
        rows = [[row[key] for key in header] for row in rows]
    else:
        for i, row in enumerate(rows):
            one_row = isinstance(row, Sequence) or getattr(row, "ndim", 0) == 1
            if not one_row or isinstance(row, bytes):
                raise _refuse(f"rows[{i}]: a {type(row).__name__}, expected the values of one row")
    yield from (v1.PredictRequest(name=name, csv=piece)
                for piece in _pieces(rows, lambda part: values_to_csv(part, header)))


def _is_image(row: Any) -> bool:
    """Returns whether the row is an image: a file, its bytes, a Pillow image, or an array with two or three axes."""
    return isinstance(row, (Path, bytes)) or (hasattr(row, "save") and hasattr(row, "mode")) or (
        getattr(row, "ndim", 0) in (2, 3) and hasattr(row, "dtype"))


def _image_file(row: Any, index: int) -> v1.ImageFiles.File:
    if isinstance(row, bytes):
        return v1.ImageFiles.File(name=f"rows[{index}]", content=row)
    if isinstance(row, Path):
        try:
            return v1.ImageFiles.File(name=row.name, content=row.read_bytes())
        except OSError as error:
            raise NotFoundError(f"{row}: {(error.strerror or str(error)).lower()}", reason="FILE_NOT_FOUND") from None
    from PIL import Image

    dtype, gray = getattr(row, "dtype", "uint8"), getattr(row, "ndim", 2) == 2 or row.shape[-1:] == (1,)
    if dtype != "uint8" and not (dtype == "uint16" and gray):
        raise _refuse(f"rows[{index}]: an array of {dtype}, expected bytes (uint8), or uint16 for gray, for an image file")
    out = io.BytesIO()
    (row if hasattr(row, "save") else Image.fromarray(row.squeeze(-1) if row.shape[-1:] == (1,) else row)).save(out, "PNG")
    return v1.ImageFiles.File(name=f"rows[{index}]", content=out.getvalue())


def _image_requests(name: str, rows: Sequence[Any]) -> Iterator[v1.PredictRequest]:
    request, size = v1.PredictRequest(name=name), 0
    for index, row in enumerate(rows):
        if not _is_image(row):
            raise _refuse(f"rows[{index}]: a {type(row).__name__} among images, expected only one kind")
        file = _image_file(row, index)
        if len(file.content) > REQUEST_BYTES_MAX:
            raise _refuse(f"{file.name}: {len(file.content)} bytes, expected at most {REQUEST_BYTES_MAX}")
        if size + len(file.content) > REQUEST_BYTES_MAX or len(request.images.files) == REQUEST_IMAGES_MAX:
            yield request
            request, size = v1.PredictRequest(name=name), 0
        request.images.files.append(file)
        size += len(file.content)
    yield request


def _list_of_dicts(columns: Mapping[Any, Any]) -> list[dict[Any, Any]]:
    """Converts a dict of columns to a list of rows."""
    lengths = {key: len(values) for key, values in columns.items()
               if hasattr(values, "__len__") and not isinstance(values, (str, bytes, Mapping))}
    for key, values in columns.items():
        if key not in lengths:
            raise _refuse(f"rows: the column {key!r} is a {type(values).__name__}, expected a list with a value for each "
                          "row; for a single row, give a list with its dict")
    if len(set(lengths.values())) > 1:
        raise _refuse("rows: columns of different lengths: "
                      + ", ".join(f"{key!r} has {length}" for key, length in lengths.items()))
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def has_names(rows: Rows) -> bool:
    """Returns whether the rows have column names."""
    return hasattr(rows, "columns") or isinstance(rows, Mapping) or (
        isinstance(rows, Sequence) and len(rows) > 0 and isinstance(rows[0], Mapping))


def requests_of(name: str, rows: Rows) -> Iterator[v1.PredictRequest]:
    """Yields the requests that predict `rows` with the model `name`."""
    if isinstance(rows, Mapping):
        rows = _list_of_dicts(rows)
    shape = getattr(rows, "shape", None)
    columns = getattr(rows, "columns", None)
    if columns is not None:
        yield from (v1.PredictRequest(name=name, csv=piece) for piece in _pieces(rows, frame_to_csv))
    elif shape is not None:
        import numpy as np

        array = np.asarray(rows)
        # Float pixels are sent as CSV too, which works for models trained on bytes and on floats.
        if array.ndim == 2 or (array.ndim in (3, 4) and array.dtype.kind == "f"):
            flat = array.reshape(len(array), -1) if array.size else array
            yield from (v1.PredictRequest(name=name, csv=piece) for piece in _pieces(flat, table_to_csv))
        elif array.ndim in (3, 4):
            yield from (v1.PredictRequest(name=name, idx_images=piece) for piece in _pieces(array, images_to_idx))
        else:
            raise _refuse(f"rows: shape {list(array.shape)}, expected [N, F], [N, H, W] or [N, C, H, W]")
    elif isinstance(rows, Sequence) and not isinstance(rows, (str, bytes)):
        if not rows:
            raise _refuse("rows: is empty, expected at least one")
        yield from (_image_requests if _is_image(rows[0]) else _list_requests)(name, rows)
    else:
        raise _refuse(f"rows: a {type(rows).__name__}, expected a list of rows, a dict of columns, a NumPy "
                      "array or a DataFrame")


def collect(answers: Iterator[v1.PredictResponse]) -> Predictions:
    classification, classes = False, tuple[str, ...]()
    labels: list[str] = []
    probabilities: list[tuple[float, ...]] = []
    values: list[float] = []
    unseen: list[UnseenCategory] = []
    unseen_count = 0
    top_labels: list[tuple[str, ...]] = []
    warm, compute_us = True, 0
    ignored = tuple[str, ...]()
    for answer in answers:
        ignored = tuple(answer.ignored_columns)
        unseen_count += answer.unseen_count
        classification, classes = answer.classification, tuple(answer.classes)
        warm, compute_us = warm and answer.warm, compute_us + answer.compute_us
        for prediction in answer.predictions:
            row = len(labels) + len(values)
            unseen.extend(UnseenCategory(row, category.column, category.value) for category in prediction.unseen)
            if classification:
                labels.append(prediction.label)
                probabilities.append(tuple(prediction.probabilities))
                if prediction.top_labels:
                    top_labels.append(tuple(prediction.top_labels))
            else:
                values.append(prediction.value)
    return Predictions(classification, classes, tuple(labels), tuple(probabilities), tuple(values),
                       tuple(unseen), unseen_count, warm, compute_us, tuple(top_labels), ignored)
