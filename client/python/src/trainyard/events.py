"""The typed events of a job. `Client.watch` yields them in order, each once."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeAlias

from trainyard import v1
from trainyard._rpc import WATCH_JOB, Channel
from trainyard._shown import human_bytes, short_number
from trainyard.errors import (DeadlineExceededError, InternalError, TrainyardError,
                              UnavailableError)
from trainyard.v1 import JobState

RECONNECT_S_MAX = 120.0
_PAUSE_S, _PAUSE_S_MAX = 0.1, 2.0


def state_name(state: JobState) -> str:
    """Returns the state's name, "RUNNING"; or "STATE_9" for a state that only a newer server knows."""
    return JobState.Name(state) if state in JobState.values() else f"STATE_{int(state)}"


def is_final(state: JobState) -> bool:
    """Returns whether a job in this state has ended."""
    return state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True)
class _Event:
    seq: int  # counts from 1 within a job; no gaps unless old events were removed (Job.events_thinned)
    time: datetime  # in UTC; never decreases within a job
    attempt: int

    def __str__(self) -> str:
        """Returns a line for people with the local time, as `trainyard watch` prints it; repr() has all fields."""
        return f"{self.time.astimezone():%H:%M:%S}  {self._words()}"

    def _words(self) -> str:
        return f"event {self.seq}, of a kind that this version does not know"


@dataclass(frozen=True)
class StateEvent(_Event):
    """The job moved to `state`, because of `reason` (a stable key) and `message` (a sentence)."""

    state: JobState
    reason: str
    message: str
    device: str  # devices/cpu, or empty
    resumed_from_step: int  # 0: started from the beginning
    devices: tuple[str, ...] = ()  # all devices; `device` is the first
    # SUCCEEDED: by metric key, the final metrics on the same rows of a prediction that ignores the inputs.
    baselines: tuple[tuple[str, float], ...] = ()

    @property
    def state_name(self) -> str:
        return state_name(self.state)

    def _words(self) -> str:
        devices = [name.rpartition("/")[2] for name in self.devices or [self.device] if name]
        where = f" on {', '.join(devices)}" if devices and self.state == JobState.RUNNING else ""
        begin = f", resumed from step {self.resumed_from_step}" if self.resumed_from_step else ""
        reason = f" [{self.reason}]" if self.state == JobState.FAILED else ""
        return f"{self.state_name}{where}{begin}{': ' if self.message else ''}{self.message}{reason}"


@dataclass(frozen=True)
class MetricPoint:
    key: str  # train/loss, val/accuracy
    step: int
    value: float  # may be NaN or infinite


@dataclass(frozen=True)
class MetricsEvent(_Event):
    points: tuple[MetricPoint, ...]

    def _words(self) -> str:
        newest = {point.key: point for point in self.points}  # the steps of a key ascend
        step = max((point.step for point in self.points), default=0)
        return "  ".join([f"step {step}", *(f"{key} {short_number(point.value)}" for key, point in newest.items())])


@dataclass(frozen=True)
class CheckpointEvent(_Event):
    """A checkpoint was saved. If `error` is set, saving failed: training continues, and the previous checkpoint
    stays."""

    step: int
    size_bytes: int
    error: str

    def _words(self) -> str:
        if self.error:
            return f"checkpoint at step {self.step} could not be saved, training continues: {self.error}"
        return f"checkpoint at step {self.step}, {human_bytes(self.size_bytes)}"


@dataclass(frozen=True)
class LogEvent(_Event):
    level: str  # INFO, WARN, ERROR
    text: str

    def _words(self) -> str:
        return self.text if self.level == "INFO" else f"{self.level}: {self.text}"


@dataclass(frozen=True)
class OtherEvent(_Event):
    """A kind of event that this version does not know."""


Event: TypeAlias = StateEvent | MetricsEvent | CheckpointEvent | LogEvent | OtherEvent

_NON_FINITE = {v1.NonFinite.NOT_A_NUMBER: math.nan, v1.NonFinite.POSITIVE_INFINITY: math.inf,
               v1.NonFinite.NEGATIVE_INFINITY: -math.inf}


def _points(batch: v1.MetricBatch) -> Iterator[MetricPoint]:
    for series in batch.series:
        values = list(series.values)
        for marked in series.non_finite:
            values[marked.index] = _NON_FINITE.get(marked.kind, math.nan)
        for step, value in zip(series.steps, values):
            yield MetricPoint(series.key, step, value)


