"""Tests of submit, get, watch, wait, metrics, cancel and delete, and of their errors."""

import getpass
import json
import math
import threading
import time
import uuid

import pandas as pd
import pytest
import yaml
from conftest import DIGITS, ENDLESS, SOURCE, digits_spec
from harness import PATIENCE_S, wait_until
from onnx_files import with_trained_parameters
from tiny_chat_model import write_chat_model

import trainyard
from trainyard import JobState


def refused(kind, call, *words):
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    return caught.value


def test_a_spec_may_be_a_path_a_text_or_a_dict_and_means_the_same(client, tmp_path):
    yaml = (f"dataset:\n  path: {DIGITS}\n  csv: {{header: false, target: c64, target_kind: class, image: [1, 8, 8]}}\n"
            "model:\n  mlp: {hidden: 64}\nrecipe:\n  epochs: 8\n  batch_size: 50\n  seed: 5\n  validation_split: 0.2\n"
            "  optimizer: {type: adam, learning_rate: 3e-3}\n")
    path = tmp_path / "spec.yaml"
    path.write_text(yaml)
    specs = [digits_spec(), yaml, json.dumps(digits_spec()), path, str(path)]
    jobs = [client.check(spec) for spec in specs]
    assert all(job.spec == jobs[0].spec for job in jobs)
    assert jobs[0].plan.parameter_count == 64 * 64 + 64 + 64 * 10 + 10
    assert jobs[0].uid == "" and jobs[0].name not in [j.name for j in client.jobs()]


def test_the_precision_is_returned_and_a_wrong_one_lists_the_valid_ones(client):
    recipe = type(client.check(digits_spec()).spec.recipe)
    assert client.check(digits_spec()).spec.recipe.precision == recipe.TF32
    assert client.check(digits_spec(precision="fp32")).spec.recipe.precision == recipe.FP32
    refused(trainyard.InvalidArgumentError, lambda: client.check(digits_spec(precision="fp8")),
            "recipe.precision: 'fp8' is not known, expected fp32, bf16, tf32 or fp16")


def test_a_spec_may_name_an_onnx_file(client, daemon, tmp_path):
    example = SOURCE / "examples/digits_onnx.yaml"
    job = client.check(example)
    assert [layer.WhichOneof("op") for layer in job.spec.model.layers][::6] == ["conv", "gemm"]
    assert not job.spec.model.onnx and job.spec.recipe.initial_weights.model
    assert job.plan.initial_weights.taken.count == 6 and job.plan.initial_weights.missing.count == 0
    of_others = yaml.safe_load(example.read_text())
    of_others["recipe"]["initial_weights"] = {"model": job.spec.recipe.initial_weights.model, "exclude": ["fc.*"]}
    assert client.plan(of_others, folder=example.parent).run.initial_weights.left_out.count == 2
    error = refused(trainyard.InvalidArgumentError, lambda: client.plan(
        {"dataset": {"name": "x"}, "model": {"onnx": str(DIGITS)}, "recipe": {"steps": 1}}), "model.onnx: not a valid")
    assert error.reason == "ONNX_INVALID" and error.violations[0].field == "model.onnx"
    with trainyard.Client(f"unix:{daemon.socket}", program="no-such-program") as other:
        refused(trainyard.NotFoundError, lambda: other.check(example), "no-such-program")


