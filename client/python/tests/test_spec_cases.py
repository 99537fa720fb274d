"""Sends the cases of tests/spec_cases.yaml to the server: ReadSpec must return what the command line's reader
returns."""

import pytest
import yaml
from conftest import SOURCE
from google.protobuf import json_format

from trainyard._spec import Kind, read_document
from trainyard._write_spec import write_message
from trainyard.errors import InvalidArgumentError

CASES = yaml.safe_load((SOURCE / "tests/spec_cases.yaml").read_text(encoding="utf-8"))
REST = {"model": b"dataset: d\nrecipe: {}\n", "recipe": b"dataset: d\nmodel: {mlp: {}}\n",
        "array": b"dataset: d\nmodel: {mlp: {}}\nrecipe: {}\n"}


def text_of(pieces):
    def piece(item):
        if isinstance(item, str):
            return item.encode()
        return bytes.fromhex(item["hex"]) if "hex" in item else item["of"].encode() * item["repeat"]

    return b"".join(map(piece, pieces if isinstance(pieces, list) else [pieces]))


def spec_of(kind, text):
    if kind not in REST:
        return text
    lines = [b"  " + line for line in text.splitlines()]
    below = b"\n" + b"\n".join(lines) if b"\n" in text else b" " + text
    return kind.encode() + b":" + below + b"\n" + REST[kind]


def message_of(client, kind, path):
    found = read_document(client._channel, Kind.DATASET if kind == "dataset" else Kind.JOB, path).read
    if kind == "dataset":
        for source in found.dataset.sources:
            source.ClearField("filename")
        return found.dataset
    if kind == "array":
        return found.array
    return found.spec if kind == "job" else getattr(found.spec, kind)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_every_case_gives_what_the_command_line_reads(client, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (kind,) = {"job", "model", "recipe", "dataset", "array"} & case.keys()
    (tmp_path / "spec").write_bytes(spec_of(kind, text_of(case[kind])))
    if "gives" in case:
        message = message_of(client, kind, "spec")
        assert message == json_format.Parse(case["gives"], type(message)())
        return
    with pytest.raises(InvalidArgumentError) as refused:
        message_of(client, kind, "spec")
    assert refused.value.reason == case["reason"]
    found = [(v.position.removeprefix("spec").removeprefix(":"), v.field, v.description)
             for v in refused.value.violations]
    assert len(found) == len(case["problems"]), found
    for problem, expected in zip(found, case["problems"], strict=True):
        at, *rest = expected
        assert (problem[0] if ":" in at else problem[0].partition(":")[0]) == at
        assert problem[1:1 + len(rest)] == tuple(rest)


@pytest.mark.parametrize("case", [c for c in CASES if "gives" in c and not {"dataset", "array"} & c.keys()], ids=lambda c: c["case"])
def test_every_case_round_trips_through_a_written_spec(client, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (kind,) = {"job", "model", "recipe"} & case.keys()
    (tmp_path / "spec").write_bytes(spec_of(kind, text_of(case[kind])))
    spec = message_of(client, "job", "spec")
    spec.dataset.name = "digits@2"
    assert message_of(client, "job", write_message(spec)) == spec


def test_there_are_many_cases_with_distinct_names():
    assert len({case["case"] for case in CASES}) == len(CASES) > 60
