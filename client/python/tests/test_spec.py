"""Tests that all kinds of specs reach the server's parser: those of the manual and the examples, texts, dicts, data."""

import re

import pytest
from conftest import SOURCE

from trainyard import v1
from trainyard._spec import Kind, Source, read, read_document
from trainyard.errors import InvalidArgumentError

BLOCKS = re.findall(r"```(yaml|json)\n(.*?)```", (SOURCE / "docs/job_spec.md").read_text(), re.DOTALL)


def spec_of(client, given) -> v1.JobSpec:
    return read_document(client._channel, Kind.JOB, given).read.spec


@pytest.mark.parametrize("text", [text for _, text in BLOCKS])
def test_every_spec_of_the_manual_is_read(client, text):
    spec = spec_of(client, text)
    assert spec.model.WhichOneof("preset") or spec.model.layers or spec.model.onnx, "a model came out of it"
    assert spec.recipe.epochs or spec.recipe.steps


def test_there_are_specs_in_the_manual():
    assert len(BLOCKS) > 20 and {"yaml", "json"} == {kind for kind, _ in BLOCKS}


@pytest.mark.parametrize("path", sorted((SOURCE / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_read(client, path):
    job = read_document(client._channel, Kind.JOB, path)
    assert job.source.folder == path.parent and job.read.HasField("dataset")
    assert all(content is None or content.filename for content in job.contents())


@pytest.mark.parametrize("name, content", [("rows.csv", "a,b\n1,2\n"), ("row.jsonl", '{"a": 1}\n'), ("photos", None)])
def test_data_instead_of_a_spec_suggests_init(client, tmp_path, name, content):
    path = tmp_path / name
    path.mkdir() if content is None else path.write_text(content)
    for spec in (path, str(path)):
        with pytest.raises(InvalidArgumentError, match=f"{name} is data.*trainyard init .*{name}' writes one") as refused:
            spec_of(client, spec)
        assert refused.value.reason == "SPEC_IS_DATA"


def test_a_dict_is_read_like_its_yaml(client):
    text = "dataset: {name: x}\nmodel:\n  layers:\n    - conv: {out_channels: 4, kernel_shape: 3}\n    - relu:\n" \
           "    - gemm: {units: 3}\nrecipe: {steps: 7, optimizer: {type: lion, learning_rate: 1e-4}}\n" \
           "labels: {run: \"5\"}\npriority: -3\n"
    fields = {"dataset": {"name": "x"}, "priority": -3, "labels": {"run": "5"},
              "model": {"layers": [{"conv": {"out_channels": 4, "kernel_shape": [3]}}, {"relu": {}},
                                   {"gemm": {"units": 3}}]},
              "recipe": {"steps": 7, "optimizer": {"type": "lion", "learning_rate": 1e-4}}}
    spec = spec_of(client, text)
    assert spec == spec_of(client, fields)
    named = spec_of(client, {**fields, "dataset": "x@2", "resources": {"device": "gpu", "gpus": 4}})
    assert named.dataset.name == "x@2" and named.resources.gpus == 4
    assert spec.recipe.optimizer.learning_rate == 1e-4 and spec.model.layers[1].WhichOneof("op") == "relu"


def test_a_dict_is_held_to_the_same_limits_and_has_no_positions(client):
    nested = "x"
    for _ in range(29):
        nested = [nested]
    with pytest.raises(InvalidArgumentError) as refused:
        spec_of(client, {"model": nested, "recipe": {"epochs": "5", "stepps": 3}, "dataset": "d"})
    assert [str(v) for v in refused.value.violations] == [
        "model: a list, expected fields such as mlp, lenet5, gpt2 or vit_tiny",
        "recipe.epochs: '5' (text), expected a whole number", "recipe.stepps: unknown field, did you mean 'steps'?"]
    assert refused.value.message == "spec has 3 problems"
    itself: list[object] = []
    itself.append(itself)
    for fields, reason, words in (
            ({"model": [[nested]], "dataset": "d", "recipe": {}}, "FIELD_TYPE_INVALID", "model: a list"),
            ({"model": [[[nested]]]}, "SPEC_TOO_DEEP", "nested more than 32 levels deep"),
            ({"model": {"layers": itself}}, "SPEC_TOO_DEEP", "model.layers[0][0]"),
            ({5: "x"}, "FIELD_TYPE_INVALID", "the key 5 is not text"), ({"name": {1}}, "FIELD_TYPE_INVALID", "name: a value of type set"),
            ({"name": "\ud800"}, "FIELD_TYPE_INVALID", "name: '\\ud800', expected text that UTF-8 can encode"),
            ({"recipe": {"seed": [float("inf")]}}, "FIELD_TYPE_INVALID", "recipe.seed[0]: inf, expected a finite number"),
            ({"labels": {"a": [0] * 100_000}}, "SPEC_TOO_LARGE", "more than 100000 values"),
            ({"labels": {"a": "x" * (1 << 20)}}, "SPEC_TOO_LARGE", "larger than 1 MiB")):
        with pytest.raises(InvalidArgumentError) as refused:
            spec_of(client, fields)
        assert refused.value.reason == reason and words in refused.value.message


def test_positions_of_fields(client):
    text = b"dataset: d\nmodel:\n  layers:\n    - gemm: {units: 3}\n    - relu:\nrecipe: {epochs: 1}\n"
    fields = ["model.layers[0].gemm.units", "model.layers[0].none", "model.layers[9]", "none"]
    found = read(client._channel, Kind.JOB, Source(text, "x", None), fields)
    assert dict(found.positions) == dict(zip(fields, ["x:4:21", "x:4:7", "x:3:3", "x:1:1"]))
