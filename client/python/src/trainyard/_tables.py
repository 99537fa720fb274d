"""Reads tables in formats that the server does not read, by pandas' readers."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    import pandas as pd

_START_BYTES = 1 << 20
_SAS7BDAT = bytes(12) + b"\xc2\xea\x81\x60"
_MARKUP = (b"<!doctype html", b"<html", b"<head>", b"<body", b"<table", b"<div", b"<style", b"<script", b"<meta")

Read = Callable[[Path], "pd.DataFrame"]


def _refuse(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, reason="DATASET_INVALID")


def _one(frames: dict[Any, pd.DataFrame], path: Path, parts: str, read: str) -> pd.DataFrame:
    """Returns the only frame that has rows. Several are refused, because none of them is meant for certain."""
    filled = {key: frame for key, frame in frames.items() if len(frame) > 0}
    if len(filled) == 1:
        return next(iter(filled.values()))
    if not filled:
        raise _refuse(f"{path}: no row in its {len(frames)} {parts}")
    raise _refuse(f"{path}: {len(filled)} {parts} with rows, {', '.join(map(repr, filled))}; upload one of them: "
                  f"trainyard.upload({read.format(file=str(path), key=next(iter(filled)))}, target=...)")


def _read_excel(path: Path) -> pd.DataFrame:
    import pandas as pd

    return _one(pd.read_excel(path, sheet_name=None), path, "sheets", "pandas.read_excel({file!r}, sheet_name={key!r})")


def _read_html(path: Path) -> pd.DataFrame:
    import pandas as pd

    return _one(dict(enumerate(pd.read_html(path))), path, "tables", "pandas.read_html({file!r})[{key}]")


def _read_zip(path: Path) -> pd.DataFrame:
    import pandas as pd

    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
        if "xl/workbook.xml" in names or {"content.xml", "mimetype"} <= set(names):
            return _read_excel(path)
        tables = [name for name in names if name.lower().endswith((".csv", ".tsv", ".tab"))]
        if len(tables) != 1:
            raise _refuse(f"{path}: a ZIP archive with {len(tables)} tables, expected one; unpack it, and upload a file of it")
        # cells stay texts, whose meaning the server decides as for any CSV
        return pd.read_csv(io.BytesIO(archive.read(tables[0])), sep="," if tables[0].lower().endswith(".csv") else "\t",
                           dtype=str, keep_default_na=False)


def _by(name: str, **options: object) -> Read:
    """Returns pandas' reader with that name."""
    def read(path: Path) -> pd.DataFrame:
        import pandas as pd

        frame: pd.DataFrame = getattr(pd, name)(path, **options)
        return frame

    return read


# By the first bytes of the files, as src/data/files/foreign_kind.cc names them: the kind, and how it is read.
_READERS: tuple[tuple[bytes, str, Read], ...] = (
    (b"PAR1", "a Parquet file", _by("read_parquet")),
    (b"ARROW1", "a Feather file", _by("read_feather")),
    (b"FEA1", "a Feather file", _by("read_feather")),
    (b"ORC", "an ORC file", _by("read_orc")),
    (b"\x89HDF", "an HDF5 file", _by("read_hdf")),
    (b"\xd0\xcf\x11\xe0", "an Excel file", _read_excel),
    (b"PK\x03\x04", "a ZIP archive", _read_zip),
    (_SAS7BDAT, "a SAS table", _by("read_sas", format="sas7bdat", encoding="infer")),
    (b"HEADER RECORD*******LIBRARY HEADER RECORD", "a SAS transport file",
     _by("read_sas", format="xport", encoding="latin-1")),
    (b"<stata_dta>", "a Stata file", _by("read_stata")),
    *((bytes([version, order, 1, 0]), "a Stata file", _by("read_stata"))
      for version in (0x71, 0x72, 0x73) for order in (1, 2)),
    (b"$FL2", "an SPSS file", _by("read_spss")),
    (b"$FL3", "an SPSS file", _by("read_spss")),
)
_REFUSED: tuple[tuple[bytes, str], ...] = (
    (b"\x80", "a Python pickle, which can run any program when it is read; if you trust it: "
              "trainyard.upload(pandas.read_pickle({file!r}), target=...)"),
    (b"SQLite format 3", "an SQLite database; upload one of its tables: trainyard.upload(pandas.read_sql('select * from "
                         "TABLE', sqlite3.connect({file!r})), target=...)"),
    (b"%PDF", "a PDF document, which pandas does not read; extract its table as CSV first"),
)


def _is_json_lines(path: Path, start: bytes) -> bool:
    """Returns whether the file has an object on each line, as the server reads it."""
    if path.name.lower().endswith((".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")):
        return True
    line, _, rest = start.partition(b"\n")
    try:
        return isinstance(json.loads(line), dict) and rest.lstrip().startswith(b"{")
    except ValueError:
        return False


def _read_json(path: Path) -> pd.DataFrame:
    import pandas as pd

    document = json.loads(path.read_bytes())
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        for orient in ("table", "split"):
            if ("schema" if orient == "table" else "columns") in document:
                return pd.read_json(path, orient=orient)
        return pd.json_normalize(document["data"])
    if isinstance(document, list) and document and isinstance(document[0], dict):
        return pd.json_normalize(document)
    return pd.read_json(path)


def _reader_of(path: Path, start: bytes) -> tuple[str, Read] | None:
    """Returns the kind of file and how pandas reads it; None for text that the server reads by itself."""
    for magic, kind, read in _READERS:
        if start.startswith(magic):
            return kind, read
    for magic, reason in _REFUSED:
        if start.startswith(magic):
            raise _refuse(f"{path}: {reason.format(file=str(path))}")
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.lower().startswith(_MARKUP):
        return "an HTML page", _read_html
    if text.startswith(b"<?xml"):
        return "an XML document", _by("read_xml")
    if text[:1] in (b"{", b"[") and not _is_json_lines(path, text):
        return "a JSON document", _read_json
    return None


def read_table(path: Path) -> pd.DataFrame | None:
    """Returns the table in a file; None for CSV and JSON lines, plain or gzip, which the server reads by itself.

    An index with names becomes columns. NotFoundError / FILE_NOT_FOUND; InvalidArgumentError / DATASET_INVALID for a file
    that pandas does not read or that has several tables; ImportError says what to install.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(_START_BYTES)
    except OSError as error:
        raise NotFoundError(f"{path}: {(error.strerror or str(error)).lower()}", reason="FILE_NOT_FOUND") from None
    found = _reader_of(path, start)
    if found is None:
        return None
    kind, read = found
    try:
        frame = read(path)
    except ImportError as error:
        raise ImportError(f"{path} is {kind}, which trainyard.upload reads by pandas: {error}") from None
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise _refuse(f"{path}: {kind} that pandas does not read: {error}") from None
    return frame.reset_index() if any(name is not None for name in frame.index.names) else frame


def is_json_lines(path: Path) -> bool:
    """Returns whether a file that read_table() leaves to the server has JSON lines; otherwise it has CSV."""
    with open(path, "rb") as file:
        start = file.read(_START_BYTES)
    return _is_json_lines(path, start.removeprefix(b"\xef\xbb\xbf").lstrip())
