"""Runs the tutorial as a newcomer does, with and without a server. It must leave behind only the
files that it names."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from harness import BIN, PATIENCE_S, DaemonTest, wait_until


class Tutorial(DaemonTest):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="tutorial-test-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def names(self):
        return [self.daemon.cli(*listing, "-o", "name").stdout.split()
                for listing in (["list"], ["model", "list"], ["dataset", "list"])]

    def test_a_job_is_followed_from_plan_to_export_on_a_server(self):
        said = self.daemon.cli("tutorial", "--yes", env={"TMPDIR": str(self.scratch)}).stdout
        commands = [line.split()[2:4] for line in said.splitlines() if line.startswith("$ trainyard")]
        self.assertEqual([c[0] for c in commands], ["plan", "submit", "watch", "plot", "predict", "model"])
        for word in ("SUCCEEDED", "train/loss", "rabbit", "docs/job_spec.md", "has been deleted"):
            self.assertIn(word, said)
        self.assertEqual(self.names(), [[], [], []])
        self.assertEqual(list(self.scratch.iterdir()), [])

    def alone(self, *arguments):
        """Runs a copy of the command line that has no engine beside it or in PATH, as in the package of one file."""
        program = self.scratch / "bin/trainyard"
        program.parent.mkdir(exist_ok=True)
        if not program.exists():
            shutil.copy(BIN / "trainyard", program)
        env = dict(os.environ, PATH="/usr/bin:/bin", TMPDIR=str(self.scratch))
        return subprocess.run([program, *arguments], capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL,
                              timeout=PATIENCE_S, cwd=self.scratch)

    def test_the_one_file_client_needs_only_a_server(self):
        done = self.alone("tutorial", "--yes", "--server", f"unix:{self.daemon.socket}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("plan animals.yaml --upload", done.stdout)
        self.assertEqual(self.names(), [[], [], []])
        done = self.alone("tutorial", "--yes", "--server", f"unix:{self.scratch}/none.sock")
        self.assertEqual(done.returncode, 7, done.stdout + done.stderr)
        self.assertIn("the tutorial needs a server", done.stderr)

    def test_init_of_the_one_file_client_recommends_what_it_can_do(self):
        (self.scratch / "t.csv").write_text("a,b\n" + "".join(f"{i * 7 % 13},{'xy'[i * i % 3 % 2]}\n" for i in range(60)))
        done = self.alone("init", "t.csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("trainyard submit t.yaml", done.stdout)
        self.assertNotIn("local run", done.stdout)
        self.assertIn("trainyard local run", self.daemon.cli("init", "t.csv", "--overwrite", cwd=self.scratch).stdout)

    def test_without_a_server_it_trains_in_the_terminal_and_keeps_a_named_folder(self):
        folder = self.scratch / "animals"
        said = self.daemon.cli("tutorial", "--yes", "--folder", folder,
                               "--server", f"unix:{self.scratch}/none.sock").stdout
        for word in ("No server was found", "local run", "trainyardd", f"are kept in {folder}"):
            self.assertIn(word, said)
        self.assertIn("animals.onnx", [path.name for path in folder.iterdir()])
        again = self.daemon.cli("tutorial", "--yes", "--folder", folder, check=False)
        self.assertEqual(again.returncode, 2)
        self.assertIn("expected a new or an empty folder", again.stderr)

    def test_a_relative_server_path_works_in_the_tutorials_folder(self):
        (self.scratch / "client.yaml").write_text("context: here\ncontexts:\n  here: {server: 'unix:" + str(self.daemon.socket) + "'}\n")
        (self.scratch / "there.sock").symlink_to(self.daemon.socket)
        (self.scratch / "token").write_text(self.daemon.cli("token", "create", "tutorial").stdout)
        (self.scratch / "token").chmod(0o600)
        for named in (["--server", "unix:there.sock", "--token-file", "token"], ["--config", "client.yaml"]):
            done = subprocess.run([BIN / "trainyard", "tutorial", "--yes", *named], cwd=self.scratch, capture_output=True,
                                  text=True, check=False, stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("SUCCEEDED", done.stdout + done.stderr)
        self.assertEqual(self.names(), [[], [], []])

    def test_any_number_of_ctrl_c_ends_it_and_leaves_nothing(self):
        process = subprocess.Popen(
            [BIN / "trainyard", "tutorial", "--yes"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env=dict(os.environ, TRAINYARD_SERVER=f"unix:{self.daemon.socket}", TMPDIR=str(self.scratch)))
        wait_until(lambda: self.names()[0], "the tutorial's job is there", interval_s=0.005)
        for _ in range(4):  # like an impatient user
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.05)
            if process.poll() is not None:
                break
        said, _ = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(self.names(), [[], [], []], said)
        self.assertEqual(list(self.scratch.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
