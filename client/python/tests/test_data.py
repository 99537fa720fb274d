"""Tests of datasets from files, arrays and frames, of models and predictions, and of their errors."""

import hashlib
import json
import struct

import google_crc32c
import numpy as np
import pandas as pd
import pytest
from conftest import DIGITS, digits_spec
from test_jobs import refused

import trainyard
from trainyard import _rpc as rpc
from trainyard import data, v1

CSV = {"header": False, "target": "c64", "target_kind": "class", "image": [1, 8, 8]}


def test_upload_dataset_accepts_a_dataset_or_a_spec_and_sends_content_once(client):
    second = []
    alone = client.upload_dataset({"path": str(DIGITS), "csv": CSV}, name="digits")
    whole = client.upload_dataset(digits_spec(), name="digits", progress=second.append)
    assert alone == whole == client.dataset("digits") and not second
    assert alone.state == v1.Dataset.READY and list(alone.schema.image) == [1, 8, 8]
    assert alone.name in [d.name for d in client.datasets()]
    assert (alone.name, alone.version) == ("projects/default/datasets/digits@1", 1)
    job = client.check({**digits_spec(), "dataset": {"name": "digits"}})
    assert job.spec.dataset.name == alone.name
    assert [s.filename for s in alone.spec.sources] == ["digits.csv.gz"]


def test_progress_reaches_the_end_and_its_errors_are_raised(client, tmp_path):
    rows = np.random.default_rng(1).normal(size=(60_000, 3))
    path = tmp_path / "rows.csv"
    path.write_bytes(data.table_to_csv(rows, rows.sum(1)))
    spec = {"path": "rows.csv", "csv": {"target": "target"}}

    def stop(progress):
        if progress.done_bytes > 1 << 20:
            raise KeyError("stop here")
    with pytest.raises(KeyError, match="stop here"):
        client.upload_dataset(spec, folder=tmp_path, progress=stop)
    seen = []
    dataset = client.upload_dataset(spec, folder=tmp_path, progress=seen.append)
    assert dataset.schema.train_rows == 60_000 and not dataset.schema.classification
    total = path.stat().st_size
    assert {p.total_bytes for p in seen} == {total} and seen[-1].done_bytes == total
    assert [p.done_bytes for p in seen] == sorted(p.done_bytes for p in seen)
    assert seen[0].done_bytes == 3 << 20, "it went on behind the two chunks that the first try had brought"


def test_an_upload_continues_where_the_server_stopped(client, tmp_path):
    """A stream that ends before `finish` is only paused: the next one begins at the committed size."""
    text = b"a,b,target\n" + b"".join(b"%d,%d,%d\n" % (i, i * 7, i % 3) for i in range(150_000))
    (tmp_path / "long.csv").write_bytes(text)
    sha256 = hashlib.sha256(text).hexdigest()
    chunk = text[:1 << 20]
    paused = client._channel.send(rpc.UPLOAD_FILE, iter([
        v1.UploadFileRequest(start=dict(sha256=sha256, size_bytes=len(text), offset=0)),
        v1.UploadFileRequest(chunk=dict(offset=0, data=chunk, crc32c=google_crc32c.value(chunk)))]))
    assert not paused.complete and paused.committed_size == 1 << 20
    seen = []
    client.upload_dataset({"path": "long.csv", "csv": {"target": "target"}}, folder=tmp_path, progress=seen.append)
    assert seen[0].done_bytes == min(2 << 20, len(text)) and seen[-1].done_bytes == len(text)


def test_files_of_the_server_are_not_uploaded(client, daemon_folder):
    path = daemon_folder / "allowed/rows.csv"
    path.write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(30)))
    spec = {"server_path": str(path), "csv": {"target": "y"}}
    there = client.upload_dataset(spec, name="rows-on-server")
    assert there.schema.train_rows == 30 and there.spec.sources[0].server_path == str(path)
    assert client.upload_dataset(spec, name="rows-on-server").digest == there.digest
    sent = client.upload_dataset({"path": "rows.csv", "csv": {"target": "y"}}, folder=path.parent, name="rows-sent")
    assert sent.digest == there.digest
    job = client.submit({"dataset": spec, "model": {"mlp": {"hidden": [2]}},
                         "recipe": {"epochs": 1, "batch_size": 5, "optimizer": {"type": "sgd", "learning_rate": 0.1}}})
    assert client.wait(job).state == trainyard.JobState.SUCCEEDED
    error = refused(trainyard.TrainyardError,
                    lambda: client.upload_dataset({**spec, "server_path": "/etc/passwd"}), "operator allows")
    assert error.reason == "SERVER_PATH_OUTSIDE"
    refused(trainyard.InvalidArgumentError, lambda: client.upload_dataset({**spec, "path": "rows.csv"}), "server_path")


