"""Tests faults of whole processes with the real programs: those of RELIABILITY.md, section 7, that
no test inside a process can show. The number in a test's name is the fault's, and its docstring
begins with the invariants that it checks."""

import os
import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import history  # noqa: E402
from harness import BIN, PATIENCE_S, Daemon, DaemonTest, digits_spec, is_running, promised_s, wait_until  # noqa: E402
from kill_storm import events_of  # noqa: E402

ENDLESS = ("--set", "recipe.epochs=100000")


class Faults(DaemonTest):
    arguments = ["--threads-per-job", "1", "--cpu-slots", "2", "--cancel-grace-seconds", "3", "--unattended-seconds", "0"]

    def spec(self, name, checkpoint_every=20, **others):
        return digits_spec(self.folder, name, recipe=f"  checkpoint_every_steps: {checkpoint_every}\n", **others)

    def start(self, name, *more):
        """Starts a job that trains until it is ended, and returns its worker."""
        before = set(self.daemon.worker_pids())
        self.daemon.submit(self.spec(name), *ENDLESS, *more)
        wait_until(lambda: int(self.daemon.job(name)["checkpoint_step"]) > 0, f"{name} has a checkpoint")
        (pid,) = set(self.daemon.worker_pids()) - before
        return pid

    def states(self, name):
        return [event["state"] for event in self.daemon.events(name) if "state" in event]

    def assert_consistent(self, name):
        """Checks I4 and I5 on the events of a finished job."""
        job = self.daemon.job(name)
        found = list(history.event_logs({"jobs": {name: {"state": job["state"], "events": events_of(self.daemon.events(name))}}}))
        self.assertEqual(found, [])

    def test_F08_a_crash_is_told_with_its_signal_and_the_job_resumes(self):
        """I7, I4, I10: a worker's SIGSEGV or SIGABRT ends one attempt and nothing else."""
        neighbor = self.start("neighbor")
        for number, text in ((signal.SIGSEGV, "signal 11"), (signal.SIGABRT, "signal 6")):
            name = f"crash-{int(number)}"
            os.kill(self.start(name), number)
            wait_until(lambda: self.daemon.job(name)["attempt"] == 2, "a second attempt")
            wait_until(lambda: int(self.daemon.job(name)["checkpoint_step"]) > 0, "it goes on")
            self.assertIn(text, self.daemon.cli("explain", name).stdout)
            self.daemon.cli("cancel", name)
            self.daemon.cli("wait", name, check=False)
            lost = next(s for s in self.states(name) if s["state"] == "QUEUED" and s["reason"] != "WAITING_FOR_SCHEDULER")
            self.assertEqual(lost["reason"], "WORKER_KILLED")
            self.assertRegex(lost["message"], f"{text}.* at step [1-9]")
            self.assert_consistent(name)
        self.assertTrue(is_running(neighbor), "a neighbor's crash ended it")
        self.daemon.cli("cancel", "neighbor")
        self.daemon.cli("wait", "neighbor", check=False)
        self.assertEqual(self.daemon.job("neighbor")["attempt"], 1)

    def test_F05_a_second_stop_at_any_time_costs_no_bit(self):
        """I1, I6, I9: two SIGTERMs up to half a second apart, while a job trains."""
        spec = self.spec("whole", checkpoint_every=100)
        longer = ("--set", "recipe.epochs=120")
        whole = self.daemon.submit(spec, *longer, "--wait")
        name = self.daemon.submit(self.spec("stopped-twice", checkpoint_every=100), *longer)
        for pause_s in (0, 0.005, 0.02, 0.5):
            wait_until(lambda: self.daemon.worker_pids() or self.daemon.job(name)["state"] == "SUCCEEDED", "a worker runs")
            time.sleep(0.05)
            workers = self.daemon.worker_pids()
            self.daemon.process.send_signal(signal.SIGTERM)
            time.sleep(pause_s)
            self.daemon.process.send_signal(signal.SIGTERM)
            self.assertEqual(self.daemon.process.wait(PATIENCE_S), 0)
            wait_until(lambda: not any(map(is_running, workers)), "its workers end with it", timeout_s=promised_s(5))
            self.daemon.start()
            if self.daemon.job(name)["state"] == "SUCCEEDED":
                break
        self.daemon.cli("wait", name)
        self.assertEqual(*(self.daemon.json("model", "get", each)["digest"] for each in (whole, name)))
        self.assert_consistent(name)

    def test_F37_a_cancel_at_any_time_has_one_outcome(self):
        """I4, I8: cancels a job while it is dequeued, started, running or completing, and twice."""
        begin = time.monotonic()
        self.daemon.submit(self.spec("in-peace"), "--set", "recipe.epochs=6", "--wait")
        whole_s = time.monotonic() - begin
        outcomes = set()
        for i in range(16):
            name = self.daemon.submit(self.spec(f"raced-{i}"), "--set", "recipe.epochs=6")
            time.sleep(whole_s * i / 16)
            first = self.daemon.json("cancel", name)
            second = self.daemon.json("cancel", name)
            self.assertEqual(first["uid"], second["uid"])
            self.daemon.cli("wait", name, check=False)
            state = self.daemon.job(name)["state"]
            self.assertIn(state, ("CANCELLED", "SUCCEEDED"))
            if first["state"] in history.TERMINAL:
                self.assertEqual(state, first["state"])
            self.assert_consistent(name)
            self.assertEqual(sum(s["state"] in history.TERMINAL for s in self.states(name)), 1)
            outcomes.add((first["state"], state))
        self.assertGreater(len(outcomes), 1, "all cancels met the same moment")
        wait_until(lambda: not self.daemon.worker_pids(), "no worker is left", timeout_s=promised_s(5))

    def test_F14_a_worker_without_memory_fails_its_job_alone(self):
        """I7, I4: with RLIMIT_AS on a worker, the job fails because of memory, and the daemon and
        its next job continue."""
        worker = self.write("limited-worker", f'#!/bin/sh\nulimit -v 1500000\nexec {BIN / "trainyard-worker"} "$@"\n')
        worker.chmod(0o755)
        daemon = Daemon(self.folder / "limited", "--worker", worker, "--threads-per-job", "1").start()
        try:
            model = "  mlp: {hidden: [20000, 20000]}"
            name = daemon.submit(digits_spec(self.folder, "too-large", model))
            daemon.cli("wait", name, check=False)
            job = daemon.job(name)
            self.assertEqual((job["state"], job["reason"]), ("FAILED", "OUT_OF_MEMORY"), job["message"])
            self.assertEqual(job["attempt"], 1, "what does not fit is not tried again")
            daemon.submit(digits_spec(self.folder, "fits"), "--wait")
        finally:
            self.assertEqual(daemon.stop(), 0)

    def test_F02_workers_end_with_a_daemon_that_is_killed(self):
        """I3, I8: where workers do not outlive the daemon, none of them may train concurrently with
        the next daemon's attempt."""
        workers = [self.start("orphan-1"), self.start("orphan-2")]
        self.daemon.kill()
        wait_until(lambda: not any(map(is_running, workers)), "they end with the daemon", timeout_s=promised_s(2), interval_s=0.005)
        self.daemon.start()
        for name in ("orphan-1", "orphan-2"):
            # The first attempt stays RUNNING until its end is stored.
            wait_until(lambda: (j := self.daemon.job(name))["state"] == "RUNNING" and j["attempt"] == 2, f"{name} trains again",
                       timeout_s=promised_s(10))
        for name in ("orphan-1", "orphan-2"):
            self.daemon.cli("cancel", name)
            self.daemon.cli("wait", name, check=False)
            job = self.daemon.job(name)
            self.assertEqual((job["state"], job["attempt"]), ("CANCELLED", 2))
            resumed = [int(s["resumed_from_step"]) for s in self.states(name) if s["state"] == "RUNNING"]
            self.assertGreater(resumed[-1], 0, "it started over")
            self.assert_consistent(name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
