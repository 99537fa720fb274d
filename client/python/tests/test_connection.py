"""Tests of the choice of server and credentials, and of the errors if there is no server."""

import inspect
import os
import re
import socket
import subprocess
import tempfile
import pathlib

import pytest
from conftest import SOURCE
from harness import Daemon
from test_jobs import refused

import trainyard
from trainyard._connection import resolve

TOKEN = "0123456789abcdef0123456789abcdef"
NOTHING = dict(context=None, ca_file=None, token_file=None, config_file=None, plaintext=False, timeout_s=10.0)


def resolved(address=None, env=None, **given):
    return resolve(address, **{**NOTHING, **given}, env=env or {})


def test_system_info_describes_the_server(client):
    assert client.health() is True
    info = client.server_info()
    assert info.version == trainyard.__version__ and not info.draining
    devices = client.devices()
    assert [d.name for d in devices][:1] == ["devices/cpu"] and devices[0].memory_bytes > 0
    assert isinstance(devices.note, str)
    assert not devices[0].HasField("forecasts")


def test_forecasts_are_listed_on_request(client, trained):
    cpu = client.devices(forecasts=True)[0]
    assert cpu.name == "devices/cpu" and cpu.HasField("forecasts")
    assert all(rates.flops_per_second > 0 for rates in cpu.forecasts.rates) and cpu.forecasts.price_per_hour == 0


def test_a_drained_device_is_shown_until_it_is_resumed(client):
    drained = client.drain_device("cpu", reason="a new fan")
    assert drained.drain.reason == "a new fan" and client.devices()[0].HasField("drain")
    assert not client.resume_device(drained).HasField("drain")
    assert not client.devices()[0].HasField("drain")


def test_the_documented_calls_are_the_real_ones():
    documented = {}
    table = (SOURCE / "docs/python.md").read_text().split("## Calls")[1].split("\n## ")[0]
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        documented.update(re.findall(r"`(\w+)\((.*?)\)`", row))
    real = {name: inspect.signature(call) for name, call in inspect.getmembers(trainyard.Client, inspect.isfunction)
            if not name.startswith("_") and name != "close"}
    assert documented.keys() == real.keys()
    for name, signature in real.items():
        told = [word.partition("=")[:2] for word in documented[name].split(", ") if word]
        assert told == [("**" * (p.kind is p.VAR_KEYWORD) + p.name,
                         "=" * (p.kind is p.KEYWORD_ONLY or p.default is not p.empty))
                        for p in signature.parameters.values() if p.name != "self"], name


def test_argument_before_environment_before_configuration(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("context: lab\ncontexts:\n  lab: {server: 'lab.example:7443', ca_file: ca.pem, token_file: /t, "
                      "plaintext: true}\n  here: {server: /run/x.sock}\n")
    env = {"TRAINYARD_CONFIG": str(config)}
    lab = resolved(env=env)
    assert (lab.server, lab.ca_file, str(lab.token_file)) == ("lab.example:7443", tmp_path / "ca.pem", "/t")
    assert resolved(env={**env, "TRAINYARD_CONTEXT": "here"}).server == "unix:/run/x.sock"
    assert resolved(env=env, context="here").server == "unix:/run/x.sock"
    assert resolved(env={**env, "TRAINYARD_SERVER": "a:1"}).server == "a:1"
    assert resolved("unix:///b.sock", env={**env, "TRAINYARD_SERVER": "a:1"}).server == "unix:/b.sock"
    assert resolved("localhost:1").plaintext and not resolved("far.example:1").plaintext
    assert not resolved("localhost:1", ca_file="x.pem").plaintext
    refused(trainyard.InvalidArgumentError, lambda: resolved(env=env, context="lib"), "lab, here")


CONTEXTS = ("context: lab\ncontexts:\n  lab: {server: 'lab:7000', token_file: tokens/lab, project: vision}\n"
            "  home: {server: /s}\n")


def test_token_and_project_by_argument_environment_context_default(tmp_path):
    assert resolved("a:1").parent == "projects/default"
    config = tmp_path / "config.yaml"
    config.write_text(CONTEXTS)
    env = {"TRAINYARD_CONFIG": str(config)}
    lab = resolved(env=env)
    assert (lab.project, lab.token_file, lab.token) == ("vision", tmp_path / "tokens/lab", "")
    env |= {"TRAINYARD_PROJECT": "audio", "TRAINYARD_TOKEN_FILE": "/f"}
    assert (resolved(env=env).project, str(resolved(env=env).token_file)) == ("audio", "/f")
    env["TRAINYARD_TOKEN"] = TOKEN
    assert (resolved(env=env).token, resolved(env=env).token_file) == (TOKEN, None)
    named = resolved(env={**env, "TRAINYARD_SERVER": "other:1"}, context="lab")
    assert (named.server, named.project, named.token, named.token_file) == ("lab:7000", "vision", "", tmp_path / "tokens/lab")
    given = resolved(env=env, project="projects/image", token="given-token")
    assert (given.project, given.token, given.token_file) == ("image", "given-token", None)
    refused(trainyard.InvalidArgumentError, lambda: resolved(env=env, project="No Name"), "project: 'No Name', expected")
    refused(trainyard.InvalidArgumentError, lambda: resolved(token="two words"), "token contains no token")
    refused(trainyard.InvalidArgumentError, lambda: resolved(token=TOKEN, token_file="x"), "expected one of them")


def test_the_token_of_a_context_goes_to_its_server_alone(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(CONTEXTS)
    env = {"TRAINYARD_CONFIG": str(config)}
    other = resolved("attacker:1", env=env)
    assert (other.token_file, other.token, other.project) == (None, "", "default")
    assert resolved(env={**env, "TRAINYARD_SERVER": "attacker:1"}).token_file is None
    assert resolved(env={**env, "TRAINYARD_SERVER": "lab:7000"}).token_file == tmp_path / "tokens/lab"


@pytest.mark.parametrize(("text", "word"), [
    ("contxt: a\n", "1:1: unknown key or bad value: 'contxt'"), ("context: a\n", "which has no contexts"),
    ("context: a\ncontexts:\n  a: {sever: x}\n", "3:7: unknown key or bad value: 'sever'"),
    ("context: a\ncontexts:\n  a: {plaintext: yes}\n", "expected server"),
])
def test_wrong_configuration(tmp_path, text, word):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    refused(trainyard.InvalidArgumentError, lambda: resolved(config_file=path), word)


@pytest.mark.parametrize("address", ["host", "host:", "host:0", "host:65536", ":80", "unix:", "unix:/" + "x" * 120])
def test_wrong_addresses(address):
    assert refused(trainyard.InvalidArgumentError, lambda: trainyard.Client(address), "expected").reason \
        == "CONFIG_INVALID"


def test_wrong_timeouts():
    for timeout in (0, -1, 4000, float("nan")):
        refused(trainyard.InvalidArgumentError, lambda: trainyard.Client("a:1", timeout_s=timeout), "timeout_s")


def test_no_server_is_listening(tmp_path):
    for path in (tmp_path / "none.sock", tmp_path / "dead.sock"):
        if path.name == "dead.sock":
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(path))
        error = refused(trainyard.UnavailableError, lambda: trainyard.Client(str(path)), "no server is running")
        assert error.reason == "SERVER_NOT_RUNNING"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with trainyard.Client(f"127.0.0.1:{port}", timeout_s=2) as client:
        assert refused(trainyard.UnavailableError, client.server_info).reason == "SERVER_UNREACHABLE"
        assert refused(trainyard.UnavailableError, lambda: next(client.watch("x"))).reason == "SERVER_UNREACHABLE"


def test_a_server_that_never_answers_ends_with_a_timeout(tmp_path):
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "mute.sock"))
        mute.listen()
        with trainyard.Client(f"unix:{tmp_path}/mute.sock", timeout_s=0.5) as client:
            with pytest.raises((trainyard.DeadlineExceededError, trainyard.UnavailableError)):
                client.jobs()


