"""Tests of jobs that share the CPU, of preemption, and of the reasons shown for waiting jobs."""

import os
import unittest

from harness import DisturbedTest, wait_until

MODEL = """  layers:
    - conv: {out_channels: 16, kernel_shape: [3], pads: [1]}
    - batch_normalization: {}
    - relu: {}
    - max_pool: {kernel_shape: [2]}
    - dropout: {ratio: 0.2}
    - gemm: {}"""


class Placement(DisturbedTest):
    arguments = ["--preemption", "priority", "--preempt-after-seconds", "0"]
    network, recipe, epochs = MODEL, "  validation_split: 0.2\n", 60

    def spec(self, name, priority=0, resources="threads: 1, device: cpu"):
        path = super().spec(name)
        path.write_text(path.read_text() + f"priority: {priority}\nresources: {{{resources}}}\n")
        return path

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs two cores")
    def test_two_jobs_of_one_thread_run_together(self):
        self.daemon.submit(self.spec("one-of-two"))
        self.daemon.submit(self.spec("two-of-two"))

        def both_run():
            return all(self.daemon.job(n)["state"] == "RUNNING" for n in ("one-of-two", "two-of-two"))
        wait_until(both_run, "both run at the same time")
        uses = self.daemon.json("device", "list")["devices"][0]["uses"]
        self.assertEqual(sorted(u["job"].split("/")[-1] for u in uses), ["one-of-two", "two-of-two"])
        self.assertEqual([u["threads"] for u in uses], [1, 1])
        self.finish("one-of-two")
        self.finish("two-of-two")

    def test_a_preempted_job_ends_with_the_bits_of_one_left_alone(self):
        self.daemon.submit(self.spec("lower"))
        self.wait_for_step("lower", 50)
        self.daemon.submit(self.spec("higher", priority=5, resources="exclusive: true, threads: 1, device: cpu"))
        wait_until(lambda: self.daemon.job("higher")["state"] in ("RUNNING", "SUCCEEDED"), "the CPU is made free")
        lower = self.daemon.job("lower")
        self.assertGreater(int(lower["checkpoint_step"]), 0)
        explained = self.daemon.cli("explain", "lower").stdout
        self.assertIn("It made room for higher", explained)
        self.finish("higher")
        self.finish("lower")
        steps = self.steps("lower")
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "each step once, in order")

    def test_the_queue_shows_the_jobs_before_a_job(self):
        whole = self.spec("whole", priority=9, resources="exclusive: true, threads: 1, device: cpu")
        self.daemon.submit(whole, "--set", "recipe.epochs=100000")  # runs until it is cancelled
        self.wait_for_step("whole", 1)
        self.daemon.submit(self.spec("waits"))
        queue = wait_until(lambda: (q := self.daemon.json("queue"))["jobs"] and q, "it waits")
        self.assertEqual(queue["jobs"][0]["name"], "projects/default/jobs/waits")
        self.assertEqual(int(queue["jobs"][0]["position"]), 1)
        wait_until(lambda: "is used exclusively, held by whole" in self.daemon.cli("queue").stdout, "the reason")
        self.assertIn("It is number 1 of 1 in the queue", self.daemon.cli("explain", "waits").stdout)
        self.daemon.cli("cancel", "whole")
        self.finish("waits")


if __name__ == "__main__":
    unittest.main()
