"""Which checkpoint a local run goes on from: that of its own job, whichever version wrote it. Catches a run that trains
nothing, and reports success with the weights of a job with other settings."""

import json
import pathlib
import shutil
import struct
import tempfile
import unittest

from harness import SOURCE, Daemon

RECORDED = SOURCE / "tests/golden/checkpoints_88e669a"
EARLIER = "is of an earlier version, which did not record recipe.augmentation and recipe.context_length"


def floats(path):
    """All numbers of a safetensors file of F32, in the order in which they lie there."""
    data = path.read_bytes()
    (header,) = struct.unpack_from("<Q", data)
    assert {t["dtype"] for name, t in json.loads(data[8:8 + header]).items() if name != "__metadata__"} == {"F32"}
    return struct.unpack(f"<{(len(data) - 8 - header) // 4}f", data[8 + header:])


class LocalResume(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-resume-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.out = self.folder / "out"
        self.cli = Daemon(self.folder / "no-daemon").cli

    def run_job(self, name, *sets, **options):
        return self.cli("local", "run", RECORDED / name / "spec.yaml", "--out", self.out, "--device", "cpu", "--threads", "1",
                        *[a for s in sets for a in ("--set", s)], **options).stderr

    def take_recorded(self, name):
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(RECORDED / name / "step-000000002", self.out / "checkpoints/step-000000002")

    def run_refused(self, name, *sets):
        before = {p: p.read_bytes() for p in self.out.rglob("*") if p.is_file()}
        text = self.run_job(name, *sets, check=False)
        self.assertIn("belongs to another job: ", text)
        self.assertEqual(before, {p: p.read_bytes() for p in self.out.rglob("*") if p.is_file()})
        return text

    def test_a_run_with_other_settings_is_refused_by_their_names(self):
        self.run_job("everything")
        self.assertIn("resumed from step 4", self.run_job("everything"))
        text = self.run_refused("everything", "recipe.augmentation=[{random_crop: {padding: 2}}]", "recipe.seed=6")
        self.assertIn("recipe.augmentation[0].random_crop.padding: the checkpoint has 1, the job has 2; "
                      'recipe.augmentation[1]: the checkpoint has {"cutout":{"size":2}}, the job has nothing; '
                      "recipe.seed: the checkpoint has 5, the job has 6; "
                      "expected the same job, or a folder without checkpoints", text)
        # What changes no number of the run may change.
        self.assertIn("resumed from step 4", self.run_job("everything", "recipe.checkpoint_every_steps=1"))

    def test_checkpoints_of_an_earlier_version_go_on(self):
        for name in ("plain", "everything"):
            self.take_recorded(name)
            text = self.run_job(name)
            self.assertIn("resumed from step 2", text)
            self.assertIn("checkpoint step-000000002 " + EARLIER, text)
            self.assertEqual("started in fp32" in text, name == "plain")  # the default of then
            model, recorded = (floats(folder / "model.safetensors") for folder in (self.out / "model", RECORDED / name))
            self.assertEqual(len(model), len(recorded))
            for value, wanted in zip(model, recorded):
                self.assertAlmostEqual(value, wanted, delta=1e-5, msg=name)
            # The checkpoint that it has written since knows all of its settings.
            self.assertNotIn(EARLIER, self.run_job(name))
            self.assertIn("recipe.augmentation", self.run_refused(name, "recipe.augmentation=[{cutout: {size: 3}}]"))

    def test_a_checkpoint_of_an_earlier_version_knows_no_augmentation(self):
        self.take_recorded("everything")
        text = self.run_job("everything", "recipe.augmentation=[{cutout: {size: 3}}]")
        self.assertIn("resumed from step 2", text)
        self.assertIn(EARLIER, text)
        self.take_recorded("everything")
        self.assertIn("another model, recipe or dataset (written by an earlier version",
                      self.run_refused("everything", "recipe.optimizer.learning_rate=0.02"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
