"""The daemon on a machine with a GPU: its check, jobs on it, kills, and what happens when it fails. The GPU is emulated:
NVML answers from a script, and the CUDA module is the real one's code on an emulator (tests/cuda/fake_cuda.h), so that
everything but the silicon is what runs in production."""

import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest

from harness import Daemon, digits_spec, wait_until

NVML = os.environ.get("TRAINYARD_FAKE_NVML")
MODULE = os.environ.get("TRAINYARD_EMULATED_CUDA")


class Gpu(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-gpu-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "lib").mkdir()
        (self.folder / "lib/libnvidia-ml.so.1").symlink_to(NVML)

    def start(self, *arguments, gpus=1, **env):
        daemon = Daemon(self.folder / "state", *arguments, env={
            "LD_LIBRARY_PATH": str(self.folder / "lib"), "TRAINYARD_NVML_SCRIPT": f"devices={gpus},context=1200",
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
        return wait_until(done, "the GPU's check ends", timeout_s=330)

    def submit(self, daemon, name, device, *sets):
        spec = digits_spec(self.folder, name)
        return daemon.submit(spec, "--set", f"resources.device={device}", *[a for s in sets for a in ("--set", s)])

    def wait(self, daemon, name):
        daemon.cli("wait", name, check=False)
        return daemon.job(name)

    def weights(self, daemon, name):
        daemon.cli("model", "export", name, "--out", self.folder / name)
        return (self.folder / name / "model.safetensors").read_bytes()

    def kill_worker(self, daemon, name):
        wait_until(lambda: int(daemon.job(name).get("progress", {}).get("step", 0)) >= 12, "some steps", 120)
        for pid in daemon.worker_pids():
            os.kill(pid, signal.SIGKILL)

    def test_jobs_on_a_gpu(self):
        daemon = self.start()
        # Submitted while the GPU is being checked: `auto` waits for it, the CPU's job does not.
        waits = self.submit(daemon, "waits", "auto", "recipe.precision=fp32")  # to compare with the CPU's
        on_cpu = self.wait(daemon, self.submit(daemon, "on-cpu", "cpu"))
        on_gpu = self.wait(daemon, waits)
        self.assertEqual((on_cpu["state"], on_cpu["device"]), ("SUCCEEDED", "devices/cpu"), on_cpu)
        self.assertEqual((on_gpu["state"], on_gpu["device"]), ("SUCCEEDED", "devices/gpu-0"), on_gpu)
        self.assertEqual(self.checked(daemon).get("health"), "HEALTHY")
        # The check has found what a process takes besides its plan: 1200 MiB, says NVML.
        plan = daemon.json("plan", digits_spec(self.folder, "planned"), "--upload", "--set", "resources.device=gpu")
        parts = sum(int(v) for v in plan["run"]["memory"].values())
        self.assertEqual(int(plan["fit"]["bytes_needed"]) - parts, 1200 << 20)
        for key in ("train/loss", "val/accuracy"):
            if key in on_cpu["progress"]["metrics"]:
                self.assertAlmostEqual(on_gpu["progress"]["metrics"][key], on_cpu["progress"]["metrics"][key], delta=2e-3)

        # A killed worker costs no bit.
        sets = ("recipe.epochs=6", "recipe.checkpoint_every_steps=5")
        calm = self.submit(daemon, "calm", "gpu", *sets)
        self.assertEqual(self.wait(daemon, calm)["state"], "SUCCEEDED")
        shaken = self.submit(daemon, "shaken", "gpu", *sets)
        self.kill_worker(daemon, shaken)
        done = self.wait(daemon, shaken)
        self.assertEqual(done["state"], "SUCCEEDED", done)
        self.assertGreater(int(done["attempt"]), 1)
        self.assertEqual(self.weights(daemon, calm), self.weights(daemon, shaken))

        # A job goes on where its GPU is gone.
        moved = self.submit(daemon, "moved", "auto", "recipe.epochs=100", "recipe.checkpoint_every_steps=5")
        wait_until(lambda: int(daemon.job(moved).get("progress", {}).get("step", 0)) >= 12, "some steps", 120)
        daemon.stop()
        daemon = self.start(gpus=0)
        job = self.wait(daemon, moved)
        self.assertEqual((job["state"], job["device"]), ("SUCCEEDED", "devices/cpu"), job)
        self.assertGreater(int(job["attempt"]), 1)
        self.assertIn("a checkpoint of cuda", daemon.cli("logs", moved).stdout)

    def test_algorithms_are_timed_once_and_kept(self):
        daemon = self.start()
        self.checked(daemon)
        folder = self.folder / "state/algorithms"
        self.assertEqual(list(folder.iterdir()), [])  # the check takes what the libraries propose first
        # A plan only reads.
        self.plan(daemon)
        self.assertEqual(list(folder.iterdir()), [])
        first = self.submit(daemon, "first", "gpu", "recipe.epochs=1")
        self.assertEqual(self.wait(daemon, first)["state"], "SUCCEEDED")
        self.assertIn("timed the algorithms of", daemon.cli("logs", first).stdout)
        (table,) = folder.glob("*.json")
        text = table.read_text()
        choices = json.loads(text)["choices"]
        self.assertTrue(any(key.startswith("matmul ") for key in choices), choices)
        self.assertTrue(any(c["taken_us"] < c["first_us"] for c in choices.values()), choices)
        # The next job takes what is there, and a plan tells the workspace of that.
        second = self.submit(daemon, "second", "gpu", "recipe.epochs=1")
        self.assertEqual(self.wait(daemon, second)["state"], "SUCCEEDED")
        self.assertNotIn("timed the algorithms of", daemon.cli("logs", second).stdout)
        self.assertEqual(table.read_text(), text)
        self.assertEqual(self.weights(daemon, first), self.weights(daemon, second))
        self.assertEqual(self.plan(daemon)["workspace_bytes"],
                         daemon.job(second)["plan"]["memory"]["workspace_bytes"])
        daemon.stop()

        # Switched off: what the libraries propose first, which has other bits here.
        daemon = self.start("--time-algorithms", "false")
        self.checked(daemon)
        off = self.submit(daemon, "untimed", "gpu", "recipe.epochs=1")
        self.assertEqual(self.wait(daemon, off)["state"], "SUCCEEDED")
        self.assertNotEqual(self.weights(daemon, first), self.weights(daemon, off))
        self.assertEqual(table.read_text(), text)

    def plan(self, daemon):
        """Memory of the same job."""
        return daemon.json("plan", digits_spec(self.folder, "planned"), "--upload", "--set", "resources.device=gpu",
                           "--set", "recipe.epochs=1")["run"]["memory"]

    def test_a_gpu_that_computes_wrongly_gets_no_job(self):
        daemon = self.start(TRAINYARD_FAKE_CUDA_FAULT="wrong")
        gpu = self.checked(daemon)
        self.assertEqual(gpu["health"], "QUARANTINED")
        self.assertIn("differs from the CPU's", gpu["reason"])
        job = self.wait(daemon, self.submit(daemon, "falls-back", "auto", "recipe.epochs=1"))
        self.assertEqual((job["state"], job["device"]), ("SUCCEEDED", "devices/cpu"), job)

    def test_a_gpu_that_faults_gets_no_job_and_says_which_call_failed(self):
        daemon = self.start(TRAINYARD_FAKE_CUDA_FAULT="after=200")
        gpu = self.checked(daemon)
        self.assertEqual(gpu["health"], "QUARANTINED")
        self.assertIn("illegal memory access", gpu["reason"])

    def test_a_job_runs_on_the_gpu_that_its_device_names(self):
        daemon = self.start(gpus=3, TRAINYARD_FAKE_CUDA_DEVICES="3", CUDA_VISIBLE_DEVICES="2,0")
        names = [d["name"] for d in daemon.json("device", "list")["devices"]]
        self.assertEqual(names, ["devices/cpu", "devices/gpu-0", "devices/gpu-2"])  # by the machine's numbers
        wait_until(lambda: all(d["health"] == "HEALTHY" and not d.get("reason")
                               for d in daemon.json("device", "list")["devices"]), "both are checked", 330)
        jobs = [self.submit(daemon, name, "gpu", "recipe.epochs=100") for name in ("first", "second")]

        def seen():
            """What CUDA shows to each worker."""
            shown = set()
            for pid in daemon.worker_pids():
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                shown.update(e.split(b"=")[1] for e in environment if e.startswith(b"CUDA_VISIBLE_DEVICES="))
            return shown == {b"GPU-0", b"GPU-2"}
        wait_until(seen, "two workers run, each with its GPU", 60)
        for job in jobs:
            daemon.cli("cancel", job)

    def test_an_instance_of_a_gpu_is_a_device(self):
        daemon = self.start(TRAINYARD_NVML_SCRIPT="devices=1,mig=1")
        self.assertEqual(self.checked(daemon)["name"], "devices/gpu-0-mig-0")
        job = self.wait(daemon, self.submit(daemon, "on-a-part", "gpu", "recipe.epochs=1"))
        self.assertEqual((job["state"], job["device"]), ("SUCCEEDED", "devices/gpu-0-mig-0"), job)

    def test_a_gpu_that_another_process_has_is_waited_for(self):
        other = self.folder / "another-process"
        other.touch()
        daemon = self.start(TRAINYARD_FAKE_CUDA_FAULT=f"busy={other}")
        gpu = self.checked(daemon)
        self.assertEqual(gpu["health"], "HEALTHY")
        self.assertIn("another process has the GPU for itself", gpu["reason"])
        waits = self.submit(daemon, "waits", "auto", "recipe.epochs=1")
        wait_until(lambda: "another process has the GPU" in daemon.job(waits).get("message", ""), "it says why", 30)
        other.unlink()
        job = self.wait(daemon, waits)
        self.assertEqual((job["state"], job["device"]), ("SUCCEEDED", "devices/gpu-0"), job)

    def test_a_library_that_is_missing_is_said(self):
        daemon = self.start(TRAINYARD_FAKE_CUDA_NVRTC="missing")
        gpu = self.checked(daemon)
        self.assertEqual(gpu["health"], "DEGRADED")
        self.assertIn("libnvrtc.so.fake is missing", gpu["reason"])
        job = self.submit(daemon, "lacks", "gpu", "recipe.epochs=1")
        self.assertEqual(self.wait(daemon, job)["state"], "SUCCEEDED")
        self.assertIn("libnvrtc.so.fake is missing", daemon.cli("logs", job).stdout)

    def test_a_gpu_with_a_hardware_error_gets_no_job_and_says_which(self):
        daemon = self.start(TRAINYARD_NVML_SCRIPT="devices=1,xid=48")
        gpu = self.checked(daemon)
        self.assertEqual(gpu["health"], "QUARANTINED")
        self.assertIn("XID 48: an ECC error of two bits (hardware)", gpu["reason"])


if __name__ == "__main__":
    if not NVML or not MODULE:
        print("skipped: this build has no CUDA toolkit, so no emulated CUDA module")
        sys.exit(77)
    unittest.main()
