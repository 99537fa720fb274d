"""Tests a user's first steps: submit, watch, query, predict, export. Fails if any of them
breaks."""

import gzip
import hashlib
import json
import struct
import unittest

from harness import EXAMPLES, DaemonTest, digits_spec


class Digits(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.done = cls.daemon.cli("submit", EXAMPLES / "digits_cnn.yaml", "--watch")
        cls.name = cls.done.stdout.splitlines()[0].strip()

    def test_submit_prints_only_the_name_and_the_job_succeeds(self):
        self.assertRegex(self.name, r"^[a-z][a-z0-9-]*$")
        job = self.daemon.job(self.name)
        self.assertEqual(job["state"], "SUCCEEDED", job)
        self.assertEqual(job["device"], "devices/cpu")
        self.assertEqual(self.daemon.cli("wait", self.name).returncode, 0)

    def test_it_learned(self):
        metrics = self.daemon.job(self.name)["progress"]["metrics"]
        self.assertGreater(metrics["val/accuracy"], 0.96, metrics)

    def test_every_step_is_in_the_stream_once_and_in_order(self):
        events = self.daemon.events(self.name)
        self.assertEqual([int(e["seq"]) for e in events], list(range(1, len(events) + 1)))
        steps = [int(s) for e in events for series in e.get("metrics", {}).get("series", [])
                 if series["key"] == "train/loss" for s in series["steps"]]
        total = int(self.daemon.job(self.name)["progress"]["steps_total"])
        self.assertEqual(len(steps), total)
        self.assertEqual(steps, list(range(steps[0], steps[0] + total)))

    def test_watch_after_a_sequence_number_gives_the_rest_of_the_stream(self):
        events = self.daemon.events(self.name)
        self.assertEqual(self.daemon.events(self.name, after=3), events[3:])

    def test_planned_arena_is_the_used_arena(self):
        done = self.daemon.json("local", "run", EXAMPLES / "digits_cnn.yaml", "--out", self.folder / "local")
        self.assertEqual(done["arena_used_bytes"], done["arena_planned_bytes"])
        # The daemon's job has the same spec, and its plan lists the parts of that allocation.
        memory = self.daemon.job(self.name)["plan"]["memory"]
        parts = sum(int(count) for part, count in memory.items()
                    if part.endswith("_bytes") and part not in ("dataset_bytes", "host_bytes"))
        self.assertEqual(parts, int(done["arena_planned_bytes"]), memory)

    def test_watching_ends_with_the_metrics_of_the_weights_that_were_kept(self):
        recipe = "  validation_split: 0.2\n  keep_best: {metric: val/loss}\n  early_stopping: {metric: val/loss, patience: 2}\n"
        spec = digits_spec(self.folder, "kept", recipe=recipe)
        spec.write_text(spec.read_text().replace("epochs: 3", "epochs: 300"))
        told = self.daemon.cli("submit", spec, "--watch").stderr
        kept = self.daemon.job("kept")["progress"]["metrics"]["val/loss"]
        evaluated = [float(v) for e in self.daemon.events("kept") for series in e.get("metrics", {}).get("series", [])
                     if series["key"] == "val/loss" for v in series["values"]]
        self.assertLess(kept, evaluated[-1], "its last evaluation was the best, which shows nothing")
        last = [line for line in told.splitlines() if "SUCCEEDED" in line][-1]
        self.assertRegex(last, r"val/loss \S+ .*[Ss]topped early")
        self.assertAlmostEqual(float(last.split("val/loss ")[1].split()[0]), kept, delta=0.01 * kept)

    def test_predict_raw_rows(self):
        text = gzip.open(EXAMPLES / "digits.csv.gz", "rt").read().splitlines()
        rows = [line.rsplit(",", 1) for line in text[:200]]
        path = self.write("rows.csv", "\n".join(r[0] for r in rows) + "\n")
        answer = self.daemon.json("predict", self.name, "--csv", path)
        labels = [p["label"] for p in answer["predictions"]]
        self.assertEqual(len(labels), 200)
        right = sum(a == b[1] for a, b in zip(labels, rows))
        self.assertGreater(right, 190)

    def test_export_is_a_safetensors_file_with_its_preprocessing(self):
        out = self.folder / "export"
        self.daemon.cli("model", "export", self.name, "--out", out)
        blob = (out / "model.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", blob[:8])
        header = json.loads(blob[8:8 + size])
        ends = [t["data_offsets"][1] for k, t in header.items() if k != "__metadata__"]
        self.assertEqual(8 + size + max(ends), len(blob))
        self.assertIn("preprocessing", json.loads((out / "model.json").read_text()))
        model = self.daemon.json("model", "get", self.name)
        self.assertEqual(model["digest"], hashlib.sha256(blob).hexdigest())

    def test_tables_and_json_list_the_job(self):
        self.assertIn(self.name, self.daemon.cli("list").stdout)
        names = [j["name"] for j in self.daemon.json("list")["jobs"]]
        self.assertIn(f"projects/default/jobs/{self.name}", names)
        self.assertIn(self.name, self.daemon.cli("model", "list").stdout)
        self.assertIn("cpu", self.daemon.cli("device", "list").stdout)

    def test_the_same_content_is_ingested_once(self):
        before = self.daemon.json("dataset", "list")["datasets"]
        spec = digits_spec(self.folder, "again")
        self.daemon.submit(spec, "--wait")
        self.assertEqual(len(self.daemon.json("dataset", "list")["datasets"]), len(before))

    def test_wait_reports_the_outcome_of_a_failed_job(self):
        spec = digits_spec(self.folder, "explodes").read_text().replace("learning_rate: 0.05", "learning_rate: 1e6")
        path = self.write("explodes.yaml", spec)
        name = self.daemon.submit(path)
        self.assertEqual(self.daemon.cli("wait", name, check=False).returncode, 1)
        job = self.daemon.job(name)
        self.assertEqual((job["state"], job["reason"]), ("FAILED", "LOSS_NOT_FINITE"))
        self.assertRegex(job["message"], r"step \d+")
        series = [s for e in self.daemon.events(name) for s in e.get("metrics", {}).get("series", [])
                  if s["key"] == "train/loss"]
        self.assertTrue(series[-1].get("non_finite"), "the loss that ended the job is marked in the stream")

    def test_same_seed_same_bits_and_other_seed_other_bits(self):
        digests = []
        for i, seed in enumerate((7, 7, 8)):
            path = self.write(f"bits{i}.yaml", digits_spec(self.folder, f"bits-{i}").read_text()
                              .replace("seed: 7", f"seed: {seed}"))
            self.daemon.submit(path, "--wait")
            digests.append(self.daemon.json("model", "get", f"bits-{i}")["digest"])
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[0], digests[2])

    def test_the_stored_spec_names_its_precision(self):
        job = self.daemon.job(self.name)
        self.assertEqual((job["spec"]["recipe"]["precision"], job["plan"]["precision"]), ("TF32", "TF32"))
        self.assertRegex(self.daemon.cli("get", self.name, "-o", "yaml").stdout, r"precision: tf32\n")

    def test_delete(self):
        name = self.daemon.submit(digits_spec(self.folder, "short-lived"), "--wait").splitlines()[0]
        self.daemon.cli("delete", name, "--yes")
        self.assertEqual(self.daemon.cli("get", name, check=False).returncode, 4)
        self.daemon.cli("model", "get", name)  # deleting the job keeps the model


if __name__ == "__main__":
    unittest.main(verbosity=2)
