"""Tests that a model of `trainyard.load` predicts in this process what the server predicts for the same raw rows."""

import builtins
import json
import random
import subprocess

import numpy as np
import pandas as pd
import pytest
from conftest import PROGRAM, SOURCE, digits_spec
from test_jobs import refused

import trainyard
from trainyard import v1
from trainyard._cells import NumberReader, category_reader, csv_records, read_date, read_number
from trainyard._encoding import ROWS_VERSION, RowEncoder
from trainyard.data import table_to_csv, values_to_csv

pytest.importorskip("onnxruntime", reason="needs onnxruntime (pip install 'client/python[test]')")

RECIPE = {"steps": 40, "batch_size": 8, "seed": 3, "optimizer": {"type": "adam", "learning_rate": 0.01}}


def trips(count=80):
    """Returns rows with gaps in the numbers, numbers far from 0, categories of text and of numbers, and dates with and
    without times."""
    days = pd.Timestamp("2023-12-20") + pd.to_timedelta([37 * i % 400 for i in range(count)], unit="D")
    hours = pd.Timestamp("2024-02-28T03:10:00.25") + pd.to_timedelta([7.5 * i for i in range(count)], unit="h")
    return pd.DataFrame({
        "year": [190000 + i % 5 for i in range(count)],
        "age": [None if i % 9 == 4 else i * 7 % 61 + 0.5 for i in range(count)],
        "port": [["S", "C, north", 'the "Q"', None][i % 4] for i in range(count)],
        "note": ["left out"] * count,
        "day": days,
        "deck": pd.Categorical([i % 3 for i in range(count)]),
        "left_at": hours,
        "price": [1000 + 13.5 * (i % 17) + i % 3 for i in range(count)],
        "late": [["no", "yes"][i * i % 3 % 2] for i in range(count)]})


def export(folder, name):
    file = folder / f"{name}.onnx"
    subprocess.run([PROGRAM, "model", "export", name, "--format", "onnx", "--out", file], check=True, capture_output=True)
    return file


@pytest.fixture(scope="module")
def train(client, daemon, tmp_path_factory):
    """Returns a function that trains a small model and returns its name and the loaded export."""
    folder = tmp_path_factory.mktemp("exports")

    def run(name, dataset, model, **recipe):
        spec = {"dataset": {"name": dataset.name} if hasattr(dataset, "name") else dataset, "model": model,
                "recipe": {**RECIPE, **recipe}}
        client.wait(client.submit(spec, name=name))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRAINYARD_SERVER", f"unix:{daemon.socket}")
            return name, trainyard.load(export(folder, name))
    return run


@pytest.fixture(scope="module")
def late(client, train):
    data = client.upload_frame(trips().drop(columns="price"), "late", name="trips", ignore=["note"])
    return train("late", data, {"mlp": {"hidden": [8]}})


def same(client, model, rows):
    name, local = model
    there, here = client.predict(name, rows), local.predict(rows)
    assert here.labels == there.labels and here.classes == there.classes
    assert here.unseen == there.unseen and here.unseen_count == there.unseen_count
    assert here.ignored_columns == there.ignored_columns
    expected = there.to_numpy()
    assert here.to_numpy().shape == expected.shape
    scale = 1.0 if there.classification else np.abs(expected).max()
    assert np.abs(here.to_numpy() - expected).max() / scale < 1e-5
    # predictions that are all equal would prove nothing
    assert len(expected) == 1 or np.ptp(expected, axis=0).max() > 1e-4 * scale
    return here


def test_rows_of_a_table_are_read_as_on_the_server(client, late):
    frame = trips(40).drop(columns=["price", "note"])
    odd = pd.DataFrame({"year": [190001, None, 190002.5], "age": ["1e1", " +7 ", ".5"], "port": ["S", "Z", "  "],
                        "day": ["2024-02-29", None, "2021-12-31T23:30-05:30"], "deck": ["1", "7", "01"],
                        "left_at": ["2024-12-31 23:59:59,5", "2024-01-01T00:15:00+02", "2023-06-01"]})
    for rows in (frame, frame.drop(columns="late"), odd, pd.concat([odd.iloc[:, ::-1], odd.iloc[:2]])):
        same(client, late, rows)
    assert [(one.row, one.column, one.value) for one in same(client, late, odd).unseen] == [
        (1, "port", "Z"), (1, "deck", "7"), (2, "deck", "01")]
    dicts = [{"year": 190003, "age": None, "port": "C, north", "day": "2024-05-06", "deck": 2, "left_at": float("nan")},
             {"year": 190001, "age": 40, "port": None, "day": "", "deck": "0", "left_at": "2024-05-06T07:08:09Z"}]
    same(client, late, dicts)
    same(client, late, {key: [row[key] for row in dicts] for key in dicts[0]})
    capitals = [{"Nr": 1, **{key.upper(): value for key, value in row.items()}, "LATE": "no"} for row in dicts]
    assert same(client, late, capitals).ignored_columns == ("Nr",)
    lists = [list(row.values()) for row in dicts]
    same(client, late, lists)
    same(client, late, [list(dicts[0]), *lists])  # the first row contains the column names
    same(client, late, [row[:3] + ["a note"] + row[3:] + ["yes"] for row in lists])  # with all columns of the file


