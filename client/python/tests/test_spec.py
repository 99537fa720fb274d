"""The reader of specs, against every spec that the manual and the examples show. Needs no daemon."""

import re

import pytest
from conftest import SOURCE

from trainyard import v1
from trainyard._document import Document
from trainyard._spec import read_dataset, read_job
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


def test_a_choice_may_be_its_name_alone():
    text = "dataset: {{name: x}}\nmodel: {{lenet5: {{}}, loss: {}}}\nrecipe: {{steps: 1, optimizer: {{type: sgd, " \
           "learning_rate: 1}}}}\n"
    assert read_job(text.format("huber")).job_spec() == read_job(text.format("{huber: {}}")).job_spec()
    with pytest.raises(InvalidArgumentError, match="model.loss: 'hubber' is not known, .*did you mean 'huber'?"):
        read_job(text.format("hubber"))


def test_a_value_may_be_text_a_number_or_numbers_with_names():
    def embedding(value):
        spec = {"dataset": {"name": "x"}, "model": {"mlp": {"embedding": value}},
                "recipe": {"steps": 1, "optimizer": {"learning_rate": 1}}}
        return read_job(spec).job_spec().model.mlp.embedding

    assert embedding("auto").string_value == "auto" and embedding(8).number_value == 8
    assert embedding({"cut": 4}).struct_value.fields["cut"].number_value == 4
    with pytest.raises(InvalidArgumentError, match="model.mlp.embedding.cut: .*expected a number"):
        embedding({"cut": {"width": 4}})
    text = "dataset: {{name: x}}\nmodel: {{mlp: {{}}, loss: {{softmax_cross_entropy: {}}}}}\nrecipe: {{steps: 1, " \
           "optimizer: {{learning_rate: 1}}}}\n"
    loss = read_job(text.format("{class_weights: balanced}")).job_spec().model.loss
    assert loss.softmax_cross_entropy.class_weights.string_value == "balanced"
    with pytest.raises(InvalidArgumentError, match="did you mean 'class_weights'?"):
        read_job(text.format("{class_weight_list: [1]}"))


def test_places_of_fields():
    document = Document.parse("a:\n  b:\n    - {c: 1}\n    - {c: 2}\n", "x")
    assert document.locate("a.b[1].c") == "x:4:11"
    assert document.locate("a.b[1].none") == "x:4:7"
    assert document.locate("a.b[9]") == "x:2:3"
    assert document.locate("none") == document.root.at == "x:1:1"


def test_arrays_are_files_of_their_own_or_one_file() -> None:
    role = v1.DatasetSource.Role
    files = read_dataset({"inputs": "x.npy", "targets": "y.npy", "arrays": {"test_share": 0.2}})
    assert [which for which, _ in files.sources()] == [role.INPUTS, role.TARGETS]
    assert files.format().arrays.test_share == 0.2
    assert read_dataset({"inputs": "x.npy", "targets": "y.npy"}).format().HasField("arrays")
    package = read_dataset({"path": "a.npz", "arrays": {"inputs": "x"}})
    assert [which for which, _ in package.sources()] == [role.DATA]
    assert package.format().arrays.inputs == "x"
    for fields, problem in (({"arrays": {}}, "path: required with arrays"), ({"inputs": "x"}, "targets: required"),
                            ({"inputs": "x", "targets": "y", "test_inputs": "z"}, "test_targets: required"),
                            ({"inputs": "x", "targets": "y", "path": "z"}, "fields of several kinds")):
        with pytest.raises(InvalidArgumentError, match=problem):
            read_dataset(fields)


def test_tables_and_texts_name_their_format() -> None:
    lines = read_dataset({"path": "a.jsonl", "jsonl": {"target": "y", "date": ["when"]}})
    assert list(lines.format().jsonl.date) == ["when"]
    assert read_dataset({"path": "a", "text_files": {"max_length": 5}}).format().text_files.max_length == 5
    csv = {"target": "y"}
    assert read_dataset({"path": "a.TSV.gz", "csv": csv}).format().csv.delimiter == "\t"
    assert read_dataset({"path": "a.tsv", "csv": {**csv, "delimiter": ";"}}).format().csv.delimiter == ";"
    assert read_dataset({"path": "a.csv", "csv": csv}).format().csv.delimiter == ""
    for fields, problem in (({"path": "a", "jsonl": {}}, "jsonl.target: the member to learn"),
                            ({"jsonl": csv}, "path: required with jsonl"),
                            ({"text_files": {}}, "path: required with text_files"),
                            ({"path": "a", "jsonl": csv, "csv": csv}, "has csv and jsonl, expected one")):
        with pytest.raises(InvalidArgumentError, match=problem):
            read_dataset(fields)
