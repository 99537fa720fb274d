"""Tests of `trainyard local` on several emulated GPUs; the module is the real one's code
(tests/cuda/fake_cuda.h)."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from harness import BIN, PATIENCE_S, digits_spec, wait_until

NVML = os.environ.get("TRAINYARD_FAKE_NVML")
MODULE = os.environ.get("TRAINYARD_EMULATED_CUDA")


class LocalGpus(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-gpus-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "lib").mkdir()
        (self.folder / "lib/libnvidia-ml.so.1").symlink_to(NVML)
        self.spec = digits_spec(self.folder, "digits", recipe="  validation_split: 0.1")

    def environment(self, gpus=4, **env):
        return dict(os.environ, TRAINYARD_CUDA_MODULE=MODULE, TRAINYARD_FAKE_CUDA_DEVICES=str(gpus),
                    TRAINYARD_NVML_SCRIPT=f"devices={gpus}", LD_LIBRARY_PATH=str(self.folder / "lib"),
                    TRAINYARD_ALGORITHMS=str(self.folder / "algorithms"), **env)

    def local(self, *arguments, **env):
        return subprocess.run([BIN / "trainyard", *map(str, arguments)], env=self.environment(**env), capture_output=True,
                              text=True, timeout=3 * PATIENCE_S, check=False)

    def run_on(self, device, name, *sets):
        sets = [a for s in ("recipe.epochs=1", *sets) for a in ("--set", s)]
        done = self.local("local", "run", self.spec, "--device", device, "--out", self.folder / name, "-o", "json", *sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["metrics"], (self.folder / name / "model/model.safetensors").read_bytes()

    def refused(self, *arguments, **kw):
        done = self.local(*arguments, **kw)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_two_gpus_follow_the_cpu(self):
        cpu, _ = self.run_on("cpu", "cpu")
        strict = "recipe.precision=fp32"
        two, weights = self.run_on("gpu-0,gpu-1", "two", strict)
        for key in ("train/loss", "val/loss"):
            self.assertAlmostEqual(two[key], cpu[key], delta=1e-4 * cpu[key])
        self.assertEqual(two["val/accuracy"], cpu["val/accuracy"])
        self.assertEqual(self.run_on("gpu-0,gpu-1", "again", strict)[1], weights)
        self.assertEqual(self.run_on("gpu-2,gpu-3", "others", strict)[1], weights)
        # The default precision rounds the factors.
        self.assertNotEqual(self.run_on("gpu-0,gpu-1", "rounded")[1], weights)

    def test_impossible_requests_are_refused_by_name(self):
        run = ("local", "run", self.spec, "--device")
        self.assertIn("'devices/gpu-1' is named twice", self.refused(*run, "gpu-1,gpu-1"))
        self.assertIn("'devices/cpu' cannot share a job with other devices", self.refused(*run, "gpu-0,cpu"))
        self.assertIn("--device: 'tpu', expected cpu, gpu or gpu-N", self.refused(*run, "gpu-0,tpu"))
        self.assertIn("devices/gpu-4 is not available: there is gpu-0, gpu-1, gpu-2, gpu-3",
                      self.refused(*run, "gpu-0,gpu-4"))
        self.assertIn("devices/gpu-0 is not available: CUDA_VISIBLE_DEVICES=2 hides it",
                      self.refused(*run, "gpu-0", CUDA_VISIBLE_DEVICES="2"))
        self.assertIn("2 GPUs are not available: CUDA sees 1",
                      self.refused("local", "run", self.spec, "--set", "resources.device=gpu", "--set", "resources.gpus=2",
                                   CUDA_VISIBLE_DEVICES="2"))
        self.assertIn("resources.gpus: 4 does not divide recipe.batch_size 50, expected one of 1, 2, 5, 10, 25, 50",
                      self.refused(*run, "gpu-0,gpu-1,gpu-2,gpu-3"))

    def test_a_host_on_which_cuda_does_not_start_is_blamed_with_the_remedy(self):
        for code, remedy in (802, "nvidia-fabricmanager"), (803, "reboot the host"), (999, "nvidia-modprobe -u -c=0"):
            said = self.refused("local", "check", "--device", "gpu-0", "-o", "json",
                                TRAINYARD_FAKE_CUDA_FAULT=f"start={code},/dev/null")
            self.assertIn("HOST_FAULT", said)
            self.assertIn(remedy, said)
            self.assertNotIn("does not compute correctly", said)

    def test_a_fault_ends_the_run(self):
        """NCCL ends no communicator while recordings with its exchanges exist: a run that waits for that never ends."""
        run = ("local", "run", self.spec, "--device", "gpu-0,gpu-1", "--set", "recipe.epochs=1000")
        for fault, words in {
            "link=400": "rank 0 (devices/gpu-0): exchanging gradients on GPU 0: an error of NCCL (NCCL error 6)",
            "after=30000": "an illegal memory access was encountered",
        }.items():
            done = self.local(*run, TRAINYARD_FAKE_CUDA_FAULT=fault)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(words, done.stderr)

    def test_an_interrupt_ends_the_run(self):
        command = [BIN / "trainyard", "local", "run", self.spec, "--device", "gpu-0,gpu-1", "--out", self.folder / "stopped",
                   "--set", "recipe.epochs=1000", "--set", "recipe.checkpoint_every_steps=5"]
        with subprocess.Popen(command, env=self.environment(), stderr=subprocess.PIPE, text=True) as run:
            try:
                wait_until(lambda: any((self.folder / "stopped/checkpoints").glob("step-*")), "a checkpoint is written")
                run.send_signal(signal.SIGINT)
                _, said = run.communicate(timeout=PATIENCE_S)
            finally:
                run.kill()
        self.assertEqual(run.returncode, 130, said)
        self.assertIn("Stopped; the same command resumes from the last checkpoint.", said)

    def test_a_plan_is_made_for_one_gpu(self):
        def memory(device):
            done = self.local("plan", self.spec, "--local", "--device", device, "-o", "json")
            self.assertEqual(done.returncode, 0, done.stderr)
            return {key: int(value) for key, value in json.loads(done.stdout)["run"]["memory"].items() if key.endswith("_bytes")}
        one, two = memory("gpu-0"), memory("gpu-0,gpu-1")
        self.assertEqual(two["parameter_bytes"], one["parameter_bytes"])
        self.assertLess(two["activation_bytes"], one["activation_bytes"])


if __name__ == "__main__":
    if not NVML or not MODULE:
        print("no emulated GPU: this build has no CUDA module")
        sys.exit(77)
    unittest.main(verbosity=2)
