"""Predicts without a server, with an exported model. Needs onnxruntime and NumPy."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard._encoding import Input, RowEncoder
from trainyard._onnx import export_onnx
from trainyard.errors import ConflictError, InvalidArgumentError, NotFoundError
from trainyard.predictions import Predictions, Rows, UnseenCategory, has_names, requests_of

if TYPE_CHECKING:
    import onnxruntime

_BATCH_ROWS = 256  # limits the memory of a table's one-hot columns
_DTYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(int64)": "int64"}


class LocalModel:
    """A trained model in this process, created by `load`. Thread-safe."""

    classes: tuple[str, ...]  # classification: the classes, in the order of the probabilities; else empty
    # the columns of a row, in the order of rows without names; empty for texts without a column name
    columns: tuple[str, ...]
    task: str  # "classification" or "regression"
    target: str  # the name of the predicted column; empty if it has none

    def __init__(self, session: onnxruntime.InferenceSession, metadata: Mapping[str, str]) -> None:
        """Called by `load`."""
        self._session = session
        self._encoder = RowEncoder(metadata, {one.name: Input(tuple(one.shape[1:]), _DTYPES[one.type])
                                              for one in session.get_inputs()})
        self.task = metadata["task"]
        self.target = metadata.get("target", "")
        self.classes = tuple(json.loads(metadata.get("classes", "[]")))
        self.columns = self._encoder.columns

    def __repr__(self) -> str:
        what = f" of {self.target}" if self.target else ""
        classes = f", {len(self.classes)} classes" if self.classes else ""
        return f"<trainyard.LocalModel: {self.task}{what}{classes}, by {self._encoder.accepted()}>"

    def predict(self, rows: Rows) -> Predictions:
        """Predicts what `Client.predict` predicts for the same rows, which have the same forms. Image files are
        refused: only the server decodes and resizes them as it did those of the training data.

        InvalidArgumentError / DATASET_INVALID names the row, from 0, and the column.
        """
        begin = time.monotonic_ns()
        labels: list[str] = []
        probabilities: list[tuple[float, ...]] = []
        values: list[float] = []
        unseen: list[UnseenCategory] = []
        unseen_count = 0
        ignored: tuple[str, ...] = ()
        output = "probabilities" if self.classes else "prediction"
        for request in requests_of("", rows):
            encoded = self._encoder.encode(request, has_names(rows), len(labels) + len(values))
            unseen += encoded.unseen
            unseen_count += encoded.unseen_count
            ignored = encoded.ignored_columns
            for first in range(0, encoded.count, _BATCH_ROWS):
                feeds = self._encoder.feeds(encoded, slice(first, first + _BATCH_ROWS))
                answers = self._session.run([output], feeds)[0]
                if self.classes:
                    labels += [self.classes[index] for index in answers.argmax(axis=1)]
                    probabilities += map(tuple, answers.tolist())
                else:
                    values += answers[:, 0].tolist()
        return Predictions(bool(self.classes), self.classes, tuple(labels), tuple(probabilities), tuple(values),
                           tuple(unseen), unseen_count, warm=True, compute_us=(time.monotonic_ns() - begin) // 1000,
                           ignored_columns=ignored)


def _open(file: Path) -> LocalModel:
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(os.fspath(file), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's error classes have no common base
        raise InvalidArgumentError(f"{file}: onnxruntime cannot read it: {error}", reason="MODEL_FILE_INVALID") from None
    metadata: dict[str, Any] = session.get_modelmeta().custom_metadata_map
    if metadata.get("task") in ("next_token", "reconstruction"):
        does = "continues text" if metadata["task"] == "next_token" else "reproduces its input"
        raise ConflictError(f"{file}: the model {does} and predicts no classes or numbers; run the file with "
                            "onnxruntime directly; docs/onnx.md describes its inputs and outputs",
                            reason="PREDICT_UNSUPPORTED")
    if "rows" not in metadata:
        raise InvalidArgumentError(f"{file}: does not describe how rows become its inputs; expected a file that "
                                   "'trainyard model export --format onnx' of this version has written, without --raw-rows",
                                   reason="MODEL_FILE_INVALID")
    return LocalModel(session, metadata)


def load(path: str | os.PathLike[str], *, program: str = "trainyard") -> LocalModel:
    """Returns a trained model that predicts in this process, without a server.

    path     an ONNX file of `trainyard model export --format onnx` or `trainyard local export`; or a folder of
             `trainyard model export` or `Client.download_model`, whose model.onnx is used, or if missing is created for
             this call
    program  the command line that creates it, as a name on the PATH or a file

    Needs onnxruntime, and for tokenizers of SentencePiece (bpe, unigram) also sentencepiece; ImportError says what to
    install. NotFoundError / FILE_NOT_FOUND; InvalidArgumentError / MODEL_FILE_INVALID; ConflictError /
    PREDICT_UNSUPPORTED for models that predict neither classes nor numbers.
    """
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        raise ImportError("trainyard.load needs onnxruntime: `pip install onnxruntime` installs it") from None
    place = Path(path)
    if place.is_file():
        return _open(place)
    if (place / "model.onnx").is_file():
        return _open(place / "model.onnx")
    if not (place / "model.json").is_file():
        what = "has neither model.onnx nor model.json" if place.is_dir() else "there is no such file"
        raise NotFoundError(f"{place}: {what}; expected an ONNX file or a folder that 'trainyard model export' has written",
                            reason="FILE_NOT_FOUND")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        export_onnx(program, place, file)
        return _open(file)
