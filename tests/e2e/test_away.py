"""Tests with files that the store knows but the disk temporarily lacks: jobs wait for them, and no
bit is lost."""

import unittest

from harness import DisturbedTest, wait_until

MODEL = """  layers:
    - conv: {out_channels: 16, kernel_shape: [3], pads: [1]}
    - relu: {}
    - max_pool: {kernel_shape: [2]}
    - gemm: {}"""
RECIPE = """  validation_split: 0.2
  checkpoint_every_steps: 40
"""


class Away(DisturbedTest):
    network, recipe, epochs = MODEL, RECIPE, 60

    def dataset(self):
        (folder,) = (self.daemon.state / "datasets").iterdir()
        return folder

    def pause(self, name):
        self.daemon.submit(self.spec(name))
        self.wait_for_step(name, 50)
        self.daemon.cli("pause", name)
        return self.wait_for_state(name, "PAUSED")

    def wait_for_trouble(self, name, words, attempts=1):
        """Waits until `attempts` attempts have met the host's trouble, and until `get` and
        `explain` report it."""
        def told():
            job = self.daemon.job(name)
            self.assertNotIn(job["state"], ("SUCCEEDED", "FAILED"), job)
            return job["state"] == "QUEUED" and job.get("reason") == "STORAGE_ERROR" and words in job["message"] and job

        def shown(view):  # empty while the next attempt starts
            text = self.daemon.cli(view, name).stdout
            self.assertNotIn(str(self.daemon.state), text, "a server's path")
            return "A problem of this host, not of the job" in text and text
        first = int(wait_until(told, f"{name} waits because of '{words}'")["attempt"])
        wait_until(lambda: (job := told()) and int(job["attempt"]) >= first + attempts - 1, f"{name} is tried again")
        wait_until(lambda: shown("get"), f"get {name} says why it waits")
        wait_until(lambda: "the job then continues by itself" in (shown("explain") or ""), f"explain {name} says why it waits")

    def test_an_unreadable_dataset_makes_its_job_wait(self):
        self.pause("dataset-away")
        folder = self.dataset()
        away = folder.rename(self.folder / "away")
        try:
            self.daemon.cli("resume", "dataset-away")
            self.wait_for_trouble("dataset-away", "no complete dataset in STATE_DIR/datasets", attempts=3)
        finally:
            away.rename(folder)
        self.finish("dataset-away")

    def test_a_job_waits_for_unreadable_initial_weights(self):
        spec = self.spec("weights-away")
        spec.write_text(spec.read_text() + "  initial_weights: {model: undisturbed}\n")
        folder = self.daemon.state / "models" / self.daemon.job("undisturbed")["uid"]
        self.daemon.cli("device", "drain", "cpu")
        try:
            self.daemon.submit(spec)
            away = folder.rename(self.folder / "away")
        finally:
            self.daemon.cli("device", "resume", "cpu")
        try:
            self.wait_for_trouble("weights-away", "cannot be read: cannot open STATE_DIR/models")
        finally:
            away.rename(folder)
        self.daemon.cli("wait", "weights-away")

    def test_an_unreadable_checkpoint_is_waited_for_and_not_skipped(self):
        job = self.pause("unreadable")
        step = int(job["checkpoint_step"])
        file = self.daemon.state / "jobs" / job["uid"] / "checkpoints" / f"step-{step:09}" / "weights.safetensors"
        away = file.rename(self.folder / "away")
        file.symlink_to(file)  # opening a link to itself fails, even for root
        self.daemon.cli("resume", "unreadable")
        self.wait_for_trouble("unreadable", "cannot open STATE_DIR/jobs")
        away.rename(file)
        self.finish("unreadable")
        steps = self.steps("unreadable")
        self.assertEqual(steps, list(range(1, len(steps) + 1)), "each step once: no older checkpoint was taken")

    def test_a_mapped_file_that_cannot_be_read_fails_no_job(self):
        self.daemon.submit(self.spec("faults"))
        self.wait_for_step("faults", 50)
        folder = self.dataset()
        away = folder.rename(self.folder / "away")  # so that no attempt opens the truncated file
        content = (away / "data.safetensors").read_bytes()
        with open(away / "data.safetensors", "r+b") as file:
            file.truncate(0)
            self.wait_for_trouble("faults", "no complete dataset")
            file.write(content)
        away.rename(folder)
        self.finish("faults")
        told = [e["state"] for e in self.daemon.events("faults") if e.get("state", {}).get("reason") == "STORAGE_ERROR"]
        self.assertIn("killed by signal 7 (Bus error)", told[0]["message"])


if __name__ == "__main__":
    unittest.main()
