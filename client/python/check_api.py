#!/usr/bin/env python3
"""Judges the API from outside: a plain Python gRPC client, twice.

  check_api.py --server unix:/path/trainyard.sock [--proto PROTO_DIR] [--csv DIGITS_CSV] [--token-file FILE]

First with stubs generated from the .proto files at run time, then by server reflection alone, without any file of ours:
each pass uploads (or finds) the digits, submits a job, watches every event and predicts. Each promise that is looked at
prints a line; the first broken one ends the program with exit code 1. Needs grpcio, grpcio-tools and
grpcio-reflection; without them it exits with 77, which test runners read as skipped.
"""

import argparse
import gzip
import hashlib
import importlib
import pathlib
import sys
import tempfile
import time
import uuid

try:
    import grpc
    import grpc_tools.protoc
    from google.protobuf import descriptor_pool, message_factory
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (pip install grpcio grpcio-tools grpcio-reflection)")
    sys.exit(77)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CHUNK_BYTES = 1 << 20
TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
CALLS = {
    "JobService": {"SubmitJob": "SubmitJobRequest Job", "GetJob": "GetJobRequest Job",
                   "ListJobs": "ListJobsRequest ListJobsResponse", "WatchJob": "WatchJobRequest >WatchJobResponse",
                   "CancelJob": "CancelJobRequest Job", "PlanJob": "PlanJobRequest JobPlan"},
    "DatasetService": {"UploadFile": "<UploadFileRequest Upload", "GetUpload": "GetUploadRequest Upload",
                       "CreateDataset": "CreateDatasetRequest Dataset", "GetDataset": "GetDatasetRequest Dataset"},
    "ModelService": {"Predict": "PredictRequest PredictResponse", "GetModel": "GetModelRequest Model",
                     "DownloadModel": "DownloadModelRequest >DownloadModelResponse"},
    "SystemService": {"GetServerInfo": "GetServerInfoRequest ServerInfo"},
}


def holds(condition, promise, found=None):
    """One promise, looked at."""
    if condition:
        print(f"  ok    {promise}")
        return
    print(f"  BROKEN {promise}" + ("" if found is None else f": found {found!r}"))
    sys.exit(1)


def crc32c(data, table=[]):
    """CRC-32C (Castagnoli), bit-reflected polynomial 0x82F63B78: written here, so that nothing of ours judges us."""
    if not table:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


class Generated:
    """Messages and calls from .proto files, by protoc."""

    def __init__(self, channel, proto_dir):
        self.channel = channel
        self.folder = tempfile.TemporaryDirectory(prefix="trainyard-stubs-")
        files = [str(p) for p in sorted(proto_dir.glob("trainyard/v1/*.proto"))]
        files += [str(p) for p in sorted(proto_dir.glob("google/rpc/*.proto"))]
        well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
        code = grpc_tools.protoc.main(["protoc", f"-I{proto_dir}", f"-I{well_known}",
                                       f"--python_out={self.folder.name}", f"--grpc_python_out={self.folder.name}",
                                       *files])
        holds(code == 0, "protoc generates Python stubs from the protos")
        # google.rpc is ours beside the google package that is installed: it joins that package's path.
        import google
        google.__path__.append(f"{self.folder.name}/google")
        sys.path.insert(0, self.folder.name)
        self.modules = [importlib.import_module(f"trainyard.v1.{p.stem}_pb2")
                        for p in sorted(proto_dir.glob("trainyard/v1/*.proto"))]
        self.stubs = {}
        for service in CALLS:
            name = {"JobService": "job", "DatasetService": "dataset", "ModelService": "model",
                    "SystemService": "system"}[service]
            module = importlib.import_module(f"trainyard.v1.{name}_service_pb2_grpc")
            self.stubs[service] = getattr(module, service + "Stub")(channel)

    def message(self, name):
        for module in self.modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise KeyError(name)

    def call(self, service, method):
        return getattr(self.stubs[service], method)


class Reflected:
    """Messages and calls as the server itself describes them."""

    def __init__(self, channel):
        self.channel = channel
        database = ProtoReflectionDescriptorDatabase(channel)
        services = set(database.get_services())
        for service in CALLS:
            holds(f"trainyard.v1.{service}" in services, f"reflection lists trainyard.v1.{service}", services)
        holds("grpc.health.v1.Health" in services, "reflection lists the health service", services)
        self.pool = descriptor_pool.DescriptorPool(database)

    def message(self, name):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"trainyard.v1.{name}"))

    def call(self, service, method):
        descriptor = self.pool.FindServiceByName(f"trainyard.v1.{service}").FindMethodByName(method)
        request, response = CALLS[service][method].split()
        kind = ("stream" if request.startswith("<") else "unary") + "_" + ("stream" if response.startswith(">") else "unary")
        return getattr(self.channel, kind)(
            f"/trainyard.v1.{service}/{method}",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(descriptor.output_type).FromString)