def _packed_points(batch: v1.PackedMetrics) -> Iterator[MetricPoint]:
    """Yields the points of packed metrics, whose format proto/metrics/packed_metrics.h describes."""
    for series in batch.series:
        values = list(series.floats) or list(series.doubles)
        gaps = list(series.gaps)
        if len(gaps) == 1:
            gaps *= len(values) - 1
        if not values or len(gaps) != len(values) - 1:
            raise InternalError(f"a series of {series.key} is damaged", reason="EVENT_DAMAGED", code="DATA_LOSS")
        for marked in series.non_finite:
            values[marked.index] = _NON_FINITE.get(marked.kind, math.nan)
        for step, value in zip(itertools.accumulate(gaps, initial=series.first_step), values):
            yield MetricPoint(series.key, step, value)


def typed(event: v1.Event) -> Event:
    head = (event.seq, event.time.ToDatetime(timezone.utc), event.attempt)
    kind = event.WhichOneof("kind")
    if kind == "state":
        state = event.state
        return StateEvent(*head, state.state, state.reason, state.message, state.device,
                          state.resumed_from_step, tuple(state.devices),
                          tuple((baseline.metric, baseline.value) for baseline in state.baselines))
    if kind == "metrics":
        return MetricsEvent(*head, tuple(_points(event.metrics)))
    if kind == "packed_metrics":
        return MetricsEvent(*head, tuple(_packed_points(event.packed_metrics)))
    if kind == "checkpoint":
        return CheckpointEvent(*head, event.checkpoint.step, event.checkpoint.size_bytes, event.checkpoint.error)
    if kind == "log":
        level = event.log.level
        known = level in v1.LogLine.Level.values()
        return LogEvent(*head, v1.LogLine.Level.Name(level) if known else f"LEVEL_{level}", event.log.text)
    return OtherEvent(*head)


def follow(channel: Channel, name: str, after: int, *, on_reconnect: Callable[[TrainyardError], None] | None = None,
           timeout_s: float | None = None, only_past: bool = False) -> Iterator[Event]:
    """Yields the events after `after` up to the job's end, across broken connections, like client/lib/follow.h.

    Reconnects after the last event until the server has not responded for RECONNECT_S_MAX seconds; if it has never
    responded, the error is raised immediately. With `only_past`, ends with the event that is the newest at the first
    response. DeadlineExceededError after `timeout_s` seconds.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    seen, last = after, None
    oldest = 0  # from this number on, the server promises all events
    answered_at: float | None = None
    pause = _PAUSE_S
    while True:
        broken: TrainyardError = UnavailableError("the event stream ended early", reason="STREAM_ENDED")
        try:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            request = v1.WatchJobRequest(name=name, after=seen, packed=True)
            with channel.stream(WATCH_JOB, request, left) as messages:
                for message in messages:
                    pause = _PAUSE_S
                    answered_at = time.monotonic()
                    if message.HasField("start"):
                        oldest = message.start.oldest_seq
                        if only_past and last is None:
                            last = message.start.newest_seq
                        if is_final(message.start.job.state):
                            last = message.start.newest_seq
                        if last is not None and last <= seen:
                            return
                    for one in message.events:
                        event = typed(one)
                        # thinned events may be missing: Job.events_thinned
                        if event.seq != seen + 1 and not seen < event.seq <= oldest:
                            raise InternalError(f"event {event.seq} came after event {seen}", reason="EVENT_GAP",
                                                code="DATA_LOSS")
                        seen = event.seq
                        yield event
                        answered_at = time.monotonic()  # excludes the time that the caller took for the event
                        if seen == last or (isinstance(event, StateEvent) and is_final(event.state)):
                            return
        except UnavailableError as error:
            broken = error
        if answered_at is None or time.monotonic() - answered_at > RECONNECT_S_MAX:
            raise broken
        if deadline is not None and time.monotonic() + pause >= deadline:
            raise DeadlineExceededError(broken.message, reason="DEADLINE_EXCEEDED")
        if on_reconnect is not None:
            on_reconnect(broken)
        time.sleep(pause)
        pause = min(pause * 2, _PAUSE_S_MAX)
