"""Runs the demo as a new user does. Fails if it no longer works in a pipe, or if it leaves a daemon
or files behind."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

from harness import BIN, PATIENCE_S, SOURCE, DaemonTest, digits_spec


@unittest.skipUnless(BIN == SOURCE / "build/release/bin", "the demo runs what is in build/release")
class Demo(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp")
        self.addCleanup(self.folder.cleanup)
        self.process = subprocess.Popen(
            [SOURCE / "scripts/demo", "--no-build"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True, env=dict(os.environ, TMPDIR=self.folder.name))
        self.addCleanup(self.process.stdout.close)

    def assert_nothing_is_left(self):
        self.assertEqual(list(pathlib.Path(self.folder.name).iterdir()), [])
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                self.assertNotIn(self.folder.name.encode(), command, f"process {entry.name} is left")

    def test_it_learns_and_cleans_up(self):
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        self.assertEqual(self.process.returncode, 0, output)
        right = re.search(r"(\d+) of 297 right", output)
        self.assertIsNotNone(right, output)
        self.assertGreater(int(right[1]), 0.93 * 297)
        self.assertNotIn("\x1b", output)  # without a terminal, no colour and no cursor movement
        self.assertTrue((SOURCE / "build/demo/model/model.safetensors").exists())
        self.assert_nothing_is_left()

    def interrupt_after(self, headline):
        """Reads up to the line that starts with `headline`, then signals the script and its
        children as Ctrl-C in a terminal does."""
        while not self.process.stdout.readline().startswith(headline):
            self.assertIsNone(self.process.poll(), f"the demo ended before it said {headline!r}")
        os.killpg(self.process.pid, signal.SIGINT)
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        self.assertNotIn("was killed", output)
        self.assert_nothing_is_left()

    def test_ctrl_c_while_it_trains(self):
        self.interrupt_after("Training")
        self.assertEqual(self.process.returncode, 130)

    def test_ctrl_c_while_it_cleans_up(self):
        self.interrupt_after("The job's spec is")  # the script's last line
        self.assertIn(self.process.returncode, (0, 130))


class Interrupted(DaemonTest):
    def test_a_client_creates_no_unneeded_temporary_folder(self):
        """If the client created a folder, a signal that ends the client would leave it behind."""
        spec = digits_spec(self.folder, "plain")
        self.daemon.cli("submit", spec, "--wait", env={"TMPDIR": self.folder / "missing"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
