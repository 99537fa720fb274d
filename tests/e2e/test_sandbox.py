"""Tests that real workers run in the sandbox: what the kernel says of them, what the server says of this
host, and that each kind of task works there."""

import pathlib
import subprocess
import unittest

from harness import BIN, STATEFUL_MODEL, Daemon, DaemonTest, DisturbedTest

RECIPE = """  validation_split: 0.2
  checkpoint_every_steps: 100
resources: {threads: 1}
"""


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}


def check_of(folder, *arguments):
    return subprocess.run([BIN / "trainyardd", "--state-dir", folder, "--check", *arguments],
                          capture_output=True, text=True, timeout=120).stdout


class Sandbox(DisturbedTest):
    network, recipe, epochs = STATEFUL_MODEL, RECIPE, 400

    def setUp(self):
        self.sandbox = self.daemon.json("server", "status")["sandbox"]
        if "seccomp" not in self.sandbox:
            self.skipTest(f"this host or build enforces: {self.sandbox}")

    def assert_restricted(self, pid, profile):
        status = status_of(pid)
        self.assertEqual(status["Seccomp"], "2", "a filter of system calls")
        self.assertEqual(status["NoNewPrivs"], "1")
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(int(status[kind], 16), 0, kind)
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
            self.assertIn("Seccomp:\t2", (thread / "status").read_text(), thread)
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        self.assertRegex(limits, r"Max core file size +0 +0 ")
        self.assertRegex(limits, r"Max data size +\d+ +\d+ ")
        self.assertIn(f"pid={pid} sandbox={profile}", self.daemon.log())

    def test_a_training_worker_is_restricted_and_comes_back_to_the_next_daemon(self):
        self.daemon.submit(self.spec("restricted"))
        self.wait_for_step("restricted", 150)
        (pid,) = self.daemon.worker_pids()
        self.assert_restricted(pid, "TRAIN")
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.daemon.worker_pids(), [pid], "adopted")
        self.finish("restricted")
        self.assertEqual(self.daemon.job("restricted")["attempt"], 1)
        self.assertFalse((self.daemon.state / "jobs" / self.daemon.job("restricted")["uid"] / "model").exists())

    def test_a_worker_that_predicts_is_restricted(self):
        row = ",".join("0" for _ in range(64)) + "\n"
        self.daemon.cli("predict", "undisturbed", "--csv", self.write("row.csv", row))
        self.assert_restricted(self.daemon.worker_pids()[0], "COMPUTE")
        self.assertIn("sandbox=PARSE", self.daemon.log(), "the ingest")
        # The warm worker may read no dataset, so another one evaluates.
        dataset = self.daemon.json("dataset", "list")["datasets"][0]["name"]
        self.daemon.cli("model", "evaluate", "undisturbed", dataset.rsplit("/", 1)[1])

    def test_the_check_names_what_this_host_enforces(self):
        self.assertIn("files (Landlock", self.sandbox)
        folder = self.folder / "fresh"
        self.assertIn(f"sandbox  ok  {self.sandbox}", check_of(folder))
        self.assertIn("sandbox  off", check_of(folder, "--sandbox", "off"))


class WithoutSandbox(DaemonTest):
    def test_the_operator_can_switch_it_off_and_is_warned(self):
        daemon = Daemon(self.folder / "open", "--sandbox", "off")
        try:
            daemon.start()
            info = daemon.json("server", "status")
            self.assertEqual(info["sandbox"], "off")
            self.assertTrue(any("without a sandbox" in w for w in info["warnings"]), info)
        finally:
            daemon.stop()


if __name__ == "__main__":
    unittest.main()
