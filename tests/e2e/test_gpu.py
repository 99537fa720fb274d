"""The daemon on a machine with a GPU: its check, jobs on it, kills, and what happens when it fails. The GPU is emulated:
NVML answers from a script, and the CUDA module is the real one's code on an emulator (tests/cuda/fake_cuda.h), so that
everything but the silicon is what runs in production."""

import os
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest

from harness import EXAMPLES, Daemon, wait_until

NVML = os.environ.get("TRAINYARD_FAKE_NVML")
MODULE = os.environ.get("TRAINYARD_EMULATED_CUDA")


class Gpu(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-gpu-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "lib").mkdir()
        (self.folder / "lib/libnvidia-ml.so.1").symlink_to(NVML)

    def start(self, gpus=1, **env):
        daemon = Daemon(self.folder / "state", env={
            "LD_LIBRARY_PATH": str(self.folder / "lib"), "FAKE_NVML": f"devices={gpus}",
            "TRAINYARD_CUDA_MODULE": MODULE, **env}).start()
        self.addCleanup(daemon.stop)
        return daemon

    def gpu(self, daemon):
        return next(d for d in daemon.json("device", "list")["devices"] if d["kind"] == "GPU")

    def checked(self, daemon):
        """The GPU when its check has ended."""
        def done():
            gpu = self.gpu(daemon)
            return None if "being checked" in gpu.get("reason", "") else gpu
        return wait_until(done, "the GPU's check ends", timeout_s=240)

    def submit(self, daemon, device, *sets):
        return daemon.submit(EXAMPLES / "digits_mlp.yaml", "--set", f"resources.device={device}",
                             *[a for s in sets for a in ("--set", s)])

    def wait(self, daemon, name):
        daemon.cli("wait", name, check=False)
        return daemon.job(name)

    def test_a_job_waits_for_the_check_runs_on_the_gpu_and_learns_what_the_cpu_learns(self):
        daemon = self.start()
        name = self.submit(daemon, "auto", "recipe.epochs=3")
        cpu = self.submit(daemon, "cpu", "recipe.epochs=3")
        on_gpu, on_cpu = self.wait(daemon, name), self.wait(daemon, cpu)
        self.assertEqual(on_gpu["state"], "SUCCEEDED", on_gpu)
        self.assertEqual(on_gpu["device"], "devices/gpu-0")
        self.assertEqual(on_cpu["device"], "devices/cpu")
        for key, value in on_cpu["progress"]["metrics"].items():
            if "second" in key or "wait" in key:
                continue
            self.assertAlmostEqual(on_gpu["progress"]["metrics"][key], value, delta=2e-3 * max(1, abs(value)), msg=key)
        self.assertEqual(self.checked(daemon).get("health"), "HEALTHY")

    def test_a_killed_worker_on_the_gpu_costs_no_bit(self):
        daemon = self.start()
        self.checked(daemon)
        sets = ("recipe.epochs=6", "recipe.checkpoint_every_steps=5")
        calm = self.submit(daemon, "gpu", *sets)
        self.assertEqual(self.wait(daemon, calm)["state"], "SUCCEEDED")
        shaken = self.submit(daemon, "gpu", *sets)
        wait_until(lambda: int(daemon.job(shaken).get("progress", {}).get("step", 0)) >= 12, "some steps", 60)
        for pid in daemon.worker_pids():
            os.kill(pid, signal.SIGKILL)
        done = self.wait(daemon, shaken)
        self.assertEqual(done["state"], "SUCCEEDED", done)
        self.assertGreater(int(done["attempt"]), 1)
        files = []
        for name in (calm, shaken):
            daemon.cli("model", "export", name, "--out", self.folder / name)
            files.append((self.folder / name / "model.safetensors").read_bytes())
        self.assertEqual(files[0], files[1])

    def test_a_gpu_that_computes_wrongly_gets_no_job(self):
        daemon = self.start(TRAINYARD_FAKE_CUDA_FAULT="wrong")
        gpu = self.checked(daemon)
        self.assertEqual(gpu["health"], "QUARANTINED")
        self.assertIn("differ from the CPU's", gpu["reason"])
        job = self.wait(daemon, self.submit(daemon, "auto", "recipe.epochs=1"))
        self.assertEqual((job["state"], job["device"]), ("SUCCEEDED", "devices/cpu"), job)

    def test_a_gpu_that_faults_gets_no_job_and_says_which_call_failed(self):
        daemon = self.start(TRAINYARD_FAKE_CUDA_FAULT="after=200")
        gpu = self.checked(daemon)
        self.assertEqual(gpu["health"], "QUARANTINED")
        self.assertIn("illegal memory access", gpu["reason"])

    def test_a_job_goes_on_where_its_gpu_is_gone(self):
        daemon = self.start()
        self.checked(daemon)
        name = self.submit(daemon, "auto", "recipe.epochs=30", "recipe.checkpoint_every_steps=5")
        wait_until(lambda: int(daemon.job(name).get("progress", {}).get("step", 0)) >= 12, "some steps", 60)
        daemon.stop()
        daemon = self.start(gpus=0)
        job = self.wait(daemon, name)
        self.assertEqual((job["state"], job["device"]), ("SUCCEEDED", "devices/cpu"), job)
        self.assertGreater(int(job["attempt"]), 1)
        self.assertIn("a checkpoint of cuda", daemon.cli("logs", name).stdout)


if __name__ == "__main__":
    if not NVML or not MODULE:
        print("skipped: this build has no CUDA toolkit, so no emulated CUDA module")
        sys.exit(77)
    unittest.main()
