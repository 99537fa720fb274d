"""Tests who may use the daemon's socket: members of socket_group. Everyone else is told the group
and the command, by the command line and by the Python client. Needs root, to be several users."""

import grp
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from harness import BIN, SOURCE, Daemon

NOBODY = 65534
PYTHON = "import trainyard; print(trainyard.Client().server_info().version)"


@unittest.skipUnless(os.geteuid() == 0, "only root can be several users")
class SocketGroup(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="trainyard-group-")
        cls.addClassCleanup(cls.folder.cleanup)
        os.chmod(cls.folder.name, 0o755)
        cls.run_folder = pathlib.Path(cls.folder.name) / "trainyard"  # as $XDG_RUNTIME_DIR/trainyard
        cls.run_folder.mkdir(mode=0o755)
        cls.group = next(g for g in grp.getgrall() if g.gr_gid not in (0, NOBODY) and not g.gr_mem)
        cls.socket = cls.run_folder / "trainyard.sock"
        cls.daemon = Daemon(pathlib.Path(cls.folder.name) / "state", "--socket", str(cls.socket), "--socket-group",
                            cls.group.gr_name)
        cls.daemon.socket = cls.socket
        cls.daemon.start()
        cls.addClassCleanup(cls.daemon.stop)

    def as_user(self, command, gid):
        """Runs a command as the user nobody with one group. The runtime folder names the socket, no setting does."""
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "XDG_RUNTIME_DIR": self.folder.name,
               "PYTHONPATH": os.environ.get("PYTHONPATH", str(SOURCE / "client/python/src"))}
        return subprocess.run(command, capture_output=True, text=True, env=env, user=NOBODY, group=gid, extra_groups=[],
                              cwd="/", timeout=120)

    def test_members_of_the_group_find_and_use_the_socket(self):
        done = self.as_user([BIN / "trainyard", "server", "status"], self.group.gr_gid)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(str(self.socket), done.stdout)

    def test_others_read_which_group_may_and_the_command(self):
        done = self.as_user([BIN / "trainyard", "list"], NOBODY)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(f"you are not in the group {self.group.gr_name}, which may use the server's socket {self.socket}; run: "
                      f"sudo usermod -aG {self.group.gr_name} nobody, then log in again [SOCKET_NOT_ALLOWED]", done.stderr)
        self.assertNotIn("no server is running", done.stderr)

    def test_the_python_client_says_the_same(self):
        try:
            import trainyard  # noqa: F401
        except ImportError as missing:
            self.skipTest(str(missing))
        done = self.as_user([sys.executable, "-c", PYTHON], NOBODY)
        self.assertIn(f"you are not in the group {self.group.gr_name}", done.stderr)
        self.assertIn(f"sudo usermod -aG {self.group.gr_name} nobody", done.stderr)

    def test_the_state_stays_closed_to_the_group(self):
        done = self.as_user(["ls", str(self.daemon.state)], self.group.gr_gid)
        self.assertNotEqual(done.returncode, 0)

    def test_a_socket_without_a_group_is_said_to_be_its_users(self):
        alone = pathlib.Path(self.folder.name) / "alone.sock"
        daemon = Daemon(pathlib.Path(self.folder.name) / "alone", "--socket", str(alone))
        daemon.socket = alone
        daemon.start()
        self.addCleanup(daemon.stop)
        done = self.as_user([BIN / "trainyard", "list", "--server", str(alone)], self.group.gr_gid)
        self.assertIn("is for the user root alone", done.stderr)


if __name__ == "__main__":
    unittest.main()
