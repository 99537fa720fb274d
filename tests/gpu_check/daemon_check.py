"""Tests the daemon with a GPU, end to end, on real data: stage (c) of scripts/gpu_check, in the
order of its tests' names.

TRAINYARD_BIN names the programs, TRAINYARD_TEST_DATA the small datasets (data.py). With
TRAINYARD_GPU_CHECK_SMALL the GPU is emulated: each job takes some steps, and accuracy is not
checked. Measurements are written to TRAINYARD_GPU_CHECK_OUT/daemon.json as each test ends."""

import contextlib
import gzip
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import DATA, EXAMPLES, Daemon, wait_until  # noqa: E402

OUT = pathlib.Path(os.environ.get("TRAINYARD_GPU_CHECK_OUT", "."))
SMALL = bool(os.environ.get("TRAINYARD_GPU_CHECK_SMALL"))
SLACK_BYTES = 64 << 20  # NVML counts in pages of 2 MiB, and the driver reserves some itself

DIGITS = f"""dataset:
  name: digits
  path: {EXAMPLES / 'digits.csv.gz'}
  csv: {{header: false, target: c64, image: [1, 8, 8]}}
"""
DIGITS_CNN = """model:
  layers:
    - conv: {out_channels: 32, kernel_shape: 3, pads: 1, bias: false}
    - batch_normalization:
    - relu:
    - max_pool: {kernel_shape: 2}
    - gemm: {units: 64}
    - relu:
    - dropout: {ratio: 0.3}
    - gemm:
"""
MNIST = f"""dataset:
  name: mnist
  train_images: {DATA / 'mnist/t10k-images-idx3-ubyte.gz'}
  train_labels: {DATA / 'mnist/t10k-labels-idx1-ubyte.gz'}
model:
  lenet5: {{}}
"""
CIFAR10 = f"""dataset:
  name: cifar10
  path: {DATA / 'cifar10/cifar10-2000.tar'}
  images: {{size: [32, 32], resize: crop}}
model:
  resnet18: {{stem: cifar}}
"""
SHAKESPEARE = f"""dataset:
  name: shakespeare
  path: {DATA / 'tinyshakespeare/input.txt'}
  text: {{tokenizer: char}}
model:
  gpt2: {{n_layer: 4, n_head: 4, n_embd: 128, dropout: 0.0}}
"""


def recipe(steps, batch, learning_rate, *lines, optimizer="adamw"):
    return "\n  ".join(["recipe:", f"steps: {steps}", f"batch_size: {batch}", "seed: 1",
                        f"validation_split: {0.01 if SMALL else 0.2}",
                        f"optimizer: {{type: {optimizer}, learning_rate: {learning_rate}}}", *lines]) + "\n"


