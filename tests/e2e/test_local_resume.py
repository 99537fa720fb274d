"""Tests that a local run resumes only from a checkpoint of its own job. They fail if a run trains
nothing and reports success with the weights of a job with other settings."""

import pathlib
import shutil
import tempfile
import unittest

from harness import EXAMPLES, Daemon

# A job file that sets many fields.
SPEC = """\
dataset:
  path: DIGITS
  csv: {header: false, target: c64, image: [1, 8, 8]}
model:
  blocks:
    - name: unit
      parameters: [width]
      defaults: {width: 3}
      layers:
        - conv: {kernel_shape: 3, pads: 1, bias: false}
          bind: {out_channels: width}
        - relu:
  layers:
    - name: first
      use: {block: unit, repeat: 2}
    - max_pool: {kernel_shape: 4}
    - flatten:
    - name: head
      gemm:
  loss:
    softmax_cross_entropy: {label_smoothing: 0.1}
recipe:
  steps: 4
  batch_size: 32
  seed: 5
  validation_split: 0.1
  optimizer: {type: adamw, learning_rate: 0.01, weight_decay_on: matrices}
  schedule: {type: one_cycle, pct_start: 0.5}
  precision: tf32
  accumulate_steps: 2
  clip_gradients: {norm: 1}
  ema: {decay: 0.9}
  parameter_groups:
    - {match: head.bias, learning_rate_factor: 2}
  keep_best: {metric: val/loss}
  early_stopping: {metric: val/loss, patience: 5}
  evaluate_every_steps: 2
  augmentation:
    - random_crop: {padding: 1}
    - cutout: {size: 2}
  checkpoint_every_steps: 2
""".replace("DIGITS", str(EXAMPLES / "digits.csv.gz"))


class LocalResume(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-resume-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.out = self.folder / "out"
        self.spec = self.folder / "spec.yaml"
        self.spec.write_text(SPEC)
        self.cli = Daemon(self.folder / "no-daemon").cli

    def run_job(self, *sets, **options):
        return self.cli("local", "run", self.spec, "--out", self.out, "--device", "cpu", "--threads", "1",
                        *[a for s in sets for a in ("--set", s)], **options).stderr

    def run_refused(self, *sets):
        before = {p: p.read_bytes() for p in self.out.rglob("*") if p.is_file()}
        text = self.run_job(*sets, check=False)
        self.assertIn("belongs to another job: ", text)
        self.assertEqual(before, {p: p.read_bytes() for p in self.out.rglob("*") if p.is_file()})
        return text

    def test_a_run_with_other_settings_is_refused_by_their_names(self):
        self.run_job()
        self.assertIn("resumed from step 4", self.run_job())
        text = self.run_refused("recipe.augmentation=[{random_crop: {padding: 2}}]", "recipe.seed=6")
        self.assertIn("recipe.augmentation[0].random_crop.padding: the checkpoint has 1, the job has 2; "
                      'recipe.augmentation[1]: the checkpoint has {"cutout":{"size":2}}, the job has nothing; '
                      "recipe.seed: the checkpoint has 5, the job has 6; "
                      "expected the same job, or a folder without checkpoints", text)
        # Settings that do not influence the run's numbers may change.
        self.assertIn("resumed from step 4", self.run_job("recipe.checkpoint_every_steps=1"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
