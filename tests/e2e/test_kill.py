"""Tests that kill -9 at any time costs at most the steps since the last checkpoint, and no bit of
the result."""

import os
import random
import signal
import time
import unittest

from harness import DisturbedTest, is_running, promised_s, wait_until

MODEL = """  layers:
    - conv: {out_channels: 16, kernel_shape: [3], pads: [1]}
    - batch_normalization: {}
    - relu: {}
    - max_pool: {kernel_shape: [2]}
    - dropout: {ratio: 0.2}
    - gemm: {}"""
RECIPE = """  validation_split: 0.2
  checkpoint_every_steps: 20
  augmentation:
    - random_crop: {padding: 1}
    - mixup:
    - cutmix: {alpha: 0.5}
"""


class Kill(DisturbedTest):
    arguments = ["--cancel-grace-seconds", "3"]
    network, recipe, epochs = MODEL, RECIPE, 40

    def wait_for_checkpoint(self, name, beyond=0):
        def saved():
            job = self.daemon.job(name)
            self.assertNotIn(job["state"], ("SUCCEEDED", "FAILED"), "too fast or failed: " + str(job))
            return int(job.get("checkpoint_step", 0)) > beyond and job["state"] == "RUNNING"
        wait_until(saved, f"{name} has a checkpoint beyond step {beyond}")

    def test_worker_killed(self):
        name = self.daemon.submit(self.spec("worker-killed"))
        self.wait_for_checkpoint(name)
        os.kill(self.daemon.worker_pids()[0], signal.SIGKILL)
        self.finish(name)
        job = self.daemon.job(name)
        self.assertEqual(job["attempt"], 2)
        states = [e["state"] for e in self.daemon.events(name) if "state" in e]
        resumed = [int(s.get("resumed_from_step", 0)) for s in states if s["state"] == "RUNNING"]
        self.assertGreater(resumed[-1], 0, "the second attempt started over")

    def test_daemon_killed(self):
        name = self.daemon.submit(self.spec("daemon-killed"))
        queued = self.daemon.submit(self.spec("queued-behind"))
        self.wait_for_checkpoint(name)
        workers = self.daemon.worker_pids()
        self.daemon.kill()
        self.daemon.start()
        self.finish(name)
        self.finish(queued)
        self.assertFalse(any(is_running(pid) for pid in workers), "an old worker lives on")
        seqs = [int(e["seq"]) for e in self.daemon.events(name)]
        self.assertEqual(seqs, list(range(1, len(seqs) + 1)))

    def test_daemon_stopped_gracefully(self):
        name = self.daemon.submit(self.spec("daemon-stopped"))
        self.wait_for_checkpoint(name)
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.start()
        self.finish(name)

    def test_killed_at_random_times(self):
        rng = random.Random(int(os.environ.get("TRAINYARD_TEST_SEED", "1")))
        longer = ("--set", "recipe.epochs=300", "--set", "recipe.checkpoint_every_steps=100")
        whole = self.daemon.submit(self.spec("never-killed"), *longer, "--wait")
        name = self.daemon.submit(self.spec("killed-often"), *longer)
        kills = 4
        beyond = 0
        for left in reversed(range(kills)):
            (pid,) = wait_until(self.daemon.worker_pids, "a worker runs", interval_s=0.005)
            time.sleep(rng.uniform(0.0, 0.2))  # kill during its start or its first steps
            self.assertTrue(is_running(pid), "the job ended before it was killed: make it longer")
            os.kill(pid, signal.SIGKILL)
            if left > 0:  # losses without a checkpoint in between would count as a crash loop
                self.wait_for_checkpoint(name, beyond)
                beyond = int(self.daemon.job(name)["checkpoint_step"])
        self.daemon.cli("wait", name)
        self.assertEqual(self.digest(name), self.digest(whole))
        self.assertEqual(self.daemon.job(name)["attempt"], 1 + kills)

    def endless(self, name):
        text = self.spec(name).read_text().replace("epochs: 40", "epochs: 100000")
        self.daemon.submit(self.write(f"{name}.yaml", text))
        wait_until(lambda: self.daemon.job(name)["state"] == "RUNNING", "it runs")
        return name

    def test_a_worker_that_hangs_is_killed_and_its_job_cancelled(self):
        name = self.endless("hangs")
        (pid,) = self.daemon.worker_pids()
        os.kill(pid, signal.SIGSTOP)
        begin = time.monotonic()
        self.daemon.cli("cancel", name)
        self.assertEqual(self.daemon.cli("wait", name, check=False).returncode, 8)
        self.assertGreater(time.monotonic() - begin, 1, "a worker that stands still cannot have stopped by itself")
        self.assertFalse(is_running(pid))

    def test_cancel_twice(self):
        name = self.endless("cancelled")
        self.daemon.cli("cancel", name)
        self.daemon.cli("cancel", name)
        self.assertEqual(self.daemon.cli("wait", name, check=False).returncode, 8)
        self.assertEqual(self.daemon.job(name)["state"], "CANCELLED")
        self.daemon.cli("cancel", name)  # also accepted for a finished job
        wait_until(lambda: not self.daemon.worker_pids(), "no worker is left", timeout_s=promised_s(5))


if __name__ == "__main__":
    unittest.main(verbosity=2)