def test_datasets_that_are_refused(client, tmp_path):
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "bad.csv").write_text("x,y\n1,2\n3\n")
    spec = {"path": "bad.csv", "csv": {"target": "y"}}
    refused(trainyard.InvalidArgumentError, lambda: client.upload_dataset(spec, folder=tmp_path), "row 2", "line 3")
    refused(trainyard.InvalidArgumentError,
            lambda: client.upload_dataset({**spec, "path": "empty.csv"}, folder=tmp_path), "the file is empty")
    refused(trainyard.NotFoundError, lambda: client.upload_dataset({**spec, "path": "none.csv"}, folder=tmp_path))
    refused(trainyard.InvalidArgumentError, lambda: client.upload_dataset({"name": "digits"}), "names no files")
    refused(trainyard.InvalidArgumentError, lambda: client.upload_dataset({"path": "x", "cvs": {}}), "'csv'")
    refused(trainyard.NotFoundError, lambda: client.dataset("nobody"), "DATASET_NOT_FOUND")


def test_new_content_under_a_name_is_its_next_version(client):
    frame = pd.DataFrame({"a": range(40), "y": [i % 2 for i in range(40)]})
    first = client.upload_frame(frame, "y", name="versions")
    second = client.upload_frame(frame.assign(a=frame.a + 1), "y", name="versions")
    assert (first.version, second.version) == (1, 2) and second.digest != first.digest
    assert client.upload_frame(frame.assign(a=frame.a + 1), "y", name="versions").version == 2
    assert client.dataset("versions") == second and client.dataset("versions@1") == first == client.dataset(first)
    assert [d.version for d in client.datasets() if "/versions@" in d.name] == [2]
    assert [d.version for d in client.datasets(all_versions=True) if "/versions@" in d.name] == [2, 1]

    spec = {"model": {"mlp": {"hidden": [2]}},
            "recipe": {"epochs": 1, "batch_size": 5, "optimizer": {"type": "sgd", "learning_rate": 0.1}}}
    for dataset, version in (("versions@1", 1), ("versions", 2), ({"name": "versions@1"}, 1)):
        job = client.wait(client.submit({**spec, "dataset": dataset}))
        assert job.spec.dataset.name == f"projects/default/datasets/versions@{version}"
        assert client.model(job).dataset == job.spec.dataset.name
        assert client.evaluate(job, "versions@2").metrics["accuracy"] >= 0
    refused(trainyard.NotFoundError, lambda: client.submit({**spec, "dataset": "versions@3"}), "the versions 2, 1")
    refused(trainyard.InvalidArgumentError, lambda: client.submit({**spec, "dataset": "versions@new"}), "versions@2")
    refused(trainyard.InvalidArgumentError, lambda: client.upload_frame(frame, "y", name="versions@3"), "versions@3")
    refused(trainyard.InvalidArgumentError, lambda: client.upload_dataset(
        {"name": "versions@3", "path": "x.csv", "csv": {"target": "y"}}), "without @")

    client.delete_dataset("versions@1")
    refused(trainyard.NotFoundError, lambda: client.dataset("versions@1"), "the versions 2")
    assert client.upload_frame(frame, "y", name="versions").version == 3
    client.delete_dataset("versions")
    refused(trainyard.NotFoundError, lambda: client.dataset("versions"))


