"""Tests that training continues without the daemon, which may be killed or replaced, and that the
next daemon adopts running jobs."""

import os
import shutil
import signal
import time
import unittest

from harness import BIN, STATEFUL_MODEL, Daemon, DisturbedTest, is_running, wait_until

# Each job makes some 90 checkpoints. It uses one thread, since two threads on a busy core mostly
# wait for each other.
RECIPE = """  validation_split: 0.2
  checkpoint_every_steps: 100
resources: {threads: 1}
"""
FIRST_STEP = 150  # jobs are disturbed after their first checkpoint


class Outlive(DisturbedTest):
    network, recipe, epochs = STATEFUL_MODEL, RECIPE, 400

    def setUp(self):
        if self.daemon.process.poll() is not None:  # an earlier test failed halfway
            self.daemon.start()

    def begin(self, name):
        """Submits the job, waits until it trains and returns its worker's PID."""
        self.daemon.submit(self.spec(name))
        self.wait_for_step(name, FIRST_STEP)
        (pid,) = self.daemon.worker_pids()
        return pid

    def assert_never_interrupted(self, name):
        self.finish(name)
        self.assertEqual(self.daemon.job(name)["attempt"], 1)
        steps = self.steps(name)
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "each step once, in order")
        seqs = [int(e["seq"]) for e in self.daemon.events(name)]
        self.assertEqual(seqs, list(range(1, len(seqs) + 1)))

    def test_F02_a_worker_outlives_its_daemon_and_is_adopted(self):
        pid = self.begin("outlives")
        for _ in range(2):
            self.daemon.kill()
            os.kill(pid, signal.SIGHUP)  # the kernel sends it to an orphaned stopped process group
            time.sleep(0.3)
            self.assertTrue(is_running(pid))
            os.kill(pid, signal.SIGSTOP)  # the job must not end while the next daemon starts, however long that takes
            self.daemon.start()
            self.assertEqual(self.daemon.job("outlives")["state"], "RUNNING")
            self.assertEqual(self.daemon.worker_pids(), [pid])
            step = int(self.daemon.job("outlives")["progress"]["step"])
            os.kill(pid, signal.SIGCONT)
            wait_until(lambda: int(self.daemon.job("outlives")["progress"]["step"]) > step, "the job continues")
        self.assertIn("event=worker_adopted", self.daemon.log())
        self.daemon.cli("wait", "outlives")
        logs = [e["log"]["text"] for e in self.daemon.events("outlives") if "log" in e]
        self.assertEqual(logs.count("the daemon was restarted; the worker continued training"), 2)
        told = self.daemon.cli("explain", "outlives").stdout
        self.assertEqual(told.count("The daemon was restarted; the worker continued training."), 2)
        self.assert_never_interrupted("outlives")

    def test_the_end_of_a_job_without_a_daemon_is_imported(self):
        pid = self.begin("alone")
        self.daemon.kill()
        wait_until(lambda: not is_running(pid), "it ends by itself, when nobody has listened for a while")
        self.daemon.start()
        wait_until(lambda: self.daemon.job("alone")["state"] == "SUCCEEDED", "its end is known")
        self.assert_never_interrupted("alone")
        self.assertFalse(list((self.daemon.state / "jobs").glob("*/reports-*")), "what was taken goes")

    def test_reports_of_a_killed_worker_without_a_daemon_are_not_lost(self):
        pid = self.begin("both")
        self.daemon.kill()
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        self.daemon.start()
        self.finish("both")
        job = self.daemon.job("both")
        self.assertEqual(job["attempt"], 2)
        reasons = [e["state"].get("reason") for e in self.daemon.events("both") if "state" in e]
        self.assertIn("DAEMON_RESTARTED", reasons)
        self.assertEqual(set(self.steps("both")), set(range(1, max(self.steps("both")) + 1)), "a step is missing")

    def test_a_request_accepted_before_the_daemon_died_is_carried_out(self):
        pid = self.begin("asked")
        os.kill(pid, signal.SIGSTOP)
        self.daemon.cli("pause", "asked")
        self.daemon.kill()
        os.kill(pid, signal.SIGCONT)
        self.daemon.start()
        self.wait_for_state("asked", "PAUSED")
        wait_until(lambda: not is_running(pid), "the worker is gone")
        job = self.daemon.job("asked")
        self.assertEqual(job["checkpoint_step"], job["progress"]["step"], "it saved its work")
        self.daemon.cli("resume", "asked")
        self.finish("asked")
        steps = self.steps("asked")
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "each step once, in order")

    def test_a_stop_drains_adopted_workers(self):
        pid = self.begin("drained")
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertFalse(is_running(pid))
        self.daemon.start()
        self.finish("drained")
        steps = self.steps("drained")
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "each step once, in order")

    def test_a_cancelled_job_is_cancelled_by_the_next_daemon(self):
        pid = self.begin("cancelled")
        # On a slow machine the job could otherwise end before the cancel.
        os.kill(pid, signal.SIGSTOP)
        self.daemon.kill()
        self.daemon.start()
        self.daemon.cli("cancel", "cancelled")
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.daemon.cli("wait", "cancelled", check=False).returncode, 8)
        wait_until(lambda: not is_running(pid), "the worker is gone")

    def test_an_adopted_worker_that_is_killed_is_replaced(self):
        pid = self.begin("lost")
        self.daemon.kill()
        self.daemon.start()
        self.wait_for_step("lost", int(self.daemon.job("lost")["progress"]["step"]) + 1)
        os.kill(pid, signal.SIGKILL)
        self.finish("lost")
        self.assertEqual(self.daemon.job("lost")["attempt"], 2)


