"""Tests of losses with settings and of models with a custom input, through the service. They fail
if a setting gets lost between spec file, API, worker and model folder, or if `get` or `predict`
does not show a result."""

import math
import unittest

from harness import DaemonTest, digits_spec


def two_classes(rows):
    """Returns rows whose class is "yes" if a sum of two of the three columns is large."""
    text = "a,b,c,answer\n"
    for i in range(rows):
        a, b = math.sin(i * 1.7), math.cos(i * 0.9)
        text += f"{a:.6f},{b:.6f},{i % 5},{'yes' if a + b / 2 > 0.4 else 'no'}\n"
    return text


BINARY = """
name: {name}
dataset:
  name: answers
  path: answers.csv
  csv: {{target: answer}}
model:
  mlp: {{hidden: [16]}}
  loss: {loss}
recipe:
  epochs: 12
  batch_size: 16
  optimizer: {{type: adam, learning_rate: 0.02}}
  validation_split: 0.25
  metrics: [confusion_matrix, precision_macro]
{recipe}"""


class Losses(DaemonTest):
    def binary(self, name, loss="{binary_cross_entropy: {pos_weight: 1.5}}", recipe=""):
        self.write("answers.csv", two_classes(320))
        return self.write(f"{name}.yaml", BINARY.format(name=name, loss=loss, recipe=recipe))

    def test_two_classes_by_one_score(self):
        self.daemon.cli("submit", self.binary("answers-1"), "--watch")
        job = self.daemon.job("answers-1")
        self.assertEqual(job["spec"]["model"]["loss"]["binary_cross_entropy"]["pos_weight"], 1.5)
        metrics = job["progress"]["metrics"]
        self.assertGreater(metrics["val/accuracy"], 0.9, metrics)
        self.assertGreater(metrics["val/roc_auc"], 0.97, metrics)

        (matrix,) = job["progress"]["confusion_matrices"]
        self.assertEqual(matrix["rows_of"], "val")
        self.assertEqual(matrix["classes"], ["no", "yes"])
        counts = [[int(n) for n in row["counts"]] for row in matrix["rows"]]
        self.assertEqual(sum(map(sum, counts)), 80)
        self.assertAlmostEqual((counts[0][0] + counts[1][1]) / 80, metrics["val/accuracy"])
        shown = self.daemon.cli("get", "answers-1").stdout
        self.assertRegex(shown, r"label / predicted +no +yes")
        self.assertRegex(shown, rf"(?m)^yes +{counts[1][0]} +{counts[1][1]}$")
        for listed in self.daemon.json("list")["jobs"]:
            self.assertFalse(listed["progress"].get("confusion_matrices"))

        rows = self.write("rows.csv", "a,b,c\n0.9,0.9,1\n-0.9,-0.9,1\n")
        answer = self.daemon.json("predict", "answers-1", "--csv", rows)
        self.assertEqual([p["label"] for p in answer["predictions"]], ["yes", "no"])
        for p in answer["predictions"]:
            self.assertAlmostEqual(sum(p["probabilities"]), 1, places=5)

        # Another job starts from these weights and reports that.
        self.daemon.cli("submit", self.binary("answers-2", recipe="  initial_weights: {job: answers-1}\n"), "--watch")
        report = self.daemon.job("answers-2")["plan"]["initial_weights"]
        self.assertEqual(report["source"].split("/")[-1], "answers-1")
        self.assertEqual(int(report["taken"]["count"]), 4)
        self.assertIn("fc1.weight", report["taken"]["names"])
        self.assertRegex(self.daemon.cli("get", "answers-2").stdout, r"initial weights: +of \S*answers-1; 4 loaded \(fc1")

    def test_an_autoencoder_reconstructs_images(self):
        # Pixels have a standard deviation of 6. As fractions of 255 they are all dark: an untrained
        # grey is off by 120, and little more can be learned.
        for name, bound, loss in [("squeeze", 4.5, ""), ("shares", 8, "  loss: binary_cross_entropy")]:
            model = f"  autoencoder: {{channels: [8], latent: 12}}\n{loss}"
            spec = digits_spec(self.folder, name, model=model, recipe="  validation_split: 0.2\n")
            self.daemon.cli("submit", spec, "--watch", "--set", "recipe.epochs=15",
                            "--set", "recipe.optimizer={type: adam, learning_rate: 0.005}")
            metrics = self.daemon.job(name)["progress"]["metrics"]
            self.assertEqual({k for k in metrics if k.startswith("val/")}, {"val/loss", "val/mae", "val/rmse"})
            image = [0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0, 0, 3, 15, 2, 0, 11, 8, 0, 0, 4, 12, 0, 0, 8,
                     8, 0, 0, 5, 8, 0, 0, 9, 8, 0, 0, 4, 11, 0, 1, 12, 7, 0, 0, 2, 14, 5, 10, 12, 0, 0, 0, 0, 6, 13,
                     10, 0, 0, 0]
            rows = self.write("image.csv", ",".join(map(str, image)) + "\n")
            (p,) = self.daemon.json("predict", name, "--csv", rows)["predictions"]
            again = p["reconstruction"]
            self.assertEqual(len(again), 64)
            error = math.sqrt(sum((x - y) ** 2 for x, y in zip(image, again)) / 64)
            self.assertLess(error, bound)
            self.assertIn("RECONSTRUCTION", self.daemon.cli("predict", name, "--csv", rows).stdout)
            line = self.daemon.cli("predict", name, "--csv", rows, "-o", "csv").stdout.splitlines()
            self.assertEqual(line[0].split(",")[:3], ["row", "x0", "x1"])
            self.assertEqual(len(line[1].split(",")), 65)

    def test_mismatches_are_refused_with_their_position(self):
        cases = [
            ("{huber: {delta: 1}}", "model.loss", "does not fit a target of classes"),
            ("{binary_cross_entropy: {pos_weight: 0}}", "model.loss.binary_cross_entropy", "pos_weight: 0 is out of range, expected (0, 1000000]"),
            ("{softmax_cross_entropy: {class_weights: [1, 2, 3]}}",
             "class_weights", "has 3 entries, expected 2, one per class"),
            ("{softmax_cross_entropy: {label_smoothing: 1, ignore_index: -1}}", "label_smoothing", "ignore_index"),
            ("crossentropy", "model.loss", "'crossentropy' is not known"),
        ]
        self.daemon.cli("submit", self.binary("fits", loss="softmax_cross_entropy"), "--watch")
        for loss, *words in cases:
            with self.subTest(loss):
                done = self.daemon.cli("submit", self.binary("misfit", loss=loss), check=False)
                self.assert_refused(done, 2, "misfit.yaml:", *words)
        spec = digits_spec(self.folder, "ten-classes", model="  mlp:\n  loss: binary_cross_entropy")
        self.assert_refused(self.daemon.cli("submit", spec, check=False), 2, "is for two classes")


if __name__ == "__main__":
    unittest.main()
