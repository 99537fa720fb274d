"""Tests of weights from other programs and earlier jobs, through the service: uploaded safetensors
files, matching of tensors, fine-tuning with a new head, and low-rank adapters. They fail if a false
header is trusted, if weights get lost between spec file, API, worker and model, or if a model that
a job needs can be deleted."""

import gzip
import json
import math
import struct
import unittest

from harness import EXAMPLES, DaemonTest, wait_until


def read_safetensors(path):
    """Reads a file as {name: (dtype, shape, bytes)}."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]])
            for name, t in header.items()}


def floats(tensor):
    kind = {"F32": "f", "F16": "e", "F64": "d"}[tensor[0]]
    return struct.unpack(f"<{math.prod(tensor[1])}{kind}", tensor[2])


def safetensors(tensors):
    """Returns the bytes of a safetensors file of {name: (dtype, shape, bytes)}."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values())


SPEC = """
name: {name}
dataset:
  path: {data}
  csv: {{header: false, target: c64, target_kind: class}}
model:
  mlp: {{hidden: {hidden}}}
recipe:
  epochs: {epochs}
  batch_size: 32
  seed: 3
  validation_split: 0.2
  optimizer: {{type: adam, learning_rate: {rate}}}
{recipe}"""


class Weights(DaemonTest):
    def spec(self, name, recipe="", data=EXAMPLES / "digits.csv.gz", hidden="[48, 32]", epochs=4, rate=0.003):
        return self.write(f"{name}.yaml", SPEC.format(name=name, data=data, hidden=hidden, epochs=epochs, rate=rate,
                                                      recipe=recipe))

    def train(self, name, *arguments, **options):
        self.daemon.cli("submit", self.spec(name, **options), "--watch", *arguments)
        return self.daemon.job(name)

    def export(self, name):
        self.daemon.cli("model", "export", name, "--out", self.folder / f"out-{name}")
        return read_safetensors(self.folder / f"out-{name}" / "model.safetensors")

    def digits(self, classes, name):
        """Returns a CSV with only the rows of these classes."""
        with gzip.open(EXAMPLES / "digits.csv.gz", "rt") as file:
            rows = [row for row in file if int(row.rsplit(",", 1)[1]) in classes]
        return self.write(name, "".join(rows))

    def test_a_file_with_other_types_and_names_initializes_a_job(self):
        self.train("source", epochs=8)
        ours = self.export("source")
        # Weights in another program's style: a prefix, half and double precision, counters and an
        # unused tensor.
        theirs = {"counter": ("I64", [1], struct.pack("<q", 7)), "net.spare": ("F32", [1], struct.pack("<f", 1))}
        for name, tensor in ours.items():
            kind, code = (("F64", "d") if name.startswith("fc1") else ("F16", "e"))
            theirs["net." + name] = (kind, tensor[1], struct.pack(f"<{math.prod(tensor[1])}{code}", *floats(tensor)))
        path = self.write("theirs.safetensors", safetensors(theirs))
        self.assertEqual(self.daemon.cli("model", "upload", path, "--name", "theirs").stdout.strip(), "theirs")
        self.assertEqual(self.daemon.cli("model", "upload", path, "--name", "theirs").stdout.strip(), "theirs")
        # Without a name, the same content is named by its digest.
        again = self.daemon.cli("model", "upload", path).stdout.strip()
        self.assertTrue(again.startswith("w-"), again)

        model = self.daemon.json("model", "get", "theirs")
        self.assertEqual(int(model["tensor_count"]), len(theirs))
        self.assertEqual({t["name"]: t["dtype"] for t in model["tensors"]}, {n: t[0] for n, t in theirs.items()})
        shown = self.daemon.cli("model", "get", "theirs").stdout
        self.assertRegex(shown, r"job: +none: weights only")
        self.assertRegex(shown, r"net\.fc2\.weight +F16 +\[32, 48\]")
        self.assertIn("weights only", self.daemon.cli("model", "list").stdout)

        weights = "  initial_weights: {model: theirs, rename: {net.: \"\"}}\n"
        plan = self.daemon.json("submit", self.spec("begins", recipe=weights), "--dry-run")["plan"]
        self.assertEqual(int(plan["initial_weights"]["taken"]["count"]), 6)
        self.assertEqual(plan["initial_weights"]["unused"]["names"], ["counter", "spare"])
        job = self.train("begins", "--set", "recipe.epochs=", "--set", "recipe.steps=1", "--set",
                         "recipe.optimizer.learning_rate=1e-12", recipe=weights)
        self.assertEqual(int(job["plan"]["initial_weights"]["taken"]["count"]), 6)
        begun = self.export("begins")
        for name, tensor in ours.items():
            # Half precision has 11 significant bits.
            bound = 1e-7 if name.startswith("fc1") else 1e-3
            for a, b in zip(floats(tensor), floats(begun[name])):
                self.assertAlmostEqual(a, b, delta=bound * max(1, abs(a)))

        # Exporting returns the file's tensors, in an order in which they can be mapped, and no predictions.
        self.daemon.cli("model", "export", "theirs", "--out", self.folder / "out-theirs")
        self.assertEqual(read_safetensors(self.folder / "out-theirs/model.safetensors"), read_safetensors(path))
        self.assertFalse((self.folder / "out-theirs/model.json").exists())
        rows = self.write("rows.csv", ",".join(["0"] * 64) + "\n")
        self.assert_refused(self.daemon.cli("predict", "theirs", "--csv", rows, check=False), 5, "weights only")
        self.assert_refused(self.daemon.cli("model", "export", "theirs", "--format", "onnx", "--out",
                                            self.folder / "no.onnx", check=False), 5, "weights only")

        # The content is stored once, and deleted with the last model that uses it.
        digest = model["digest"]
        stored = self.daemon.state / "uploads" / digest
        self.assertTrue(stored.exists())
        self.daemon.cli("model", "delete", "theirs", "--yes")
        self.assertTrue(stored.exists())
        self.daemon.cli("model", "delete", again, "--yes")
        self.assertFalse(stored.exists())
        self.assertEqual(self.daemon.cli("model", "upload", path, "--name", "theirs").stdout.strip(), "theirs")

    def test_a_spec_names_a_file_and_local_run_reads_it(self):
        self.train("for-file", epochs=2)
        self.export("for-file")
        recipe = "  initial_weights: {path: out-for-file/model.safetensors}\n"
        job = self.train("of-file", recipe=recipe)
        self.assertTrue(job["spec"]["recipe"]["initial_weights"]["model"].startswith("w-"))
        self.assertEqual(int(job["plan"]["initial_weights"]["taken"]["count"]), 6)
        done = self.daemon.cli("local", "run", self.spec("local-file", recipe=recipe), "--set", "recipe.epochs=1")
        self.assertIn("6 loaded", done.stderr)
        plan = json.loads(self.daemon.cli("plan", self.spec("local-file", recipe=recipe), "-o", "json").stdout)
        self.assertEqual(int(plan["run"]["initial_weights"]["taken"]["count"]), 6)

    def test_mismatched_weights_are_refused_at_once(self):
        good = {"fc1.weight": ("F32", [2, 2], b"\0" * 16)}
        bad = safetensors(good)
        lies = self.write("lies.safetensors", bad.replace(b"[0, 16]", b"[0, 12]"))
        self.assert_refused(self.daemon.cli("model", "upload", lies, "--name", "lies", check=False), 2, "fc1.weight",
                            "MODEL_FILE_INVALID")
        text = self.write("text.safetensors", "not a file of tensors at all")
        self.assert_refused(self.daemon.cli("model", "upload", text, check=False), 2, "header")
        self.assert_refused(self.daemon.cli("model", "upload", self.folder / "none", check=False), 4, "no such file")
        other = self.write("other.safetensors", bad)
        self.daemon.cli("model", "upload", other, "--name", "other-weights")
        more = self.write("more.safetensors", safetensors({"odd": ("F32", [1], b"\0" * 4)}))
        self.assert_refused(self.daemon.cli("model", "upload", more, "--name", "other-weights", check=False), 5,
                            "other content")
        self.daemon.cli("model", "upload", more, "--name", "odd-weights")

        def refused(recipe, *words):
            done = self.daemon.cli("submit", self.spec("refused", recipe=f"  initial_weights: {recipe}\n"), check=False)
            self.assertNotEqual(done.returncode, 0)
            for word in words:
                self.assertIn(word, done.stderr)

        refused("{model: other-weights}", "fc1.weight [2, 2] where [48, 64] is needed", "skip_mismatched",
                "refused.yaml:14:3: recipe.initial_weights")
        refused("{model: odd-weights}", "no tensor of odd-weights has a name and shape of this model", "it has odd")
        refused("{job: odd-weights}", "use model: odd-weights")
        refused("{model: nowhere-to-be}", "there is no model nowhere-to-be")
        refused("{model: odd-weights, rename: {nett.: x}}", "is not a prefix of any name in odd-weights; there are odd")
        refused("{model: odd-weights, path: a.safetensors}", "several sources")
        refused("{}", "does not name a source")
        refused("{path: nowhere.safetensors}", "no such file")

    def test_a_model_that_a_job_needs_cannot_be_deleted(self):
        self.train("needed", epochs=1)
        self.daemon.cli("submit", self.spec("needs", recipe="  initial_weights: {job: needed}\n", epochs=100000))
        self.assert_refused(self.daemon.cli("model", "delete", "needed", "--yes", check=False), 5, "needs",
                            "MODEL_IN_USE")
        self.daemon.cli("cancel", "needs")
        wait_until(lambda: self.daemon.job("needs")["state"] == "CANCELLED", "the job is cancelled")
        self.daemon.cli("model", "delete", "needed", "--yes")

    def test_a_job_resumes_without_its_initial_model(self):
        self.train("first-base", epochs=1)
        recipe = "  initial_weights: {job: first-base}\n  checkpoint_every_steps: 40\n"
        self.daemon.cli("submit", self.spec("orphan", recipe=recipe, epochs=100000))
        wait_until(lambda: int(self.daemon.job("orphan").get("checkpoint_step", 0)) > 0, "it has a checkpoint")
        self.daemon.cli("cancel", "orphan")
        wait_until(lambda: self.daemon.job("orphan")["state"] == "CANCELLED", "the job is cancelled")
        self.daemon.cli("model", "delete", "first-base", "--yes")
        self.daemon.cli("retry", "orphan", "--name", "orphan-2")
        wait_until(lambda: self.daemon.job("orphan-2")["state"] == "RUNNING", "the retry runs")
        retried = self.daemon.job("orphan-2")
        self.assertGreater(int(retried["origin"]["step"]), 0)
        self.assertEqual(int(retried["plan"]["initial_weights"]["taken"]["count"]), 6, "what its parent took")
        self.daemon.cli("cancel", "orphan-2")
        epochs = int(retried["origin"]["step"]) // int(retried["plan"]["steps_per_epoch"]) + 2
        self.daemon.cli("fork", "orphan", "--set", f"recipe.epochs={epochs}", "--name", "orphan-3", "--wait")
        self.assertEqual(self.daemon.job("orphan-3")["state"], "SUCCEEDED")
        from_start = self.daemon.cli("retry", "orphan", "--from-start", check=False)
        self.assert_refused(from_start, 4, "recipe.initial_weights.job", "first-base", "MODEL_NOT_FOUND")

    def test_a_trunk_learned_on_five_digits_learns_all_ten(self):
        self.train("digits-0-4", data=self.digits(range(5), "five.csv"), epochs=15)
        recipe = """  initial_weights: {job: digits-0-4, exclude: ["fc3.*"]}
  parameter_groups:
    - {match: "fc1.*", freeze: true}
    - {match: "fc2.*", freeze: true}
"""
        job = self.train("digits-0-9", recipe=recipe, epochs=25, rate=0.01)
        report = job["plan"]["initial_weights"]
        self.assertEqual(report["left_out"]["names"], ["fc3.weight", "fc3.bias"])
        self.assertEqual(int(job["plan"]["trained_parameter_count"]), 32 * 10 + 10)
        self.assertGreater(job["progress"]["metrics"]["val/accuracy"], 0.85)
        before, after = self.export("digits-0-4"), self.export("digits-0-9")
        for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"):
            self.assertEqual(before[name], after[name], name)
        self.assertEqual(after["fc3.weight"][1], [10, 32])
        self.assertRegex(self.daemon.cli("get", "digits-0-9").stdout, r"parameters: +5,018, 330 trained")
        # If no new head is requested, the refusal names the head's weight and its shape.
        done = self.daemon.cli("submit", self.spec("no-head", recipe="  initial_weights: {job: digits-0-4}\n"),
                               check=False)
        self.assertIn("fc3.weight [5, 32] where [10, 32] is needed", done.stderr)

    def test_low_rank_additions_are_merged_into_the_exported_model(self):
        self.train("lora-base", data=self.digits(range(5), "five.csv"), epochs=15)
        recipe = """  initial_weights: {job: lora-base, exclude: ["fc3.*"]}
  lora: {rank: 8, alpha: 16, dropout: 0.05, targets: [fc1, fc2]}
  parameter_groups:
    - {match: "fc3.*", freeze: false}
"""
        job = self.train("lora-tuned", recipe=recipe, epochs=30, rate=0.01)
        self.assertEqual(int(job["plan"]["trained_parameter_count"]), 8 * (64 + 48 + 48 + 32) + 330)
        self.assertEqual(int(job["plan"]["parameter_count"]), 5018)
        full = self.daemon.json("submit", self.spec("lora-full", recipe="  initial_weights: {job: lora-base, exclude: "
                                                    "[\"fc3.*\"]}\n"), "--dry-run")["plan"]
        optimizer = lambda plan: int(plan["memory"]["optimizer_bytes"])
        self.assertLess(optimizer(job["plan"]), optimizer(full))
        self.assertGreater(job["progress"]["metrics"]["val/accuracy"], 0.93)

        base, tuned = self.export("lora-base"), self.export("lora-tuned")
        self.assertEqual(set(tuned), set(base))  # plain weights with the usual names
        self.assertEqual(tuned["fc1.bias"], base["fc1.bias"])
        adapter = read_safetensors(self.folder / "out-lora-tuned/adapter_model.safetensors")
        config = json.loads((self.folder / "out-lora-tuned/adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], config["target_modules"]), (8, 16, ["fc1", "fc2"]))
        for layer, (outputs, inputs) in {"fc1": (48, 64), "fc2": (32, 48)}.items():
            a = floats(adapter[f"base_model.model.{layer}.lora_A.weight"])
            b = floats(adapter[f"base_model.model.{layer}.lora_B.weight"])
            w, merged = floats(base[f"{layer}.weight"]), floats(tuned[f"{layer}.weight"])
            for o in range(0, outputs, 7):
                for i in range(0, inputs, 5):
                    added = 2 * sum(b[o * 8 + r] * a[r * inputs + i] for r in range(8))
                    self.assertAlmostEqual(merged[o * inputs + i], w[o * inputs + i] + added, delta=1e-6)
        # The merged model predicts as well as the unmerged one was measured to.
        with gzip.open(EXAMPLES / "digits.csv.gz", "rt") as file:
            lines = file.read().splitlines()
        rows = self.write("all.csv", "\n".join(line.rsplit(",", 1)[0] for line in lines) + "\n")
        answer = self.daemon.json("predict", "lora-tuned", "--csv", rows)["predictions"]
        right = sum(p["label"] == line.rsplit(",", 1)[1] for p, line in zip(answer, lines))
        self.assertGreater(right / len(lines), 0.93)
        # It is a normal model: a job that starts from it continues where the unmerged model ended.
        after = self.train("after-lora", "--set", "recipe.epochs=", "--set", "recipe.steps=1",
                           recipe="  initial_weights: {job: lora-tuned}\n", rate="1e-30")
        self.assertEqual(int(after["plan"]["initial_weights"]["taken"]["count"]), 6)
        ended, begun = (j["progress"]["metrics"]["val/loss"] for j in (job, after))
        self.assertLess(abs(ended - begun), 1e-6 * ended)

    def test_impossible_lora_is_refused(self):
        def refused(lora, *words, groups=""):
            done = self.daemon.cli("submit", self.spec("no-lora", recipe=f"  lora: {lora}\n{groups}"), check=False)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)

        refused("{targets: [fc1]}", "recipe.lora.rank", "missing or 0")
        refused("{rank: 4}", "recipe.lora.targets", "is missing")
        refused("{rank: -4, targets: [fc1]}", "recipe.lora.rank: -4 is out of range, expected 1..1024")
        refused("{rank: 4, alpha: 0, targets: [fc1]}", "recipe.lora.alpha")
        refused("{rank: 4, dropout: 1, targets: [fc1]}", "recipe.lora.dropout")
        refused("{rank: 4, targets: [fc1, fcc2]}", "recipe.lora.targets[1]: 'fcc2' matches no gemm or linear layer",
                "did you mean 'fc2'")
        refused("{rank: 33, targets: [fc2]}", "larger than the smaller side of fc2.weight [32, 48], expected 1..32")
        refused("{rank: 4, targets: [fc1]}", "fc1.weight is the weight of a target",
                groups="  parameter_groups:\n    - {match: \"fc1.*\", freeze: false}\n")
        refused("{rank: 4, targets: [fc1]}", "has no effect with recipe.lora",
                groups="  parameter_groups:\n    - {match: \"fc2.*\", freeze: true}\n")


if __name__ == "__main__":
    unittest.main()
