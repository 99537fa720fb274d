"""Tests newcomers' mistakes in data through the service: each causes a warning where the user sees
it, and a job with sound data has no warnings. They fail if a warning gets lost on its way: ingest,
store, plan, submit, watch, get, predict."""

import json
import unittest

from harness import DaemonTest


def people(count, leak=True):
    """Returns a table of survivors: age, port, an identifier and, with `leak`, a column that reveals the target."""
    lines = ["id,age,port,fate,survived"]
    for i in range(count):
        survived = int((i * 7919 % 1009) / 1009 < 0.3 + 0.4 * (i % 3 == 0))
        fate = ("alive", "dead")[1 - survived] if leak else ("alive", "dead")[i % 2]
        lines.append(f"{1000 + i},{i * 31 % 80 + i % 7 / 10},{'CQS'[i % 3]},{fate},{survived}")
    return "\n".join(lines) + "\n"


JOB = """
dataset: {name: %s}
model:
  mlp: {hidden: [8]}
recipe:
  epochs: %d
  batch_size: 16
  optimizer: {type: adam, learning_rate: %s}
  validation_split: 0.25
"""


class Traps(DaemonTest):
    def keys(self, dataset):
        return {w["key"]: w for w in self.daemon.json("dataset", "get", dataset)["schema"]["warnings"]}

    def test_a_dataset_has_warnings_until_its_spec_follows_the_advice(self):
        path = self.write("people.csv", people(300))
        upload = ("dataset", "upload", "--csv", path, "--target", "survived", "--name")
        told = self.daemon.cli(*upload, "trapped")
        self.assertEqual(told.stdout, "trapped@1\n")
        self.assertIn("warning: column 'id' looks like an ID", told.stderr)
        self.assertIn("warning: column 'fate' determines the target by itself: each of its 2 values occurs with one class of "
                      "'survived', in 300 of 300 rows", told.stderr)
        self.assertIn("list it in dataset.csv.ignore.", told.stderr)
        found = self.keys("trapped")
        self.assertEqual(set(found), {"IDENTIFIER_COLUMN", "TARGET_LEAK"})
        self.assertEqual(found["TARGET_LEAK"]["columns"], ["fate"])
        self.assertEqual(found["TARGET_LEAK"]["count"], 300)
        self.assertIn("determines the target", self.daemon.cli("dataset", "get", "trapped").stdout)

        spec = self.write("trapped.yaml", JOB % ("trapped", 1, "0.01"))
        plan = self.daemon.json("plan", spec)
        self.assertEqual([w for w in plan["warnings"] if "column '" in w], plan["run"]["warnings"])
        self.assertEqual(len(plan["run"]["warnings"]), 2)
        submitted = self.daemon.cli("submit", spec, "--wait")
        self.assertIn("warning: column 'fate' determines", submitted.stderr)
        job = submitted.stdout.strip()
        self.assertEqual(self.daemon.job(job)["plan"]["warnings"], plan["run"]["warnings"])
        self.assertIn("warning", self.daemon.cli("get", job).stdout)
        self.assertEqual(self.daemon.json("model", "get", job)["schema"]["warnings"], [])

        clean = self.daemon.cli(*upload, "clean", "--ignore", "id", "--ignore", "fate")
        self.assertNotIn("warning", clean.stderr)
        self.assertEqual(self.keys("clean"), {})

    def test_results_are_shown_with_their_baselines(self):
        rows = people(300, leak=False).splitlines()
        rows[1:] = [row[:-1] + str(1 - int(row[-1])) if i % 11 == 5 else row for i, row in enumerate(rows[1:])]
        path = self.write("fair.csv", "\n".join(rows) + "\n")
        self.daemon.cli("dataset", "upload", "--csv", path, "--target", "survived", "--name", "fair", "--ignore", "id")
        spec = self.write("fair.yaml", JOB % ("fair", 10, "0.01"))
        job = self.daemon.submit(spec, "--wait")
        progress = self.daemon.job(job)["progress"]
        baselines = {b["metric"]: b["value"] for b in progress["baselines"]}
        self.assertEqual(set(baselines), {"val/loss", "val/accuracy", "val/f1_macro", "val/roc_auc"})
        self.assertEqual(baselines["val/roc_auc"], 0.5)
        self.assertLess(baselines["val/accuracy"], progress["metrics"]["val/accuracy"])
        self.assertEqual(progress["warnings"], [])
        self.assertIn("BASELINE", self.daemon.cli("get", job).stdout)
        last = self.daemon.cli("watch", job).stdout.strip().splitlines()[-1]
        self.assertRegex(last, r"SUCCEEDED.*val/accuracy [0-9.]+ \(baseline 0\.\d+\)")
        self.assertIn("(baseline ", self.daemon.cli("list").stdout)

        nothing = self.daemon.submit(self.write("nothing.yaml", JOB % ("fair", 1, "1e-12")), "--wait")
        after = self.daemon.job(nothing)
        self.assertEqual(after["state"], "SUCCEEDED")
        self.assertEqual(len(after["progress"]["warnings"]), 1)
        sentence = after["progress"]["warnings"][0]
        self.assertIn("no better than a constant prediction that ignores the inputs", sentence)
        self.assertIn(sentence[:60], self.daemon.cli("watch", nothing).stdout)

    def test_rows_without_a_target_are_left_out_if_asked(self):
        lines = people(60).splitlines()
        lines[5] = lines[5][:-1]
        path = self.write("holes.csv", "\n".join(lines) + "\n")
        upload = ("dataset", "upload", "--csv", path, "--target", "survived", "--name", "holes")
        self.assert_refused(self.daemon.cli(*upload, check=False), 2, "row 5 (line 6), column 'survived'",
                            "missing_target: skip")
        self.assert_refused(self.daemon.cli(*upload, "--missing-target", "drop", check=False), 2, "refuse", "skip")
        told = self.daemon.cli(*upload, "--missing-target", "skip")
        self.assertIn("left out 1 row without a target", told.stderr)
        schema = self.daemon.json("dataset", "get", "holes")["schema"]
        self.assertEqual((schema["train_rows"], schema["skipped_rows"]), (59, 1))
        self.assertIn("1 row without a target", self.daemon.cli("dataset", "get", "holes").stdout)

    def test_an_unseen_category_is_named(self):
        path = self.write("ports.csv", people(90))
        self.daemon.cli("dataset", "upload", "--csv", path, "--target", "survived", "--name", "ports", "--ignore", "id")
        job = self.daemon.submit(self.write("ports.yaml", JOB % ("ports", 1, "0.01")), "--wait")
        rows = "age,port,fate\n30,C,alive\n40,X,dead\n,,\n"
        told = self.daemon.cli("predict", job, "--csv", "-", input=rows)
        self.assertIn("warning: 1 value is a category that training never saw and counts as missing: row 2, column "
                      "'port': 'X'", told.stderr)
        self.assertEqual(len(told.stdout.splitlines()), 4)
        answer = self.daemon.cli("predict", job, "--csv", "-", "-o", "json", input=rows)
        answer = json.loads(answer.stdout)
        self.assertEqual(answer["unseen_count"], 1)
        self.assertEqual([p["unseen"] for p in answer["predictions"]], [[], [{"column": "port", "value": "X"}], []])
        self.assertEqual(self.daemon.cli("predict", job, "--csv", "-", input=rows.replace("X", "S")).stderr, "")

    def test_columns_of_rows_are_matched_and_named(self):
        path = self.write("fares.csv", people(90))
        self.daemon.cli("dataset", "upload", "--csv", path, "--target", "survived", "--name", "fares", "--ignore", "id")
        job = self.daemon.submit(self.write("fares.yaml", JOB % ("fares", 1, "0.01")), "--wait")
        rows = "age,port,fate\n30,C,alive\n40,Q,dead\n"
        plain = self.daemon.cli("predict", job, "--csv", "-", "-o", "csv", input=rows)
        other = "note,Fate,AGE,Port,nr\nx,alive,30,C,1\ny,dead,40,Q,2\n"
        told = self.daemon.cli("predict", job, "--csv", "-", "-o", "csv", input=other)
        self.assertEqual(told.stdout, plain.stdout)
        self.assertIn("note: the columns 'note' and 'nr' are ignored: the training data had no such columns", told.stderr)
        answer = json.loads(self.daemon.cli("predict", job, "--csv", "-", "-o", "json", input=other).stdout)
        self.assertEqual(answer["ignored_columns"], ["note", "nr"])
        self.assert_refused(self.daemon.cli("predict", job, "--csv", "-", input="Age,fates\n30,dead\n", check=False), 2,
                            "the columns 'port' and 'fate', which the model learned from, are missing",
                            "is 'fates' meant to be 'fate'?")

        header, *lines = people(40).splitlines()
        capitals = self.write("capitals.csv", "\n".join([header.upper().replace("SURVIVED", "survived") + ",nr",
                                                         *(f"{line},7" for line in lines)]) + "\n")
        self.daemon.cli("dataset", "upload", "--csv", capitals, "--target", "survived", "--name", "capitals", "--ignore",
                        "ID")
        told = self.daemon.cli("model", "evaluate", job, "capitals")
        self.assertIn("note: ignored, because the model was trained without: 'nr'", told.stderr)
        self.assertIn("accuracy", told.stdout)


if __name__ == "__main__":
    unittest.main()
