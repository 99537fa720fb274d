"""Converts raw rows to the inputs of an exported model, by the metadata of its ONNX file (docs/onnx.md).

A row is first converted to the CSV that the client would send, whose cells are then parsed by the server's rules, so
that it has the same meaning as on the server.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from trainyard import v1
from trainyard._cells import MissingCells, NumberReader, category_reader, csv_records, read_date
from trainyard._columns import has_number_values, match_columns, missing_columns
from trainyard._shown import quoted
from trainyard._tokens import make_tokenizer
from trainyard.errors import FieldViolation, InvalidArgumentError
from trainyard.predictions import UnseenCategory

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

ROWS_VERSION = 2  # version of the metadata field `rows`
_PROBLEMS_MAX = 16
_UNSEEN_MAX = 1000
_UNSEEN_BYTES_MAX = 64


class _Problems:
    """Collects the problems of rows for one error."""

    def __init__(self) -> None:
        self._found: list[tuple[int, FieldViolation]] = []

    def add(self, description: str, row: int = -1, column: str | None = None) -> None:
        place = "rows" if row < 0 else f"rows[{row}]" if column is None else f"rows[{row}], column {quoted(column)}"
        self._found.append((row, FieldViolation(place, description)))

    def check(self) -> None:
        if not self._found:
            return
        found = [violation for _, violation in sorted(self._found, key=lambda one: one[0])]
        count = f" (the first of {len(found)} problems)" if len(found) > 1 else ""
        raise InvalidArgumentError(f"{found[0]}{count}", reason="DATASET_INVALID", violations=found[:_PROBLEMS_MAX])


def _refuse(description: str) -> NoReturn:
    raise InvalidArgumentError(f"rows: {description}", reason="DATASET_INVALID")


@dataclass(frozen=True)
class Input:
    """An input of the ONNX file: its shape without the rows, and NumPy's name of its type."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class EncodedRows:
    """Rows as one array per input. Arrays of categories contain codes; -1 stands for missing and unknown values."""

    count: int
    arrays: dict[str, Array]
    unseen: list[UnseenCategory] = field(default_factory=list)
    unseen_count: int = 0
    ignored_columns: tuple[str, ...] = ()  # of the rows; the training data did not have them


@dataclass(frozen=True)
class _Numbers:
    """A column of numbers, or of dates, each of which gives several numbers."""

    first: int
    count: int
    is_date: bool
    offset: float = 0  # of the first number, which the file's input lacks
    order: str = ""  # of a date
    unit: str | None = None  # of a number, as in NumberReader


