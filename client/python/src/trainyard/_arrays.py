"""Calls for arrays: many jobs that differ in some values, handled as one."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trainyard import _rpc as rpc
from trainyard import v1
from trainyard._pages import pages
from trainyard._spec import Document, Kind, Spec, read_document
from trainyard._upload import Observer
from trainyard.errors import DeadlineExceededError, InvalidArgumentError, TrainyardError

POLL_S, POLL_S_MAX = 0.2, 2.0


class ArrayCalls:
    """The calls of `Client` for arrays. An array may be given by its name or as the message itself."""

    _channel: rpc.Channel
    _name: Callable[[str, Any], str]
    _wire_spec: Callable[[Document, Observer | None], v1.JobSpec]

    def submit_array(self, spec: Spec, *, array: Mapping[str, object] | None = None,
                     grid: Mapping[str, Sequence[object]] | None = None, name: str | None = None,
                     folder: str | os.PathLike[str] | None = None, request_id: str | None = None,
                     progress: Observer | None = None) -> v1.JobArray:
        """Submits one job for each member of an array: all of them, or none. The jobs are named after the array, with a
        number, and each has its own values in place of those of the spec.

        spec   as for `submit`; may contain `array` unless the argument `array` or `grid` is given
        array  the fields of `array` in docs/job_spec.md: {"random": {"count": 20, "values": {...}}}
        grid   short for array={"grid": grid}: {"recipe.optimizer.learning_rate": [0.1, 0.01]}
        name   the array's ID instead of the spec's `name`

        The other arguments are those of `submit`. InvalidArgumentError names the member and its value; its reasons
        ARRAY_SIZE_INVALID and ARRAY_PLANS_TOO_MANY are about limits of arrays.
        """
        return self._send_array(spec, array, grid, name, folder, request_id, progress, validate_only=False)

    def check_array(self, spec: Spec, *, array: Mapping[str, object] | None = None,
                    grid: Mapping[str, Sequence[object]] | None = None, name: str | None = None,
                    folder: str | os.PathLike[str] | None = None, progress: Observer | None = None) -> v1.JobArray:
        """Returns or raises what `submit_array` would, without submitting: `size` is the number of members."""
        return self._send_array(spec, array, grid, name, folder, None, progress, validate_only=True)

    def array(self, array: str | v1.JobArray) -> v1.JobArray:
        """Returns the array with the number of its members in each state. `jobs(array=...)` returns the members.
        NotFoundError / ARRAY_NOT_FOUND."""
        return self._channel.call(rpc.GET_ARRAY, v1.GetArrayRequest(name=self._name("arrays", array)))

    def arrays(self, *, limit: int | None = None) -> list[v1.JobArray]:
        """Returns arrays, newest first, without their field `array`; at most `limit`."""
        def page(token: str, size: int) -> tuple[Iterable[v1.JobArray], str]:
            answer = self._channel.call(rpc.LIST_ARRAYS, v1.ListArraysRequest(
                parent=self._channel.parent, page_size=size, page_token=token))
            return answer.arrays, answer.next_page_token
        return pages(page, limit)

    def cancel_array(self, array: str | v1.JobArray) -> v1.JobArray:
        """Cancels every member that has not ended, as `cancel` does."""
        return self._channel.call(rpc.CANCEL_ARRAY, v1.CancelArrayRequest(name=self._name("arrays", array)),
                                  timeout_s=rpc.ARRAY_TIMEOUT_S)

    def pause_array(self, array: str | v1.JobArray) -> v1.JobArray:
        """Pauses every member that has not ended, as `pause` does."""
        return self._channel.call(rpc.PAUSE_ARRAY, v1.PauseArrayRequest(name=self._name("arrays", array)),
                                  timeout_s=rpc.ARRAY_TIMEOUT_S)

    def resume_array(self, array: str | v1.JobArray) -> v1.JobArray:
        """Resumes every member that has not ended, as `resume` does."""
        return self._channel.call(rpc.RESUME_ARRAY, v1.ResumeArrayRequest(name=self._name("arrays", array)),
                                  timeout_s=rpc.ARRAY_TIMEOUT_S)

    def delete_array(self, array: str | v1.JobArray) -> None:
        """Deletes the array and all of its jobs, which must have ended; their models stay. ConflictError /
        JOB_STATE_CONFLICT."""
        self._channel.call(rpc.DELETE_ARRAY, v1.DeleteArrayRequest(name=self._name("arrays", array)),
                           timeout_s=rpc.ARRAY_TIMEOUT_S)

    def wait_array(self, array: str | v1.JobArray, *, timeout_s: float | None = None) -> v1.JobArray:
        """Waits until all members have ended, in whatever state, and returns the array. DeadlineExceededError /
        WAIT_TIMEOUT after `timeout_s` seconds; the jobs continue."""
        if timeout_s is not None and not timeout_s > 0:
            raise InvalidArgumentError(f"timeout_s: {timeout_s}, expected seconds above 0", reason="FIELD_OUT_OF_RANGE")
        until = None if timeout_s is None else time.monotonic() + timeout_s
        pause = POLL_S
        while True:
            found = self.array(array)
            if found.HasField("end_time"):
                return found
            rest = None if until is None else until - time.monotonic()
            if rest is not None and rest <= 0:
                short = found.name.rpartition("/")[2]
                raise DeadlineExceededError(f"{short} has not ended within {timeout_s:g} s; it continues",
                                            reason="WAIT_TIMEOUT")
            time.sleep(pause if rest is None else min(pause, rest))
            pause = min(2 * pause, POLL_S_MAX)

    def _send_array(self, spec: Spec, array: Mapping[str, object] | None, grid: Mapping[str, Sequence[object]] | None,
                    name: str | None, folder: str | os.PathLike[str] | None, request_id: str | None,
                    progress: Observer | None, *, validate_only: bool) -> v1.JobArray:
        if array is not None and grid is not None:
            raise InvalidArgumentError("grid: given with array, expected one of them", reason="FIELD_CONFLICT")
        document = read_document(self._channel, Kind.JOB, spec, folder)
        members = document.read.array
        if array is not None or grid is not None:
            given = array if array is not None else {"grid": grid}
            members = read_document(self._channel, Kind.ARRAY, given).read.array
        elif not document.read.HasField("array"):
            raise InvalidArgumentError("array: is missing, in the spec and as an argument, expected one of grid, list "
                                       "and random", reason="FIELD_REQUIRED")
        request = v1.SubmitArrayRequest(parent=self._channel.parent, array_id=name or document.read.name, array=members,
                                        spec=self._wire_spec(document, progress),
                                        request_id=request_id or str(uuid.uuid4()), validate_only=validate_only)
        try:
            return self._channel.call(rpc.SUBMIT_ARRAY, request, timeout_s=rpc.ARRAY_TIMEOUT_S)
        except TrainyardError as error:
            raise document.with_positions(self._channel, error) from None
