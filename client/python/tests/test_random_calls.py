"""Calls every method with messages made from its description alone, as people with and without rights.

The daemon must answer each call with a reason of its own, stay small, tell a stranger nothing, and serve afterwards as
before. TRAINYARD_RANDOM_CALLS sets the number of rounds (one round calls every method once as every person).
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import grpc
import pytest
from conftest import PROGRAM, digits_spec
from google.rpc import error_details_pb2, status_pb2
from harness import BIN, PATIENCE_S, SOURCE, Daemon

import trainyard
from trainyard import v1

sys.path.insert(0, str(SOURCE / "tests/fuzz"))
from random_messages import RandomMessages  # noqa: E402

ROUNDS = int(os.environ.get("TRAINYARD_RANDOM_CALLS", "12"))
MODULES = (v1.job_service_pb2, v1.dataset_service_pb2, v1.model_service_pb2, v1.system_service_pb2, v1.people_service_pb2)
METHODS = [(service.full_name, method) for module in MODULES for service in module.DESCRIPTOR.services_by_name.values()
           for method in service.methods]
CANARY = "canary"  # part of every name in the project that a stranger must not see
RESIDENT_BYTES_MAX = 1 << 30
# Calls by which an admin may well end what the test needs: the people, their roles and the CPU.
NOT_BY_THE_ADMIN = {"RemovePerson", "SetPerson", "SetMember", "RevokeToken", "RotateToken", "Share", "SetQuota", "SetProjectDevices",
                    "DrainDevice"}
CALL_SECONDS = 20  # a call that streams goes on for as long as its caller likes


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def reason_of(error):
    """Returns the reason in the error's details; None if there is none."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
                    return info.reason
    return None


class Person:
    def __init__(self, name, token, channel):
        self.name, self.channel = name, channel
        self.metadata = [("authorization", f"Bearer {token}")] if token else []

    def call(self, service, method, requests):
        """Returns the responses' bytes, at most 20 of them, and the error or None."""
        kinds = {(False, False): self.channel.unary_unary, (False, True): self.channel.unary_stream,
                 (True, False): self.channel.stream_unary, (True, True): self.channel.stream_stream}
        kind = kinds[method.client_streaming, method.server_streaming]
        call = kind(f"/{service}/{method.name}", request_serializer=None, response_deserializer=None)
        argument = iter(requests) if method.client_streaming else requests[0]
        got = []
        try:
            answer = call(argument, metadata=self.metadata, timeout=CALL_SECONDS)
            if not method.server_streaming:
                return [answer], None
            for response in answer:
                got.append(response)
                if len(got) == 20:
                    break
            answer.cancel()
            return got, None
        except grpc.RpcError as error:
            return got, error


@pytest.fixture(scope="module")
def server():
    with tempfile.TemporaryDirectory(prefix="trainyard-py-") as folder:
        running = Daemon(pathlib.Path(folder) / "state").start()
        yield running
        running.stop()


@pytest.fixture(scope="module")
def people(server):
    """Yields an admin, three people with tokens, and somebody whose token nobody knows."""
    with trainyard.Client(f"unix:{server.socket}", program=PROGRAM, timeout_s=PATIENCE_S) as admin:
        admin.create_project(f"{CANARY}-project")
        tokens = {}
        for name, role in (("member", "member"), ("viewer", "viewer"), ("stranger", "none")):
            admin.set_member(name, role)
            tokens[name] = admin.create_token("calls", person=name).text
    with trainyard.Client(f"unix:{server.socket}", project=f"{CANARY}-project", program=PROGRAM, timeout_s=PATIENCE_S) as admin:
        admin.wait(admin.submit(digits_spec(), name=f"{CANARY}-job"))
    tokens["nobody"] = "ty_" + "0" * 48
    with grpc.insecure_channel(f"unix:{server.socket}", [("grpc.default_authority", "localhost")]) as channel:
        yield [Person("admin", None, channel), *(Person(name, token, channel) for name, token in tokens.items())]


def words():
    return [f"projects/{project}/{kind}/{name}" for project in ("default", f"{CANARY}-project")
            for kind, name in (("jobs", "one"), ("jobs", f"{CANARY}-job"), ("models", f"{CANARY}-job"), ("datasets", "digits"))] + [
        "projects/default", f"projects/{CANARY}-project", "one", "digits", "devices/cpu", "member", "stranger", "alice"]


def test_random_calls_are_answered_with_a_reason_and_harm_nobody(server, people):
    messages = RandomMessages(20261130, words())
    answered = {}
    for _ in range(ROUNDS):
        for service, method in METHODS:
            for person in people:
                if person.name == "admin" and method.name in NOT_BY_THE_ADMIN:
                    continue
                count = messages.random.randrange(1, 5) if method.client_streaming else 1
                requests = [messages.bytes_of(method.input_type) for _ in range(count)]
                responses, error = person.call(service, method, requests)
                where = f"{person.name} {method.name} {[request.hex()[:400] for request in requests]}"
                if error is not None:
                    assert error.code() not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), f"{where}: {error}"
                    if error.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
                        assert reason_of(error), f"{where}: {error}"
                if person.name == "nobody":
                    assert error is not None and error.code() == grpc.StatusCode.UNAUTHENTICATED, f"{where}: {error}"
                if person.name == "stranger":
                    said = b"".join(responses) + (error.details().encode() if error else b"")
                    sent = b"".join(requests)
                    assert CANARY.encode() not in said or CANARY.encode() in sent, f"{where}: {said!r}"
                key = (person.name, error.code().name if error else "OK")
                answered[key] = answered.get(key, 0) + 1
        assert server.process.poll() is None, server.log()[-4000:]
        assert resident_bytes(server.process.pid) < RESIDENT_BYTES_MAX
    print(dict(sorted(answered.items())))
    assert answered[("stranger", "OK")] > 0 and answered[("member", "OK")] > 0  # the calls do reach the handlers


def test_the_server_serves_and_its_state_is_whole_afterwards(server, people):
    with trainyard.Client(f"unix:{server.socket}", program=PROGRAM, timeout_s=PATIENCE_S) as client:
        job = client.wait(client.submit(digits_spec(), name="after"))
        assert v1.JobState.Name(job.state) == "SUCCEEDED"
    server.stop()
    checked = subprocess.run([BIN / "trainyardd", "--check", "--state-dir", server.state], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    server.start()
