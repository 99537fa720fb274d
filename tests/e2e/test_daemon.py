"""The daemon's own manners: locks, ports, listeners, idle cost, start and stop."""

import pathlib
import socket
import subprocess
import time
import unittest

from harness import BIN, Daemon, DaemonTest, digits_spec

IDLE_RSS_KIB_MAX = 30 * 1024


def run_daemon(*arguments, timeout_s=20):
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
        self.assertLessEqual(cpu_ticks() - before, 2, "an idle daemon burns CPU")

    def test_second_daemon_on_the_same_folder(self):
        self.one_line(run_daemon("--state-dir", self.daemon.state), str(self.daemon.process.pid))

    def test_folder_that_cannot_be_written(self):
        self.one_line(run_daemon("--state-dir", "/proc/nope"), "/proc/nope")

    def test_port_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            folder = self.folder / "port"
            self.one_line(run_daemon("--state-dir", folder, "--listen", f"127.0.0.1:{port}"), str(port))

    def test_foreign_address_needs_tls_or_an_explicit_word(self):
        self.one_line(run_daemon("--state-dir", self.folder / "open", "--listen", "0.0.0.0:0"), "tls_certificate", "insecure")

    def test_unknown_configuration_key(self):
        path = self.write("config.yaml", "state_dirr: /tmp/x\n")
        self.one_line(run_daemon("--config", path), "state_dirr", "state_dir")

    def test_store_that_is_no_database(self):
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
        daemon = Daemon(self.folder / "tcp", "--listen", f"127.0.0.1:{port}").start()
        done = daemon.cli("list", "--server", f"127.0.0.1:{port}")
        self.assertEqual(done.returncode, 0)
        daemon.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