class Alone(DisturbedTest):
    arguments = ["--unattended-seconds", "1"]
    network, recipe, epochs = STATEFUL_MODEL, RECIPE, 150

    def test_a_worker_without_a_daemon_saves_its_work_in_time_and_ends(self):
        self.daemon.submit(self.spec("bounded"))
        self.wait_for_step("bounded", FIRST_STEP)
        (pid,) = self.daemon.worker_pids()
        self.daemon.kill()
        wait_until(lambda: not is_running(pid), "it ends by itself")
        self.daemon.start()
        self.finish("bounded")
        self.assertEqual(self.daemon.job("bounded")["attempt"], 2)
        steps = self.steps("bounded")
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "each step once, in order: it saved the last")


class Replaced(DisturbedTest):
    """SIGUSR2: the program at the daemon's path replaces the running one, with the same PID."""

    network, recipe, epochs = STATEFUL_MODEL, RECIPE, 400

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.stop()
        cls.program = cls.folder / "bin" / "trainyardd"
        cls.program.parent.mkdir()
        shutil.copy2(BIN / "trainyardd", cls.program)
        cls.daemon = Daemon(cls.folder / "state", "--worker", BIN / "trainyard-worker", program=cls.program).start()

    def replace(self, what):
        """Replaces the program as a package manager does: the new file is renamed over the old
        one."""
        fresh = self.program.with_name("new")
        what(fresh)
        fresh.chmod(0o755)
        fresh.rename(self.program)

    def test_a_daemon_is_upgraded_while_a_job_runs(self):
        self.daemon.submit(self.spec("upgraded"))
        self.wait_for_step("upgraded", FIRST_STEP)
        (worker,) = self.daemon.worker_pids()
        daemon = self.daemon.process.pid
        served = self.daemon.log().count("event=daemon_started")
        self.replace(lambda path: shutil.copy2(BIN / "trainyardd", path))
        self.daemon.process.send_signal(signal.SIGUSR2)
        wait_until(lambda: self.daemon.log().count("event=daemon_started") > served, "the new one serves")
        self.assertEqual(self.daemon.process.pid, daemon)
        self.assertIsNone(self.daemon.process.poll())
        self.assertNotIn("(deleted)", os.readlink(f"/proc/{daemon}/exe"), "it is the new file that runs")
        self.assertEqual(self.daemon.job("upgraded")["state"], "RUNNING")
        self.assertEqual(self.daemon.worker_pids(), [worker])
        self.finish("upgraded")
        self.assertEqual(self.daemon.job("upgraded")["attempt"], 1)
        steps = self.steps("upgraded")
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "each step once, in order")

    def test_a_program_that_refuses_the_settings_does_not_replace_the_daemon(self):
        before = self.daemon.log().count("event=daemon_started")
        for script in ("exit 2", "exit 0"):
            refused = self.daemon.log().count("event=daemon_not_replaced")
            self.replace(lambda path: path.write_text(f"#!/bin/sh\n{script}\n"))
            self.daemon.process.send_signal(signal.SIGUSR2)
            wait_until(lambda: self.daemon.log().count("event=daemon_not_replaced") > refused, "it says so")
            self.assertEqual(self.daemon.cli("health").returncode, 0)
        self.assertEqual(self.daemon.log().count("event=daemon_started"), before)
        self.replace(lambda path: shutil.copy2(BIN / "trainyardd", path))


if __name__ == "__main__":
    unittest.main(verbosity=2)
