"""Tests of `trainyard local` on several emulated GPUs; the module is the real one's code
(tests/cuda/fake_cuda.h)."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import BIN, PATIENCE_S, digits_spec

NVML = os.environ.get("TRAINYARD_FAKE_NVML")
MODULE = os.environ.get("TRAINYARD_EMULATED_CUDA")


class LocalGpus(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-gpus-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "lib").mkdir()
        (self.folder / "lib/libnvidia-ml.so.1").symlink_to(NVML)
        self.spec = digits_spec(self.folder, "digits", recipe="  validation_split: 0.1")

    def local(self, *arguments, gpus=4, **env):
        env = dict(os.environ, TRAINYARD_CUDA_MODULE=MODULE, TRAINYARD_FAKE_CUDA_DEVICES=str(gpus),
                   TRAINYARD_NVML_SCRIPT=f"devices={gpus}", LD_LIBRARY_PATH=str(self.folder / "lib"),
                   TRAINYARD_ALGORITHMS=str(self.folder / "algorithms"), **env)
        return subprocess.run([BIN / "trainyard", *map(str, arguments)], env=env, capture_output=True, text=True,
                              timeout=3 * PATIENCE_S, check=False)

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

    def test_a_plan_is_made_for_one_gpu(self):
        def memory(device):
            done = self.local("plan", self.spec, "--local", "--device", device, "-o", "json")
            self.assertEqual(done.returncode, 0, done.stderr)
            return {key: int(value) for key, value in json.loads(done.stdout)["run"]["memory"].items()}
        one, two = memory("gpu-0"), memory("gpu-0,gpu-1")
        self.assertEqual(two["parameter_bytes"], one["parameter_bytes"])
        self.assertLess(two["activation_bytes"], one["activation_bytes"])


if __name__ == "__main__":
    if not NVML or not MODULE:
        print("no emulated GPU: this build has no CUDA module")
        sys.exit(77)
    unittest.main(verbosity=2)