def _composed(text: str) -> str:
    """Names of columns and categories are equal if their NFC is, as in src/base/unicode.h."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


@dataclass(frozen=True)
class _Categories:
    index: int
    codes: dict[str, int]
    name_of: Callable[[str], str]  # converts another spelling of a whole number or a boolean
    are_texts: bool


class RowEncoder:
    """Encodes rows. Immutable and thread-safe after construction."""

    # columns of rows, in the training data's order; empty if the training data was text without column names
    columns: tuple[str, ...]

    def __init__(self, metadata: Mapping[str, str], inputs: Mapping[str, Input]) -> None:
        rows = json.loads(metadata["rows"])
        if rows["version"] != ROWS_VERSION:
            cause = ("an older version of Trainyard has written the file; export it again"
                     if rows["version"] < ROWS_VERSION else
                     "a newer version of Trainyard has written the file; update this package")
            raise InvalidArgumentError(f"rows.version: {rows['version']}, expected {ROWS_VERSION}: {cause}",
                                       reason="MODEL_FILE_INVALID")
        self._inputs = inputs
        self._missing = MissingCells(rows["missing_values"])
        self._decimal, self._thousands = rows["decimal"], rows["thousands"]
        # The rows are CSV with commas; the server takes such rows as a program's if the training file has another mark.
        self._plain_first = rows["delimiter"] != ","
        self._target = metadata.get("target")
        self._ignored = frozenset(rows["ignored_columns"])
        # Files of pixels have no column names, so positions serve as names.
        self._source: list[str] = rows["source_columns"] or [
            f"c{i}" for i in range(math.prod(inputs["image"].shape) if "image" in inputs else 0)]
        self.columns = tuple(name for name in self._source if name not in self._ignored and name != self._target)
        self._tables: dict[str, _Numbers | _Categories] = {}
        self._number_count = 0
        self._category_counts: list[int] = []
        for column in json.loads(metadata.get("columns", "[]")):
            self._add_column(column)
        self._text = json.loads(metadata["text"]) if "text" in metadata else None
        self._tokenize = make_tokenizer(self._text) if self._text else None

    def _add_column(self, column: Mapping[str, Any]) -> None:
        if column["kind"] == "categorical":
            codes = {name: code for code, name in enumerate(column["categories"])}
            numbers = NumberReader(self._decimal, self._thousands, self._plain_first)
            self._tables[column["name"]] = _Categories(len(self._category_counts), codes,
                                                       *category_reader(column["categories"], numbers))
            self._category_counts.append(len(codes))
            return
        name = column.get("date", column["name"])
        before = self._tables.get(name)
        self._tables[name] = (replace(before, count=before.count + 1) if isinstance(before, _Numbers)
                              else _Numbers(self._number_count, 1, "date" in column, column.get("offset", 0.0),
                                            column.get("date_order", ""), column.get("unit")))
        self._number_count += 1

    def encode(self, request: v1.PredictRequest, named: bool, first_row: int) -> EncodedRows:
        """Encodes the rows of one request. `named` says that they have column names; `first_row` is the number of the
        first row in messages."""
        kind = request.WhichOneof("rows")
        if kind == "csv":
            return self._encode_table(request.csv.decode(), named, first_row)
        if kind == "text":
            if self._text is None:
                _refuse(f"texts, expected {self.accepted()}")
            return self._encode_texts(request.text.decode().split("\n")[:-1])
        if kind == "idx_images":
            return self._encode_images(request.idx_images)
        _refuse("image files, which only the server decodes and resizes as it did those of the training data; expected "
                + self.accepted())

    def feeds(self, rows: EncodedRows, part: slice) -> dict[str, Array]:
        """Returns the values of the ONNX file's inputs for some of the rows."""
        import numpy as np

        feeds = {name: rows.arrays[name][part] for name in self._inputs}
        if "categorical" in feeds:
            codes = feeds["categorical"]
            if self._inputs["categorical"].dtype == "int64":  # the model embeds the codes
                feeds["categorical"] = codes + 1
            else:
                begins = np.cumsum([0, *self._category_counts[:-1]])
                row, column = np.nonzero(codes >= 0)
                shares = np.zeros((len(codes), sum(self._category_counts)), np.float32)
                shares[row, begins[column] + codes[row, column]] = 1
                feeds["categorical"] = shares
        return feeds

    def accepted(self) -> str:
        """Describes the rows that are expected, for messages."""
        if "image" in self._inputs:
            image = self._inputs["image"]
            return f"an array of images [N, {', '.join(map(str, image.shape))}] of {image.dtype}"
        if self._text is not None and len(self.columns) < 2:
            return "texts"
        more = f" and {len(self.columns) - 8} more" if len(self.columns) > 8 else ""
        return f"the columns {', '.join(self.columns[:8])}{more}"

    def _encode_texts(self, texts: Sequence[str]) -> EncodedRows:
        import numpy as np

        assert self._text is not None and self._tokenize is not None
        tokens = np.full((len(texts), self._text["length"]), self._text["padding_id"], np.int64)
        for row, text in enumerate(texts):
            found = self._tokenize(text)[:tokens.shape[1]]
            tokens[row, :len(found)] = found
        return EncodedRows(len(texts), {"tokens": tokens})

    def _encode_images(self, idx: bytes) -> EncodedRows:
        import numpy as np

        code, rank = idx[2], idx[3]  # images_to_idx has written this header
        dtype = "uint8" if code == 8 else "float32"
        pixels = np.frombuffer(idx, np.dtype(dtype).newbyteorder(">"), offset=4 + 4 * rank)
        images = pixels.reshape(np.frombuffer(idx, ">u4", rank, offset=4))
        images = images[:, None] if rank == 3 else images
        if self._inputs.get("image") != Input(images.shape[1:], dtype):
            _refuse(f"images {list(images.shape)} of {dtype}, expected {self.accepted()}")
        return EncodedRows(len(images), {"image": images.astype(dtype)})

    # --- tables ---------------------------------------------------------------------------------------------------

    def _encode_table(self, text: str, named: bool, first_row: int) -> EncodedRows:
        if not self.columns:
            _refuse(f"a table, expected {self.accepted()}")
        first, *records = csv_records(text)
        names = [_composed(name) for name in first]
        if named:
            # The server names columns without a name by their positions, as header_names() of csv_columns.cc.
            names = [name or f"Unnamed: {i}" for i, name in enumerate(names)]
        else:
            # A list may begin with a row of names, as files do. It is one if at least half of the columns occur in it,
            # since a value hardly ever equals a column name.
            if not has_number_values(names, match_columns(names, self._source)) and (
                    2 * len(set(match_columns(names, self.columns)) - {None}) >= len(self.columns)):
                first_row += 1
            else:
                records = [first, *records]
                names = self._names_by_position(len(names))
        matches = self._match_names(names)
        problems = _Problems()
        for row, record in enumerate(records, first_row):
            if len(record) != len(names):
                problems.add(f"{len(record)} values, expected {len(names)}", row)
        problems.check()
        cells = [(name, column) for name, column in zip(matches, zip(*records))
                 if name is not None and name in self.columns]
        rows = (self._encode_pixels if "image" in self._inputs else
                self._encode_columns if self._text is None else self._encode_text_columns)(cells, len(records), first_row,
                                                                                           problems)
        problems.check()
        return replace(rows, ignored_columns=tuple(name for name, match in zip(names, matches) if match is None))

    def _names_by_position(self, count: int) -> list[str]:
        with_target = [name for name in self._source if name not in self._ignored]
        for names in (self.columns, self._source, with_target):
            if count == len(names):
                return list(names)
        _refuse(f"{count} values in the first row, expected {self.accepted()}, in this order")

    def _match_names(self, names: Sequence[str]) -> list[str | None]:
        """Returns for each of the names the column of the training data that it means, if there is one."""
        matches = match_columns(names, self._source)
        missing = [name for name in self.columns if name not in matches]
        if missing:
            _refuse(missing_columns(missing, [name for name, match in zip(names, matches) if match is None]))
        return matches

    def _fill(self, out: Array, name: str, cells: Sequence[str], read: Callable[[str], Any], first_row: int,
              problems: _Problems) -> None:
        """Parses the cells of a column that are not missing into `out`, which has one row per cell."""
        for row, cell in enumerate(cells):
            if self._missing.number(cell):
                continue
            try:
                out[row] = read(cell)
            except ValueError as error:
                problems.add(str(error), first_row + row, name)

    def _encode_columns(self, cells: Sequence[tuple[str, Sequence[str]]], count: int, first_row: int,
                        problems: _Problems) -> EncodedRows:
        import numpy as np

        numeric = np.full((count, self._number_count), np.nan, np.float32)
        categorical = np.full((count, len(self._category_counts)), -1, np.int64)
        unseen: list[UnseenCategory] = []
        for name, column in cells:
            kind = self._tables[name]
            if isinstance(kind, _Categories):
                is_missing = self._missing.text if kind.are_texts else self._missing.number
                for row, cell in enumerate(column):
                    composed = _composed(cell)
                    code = -1 if is_missing(cell) else kind.codes.get(composed, kind.codes.get(kind.name_of(composed)))
                    if code is None:
                        value = cell.encode()[:_UNSEEN_BYTES_MAX].decode(errors="ignore")
                        unseen.append(UnseenCategory(first_row + row, name, value))
                    else:
                        categorical[row, kind.index] = code
            elif kind.is_date:
                self._fill(numeric[:, kind.first:kind.first + kind.count], name, column,
                           partial(read_date, count=kind.count, offset=kind.offset, order=kind.order), first_row, problems)
            else:
                self._fill(numeric[:, kind.first], name, column, self._number_reader(kind), first_row, problems)
        unseen.sort(key=lambda one: one.row)
        return EncodedRows(count, {"numeric": numeric, "categorical": categorical}, unseen[:_UNSEEN_MAX], len(unseen))

    def _number_reader(self, kind: _Numbers) -> Callable[[str], float]:
        read = NumberReader(self._decimal, self._thousands, self._plain_first, kind.unit)
        return lambda cell: read(cell) - kind.offset

    def _encode_pixels(self, cells: Sequence[tuple[str, Sequence[str]]], count: int, first_row: int,
                       problems: _Problems) -> EncodedRows:
        import numpy as np

        shape, dtype = self._inputs["image"].shape, self._inputs["image"].dtype
        places = {name: place for place, name in enumerate(self.columns)}
        pixels = np.full((count, len(places)), np.nan, np.float32)

        read_pixel = NumberReader(self._decimal, self._thousands, self._plain_first)

        def read_byte(cell: str) -> float:
            value = read_pixel(cell)
            if not 0 <= value <= 255 or value != int(value):
                raise ValueError(f"{quoted(cell)} is not a whole number from 0 to 255, as all pixels of the training data")
            return value

        for name, column in cells:
            self._fill(pixels[:, places[name]], name, column, read_byte if dtype == "uint8" else read_pixel, first_row,
                       problems)
            for row, cell in enumerate(column):
                if self._missing.number(cell):
                    problems.add("the value is missing, but an image needs all pixels", first_row + row, name)
        problems.check()
        return EncodedRows(count, {"image": pixels.astype(dtype).reshape(count, *shape)})

    def _encode_text_columns(self, cells: Sequence[tuple[str, Sequence[str]]], count: int, first_row: int,
                             problems: _Problems) -> EncodedRows:
        texts = [""] * count
        for _, column in cells:
            for row, cell in enumerate(column):
                if not self._missing.text(cell):
                    texts[row] += f" {cell}" if texts[row] else cell
        return self._encode_texts(texts)