def test_a_frame_keeps_its_columns_kinds(client):
    frame = pd.DataFrame({
        "age": [22.0, None, 35.5, 41.0] * 10,
        "class code": pd.Categorical([1, 2, 3, 1] * 10),
        "port, of": ["S", "C \"x\"", "line\nbreak", None] * 10,
        "id": range(40),
        "alive": ["no", "yes"] * 20,
    }, index=range(100, 140))
    dataset = client.upload_frame(frame, "alive", ignore=["id"], test=frame.head(8))
    columns = {c.name: c for c in dataset.schema.columns}
    assert list(dataset.schema.classes) == ["no", "yes"]
    assert set(columns) == {"age", "class code", "port, of"}
    assert not columns["age"].categorical and columns["age"].missing_count == 10
    assert columns["class code"].categorical and list(columns["class code"].categories) == ["1", "2", "3"]
    assert list(columns["port, of"].categories) == ['C "x"', "S", "line\nbreak"]
    assert (dataset.schema.train_rows, dataset.schema.test_rows) == (40, 8)
    assert list(dataset.schema.class_counts) == [20, 20]
    assert list(columns["class code"].category_counts) == [20, 10, 10]
    assert (columns["age"].numbers.min, columns["age"].numbers.max) == (22.0, 41.0)
    refused(trainyard.InvalidArgumentError, lambda: client.upload_frame(frame, "dead"), "'dead' is not a column", "age")
    refused(trainyard.InvalidArgumentError, lambda: client.upload_frame(frame, "alive", catgorical=["age"]),
            "did you mean 'categorical'")
    refused(trainyard.InvalidArgumentError, lambda: client.upload_frame(frame, "alive", delimiter=";"), "delimiter")
    refused(trainyard.InvalidArgumentError, lambda: client.upload_frame(frame.head(0), "alive"), "0 rows")
    doubled = pd.DataFrame([[1, 2]], columns=["y", "y"])
    refused(trainyard.InvalidArgumentError, lambda: client.upload_frame(doubled, "y"), "duplicate column names: y")


def test_dates_of_a_frame_are_dates(client):
    when = pd.date_range("2026-01-05", periods=40, freq="7h", tz="Europe/Berlin")
    frame = pd.DataFrame({"when": when, "day": when.tz_localize(None).normalize(), "y": [0, 1] * 20})
    columns = {c.name: c for c in client.upload_frame(frame, "y").schema.columns}
    # the column "day" has no times of day, which would give two more numbers
    assert len(columns) == 7 + 5 and all(c.date for c in columns.values())
    assert columns["when.days"].numbers.min == pytest.approx(20458 - 1 / 24, abs=0.002)
    ignored = client.upload_frame(frame, "y", ignore=["when"]).schema.columns
    assert [c.name for c in ignored][0] == "day.days" and len(ignored) == 5


def test_a_model_of_frames_matches_columns_by_name(client):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": rng.normal(size=400), "b": rng.choice(["u", "v"], 400)})
    frame["price"] = 3 * frame["a"] + (frame["b"] == "u") * 2 + 10
    dataset = client.upload_frame(frame, "price", target_kind="numeric")
    job = client.submit({"dataset": {"name": dataset.name.rpartition("/")[2]}, "model": {"mlp": {"hidden": [32]}},
                         "recipe": {"epochs": 40, "batch_size": 20, "optimizer": {"type": "adam", "learning_rate": 0.01}}})
    job = client.wait(job)
    by_name = client.predict(job, frame[["b", "a"]])
    assert not by_name.classification and by_name.labels == () and len(by_name) == 400
    assert np.abs(by_name.to_numpy() - frame["price"]).mean() < 0.3
    assert list(by_name.to_frame().columns) == ["prediction"]
    assert client.predict(job, frame[["a", "b"]].values.tolist()) == by_name
    assert client.predict(job, frame[["b", "a"]].to_dict("records")) == by_name
    assert client.predict(job, frame[["a", "b"]].values.tolist()).warm, "the worker of the first call stays"
    refused(trainyard.InvalidArgumentError, lambda: client.predict(job, frame[["a"]]), "DATASET_INVALID")
    refused(trainyard.InvalidArgumentError, lambda: client.predict(job, [{"a": 1, "b": "u"}, {"a": 1}]), "rows[1]")
    assert client.predict(job, [{"a": None, "b": float("nan")}]).values[0] == pytest.approx(10, abs=3)


@pytest.mark.parametrize(("scale", "dtype"), [(1, np.uint8), (1, np.int64), (1 / 16, np.float32), (1 / 16, np.float64)])
def test_arrays_of_images(client, digits, scale, dtype):
    x, y = (digits[0].reshape(-1, 8, 8) * scale).astype(dtype), digits[1]
    dataset = client.upload_arrays(x[:1500], y[:1500], test_x=x[1500:], test_y=y[1500:])
    assert list(dataset.schema.image) == [1, 8, 8] and len(dataset.schema.classes) == 10
    assert (dataset.schema.train_rows, dataset.schema.test_rows) == (1500, 297)
    spec = {**digits_spec(), "dataset": {"name": dataset.name.rpartition("/")[2]}}
    job = client.wait(client.submit(spec))
    predictions = client.predict(job, x[1500:])
    right = np.mean([int(label) == truth for label, truth in zip(predictions.labels, y[1500:])])
    assert right == pytest.approx(job.progress.metrics["test/accuracy"], abs=1e-9) and right > 0.8
    assert predictions.to_numpy().shape == (297, 10)
    assert np.allclose(predictions.to_numpy().sum(1), 1, atol=1e-5)


