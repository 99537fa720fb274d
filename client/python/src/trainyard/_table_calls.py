"""Calls that upload tables: files of any format that pandas reads, and DataFrames."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trainyard import data, v1
from trainyard._tables import is_json_lines, read_table
from trainyard._upload import Content, Observer
from trainyard.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pandas as pd

Table: TypeAlias = "str | os.PathLike[str] | pd.DataFrame"
_Sources: TypeAlias = "Sequence[tuple[v1.DatasetSource.Role, Content]]"


class TableCalls:
    """The calls of `Client` that upload tables."""

    upload_dataset: Callable[..., v1.Dataset]
    _csv_spec: Callable[[Mapping[str, object]], v1.DatasetSpec]
    _create_dataset: Callable[[str | None, v1.DatasetSpec, _Sources, Observer | None], v1.Dataset]

    def upload(self, table: Table, target: Hashable, *, name: str | None = None, test: Table | None = None,
               progress: Observer | None = None, **options: object) -> v1.Dataset:
        """Uploads a table, a file or a pandas DataFrame, as a dataset with the target column `target`; `test` has the rows
        of a test set.

        CSV and JSON lines are sent as they are. Files that the server does not read are read by pandas and sent as CSV:
        Parquet, Excel, OpenDocument, Feather, ORC, HDF5, SAS, Stata, SPSS, HTML, XML, JSON documents, and ZIP archives of
        one CSV. pandas needs further packages for some of them; ImportError names them. An index with names becomes
        columns. A file with several sheets or tables is refused, and the error lists them.

        `options` are the fields of `dataset.csv` in docs/job_spec.md, as for `upload_frame`.
        Returns and raises the same as `upload_dataset`.
        """
        given = [table] if test is None else [table, test]
        frames = [read_table(Path(one)) if isinstance(one, (str, os.PathLike)) else one for one in given]
        if all(frame is not None for frame in frames):
            return self.upload_frame(frames[0], target, name=name, test=frames[1] if len(frames) > 1 else None,
                                     progress=progress, **options)
        if any(frame is not None for frame in frames):
            raise InvalidArgumentError("table and test: one is sent as it is, the other is read by pandas; expected both as "
                                       "files of one format, or both as DataFrames", reason="FIELD_UNSUPPORTED")
        paths = [os.path.abspath(one) for one in given if isinstance(one, (str, os.PathLike))]
        files = dict(zip(("path", "test_path"), paths))
        form = "jsonl" if is_json_lines(Path(paths[0])) else "csv"
        return self.upload_dataset({**files, form: {**options, "target": str(target)}}, name=name, progress=progress)

    def upload_frame(self, frame: pd.DataFrame, target: Hashable, *, name: str | None = None,
                     test: pd.DataFrame | None = None, progress: Observer | None = None,
                     **options: object) -> v1.Dataset:
        """Uploads a pandas DataFrame as a dataset with the target column `target`; `test` has the rows of a test set.

        `options` are the fields of `dataset.csv` in docs/job_spec.md: target_kind="class", categorical=[...],
        ignore=[...], date=[...], image=[C, H, W], text=[...], tokenizer, vocabulary_size, max_length. Without
        `categorical`, columns of pandas' category type are categories; without `date`, columns of pandas' date types
        are dates. The index is left out. Column names that are not text, such as numbers, are converted to text.
        Returns and raises the same as `upload_dataset`.
        """
        data.check_frame(frame)
        target = str(target)
        if target not in map(str, frame.columns):
            raise InvalidArgumentError(f"target: '{target}' is not a column, expected one of "
                                       f"{', '.join(map(str, frame.columns[:20]))}", reason="DATASET_INVALID")
        for fixed in ("header", "delimiter", "target"):
            if fixed in options:
                raise InvalidArgumentError(f"{fixed}: not an option for a frame", reason="FIELD_UNKNOWN")
        columns = {option: [str(column) for column in (given if isinstance(given, (list, tuple)) else [given])]
                   for option, given in options.items() if option in ("categorical", "date", "ignore", "text")}
        csv = {**options, **columns, "target": target}
        left_out = {target, *columns.get("ignore", ())}
        if not {"categorical", "date", "image", "text"} & options.keys():
            csv["date"] = [column for column in data.frame_dates(frame) if column not in left_out]
        if not {"categorical", "image", "text"} & options.keys():
            csv["categorical"] = [column for column in data.frame_categories(frame) if column not in left_out]
        role = v1.DatasetSource.Role
        sources = [(role.DATA, Content("frame.csv", data.frame_to_csv(frame)))]
        if test is not None:
            sources.append((role.TEST, Content("test.csv", data.frame_to_csv(test))))
        return self._create_dataset(name, self._csv_spec(csv), sources, progress)
