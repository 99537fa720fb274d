"""Tests that `upload` reads files of other formats by pandas' readers, and leaves text to the server."""

import pickle
import sqlite3
import zipfile

import pandas as pd
import pytest
from test_jobs import refused

import trainyard
from trainyard._tables import read_table

FRAME = pd.DataFrame({"size": [1.5, None, 2.25, 4.0], "colour": ["red", "blue", None, "red"], "kind": ["a", "b", "a", "b"]})


def write_excel(path):
    pytest.importorskip("openpyxl")
    FRAME.to_excel(path, index=False)


def write_parquet(path):
    pytest.importorskip("pyarrow")
    FRAME.to_parquet(path)


def write_feather(path):
    pytest.importorskip("pyarrow")
    FRAME.to_feather(path)


def write_html(path):
    pytest.importorskip("lxml")
    FRAME.to_html(path, index=False)


def write_xml(path):
    pytest.importorskip("lxml")
    FRAME.to_xml(path, index=False)


def write_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data/rows.csv", FRAME.to_csv(index=False))
        archive.writestr("README", "a table")


WRITERS = {
    "t.xlsx": write_excel, "t.parquet": write_parquet, "t.feather": write_feather, "t.html": write_html, "t.xml": write_xml,
    "t.zip": write_zip, "t.dta": lambda path: FRAME.fillna({"colour": ""}).to_stata(path, write_index=False),
    "columns.json": lambda path: FRAME.to_json(path), "rows.json": lambda path: FRAME.to_json(path, orient="records"),
    "split.json": lambda path: FRAME.to_json(path, orient="split"), "schema.json": lambda path: FRAME.to_json(path, orient="table", index=False),
    "frame": lambda path: None,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_of_any_kind_is_the_dataset_of_its_frame(client, tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    dataset = client.upload(path if path.exists() else FRAME, "kind")
    columns = {c.name: c for c in dataset.schema.columns}
    assert list(columns) == ["size", "colour"] and list(dataset.schema.classes) == ["a", "b"]
    assert dataset.schema.train_rows == 4 and columns["size"].missing_count == 1
    assert (columns["size"].numbers.min, columns["size"].numbers.max) == (1.5, 4)
    assert list(columns["colour"].categories) == ["blue", "red"]


def test_text_is_sent_as_it_is(client, tmp_path):
    csv, lines = tmp_path / "t.csv", tmp_path / "t.jsonl"
    csv.write_text("size;kind\n01;a\n2;b\n")
    FRAME.to_json(lines, orient="records", lines=True)
    assert read_table(csv) is None and read_table(lines) is None
    dataset = client.upload(csv, "kind", delimiter=";", test=str(csv))
    assert [s.filename for s in dataset.spec.sources] == ["t.csv", "t.csv"] and dataset.schema.test_rows == 2
    assert client.upload(lines, "kind").schema.train_rows == 4
    refused(trainyard.InvalidArgumentError, lambda: client.upload(csv, "kind", test=FRAME), "both as DataFrames")


def test_upload_finds_the_server_itself(daemon, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINYARD_SERVER", f"unix:{daemon.socket}")
    assert trainyard.upload(FRAME, "kind", name="by-itself").name.endswith("by-itself@1")
    assert trainyard.upload(FRAME, "kind", server=f"unix:{daemon.socket}", name="by-itself").version == 1


def test_what_cannot_be_meant_is_refused_with_the_way_out(tmp_path):
    def wrong(name, *words):
        refused(trainyard.InvalidArgumentError, lambda: read_table(tmp_path / name), str(tmp_path / name), *words)

    (tmp_path / "t.pkl").write_bytes(pickle.dumps(FRAME))
    wrong("t.pkl", "can run any program", "pandas.read_pickle(")
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("create table t (a)")
    wrong("t.db", "SQLite", "pandas.read_sql(")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    pytest.importorskip("pyarrow")
    wrong("t.parquet", "a Parquet file that pandas does not read")
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", "x\n1\n")
        archive.writestr("b.csv", "x\n1\n")
    wrong("two.zip", "2 tables, expected one")
    refused(trainyard.NotFoundError, lambda: read_table(tmp_path / "none.parquet"), "FILE_NOT_FOUND")


def test_of_several_sheets_none_is_guessed(tmp_path):
    pytest.importorskip("openpyxl")
    path = tmp_path / "t.xlsx"
    with pd.ExcelWriter(path) as writer:
        FRAME.to_excel(writer, sheet_name="2025", index=False)
        pd.DataFrame().to_excel(writer, sheet_name="empty")
        FRAME.to_excel(writer, sheet_name="2026", index=False)
    refused(trainyard.InvalidArgumentError, lambda: read_table(path), "2 sheets with rows, '2025', '2026'",
            f"trainyard.upload(pandas.read_excel({str(path)!r}, sheet_name='2025'), target=...)")


def test_an_index_with_a_name_is_a_column(tmp_path):
    pytest.importorskip("pyarrow")
    FRAME.set_index("kind").to_parquet(tmp_path / "t.parquet")
    FRAME.to_parquet(tmp_path / "plain.parquet")
    assert list(read_table(tmp_path / "t.parquet").columns) == ["kind", "size", "colour"]
    assert list(read_table(tmp_path / "plain.parquet").columns) == ["size", "colour", "kind"]