def test_arrays_of_numbers(client, digits):
    x = digits[0] / 16
    x[3, 5] = np.nan
    dataset = client.upload_arrays(x, digits[1], target_kind="class")
    assert dataset.schema.columns[5].missing_count == 1 and len(dataset.schema.columns) == 64
    assert len(dataset.schema.classes) == 10
    names = np.array(["cat", "dog"])[digits[1] % 2]
    assert list(client.upload_arrays(x, names).schema.classes) == ["cat", "dog"]


def test_arrays_that_are_refused(client):
    images, labels = np.zeros((4, 8, 8), np.uint8), np.arange(4)
    for x, y, word in ((images + 0.5, labels[:3], "as many labels"), (images.astype(int) - 1, labels, "0..255"),
                       (images * 1j, labels, "complex"), (images * np.nan, labels, "NaN"), (images, labels - 1, "-1"),
                       (images, labels + 0.5, "whole numbers"), (images[0, 0], labels, "shape"),
                       (images.astype(float) + 1e300, labels, "32-bit"), (images[:0], labels[:0], "N >= 1"),
                       (np.array([["a"]]), np.array([1]), "DataFrame")):
        refused(trainyard.InvalidArgumentError, lambda: client.upload_arrays(x, y), word)
    refused(trainyard.InvalidArgumentError, lambda: client.upload_arrays(images, labels, test_x=images), "both or neither")
    refused(trainyard.InvalidArgumentError, lambda: client.upload_arrays(images, labels, target_kind="numeric"), "class")


def test_every_number_reads_back_the_same():
    narrow = np.float32([[0.1, 16777217, 1e-45, np.nan, -0.0]])
    wide = narrow.astype(np.float64) / 3
    for rows in (narrow, wide, np.array([[1, -2, 2**62, 0, 3]]), np.array([[True, False]])):
        text = data.table_to_csv(rows).decode().strip()
        back = np.array([[float(f) if f else np.nan for f in text.split(",")]]).astype(rows.dtype)
        assert np.array_equal(back, rows, equal_nan=rows.dtype.kind == "f")
    big = data.labels_to_idx(np.array([1, 300]))
    assert struct.unpack(">BBBBIii", big) == (0, 0, 0x0C, 1, 2, 1, 300)


def test_predict_gives_the_same_for_lists_arrays_and_frames(client, trained, digits):
    pixels, labels = digits
    wanted = client.predict(trained, pixels)
    assert sum(int(a) == b for a, b in zip(wanted.labels, labels)) > 1700
    assert wanted.classification and wanted.values == () and wanted.classes == tuple(str(i) for i in range(10))
    images = pixels.reshape(-1, 8, 8)
    frame = pd.DataFrame(pixels, columns=[f"c{i}" for i in range(64)])
    for rows in (pixels.astype(np.float32), images.astype(np.uint8), images.astype(float), images[:, None], frame,
                 frame[frame.columns[::-1]], pixels.tolist(), [tuple(row) for row in pixels.tolist()], list(pixels)):
        assert client.predict(trained, rows) == wanted
    table = wanted.to_frame()
    assert list(table.columns) == ["prediction", *(f"p_{i}" for i in range(10))] and len(table) == 1797
    assert client.predict(client.model(trained), pixels[:1]).labels == wanted.labels[:1]
    assert client.predict("trained", pixels[:1]).labels == wanted.labels[:1]


def test_many_rows_are_sent_in_pieces(client, trained, digits, monkeypatch):
    pixels = digits[0][:100]
    whole = client.predict(trained, pixels)
    monkeypatch.setattr("trainyard.predictions.REQUEST_BYTES_MAX", 5000)
    for rows in (pixels, pixels.tolist(), pixels.reshape(-1, 8, 8)):
        assert client.predict(trained, rows) == whole
    monkeypatch.setattr("trainyard.predictions.REQUEST_BYTES_MAX", 50)
    refused(trainyard.InvalidArgumentError, lambda: client.predict(trained, digits[0]), "expected at most 50")


