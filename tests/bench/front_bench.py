#!/usr/bin/env python3
"""Measures how long callers wait while strangers attack the server's TCP port: with TLS by the daemon itself, and behind
nginx and HAProxy with the configurations of packaging/front. Needs root, openssl, and a Python with grpcio.

    front_bench.py [--fronts none,nginx,haproxy] [--attacks calm,pings,...] [--seconds N] [--rounds N] BIN

The attacker has core 0, and 40 addresses of loopback; everything else has the other cores. The attacker has no valid token, except for `specs`. Two other
processes call GetServerInfo every 20 ms meanwhile, one through TCP from another address and one on the Unix socket, each by
turns on a connection that stays and on a new one. The attacks:

    calm       nothing
    half_open  2,000 TCP connections that never begin TLS
    silent     2,000 connections that finish TLS and send HTTP/2's preface, but no call
    unread     calls of the health service whose answers are never read
    resets     calls without a token, each reset at once
    forged     the same with a token that does not exist
    headers    header blocks without an end
    pings      HTTP/2 pings; acknowledgements are not read
    settings   HTTP/2 settings; acknowledgements are not read
    bodies     calls with a forged token that send 60 KB of a message of 4 MiB and then stop
    specs      16 callers with a valid token who submit specs of 4 MiB without a pause

Prints a line of Markdown for each attack: milliseconds of the median and the 99th percentile, failed calls, the daemon's
largest memory, the front end's memory, and CPU seconds of both.

    front_bench.py --honest [--fronts ...] [--upload-gb N] [--watchers N] BIN

measures what honest callers get instead: the speed of an upload of N GB, and how many of N watch streams of a quiet job
survive a minute in which the front end is reloaded.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS / "support")]
import front  # noqa: E402
import harness  # noqa: E402
from http2 import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS,  # noqa: E402
                   block, frame, hpack_text, tls_context)

TOKEN = "0123456789abcdef0123456789abcdef"
ATTACKS = ("calm", "half_open", "silent", "unread", "resets", "forged", "headers", "pings", "settings", "bodies", "specs")
TICKS = os.sysconf("SC_CLK_TCK")
METHOD = "/trainyard.v1.SystemService/GetServerInfo"
CONNECTIONS = 2000
ATTACKER_CORE = 0
ADDRESSES = 40  # of the attacker: 127.0.0.10 and those after it

class Attacker:
    def __init__(self, kind, port, seconds):
        self.kind, self.port, self.end = kind, port, time.monotonic() + seconds
        self.tls = tls_context()
        self.next_address = 0

    def run(self):
        if self.kind in ("half_open", "silent"):
            return self.hold()
        threads = [threading.Thread(target=self.flood) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def connect(self, timeout_s=2.0):
        connection = socket.socket()
        connection.settimeout(timeout_s)
        self.next_address += 1
        connection.bind((f"127.0.0.{10 + self.next_address % ADDRESSES}", 0))
        connection.connect(("127.0.0.1", self.port))
        return connection

    def hold(self):
        held = []
        while time.monotonic() < self.end:
            if len(held) >= CONNECTIONS:
                time.sleep(0.1)
                continue
            try:
                connection = self.connect()
                if self.kind == "silent":
                    connection = self.tls.wrap_socket(connection)
                    connection.sendall(PREFACE)
                held.append(connection)
            except OSError:
                time.sleep(0.005)

    def flood(self):
        while time.monotonic() < self.end:
            try:
                with self.tls.wrap_socket(self.connect()) as connection:
                    connection.sendall(PREFACE)
                    for piece in getattr(self, self.kind)():
                        connection.sendall(piece)
                        if time.monotonic() > self.end:
                            return
            except OSError:
                time.sleep(0.005)

    @staticmethod
    def calls(path, token, reset):
        headers = block(path, token)
        for first in range(1, 200_000, 200):
            yield b"".join(frame(HEADERS, END_HEADERS, stream, headers) +
                           (frame(RST_STREAM, 0, stream, struct.pack(">I", 8)) if reset
                            else frame(DATA, END_STREAM, stream, b"\0" * 5))
                           for stream in range(first, first + 200, 2))

    def resets(self):
        return self.calls(METHOD, None, reset=True)

    def forged(self):
        return self.calls(METHOD, "x" * 32, reset=True)

    def unread(self):
        return self.calls("/grpc.health.v1.Health/Check", None, reset=False)

    def headers(self):
        yield frame(HEADERS, 0, 1, block(METHOD))
        piece = frame(CONTINUATION, 0, 1, (b"\x00" + hpack_text("x-a") + hpack_text("b" * 1000)) * 15)
        while True:
            yield piece

    def pings(self):
        while True:
            yield frame(PING, 0, 0, b"12345678") * 500

    def settings(self):
        while True:
            yield b"".join(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535 + i)) for i in range(500))

    def bodies(self):
        headers = block("/trainyard.v1.JobService/SubmitJob", "x" * 32)
        message = struct.pack(">BI", 0, 4 << 20) + b"\0" * 60_000
        for stream in range(1, 201, 2):
            yield frame(HEADERS, END_HEADERS, stream, headers)
            for at in range(0, 60_000, 15_000):
                yield frame(DATA, 0, stream, message[at:at + 15_000])
        while True:
            time.sleep(0.5)
            yield frame(PING, 0, 0, b"12345678")


def submit_specs(target, ca_file, seconds):
    """Calls SubmitJob with the largest specs that are read, from 16 threads."""
    import grpc
    from trainyard import v1
    request = v1.SubmitJobRequest(job_id="largest", validate_only=True)
    request.spec.dataset.name = "digits"
    for number in range(49_000):  # two messages each, of the 100,000 that a request may have
        layer = request.spec.model.layers.add(name=f"layer{number:058d}")
        layer.gemm.SetInParent()
    data, end = request.SerializeToString(), time.monotonic() + seconds

    def submit():
        with open_channel(grpc, target, ca_file) as channel:
            call = channel.unary_unary("/trainyard.v1.JobService/SubmitJob")
            while time.monotonic() < end:
                try:
                    call(data, timeout=30, metadata=[("authorization", "Bearer " + TOKEN)])
                except grpc.RpcError as error:
                    refusals.add(error.details()[:150])

    refusals = set()
    threads = [threading.Thread(target=submit) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("the specs were answered:", *sorted(refusals), sep="\n  ", file=sys.stderr)


def open_channel(grpc, target, ca_file):
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0), ("grpc.max_reconnect_backoff_ms", 200),
               ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_send_message_length", -1)]
    if target.startswith("unix:"):
        return grpc.insecure_channel(target, options + [("grpc.default_authority", "localhost")])
    roots = grpc.ssl_channel_credentials(pathlib.Path(ca_file).read_bytes())
    return grpc.secure_channel(target, roots, options)


def probe(target, ca_file, seconds):
    """Prints [[is a new connection, seconds, succeeded]] as JSON."""
    import grpc
    end, out = time.monotonic() + seconds, []
    metadata = [] if target.startswith("unix:") else [("authorization", "Bearer " + TOKEN)]
    kept = open_channel(grpc, target, ca_file)
    for number in range(10**9):
        if time.monotonic() > end:
            break
        began, new = time.monotonic(), number % 2 == 1
        channel = open_channel(grpc, target, ca_file) if new else kept
        try:
            channel.unary_unary(METHOD)(b"", timeout=10, metadata=metadata, wait_for_ready=new)
            succeeded = True
        except grpc.RpcError:
            succeeded = False
        out.append([new, time.monotonic() - began, succeeded])
        if new:
            channel.close()
        time.sleep(0.02)
    print(json.dumps(out))


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mib(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def forget_peak(pid):
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")


def shown(calls, new):
    """Returns "median / p99 ms" of the successful calls and of failed ones, which count as infinitely long."""
    waits = sorted(wait if succeeded else math.inf for is_new, wait, succeeded in calls if is_new == new)
    failed = sum(1 for wait in waits if wait == math.inf)
    text = [f"{waits[min(len(waits) - 1, int(len(waits) * share))] * 1000:.0f}" for share in (0.5, 0.99)] if waits else ["-"]
    return " / ".join(text) + (f" ({failed} of {len(waits)} failed)" if failed else "")


def serve(binaries, kind, folder):
    """Starts a daemon and the front end. Returns both, the file of the certificate, and the port."""
    harness.BIN = binaries
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chmod(folder, 0o755)
    (folder / "front").mkdir(mode=0o755)
    ca_file = front.make_certificate(folder)
    token_file = folder / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(f"{TOKEN}\n")
    port = front.free_port()
    own = ["--listen", f"127.0.0.1:{port}", "--tls-certificate", str(ca_file), "--tls-key", str(folder / "key.pem")]
    behind = ["--front-socket", str(folder / "front/trainyard.sock")]
    daemon = harness.Daemon(folder / "state", "--token-file", str(token_file), *(own if kind == "none" else behind)).start()
    return daemon, None if kind == "none" else front.Front(kind, folder, port).start(), ca_file, port


def measure(binaries, kind, attack, seconds, folder):
    daemon, served, ca_file, port = serve(binaries, kind, folder)
    pids = [daemon.process.pid] + ([served.worker_pid()] if served else [])
    me = [sys.executable, str(pathlib.Path(__file__).resolve())]
    target = f"localhost:{port}"
    try:
        before = [cpu_s(pid) for pid in pids]
        for pid in pids:
            forget_peak(pid)
        attacker = None
        if attack == "specs":
            daemon.cli("submit", harness.digits_spec(folder, "first"))
        if attack != "calm":
            arguments = [attack, str(port if attack != "specs" else target), str(ca_file), str(seconds + 3)]
            attacker = subprocess.Popen(["taskset", "-c", str(ATTACKER_CORE), *me, "attack", *arguments])
        time.sleep(1)
        probes = [subprocess.Popen([*me, "probe", where, str(ca_file), str(seconds)], stdout=subprocess.PIPE, text=True)
                  for where in (target, f"unix:{daemon.socket}")]
        calls = [json.loads(probe.communicate()[0]) for probe in probes]
        memory = [peak_mib(pid) for pid in pids]
        used = [after - first for after, first in zip(map(cpu_s, pids), before)]
        if attacker:
            attacker.wait()
        print(f"| {kind} | {attack} | {shown(calls[0], False)} | {shown(calls[0], True)} | {shown(calls[1], False)} | "
              f"{memory[0]:.0f} | {memory[1] if served else 0:.0f} | {used[0]:.1f} | {used[1] if served else 0:.1f} |", flush=True)
    finally:
        if served:
            served.stop()
        daemon.stop()


def upload(target, ca_file, gigabytes):
    """Uploads that much; prints MB/s."""
    import hashlib
    import grpc
    from trainyard import v1
    chunk, count = os.urandom(1 << 20), int(gigabytes * 1000)
    digest = hashlib.sha256()
    for _ in range(count):
        digest.update(chunk)

    def requests():
        yield v1.UploadFileRequest(start=v1.UploadFileRequest.Start(sha256=digest.hexdigest(), size_bytes=count << 20))
        for _ in range(count):
            yield v1.UploadFileRequest(data=chunk)

    with open_channel(grpc, target, ca_file) as channel:
        began = time.monotonic()
        call = channel.stream_unary("/trainyard.v1.DatasetService/UploadFile",
                                    request_serializer=v1.UploadFileRequest.SerializeToString,
                                    response_deserializer=v1.Upload.FromString)
        call(requests(), metadata=[("authorization", "Bearer " + TOKEN)], timeout=1800)
        print(f"{(count << 20) / 1e6 / (time.monotonic() - began):.0f}")


def watch(target, ca_file, count, seconds):
    """Watches a job with many streams, 50 of a connection. Prints how many end before the time, and the fewest messages
    that a stream got."""
    import asyncio
    import grpc
    from trainyard import v1

    async def follow(channel):
        call = channel.unary_stream("/trainyard.v1.JobService/WatchJob")(
            v1.WatchJobRequest(name="projects/default/jobs/quiet").SerializeToString(),
            metadata=[("authorization", "Bearer " + TOKEN)])
        messages = 0
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                if await asyncio.wait_for(call.read(), max(0.1, end - time.monotonic())) is grpc.aio.EOF:
                    return messages, False
                messages += 1
        except asyncio.TimeoutError:
            pass
        except grpc.RpcError:
            return messages, False
        call.cancel()
        return messages, True

    async def run():
        roots = grpc.ssl_channel_credentials(pathlib.Path(ca_file).read_bytes())
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.secure_channel(target, roots, options) for _ in range(math.ceil(count / 50))]
        results = await asyncio.gather(*(follow(channels[number % len(channels)]) for number in range(count)))
        print(f"{sum(1 for _, kept in results if not kept)} of {count} cut, at least {min(m for m, _ in results)} messages")
        for channel in channels:
            await channel.close()

    asyncio.run(run())


def honest(binaries, kind, gigabytes, watchers, folder):
    daemon, served, ca_file, port = serve(binaries, kind, folder)
    me = [sys.executable, str(pathlib.Path(__file__).resolve())]
    target = f"localhost:{port}"
    try:
        before = [cpu_s(pid) for pid in ([daemon.process.pid] + (served.workers() if served else []))]
        speed = subprocess.run([*me, "upload", target, str(ca_file), str(gigabytes)], check=True, capture_output=True, text=True)
        used = [after - first for after, first in
                zip(map(cpu_s, [daemon.process.pid] + (served.workers() if served else [])), before)]
        daemon.cli("device", "drain", "cpu")
        spec = harness.digits_spec(folder, "quiet")
        daemon.submit(spec)
        watching = subprocess.Popen([*me, "watch", target, str(ca_file), str(watchers), "60"], stdout=subprocess.PIPE, text=True)
        time.sleep(30)
        memory = [peak_mib(daemon.process.pid), peak_mib(served.worker_pid()) if served else 0]
        if served:
            served.reload()
        kept = watching.communicate()[0].strip()
        print(f"| {kind} | {speed.stdout.strip()} | {used[0]:.1f} | {used[1] if served else 0:.1f} | {kept} | {memory[0]:.0f} | "
              f"{memory[1]:.0f} |", flush=True)
    finally:
        if served:
            served.stop()
        daemon.stop()


def attack_with(kind, where, ca_file, seconds):
    if kind == "specs":
        return submit_specs(where, ca_file, float(seconds))
    return Attacker(kind, int(where), float(seconds)).run()


def main():
    verbs = {"upload": lambda target, ca, gb: upload(target, ca, float(gb)),
             "watch": lambda target, ca, count, seconds: watch(target, ca, int(count), float(seconds)),
             "probe": lambda target, ca, seconds: probe(target, ca, float(seconds)),
             "attack": attack_with}
    if len(sys.argv) > 1 and sys.argv[1] in verbs:
        return verbs[sys.argv[1]](*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", metavar="BIN", type=pathlib.Path)
    parser.add_argument("--fronts", default="none,nginx,haproxy")
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("--upload-gb", type=float, default=10)
    parser.add_argument("--watchers", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainyard-front-") as scratch:
        os.chmod(scratch, 0o755)
        run_all(options, pathlib.Path(scratch) / "run")


def run_all(options, folder):
    os.sched_setaffinity(0, os.sched_getaffinity(0) - {ATTACKER_CORE})
    binaries, kinds = options.binaries.resolve(), options.fronts.split(",")
    if options.honest:
        print("| front end | upload MB/s | daemon CPU s | front CPU s | watchers | daemon MiB | front MiB |")
        print("| --- | ---: | ---: | ---: | --- | ---: | ---: |", flush=True)
        for kind in kinds:
            honest(binaries, kind, options.upload_gb, options.watchers, folder)
        return
    print("| front end | attack | TCP, ms | TCP, new connection | Unix socket | daemon MiB | front MiB | daemon CPU s | front CPU s |")
    print("| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: |", flush=True)
    for _ in range(options.rounds):
        for attack in options.attacks.split(","):
            for kind in kinds:
                measure(binaries, kind, attack, options.seconds, folder)


if __name__ == "__main__":
    main()
