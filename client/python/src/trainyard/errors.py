"""The errors of this package. Every one is a TrainyardError.

There is one class per kind of failure, matching the command line's exit codes (docs/cli.md). `reason` is a stable key
for programs (`JOB_NOT_FOUND`), `str(error)` is for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from trainyard.v1 import Job


@dataclass(frozen=True)
class FieldViolation:
    """One refused field of a spec or request."""

    field: str  # "recipe.optimizer.learning_rate"
    description: str  # what is wrong with it, and what would be accepted
    position: str = ""  # "spec.yaml:14:3" if the spec is YAML

    def __str__(self) -> str:
        return ": ".join(part for part in (self.position, self.field, self.description) if part)


class TrainyardError(Exception):
    """`code` is gRPC's ("NOT_FOUND"), `reason` is a stable key, and `metadata` has the variable parts of the
    message."""

    default_code = "INTERNAL"

    def __init__(self, message: str, *, reason: str, code: str = "", metadata: Mapping[str, str] | None = None,
                 violations: Sequence[FieldViolation] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.code = code or self.default_code
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.reason}]"]
        if len(self.violations) > 1:
            lines += [f"  {violation}" for violation in self.violations]
        return "\n".join(lines)


class InvalidArgumentError(TrainyardError):
    """A spec, an argument or data was refused; `violations` name the fields."""

    default_code = "INVALID_ARGUMENT"


class NotAllowedError(TrainyardError):
    """The credentials are missing or wrong, or do not permit the call."""

    default_code = "PERMISSION_DENIED"


class NotFoundError(TrainyardError):
    """The job, dataset, model or local file does not exist."""

    default_code = "NOT_FOUND"


class ConflictError(TrainyardError):
    """The name is taken, or the job is not in the right state."""

    default_code = "FAILED_PRECONDITION"


class ResourceExhaustedError(TrainyardError):
    """A quota is used up, a disk is full, or the data does not fit."""

    default_code = "RESOURCE_EXHAUSTED"


class UnavailableError(TrainyardError):
    """The server cannot be reached or is stopping; trying again is safe."""

    default_code = "UNAVAILABLE"


class DeadlineExceededError(TrainyardError, TimeoutError):
    """The server did not respond, or the job did not end, within the time limit."""

    default_code = "DEADLINE_EXCEEDED"


class CallCancelledError(TrainyardError):
    """The call was cancelled before it ended."""

    default_code = "CANCELLED"


class InternalError(TrainyardError):
    """A fault in the server, damaged data, or any other error."""


class JobEndedError(TrainyardError):
    """`wait` found that the job ended in another state than SUCCEEDED. Reason and message are those of `job`."""

    def __init__(self, message: str, *, reason: str, job: Job) -> None:
        super().__init__(message, reason=reason)
        self.job = job


class JobFailedError(JobEndedError):
    """The job FAILED."""


class JobCancelledError(JobEndedError):
    """The job was CANCELLED."""

    default_code = "CANCELLED"


_CLASS_OF_CODE: dict[str, type[TrainyardError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "OUT_OF_RANGE": InvalidArgumentError,
    "UNAUTHENTICATED": NotAllowedError,
    "PERMISSION_DENIED": NotAllowedError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": ConflictError,
    "ABORTED": ConflictError,
    "FAILED_PRECONDITION": ConflictError,
    "RESOURCE_EXHAUSTED": ResourceExhaustedError,
    "UNAVAILABLE": UnavailableError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
    "CANCELLED": CallCancelledError,
}


def from_rpc(error: grpc.RpcError, server: str) -> TrainyardError:
    """Converts a gRPC error, with the reason and the fields of its google.rpc.Status details."""
    code: str = error.code().name
    message: str = error.details() or ""
    reason, metadata, violations = "", {}, []
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in status_pb2.Status.FromString(value).details:
            if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                info = error_details_pb2.ErrorInfo.FromString(detail.value)
                reason, metadata = info.reason, dict(info.metadata)
            elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
                bad = error_details_pb2.BadRequest.FromString(detail.value)
                violations += [FieldViolation(v.field, v.description) for v in bad.field_violations]
    if not reason:
        reason = code
        if code == "UNAVAILABLE":
            reason = "SERVER_UNREACHABLE"
            message = f"no answer from the server at {server}: {message}"
        elif code == "UNIMPLEMENTED":
            message = (f"the server at {server} does not know this call or could not read it; do client and server have "
                       "the same version?")
        elif code == "DEADLINE_EXCEEDED":
            message = f"the server at {server} did not answer in time"
    return _CLASS_OF_CODE.get(code, InternalError)(message or "the server gave no reason", reason=reason, code=code,
                                                   metadata=metadata, violations=violations)