def test_rows_that_are_refused(client, trained, digits):
    row = digits[0][0].tolist()
    for rows, word in (([], "is empty"), ([row[:-1]], "63 fields"), ([[*row[:-1], "x"]], "'x'"), ([row, "text"], "one kind"),
                       ("text", "a str"), (7, "a int"), ([1, 2], "a int"), (np.zeros(64), "shape"),
                       (np.zeros((2, 9, 9), np.uint8), "expected U8 of"), ([[*row[:-1], 300]], "300"), (["a b"], "text")):
        refused(trainyard.InvalidArgumentError, lambda: client.predict(trained, rows), word)
    assert refused(trainyard.NotFoundError, lambda: client.predict("nobody", [row])).reason == "MODEL_NOT_FOUND"


def test_texts(client):
    good, bad = ["what a fine day", "fine and good", "good, good"], ["awful rain", "what awful noise", "a bad, awful day"]
    frame = pd.DataFrame({"said": (good + bad) * 20, "mood": (["up"] * 3 + ["down"] * 3) * 20})
    dataset = client.upload_frame(frame, "mood", text=["said"], max_length=8)
    job = client.wait(client.submit({
        "dataset": {"name": dataset.name.rpartition("/")[2]}, "model": {"embedding_bag_classifier": {"embedding_dim": 8}},
        "recipe": {"epochs": 20, "batch_size": 20, "optimizer": {"type": "adam", "learning_rate": 0.05}}}))
    assert client.predict(job, good + bad).labels == ("up",) * 3 + ("down",) * 3
    assert client.predict(job, pd.DataFrame({"said": ["fine\nday"]})).labels == ("up",)
    refused(trainyard.InvalidArgumentError, lambda: client.predict(job, ["a", "b\nc"]), "rows[1]", "line break")


def test_download_model(client, trained, tmp_path):
    seen = []
    paths = client.download_model(trained, tmp_path / "deep/model", progress=seen.append)
    assert sorted(p.name for p in paths) == ["model.json", "model.safetensors"]
    assert sorted(p.name for p in (tmp_path / "deep/model").iterdir()) == ["model.json", "model.safetensors"]
    blob = (tmp_path / "deep/model/model.safetensors").read_bytes()
    assert hashlib.sha256(blob).hexdigest() == client.model(trained).digest
    (size,) = struct.unpack("<Q", blob[:8])
    assert max(t["data_offsets"][1] for k, t in json.loads(blob[8:8 + size]).items() if k != "__metadata__") \
        == len(blob) - 8 - size
    assert "preprocessing" in json.loads((tmp_path / "deep/model/model.json").read_text())
    assert seen[-1].done_bytes == seen[-1].total_bytes
    refused(trainyard.NotFoundError, lambda: client.download_model("nobody", tmp_path / "none"), "MODEL_NOT_FOUND")
    assert not (tmp_path / "none").exists()


def test_a_damaged_download_leaves_no_file(client, trained, tmp_path, monkeypatch):
    honest = rpc.Stream.__next__

    def flip(stream):
        message = honest(stream)
        if message.WhichOneof("kind") == "data":
            message.data = bytes([message.data[0] ^ 1]) + message.data[1:]
        return message
    monkeypatch.setattr(rpc.Stream, "__next__", flip)
    error = refused(trainyard.InternalError, lambda: client.download_model(trained, tmp_path), "does not match")
    assert error.reason == "CONTENT_HASH_MISMATCH" and list(tmp_path.iterdir()) == []


def test_models_are_listed_and_deleted(client):
    job = client.wait(client.submit(digits_spec(epochs=1)))
    assert job.model in [m.name for m in client.models()] and client.models(limit=1)[0].name == job.model
    client.delete_model(job)
    refused(trainyard.NotFoundError, lambda: client.model(job), "MODEL_NOT_FOUND")
    assert client.job(job).state == trainyard.JobState.SUCCEEDED


