"""Tests of calls on trained models: the continuation of text, and evaluation on datasets."""

import pandas as pd
import pytest
from test_jobs import refused

import trainyard


@pytest.fixture(scope="session")
def letters(client, tmp_path_factory):
    """Returns a language model that has learned the fixed order of seven letters."""
    folder = tmp_path_factory.mktemp("letters")
    (folder / "input.txt").write_text("abcdefg" * 200)
    spec = {"dataset": {"path": "input.txt", "text": {}},
            "model": {"gpt2": {"n_layer": 1, "n_head": 2, "n_embd": 16, "dropout": 0.0}},
            "recipe": {"steps": 150, "batch_size": 16, "context_length": 5,
                       "optimizer": {"type": "adam", "learning_rate": 0.01}}}
    return client.wait(client.submit(spec, folder=folder))


def test_text_is_generated_in_pieces_and_depends_on_the_seed(client, letters):
    pieces = list(client.generate(letters, "abc", tokens=9, temperature=0))
    assert "".join(pieces) == "defgabcde"
    warm = {"tokens": 40, "temperature": 20.0, "seed": 7}
    text = "".join(client.generate(letters, b"a", **warm))
    assert len(text) == 40 and text == "".join(client.generate(letters, "a", **warm))
    assert text != "".join(client.generate(letters, "a", **{**warm, "seed": 8}))
    assert "".join(client.generate(letters, "abc", tokens=9, temperature=20.0, top_k=1)) == "defgabcde"


def test_a_text_ends_before_a_stop_text(client, letters):
    assert "".join(client.generate(letters, "abc", tokens=30, temperature=0, stop=["never", "fg"])) == "de"


def test_several_prompts_are_continued_together(client, letters):
    assert client.generate_all(letters, ["abc", b"g"], tokens=4, temperature=0) == ["defg", "abcd"]


def test_a_penalty_changes_what_is_drawn(client, letters):
    warm = {"tokens": 40, "temperature": 20.0, "seed": 7}
    plain = "".join(client.generate(letters, "a", **warm))
    assert plain != "".join(client.generate(letters, "a", repetition_penalty=100.0, **warm))


def test_leaving_the_loop_ends_the_generation(client, letters):
    for _ in range(6):  # more calls than may run and wait at a time
        for piece in client.generate(letters, "a", tokens=60_000):
            assert piece
            break


def test_generate_refuses(client, letters, trained):
    def run(model=letters, prompt="abc", **options):
        return lambda: list(client.generate(model, prompt, **options))

    refused(trainyard.InvalidArgumentError, run(prompt=""), "prompt", "1 to 1048576")
    assert refused(trainyard.InvalidArgumentError, run(prompt="abX"), "'X'").reason == "PROMPT_INVALID"
    refused(trainyard.InvalidArgumentError, run(tokens=0), "token_count", "1 to 65536")
    refused(trainyard.InvalidArgumentError, run(top_p=0.0), "top_p")
    refused(trainyard.InvalidArgumentError, run(temperature=-1.0), "temperature")
    refused(trainyard.InvalidArgumentError, run(min_p=2.0), "min_p", "0")
    refused(trainyard.InvalidArgumentError, run(repetition_penalty=0.0), "repetition_penalty")
    refused(trainyard.InvalidArgumentError, run(stop=[""]), "stop[0]", "1 to 256")
    refused(trainyard.InvalidArgumentError, lambda: client.generate_all(letters, ["a", ""]), "prompts[1]")
    refused(trainyard.InvalidArgumentError, lambda: client.generate_all(letters, ["a"] * 17), "prompts", "1 to 16")
    chat = refused(trainyard.InvalidArgumentError,
                   lambda: list(client.chat(letters, [{"role": "user", "content": "abc"}])), "messages")
    assert chat.reason == "MESSAGES_UNSUPPORTED"
    assert refused(trainyard.ConflictError, run(model=trained)).reason == "GENERATE_UNSUPPORTED"
    refused(trainyard.NotFoundError, run(model="nobody"), "nobody")


def test_warnings_are_in_the_dataset_the_result_and_the_predictions(client):
    frame = pd.DataFrame({"id": range(1000, 1080), "size": [i * 31 % 80 / 7 for i in range(80)],
                          "colour": ["red", "blue"] * 40, "big": [int(i * 17 % 80 > 40) for i in range(80)]})
    dataset = client.upload_frame(frame, "big", name="traps", target_kind="class")
    assert [(w.key, list(w.columns)) for w in dataset.schema.warnings] == [("IDENTIFIER_COLUMN", ["id"])]
    spec = {"dataset": dataset.name, "model": {"mlp": {"hidden": [4]}},
            "recipe": {"epochs": 1, "batch_size": 8, "validation_split": 0.25, "optimizer": {"learning_rate": 1e-12}}}
    job = client.submit(spec)
    assert "dataset.csv.ignore" in job.plan.warnings[0] and list(client.plan(spec).warnings)[0] == job.plan.warnings[0]
    ended = client.wait(job)
    assert [b.metric for b in ended.progress.baselines] == ["val/loss", "val/accuracy", "val/f1_macro", "val/roc_auc"]
    last = list(client.watch(job))[-1]
    assert isinstance(last, trainyard.StateEvent)
    assert dict(last.baselines) == {b.metric: b.value for b in ended.progress.baselines}
    answer = client.predict(job, [{"id": 1, "size": 2.0, "colour": "red"}, {"id": 2, "size": 3.0, "colour": "mauve"}])
    assert answer.unseen == (trainyard.UnseenCategory(1, "colour", "mauve"),) and answer.unseen_count == 1


def test_evaluate_measures_classes(client, trained):
    dataset = client.job(trained).spec.dataset.name
    answer = client.evaluate(trained, dataset, metrics=["top_2_accuracy"])
    assert answer.row_count == 1797 and answer.rows == trainyard.v1.EvaluateRequest.TRAIN
    assert 0.9 < answer.metrics["accuracy"] <= answer.metrics["top_2_accuracy"] <= 1
    assert [c.label for c in answer.classes] == [str(digit) for digit in range(10)]
    assert sum(c.row_count for c in answer.classes) == 1797
    hits = sum(row.counts[k] for k, row in enumerate(answer.confusion.rows))
    assert hits / 1797 == pytest.approx(answer.metrics["accuracy"], abs=1e-12)
    scores = [c.f1 for c in answer.classes]
    assert sum(scores) / 10 == pytest.approx(answer.metrics["f1_macro"], abs=1e-9)


def test_evaluate_refuses(client, trained, letters):
    text = client.job(letters).spec.dataset.name
    digits = client.job(trained).spec.dataset.name
    error = refused(trainyard.InvalidArgumentError, lambda: client.evaluate(trained, text), "one text", "images")
    assert error.reason == "EVALUATE_MISMATCH"
    refused(trainyard.InvalidArgumentError, lambda: client.evaluate(trained, digits, rows="test"), "no test set")
    refused(trainyard.InvalidArgumentError, lambda: client.evaluate(trained, digits, rows="all"), "'test' or 'train'")
    refused(trainyard.InvalidArgumentError, lambda: client.evaluate(trained, digits, metrics=["r2"]), "r2")
    refused(trainyard.NotFoundError, lambda: client.evaluate(trained, "nothing"), "nothing")
