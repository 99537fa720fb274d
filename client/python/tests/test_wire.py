"""Tests guarantees of the API that the client itself does not need, tested only with messages."""

import grpc
import pytest
from conftest import digits_spec
from google.protobuf import descriptor_pool, message_factory
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from harness import PATIENCE_S
from test_jobs import refused

import trainyard
from trainyard import _rpc as rpc
from trainyard import v1

METHODS = [m for m in vars(rpc).values() if isinstance(m, rpc.Method)]


@pytest.fixture
def channel(daemon):
    with grpc.insecure_channel(f"unix:{daemon.socket}", [("grpc.default_authority", "localhost")]) as opened:
        yield opened


def test_the_table_of_methods_matches_the_protos():
    declared = {}
    for module in (v1.job_service_pb2, v1.dataset_service_pb2, v1.model_service_pb2, v1.system_service_pb2,
                   v1.people_service_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            declared |= {f"{service.name}/{m.name}": (m.input_type.full_name, m.output_type.full_name)
                         for m in service.methods}
    assert {m.path: (m.request.DESCRIPTOR.full_name, m.response.DESCRIPTOR.full_name) for m in METHODS} == declared


class ReflectionChannel:
    """Lets the library's client, which requests v1alpha, use v1: the messages are the same on the wire."""

    def __init__(self, channel, version):
        self.channel, self.version = channel, version

    def stream_stream(self, path, *args, **kwargs):
        return self.channel.stream_stream(path.replace(".v1alpha.", f".{self.version}."), *args, **kwargs)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_describes_every_method_and_a_client_can_be_made_of_it_alone(channel, trained, version):
    database = ProtoReflectionDescriptorDatabase(ReflectionChannel(channel, version))
    services = set(database.get_services())
    assert {"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"} <= services
    assert {"grpc.health.v1.Health", *(m.wire_path.split("/")[1] for m in METHODS)} <= services
    pool = descriptor_pool.DescriptorPool(database)
    for method in METHODS:
        service, name = method.wire_path[1:].split("/")
        found = pool.FindServiceByName(service).FindMethodByName(name)
        assert found.input_type.full_name == method.request.DESCRIPTOR.full_name
        assert [f.name for f in found.output_type.fields] == [f.name for f in method.response.DESCRIPTOR.fields]
    request = message_factory.GetMessageClass(pool.FindMessageTypeByName("trainyard.v1.GetJobRequest"))
    answer = message_factory.GetMessageClass(pool.FindMessageTypeByName("trainyard.v1.Job"))
    call = channel.unary_unary("/trainyard.v1.JobService/GetJob", request_serializer=request.SerializeToString,
                               response_deserializer=answer.FromString)
    assert call(request(name=trained.name), timeout=PATIENCE_S).uid == trained.uid
    with pytest.raises(KeyError):
        database.FindFileContainingSymbol("trainyard.v1.Nothing")


def test_a_field_that_the_server_does_not_know_is_refused(channel):
    call = channel.unary_unary("/trainyard.v1.JobService/GetJob")
    with pytest.raises(grpc.RpcError) as error:
        call(v1.GetJobRequest(name="projects/default/jobs/x").SerializeToString() + b"\xf8\x3f\x01", timeout=PATIENCE_S)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_errors_carry_one_error_info_of_our_domain(channel):
    call = channel.unary_unary("/trainyard.v1.JobService/GetJob", request_serializer=v1.GetJobRequest.SerializeToString)
    with pytest.raises(grpc.RpcError) as error:
        call(v1.GetJobRequest(name="projects/default/jobs/nobody"), timeout=PATIENCE_S)
    (details,) = [v for k, v in error.value.trailing_metadata() if k == "grpc-status-details-bin"]
    from google.rpc import status_pb2
    (info,) = status_pb2.Status.FromString(details).details
    assert error_details_pb2.ErrorInfo.FromString(info.value).domain == "trainyard"


def test_uploads_refuse_wrong_offsets(client):
    start = dict(sha256="0" * 64, size_bytes=100)
    chunk = v1.UploadFileRequest(chunk=dict(offset=0, data=b"x" * 50, crc32c=1))
    error = refused(trainyard.InvalidArgumentError, lambda: client._channel.send(
        rpc.UPLOAD_FILE, iter([v1.UploadFileRequest(start={**start, "offset": 7})])))
    assert (error.reason, error.metadata["committed_size"]) == ("UPLOAD_OFFSET_MISMATCH", "0")
    error = refused(trainyard.InternalError, lambda: client._channel.send(
        rpc.UPLOAD_FILE, iter([v1.UploadFileRequest(start=start), chunk])))
    assert (error.reason, error.code) == ("CHUNK_CHECKSUM_MISMATCH", "DATA_LOSS")


def test_a_request_id_with_another_body_is_refused(client):
    request = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"
    client.wait(client.submit(digits_spec(epochs=1), request_id=request))
    error = refused(trainyard.TrainyardError, lambda: client.submit(digits_spec(epochs=2), request_id=request))
    assert error.reason == "REQUEST_ID_REUSED"
