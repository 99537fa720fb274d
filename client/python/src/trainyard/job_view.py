"""Displays a job to people: as a line in a terminal, or as a result with its curve in a notebook."""

from __future__ import annotations

import html
import math
import shutil
import sys
import time
from typing import Any, TextIO

from trainyard import v1
from trainyard._shown import human_seconds, short_number
from trainyard.events import Event, LogEvent, MetricsEvent, StateEvent, is_final, state_name
from trainyard.v1 import JobState

# The first metrics of a summary, as in `trainyard watch`.
_FIRST = ("test/accuracy", "val/accuracy", "test/mae", "val/mae", "test/loss", "val/loss", "train/loss", "train/accuracy")
_SUMMARY_MAX = 3
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 420, 150, 64, 18  # sizes of the curve in pixels
_COLOUR = "#1f77b4"
_STYLES = {"train/loss": "stroke-opacity='0.5'", "val/loss": "stroke-dasharray='5 3'"}
_BAR_CELLS = 24
_REDRAW_S = 0.2
_LINE_SHARE = 0.1  # without a bar, a line is printed after each such share of the steps


class JobView:
    """A snapshot of a job. `print` shows one line, a notebook shows the result next to its baselines and the loss.

    The metrics of an ended job are those that it reports: with `keep_best` those of its model, which need not be the
    last ones.
    """

    def __init__(self, job: v1.Job, series: dict[str, dict[int, float]]) -> None:
        """series  past metrics by key and step, oldest first, as `Client.metric_series` returns them"""
        self.job = job
        self.series = series

    @property
    def metrics(self) -> dict[str, float]:
        """Returns the reported metrics if the job has ended, else the newest values."""
        if is_final(self.job.state) and self.job.progress.metrics:
            return dict(self.job.progress.metrics)
        return {key: points[next(reversed(points))] for key, points in self.series.items()}

    @property
    def step(self) -> int:
        points = self.series.get("train/loss")
        return self.job.progress.step if is_final(self.job.state) or not points else next(reversed(points))

    @property
    def steps_total(self) -> int:
        return self.job.progress.steps_total or self.job.plan.steps_total

    def __str__(self) -> str:
        job = self.job
        parts = [f"{self._name()}: {state_name(job.state)}"]
        if is_final(job.state) and job.HasField("start_time"):
            parts.append(f" after {human_seconds((job.end_time.ToDatetime() - job.start_time.ToDatetime()).total_seconds())}")
        if self.steps_total:
            parts.append(f", step {self.step}/{self.steps_total}")
        parts.append("".join(f"{', ' if i else ': '}{part}" for i, part in enumerate(self._summary())))
        if job.state in (JobState.FAILED, JobState.CANCELLED, JobState.QUEUED) and job.message:
            parts.append(f": {job.message}")
        return "".join(parts)

    def __repr__(self) -> str:
        return f"<trainyard.JobView of {self}>"

    def bar(self, width: int) -> str:
        """Returns a line for a running job, in at most `width` columns."""
        share = min(1.0, self.step / self.steps_total) if self.steps_total else 0.0
        cells = share * _BAR_CELLS
        filled = "█" * int(cells) + (" ▏▎▍▌▋▊▉"[int(cells % 1 * 8)] if cells < _BAR_CELLS else "")
        line = f"{self._name()}: {int(share * 100):3}%|{filled:{_BAR_CELLS}}| {self.step}/{self.steps_total}"
        for part in self._summary():
            if len(line) + 2 + len(part) > width:
                break
            line += "  " + part
        return line[:width]

    def _name(self) -> str:
        return self.job.name.rpartition("/")[2]

    def _summary(self) -> list[str]:
        metrics, baselines = self.metrics, self._baselines()
        return [f"{key} {short_number(metrics[key])}"
                + (f" (baseline {short_number(baselines[key])})" if key in baselines else "")
                for key in _FIRST if key in metrics][:_SUMMARY_MAX]

    def _baselines(self) -> dict[str, float]:
        return {baseline.metric: baseline.value for baseline in self.job.progress.baselines}

    def _repr_html_(self) -> str:
        baselines = self._baselines()
        head = "".join(f"<th style='text-align:{side}'>{text}</th>" for text, side in
                       (("metric", "left"), ("value", "right"), *((("baseline", "right"),) if baselines else ())))
        rows = []
        for key, value in sorted(self.metrics.items()):
            cells = [short_number(value)]
            if baselines:
                cells.append(short_number(baselines[key]) if key in baselines else "")
            rows.append(f"<tr><td style='text-align:left'>{html.escape(key)}</td>"
                        + "".join(f"<td style='text-align:right'>{cell}</td>" for cell in cells) + "</tr>")
        warnings = "".join(f"<div>{html.escape(warning)}</div>" for warning in self.job.progress.warnings)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>" if rows else ""
        return f"<div><b>{html.escape(str(self))}</b></div>{warnings}{self._curve()}{table}"

    def _curve(self) -> str:
        """Returns the loss by step as a drawing, with the validation loss dashed."""
        curves = [(key, _thinned(self.series[key])) for key in _STYLES if key in self.series]
        points = [point for _, curve in curves for point in curve]
        if len(points) < 2:
            return ""
        steps, values = zip(*points)
        low, high, last = min(values), max(values), max(max(steps), self.steps_total)
        spread = (high - low) or 1.0

        def place(step: int, value: float) -> str:
            return (f"{_LEFT + (_WIDTH - _LEFT - 4) * step / last:.1f},"
                    f"{4 + (_HEIGHT - _BOTTOM - 8) * (high - value) / spread:.1f}")

        lines = "".join(f"<polyline fill='none' stroke='{_COLOUR}' stroke-width='1.5' {_STYLES[key]} "
                        f"points='{' '.join(place(*point) for point in curve)}'><title>{key}</title></polyline>"
                        for key, curve in curves)
        floor = _HEIGHT - _BOTTOM
        texts = "".join(f"<text x='{x}' y='{y}' text-anchor='{anchor}'>{text}</text>" for x, y, anchor, text in (
            (_LEFT - 4, 12, "end", short_number(high)), (_LEFT - 4, floor - 2, "end", short_number(low)),
            (_WIDTH - 4, _HEIGHT - 4, "end", f"step {last}"), (_LEFT, _HEIGHT - 4, "start", "loss, validation dashed")))
        return (f"<svg width='{_WIDTH}' height='{_HEIGHT}' xmlns='http://www.w3.org/2000/svg' font-size='11' "
                f"font-family='sans-serif' fill='currentColor'><path fill='none' stroke='currentColor' stroke-opacity='0.4' "
                f"d='M{_LEFT} 2V{floor}H{_WIDTH - 4}'/>{lines}{texts}</svg>")