def test_a_stream_without_messages_is_unavailable(client, monkeypatch):
    from conftest import ENDLESS, digits_spec

    from trainyard import _rpc as rpc
    job = client.submit({**digits_spec(), "recipe": {**digits_spec()["recipe"], **ENDLESS}})
    blocker = client.submit(digits_spec())  # waits for `job`, so it has no events until that ends
    monkeypatch.setattr(rpc, "SILENCE_S_MAX", 0.5)
    with client._channel.stream(rpc.WATCH_JOB, rpc.WATCH_JOB.request(name=blocker.name)) as messages:
        error = refused(trainyard.UnavailableError, lambda: list(messages))
    assert error.reason == "SERVER_NOT_RESPONDING"
    client.cancel(job)
    client.cancel(blocker)


@pytest.fixture(scope="module")
def secured():
    """Yields a daemon on TCP with TLS and a token."""
    with tempfile.TemporaryDirectory(prefix="trainyard-py-") as name:
        folder = pathlib.Path(name)
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / "key.pem", "-out",
             folder / "ca.pem"], capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip("openssl made no certificate: " + made.stderr)
        for file in ("token", "key.pem"):
            (folder / file).touch(mode=0o600)
        (folder / "token").write_text(TOKEN + "\n")
        os.chmod(folder / "key.pem", 0o600)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        daemon = Daemon(folder / "state", "--listen", f"127.0.0.1:{port}", "--tls-certificate", str(folder / "ca.pem"),
                        "--tls-key", str(folder / "key.pem"), "--token-file", str(folder / "token")).start()
        yield folder, f"localhost:{port}"
        daemon.stop()


def test_tls_and_token(secured):
    folder, address = secured
    with trainyard.Client(address, ca_file=folder / "ca.pem", token_file=folder / "token") as client:
        assert client.jobs() == [] and client.health()
    with trainyard.Client(address, ca_file=folder / "ca.pem") as client:
        assert client.health()  # needs no token
        assert refused(trainyard.NotAllowedError, client.jobs).code == "UNAUTHENTICATED"
    wrong = folder / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text("x" * 32)
    with trainyard.Client(address, ca_file=folder / "ca.pem", token_file=wrong) as client:
        assert refused(trainyard.NotAllowedError, client.jobs).code == "UNAUTHENTICATED"
    with trainyard.Client(address, timeout_s=2, plaintext=True) as client:
        with pytest.raises((trainyard.UnavailableError, trainyard.DeadlineExceededError)):
            client.jobs()
    wrong.write_text("two words")
    refused(trainyard.InvalidArgumentError, lambda: trainyard.Client(address, token_file=wrong), "contains no token")
    wrong.chmod(0o644)
    refused(trainyard.NotAllowedError, lambda: trainyard.Client(address, token_file=wrong), "chmod 600")
    refused(trainyard.NotFoundError, lambda: trainyard.Client(address, token_file=folder / "none"), "token file")
    refused(trainyard.NotFoundError, lambda: trainyard.Client(address, ca_file=folder / "none"), "ca_file")