NUMBERS = ["1", "-2.5", "+3", "5.", ".5", "1e3", "1E-400", "-0", "", "NA", "nan", "?", None, float("nan"), np.float32(0.1),
           np.int64(3), "0.1234567890123456789", pd.NA, "N/A", "null", "NAN", "\N{MINUS SIGN}2.5"]
CATEGORIES = ["S", "C, north", 'the "Q"', " S", "s", "", "NA", "?", "new\nline", "ü" * 40, None, 1, 1.0, True]
DATES = ["2024-02-29", "2024-01-01T10:20", "2024-01-01 10:20:30.5", "2024-01-01t10:20:30,25Z", "", "NA", None, pd.NaT,
         "2024-01-01T10:20:30+01:00", "2024-01-01T10:20-0530", "2024-01-01T10:20+05", pd.Timestamp("2024-05-06 07:08:09.1"), "N/A", "6-Aug-09", "Aug. 6, 2009 2:30 PM", "2012/1/5"]
NO_NUMBERS = [" 4 ", "\t7", True, "1_0", "0x1", "1,5", "inf", "１", "1e", "+", "--1", "1e39", "1 2", "-nan", "yes"]
NO_DATES = ["2023-02-29", "2024-1-1", "2024-01-01T24:00", "2024-01-01T10", "2024-01-01Z", "20240101", "2024-01-01T10:20:60",
            "2024-01-01T10:20 Z", "1.2.2024"]


def test_random_cells_are_read_as_on_the_server(client, late):
    name, model = late
    draw = random.Random(0)
    refusals = 0
    for trial in range(120):
        odd = trial % 3 == 0  # a third of the trials has values that must be refused
        numbers, dates = (NUMBERS + NO_NUMBERS, DATES + NO_DATES) if odd else (NUMBERS, DATES)
        rows = [{"year": draw.choice(numbers), "age": draw.choice(numbers), "port": draw.choice(CATEGORIES),
                 "day": draw.choice(dates), "deck": draw.choice(CATEGORIES), "left_at": draw.choice(dates)}
                for _ in range(draw.randint(1, 4))]
        answers = []
        for predict in (lambda: client.predict(name, rows), lambda: model.predict(rows)):
            try:
                answers.append(predict())
            except trainyard.InvalidArgumentError as error:
                answers.append(error)
        there, here = answers
        assert type(there) is type(here), (rows, there, here)
        if isinstance(here, trainyard.InvalidArgumentError):
            refusals += 1
            assert odd and here.message.partition("column")[2] == there.message.partition("column")[2], (rows, there, here)
        else:
            assert here.unseen == there.unseen and np.abs(here.to_numpy() - there.to_numpy()).max() < 1e-5, rows
    assert 10 < refusals <= 40


def test_cells_mean_what_they_mean_in_the_training_file(client, train, tmp_path):
    rows = [f"{i % 7},5;{i * 3 % 40} kg;{('True', 'true', 'FALSE')[i % 3]};{i % 28 + 1}.02.2024;{i % 4};{1700000000 + i};"
            f"{i * 5 % 24}:30;{1000000000 + i * 7 % 50}" for i in range(60)]
    file = tmp_path / "spelled.csv"
    file.write_text("\n".join(["size;weight;member;day;kind;at;time;price", *rows]) + "\n")
    options = {"delimiter": ";", "decimal": ",", "numbers": ["weight"], "date": ["day", "time"], "categorical": ["kind"],
               "target": "price", "target_kind": "numeric"}
    name, local = train("spelled", {"path": str(file), "csv": options}, {"mlp": {"hidden": [8]}})
    rows = [{"size": 1.5, "weight": "3 kg", "member": "T", "day": "03.02.2024", "kind": 1.0, "at": 1700000005, "time": "9:30"},
            {"size": "2,5", "weight": 4, "member": False, "day": "2024-02-05", "kind": "2", "at": 1700000059, "time": "12:00"},
            {"size": "-1", "weight": "(3)", "member": None, "day": "N/A", "kind": "3e0", "at": None, "time": "11:30 PM"}]
    there, here = client.predict(name, rows), local.predict(rows)
    assert here.unseen == there.unseen == ()
    assert np.abs(here.to_numpy() - there.to_numpy()).max() < 1e-3  # prices are above 1e9
    assert all(1e9 - 1000 < price < 1e9 + 1000 for price in there.values) and np.ptp(there.to_numpy()) > 1e-2
    for row in ({"weight": "3 lb"}, {"day": "02/13/2024"}, {"size": "1,2,3"}):
        for predict in (lambda row: client.predict(name, row), local.predict):
            with pytest.raises(trainyard.InvalidArgumentError, match=next(iter(row))):
                predict([rows[0] | row])


