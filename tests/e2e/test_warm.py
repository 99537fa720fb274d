"""Tests of workers that keep a model between calls: the results are the same, limits hold, and a
lost worker is replaced."""

import concurrent.futures
import gzip
import json
import os
import signal
import time
import unittest

from harness import EXAMPLES, DaemonTest, digits_spec, is_running, wait_until


def rows_of(first, count):
    with gzip.open(EXAMPLES / "digits.csv.gz", "rt") as file:
        lines = [line.rstrip("\n").rsplit(",", 1)[0] for line in file]
    return "\n".join(lines[first:first + count]) + "\n"


class Warm(DaemonTest):
    arguments = ("--predict-timeout-seconds", "600")
    models = {"dense": "  mlp: {hidden: [37]}", "filters": """  layers:
    - conv: {out_channels: 5, kernel_shape: [3]}
    - batch_normalization: {}
    - relu: {}
    - gemm: {}"""}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, model in cls.models.items():
            cls.daemon.submit(digits_spec(cls.folder, name, model), "--wait")

    def restart(self, *arguments):
        self.daemon.stop()
        self.daemon.arguments = [*self.arguments, *arguments]
        self.daemon.start()

    def predict(self, model, rows):
        """Returns the predictions, and whether the worker was warm."""
        answer = json.loads(self.daemon.cli("predict", model, "--csv", "-", "-o", "json", input=rows).stdout)
        self.assertGreater(int(answer.get("compute_us", 0)), 0)
        return answer["predictions"], answer.get("warm", False)

    def worker(self):
        (pid,) = self.daemon.worker_pids()
        return pid

    def assert_ended(self, pid, what):
        wait_until(lambda: not is_running(pid), what)

    def test_the_second_call_is_warm_and_equal(self):
        for model in self.models:
            self.restart()
            rows = rows_of(0, 100)
            cold, first = self.predict(model, rows)
            self.assertFalse(first)
            pid = self.worker()
            warm, second = self.predict(model, rows)
            self.assertTrue(second)
            self.assertEqual(warm, cold, "bit for bit, as JSON writes them")
            self.assertEqual(self.worker(), pid)

    def test_batched_calls_get_the_same_answers_as_single_ones(self):
        for model in self.models:
            self.restart("--warm-workers-max", "0")
            alone = [self.predict(model, rows_of(i, 1 + i % 3))[0] for i in range(12)]
            self.restart()
            self.predict(model, rows_of(0, 1))
            os.kill(self.worker(), signal.SIGSTOP)  # so that the calls wait and form a batch
            with concurrent.futures.ThreadPoolExecutor(13) as pool:
                calls = [pool.submit(self.predict, model, rows_of(i, 1 + i % 3)) for i in range(12)]
                time.sleep(1.5)
                for pid in self.daemon.worker_pids():
                    os.kill(pid, signal.SIGCONT)
                self.assertEqual([call.result()[0] for call in calls], alone)

    def test_a_bad_row_is_refused_alone(self):
        self.restart()
        good, _ = self.predict("dense", rows_of(3, 2))
        os.kill(self.worker(), signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(self.predict, "dense", rows_of(3, 2)) for _ in range(2)]
            bad = pool.submit(self.daemon.cli, "predict", "dense", "--csv", "-", check=False, input="1,2,x\n")
            time.sleep(1)
            for pid in self.daemon.worker_pids():
                os.kill(pid, signal.SIGCONT)
            self.assertEqual([call.result()[0] for call in calls], [good, good])
            self.assert_refused(bad.result(), 2, "DATASET_INVALID")
        self.assertEqual(self.predict("dense", rows_of(3, 2)), (good, True))

    def test_calls_survive_a_killed_worker(self):
        self.restart()
        rows = rows_of(7, 5)
        expected, _ = self.predict("dense", rows)
        os.kill(self.worker(), signal.SIGKILL)  # between two calls
        self.assertEqual(self.predict("dense", rows), (expected, False))
        pid = self.worker()
        os.kill(pid, signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            call = pool.submit(self.predict, "dense", rows)
            time.sleep(0.5)
            os.kill(pid, signal.SIGKILL)  # during a call
            self.assertEqual(call.result()[0], expected)

    def test_a_worker_that_hangs_is_replaced(self):
        self.daemon.stop()
        # An undisturbed call takes less than 10 s.
        self.daemon.arguments = ["--predict-timeout-seconds", "10"]
        self.daemon.start()
        expected, _ = self.predict("dense", rows_of(0, 1))
        pid = self.worker()
        os.kill(pid, signal.SIGSTOP)
        done = self.daemon.cli("predict", "dense", "--csv", "-", check=False, input=rows_of(0, 1))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("took too long", done.stderr)
        self.assertEqual(self.predict("dense", rows_of(0, 1))[0], expected)
        self.assert_ended(pid, "the worker that hung is gone")

    def test_workers_are_evicted_and_end_when_idle(self):
        self.restart("--warm-workers-max", "1")
        self.predict("dense", rows_of(0, 1))
        first = self.worker()
        self.predict("filters", rows_of(0, 1))
        self.assert_ended(first, "the older one is evicted")
        second = self.worker()
        self.assertFalse(self.predict("dense", rows_of(0, 1))[1])
        self.assert_ended(second, "and so is the other")
        self.restart("--warm-idle-seconds", "2")
        self.predict("dense", rows_of(0, 1))
        wait_until(lambda: not self.daemon.worker_pids(), "an idle worker ends")

    def test_warm_workers_are_bounded_by_memory(self):
        self.restart("--warm-memory-bytes-max", "1MiB")  # less than any worker uses
        self.assertFalse(self.predict("dense", rows_of(0, 1))[1])
        wait_until(lambda: not self.daemon.worker_pids(), "it is not kept")
        self.assertFalse(self.predict("dense", rows_of(0, 1))[1])

    def test_evaluate_is_warm_too(self):
        self.restart()
        dataset = self.daemon.json("model", "get", "dense")["dataset"]
        cold = self.daemon.json("model", "evaluate", "dense", dataset)
        warm = self.daemon.json("model", "evaluate", "dense", dataset)
        self.assertEqual((cold.get("warm", False), warm["warm"]), (False, True))
        self.assertEqual(cold["metrics"], warm["metrics"])

    def test_a_deleted_model_has_no_worker(self):
        self.restart()
        self.daemon.submit(digits_spec(self.folder, "short-lived"), "--wait")
        self.predict("short-lived", rows_of(0, 1))
        pid = self.worker()
        self.daemon.cli("model", "delete", "short-lived", "--yes")
        self.assert_ended(pid, "the model is gone")
        done = self.daemon.cli("predict", "short-lived", "--csv", "-", check=False, input=rows_of(0, 1))
        self.assert_refused(done, 4, "short-lived")

    def test_workers_end_with_the_daemon(self):
        self.restart("--drain-seconds", "3600")  # this time applies only to jobs
        self.predict("dense", rows_of(0, 1))
        pid = self.worker()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertFalse(is_running(pid))
        self.daemon.start()
        self.predict("dense", rows_of(0, 1))
        pid = self.worker()
        self.daemon.kill()
        self.assert_ended(pid, "nobody asks it any more")
        self.daemon.start()
        self.predict("dense", rows_of(0, 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
