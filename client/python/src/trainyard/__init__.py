"""Trainyard for Python: submit training jobs, follow their progress, use the models. docs/python.md is the manual.

    import trainyard

    with trainyard.Client() as client:
        job = client.submit("examples/digits_cnn.yaml")
        for event in client.watch(job):
            print(event)
        print(client.predict(job, rows).labels)
"""

import os as _os

# gRPC's own log lines would mix with the caller's; the user can enable them with GRPC_VERBOSITY.
_os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from trainyard import v1
from trainyard._server_calls import Devices
from trainyard._upload import Progress
from trainyard._version import __version__
from trainyard.client import Client, upload
from trainyard.errors import (CallCancelledError, ConflictError, DeadlineExceededError, FieldViolation, InternalError,
                              InvalidArgumentError, JobCancelledError, JobEndedError, JobFailedError, NotAllowedError,
                              NotFoundError, ResourceExhaustedError, TrainyardError, UnavailableError)
from trainyard.events import (CheckpointEvent, Event, LogEvent, MetricPoint, MetricsEvent, OtherEvent,
                              StateEvent, is_final, state_name)
from trainyard.job_view import JobView
from trainyard.local_model import LocalModel, load
from trainyard.predictions import Predictions, UnseenCategory
from trainyard.v1 import JobState

__all__ = [
    "CallCancelledError", "CheckpointEvent", "Client", "ConflictError", "DeadlineExceededError", "Devices", "Event",
    "FieldViolation", "InternalError", "InvalidArgumentError", "JobCancelledError", "JobEndedError", "JobFailedError",
    "JobState", "JobView", "LocalModel", "LogEvent", "MetricPoint", "MetricsEvent", "NotAllowedError",
    "NotFoundError", "OtherEvent", "Predictions", "Progress", "ResourceExhaustedError", "StateEvent",
    "TrainyardError", "UnavailableError", "UnseenCategory", "__version__", "is_final", "load", "state_name", "upload", "v1",
]