def test_a_spec_may_name_the_folder_of_a_language_model(client, tmp_path):
    write_chat_model(tmp_path / "Tiny-Chat", "Hi!", context=128)
    rows = [{"text": f"row {i}", "label": "ab"[i % 2]} for i in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {"steps": 1, "batch_size": 2, "optimizer": {"type": "sgd", "learning_rate": 0.01}}

    def spec(dataset, model="Tiny-Chat", **more):
        return {"dataset": {"path": "rows.jsonl", **dataset}, "model": {"pretrained": model, **more}, "recipe": recipe}

    job = client.check(spec({"documents": {}}), folder=tmp_path)
    assert job.spec.model.decoder.n_layer == 1 and not job.spec.model.pretrained
    assert job.spec.recipe.initial_weights.title == "Tiny-Chat" and job.plan.initial_weights.missing.count == 0
    classifier = client.check(spec({"jsonl": {"target": "label", "text": ["text"]}}), folder=tmp_path)
    assert list(classifier.plan.initial_weights.missing.names) == ["score.weight"]
    error = refused(trainyard.NotFoundError, lambda: client.check(spec({"documents": {}}, "absent"), folder=tmp_path),
                    "model.pretrained", "absent")
    assert error.violations[0].field == "model.pretrained"


def test_a_file_of_weights_begins_the_network_beside_it(client, tmp_path):
    trained = client.submit(digits_spec(epochs=1))
    client.wait(trained)
    client.download_model(trained, tmp_path / "digits")
    weights = str(tmp_path / "digits/model.safetensors")
    spec = digits_spec(epochs=1)
    job = client.check(dict(spec, model=dict(spec["model"], pretrained=weights)))
    assert job.plan.initial_weights.missing.count == 0 and job.plan.initial_weights.taken.count == 4
    refused(trainyard.InvalidArgumentError, lambda: client.check(dict(spec, model={"pretrained": weights})),
            "does not say the network", "resnet50")


def test_fixed_parameters_of_an_onnx_file_are_frozen_before_the_recipes_groups(client, tmp_path):
    file = (SOURCE / "examples/digits_0_to_4.onnx").read_bytes()
    (tmp_path / "named.onnx").write_bytes(with_trained_parameters(file, ["conv2.weight", "fc.weight", "fc.bias"]))

    def groups(**recipe):
        spec = dict(digits_spec(**recipe), model={"onnx": "named.onnx"})
        return [(g.match, g.freeze) for g in client.check(spec, folder=tmp_path).spec.recipe.parameter_groups]

    of_file = [("conv1.*", True), ("conv2.bias", True)]
    own = [{"match": "conv1.bias", "freeze": False}]
    assert groups() == of_file
    assert groups(parameter_groups=own) == [*of_file, ("conv1.bias", False)]
    # lora freezes all weights itself, and trains the parameters that a group unfreezes.
    assert groups(parameter_groups=own, lora={"rank": 2, "targets": ["fc"]}) == [("conv1.bias", False)]


def test_paths_are_relative_to_the_spec_file_or_the_folder_given(client, tmp_path):
    spec = digits_spec()
    spec["dataset"]["path"] = "rows.csv.gz"
    (tmp_path / "rows.csv.gz").write_bytes(DIGITS.read_bytes())
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    by_file = client.check(tmp_path / "spec.json")
    by_folder = client.check(spec, folder=tmp_path)
    assert by_file.spec.dataset.name == by_folder.spec.dataset.name
    refused(trainyard.NotFoundError, lambda: client.check(spec, folder=SOURCE), "rows.csv.gz: no such file")


def test_submit_reports_progress_and_a_request_id_makes_it_safe_to_repeat(client):
    spec = digits_spec(epochs=1)
    request = str(uuid.uuid4())
    first = client.submit(spec, request_id=request)
    assert first.state == JobState.QUEUED and first.uid
    assert client.submit(spec, request_id=request).name == first.name
    client.wait(first)


def test_wait_returns_the_ended_job_and_it_has_learned(client, trained):
    assert trained.state == JobState.SUCCEEDED and trainyard.is_final(trained.state)
    assert trained.model == "projects/default/models/trained"
    assert trained.progress.metrics["val/accuracy"] > 0.9
    assert client.job("trained") == client.job(trained) == client.job(trained.name) == trained


def test_watch_yields_every_event_once_and_typed(client, trained):
    events = list(client.watch(trained))
    assert [e.seq for e in events] == list(range(1, trained.newest_seq + 1))
    states = [e.state_name for e in events if isinstance(e, trainyard.StateEvent)]
    assert states == ["QUEUED", "STARTING", "RUNNING", "SUCCEEDED"]
    assert [e.step for e in events if isinstance(e, trainyard.CheckpointEvent)][-1] == trained.progress.steps_total
    losses = [p for e in events if isinstance(e, trainyard.MetricsEvent) for p in e.points if p.key == "train/loss"]
    assert [p.step for p in losses] == list(range(1, trained.progress.steps_total + 1))
    assert losses[-1].value < losses[0].value
    assert all(a.time <= b.time and a.time.utcoffset().total_seconds() == 0 for a, b in zip(events, events[1:]))
    half = len(events) // 2
    assert list(client.watch(trained, after=half)) == events[half:]
    assert list(client.watch(trained, after=len(events))) == []


def test_watch_refuses_invalid_arguments(client, trained):
    refused(trainyard.InvalidArgumentError, lambda: next(client.watch(trained, after=-1)), "expected a sequence number")
    error = refused(trainyard.InvalidArgumentError, lambda: next(client.watch(trained, after=10_000)))
    assert (error.reason, error.code) == ("SEQUENCE_IN_FUTURE", "OUT_OF_RANGE")
    assert refused(trainyard.NotFoundError, lambda: next(client.watch("nobody"))).reason == "JOB_NOT_FOUND"


def test_leaving_a_watch_ends_the_stream_and_not_the_job(client):
    job = client.submit(dict(digits_spec(**ENDLESS), labels={"watch": "left"}))
    for event in client.watch(job):
        if isinstance(event, trainyard.MetricsEvent):
            break
    assert client.job(job).state == JobState.RUNNING
    partial = client.metric_series(job)  # of a running job: returns the metrics so far without waiting
    assert partial["train/loss"]
    refused(trainyard.DeadlineExceededError, lambda: client.wait(job, timeout_s=0.3), "has not ended within 0.3 s")
    with pytest.raises(TimeoutError):
        client.wait(job, timeout_s=0.1)
    assert refused(trainyard.ConflictError, lambda: client.delete(job)).reason == "JOB_STATE_CONFLICT"
    assert job.name in [j.name for j in client.jobs(states=["running"])]
    assert [j.name for j in client.jobs(labels={"watch": "left"})] == [job.name]
    assert not client.jobs(labels={"watch": "kept"})
    assert client.set_priority(job, -3).priority == -3 and client.job(job).priority == -3
    assert refused(trainyard.InvalidArgumentError, lambda: client.set_priority(job, 101)).reason == "FIELD_OUT_OF_RANGE"
    client.cancel(job)
    client.cancel(job)  # safe to repeat
    error = refused(trainyard.JobCancelledError, lambda: client.wait(job), "CANCELLED")
    assert error.job.state == JobState.CANCELLED and isinstance(error, trainyard.JobEndedError)
    assert client.wait(job, check=False).state == JobState.CANCELLED
    assert refused(trainyard.ConflictError, lambda: client.set_priority(job, 1)).reason == "JOB_STATE_CONFLICT"
    client.delete(job)
    assert refused(trainyard.NotFoundError, lambda: client.job(job)).reason == "JOB_NOT_FOUND"


def test_a_failed_job_says_why_and_its_last_loss_is_not_finite(client):
    spec = digits_spec(optimizer={"type": "sgd", "learning_rate": 1e6})
    job = client.submit(spec)
    error = refused(trainyard.JobFailedError, lambda: client.wait(job), "FAILED", "step")
    assert error.reason == "LOSS_NOT_FINITE"
    losses = client.metric_series(job)["train/loss"]
    assert not math.isfinite(losses[max(losses)])


def test_metrics_are_a_row_for_each_step_and_a_column_for_each_series(client, trained):
    frame = client.metrics(trained)
    assert frame.index.name == "step" and list(frame.index) == list(range(1, trained.progress.steps_total + 1))
    assert frame["train/loss"].notna().all()
    evaluated = frame["val/accuracy"].dropna()
    assert len(evaluated) == 8 and evaluated.iloc[-1] == trained.progress.metrics["val/accuracy"]
    assert isinstance(frame, pd.DataFrame) and set(frame.columns) == set(client.metric_series(trained))


def test_jobs_are_listed_newest_first_across_pages(client, trained, monkeypatch):
    for _ in range(2):
        client.wait(client.submit(digits_spec(epochs=1)))
    everything = client.jobs()
    monkeypatch.setattr("trainyard._pages.PAGE_SIZE_MAX", 2)
    assert [j.name for j in client.jobs()] == [j.name for j in everything]
    assert [j.name for j in client.jobs(limit=3)] == [j.name for j in everything[:3]]
    assert all(j.state == JobState.SUCCEEDED for j in client.jobs(states=[JobState.SUCCEEDED]))
    refused(trainyard.InvalidArgumentError, lambda: client.jobs(states=["done"]), "'done'", "SUCCEEDED")
    refused(trainyard.InvalidArgumentError, lambda: client.jobs(limit=0), "expected 1 or more")


def test_plan_shows_layers_and_memory_and_missing_memory(client):
    plan = client.plan(digits_spec())
    assert [layer.op for layer in plan.layers if layer.parameter_count] == ["Gemm", "Gemm"]
    assert plan.run.parameter_count == 4810 and plan.run.memory.parameter_bytes >= 4 * 4810
    assert plan.fit.fits and plan.device == "devices/cpu"
    huge = digits_spec(batch_size=1400, epochs=1)
    huge["model"] = {"mlp": {"hidden": [65536, 65536]}}
    fit = client.plan(huge).fit
    assert not fit.fits and fit.bytes_short > 0 and fit.message
    error = refused(trainyard.InvalidArgumentError, lambda: client.submit(huge))
    assert error.reason == "RESOURCES_IMPOSSIBLE"


def test_wrong_specs_are_refused_with_every_field_and_its_place(client):
    text = ("dataset: {name: x}\nmodel:\n  mlp: {hiden: [1]}\nrecipe:\n  epochs: 1.5\n  epochs: 2\n"
            "  optimizer: {type: adan, lr: .1}\n  shuffle: yes\n  seed: \"3\"\n")
    refused(trainyard.InvalidArgumentError, lambda: client.submit(text), "spec:6:3: recipe.epochs: given twice")
    error = refused(trainyard.InvalidArgumentError, lambda: client.submit(text.replace("  epochs: 2\n", "")),
                    "spec has 6 problems")
    told = [str(v) for v in error.violations]
    assert told == [
        "spec:3:9: model.mlp.hiden: unknown field, did you mean 'hidden'?",
        "spec:5:11: recipe.epochs: '1.5', expected a whole number",
        "spec:6:21: recipe.optimizer.type: 'adan' is not known, expected sgd, adam, adamw, rmsprop, lion, adafactor or "
        "muon; did you mean 'adam'?",
        "spec:6:27: recipe.optimizer.lr: unknown field, its name here is 'learning_rate'",
        "spec:7:12: recipe.shuffle: 'yes', expected true or false",
        "spec:8:9: recipe.seed: '3' (text), expected a whole number of at least 0",
    ]


@pytest.mark.parametrize(("spec", "words"), [
    ({}, ["dataset: is required", "model: is required", "recipe: is required"]),
    ("a: &b 1\nc: *b\n", ["anchors (&name) are not supported"]),
    ("a: !!python/object:os.system x\nb: 1\n", ["tags are not supported"]),
    ("- a\n- b\n", ["expected fields (name: value)"]),
    ("a: [1\nb: 2\n", ["not valid YAML"]),
    ('{"a": 1, "a": 2}', ["a: given twice"]),
    ('{"a": }', ["not valid JSON", "spec:1:7"]),
    ("[" * 40 + "\n" + "]" * 40, ["nested more than 32"]),
    ('{"a":' + "[" * 100_000, ["nested more than 32"]),
    ("a: 1\n---\nb: 2\n", ["a second document"]),
    ("a: " + "x" * (1 << 20) + "\n", ["larger than 1 MiB"]),
    ({"dataset": {"name": "x"}, "model": {"mlp": {"hidden": [1, None]}}, "recipe": {"epochs": float("nan")}},
     ["recipe.epochs: nan, expected a finite number"]),
    ({"dataset": {"name": "x"}, "model": {"mlp": {"hidden": [1, None]}}, "recipe": {"epochs": 1}},
     ["model.mlp.hidden[1]: nothing, expected a whole number"]),
    ({"dataset": {"name": "x"}, "model": {"layers": ["relu", {}]}, "recipe": {"epochs": 2**70}},
     ["is missing its colon", "names no operation", "recipe.epochs: 1180591620717411303424 is out of range"]),
    ({"dataset": {"name": "x"}, "model": {"mlp": {}, "lenet5": None}, "recipe": None},
     ["expected only one of them", "recipe: nothing, expected fields"]),
    ({"dataset": {"path": "a", "train_images": "b"}, "model": {"lenet5": None}, "recipe": {"epochs": 1}},
     ["dataset: mixes several kinds of fields"]),
    ({"dataset": object()}, ["a value of type object"]),
    ({1: 2}, ["the key 1 is not text"]),
    (b"bytes", ["a bytes, expected the path of a spec file"]),
])
def test_a_spec_that_cannot_be_read(client, spec, words):
    refused(trainyard.InvalidArgumentError, lambda: client.submit(spec), *words)


def test_a_spec_file_that_is_missing_or_not_text(client, tmp_path):
    refused(trainyard.NotFoundError, lambda: client.submit(tmp_path / "none.yaml"), "none.yaml: no such file")
    refused(trainyard.InvalidArgumentError, lambda: client.submit(tmp_path), "is data, expected a job file")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    refused(trainyard.InvalidArgumentError, lambda: client.submit(tmp_path / "binary.yaml"), "not UTF-8")


def test_errors_of_the_server_have_their_position_too(client):
    text = (f"dataset:\n  path: {DIGITS}\n  csv: {{header: false, target: c64, image: [1, 8, 8]}}\n"
            "model:\n  layers:\n    - conv: {out_channels: 4, kernel_shape: [20, 20]}\n    - flatten:\n    - gemm:\n"
            "recipe: {epochs: 1, optimizer: {learning_rate: 0.1}}\n")
    error = refused(trainyard.InvalidArgumentError, lambda: client.submit(text), "larger than the image", "spec:6:")
    assert error.reason == "SHAPE_MISMATCH" and error.violations[0].field.startswith("model.layers[0]")
    error = refused(trainyard.NotFoundError, lambda: client.submit(
        {**digits_spec(), "dataset": {"name": "nobody"}}), "nobody")
    assert error.reason == "DATASET_NOT_FOUND"
    error = refused(trainyard.InvalidArgumentError, lambda: client.submit(digits_spec(), name="X"))
    assert error.violations[0].field == "name"


def test_a_name_in_use_is_a_conflict(client, trained):
    assert refused(trainyard.ConflictError, lambda: client.submit(digits_spec(), name="trained")).reason == "JOB_EXISTS"


@pytest.mark.parametrize("name", ["", "a/b", "projects/default/models/trained", "projects/default/jobs/"])
def test_malformed_names(client, name):
    assert refused(trainyard.InvalidArgumentError, lambda: client.job(name)).reason == "NAME_MALFORMED"


def test_a_watch_continues_after_the_daemon_was_killed(own_daemon):
    client = trainyard.Client(f"unix:{own_daemon.socket}")
    job = client.submit(digits_spec(epochs=40, checkpoint_every_steps=100))
    breaks, events = [], []

    def restart():
        time.sleep(1.0)
        own_daemon.start()

    killer = None
    for event in client.watch(job, on_reconnect=breaks.append):
        events.append(event)
        if killer is None and isinstance(event, trainyard.CheckpointEvent):
            own_daemon.kill()
            killer = threading.Thread(target=restart)
            killer.start()
    killer.join()
    assert breaks and all(isinstance(b, trainyard.UnavailableError) for b in breaks)
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    states = [e for e in events if isinstance(e, trainyard.StateEvent)]
    # the worker survived the restart of its daemon
    assert states[-1].state_name == "SUCCEEDED" and max(e.attempt for e in states) == 1
    assert client.wait(job).attempt == 1
    assert list(client.metrics(job).index) == list(range(1, client.job(job).progress.steps_total + 1))


def test_wait_continues_after_the_daemon_was_stopped(own_daemon):
    client = trainyard.Client(f"unix:{own_daemon.socket}")
    job = client.submit(digits_spec(epochs=30, checkpoint_every_steps=100))
    done = []
    waiter = threading.Thread(target=lambda: done.append(client.wait(job)))
    waiter.start()
    time.sleep(0.5)
    own_daemon.stop()
    own_daemon.start()
    waiter.join(3 * PATIENCE_S)
    assert done and done[0].state == JobState.SUCCEEDED


def test_pause_resume_retry_and_fork_give_the_undisturbed_result(client):
    spec = digits_spec(epochs=60, checkpoint_every_steps=25)
    whole = client.wait(client.submit(spec, name="steer-whole"))
    digest = client.model(whole.model).digest
    job = client.submit(spec, name="steer-paused")
    wait_until(lambda: client.job(job).progress.step > 30, "it trains")
    client.pause(job)
    wait_until(lambda: client.job(job).state == JobState.PAUSED, "it pauses")
    paused = client.pause(job)
    assert paused.state == JobState.PAUSED and paused.checkpoint_step == paused.progress.step > 30
    assert client.resume(job).state == JobState.QUEUED
    wait_until(lambda: client.job(job).progress.step > paused.progress.step, "it goes on")
    client.cancel(job)
    client.wait(job, check=False)
    assert refused(trainyard.ConflictError, lambda: client.resume(job)).reason == "JOB_STATE_CONFLICT"
    steps = [c.step for c in client.checkpoints(job)]
    retried = client.retry(job, name="steer-retried")
    assert (retried.origin.job, retried.origin.step) == (job.name, steps[0]) and len(retried.origin.weights_sha256) == 64
    assert client.model(client.wait(retried).model).digest == digest
    again = client.submit(client.spec(whole), name="steer-again")
    assert again.spec == whole.spec
    client.cancel(again)
    error = refused(trainyard.InvalidArgumentError, lambda: client.fork(job, changes={"recipe.seed": 6}), "recipe.seed")
    assert error.reason == "FORK_CHANGE_UNSUPPORTED"
    forked = client.fork(job, step=steps[-1], changes={"recipe.epochs": 61, "recipe.schedule": {"type": "cosine"}})
    assert forked.origin.step == steps[-1] and len(forked.origin.changes) == 2
    assert client.wait(forked).progress.step == 61 * whole.plan.steps_per_epoch
    error = refused(trainyard.NotFoundError, lambda: client.fork(job, step=1), str(steps[0]))
    assert error.reason == "CHECKPOINT_NOT_FOUND"


def test_owners_drains_and_dependencies(client):
    me = getpass.getuser()
    spec = digits_spec()
    first = client.submit(spec, name="chain-1")
    assert first.owner == me
    then = client.submit({**spec, "after": ["chain-1"], "resources": {"time_limit_seconds": 3600}}, name="chain-2")
    assert then.reason == "WAITING_FOR_JOB" and "chain-1" in then.message
    assert [job.name for job in client.jobs(owner=me)][:2] == [then.name, first.name]
    assert client.jobs(mine=True)[0].name == then.name and client.jobs(owner="nobody-here") == []
    assert client.wait(then).state == JobState.SUCCEEDED
    assert client.job(then).run_seconds > 0
    refused(trainyard.NotFoundError, lambda: client.submit({**spec, "after": "no-such-job"}),
            "after[0].job: there is no job no-such-job")
    try:
        drained = client.drain_device("cpu", reason="a test")
        assert drained.drain.owner == me and drained.reason == f"Drained by {me}: a test."
        waits = client.submit(spec, name="waits-1")
        wait_until(lambda: "Drained by" in client.job(waits).message, "the job does not say that its device is drained")
    finally:
        client.resume_device("devices/cpu")
    assert client.wait(waits).state == JobState.SUCCEEDED
    refused(trainyard.NotFoundError, lambda: client.drain_device("gpu-77"), "there is no device devices/gpu-77")


def test_an_array_is_submitted_followed_and_deleted_as_one(client):
    spec = digits_spec(epochs=2)
    assert client.check_array(spec, grid={"recipe.seed": [1, 2, 3]}).size == 3
    array = client.submit_array(spec, name="py-sweep", grid={"recipe.seed": [1, 2], "recipe.optimizer.type": ["sgd", "adam"]})
    assert array.size == 4 and array.uid and array.array.grid["recipe.optimizer.type"].values == ['"sgd"', '"adam"']
    ended = client.wait_array(array, timeout_s=PATIENCE_S)
    assert {count.state: count.count for count in ended.states} == {JobState.SUCCEEDED: 4}
    jobs = client.jobs(array="py-sweep")
    assert [job.array_index for job in jobs] == [3, 2, 1, 0]
    assert jobs[0].array_values == {"recipe.seed": "2", "recipe.optimizer.type": '"adam"'}
    assert not {job.name for job in jobs} & {job.name for job in client.jobs(members=False)}
    assert "py-sweep" in [a.name.rpartition("/")[2] for a in client.arrays()]
    assert client.array("py-sweep").uid == array.uid
    client.delete_array(array)
    refused(trainyard.NotFoundError, lambda: client.array(array), "py-sweep")
    assert not client.jobs(states=["QUEUED"])


def test_an_array_of_endless_jobs_is_paused_and_cancelled(client):
    spec = dict(digits_spec(**ENDLESS), array={"random": {"count": 5, "values": {
        "recipe.optimizer.learning_rate": {"log_uniform": {"low": 1e-4, "high": 1e-2}}}}})
    array = client.submit_array(spec)
    client.pause_array(array)
    wait_until(lambda: [c.state for c in client.array(array).states] == [JobState.PAUSED], "all are paused")
    client.resume_array(array)
    refused(trainyard.ConflictError, lambda: client.delete_array(array), "cancel it")
    client.cancel_array(array)
    ended = client.wait_array(array, timeout_s=PATIENCE_S)
    assert {count.state: count.count for count in ended.states} == {JobState.CANCELLED: 5}
    client.delete_array(array)


def test_errors_of_an_array_have_their_position(client):
    spec = digits_spec()
    refused(trainyard.InvalidArgumentError, lambda: client.submit_array(spec), "array: is missing")
    refused(trainyard.InvalidArgumentError, lambda: client.submit(dict(spec, array={"grid": {"recipe.seed": [1]}})),
            "submit_array")
    error = refused(trainyard.InvalidArgumentError,
                    lambda: client.submit_array(spec, grid={"recipe.optimizer.learning_rate": [0.1, -1]}),
                    "member 1 (recipe.optimizer.learning_rate: -1)")
    assert error.violations[0].field == "array.grid.recipe.optimizer.learning_rate[1]"
    refused(trainyard.InvalidArgumentError, lambda: client.submit_array(spec, array={"random": {"counts": 3}}),
            "array.random.counts", "did you mean 'count'?")
    refused(trainyard.InvalidArgumentError, lambda: client.submit_array(
        spec, array={"random": {"count": 10_000_000, "values": {"recipe.seed": {"integers": {"low": 0, "high": 9}}}}}),
            "10000000 is out of range")