def _thinned(points: dict[int, float]) -> list[tuple[int, float]]:
    """Returns at most one point per pixel, the mean of the points that share it. Values that are not finite are left
    out."""
    finite = [(step, value) for step, value in sorted(points.items()) if math.isfinite(value)]
    size = -(-len(finite) // _WIDTH)
    groups = [finite[first:first + size] for first in range(0, len(finite), size or 1)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


class ProgressDisplay:
    """Displays a job's progress until its end: as a view in a notebook, else as a bar on `out` (default standard
    error), or as a few lines if that is no terminal."""

    def __init__(self, job: v1.Job, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._series: dict[str, dict[int, float]] = {}
        self._view = JobView(job, self._series)
        self._drawn_at = -math.inf
        self._line_share = 0.0
        self._on_bar = False
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        self._handle: Any = None
        if out is None and type(shell).__name__ == "ZMQInteractiveShell":  # a notebook's shell
            from IPython.display import display

            self._handle = display(self._view, display_id=True)

    def event(self, event: Event) -> None:
        if isinstance(event, MetricsEvent):
            for point in event.points:
                self._series.setdefault(point.key, {})[point.step] = point.value
            self._draw()
        elif isinstance(event, StateEvent):
            self._view.job.state = event.state
            if not is_final(event.state):  # end() shows the final state with its result
                self._note(str(event))
        elif isinstance(event, LogEvent) and event.level != "INFO":
            self._note(str(event))

    def end(self, job: v1.Job) -> None:
        """Displays the result that the job reports, which need not be the last metrics."""
        self._view = JobView(job, self._series)
        if self._handle is not None:
            self._handle.update(self._view)
        else:
            self._note(str(self._view))

    def _draw(self) -> None:
        if self._handle is not None or self._out.isatty():
            if time.monotonic() - self._drawn_at < _REDRAW_S:
                return
            self._drawn_at = time.monotonic()
            if self._handle is not None:
                self._handle.update(self._view)
                return
            self._out.write("\r" + self._view.bar(shutil.get_terminal_size().columns - 1) + "\x1b[K")
            self._on_bar = True
        elif self._view.steps_total and self._view.step / self._view.steps_total >= self._line_share + _LINE_SHARE:
            self._line_share = self._view.step / self._view.steps_total
            self._out.write(f"{self._view}\n")
        self._out.flush()

    def _note(self, line: str) -> None:
        if self._handle is not None:
            self._handle.update(self._view)
            return
        self._out.write(f"\r\x1b[K{line}\n" if self._on_bar else f"{line}\n")
        self._on_bar = False
        self._out.flush()
