"""Typed calls of the API: channel, credentials, deadlines, retries, and this package's errors instead of gRPC's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from trainyard import v1
from trainyard._connection import Connection, probe, read_roots, read_token
from trainyard._version import __version__
from trainyard.errors import UnavailableError, from_rpc

RETRIES_MAX = 4
RETRY_PAUSE_S, RETRY_PAUSE_S_MAX = 0.1, 1.0
PREDICT_TIMEOUT_S = 120.0
GENERATE_TIMEOUT_S = 900.0
EVALUATE_TIMEOUT_S = 3600.0
GARBAGE_TIMEOUT_S = 3600.0
COPY_TIMEOUT_S = 3600.0  # for retry and fork: the server copies a checkpoint, of any size, before it responds
ARRAY_TIMEOUT_S = 120.0  # an array may have ten thousand members
HEALTH_TIMEOUT_S = 5.0
SILENCE_S_MAX = 45.0  # three heartbeat intervals of the server
MESSAGE_BYTES_MAX = 64 << 20  # of responses; predictions of many classes are large

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


@dataclass(frozen=True)
class Method(Generic[Q, R]):
    """One RPC. `retry`: the call is idempotent and is repeated while the server is UNAVAILABLE. `patient`: it is
    repeated until the deadline, because the user wants the change although the server restarts."""

    path: str  # "JobService/GetJob"
    request: type[Q]
    response: type[R]
    retry: bool = True
    patient: bool = False

    @property
    def wire_path(self) -> str:
        return "/trainyard.v1." + self.path


SUBMIT_JOB = Method("JobService/SubmitJob", v1.SubmitJobRequest, v1.Job)  # always with a request_id
PLAN_JOB = Method("JobService/PlanJob", v1.PlanJobRequest, v1.JobPlan)
READ_SPEC = Method("JobService/ReadSpec", v1.ReadSpecRequest, v1.ReadSpecResponse)
GET_JOB = Method("JobService/GetJob", v1.GetJobRequest, v1.Job)
LIST_JOBS = Method("JobService/ListJobs", v1.ListJobsRequest, v1.ListJobsResponse)
CANCEL_JOB = Method("JobService/CancelJob", v1.CancelJobRequest, v1.Job, patient=True)
PAUSE_JOB = Method("JobService/PauseJob", v1.PauseJobRequest, v1.Job, patient=True)
RESUME_JOB = Method("JobService/ResumeJob", v1.ResumeJobRequest, v1.Job, patient=True)
RETRY_JOB = Method("JobService/RetryJob", v1.RetryJobRequest, v1.Job)  # always with a request_id
FORK_JOB = Method("JobService/ForkJob", v1.ForkJobRequest, v1.Job)  # always with a request_id
LIST_CHECKPOINTS = Method("JobService/ListCheckpoints", v1.ListCheckpointsRequest, v1.ListCheckpointsResponse)
LIST_QUEUE = Method("JobService/ListQueue", v1.ListQueueRequest, v1.ListQueueResponse)
SET_JOB_PRIORITY = Method("JobService/SetJobPriority", v1.SetJobPriorityRequest, v1.Job)
SUBMIT_ARRAY = Method("JobService/SubmitArray", v1.SubmitArrayRequest, v1.JobArray)  # always with a request_id
GET_ARRAY = Method("JobService/GetArray", v1.GetArrayRequest, v1.JobArray)
LIST_ARRAYS = Method("JobService/ListArrays", v1.ListArraysRequest, v1.ListArraysResponse)
CANCEL_ARRAY = Method("JobService/CancelArray", v1.CancelArrayRequest, v1.JobArray, patient=True)
PAUSE_ARRAY = Method("JobService/PauseArray", v1.PauseArrayRequest, v1.JobArray, patient=True)
RESUME_ARRAY = Method("JobService/ResumeArray", v1.ResumeArrayRequest, v1.JobArray, patient=True)
DELETE_ARRAY = Method("JobService/DeleteArray", v1.DeleteArrayRequest, Empty, retry=False)
DELETE_JOB = Method("JobService/DeleteJob", v1.DeleteJobRequest, Empty, retry=False)
WATCH_JOB = Method("JobService/WatchJob", v1.WatchJobRequest, v1.WatchJobResponse)
GET_UPLOAD = Method("DatasetService/GetUpload", v1.GetUploadRequest, v1.Upload)
UPLOAD_FILE = Method("DatasetService/UploadFile", v1.UploadFileRequest, v1.Upload)
# Repeating the call with the same content and options returns the same version of a dataset.
CREATE_DATASET = Method("DatasetService/CreateDataset", v1.CreateDatasetRequest, v1.Dataset)
GET_DATASET = Method("DatasetService/GetDataset", v1.GetDatasetRequest, v1.Dataset)
LIST_DATASETS = Method("DatasetService/ListDatasets", v1.ListDatasetsRequest, v1.ListDatasetsResponse)
DELETE_DATASET = Method("DatasetService/DeleteDataset", v1.DeleteDatasetRequest, Empty, retry=False)
# Repeating the call with the same content and name returns the same model.
CREATE_MODEL = Method("ModelService/CreateModel", v1.CreateModelRequest, v1.Model)
LIST_MODELS = Method("ModelService/ListModels", v1.ListModelsRequest, v1.ListModelsResponse)
GET_MODEL = Method("ModelService/GetModel", v1.GetModelRequest, v1.Model)
DOWNLOAD_MODEL = Method("ModelService/DownloadModel", v1.DownloadModelRequest, v1.DownloadModelResponse)
PREDICT = Method("ModelService/Predict", v1.PredictRequest, v1.PredictResponse)
GENERATE = Method("ModelService/Generate", v1.GenerateRequest, v1.GenerateResponse, retry=False)
EVALUATE = Method("ModelService/Evaluate", v1.EvaluateRequest, v1.EvaluateResponse)
DELETE_MODEL = Method("ModelService/DeleteModel", v1.DeleteModelRequest, Empty, retry=False)
GET_SERVER_INFO = Method("SystemService/GetServerInfo", v1.GetServerInfoRequest, v1.ServerInfo)
LIST_DEVICES = Method("SystemService/ListDevices", v1.ListDevicesRequest, v1.ListDevicesResponse)
DRAIN_DEVICE = Method("SystemService/DrainDevice", v1.DrainDeviceRequest, v1.Device, patient=True)
RESUME_DEVICE = Method("SystemService/ResumeDevice", v1.ResumeDeviceRequest, v1.Device, patient=True)
LIST_AUDIT = Method("SystemService/ListAudit", v1.ListAuditRequest, v1.ListAuditResponse)
SET_QUOTA = Method("SystemService/SetQuota", v1.SetQuotaRequest, v1.Quota, patient=True)
LIST_QUOTAS = Method("SystemService/ListQuotas", v1.ListQuotasRequest, v1.ListQuotasResponse)
GET_USAGE = Method("SystemService/GetUsage", v1.GetUsageRequest, v1.GetUsageResponse)
BACKUP = Method("SystemService/Backup", v1.BackupRequest, v1.BackupResponse)
COLLECT_GARBAGE = Method("SystemService/CollectGarbage", v1.CollectGarbageRequest, v1.CollectGarbageResponse,
                         retry=False)
WHO_AM_I = Method("PeopleService/WhoAmI", v1.WhoAmIRequest, v1.WhoAmIResponse)
LIST_PEOPLE = Method("PeopleService/ListPeople", v1.ListPeopleRequest, v1.ListPeopleResponse)
SET_PERSON = Method("PeopleService/SetPerson", v1.SetPersonRequest, v1.Person, patient=True)
REMOVE_PERSON = Method("PeopleService/RemovePerson", v1.RemovePersonRequest, Empty, retry=False)
LIST_PROJECTS = Method("PeopleService/ListProjects", v1.ListProjectsRequest, v1.ListProjectsResponse)
CREATE_PROJECT = Method("PeopleService/CreateProject", v1.CreateProjectRequest, v1.Project, retry=False)
SET_PROJECT_DEVICES = Method("PeopleService/SetProjectDevices", v1.SetProjectDevicesRequest, v1.Project, patient=True)
DELETE_PROJECT = Method("PeopleService/DeleteProject", v1.DeleteProjectRequest, Empty, retry=False)
LIST_MEMBERS = Method("PeopleService/ListMembers", v1.ListMembersRequest, v1.ListMembersResponse)
SET_MEMBER = Method("PeopleService/SetMember", v1.SetMemberRequest, v1.Member, patient=True)
CREATE_TOKEN = Method("PeopleService/CreateToken", v1.CreateTokenRequest, v1.CreateTokenResponse, retry=False)
ROTATE_TOKEN = Method("PeopleService/RotateToken", v1.RotateTokenRequest, v1.CreateTokenResponse, retry=False)
REVOKE_TOKEN = Method("PeopleService/RevokeToken", v1.RevokeTokenRequest, Empty, patient=True)
LIST_TOKENS = Method("PeopleService/ListTokens", v1.ListTokensRequest, v1.ListTokensResponse)
SHARE = Method("PeopleService/Share", v1.ShareRequest, v1.ShareEntry, patient=True)
UNSHARE = Method("PeopleService/Unshare", v1.ShareRequest, Empty, retry=False)
LIST_SHARES = Method("PeopleService/ListShares", v1.ListSharesRequest, v1.ListSharesResponse)


class Stream(Generic[R]):
    """The messages of one streaming call. Raises UNAVAILABLE / SERVER_NOT_RESPONDING if none arrives for
    SILENCE_S_MAX seconds, since a connection can break without notice. Use it in `with`; leaving the block ends the call."""

    def __init__(self, call: Any, server: str, silence_s_max: float) -> None:
        self._call = call
        self._server = server
        self._silence_s_max = silence_s_max
        self._waiting_since: float | None = None
        self._silent = False
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="trainyard-silence", daemon=True).start()

    def _watch(self) -> None:
        while not self._closed.wait(1.0):
            since = self._waiting_since
            if since is not None and time.monotonic() - since > self._silence_s_max:
                self._silent = True
                self._call.cancel()
                return

    def __enter__(self) -> Stream[R]:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._call.cancel()

    def __iter__(self) -> Iterator[R]:
        return self

    def __next__(self) -> R:
        self._waiting_since = time.monotonic()
        try:
            message: R = next(self._call)
        except grpc.RpcError as error:
            if self._silent:
                raise UnavailableError(f"the server at {self._server} sent nothing for {self._silence_s_max:.0f} s",
                                       reason="SERVER_NOT_RESPONDING") from None
            raise from_rpc(error, self._server) from None
        finally:
            self._waiting_since = None
        return message


class Channel:
    """A connection and its credentials. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        """Reads the credentials and, for a Unix socket, checks that a server listens. Causes no network traffic for
        TCP."""
        probe(connection)
        self.connection = connection
        self.parent = connection.parent
        self._metadata: list[tuple[str, str]] = []
        if connection.token:
            self._metadata.append(("authorization", "Bearer " + connection.token))
        elif connection.token_file is not None:
            self._metadata.append(("authorization", "Bearer " + read_token(connection.token_file)))
        options: list[tuple[str, Any]] = [
            ("grpc.enable_http_proxy", 0),  # ignore http_proxy, which is meant for web traffic
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 5000),  # despite its name, also the time limit of one connection attempt
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.primary_user_agent", f"trainyard-python/{__version__}"),
        ]
        if connection.is_unix:
            options.append(("grpc.default_authority", "localhost"))
        if connection.is_unix or connection.plaintext:
            self._channel = grpc.insecure_channel(connection.server, options)
        else:
            roots = read_roots(connection.ca_file) if connection.ca_file is not None else None
            self._channel = grpc.secure_channel(connection.server, grpc.ssl_channel_credentials(roots), options)

    def close(self) -> None:
        self._channel.close()

    def call(self, method: Method[Q, R], request: Q, timeout_s: float | None = None) -> R:
        """Makes a unary call, with one deadline for all attempts."""
        stub = self._channel.unary_unary(method.wire_path, request_serializer=method.request.SerializeToString,
                                         response_deserializer=method.response.FromString)
        deadline = time.monotonic() + (self.connection.timeout_s if timeout_s is None else timeout_s)
        pause = RETRY_PAUSE_S
        attempt = 0
        while True:
            try:
                response: R = stub(request, timeout=max(deadline - time.monotonic(), 0.0), metadata=self._metadata)
                return response
            except grpc.RpcError as error:
                again = (method.retry and (method.patient or attempt < RETRIES_MAX)
                         and error.code() is grpc.StatusCode.UNAVAILABLE and time.monotonic() + pause < deadline)
                if not again:
                    raise from_rpc(error, self.connection.server) from None
            time.sleep(pause)
            pause = min(pause * 2, RETRY_PAUSE_S_MAX)
            attempt += 1

    def stream(self, method: Method[Q, R], request: Q, timeout_s: float | None = None,
               silence_s_max: float | None = None) -> Stream[R]:
        """Makes a call with a streamed response. The call is not repeated."""
        stub = self._channel.unary_stream(method.wire_path, request_serializer=method.request.SerializeToString,
                                          response_deserializer=method.response.FromString)
        return Stream(stub(request, timeout=timeout_s, metadata=self._metadata), self.connection.server,
                      SILENCE_S_MAX if silence_s_max is None else silence_s_max)

    def send(self, method: Method[Q, R], requests: Iterator[Q]) -> R:
        """Makes a call that sends a stream; the call is not repeated. If `requests` raises an exception, the stream
        ends normally, so that what was sent before still arrives (cancelling would discard it), and the exception
        propagates."""
        raised: list[BaseException] = []

        def guarded() -> Iterator[Q]:
            try:
                yield from requests
            except GeneratorExit:
                raise
            except BaseException as error:
                raised.append(error)

        stub = self._channel.stream_unary(method.wire_path, request_serializer=method.request.SerializeToString,
                                          response_deserializer=method.response.FromString)
        call = stub.future(guarded(), metadata=self._metadata)
        try:
            response: R = call.result()
        except grpc.RpcError as error:
            if raised:
                raise raised[0] from None
            raise from_rpc(error, self.connection.server) from None
        finally:
            call.cancel()  # ends the call on Ctrl-C; has no effect once the call is over
        if raised:
            raise raised[0]
        return response

    def check_health(self) -> bool:
        """Calls grpc.health.v1, without a token. An empty HealthCheckRequest has no bytes; SERVING is field 1 with
        value 1."""
        stub = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            answer: bytes = stub(b"", timeout=HEALTH_TIMEOUT_S)
        except grpc.RpcError as error:
            raise from_rpc(error, self.connection.server) from None
        return answer == b"\x08\x01"
