"""Tests that TensorBoard reads the event files with every metric of a job, its steps, times and
values. They fail if record lengths or checksums do not follow TFRecord, or if TensorBoard misreads
a message.

TRAINYARD_TENSORBOARD_PYTHON names a Python with tensorboard. Without it the tests are skipped."""

import json
import os
import sys
import unittest

from harness import DaemonTest, digits_spec

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    python = os.environ.get("TRAINYARD_TENSORBOARD_PYTHON")
    if python and os.environ.get("TRAINYARD_TENSORBOARD_TRIED") != python:
        os.execve(python, [python, *sys.argv], dict(os.environ, TRAINYARD_TENSORBOARD_TRIED=python))
    print(f"{missing.name} is not installed for {sys.executable}: set TRAINYARD_TENSORBOARD_PYTHON", file=sys.stderr)
    raise SystemExit(77)  # CTest's status for skipped tests

RECIPE = "  validation_split: 0.2\n"


def scalars_of(folder):
    """Returns all scalars of a run as {key: [(step, time, value)]}."""
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    tags = reader.Tags()
    assert not tags["tensors"] and not tags["images"], tags
    return {key: [(e.step, e.wall_time, e.value) for e in reader.Scalars(key)] for key in tags["scalars"]}


class TensorBoard(DaemonTest):
    def test_an_exported_job_is_read_completely(self):
        job = self.daemon.submit(digits_spec(self.folder, "curves", recipe=RECIPE), "--wait")
        runs = self.folder / "runs"
        self.daemon.cli("metrics", "export", job, "--tensorboard", runs)
        read = scalars_of(runs / job)
        told = json.loads(self.daemon.cli("metrics", "export", job, "--json", "-").stdout)["jobs"][0]["metrics"]
        self.assertEqual(set(read), set(told))
        self.assertIn("val/accuracy", read)
        for key, series in told.items():
            self.assertEqual([step for step, _, _ in read[key]], series["steps"], key)
            for (_, time, value), wanted_time, wanted in zip(read[key], series["times"], series["values"]):
                self.assertAlmostEqual(time, wanted_time, delta=1e-3)
                # Values are stored in single precision.
                self.assertAlmostEqual(value, wanted, delta=1e-6 * max(1, abs(wanted)))

    def test_a_local_run_is_read_completely(self):
        spec = digits_spec(self.folder, "local-curves", recipe=RECIPE)
        out = self.folder / "local"
        result = json.loads(self.daemon.cli("local", "run", spec, "--tensorboard", out, "-o", "json").stdout)
        read = scalars_of(out)
        for key, value in result["metrics"].items():
            self.assertAlmostEqual(read[key][-1][2], value, delta=1e-6 * max(1, abs(value)))
        self.assertEqual([step for step, _, _ in read["train/loss"]], list(range(1, int(result["steps_done"]) + 1)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
