"""Tests of the daemon on a machine with a GPU: the check, jobs, kills and failures. The GPU is
emulated: NVML replies from a script, and the CUDA module is the real one's code on an emulator
(tests/cuda/fake_cuda.h), so that everything except the hardware is as in production.

The check at a daemon's start takes most of a minute on an emulated GPU. So the tests of GPUs that
pass it share one state folder and two starts. They run in the order of their names, and each
continues from the state that the earlier ones left."""

import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest

from harness import PATIENCE_S, Daemon, digits_spec, wait_until

NVML = os.environ.get("TRAINYARD_FAKE_NVML")
MODULE = os.environ.get("TRAINYARD_EMULATED_CUDA")


class OnAGpu(unittest.TestCase):
    """`folder` and `daemon` belong to the test or to its class."""

    @staticmethod
    def make_folder():
        folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-gpu-"))
        (folder / "lib").mkdir()
        (folder / "lib/libnvidia-ml.so.1").symlink_to(NVML)
        return folder

    @staticmethod
    def start(folder, nvml_script, *arguments, **env):
        return Daemon(folder / "state", *arguments, env={
            "LD_LIBRARY_PATH": str(folder / "lib"), "TRAINYARD_NVML_SCRIPT": nvml_script, "TRAINYARD_CUDA_MODULE": MODULE,
            **env}).start()

    def gpu(self):
        (gpu,) = [d for d in self.daemon.json("device", "list")["devices"] if d["kind"] == "GPU"]
        return gpu

    def checked(self):
        """Waits for the end of the check and returns the GPU."""
        def done():
            gpu = self.gpu()
            return None if "being checked" in gpu.get("reason", "") else gpu
        return wait_until(done, "the GPU's check ends", timeout_s=3 * PATIENCE_S)

    def submit(self, name, device, *sets):
        spec = digits_spec(self.folder, name)
        return self.daemon.submit(spec, "--set", f"resources.device={device}", *[a for s in sets for a in ("--set", s)])

    def wait(self, name):
        self.daemon.cli("wait", name, check=False)
        return self.daemon.job(name)

    def succeed(self, name, device):
        job = self.wait(name)
        self.assertEqual((job["state"], job.get("device")), ("SUCCEEDED", device), job)
        return job


