"""Predictions without a server, by an exported model. Needs onnxruntime and NumPy."""

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

_BATCH_ROWS = 256  # bounds the memory of a table's one-hot columns
_DTYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(int64)": "int64"}


class LocalModel:
    """A trained model in this process: see `load`. Thread-safe."""

    classes: tuple[str, ...]  # of a classification, in the order of the probabilities, else empty
    columns: tuple[str, ...]  # that rows have, in the order of rows without names; empty for texts without a name
    task: str  # "classification" or "regression"
    target: str  # the column that it predicts; empty if that has no name

    def __init__(self, session: onnxruntime.InferenceSession, metadata: Mapping[str, str]) -> None:
        """For `load`."""
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
        """What `Client.predict` answers for the same rows; see there what they may be. Image files are refused: only the
        server decodes and resizes them as it did those of the training data.

        InvalidArgumentError / DATASET_INVALID names the row, from 0, and the column.
        """
        begin = time.monotonic_ns()
        labels: list[str] = []
        probabilities: list[tuple[float, ...]] = []
        values: list[float] = []
        unseen: list[UnseenCategory] = []
        unseen_count = 0
        output = "probabilities" if self.classes else "prediction"
        for request in requests_of("", rows):
            encoded = self._encoder.encode(request, has_names(rows), len(labels) + len(values))
            unseen += encoded.unseen
            unseen_count += encoded.unseen_count
            for first in range(0, encoded.count, _BATCH_ROWS):
                feeds = self._encoder.feeds(encoded, slice(first, first + _BATCH_ROWS))
                answers = self._session.run([output], feeds)[0]
                if self.classes:
                    labels += [self.classes[index] for index in answers.argmax(axis=1)]
                    probabilities += map(tuple, answers.tolist())
                else:
                    values += answers[:, 0].tolist()
        return Predictions(bool(self.classes), self.classes, tuple(labels), tuple(probabilities), tuple(values),
                           tuple(unseen), unseen_count, warm=True, compute_us=(time.monotonic_ns() - begin) // 1000)


def _open(file: Path) -> LocalModel:
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(os.fspath(file), providers=["CPUExecutionProvider"])
    except Exception as error:  # its classes have no base of their own
        raise InvalidArgumentError(f"{file}: onnxruntime cannot read it: {error}", reason="MODEL_FILE_INVALID") from None
    metadata: dict[str, Any] = session.get_modelmeta().custom_metadata_map
    if metadata.get("task") in ("next_token", "reconstruction"):
        does = "continues text" if metadata["task"] == "next_token" else "reproduces its input"
        raise ConflictError(f"{file}: the model {does} and predicts no classes or numbers; run the file with onnxruntime "
                            "itself, docs/onnx.md describes its inputs and outputs", reason="PREDICT_UNSUPPORTED")
    if "rows" not in metadata:
        raise InvalidArgumentError(f"{file}: does not say how rows become its inputs; expected a file that "
                                   "'trainyard model export --format onnx' of this version has written, without --raw-rows",
                                   reason="MODEL_FILE_INVALID")
    return LocalModel(session, metadata)


def load(path: str | os.PathLike[str], *, program: str = "trainyard") -> LocalModel:
    """A trained model that predicts in this process, without a server.

    path     an ONNX file of `trainyard model export --format onnx` or `trainyard local export`; or a folder of `trainyard
             model export` or `Client.download_model`. Its model.onnx is used, or else one is made for this call
    program  the command line that makes it, a name on the PATH or a file

    Needs onnxruntime; models whose tokenizer is SentencePiece's (bpe, unigram) also sentencepiece. ImportError says what
    to install. NotFoundError / FILE_NOT_FOUND; InvalidArgumentError / MODEL_FILE_INVALID; ConflictError /
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
