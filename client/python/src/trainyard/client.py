"""The client of a Trainyard server: jobs, datasets and models."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from trainyard import _rpc as rpc
from trainyard import data, v1
from trainyard._arrays import ArrayCalls
from trainyard._connection import resolve
from trainyard._pages import pages
from trainyard._people_calls import PeopleCalls
from trainyard._server_calls import ServerCalls
from trainyard._spec import Document, Kind, Spec, read_document
from trainyard._table_calls import Table, TableCalls
from trainyard._text_calls import TextCalls
from trainyard._upload import Content, Observer, Progress, ensure_dataset, ensure_weights
from trainyard._write_spec import write_message
from trainyard.errors import (DeadlineExceededError, InternalError, InvalidArgumentError,
                              JobCancelledError, JobFailedError, TrainyardError)
from trainyard.events import Event, MetricsEvent, follow, is_final, state_name
from trainyard.job_view import JobView, ProgressDisplay
from trainyard.predictions import Predictions, Rows, collect, requests_of
from trainyard.v1 import JobState

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_FILE_NAME = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,127}")


class Client(ArrayCalls, PeopleCalls, ServerCalls, TableCalls, TextCalls):
    """A connection to one server. Thread-safe; `with Client() as client:` closes it.

    Without an address, the client searches like the command line (docs/cli.md, "Which server"): TRAINYARD_SERVER, the
    context of the configuration file, then the Unix sockets where a daemon of this user or this machine listens.

    Results are the messages of proto/trainyard/v1 (`trainyard.v1`), whose comments describe each field. Jobs, datasets
    and models may be given by short name (`digits-1`; for a dataset also with a version, `digits@2`), by full name
    (`projects/default/jobs/digits-1`) or as the message itself. Calls raise subclasses of `TrainyardError`. Reads,
    `submit` and `cancel` are retried while the server is unavailable, up to four times within `timeout_s`; everything
    else is sent once.
    """

    def __init__(self, address: str | None = None, *, context: str | None = None, project: str | None = None,
                 ca_file: str | os.PathLike[str] | None = None, token: str | None = None,
                 token_file: str | os.PathLike[str] | None = None,
                 config_file: str | os.PathLike[str] | None = None, plaintext: bool = False,
                 timeout_s: float = 10.0, program: str = "trainyard") -> None:
        """
        address      "unix:/path" or "host:port"
        context      a context of the configuration file, instead of TRAINYARD_CONTEXT and the file's own `context`
        project      the project of names without one, instead of TRAINYARD_PROJECT and the context's; else "default"
        ca_file      PEM file of root certificates for TLS; by default TCP to another machine uses the system's
        token        your token's text, instead of a file
        token_file   a file with your token, which only its owner may access (mode 0600); without either argument:
                     TRAINYARD_TOKEN, TRAINYARD_TOKEN_FILE, or the token of `trainyard login` in the context
        config_file  replaces TRAINYARD_CONFIG, ~/.config/trainyard/config.yaml and /etc/trainyard/client.yaml
        plaintext    allows TCP without TLS to another machine
        timeout_s    time limit of each call in seconds, above 0 and up to 3600
        program      the command line, as a name on the PATH or a file; it reads ONNX files and folders of language
                     models that specs name

        UnavailableError / SERVER_NOT_RUNNING if nothing listens on a Unix socket; TCP connects with the first call.
        InvalidArgumentError / CONFIG_INVALID names an invalid setting.
        """
        connection = resolve(address, context=context, project=project, ca_file=ca_file, token=token,
                             token_file=token_file, config_file=config_file, plaintext=plaintext,
                             timeout_s=timeout_s)
        self._channel = rpc.Channel(connection)
        self._program = program

    def close(self) -> None:
        """Closes the connection and all its streams."""
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"trainyard.Client({self.server!r})"

    @property
    def server(self) -> str:
        """The server's address: "unix:/path" or "host:port"."""
        return self._channel.connection.server

    @property
    def project(self) -> str:
        """The ID of the project that names without one mean."""
        return self._channel.connection.project

    # --- jobs -----------------------------------------------------------------------------------------------------

    def submit(self, spec: Spec, *, name: str | None = None, folder: str | os.PathLike[str] | None = None,
               request_id: str | None = None, progress: Observer | None = None) -> v1.Job:
        """Submits a job and returns it as QUEUED. The job is then stored and survives a power loss.

        spec        the path of a spec file; or its text, as YAML of several lines or JSON; or a dict with the same
                    content (docs/job_spec.md). Files that it names are uploaded if the server lacks their content.
        name        the job's ID instead of the spec's `name`; without either, the server chooses one
        folder      the folder to which the spec's paths are relative; default: the spec file's, else the current one
        request_id  a UUID; submitting again with the same one returns the same job
        progress    called with a `Progress` while an upload advances

        InvalidArgumentError lists the invalid fields in `violations`, with line and column for YAML.
        ConflictError / JOB_EXISTS if the name is taken.
        """
        return self._send_job(spec, name, folder, progress, request_id, validate_only=False)

    def check(self, spec: Spec, *, name: str | None = None, folder: str | os.PathLike[str] | None = None,
              progress: Observer | None = None) -> v1.Job:
        """Returns or raises what `submit` would, without submitting: the job has a plan and no uid. Data that the spec
        names is uploaded nevertheless, because the check needs it."""
        return self._send_job(spec, name, folder, progress, None, validate_only=True)

    def plan(self, spec: Spec, *, folder: str | os.PathLike[str] | None = None,
             progress: Observer | None = None) -> v1.JobPlan:
        """Plans the spec on the server: layers, FLOPs, memory in bytes, device, warnings. Runs nothing, but uploads the
        data that the spec names. A job that does not fit is planned too: `plan.fit` says how much memory is missing."""
        document = self._read_job(spec, folder)
        request = v1.PlanJobRequest(parent=self._channel.parent, spec=self._wire_spec(document, progress))
        try:
            return self._channel.call(rpc.PLAN_JOB, request)
        except TrainyardError as error:
            raise document.with_positions(self._channel, error) from None

    def job(self, job: str | v1.Job) -> v1.Job:
        """Returns the job's current state. NotFoundError / JOB_NOT_FOUND."""
        return self._channel.call(rpc.GET_JOB, v1.GetJobRequest(name=self._name("jobs", job)))

    def jobs(self, *, states: Iterable[JobState | str] = (), owner: str | None = None, mine: bool = False,
             array: str | v1.JobArray | None = None, members: bool = True,
             labels: Mapping[str, str] | None = None, limit: int | None = None) -> list[v1.Job]:
        """Returns jobs, newest first, at most `limit`. The filters are: `states` ("RUNNING", JobState.RUNNING);
        `owner`, or with `mine` the caller as the server knows it; `array`, the array to which they belong; `members`,
        which if false leaves out members of arrays; and `labels`, all of which they must have."""
        wanted: list[JobState | str] = []
        for state in states:
            if isinstance(state, str) and state.upper() not in JobState.keys()[1:]:
                raise InvalidArgumentError(f"states: '{state}' is not known, expected "
                                           f"{', '.join(JobState.keys()[1:])}", reason="FIELD_UNSUPPORTED")
            wanted.append(state.upper() if isinstance(state, str) else state)

        def page(token: str, size: int) -> tuple[Iterable[v1.Job], str]:
            answer = self._channel.call(rpc.LIST_JOBS, v1.ListJobsRequest(
                parent=self._channel.parent, page_size=size, page_token=token, states=wanted, owner=owner or "",
                mine=mine, array="" if array is None else self._name("arrays", array), no_members=not members,
                labels=labels))
            return answer.jobs, answer.next_page_token
        return pages(page, limit)

    def cancel(self, job: str | v1.Job) -> v1.Job:
        """Cancels the job. Safe to repeat, and without effect on a finished job. The returned job may still be RUNNING,
        with `cancel_requested`, until its worker has stopped."""
        return self._channel.call(rpc.CANCEL_JOB, v1.CancelJobRequest(name=self._name("jobs", job)))

    def pause(self, job: str | v1.Job) -> v1.Job:
        """Takes the job off its device until `resume`; safe to repeat. A running job first finishes its step and saves
        a checkpoint, and until then is RUNNING with `pause_requested`. No step is lost, and the result is that of a job
        that never paused. ConflictError / JOB_STATE_CONFLICT once the job has ended or was cancelled."""
        return self._channel.call(rpc.PAUSE_JOB, v1.PauseJobRequest(name=self._name("jobs", job)))

    def resume(self, job: str | v1.Job) -> v1.Job:
        """Returns a PAUSED job to the queue; no effect on a job that waits or runs. ConflictError / JOB_STATE_CONFLICT
        once the job has ended."""
        return self._channel.call(rpc.RESUME_JOB, v1.ResumeJobRequest(name=self._name("jobs", job)))

    def retry(self, job: str | v1.Job, *, from_start: bool = False, name: str | None = None,
              request_id: str | None = None) -> v1.Job:
        """Submits a FAILED or CANCELLED job again as a new job, `name`: from its newest checkpoint, or from the start
        if it has none or with `from_start`. ConflictError / JOB_STATE_CONFLICT while the old job has not ended."""
        return self._channel.call(rpc.RETRY_JOB, v1.RetryJobRequest(
            name=self._name("jobs", job), from_start=from_start, job_id=name or "",
            request_id=request_id or str(uuid.uuid4())), rpc.COPY_TIMEOUT_S)

    def spec(self, job: str | v1.Job) -> dict[str, Any]:
        """Returns the job's spec as a dict that `submit` accepts unchanged: the output of `trainyard get -o yaml`."""
        found = job if isinstance(job, v1.Job) and job.HasField("spec") else self.job(job)
        return write_message(found.spec)

    def fork(self, job: str | v1.Job, *, step: int | None = None, changes: Mapping[str, object] | None = None,
             name: str | None = None, request_id: str | None = None) -> v1.Job:
        """Submits a new job that starts from a checkpoint of another job: at `step`, by default the newest checkpoint.

        changes  fields of the spec by path, {"recipe.optimizer.learning_rate": 0.01}; allowed are rates, schedule,
                 length, regularization, augmentation and resources (docs/job_spec.md)
        name     the new job's ID

        InvalidArgumentError / FORK_CHANGE_UNSUPPORTED lists fields that must not change;
        NotFoundError / CHECKPOINT_NOT_FOUND lists the steps with checkpoints.
        """
        request = v1.ForkJobRequest(name=self._name("jobs", job), step=step, job_id=name or "",
                                    request_id=request_id or str(uuid.uuid4()))
        if changes:
            tree = self.spec(job)
            for path, value in changes.items():
                *above, last = path.split(".")
                place = tree
                for part in above:
                    place = place.setdefault(part, {})
                    if not isinstance(place, dict):
                        raise InvalidArgumentError(f"changes: {path}: '{part}' has no fields, expected the path of a "
                                                   "field such as recipe.epochs", reason="FIELD_UNKNOWN")
                place[last] = value
            request.spec.CopyFrom(self._read_job(tree).read.spec)
        return self._channel.call(rpc.FORK_JOB, request, rpc.COPY_TIMEOUT_S)

    def checkpoints(self, job: str | v1.Job) -> list[v1.Checkpoint]:
        """Returns the checkpoints that the job has now, newest first."""
        return list(self._channel.call(rpc.LIST_CHECKPOINTS, v1.ListCheckpointsRequest(
            name=self._name("jobs", job))).checkpoints)

    def queue(self, job: str | v1.Job | None = None, limit: int = 100) -> list[v1.QueuedJob]:
        """Returns the first `limit` (at most 1000) waiting jobs, in the order in which they are expected to start, or
        only `job`: position, expected start and end, and the reason for waiting."""
        return list(self._channel.call(rpc.LIST_QUEUE, v1.ListQueueRequest(
            parent=self._channel.parent, page_size=limit, name=self._name("jobs", job) if job else "")).jobs)

    def set_priority(self, job: str | v1.Job, priority: int) -> v1.Job:
        """Changes the priority of a job that has not ended: -100 to 100, higher starts first. A running job continues.
        InvalidArgumentError / FIELD_OUT_OF_RANGE; ConflictError / JOB_STATE_CONFLICT once the job has ended."""
        return self._channel.call(rpc.SET_JOB_PRIORITY,
                                  v1.SetJobPriorityRequest(name=self._name("jobs", job), priority=priority))

    def delete(self, job: str | v1.Job) -> None:
        """Deletes a finished job with its events and checkpoints; its model stays. ConflictError / JOB_STATE_CONFLICT
        if the job has not finished."""
        self._channel.call(rpc.DELETE_JOB, v1.DeleteJobRequest(name=self._name("jobs", job)))

    def watch(self, job: str | v1.Job, *, after: int = 0,
              on_reconnect: Callable[[TrainyardError], None] | None = None) -> Iterator[Event]:
        """Yields the job's events after sequence number `after`, each once and in order, until the job ends.

        After a broken connection, reconnects for two minutes and continues after the last event; `on_reconnect` gets the
        reason. Raises UnavailableError after that time, or if the server never responded. Leaving the loop ends the
        stream, not the job. InvalidArgumentError / SEQUENCE_IN_FUTURE if `after` is beyond the newest event.
        """
        if after < 0:
            raise InvalidArgumentError(f"after: {after}, expected a sequence number of at least 0",
                                       reason="FIELD_OUT_OF_RANGE")
        return follow(self._channel, self._name("jobs", job), after, on_reconnect=on_reconnect)

    def view(self, job: str | v1.Job) -> JobView:
        """Returns the job's current state for display: `print` shows one line, a notebook shows the metrics next to
        their baselines and the loss as a curve."""
        found = self.job(job)
        return JobView(found, self.metric_series(found))

    def wait(self, job: str | v1.Job, *, timeout_s: float | None = None, check: bool = True, show: bool = False) -> v1.Job:
        """Waits until the job has ended, across broken connections, and returns it.

        With `show`, its progress is displayed meanwhile: in a notebook as a `view`, else on standard error, on a
        terminal as a bar. At the end the display shows the result that the job reports.

        With `check`, it raises JobFailedError or JobCancelledError unless the job SUCCEEDED. DeadlineExceededError /
        WAIT_TIMEOUT after `timeout_s` seconds; the job continues.
        """
        if timeout_s is not None and not timeout_s > 0:
            raise InvalidArgumentError(f"timeout_s: {timeout_s}, expected seconds above 0", reason="FIELD_OUT_OF_RANGE")
        found = self.job(job)
        display = ProgressDisplay(found) if show else None
        if display is not None or not is_final(found.state):
            try:
                for event in follow(self._channel, found.name, 0 if display else found.newest_seq, timeout_s=timeout_s):
                    if display is not None:
                        display.event(event)
            except DeadlineExceededError:
                raise DeadlineExceededError(f"{_short(found.name)} has not ended within {timeout_s:g} s; it continues",
                                            reason="WAIT_TIMEOUT") from None
            found = self.job(found)
        if display is not None:
            display.end(found)
        if check and found.state != JobState.SUCCEEDED:
            kind = JobCancelledError if found.state == JobState.CANCELLED else JobFailedError
            raise kind(f"{_short(found.name)} {state_name(found.state)}: {found.message}", reason=found.reason,
                       job=found)
        return found

    def metric_series(self, job: str | v1.Job) -> dict[str, dict[int, float]]:
        """Returns all metrics so far, by key and step: `{"train/loss": {1: 2.3, 2: 2.1}, ...}`. Values may be NaN or
        infinite. If an attempt repeats a step after a resume, the newer value replaces the older one."""
        series: dict[str, dict[int, float]] = {}
        for event in follow(self._channel, self._name("jobs", job), 0, only_past=True):
            if isinstance(event, MetricsEvent):
                for point in event.points:
                    series.setdefault(point.key, {})[point.step] = point.value
        return series

    def metrics(self, job: str | v1.Job) -> pd.DataFrame:
        """Returns all metrics so far: one row per step, one column per series, NaN where a step has no value. Needs
        pandas; `metric_series` does not."""
        try:
            import pandas as pd
        except ModuleNotFoundError as missing:
            raise ImportError("metrics() returns a DataFrame and needs pandas: pip install pandas; metric_series() returns "
                              "dicts and does not") from missing

        frame = pd.DataFrame({key: pd.Series(points, dtype="float64")
                              for key, points in sorted(self.metric_series(job).items())})
        frame.index = frame.index.astype("int64")
        return frame.sort_index().rename_axis("step")

    # --- datasets -------------------------------------------------------------------------------------------------

    def upload_dataset(self, spec: Spec, *, name: str | None = None, folder: str | os.PathLike[str] | None = None,
                       progress: Observer | None = None) -> v1.Dataset:
        """Uploads files and returns the dataset once it is READY.

        spec    a job spec, of which only the dataset is used, or the fields below its `dataset`: a path, text or dict
        name    the dataset's ID instead of the spec's

        Content that the server already has is not sent again. If the name exists, the same content and options return
        its newest version; other content or options create the next version, which is `dataset.version` and the end of
        `dataset.name`. NotFoundError / FILE_NOT_FOUND; InvalidArgumentError / DATASET_INVALID names the row and column.
        """
        document = read_document(self._channel, Kind.DATASET, spec, folder).with_tokenizer()
        found = document.read
        if not found.dataset.sources:
            raise InvalidArgumentError(f"the dataset '{found.name}' names no files, expected path, or "
                                       "train_images and train_labels", reason="FIELD_REQUIRED")
        return ensure_dataset(self._channel, name or found.dataset_id, found.dataset, document.contents(), progress)

    def upload_arrays(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], *, name: str | None = None,
                      test_x: np.ndarray[Any, Any] | None = None, test_y: np.ndarray[Any, Any] | None = None,
                      target_kind: str | None = None, progress: Observer | None = None) -> v1.Dataset:
        """Uploads NumPy arrays as a dataset; `test_x` and `test_y` are a test set.

        x [N, H, W] or [N, C, H, W]  images: whole numbers 0..255 (bytes), or finite floats. y [N]: classes from 0.
        x [N, F]                     a table with columns x0, x1, ...; NaN is missing. y [N]: classes or numbers, which
                                     `target_kind` ("class" or "numeric") distinguishes if their values do not.

        Returns and raises the same as `upload_dataset`.
        """
        import numpy as np

        x = np.asarray(x)
        role = v1.DatasetSource.Role
        if (test_x is None) != (test_y is None):
            raise InvalidArgumentError("a test set needs test_x and test_y, expected both or neither",
                                       reason="FIELD_REQUIRED")
        sets = [(x, np.asarray(y), "")]
        if test_x is not None and test_y is not None:
            sets.append((np.asarray(test_x), np.asarray(test_y), "test_"))
        for rows, labels, prefix in sets:
            if rows.ndim != x.ndim or labels.shape != rows.shape[:1]:
                raise InvalidArgumentError(
                    f"{prefix}x has shape {list(rows.shape)} and {prefix}y {list(labels.shape)}, expected as many "
                    "labels [N] as rows" + (" and rows as in x" if prefix else ""), reason="DATASET_INVALID")
        sources: list[tuple[v1.DatasetSource.Role, Content]] = []
        if x.ndim == 2:
            csv = {"target": "target", **({"target_kind": target_kind} if target_kind else {})}
            spec = self._csv_spec(csv)
            for (rows, labels, prefix), which in zip(sets, (role.DATA, role.TEST)):
                sources.append((which, Content(f"{prefix}arrays.csv", data.table_to_csv(rows, labels))))
        else:
            if target_kind not in (None, "class"):
                raise InvalidArgumentError(f"target_kind: '{target_kind}', expected class: labels of images are classes",
                                           reason="FIELD_UNSUPPORTED")
            spec = v1.DatasetSpec(idx=v1.IdxFormat())
            for (images, labels, prefix), (image_role, label_role) in zip(
                    sets, ((role.TRAIN_IMAGES, role.TRAIN_LABELS), (role.TEST_IMAGES, role.TEST_LABELS))):
                sources.append((image_role, Content(f"{prefix}images.idx", data.images_to_idx(images))))
                sources.append((label_role, Content(f"{prefix}labels.idx", data.labels_to_idx(labels))))
        return self._create_dataset(name, spec, sources, progress)

    def _csv_spec(self, csv: Mapping[str, object]) -> v1.DatasetSpec:
        spec = read_document(self._channel, Kind.DATASET, {"path": "rows.csv", "csv": csv}).read.dataset
        spec.ClearField("sources")
        return spec

    def _create_dataset(self, name: str | None, spec: v1.DatasetSpec,
                        sources: Sequence[tuple[v1.DatasetSource.Role, Content]], progress: Observer | None) -> v1.Dataset:
        for role, content in sources:
            spec.sources.add(role=role, filename=content.filename)
        return ensure_dataset(self._channel, name or "", spec, [content for _, content in sources], progress)

    def dataset(self, dataset: str | v1.Dataset) -> v1.Dataset:
        """Returns a dataset's current state: `digits@2` is that version, `digits` the newest one. NotFoundError /
        DATASET_NOT_FOUND lists the existing versions."""
        return self._channel.call(rpc.GET_DATASET, v1.GetDatasetRequest(name=self._name("datasets", dataset)))

    def datasets(self, *, all_versions: bool = False, limit: int | None = None) -> list[v1.Dataset]:
        """Returns datasets, newest first: the newest version of each, or all versions."""
        def page(token: str, size: int) -> tuple[Iterable[v1.Dataset], str]:
            answer = self._channel.call(rpc.LIST_DATASETS, v1.ListDatasetsRequest(
                parent=self._channel.parent, page_size=size, page_token=token, all_versions=all_versions))
            return answer.datasets, answer.next_page_token
        return pages(page, limit)

    def delete_dataset(self, dataset: str | v1.Dataset) -> None:
        """Deletes a version (`digits@2`) or all versions (`digits`). ConflictError / DATASET_IN_USE while an unfinished
        job uses one of them."""
        self._channel.call(rpc.DELETE_DATASET, v1.DeleteDatasetRequest(name=self._name("datasets", dataset)))

    # --- models ---------------------------------------------------------------------------------------------------

    def upload_weights(self, path: str | os.PathLike[str], *, name: str | None = None,
                       progress: Observer | None = None) -> v1.Model:
        """Uploads a safetensors file as a model of weights only, for `initial_weights: {model: NAME}`. Without a name,
        the server derives one from the content. Content that the server already has is not sent again.

        InvalidArgumentError / MODEL_FILE_INVALID says what is wrong with the file; ConflictError / MODEL_EXISTS if the
        name has other content. `trainyard.torch_weights` converts PyTorch's weights to such files.
        """
        return ensure_weights(self._channel, name or "", Path(path), progress)

    def model(self, model: str | v1.Model | v1.Job) -> v1.Model:
        """Returns a model; a trained model has its job's name. NotFoundError / MODEL_NOT_FOUND."""
        return self._channel.call(rpc.GET_MODEL, v1.GetModelRequest(name=self._model_name(model)))

    def models(self, *, limit: int | None = None) -> list[v1.Model]:
        """Returns models, newest first, without their `tensors`."""
        def page(token: str, size: int) -> tuple[Iterable[v1.Model], str]:
            answer = self._channel.call(rpc.LIST_MODELS, v1.ListModelsRequest(
                parent=self._channel.parent, page_size=size, page_token=token))
            return answer.models, answer.next_page_token
        return pages(page, limit)

    def delete_model(self, model: str | v1.Model | v1.Job) -> None:
        """Deletes the model's files. Its job, if it still exists, stays. ConflictError / MODEL_IN_USE while an
        unfinished job starts from it."""
        self._channel.call(rpc.DELETE_MODEL, v1.DeleteModelRequest(name=self._model_name(model)))

    def download_model(self, model: str | v1.Model | v1.Job, folder: str | os.PathLike[str], *,
                       progress: Observer | None = None) -> list[Path]:
        """Downloads model.safetensors and, except for weights only, model.json (the preprocessing) into `folder`, which
        is created if needed, and returns the files' paths. A file gets its final name only if its SHA-256 matches;
        otherwise InternalError / CONTENT_HASH_MISMATCH."""
        request = v1.DownloadModelRequest(name=self._model_name(model))
        target, paths = Path(folder), list[Path]()
        part: _Part | None = None
        try:
            with self._channel.stream(rpc.DOWNLOAD_MODEL, request) as messages:
                for message in messages:
                    if message.WhichOneof("kind") == "header":
                        if part is not None:
                            paths.append(part.finish())
                        part = None
                        part = _Part(target, message.header)
                    elif part is None:
                        raise InternalError("the server sent model data before the file's header",
                                            reason="STREAM_MALFORMED",
                                            code="DATA_LOSS")
                    else:
                        part.append(message.data)
                    if progress is not None and part is not None:
                        progress(Progress(part.filename, part.written, part.size))
            if part is not None:
                paths.append(part.finish())
        finally:
            if part is not None:
                part.discard()
        if not paths:
            raise InternalError("the model has no files", reason="STREAM_MALFORMED", code="DATA_LOSS")
        return paths

    def predict(self, model: str | v1.Model | v1.Job, rows: Rows) -> Predictions:
        """Predicts raw rows, to which the server applies the model's own preprocessing.

        rows    a DataFrame, whose columns are matched by name; an array [N, F] with columns in the training data's
                order; images [N, H, W] or [N, C, H, W]; a list of rows, each a list of values in that order or a dict
                by column; or, for a model of text columns, a list of texts. None and NaN are missing values. Image
                files are a list of paths (pathlib.Path) of JPEG and PNG files, of their bytes, or of Pillow images and
                byte arrays [H, W] or [H, W, C] of any size, which need Pillow. The server resizes and converts them as
                it did the dataset's images.

        A category that training never saw is not an error: it counts as missing, and `unseen` of the result lists it.
        Columns that the training data did not have are ignored, and `ignored_columns` lists them.

        Rows that do not fit into one request (3 MiB) are sent in several. InvalidArgumentError / DATASET_INVALID names
        the row and column, counted within the request. A request may take up to two minutes.
        """
        name = self._model_name(model)
        return collect(self._channel.call(rpc.PREDICT, request, rpc.PREDICT_TIMEOUT_S)
                       for request in requests_of(name, rows))

    def evaluate(self, model: str | v1.Model | v1.Job, dataset: str | v1.Dataset, *, rows: str | None = None,
                 metrics: Sequence[str] = ()) -> v1.EvaluateResponse:
        """Evaluates a model on a dataset on the server. The dataset may differ from the training data: columns,
        categories and classes are matched by name.

        rows     "test" or "train"; default: the test set if there is one
        metrics  in addition to those of the target: "top_5_accuracy", "roc_auc", ... as in a recipe

        For classes the result has metrics per class and the confusion matrix. InvalidArgumentError / EVALUATE_MISMATCH
        names how the dataset differs.
        """
        choice = {None: "ROWS_UNSPECIFIED", "test": "TEST", "train": "TRAIN"}
        if rows not in choice:
            raise InvalidArgumentError(f"rows: {rows!r}, expected 'test' or 'train'", reason="FIELD_UNKNOWN_VALUE")
        request = v1.EvaluateRequest(name=self._model_name(model), dataset=self._name("datasets", dataset),
                                     rows=choice[rows], metrics=metrics)
        return self._channel.call(rpc.EVALUATE, request, rpc.EVALUATE_TIMEOUT_S)

    # --------------------------------------------------------------------------------------------------------------

    def _send_job(self, spec: Spec, name: str | None, folder: str | os.PathLike[str] | None,
                  progress: Observer | None, request_id: str | None, *, validate_only: bool) -> v1.Job:
        document = self._read_job(spec, folder)
        if document.read.HasField("array"):
            raise InvalidArgumentError("array: `submit` is for one job; `submit_array` submits the spec's array",
                                       reason="FIELD_UNSUPPORTED")
        request = v1.SubmitJobRequest(parent=self._channel.parent, job_id=name or document.read.name,
                                      spec=self._wire_spec(document, progress),
                                      request_id=request_id or str(uuid.uuid4()), validate_only=validate_only)
        try:
            return self._channel.call(rpc.SUBMIT_JOB, request)
        except TrainyardError as error:
            raise document.with_positions(self._channel, error) from None

    def _read_job(self, spec: Spec, folder: str | os.PathLike[str] | None = None) -> Document:
        return read_document(self._channel, Kind.JOB, spec, folder)

    def _wire_spec(self, document: Document, progress: Observer | None) -> v1.JobSpec:
        """Uploads the files that the spec names, and returns the spec to submit."""
        with tempfile.TemporaryDirectory() as scratch:
            document = document.with_onnx(self._channel, self._program, Path(scratch))
            document = document.with_pretrained(self._channel, self._program, Path(scratch)).with_tokenizer()
            spec = document.read.spec
            if document.read.HasField("dataset"):
                spec.dataset.name = ensure_dataset(self._channel, document.read.dataset_id, document.read.dataset,
                                                   document.contents(), progress).name
            weights = document.weights()
            if weights is not None:
                source = spec.recipe.initial_weights
                source.title = source.title or source.path
                source.ClearField("path")
                source.model = _short(ensure_weights(self._channel, "", weights, progress).name)
            return spec

    def _model_name(self, model: str | v1.Model | v1.Job) -> str:
        if isinstance(model, v1.Job):
            return self._name("models", model.model or _short(model.name))
        return self._name("models", model)

    def _name(self, collection: str, given: str | v1.Job | v1.JobArray | v1.Dataset | v1.Model) -> str:
        """Returns the full name: `projects/default/jobs/digits-1` for itself and for `digits-1`."""
        text = given if isinstance(given, str) else given.name
        noun = collection[:-1]
        parts = text.split("/")

        def malformed(why: str) -> InvalidArgumentError:
            return InvalidArgumentError(f"{noun} name '{text}' {why}", reason="NAME_MALFORMED")

        if not text:
            raise malformed("is empty")
        if len(parts) == 1:
            return f"{self._channel.parent}/{collection}/{text}"
        if len(parts) != 4 or parts[0] != "projects" or not parts[3]:
            raise malformed(f"is not of the form NAME or projects/PROJECT/{collection}/NAME")
        if parts[2] == "jobs" and collection == "models":  # a trained model has its job's name
            return "/".join([*parts[:2], "models", parts[3]])
        if parts[2] != collection:
            raise malformed(f"names one of the '{parts[2]}', not a {noun}")
        return text


