"""The reader of specs, against every spec that the manual and the examples show. Needs no daemon."""

import re

import pytest
from conftest import SOURCE

from trainyard._document import Document
from trainyard._spec import read_job
from trainyard.errors import InvalidArgumentError

BLOCKS = re.findall(r"```(yaml|json)\n(.*?)```", (SOURCE / "docs/job_spec.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("text", [text for _, text in BLOCKS])
def test_every_spec_of_the_manual_is_read(text):
    job = read_job(text)
    spec = job.job_spec()
    assert spec.model.WhichOneof("preset") or spec.model.layers or spec.model.onnx, "a model came out of it"
    assert spec.recipe.epochs or spec.recipe.steps


def test_there_are_specs_in_the_manual():
    assert len(BLOCKS) > 20 and {"yaml", "json"} == {kind for kind, _ in BLOCKS}


@pytest.mark.parametrize("path", sorted((SOURCE / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_read(path):
    job = read_job(path)
    assert job.dataset.folder == path.parent and job.has_data()


@pytest.mark.parametrize("name, content", [("rows.csv", "a,b\n1,2\n"), ("row.jsonl", '{"a": 1}\n'), ("photos", None)])
def test_data_in_place_of_a_spec_is_sent_to_init(tmp_path, name, content):
    path = tmp_path / name
    path.mkdir() if content is None else path.write_text(content)
    for spec in (path, str(path)):
        with pytest.raises(InvalidArgumentError, match=f"{name} is data.*trainyard init .*{name}' writes one") as refused:
            read_job(spec)
        assert refused.value.reason == "SPEC_IS_DATA"


def test_a_dict_reads_as_its_yaml_does():
    text = "dataset: {name: x}\nmodel:\n  layers:\n    - conv: {out_channels: 4, kernel_shape: 3}\n    - relu:\n" \
           "    - gemm: {units: 3}\nrecipe: {steps: 7, optimizer: {type: lion, learning_rate: 1e-4}}\n" \
           "labels: {run: \"5\"}\npriority: -3\n"
    fields = {"dataset": {"name": "x"}, "priority": -3, "labels": {"run": "5"},
              "model": {"layers": [{"conv": {"out_channels": 4, "kernel_shape": [3]}}, {"relu": {}},
                                   {"gemm": {"units": 3}}]},
              "recipe": {"steps": 7, "optimizer": {"type": "lion", "learning_rate": 1e-4}}}
    spec = read_job(text).job_spec()
    assert spec == read_job(fields).job_spec()
    named = {**fields, "dataset": "x@2", "resources": {"device": "gpu", "gpus": 4}}
    assert read_job(named).job_spec().dataset.name == "x@2" and not read_job(named).has_data()
    assert read_job(named).job_spec().resources.gpus == 4
    assert spec.recipe.optimizer.learning_rate == 1e-4 and spec.model.layers[1].WhichOneof("op") == "relu"


def test_a_dict_is_held_to_the_same_limits_and_has_no_places():
    nested = "x"
    for _ in range(31):
        nested = [nested]
    with pytest.raises(InvalidArgumentError) as refused:
        read_job({"model": nested, "recipe": {"epochs": "5", "stepps": 3}, "dataset": "d"})
    assert [str(v) for v in refused.value.violations] == [
        "model: a list, expected fields such as mlp, lenet5, gpt2 or vit_tiny",
        "recipe.epochs: '5' (text), expected a whole number", "recipe.stepps: unknown field, did you mean 'steps'?"]
    for fields, reason in (({"model": [nested]}, "SPEC_TOO_DEEP"), ({5: "x"}, "FIELD_TYPE"), ({"name": {1}}, "FIELD_TYPE"),
                           ({"labels": {"a": [0] * 100_000}}, "SPEC_TOO_LARGE")):
        with pytest.raises(InvalidArgumentError) as refused:
            read_job(fields)
        assert refused.value.reason == reason


def test_places_of_fields():
    document = Document.parse("a:\n  b:\n    - {c: 1}\n    - {c: 2}\n", "x")
    assert document.locate("a.b[1].c") == "x:4:11"
    assert document.locate("a.b[1].none") == "x:4:7"
    assert document.locate("a.b[9]") == "x:2:3"
    assert document.locate("none") == document.root.at == "x:1:1"