def test_a_regression_with_embedded_categories_predicts_in_the_targets_units(client, train):
    data = client.upload_frame(trips().drop(columns="late"), "price", name="prices", ignore=["note"])
    model = train("price", data, {"mlp": {"hidden": [8], "embedding": "auto"}})
    frame = trips(60).drop(columns=["price", "late", "note"])
    answer = same(client, model, frame.assign(port=[*frame.port[:-1], "never seen"]))
    assert not answer.classification and 500 < answer.values[0] < 2000 and answer.unseen_count == 1


def test_many_rows_are_many_requests_and_batches(client, late):
    frame = pd.concat([trips(80).drop(columns=["price", "note"])] * 15, ignore_index=True)
    same(client, late, frame)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainyard.predictions.REQUEST_BYTES_MAX", 5000)
        same(client, late, frame.assign(port=[*frame.port[:-1], "new"]))
        bad = frame.assign(age=[*frame.age[:-1], "old"])
        refused(trainyard.InvalidArgumentError, lambda: late[1].predict(bad), "rows[1199]", "'age'", "'old' is not a number")


NEWS = [("sport", "The coach of team{0} praised the match: goal {1}!"),
        ("money", "Shares of bank{0} and Кредит rates, {1}%")]


@pytest.mark.parametrize("tokenizer,more", [("word", {"vocabulary_size": 25}), ("char", {}), ("byte", {}),
                                            ("bpe", {"vocabulary_size": 330}), ("unigram", {"vocabulary_size": 330})])
def test_texts_become_the_same_tokens(client, train, tokenizer, more):
    if more.get("vocabulary_size", 0) > 256:
        pytest.importorskip("sentencepiece")
    lines = [(topic, text.format(i % 7, i % 11)) for i in range(40) for topic, text in NEWS]
    frame = pd.DataFrame(lines, columns=["topic", "text"])
    data = client.upload_frame(frame, "topic", name=f"news-{tokenizer}", text=["text"], tokenizer=tokenizer, max_length=31,
                               **more)
    model = train(f"news-{tokenizer}", data, {"embedding_bag_classifier": {"embedding_dim": 8}})
    texts = ["a goal by the COACH of team6", "", "Кредит ÀÉ rates\u00a0today\u2581x, naïve 雪 " * 3, "bank", "Ђ"]
    same(client, model, texts)
    same(client, model, pd.DataFrame({"text": [*texts, None, 'two\nlines "quoted"']}))
    same(client, model, [[text] for text in texts])


def test_several_columns_of_text_are_one_text_in_the_order_of_the_rows(client, train):
    frame = pd.DataFrame([(topic, text.format(i, i)[:12], None if i % 5 == 0 else text.format(i, i)[12:])
                          for i in range(40) for topic, text in NEWS], columns=["topic", "title", "body"])
    data = client.upload_frame(frame, "topic", name="titles", text=["title", "body"], tokenizer="char", max_length=40)
    model = train("titles", data, {"lstm_classifier": {"embedding_dim": 8, "hidden_size": 6, "pooling": "last"}})
    rows = frame[["title", "body"]].iloc[:9]
    same(client, model, rows)
    same(client, model, rows[["body", "title"]])
    refused(trainyard.InvalidArgumentError, lambda: model[1].predict([[1, 2, 3, 4]]), "4 values", "the columns title, body")


