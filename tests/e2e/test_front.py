"""Tests the front end that the package configures (packaging/front/haproxy.cfg): what comes through
it, what it believes, what it limits, and that a reload cuts no stream. Needs Debian's haproxy."""

import os
import pathlib
import select
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

from harness import BIN, Daemon, digits_spec, wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import front  # noqa: E402
import http2  # noqa: E402

TOKEN = "0123456789abcdef0123456789abcdef"
FORGED = "203.0.113.9"
STRANGERS_MAX = 32  # connections of a stranger's address, as in haproxy.cfg


@unittest.skipUnless(front.program("haproxy"), "haproxy is not installed")
class FrontEnd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-front-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        (cls.folder / "front").mkdir()
        cls.ca_file = front.make_certificate(cls.folder)
        cls.token = cls.folder / "token"
        cls.token.touch(mode=0o600)
        cls.token.write_text(TOKEN + "\n")
        cls.port, cls.workers_port = front.free_port(), front.free_port()
        cls.daemon = Daemon(cls.folder / "state", "--token-file", str(cls.token), "--front-socket",
                            str(cls.folder / "front/trainyard.sock"), "--workers-advertise", f"127.0.0.1:{cls.workers_port}")
        cls.daemon.start()
        cls.addClassCleanup(cls.daemon.kill_workers)
        cls.addClassCleanup(cls.daemon.stop)
        cls.front = front.Front("haproxy", cls.folder, cls.port, cls.workers_port).start()
        cls.addClassCleanup(cls.front.stop)

    def through(self, *arguments, token=True, ca_file=None):
        credentials = ["--token-file", self.token] if token else []
        return self.daemon.cli(*arguments, "--server", f"localhost:{self.port}", "--ca-file", ca_file or self.ca_file,
                               *credentials, check=False)

    def test_calls_come_through_with_a_token_only(self):
        done = self.through("server", "status")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.through("health", token=False).returncode, 0)
        refused = self.through("list", token=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("this server requires a token [UNAUTHENTICATED]", refused.stderr)

    def test_a_forged_address_reaches_neither_audit_nor_log(self):
        with http2.Connection(self.port, self.ca_file) as connection:
            connection.call("/trainyard.v1.JobService/CancelJob", http2.text_field(1, "projects/default/jobs/forged"), TOKEN,
                            [("x-forwarded-for", FORGED), ("x-forwarded-for", FORGED), ("forwarded", f"for={FORGED}")])
            self.assertTrue(connection.read_until(lambda frame: frame.ends_stream)[-1])
        line = wait_until(lambda: next((line for line in self.daemon.log().splitlines() if "jobs/forged" in line), None),
                          "the call is in the log")
        self.assertIn("address=127.0.0.1", line)
        self.assertNotIn(FORGED, self.daemon.log())

    def test_a_reload_cuts_no_stream_and_takes_a_new_certificate(self):
        name = self.daemon.submit(digits_spec(self.folder, "watched"), "--set", "recipe.epochs=30000")
        with http2.Connection(self.port, self.ca_file) as connection:
            watch = connection.call("/trainyard.v1.JobService/WatchJob",
                                    http2.text_field(1, f"projects/default/jobs/{name}"), TOKEN)
            connection.read_until(lambda frame: frame.kind == http2.DATA)
            renewed = front.make_certificate(self.folder, "renewed.pem")
            before = set(self.front.reload())
            served = ssl.PEM_cert_to_DER_cert(renewed.read_text())
            wait_until(lambda: self.served_certificate() == served, "the new certificate is served")
            self.assertTrue(before <= set(self.front.workers()), "the process with the stream stays")
            self.assertEqual(self.through("cancel", name, ca_file=renewed).returncode, 0)
            frames = connection.read_until(lambda frame: frame.stream == watch and frame.ends_stream)
            self.assertIsNotNone(frames[-1], "the stream was cut")
            self.assertEqual(frames[-1].kind, http2.HEADERS, "it ends with a status, after the job's end")
        shutil.copy(renewed, self.ca_file)
        wait_until(lambda: not before & set(self.front.workers()), "the old process ends after its last stream")

    def served_certificate(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port)) as plain:
                with http2.tls_context().wrap_socket(plain) as connection:
                    return connection.getpeercert(binary_form=True)
        except OSError:
            return None

    def test_a_strangers_address_has_a_limit_that_others_do_not_notice(self):
        held = []
        self.addCleanup(lambda: [connection.close() for connection in held])
        for _ in range(STRANGERS_MAX + 8):
            connection = socket.socket()
            held.append(connection)
            connection.bind(("127.0.0.9", 0))
            connection.connect(("127.0.0.1", self.port))
        # The front end closes those beyond the limit and waits for the others' handshake.
        wait_until(lambda: len(select.select(held, [], [], 0)[0]) == 8, "connections beyond the limit are closed")
        self.assertEqual(self.through("server", "status").returncode, 0)

    def test_workers_reach_the_daemon_with_its_certificate(self):
        certificate = subprocess.run(["openssl", "x509", "-in", self.folder / "front/workers.pem"], check=True,
                                     capture_output=True).stdout
        pinned = self.folder / "pinned.pem"
        pinned.write_bytes(certificate)
        done = subprocess.run([BIN / "trainyard-worker", "--attach", f"127.0.0.1:{self.workers_port}", "--certificate", pinned,
                               "--cache", self.folder / "cache", "--task", "nobody-1"], input="a" * 64 + "\n", text=True,
                              capture_output=True, timeout=120, env=dict(os.environ))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ATTEMPT_FENCED", done.stderr + done.stdout)
        with http2.Connection(self.workers_port) as connection:
            connection.call("/trainyard.v1.JobService/ListJobs", b"", TOKEN)
            self.assertTrue(connection.read_until(lambda frame: frame.ends_stream)[-1], "refused by the front end")


if __name__ == "__main__":
    unittest.main()