class Check:
    def __init__(self, api, csv_bytes, metadata):
        self.api = api
        self.csv = csv_bytes
        self.metadata = metadata

    def call(self, service, method, request, timeout=60):
        return self.api.call(service, method)(request, timeout=timeout, metadata=self.metadata)

    def new(self, message, /, **fields):
        return self.api.message(message)(**fields)

    def upload(self):
        sha256 = hashlib.sha256(self.csv).hexdigest()
        have = self.call("DatasetService", "GetUpload",
                         self.new("GetUploadRequest", name=f"tenants/default/uploads/{sha256}"))
        if have.complete:
            holds(have.committed_size == len(self.csv), "an upload that is known is complete", have.committed_size)
            return sha256
        half = len(self.csv) // 2

        def messages(begin, end, finish):
            yield self.new("UploadFileRequest", start=dict(sha256=sha256, size_bytes=len(self.csv), offset=begin))
            for at in range(begin, end, CHUNK_BYTES):
                data = self.csv[at:min(end, at + CHUNK_BYTES)]
                yield self.new("UploadFileRequest", chunk=dict(offset=at, data=data, crc32c=crc32c(data)))
            if finish:
                message = self.new("UploadFileRequest")
                message.finish.SetInParent()
                yield message

        def status_of(begin, end, finish):
            try:
                self.call("DatasetService", "UploadFile", messages(begin, end, finish))
                return grpc.StatusCode.OK
            except grpc.RpcError as error:
                return error.code()

        status_of(0, half, finish=False)  # a stream that just ends is a pause
        have = self.call("DatasetService", "GetUpload",
                         self.new("GetUploadRequest", name=f"tenants/default/uploads/{sha256}"))
        holds(have.committed_size == half and not have.complete, "a cut upload keeps what was committed", have)
        holds(status_of(half + 1, len(self.csv), True) == grpc.StatusCode.OUT_OF_RANGE,
              "an offset that does not continue is OUT_OF_RANGE")
        done = self.call("DatasetService", "UploadFile", messages(half, len(self.csv), True))
        holds(done.complete, "the upload goes on where it stopped", done)
        return sha256

    def dataset(self):
        source = dict(role="DATA", sha256=self.upload(), filename="digits.csv.gz")
        request = self.new("CreateDatasetRequest", spec=dict(
            sources=[source], csv=dict(header=False, target="c64", target_kind="CLASS", image=[1, 8, 8])))
        dataset = self.call("DatasetService", "CreateDataset", request)
        deadline = time.monotonic() + 60
        states = self.api.message("Dataset").State
        while dataset.state == states.Value("INGESTING") and time.monotonic() < deadline:
            time.sleep(0.05)
            dataset = self.call("DatasetService", "GetDataset", self.new("GetDatasetRequest", name=dataset.name))
        holds(dataset.state == states.Value("READY"), "the dataset is ingested", dataset)
        holds(list(dataset.schema.image) == [1, 8, 8] and len(dataset.schema.classes) == 10,
              "its schema has images of 8 x 8 and ten classes", dataset.schema)
        return dataset.name

    def submit(self, dataset):
        request = self.new("SubmitJobRequest", request_id=str(uuid.uuid4()), spec=dict(
            dataset=dict(name=dataset), model=dict(mlp=dict(hidden=[64])),
            recipe=dict(epochs=8, batch_size=50, seed=5, validation_split=0.2,
                        optimizer=dict(type="ADAM", learning_rate=0.003))))
        job = self.call("JobService", "SubmitJob", request)
        holds(job.name.startswith("tenants/default/jobs/") and job.uid, "a submit returns the stored job", job.name)
        again = self.call("JobService", "SubmitJob", request)
        holds(again.name == job.name, "the same request_id is the same job", again.name)
        return job

    def watch(self, job):
        seqs, states, losses, first = [], [], [], None
        state_name = self.state_name()
        request = self.new("WatchJobRequest", name=job.name)
        for message in self.call("JobService", "WatchJob", request, timeout=120):
            kind = message.WhichOneof("kind")
            first = first or kind
            if kind != "event":
                continue
            seqs.append(message.event.seq)
            if message.event.WhichOneof("kind") == "state":
                states.append(state_name(message.event.state.state))
            if message.event.WhichOneof("kind") == "metrics":
                losses += [v for s in message.event.metrics.series if s.key == "train/loss" for v in s.values]
        holds(first == "start", "the first message of a watch is start", first)
        holds(seqs == list(range(1, len(seqs) + 1)), "events come once, in order, without a gap", seqs)
        holds(states and states[-1] == "SUCCEEDED", "the stream ends with the job's end", states)
        holds(len(losses) > 100 and losses[-1] < losses[0], "the loss of each step arrives, and falls", losses[-1:])
        half = len(seqs) // 2
        rest = [m.event.seq for m in self.call("JobService", "WatchJob", self.new(
            "WatchJobRequest", name=job.name, after=half)) if m.WhichOneof("kind") == "event"]
        holds(rest == seqs[half:], "a watch after a number is the rest of the stream", rest)
        done = self.call("JobService", "GetJob", self.new("GetJobRequest", name=job.name))
        holds(done.newest_seq == seqs[-1] and state_name(done.state) == "SUCCEEDED", "the job tells the same", done)
        return done

    def state_name(self):
        descriptor = self.api.message("Job").DESCRIPTOR.fields_by_name["state"].enum_type
        return lambda number: descriptor.values_by_number[number].name

    def predict(self, job):
        lines = gzip.decompress(self.csv).decode().splitlines()[:200]
        rows = "\n".join(line.rsplit(",", 1)[0] for line in lines) + "\n"
        answer = self.call("ModelService", "Predict",
                           self.new("PredictRequest", name=job.model, csv=rows.encode()))
        right = sum(p.label == line.rsplit(",", 1)[1] for p, line in zip(answer.predictions, lines))
        holds(len(answer.predictions) == 200 and right > 170, "the model predicts raw rows", right)
        sums = [sum(p.probabilities) for p in answer.predictions]
        holds(all(abs(s - 1) < 1e-4 for s in sums), "probabilities sum to one", sums[:3])
        files, name = {}, None
        for message in self.call("ModelService", "DownloadModel", self.new("DownloadModelRequest", name=job.model)):
            if message.WhichOneof("kind") == "header":
                name = message.header.filename
                files[name] = [message.header, hashlib.sha256()]
            else:
                files[name][1].update(message.data)
        holds("model.safetensors" in files and all(h.sha256 == d.hexdigest() for h, d in files.values()),
              "the model's files match their digests", list(files))

    def refusals(self):
        def refused(service, method, request):
            try:
                self.call(service, method, request)
            except grpc.RpcError as error:
                return error
            return None
        error = refused("JobService", "GetJob", self.new("GetJobRequest", name="tenants/default/jobs/no-such-job"))
        holds(error is not None and error.code() == grpc.StatusCode.NOT_FOUND, "an unknown job is NOT_FOUND", error)
        details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
        holds(b"type.googleapis.com/google.rpc.ErrorInfo" in details and b"JOB_NOT_FOUND" in details,
              "its details carry google.rpc.ErrorInfo with the reason", details)
        bad = self.new("SubmitJobRequest", spec=dict(dataset=dict(name="x")))
        error = refused("JobService", "SubmitJob", bad)
        holds(error is not None and error.code() == grpc.StatusCode.INVALID_ARGUMENT,
              "a spec without model and recipe is INVALID_ARGUMENT", error)

        class FromTheFuture:  # a request with a field that the server does not know
            @staticmethod
            def SerializeToString():
                return self.new("GetJobRequest", name="tenants/default/jobs/x").SerializeToString() + b"\xf8\x3f\x01"
        raw = self.api.channel.unary_unary("/trainyard.v1.JobService/GetJob",
                                           request_serializer=lambda m: m.SerializeToString())
        try:
            raw(FromTheFuture, timeout=10, metadata=self.metadata)
            error = None
        except grpc.RpcError as e:
            error = e
        holds(error is not None and error.code() == grpc.StatusCode.INVALID_ARGUMENT,
              "an unknown field in a request is refused", error)

    def run(self):
        info = self.call("SystemService", "GetServerInfo", self.new("GetServerInfoRequest"))
        holds(info.version != "", "the server tells its version", info)
        job = self.submit(self.dataset())
        job = self.watch(job)
        self.predict(job)
        self.refusals()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="unix:/path or host:port (plain)")
    parser.add_argument("--proto", type=pathlib.Path, default=SOURCE / "proto")
    parser.add_argument("--csv", type=pathlib.Path, default=SOURCE / "examples/digits.csv.gz")
    parser.add_argument("--token-file", type=pathlib.Path)
    options = parser.parse_args()
    metadata = []
    if options.token_file:
        metadata = [("authorization", "Bearer " + options.token_file.read_text().strip())]
    csv_bytes = options.csv.read_bytes()
    with grpc.insecure_channel(options.server) as channel:
        print("with stubs generated from the protos:")
        Check(Generated(channel, options.proto), csv_bytes, metadata).run()
        print("by reflection alone:")
        Check(Reflected(channel), csv_bytes, metadata).run()
    print("all promises hold")


if __name__ == "__main__":
    main()