def moment(text):
    """Converts "2026-01-31T12:00:00.25Z" to a form that sorts, since fractions have no, three, six
    or nine digits."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    return seconds, fraction.ljust(9, "0")


class DaemonOnAGpu(unittest.TestCase):
    measured = {}
    is_checked = False
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-gpu-"))
    daemon = Daemon(folder / "state")

    @classmethod
    def setUpClass(cls):
        cls.daemon.start()

    @classmethod
    def tearDownClass(cls):
        try:
            cls.daemon.stop()
        finally:
            cls.clean_up()

    @classmethod
    def clean_up(cls):
        if cls.daemon.log_path.exists():
            shutil.copy(cls.daemon.log_path, OUT / "trainyardd.log")
        shutil.rmtree(cls.folder, ignore_errors=True)

    @classmethod
    def end_now(cls, *_):
        """The handler of a signal. Some seconds are left, too few for workers to end by themselves.
        Raising an exception would only fail one test in unittest."""
        if cls.daemon.process is not None:
            for pid in [*cls.daemon.worker_pids(), cls.daemon.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        cls.clean_up()
        os._exit(143)

    def setUp(self):
        self.began = time.monotonic()
        if not self.is_checked and not self._testMethodName.startswith("test_1_"):
            self.skipTest("the GPU has not passed its check")

    def tearDown(self):
        self.note(seconds=round(time.monotonic() - self.began, 1))
        (OUT / "daemon.json").write_text(json.dumps(self.measured, indent=1) + "\n")

    def note(self, **values):
        self.measured.setdefault(self._testMethodName, {}).update(values)

    def gpu(self):
        return next((d for d in self.daemon.json("device", "list")["devices"] if d["kind"] == "GPU"), None)

    def submit(self, name, spec, *sets, resources="device: gpu"):
        path = self.folder / f"{name}.yaml"
        path.write_text(f"name: {name}\n{spec}resources: {{{resources}}}\n")
        return self.daemon.submit(path, *[a for s in sets for a in ("--set", s)])

    def finish(self, name):
        """Waits for the job's end and returns the job; it must have succeeded on the GPU."""
        self.daemon.cli("wait", name, check=False)
        job = self.daemon.job(name)
        if job["state"] != "SUCCEEDED":
            self.fail(f"{name}: {job['state']} {job.get('reason', '')} {job.get('message', '')}\n"
                      + self.daemon.cli("logs", name, check=False).stdout[-3000:])
        self.assertEqual(job["device"], "devices/gpu-0")
        return job

    def train(self, name, spec, small_steps, key, bound):
        """Trains and checks the final metric `key` against `bound`: at least the bound, or at most
        for a loss."""
        sets = (f"recipe.steps={small_steps}", "recipe.batch_size=8") if SMALL else ()
        job = self.finish(self.submit(name, spec, *sets))
        metrics = job["progress"]["metrics"]
        self.note(**{key: metrics[key], "steps": job["progress"]["step"], "timed": [
            line for line in self.daemon.cli("logs", name).stdout.splitlines() if "timed the algorithms" in line]})
        if not SMALL:
            (self.assertLessEqual if key.endswith("loss") else self.assertGreaterEqual)(metrics[key], bound)
        return job

    def test_1_the_check_passes(self):
        def done():
            gpu = self.gpu()
            return None if gpu is not None and "being checked" in gpu.get("reason", "") else [gpu or {}]
        (gpu,) = wait_until(done, "the GPU's check ends", timeout_s=900 if SMALL else 150)
        self.note(device=gpu)
        self.assertTrue(gpu, "the daemon sees no GPU: " + self.daemon.cli("device", "list").stdout.strip().splitlines()[-1])
        self.assertEqual((gpu["health"], gpu.get("reason", "")), ("HEALTHY", ""))
        type(self).is_checked = True

    def test_2_digits(self):
        self.train("digits", DIGITS + DIGITS_CNN + recipe(300, 64, 0.003), 8, "val/accuracy", 0.96)

    def test_3_predict(self):
        lines = gzip.open(EXAMPLES / "digits.csv.gz", "rt").read().splitlines()[:200]
        rows = self.folder / "rows.csv"
        rows.write_text("".join(line.rsplit(",", 1)[0] + "\n" for line in lines))
        answers = [p["label"] for p in self.daemon.json("predict", "digits", "--csv", rows)["predictions"]]
        right = sum(a == line.rsplit(",", 1)[1] for a, line in zip(answers, lines, strict=True))
        self.note(right=right, of=len(lines))
        if not SMALL:
            self.assertGreaterEqual(right, 190)

    def test_4_mnist(self):
        self.train("mnist", MNIST + recipe(400, 64, 0.002), 4, "val/accuracy", 0.95)

    def test_5_cifar10_from_jpeg_in_bf16(self):
        small = CIFAR10.replace("resnet18: {stem: cifar}", "lenet5: {}")
        self.train("cifar10", (small if SMALL else CIFAR10)
                   + recipe(200, 64, 0.001, "precision: bf16", "augmentation:", "  - random_horizontal_flip:"),
                   2, "val/accuracy", 0.25)

    def test_6_tiny_shakespeare_in_bf16(self):
        small = SHAKESPEARE.replace("n_layer: 4, n_head: 4, n_embd: 128", "n_layer: 1, n_head: 2, n_embd: 16")
        self.train("shakespeare", (small if SMALL else SHAKESPEARE)
                   + recipe(400, 32, 0.002, "context_length: 64", "precision: bf16"), 2, "val/loss", 2.4)
        text = self.daemon.cli("generate", "shakespeare", "--prompt", "ROMEO:", "--tokens", 20, "--seed", 1).stdout
        self.assertGreaterEqual(len(text), 20)

    def test_7_three_kills_cost_no_bit(self):
        # Long enough that three attempts do not reach the end: a GPU takes about 0.3 ms for a step.
        spec = DIGITS + DIGITS_CNN + recipe(20000, 64, 0.0001, "checkpoint_every_steps: 500",
                                            "evaluate_every_steps: 10000")
        if SMALL:
            spec = DIGITS + "model:\n  mlp: {hidden: [16]}\n" + recipe(60, 16, 0.001, "checkpoint_every_steps: 5")
        self.finish(self.submit("calm", spec))
        shaken = self.submit("shaken", spec)
        killed_at, resumed = [], 0
        for _ in range(3):
            def goes_on():
                job = self.daemon.job(shaken)
                self.assertNotIn(job["state"], ("SUCCEEDED", "FAILED"), f"ended before the third kill: {job}")
                step = int(job.get("progress", {}).get("step", 0))
                return job if job["state"] == "RUNNING" and int(job.get("checkpoint_step", 0)) > resumed \
                    and step > resumed else None
            job = wait_until(goes_on, f"a checkpoint beyond step {resumed}", timeout_s=120)
            resumed = int(job["checkpoint_step"])
            killed_at.append(int(job["progress"]["step"]))
            for pid in self.daemon.worker_pids():
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: int(self.daemon.job(shaken)["attempt"]) > len(killed_at), "the next attempt", timeout_s=60)
        job = self.finish(shaken)
        self.note(killed_at=killed_at, attempts=job["attempt"])
        self.assertEqual(int(job["attempt"]), 4)
        calm, other = (self.daemon.json("model", "get", name)["digest"] for name in ("calm", shaken))
        self.assertEqual(calm, other, "the weights differ from those of a job that nobody killed")

    def test_8_memory_is_as_planned(self):
        # Compares all memory of the process, as NVML counts it, with the plan.
        used_before = int(self.gpu()["memory_used_bytes"])
        model = "  mlp: {hidden: [32]}\n" if SMALL else "  mlp: {hidden: [8192, 8192, 8192]}\n"
        rows = DIGITS.replace(", image: [1, 8, 8]", "").replace("name: digits", "name: digits-rows")
        text = rows + "model:\n" + model + recipe(100000, 64, 0.0001)
        name = self.submit("large", text)
        planned = int(self.daemon.json("plan", self.folder / "large.yaml", "--upload")["fit"]["bytes_needed"])
        wait_until(lambda: int(self.daemon.job(name).get("progress", {}).get("step", 0)) >= 20, "some steps",
                   timeout_s=120)
        used, end = 0, time.monotonic() + 5  # so NVML is not queried during the whole run
        while time.monotonic() < end:
            used = max(used, int(self.gpu()["memory_used_bytes"]) - used_before)
        self.daemon.cli("cancel", name)
        self.daemon.cli("wait", name, check=False)
        self.note(planned_bytes=planned, nvml_bytes=used)
        self.assertLessEqual(used, planned + SLACK_BYTES, "the job takes more than its plan says")
        if not SMALL:
            self.assertGreater(used, planned // 2, "NVML did not see the job")

    def finish_two(self, name, resources):
        """Runs two equal jobs submitted at the same time, which must give the same weights."""
        spec = DIGITS + DIGITS_CNN + recipe(4 if SMALL else 500, 64, 0.001)
        names = [self.submit(f"{name}-{i}", spec, resources=resources) for i in (1, 2)]
        jobs = [self.finish(n) for n in names]
        self.assertEqual(*(self.daemon.json("model", "get", n)["digest"] for n in names))
        return jobs

    def test_9_two_jobs_one_after_another(self):
        first, second = self.finish_two("alone", "device: gpu, exclusive: true")
        self.assertLessEqual(moment(first["end_time"]), moment(second["start_time"]))

    def test_9_two_jobs_side_by_side(self):
        # Both fit on the GPU together, so neither waits for the other.
        first, second = self.finish_two("beside", "device: gpu")
        self.assertLess(moment(second["start_time"]), moment(first["end_time"]))
        self.assertLess(moment(first["start_time"]), moment(second["end_time"]))


class AtOnce(unittest.TextTestResult):
    """Also prints a failure when it happens, since the end of the run may not be reached."""

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln(self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.stream.writeln(self.errors[-1][1])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, DaemonOnAGpu.end_now)
    unittest.main(testRunner=unittest.TextTestRunner(verbosity=2, resultclass=AtOnce))
