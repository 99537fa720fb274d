"""Tests of output for people: printed events, progress that ends with the result, and a job in a notebook."""

import io
import sys
import types
from datetime import datetime, timezone

import pytest
from conftest import digits_spec

import trainyard
from trainyard import CheckpointEvent, LogEvent, MetricPoint, MetricsEvent, StateEvent
from trainyard.job_view import ProgressDisplay

NOW = datetime(2026, 1, 31, 12, 30, tzinfo=timezone.utc)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def best(client):
    """Returns a job whose model is that of its first evaluation, since the highest loss counts as the best."""
    spec = digits_spec(keep_best={"metric": "val/loss", "mode": "max"})
    job = client.wait(client.submit(spec, name="best-first"))
    series = client.metric_series(job)["val/accuracy"]
    assert job.progress.metrics["val/accuracy"] == series[min(series)] < series[max(series)] - 0.01
    return job


def test_events_are_printed_as_lines_to_read():
    def words(kind, *fields):
        return str(kind(7, NOW, 1, *fields)).partition("  ")[2]

    running = trainyard.JobState.RUNNING
    assert str(StateEvent(7, NOW, 1, running, "RUNNING", "Training.", "devices/cpu", 0)) == (
        f"{NOW.astimezone():%H:%M:%S}  RUNNING on cpu: Training.")
    assert words(StateEvent, running, "RUNNING", "Training.", "devices/gpu-0", 40, ("devices/gpu-0", "devices/gpu-1")) == (
        "RUNNING on gpu-0, gpu-1, resumed from step 40: Training.")
    assert words(StateEvent, trainyard.JobState.FAILED, "NAN_LOSS", "The loss is NaN.", "", 0) == (
        "FAILED: The loss is NaN. [NAN_LOSS]")
    points = tuple(MetricPoint("train/loss", step, 1 / step) for step in (1, 2, 3))
    assert words(MetricsEvent, (*points, MetricPoint("val/accuracy", 3, 0.97531))) == (
        "step 3  train/loss 0.3333  val/accuracy 0.9753")
    assert words(CheckpointEvent, 40, 1824522, "") == "checkpoint at step 40, 1.74 MiB"
    assert words(CheckpointEvent, 40, 0, "the disk is full") == (
        "checkpoint at step 40 could not be saved, training continues: the disk is full")
    assert words(LogEvent, "WARN", "slow") == "WARN: slow" and words(LogEvent, "INFO", "so it is") == "so it is"
    assert "event 7" in words(trainyard.OtherEvent)
    assert "points=(MetricPoint(key='train/loss'" in repr(MetricsEvent(7, NOW, 1, points))


def test_every_event_of_a_job_is_one_line(client, best):
    lines = [str(event) for event in client.watch(best)]
    assert all("\n" not in line and len(line) < 400 for line in lines)
    assert "QUEUED" in lines[0] and "RUNNING on cpu" in "".join(lines) and "SUCCEEDED" in lines[-1]


def test_progress_ends_with_the_result_that_the_job_reports(client, best, capsys):
    assert client.wait(best, show=True) == best
    lines = capsys.readouterr().err.splitlines()
    reported = best.progress.metrics["val/accuracy"]
    assert lines[-1].startswith("best-first: SUCCEEDED after ")
    assert f"val/accuracy {reported:.4g} (baseline " in lines[-1]
    assert "QUEUED" in lines[0] and "\r" not in "".join(lines)


def test_a_terminal_shows_a_bar_and_then_the_result(client, best, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("trainyard.job_view._REDRAW_S", 0)
    out = Terminal()
    display = ProgressDisplay(client.job(best), out)
    for event in client.watch(best):
        display.event(event)
    display.end(best)
    drawn = out.getvalue().split("\r")
    bars = [line for line in drawn if "|" in line]
    assert "100%|████████████████████████|" in bars[-1] and all(len(bar.removesuffix("\x1b[K")) < 80 for bar in bars)
    assert drawn[-1].startswith("\x1b[Kbest-first: SUCCEEDED") and out.getvalue().endswith("\n")


def test_progress_reports_a_job_that_did_not_succeed(client, capsys):
    job = client.submit(digits_spec(epochs=100_000), name="cut-short")
    for event in client.watch(job):
        if isinstance(event, MetricsEvent):
            client.cancel(job)
    with pytest.raises(trainyard.JobCancelledError):
        client.wait(job, show=True)
    assert capsys.readouterr().err.splitlines()[-1].startswith("cut-short: CANCELLED after ")


def test_a_notebook_shows_the_result_with_its_curve(client, best):
    view = client.view(best)
    assert str(view).startswith("best-first: SUCCEEDED") and "best-first" in repr(view)
    page = view._repr_html_()
    assert page.count("<polyline") == 2 and "stroke-dasharray='5 3'" in page and "<title>val/loss</title>" in page
    reported = best.progress.metrics["val/accuracy"]
    baseline = {one.metric: one.value for one in best.progress.baselines}["val/accuracy"]
    right = "<td style='text-align:right'>"
    assert f"val/accuracy</td>{right}{reported:.4g}</td>{right}{baseline:.4g}</td>" in page
    queued = trainyard.JobView(trainyard.v1.Job(name="projects/default/jobs/a<b", state=trainyard.JobState.QUEUED), {})
    assert "<polyline" not in queued._repr_html_() and "a&lt;b: QUEUED" in queued._repr_html_()


def test_curves_of_long_jobs_are_short_and_gaps_are_left_out(client):
    series = {"train/loss": {step: float("nan") if step == 7 else 1 / step for step in range(1, 100_001)}}
    page = trainyard.JobView(trainyard.v1.Job(name="j", state=trainyard.JobState.RUNNING), series)._repr_html_()
    assert len(page) < 12_000 and "nan" not in page


def test_progress_in_a_notebook_is_one_view_that_changes(client, best, monkeypatch):
    shown = []

    class Handle:
        def update(self, view):
            shown.append(view._repr_html_())

    class ZMQInteractiveShell:
        pass

    def display(view, display_id):
        assert display_id
        shown.append(view._repr_html_())
        return Handle()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = ZMQInteractiveShell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    client.wait(best, show=True)
    assert len(shown) > 2 and shown[-1] == client.view(best)._repr_html_()


def test_predictions_are_printed_as_a_table():
    classes = trainyard.Predictions(True, ("cat", "dog"), ("dog",) * 12, ((0.25, 0.75),) * 12, ())
    lines = str(classes).splitlines()
    assert lines[:2] == ["row  prediction  probability", "0    dog         75.0%"] and len(lines) == 12
    assert lines[-1] == "and 2 more rows; to_frame() has all"
    numbers = trainyard.Predictions(False, (), (), (), (1.5, 2.25))
    assert str(numbers).splitlines() == ["row  prediction", "0    1.5", "1    2.25"]
    assert "<td>1.5</td>" in numbers._repr_html_() and "<td>dog</td>" in classes._repr_html_()
    assert str(trainyard.Predictions(False, (), (), (), ())) == "no predictions"


def test_metrics_without_pandas_names_the_call_that_needs_none(client, best, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install pandas; metric_series\(\)"):
        client.metrics(best)