class AGpuThatWorks(OnAGpu):
    # The name of the device at the first and at the second start.
    FIRST, SECOND = "devices/gpu-0", "devices/gpu-0-mig-0"

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.make_folder()
        cls.other_process = cls.folder / "another-process"
        cls.other_process.touch()
        cls.daemon = cls.start(cls.folder, "devices=1,context=1200",
                               TRAINYARD_FAKE_CUDA_FAULT=f"busy={cls.other_process}")

    @classmethod
    def tearDownClass(cls):
        try:
            cls.daemon.stop()
        finally:
            shutil.rmtree(cls.folder, ignore_errors=True)

    def restart(self, nvml_script, *arguments, **env):
        self.daemon.stop()
        type(self).daemon = self.start(self.folder, nvml_script, *arguments, **env)

    def weights(self, name):
        folder = self.folder / f"{name}-model"
        if not folder.exists():
            self.daemon.cli("model", "export", name, "--out", folder)
        return (folder / "model.safetensors").read_bytes()

    def plan(self):
        """Returns the plan of the job that the tests of algorithms submit."""
        return self.daemon.json("plan", digits_spec(self.folder, "planned"), "--upload", "--set", "resources.device=gpu",
                                "--set", "recipe.epochs=1")

    def steps_done(self, name, steps):
        wait_until(lambda: int(self.daemon.job(name).get("progress", {}).get("step", 0)) >= steps, f"{steps} steps", 120)

    def algorithms(self):
        """Returns the content of the daemon's only file of timed algorithms."""
        (table,) = (self.folder / "state/algorithms").glob("*.json")
        return table.read_text()

    def test_1_one_that_another_process_has_is_waited_for(self):
        gpu = self.checked()
        self.assertEqual((gpu["name"], gpu["health"]), (self.FIRST, "HEALTHY"))
        self.assertIn("another process uses the GPU exclusively", gpu["reason"])
        # An `auto` job waits for the GPU and then for its check; a CPU job does not wait.
        waits = self.submit("waits", "auto", "recipe.precision=fp32")
        wait_until(lambda: "another process uses the GPU" in self.daemon.job(waits).get("message", ""), "it says why", 30)
        self.other_process.unlink()
        on_cpu = self.succeed(self.submit("on-cpu", "cpu"), "devices/cpu")
        wait_until(lambda: "being checked" in self.daemon.job(waits).get("message", ""), "it waits for the check", 60)
        on_gpu = self.succeed(waits, self.FIRST)
        self.assertEqual(self.checked().get("health"), "HEALTHY")
        for key in ("train/loss", "train/accuracy"):
            self.assertAlmostEqual(on_gpu["progress"]["metrics"][key], on_cpu["progress"]["metrics"][key], delta=2e-3)

    def test_2_its_process_takes_what_the_check_found(self):
        plan = self.plan()  # NVML reports 1200 MiB in addition to the plan
        memory = plan["run"]["memory"]
        parts = sum(int(v) for k, v in memory.items() if k.endswith("_bytes") and k != "host_bytes")
        self.assertEqual(int(plan["fit"]["bytes_needed"]) - parts, 1200 << 20)

    def test_3_algorithms_are_timed_once_and_kept(self):
        text = self.algorithms()  # from the previous test's job
        self.assertNotIn("convolution ", text)  # the check uses the libraries' first proposals
        self.plan()
        self.assertEqual(self.algorithms(), text)  # a plan must not change the file
        first = self.submit("first", "gpu", "recipe.epochs=1")
        self.succeed(first, self.FIRST)
        self.assertIn("timed the algorithms of", self.daemon.cli("logs", first).stdout)
        text = self.algorithms()
        choices = json.loads(text)["choices"]
        self.assertTrue(any(key.startswith("matmul ") for key in choices), choices)
        self.assertTrue(any(c["taken_us"] < c["first_us"] for c in choices.values()), choices)
        # The next job uses the stored algorithms, and a plan uses the workspace size of those.
        second = self.submit("second", "gpu", "recipe.epochs=1")
        self.succeed(second, self.FIRST)
        self.assertNotIn("timed the algorithms of", self.daemon.cli("logs", second).stdout)
        self.assertEqual(self.algorithms(), text)
        self.assertEqual(self.weights(first), self.weights(second))
        self.assertEqual(self.plan()["run"]["memory"]["workspace_bytes"],
                         self.daemon.job(second)["plan"]["memory"]["workspace_bytes"])

    def test_4_a_killed_worker_costs_no_bit(self):
        sets = ("recipe.epochs=6", "recipe.checkpoint_every_steps=5")
        calm = self.submit("calm", "gpu", *sets)
        self.succeed(calm, self.FIRST)
        shaken = self.submit("shaken", "gpu", *sets)
        self.steps_done(shaken, 12)
        killed = self.daemon.worker_pids()
        self.assertTrue(killed)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        self.assertGreater(int(self.succeed(shaken, self.FIRST)["attempt"]), 1)
        self.assertEqual(self.weights(calm), self.weights(shaken))

    def test_5_an_instance_is_a_device_and_what_is_hidden_is_none(self):
        self.restart("devices=3,mig=1", "--time-algorithms", "false", CUDA_VISIBLE_DEVICES="MIG-0-0",
                     TRAINYARD_FAKE_CUDA_NVRTC="missing")
        self.assertEqual(self.checked()["name"], self.SECOND)
        job = self.submit("seen", "gpu", "recipe.epochs=100")
        self.steps_done(job, 1)
        self.assertEqual(self.daemon.job(job)["device"], self.SECOND)
        shown = set()
        for pid in self.daemon.worker_pids():
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            shown.update(e.split(b"=")[1] for e in environment if e.startswith(b"CUDA_VISIBLE_DEVICES="))
        self.assertEqual(shown, {b"MIG-0-0"})
        self.daemon.cli("cancel", job)
        self.wait(job)

    def test_6_without_nvrtc_and_without_timing_algorithms(self):
        gpu = self.gpu()
        self.assertEqual(gpu["health"], "DEGRADED")
        self.assertIn("libnvrtc.so.fake is missing", gpu["reason"])
        text = self.algorithms()
        untimed = self.submit("untimed", "gpu", "recipe.epochs=1")
        self.succeed(untimed, self.SECOND)
        self.assertIn("libnvrtc.so.fake is missing", self.daemon.cli("logs", untimed).stdout)
        # The libraries' first proposals give other bits on the emulator.
        self.assertNotEqual(self.weights("first"), self.weights(untimed))
        self.assertEqual(self.algorithms(), text)

    def test_7_a_job_goes_on_where_its_gpu_is_gone(self):
        moved = self.submit("moved", "auto", "recipe.epochs=100", "recipe.checkpoint_every_steps=5")
        self.steps_done(moved, 12)
        self.assertEqual(self.daemon.job(moved)["device"], self.SECOND)
        self.restart("devices=0")
        self.assertGreater(int(self.succeed(moved, "devices/cpu")["attempt"]), 1)
        self.assertIn("a checkpoint written with backend cuda", self.daemon.cli("logs", moved).stdout)


class AGpuThatFails(OnAGpu):
    def begin(self, nvml_script="devices=1", **env):
        self.folder = self.make_folder()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.daemon = self.start(self.folder, nvml_script, **env)
        self.addCleanup(self.daemon.stop)

    def quarantined(self):
        gpu = self.checked()
        self.assertEqual(gpu["health"], "QUARANTINED")
        return gpu["reason"]

    def test_one_that_computes_wrongly_gets_no_job(self):
        self.begin(TRAINYARD_FAKE_CUDA_FAULT="wrong")
        self.assertIn("differs from the CPU's", self.quarantined())
        self.succeed(self.submit("falls-back", "auto", "recipe.epochs=1"), "devices/cpu")

    def test_one_that_faults_says_which_call_failed(self):
        self.begin(TRAINYARD_FAKE_CUDA_FAULT="after=200")
        self.assertIn("illegal memory access", self.quarantined())

    def test_a_host_without_its_fabric_manager_quarantines_none(self):
        self.begin(TRAINYARD_FAKE_CUDA_FAULT="start=802,/dev/null")
        gpu = self.checked()
        self.assertEqual(gpu["health"], "UNKNOWN", gpu)
        self.assertIn("A problem of this host, not of the GPU: ", gpu["reason"])
        self.assertIn("systemctl start nvidia-fabricmanager", gpu["reason"])
        self.succeed(self.submit("falls-back", "auto", "recipe.epochs=1"), "devices/cpu")
        waits = self.submit("waits", "gpu", "recipe.epochs=1")
        wait_until(lambda: "nvidia-fabricmanager" in self.daemon.job(waits).get("message", ""), "it says why", 30)
        self.assertEqual(self.daemon.job(waits)["state"], "QUEUED")

    def test_one_with_a_hardware_error_says_which(self):
        self.begin("devices=1,xid=48")
        self.assertIn("XID 48: a double-bit ECC error (hardware)", self.quarantined())


if __name__ == "__main__":
    if not NVML or not MODULE:
        print("skipped: this build has no CUDA toolkit, so no emulated CUDA module")
        sys.exit(77)
    unittest.main(verbosity=2)
