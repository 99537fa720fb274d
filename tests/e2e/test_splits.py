"""Tests of jobs that hold out groups, the latest rows or folds, from the job file to the result. They fail if
one setting in the job file is not enough, a dataset without the column is split anyway, folds overlap, or their
mean and spread are not shown."""

import json
import unittest

from harness import DaemonTest


def visits(rows=120):
    """Returns a table of visits: a number, a patient, a day and a class that the number explains."""
    lines = ["x,patient,day,y"]
    for i in range(rows):
        lines.append(f"{i * 37 % 100 / 10},p{i * 7 % 17},2026-0{1 + i % 6}-{10 + i % 19},{'ab'[i * 37 % 100 > 50]}")
    return "\n".join(lines) + "\n"


def json_lines(table):
    header, *rows = [line.split(",") for line in table.splitlines()]
    return "".join(json.dumps(dict(zip(header, row))) + "\n" for row in rows)


JOB = """
name: %s
dataset: {path: %s, %s: {target: y, ignore: [patient, day]}}
model:
  mlp: {hidden: [8]}
recipe:
  epochs: 3
  batch_size: 16
  optimizer: {type: adam, learning_rate: 0.01}
  %s
"""


class Splits(DaemonTest):
    def job_file(self, name, split, path="visits.csv", kind="csv"):
        return self.write(f"{name}.yaml", JOB % (name, path, kind, split))

    def setUp(self):
        self.write("visits.csv", visits())
        self.write("visits.jsonl", json_lines(visits()))

    def rows(self, name):
        run = self.daemon.job(name)["plan"]
        return int(run["train_rows"]), int(run["validation_rows"])

    def test_one_setting_in_the_job_file_is_enough(self):
        for name, split in [("by-patient", "validation_split: 0.2\n  split: {group: patient}"),
                            ("by-day", "validation_split: 0.25\n  split: {time: day}")]:
            for path, kind in [("visits.csv", "csv"), ("visits.jsonl", "jsonl")]:
                with self.subTest(name, kind=kind):
                    spec = self.job_file(f"{name}-{kind}", split, path, kind)
                    self.daemon.submit(spec, "--wait")
                    self.assertEqual(self.daemon.job(f"{name}-{kind}")["state"], "SUCCEEDED")
                    train, held_out = self.rows(f"{name}-{kind}")
                    self.assertEqual(train + held_out, 120)
                    self.assertEqual(held_out, 30 if name == "by-day" else held_out)
                    self.assertIn(held_out, range(15, 36))
                    how = "(the latest by 'day')" if name == "by-day" else "(whole groups by 'patient')"
                    self.assertIn(f"{held_out} to validate {how}", self.daemon.cli("get", f"{name}-{kind}").stdout)
                    plan = self.daemon.json("plan", spec, "--upload")
                    self.assertEqual(int(plan["run"]["validation_rows"]), held_out)
                    self.assertIn("val/accuracy", self.daemon.json("local", "run", spec)["metrics"])
        self.assertEqual(self.rows("by-patient-csv"), self.rows("by-patient-jsonl"))

    def test_a_dataset_without_the_column_is_refused(self):
        path = self.folder / "visits.csv"
        upload = ("dataset", "upload", "--csv", str(path), "--target", "y", "--ignore", "patient", "--ignore", "day")
        self.daemon.cli(*upload, "--name", "plain")
        self.daemon.cli(*upload, "--name", "kept", "--group", "patient")
        text = JOB % ("named", "x", "csv", "validation_split: 0.2\n  split: {group: patient}")
        for name, words in [("plain", "the dataset was made without the values of 'patient' for splits"), ("kept", "")]:
            lines = [f"dataset: {name}" if line.startswith("dataset:") else line for line in text.splitlines()]
            done = self.daemon.cli("submit", self.write("named.yaml", "\n".join(lines) + "\n"), "--wait", check=False)
            if words:
                self.assert_refused(done, 2, "recipe.split.group", words, "group: patient")
            else:
                self.assertEqual(done.returncode, 0, done.stderr)
        wrong = self.job_file("wrong", "validation_split: 0.2\n  split: {group: patien}")
        self.assert_refused(self.daemon.cli("submit", wrong, check=False), 2, "'patien'", "recipe.split.group",
                            "is not a column; did you mean 'patient'?")

    def test_folds_are_an_array_with_mean_and_spread(self):
        spec = self.job_file("folds", "split: {folds: 4}")
        self.assertEqual(self.daemon.cli("submit", spec, "--wait").stdout, "folds\n")
        held_out = [self.rows(f"folds-{i}")[1] for i in range(4)]
        self.assertEqual(held_out, [30, 30, 30, 30])
        shown = self.daemon.cli("array", "get", "folds").stdout.split("\n\n")
        self.assertEqual(shown[1].splitlines()[0].split(), ["MEMBERS", "MEAN", "val/accuracy", "SPREAD", "LEAST", "LARGEST"])
        accuracies = [self.daemon.job(f"folds-{i}")["progress"]["metrics"]["val/accuracy"] for i in range(4)]
        members, mean, spread, least, largest = shown[1].splitlines()[1].split()
        self.assertEqual(members, "4")
        self.assertAlmostEqual(float(mean), sum(accuracies) / 4, places=3)
        self.assertAlmostEqual(float(least), min(accuracies), places=3)
        one = self.daemon.submit(spec, "--name", "one-fold", "--set", "recipe.split.fold=2", "--wait")
        self.assertEqual(self.daemon.job(one)["progress"]["metrics"]["val/accuracy"], accuracies[1])


if __name__ == "__main__":
    unittest.main()
