"""Tests of other tools' file formats through the service: files are uploaded, trained on and
predicted. They fail if any step does not support a format: packing, roles, ingest, schema, plan,
training, predict."""

import gzip
import io
import json
import struct
import tarfile
import unittest
import zipfile

from harness import DaemonTest

RECIPE = """
model:
  mlp: {hidden: [8]}
recipe:
  epochs: 25
  batch_size: 8
  optimizer: {type: adam, learning_rate: 0.03}
"""


def npy(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def floats(values, shape):
    return npy("<f4", shape, struct.pack(f"<{len(values)}f", *values))


def npz(**arrays):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            archive.writestr(name + ".npy", array)
    return out.getvalue()


def rows(count):
    """Returns rows of two columns, and a class that says whether the first is larger."""
    pairs = [(i * 7 % 11 / 11, i * 5 % 13 / 13) for i in range(count)]
    return pairs, [int(a > b) for a, b in pairs]


class Formats(DaemonTest):
    def test_arrays_of_one_file_and_of_several_are_trained_on(self):
        pairs, classes = rows(120)
        x = floats([v for pair in pairs for v in pair], "(120, 2)")
        y = npy("|b1", "(120,)", bytes(classes))
        (self.folder / "pairs.npz").write_bytes(npz(x=x, y=y))
        (self.folder / "x.npy").write_bytes(x)
        (self.folder / "y.npy").write_bytes(y)
        spec = self.write("npz.yaml", """
name: pairs-npz
dataset:
  name: pairs
  path: pairs.npz
  arrays: {inputs: x, targets: y, test_share: 0.25, seed: 3}
""" + RECIPE)
        self.daemon.cli("submit", spec, "--watch")
        self.assertGreater(self.daemon.job("pairs-npz")["progress"]["metrics"]["test/accuracy"], 0.9)
        schema = self.daemon.json("dataset", "get", "pairs")["schema"]
        self.assertEqual(schema["classes"], ["false", "true"])
        self.assertEqual(int(schema["test_rows"]), 30)
        self.assertEqual([c["name"] for c in schema["columns"]], ["c0", "c1"])

        (self.folder / "new.npy").write_bytes(floats([0.9, 0.1, 0.1, 0.9], "(2, 2)"))
        by_array = self.daemon.json("predict", "pairs-npz", "--npy", self.folder / "new.npy")
        self.assertEqual([p["label"] for p in by_array["predictions"]], ["true", "false"])
        by_csv = self.daemon.json("predict", "pairs-npz", "--csv", self.write("new.csv", "c1,c0\n0.1,0.9\n0.9,0.1\n"))
        self.assertEqual(by_array["predictions"], by_csv["predictions"])

        self.daemon.cli("dataset", "upload", "--inputs", self.folder / "x.npy", "--targets", self.folder / "y.npy",
                        "--test-share", "0.25", "--seed", "3", "--name", "files")
        self.assertEqual(self.daemon.json("dataset", "get", "files")["schema"], schema)
        local = self.daemon.cli("local", "run", self.write("npy.yaml", """
dataset: {inputs: x.npy, targets: y.npy}
""" + RECIPE), "-o", "json")
        self.assertIn("train/loss", local.stdout)

        (self.folder / "cut.npz").write_bytes(npz(inputs=x[:-1], targets=y))
        done = self.daemon.cli("dataset", "upload", "--arrays", self.folder / "cut.npz", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cut.npz: array 'inputs': the header promises [120, 2], 960 bytes, but there are only 959", done.stderr)

    def test_images_of_bytes_are_predicted_as_an_array(self):
        shades = bytes(v for i in range(40) for v in [20 + i if i % 2 else 200 + i] * 4)
        (self.folder / "images.npy").write_bytes(npy("|u1", "(40, 2, 2)", shades))
        (self.folder / "names.npy").write_bytes(npy("|S5", "(40, 1)", b"".join(
            (b"dark\0" if i % 2 else b"light") for i in range(40))))
        spec = self.write("images.yaml", """
name: shades-npy
dataset: {name: shades, inputs: images.npy, targets: names.npy}
""" + RECIPE)
        self.daemon.cli("submit", spec, "--watch")
        schema = self.daemon.json("dataset", "get", "shades")["schema"]
        self.assertEqual(schema["image"], [1, 2, 2])
        answer = self.daemon.json("predict", "shades-npy", "--npy", self.folder / "images.npy")
        self.assertEqual([p["label"] for p in answer["predictions"]][:4], ["light", "dark"] * 2)

    def test_json_lines_with_dates_are_trained_on_and_predicted(self):
        def order(i):
            day = i * 11 % 28 + 1
            hour = i * 5 % 24
            return {"when": f"2026-02-{day:02}T{hour:02}:30:00+00:00", "shop": ("north", "south")[i % 2],
                    "size": i % 9 if i % 10 else None, "paid": hour >= 12}
        lines = "".join(json.dumps(order(i)) + "\n" for i in range(240)).encode()
        (self.folder / "orders.jsonl.gz").write_bytes(gzip.compress(lines))
        spec = self.write("orders.yaml", """
name: orders-mlp
dataset:
  name: orders
  path: orders.jsonl.gz
  jsonl: {target: paid, date: [when]}
""" + RECIPE)
        self.daemon.cli("submit", spec, "--watch", "--set", "recipe.validation_split=0.25")
        self.assertGreater(self.daemon.job("orders-mlp")["progress"]["metrics"]["val/accuracy"], 0.9)
        schema = self.daemon.json("dataset", "get", "orders")["schema"]
        self.assertEqual(schema["classes"], ["false", "true"])
        dates = [c["name"] for c in schema["columns"] if c.get("date")]
        self.assertEqual(dates, ["when.days", "when.year_sin", "when.year_cos", "when.week_sin", "when.week_cos",
                                 "when.day_sin", "when.day_cos"])
        self.assertRegex(self.daemon.cli("dataset", "get", "orders").stdout, r"when\.days +date +0")
        new = self.write("new.jsonl", '{"size": 3, "when": "2026-02-05T20:30"}\n'
                                      '{"when": "2026-02-05T07:30:00+02:00", "shop": "south", "size": null}\n')
        answer = self.daemon.json("predict", "orders-mlp", "--jsonl", new)
        self.assertEqual([p["label"] for p in answer["predictions"]], ["true", "false"])
        csv = self.write("new.csv", "when,shop,size\n2026-02-05T20:30,,3\n2026-02-05T07:30:00+02:00,south,\n")
        self.assertEqual(self.daemon.json("predict", "orders-mlp", "--csv", csv)["predictions"], answer["predictions"])
        bad = self.write("bad.jsonl", '{"a": 1, "y": 2}\n{"a": {}, "y": 3}\n')
        done = self.daemon.cli("dataset", "upload", "--jsonl", bad, "--target", "y", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("bad.jsonl: line 2, member 'a': an object or a list", done.stderr)

    def test_a_tsv_is_separated_by_tabs(self):
        table = self.write("t.tsv", "a\tb\ty\n" + "".join(f"{i}\tx, y\t{i % 2}\n" for i in range(20)))
        self.daemon.cli("dataset", "upload", "--csv", table, "--target", "y", "--name", "tabs")
        schema = self.daemon.json("dataset", "get", "tabs")["schema"]
        self.assertEqual([c["name"] for c in schema["columns"]], ["a", "b"])
        self.assertEqual(schema["columns"][1]["categories"], ["x, y"])

    def test_text_files_are_classified_and_a_folder_is_one_text(self):
        root = self.folder / "reviews"
        for part, count in (("train", 40), ("test", 8)):
            for i in range(count):
                path = root / part / ("bad", "good")[i % 2] / f"{i}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"A {('dull', 'fine')[i % 2]} film, number {i}.\n")
        (root / "notes.md").write_text("not a review\n")
        spec = self.write("reviews.yaml", """
name: reviews-bag
dataset:
  name: reviews
  path: reviews
  text_files: {max_length: 6}
model:
  embedding_bag_classifier: {embedding_dim: 8}
recipe:
  epochs: 20
  batch_size: 8
  optimizer: {type: adam, learning_rate: 0.05}
""")
        self.daemon.cli("submit", spec, "--watch")
        self.assertEqual(self.daemon.job("reviews-bag")["progress"]["metrics"]["test/accuracy"], 1)
        schema = self.daemon.json("dataset", "get", "reviews")["schema"]
        self.assertEqual((schema["classes"], int(schema["train_rows"]), int(schema["test_rows"])), (["bad", "good"], 40, 8))
        self.assertIn("1 file that is not text or has no label", self.daemon.cli("dataset", "get", "reviews").stdout)
        answer = self.daemon.json("predict", "reviews-bag", "--text", self.write("two.txt", "so dull\nso fine\n"))
        self.assertEqual([p["label"] for p in answer["predictions"]], ["bad", "good"])
        with tarfile.open(self.folder / "reviews.tar.gz", "w:gz") as archive:
            archive.add(root, "reviews")
        self.daemon.cli("dataset", "upload", "--text-files", self.folder / "reviews.tar.gz", "--max-length", "6",
                        "--name", "packed")
        self.assertEqual(self.daemon.json("dataset", "get", "packed")["schema"], schema)

        self.daemon.cli("dataset", "upload", "--text", root, "--name", "joined")
        joined = self.daemon.json("dataset", "get", "joined")["schema"]
        texts = sorted((p.relative_to(root).as_posix(), p.read_text()) for p in root.rglob("*.txt"))
        self.assertEqual(int(joined["train_rows"]), sum(len(text) for _, text in texts))
        lines = self.write("texts.jsonl", '{"id": [1], "body": "first"}\n{"body": "second"}\n')
        self.daemon.cli("dataset", "upload", "--text", lines, "--field", "body", "--name", "bodies")
        self.assertEqual(int(self.daemon.json("dataset", "get", "bodies")["schema"]["train_rows"]), len("first") + len("second") + 2)


if __name__ == "__main__":
    unittest.main()