def test_a_job_starts_from_the_weights_of_a_file(client, trained, tmp_path):
    weights, _ = client.download_model(trained, tmp_path)
    model = client.upload_weights(weights, name="file-weights")
    assert model.job == "" and {t.name for t in model.tensors} == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}
    assert client.upload_weights(weights, name="file-weights") == model
    assert client.model("file-weights").tensor_count == 4
    assert not next(m for m in client.models() if m.name == model.name).tensors
    # The model is given by its name, and by a path in the spec, which is relative to the folder.
    by_name = client.check(digits_spec(initial_weights={"model": "file-weights"}))
    by_path = client.check(digits_spec(initial_weights={"path": "model.safetensors"}), folder=tmp_path)
    for job in (by_name, by_path):
        assert job.plan.initial_weights.taken.count == 4
    assert by_path.spec.recipe.initial_weights.path == ""
    lora = client.plan(digits_spec(initial_weights={"model": "file-weights"}, lora={"rank": 2, "targets": ["fc1"]}))
    assert lora.run.trained_parameter_count == 2 * (64 + 64)
    refused(trainyard.InvalidArgumentError, lambda: client.check(digits_spec(lora={"rank": 2, "targets": ["fc9"]})),
            "'fc9' matches no gemm or linear layer")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\x07" + bytes(7) + b"{}")
    refused(trainyard.InvalidArgumentError, lambda: client.upload_weights(broken), "safetensors")
    refused(trainyard.ConflictError, lambda: client.predict("file-weights", [[0.0] * 64]), "weights only")
    client.delete_model("file-weights")


def test_column_names_are_converted_to_text(client):
    frame = pd.DataFrame({0: [i * 1.5 for i in range(40)], 1: ["a", "b"] * 20, 2: range(40), 4: [0, 1] * 20})
    dataset = client.upload_frame(frame, 4, target_kind="class", ignore=2, categorical=[1])
    assert [column.name for column in dataset.schema.columns] == ["0", "1"] and dataset.schema.target == "4"
    spec = {"dataset": {"name": dataset.name}, "model": {"mlp": {"hidden": [4]}},
            "recipe": {"steps": 2, "batch_size": 8, "optimizer": {"learning_rate": 0.1}}}
    job = client.wait(client.submit(spec))
    wanted = client.predict(job, frame[[0, 1]])
    assert client.predict(job, frame[[1, 0]].to_dict("records")) == wanted
    assert client.predict(job, frame[[1, 0]].to_dict("list")) == wanted


def test_unsupported_cell_values_are_refused_with_a_remedy(client, trained):
    def wrong(values, *words):
        frame = pd.DataFrame({"x": values, "y": [0, 1] * (len(values) // 2)})
        refused(trainyard.InvalidArgumentError, lambda: client.upload_frame(frame, "y"), "column 'x'", *words)
        refused(trainyard.InvalidArgumentError, lambda: client.predict(trained, frame), "column 'x'", *words)
        refused(trainyard.InvalidArgumentError, lambda: client.predict(trained, [[value] for value in values]), *words[1:])

    wrong([None, [1, 2]] * 2, "row 1", "a list in a cell", "tolist()")
    wrong([np.array([1, 2])] * 2, "row 0", "a ndarray in a cell", "tolist()")
    wrong([{"a": 1}] * 2, "row 0", "a dict in a cell", "json_normalize")
    wrong([b"a", "b"], "row 0", "bytes in a cell", "decode()")
    refused(trainyard.InvalidArgumentError, lambda: client.predict(trained, [[0] * 64, [0] * 63 + [[1]]]), "rows[1]")
    # Every kind of missing value counts as missing.
    missing = [[None] * 64, [float("nan")] * 64, [pd.NA] * 64, [pd.NaT] * 64]
    refused(trainyard.InvalidArgumentError, lambda: client.predict(trained, missing), "needs all pixels")


def test_unsupported_frames_are_refused_with_a_remedy(client, trained):
    levels = pd.DataFrame([[1, 2], [3, 4]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("y", "")]))
    for target in ("y", ("y", "")):
        refused(trainyard.InvalidArgumentError, lambda t=target: client.upload_frame(levels, t), "MultiIndex", "'_'.join")
    refused(trainyard.InvalidArgumentError, lambda: client.predict(trained, levels), "MultiIndex", "'_'.join")
    for other in ({"x": [1], "y": [0]}, [{"x": 1, "y": 0}], pd.Series([1, 2])):
        refused(trainyard.InvalidArgumentError, lambda o=other: client.upload_frame(o, "y"), "expected a pandas DataFrame",
                "pandas.DataFrame(...)")
    spec = {"dataset": pd.DataFrame({"y": [1]}), "model": {"mlp": {}}}
    refused(trainyard.InvalidArgumentError, lambda: client.submit(spec), "DataFrame", "Client.upload_frame")
    spec["dataset"] = trainyard.v1.Dataset()
    refused(trainyard.InvalidArgumentError, lambda: client.submit(spec), "dataset.name")