def test_images_are_arrays(client, train, digits):
    pixels, labels = digits
    images = pixels.reshape(-1, 8, 8)
    name, local = train("bytes", client.upload_arrays(images, labels, name="byte-digits"), {"lenet5": {}})
    same(client, (name, local), images[:7])
    same(client, (name, local), images[:7, None])
    same(client, (name, local), pixels[:7])
    floats = train("floats", client.upload_arrays(images / 16.0, labels, name="float-digits"), {"mlp": {"hidden": [8]}})
    same(client, floats, images[:7] / 16.0)
    table = train("pixels", digits_spec()["dataset"], {"mlp": {"hidden": [8]}})
    same(client, table, pixels[:5])
    same(client, table, images[:5])
    wanted = "[N, 1, 8, 8]"
    for rows in ([b"\x89PNG"], np.zeros([2, 9, 9], np.uint8), ["a text"]):
        refused(trainyard.InvalidArgumentError, lambda rows=rows: local.predict(rows), wanted, "uint8")
    refused(trainyard.InvalidArgumentError, lambda: local.predict([[0.5] * 64]), "rows[0], column 'c0'", "0 to 255")
    refused(trainyard.InvalidArgumentError, lambda: local.predict([[None] * 64]), "column 'c0'", "needs all pixels")


def test_errors_in_rows_name_row_and_column(late):
    _, model = late
    row = {"year": 1, "age": 2, "port": "S", "day": "2024-01-01", "deck": 0, "left_at": None}

    def wrong(rows, *words):
        return refused(trainyard.InvalidArgumentError, lambda: model.predict(rows), *words)

    assert wrong([{**row, "age": "old"}], "rows[0], column 'age': 'old' is not a number").reason == "DATASET_INVALID"
    wrong([row, {**row, "age": 1e39}], "rows[1], column 'age'", "finite number of 32 bits")
    wrong([row, {**row, "day": "31.1.2024"}], "rows[1], column 'day'", "expected the year first")
    wrong([{"Year": 1, "colour": "red", "ages": 2}], "the columns 'age', 'port', 'day', 'deck' and 'left_at', which the "
          "model learned from, are missing; is 'ages' meant to be 'age'?")
    wrong([{key: value for key, value in row.items() if key != "port"}],
          "the column 'port', which the model learned from, is missing")
    wrong([[1, 2, "S"]], "3 values in the first row", "year, age, port, day, deck, left_at", "in this order")
    wrong([list(row.values()), [1]], "rows[1]: 1 values, expected 6")
    wrong(["a text"], "texts, expected the columns year, age")
    wrong(np.zeros([2, 4, 4], np.uint8), "images [2, 1, 4, 4] of uint8", "expected the columns")
    wrong({"year": 1}, "'year'", "expected a list")
    wrong({"year": [1], "age": [1, 2]}, "different lengths", "'age' has 2")
    wrong(7, "a int", "a dict of columns")
    wrong([], "at least one")


def test_a_model_describes_itself(late):
    _, model = late
    assert model.classes == ("no", "yes") and model.task == "classification" and model.target == "late"
    assert model.columns == ("year", "age", "port", "day", "deck", "left_at")
    assert repr(model) == ("<trainyard.LocalModel: classification of late, 2 classes, by the columns year, age, port, day, "
                           "deck, left_at>")


def test_load_accepts_a_file_or_a_folder(client, late, tmp_path):
    folder = tmp_path / "late"
    client.download_model("late", folder)
    rows = trips(9).drop(columns=["price", "note"])
    expected = late[1].predict(rows)
    assert trainyard.load(folder, program=PROGRAM).predict(rows) == expected  # model.onnx is created only for this call
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]
    refused(trainyard.NotFoundError, lambda: trainyard.load(folder, program="/no/program"), "/no/program")
    subprocess.run([PROGRAM, "local", "export", folder, "--out", folder / "model.onnx"], check=True, capture_output=True)
    assert trainyard.load(folder, program="/no/program").predict(rows) == expected
    assert trainyard.load(str(folder / "model.onnx")).predict(rows) == expected


def test_load_refuses_other_files(client, tmp_path, monkeypatch):
    refused(trainyard.NotFoundError, lambda: trainyard.load(tmp_path / "none"), "there is no such file", "model export")
    refused(trainyard.NotFoundError, lambda: trainyard.load(tmp_path), "neither model.onnx nor model.json", "model export")
    (tmp_path / "model.onnx").write_bytes(b"something else")
    refused(trainyard.InvalidArgumentError, lambda: trainyard.load(tmp_path), "model.onnx", "onnxruntime cannot read it")
    foreign = SOURCE / "examples/digits_0_to_4.onnx"
    refused(trainyard.InvalidArgumentError, lambda: trainyard.load(foreign), "model export --format onnx")
    real = builtins.__import__

    def without(name, *arguments):
        if name == "onnxruntime":
            raise ImportError(name)
        return real(name, *arguments)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install onnxruntime"):
        trainyard.load(tmp_path)


