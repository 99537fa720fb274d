"""Tests of the daemon as a process: locks, ports, listeners, idle cost, start and stop."""

import pathlib
import resource
import signal
import socket
import subprocess
import time
import unittest

from harness import BIN, PATIENCE_S, Daemon, DaemonTest, digits_spec, wait_until

IDLE_RSS_KIB_MAX = 30 * 1024


def run_daemon(*arguments, timeout_s=PATIENCE_S):
    return subprocess.run([BIN / "trainyardd", *map(str, arguments)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=timeout_s)


class Manners(DaemonTest):
    def one_line(self, done, *words):
        self.assertNotEqual(done.returncode, 0)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_idle_costs_little(self):
        status = dict(line.split(":", 1) for line in
                      pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text().splitlines())
        self.assertLess(int(status["VmRSS"].split()[0]), IDLE_RSS_KIB_MAX)

        def cpu_ticks():
            fields = pathlib.Path(f"/proc/{self.daemon.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])
        before = cpu_ticks()
        time.sleep(2)
        self.assertLessEqual(cpu_ticks() - before, 8, "an idle daemon burns CPU")

    def test_second_daemon_on_the_same_folder(self):
        self.one_line(run_daemon("--state-dir", self.daemon.state), str(self.daemon.process.pid))

    def test_the_flags_speak_plainly(self):
        help_text = run_daemon("--help").stdout
        self.assertIn("--socket-group VALUE", help_text)
        self.assertIn("Check the configuration", help_text)
        for word in ("Excludes", "TEXT", "REQUIRED", "Needs:"):
            self.assertNotIn(word, help_text)
        for arguments, words in [
                (["--undo-upgrade", "--check"], "--check, --undo-upgrade and --init-admin exclude each other"),
                (["--sokcet", "/x"], "unknown option '--sokcet', did you mean '--socket'?"),
                (["--listen"], "--listen: expected one value after it"),
                (["serve"], "unexpected argument 'serve'")]:
            done = run_daemon(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertRegex(done.stderr, r"(\?|; 'trainyardd --help' lists the options) \[USAGE\]\s*$")
        self.assertLessEqual(max(map(len, help_text.splitlines())), 80)

    def test_a_second_signal_ends_the_daemon_at_once(self):
        daemon = Daemon(self.folder / "signalled").start()
        self.addCleanup(daemon.stop)
        for _ in range(3):
            daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.process.wait(PATIENCE_S), 0, "a thread took a signal by its default")

    def test_F35_connections_that_take_every_descriptor_end_no_job(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        daemon = Daemon(self.folder / "crowded").start()
        self.addCleanup(daemon.stop)
        names = [daemon.submit(digits_spec(self.folder, f"crowded-{i}")) for i in range(3)]
        used = len(list(pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir()))
        _, most = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (used + 4, most))
        crowd = []
        for _ in range(1200):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(daemon.socket))
            crowd.append(connection)
        wait_until(lambda: "event=connections_refused" in daemon.log(), "the daemon is out of descriptors")
        time.sleep(3)  # meanwhile jobs end, and others should start
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (min(1024, most), most))
        for connection in crowd:
            connection.close()
        for name in names:
            self.assertEqual(daemon.cli("wait", name, check=False).returncode, 0, daemon.job(name))
        self.assertEqual(daemon.stop(), 0)

    def test_F35_tcp_connections_held_for_seconds_leave_both_sockets_and_every_job_alive(self):
        own, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (own, most))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        program = self.write("trainyardd-with-1024", f'#!/bin/sh\nulimit -n 1024\nexec {BIN / "trainyardd"} "$@"\n')
        program.chmod(0o755)
        daemon = Daemon(self.folder / "held", "--listen", f"127.0.0.1:{port}", program=program).start()
        self.addCleanup(daemon.stop)
        names = [daemon.submit(digits_spec(self.folder, f"held-{i}"), "--set", "recipe.epochs=30") for i in range(4)]
        held = []
        for _ in range(1200):
            connection = socket.socket()
            connection.settimeout(PATIENCE_S)
            connection.connect(("127.0.0.1", port))
            held.append(connection)
        wait_until(lambda: "event=connections_refused" in daemon.log(), "the daemon is out of descriptors")
        time.sleep(3)  # meanwhile jobs end and others start
        for connection in held:
            connection.close()
        for server in (f"127.0.0.1:{port}", f"unix:{daemon.socket}"):
            # The daemon notices closed connections one after the other; it refuses new ones until then.
            wait_until(lambda: daemon.cli("health", "--server", server, check=False).returncode == 0, f"{server} answers")
        for name in names:
            self.assertEqual(daemon.cli("wait", name, check=False).returncode, 0, daemon.job(name))
        self.assertEqual(daemon.stop(), 0)

    def test_a_cancel_waits_for_a_daemon_that_restarts(self):
        daemon = Daemon(self.folder / "restarting").start()
        self.addCleanup(daemon.stop)
        name = daemon.submit(digits_spec(self.folder, "unwanted"), "--set", "recipe.epochs=30000")
        daemon.kill()
        cancel = subprocess.Popen([BIN / "trainyard", "--server", f"unix:{daemon.socket}", "--timeout", "600", "cancel", name],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        self.assertIsNone(cancel.poll(), "nothing listens yet")
        daemon.start()
        self.assertEqual(cancel.wait(PATIENCE_S), 0, cancel.stderr.read())
        cancel.stderr.close()
        self.assertEqual(daemon.cli("wait", name, check=False).returncode, 8)
        self.assertEqual(daemon.job(name)["state"], "CANCELLED")

    def test_folder_that_cannot_be_written(self):
        self.one_line(run_daemon("--state-dir", "/proc/nope"), "/proc/nope")

    def test_port_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            folder = self.folder / "port"
            self.one_line(run_daemon("--state-dir", folder, "--listen", f"127.0.0.1:{port}"), str(port))

    def test_foreign_address_needs_a_front_end_or_insecure_listen(self):
        self.one_line(run_daemon("--state-dir", self.folder / "open", "--listen", "0.0.0.0:0"), "front_socket", "insecure_listen")

    def test_unknown_configuration_key(self):
        path = self.write("config.yaml", "state_dirr: /tmp/x\n")
        self.one_line(run_daemon("--config", path), "state_dirr", "state_dir")

    def test_store_that_is_not_a_database(self):
        folder = self.folder / "garbage"
        folder.mkdir()
        Daemon(folder).start().stop()
        database = next(folder.glob("*.db"))
        database.write_bytes(b"this is not a database, but somebody's only copy of something\n" * 100)
        self.one_line(run_daemon("--state-dir", folder), database.name)
        self.assertIn(b"somebody's only copy", database.read_bytes())

    def test_restart_storm(self):
        daemon = Daemon(self.folder / "storm").start()
        name = daemon.submit(digits_spec(self.folder, "storm"))
        for i in range(6):
            daemon.kill()
            daemon.process = subprocess.Popen([BIN / "trainyardd", "--state-dir", daemon.state],
                                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.05 * i)
        daemon.kill()
        daemon.start()
        daemon.cli("wait", name)
        self.assertEqual(daemon.stop(), 0)

    def test_loopback_tcp(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        token = self.write("tcp-token", "0123456789abcdef0123\n")
        token.chmod(0o600)
        daemon = Daemon(self.folder / "tcp", "--listen", f"127.0.0.1:{port}", "--token-file", str(token)).start()
        self.addCleanup(daemon.stop)
        server = ["--server", f"127.0.0.1:{port}"]
        self.assertEqual(daemon.cli("list", *server, "--token-file", token).returncode, 0)
        self.assert_refused(daemon.cli("list", *server, check=False), 3, "CREDENTIALS_MISSING")


if __name__ == "__main__":
    unittest.main(verbosity=2)