class _Part:
    """A model's file while it is downloaded."""

    def __init__(self, folder: Path, header: v1.DownloadModelResponse.FileHeader) -> None:
        self.filename, self.size, self.written = header.filename, header.size_bytes, 0
        if not _FILE_NAME.fullmatch(self.filename) or self.size < 0:
            raise InternalError(f"the server sent the file name {self.filename!r}, which is not a plain file name",
                                reason="FILE_NAME_INVALID", code="DATA_LOSS")
        self._sha256 = header.sha256
        self._digest = hashlib.sha256()
        self._target = folder / self.filename
        self._path = folder / (self.filename + ".part")
        folder.mkdir(parents=True, exist_ok=True)  # created late, so that an unknown model leaves no folder behind
        self._file = open(self._path, "wb")

    def append(self, bytes_: bytes) -> None:
        self.written += len(bytes_)
        if self.written > self.size:
            raise self._damaged("is longer than announced")
        self._digest.update(bytes_)
        self._file.write(bytes_)

    def finish(self) -> Path:
        if self.written != self.size:
            raise self._damaged("is shorter than announced")
        if self._digest.hexdigest() != self._sha256:
            raise self._damaged("does not match its SHA-256")
        self._file.close()
        os.replace(self._path, self._target)
        return self._target

    def discard(self) -> None:
        """Removes an incomplete file."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _damaged(self, what: str) -> InternalError:
        return InternalError(f"{self.filename} {what}; try again", reason="CONTENT_HASH_MISMATCH", code="DATA_LOSS")


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def upload(table: Table, target: Hashable, *, server: str | None = None, **arguments: Any) -> v1.Dataset:
    """Uploads a table, a file or a pandas DataFrame, as a dataset, READY: `Client(server).upload(table, target, ...)`."""
    with Client(server) as client:
        return client.upload(table, target, **arguments)