def test_models_that_predict_no_rows_are_refused(client, tmp_path):
    (tmp_path / "input.txt").write_text("abcdefg" * 50)
    spec = {"dataset": {"path": "input.txt", "text": {}}, "model": {"gpt2": {"n_layer": 1, "n_head": 1, "n_embd": 8}},
            "recipe": {**RECIPE, "steps": 2, "context_length": 4}}
    client.download_model(client.wait(client.submit(spec, folder=tmp_path)), tmp_path / "model")
    error = refused(trainyard.ConflictError, lambda: trainyard.load(tmp_path / "model", program=PROGRAM), "continues text")
    assert error.reason == "PREDICT_UNSUPPORTED"


def test_a_file_of_another_version_says_what_to_do():
    for version, words in ((ROWS_VERSION - 1, "export it again"), (ROWS_VERSION + 1, "update this package")):
        refused(trainyard.InvalidArgumentError, lambda: RowEncoder({"rows": json.dumps({"version": version})}, {}), words)


def test_categories_that_are_numbers_are_read_in_the_style_of_the_file():
    read, are_texts = category_reader(["7", "1000"], NumberReader(",", ".", plain_first=False))
    assert not are_texts
    assert [read(text) for text in ("1.000", "7,0", "7", "x")] == ["1000", "7", "7", "x"]


def test_a_column_without_a_name_is_named_by_its_position():
    rows = {"version": ROWS_VERSION, "missing_values": [], "decimal": ".", "thousands": "", "delimiter": ",",
            "ignored_columns": [], "source_columns": ["Unnamed: 0", "x", "y"]}
    columns = [{"name": name, "kind": "numeric"} for name in ("Unnamed: 0", "x")]
    encoder = RowEncoder({"rows": json.dumps(rows), "columns": json.dumps(columns), "target": "y"}, {})
    encoded = encoder.encode(v1.PredictRequest(csv=b",x\n1,2\n"), named=True, first_row=0)
    assert encoded.arrays["numeric"].tolist() == [[1, 2]]


def test_cells_are_read_strictly():
    for text, value in (("1", 1), ("+1.5", 1.5), ("-.5e-2", -0.005), ("5.", 5), ("1E3", 1000), ("1e-400", 0)):
        assert read_number(text) == value
    for text in ("1_000", " 1", "0x10", "1,5", "٣", "e5", ".", "--1", "1e", "yes"):
        with pytest.raises(ValueError, match="is not a number"):
            read_number(text)
    for text in ("inf", "-Infinity", "NAN", "1e39", "1e400"):
        with pytest.raises(ValueError, match="finite"):
            read_number(text)
    for text in ("2024-02-30", "2023-02-29", "0000-01-01", "24-01-01", "2024-1-1", "2024-01-01T24:00", "2024-01-01T10",
                 "2024-01-01T10:60", "2024-01-01T10:00:60", "2024-01-01T10:00:00.", "2024-01-01Z", "2024-01-01T10:00+24:00",
                 "2024-01-01T10:00 +01:00", "2024-01-01T10:00:00+01:00x", "tomorrow"):
        with pytest.raises(ValueError, match="expected the year first"):
            read_date(text, 5)


def test_csv_that_this_package_writes_is_read_back():
    rows = [["a", 'say "no", twice', " blanks "], ["", None, "two\nlines"], ["x", "y", ""]]
    text = values_to_csv(rows, ["one", 2, "three,four"]).decode()
    assert list(csv_records(text)) == [["one", "2", "three,four"], *([cell or "" for cell in row] for row in rows)]
    # Rows that would be empty lines are rows too.
    assert list(csv_records(values_to_csv([[None], [1], [""]]).decode())) == [[""], ["1"], [""]]
    assert list(csv_records(table_to_csv(np.array([[np.nan], [2.0]])).decode())) == [[""], ["2.0"]]
    assert list(csv_records("a , b\n\n\t\n 1,\n")) == [["a", "b"], ["1", ""]]


def test_dates_are_read_as_on_the_server():
    for golden in json.loads((SOURCE / "tests/golden/dates.json").read_text()):
        assert read_date(golden["text"], 7) == pytest.approx(golden["parts"], abs=1e-12), golden["text"]
    assert read_date("2024-01-01T00:00:59.9999999999999999999", 1)[0] == pytest.approx(19723 + 60 / 86400)  # not 60 s
    # A time zone may shift a date out of the years that Python supports.
    assert read_date("0001-01-01T00:00+01:00", 1)[0] == pytest.approx(-719162 - 1 / 24)
    assert read_date("9999-12-31T23:00-02:00", 3)[1] == pytest.approx(0)
