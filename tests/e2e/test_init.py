"""Tests the two commands from a newcomer's own data to a trained model: `init` examines the data,
and submit and local run accept its job file unchanged. They fail if a reader of specs, a planner or
an ingest refuses a guess."""

import json
import math
import struct
import unittest
import zlib

from harness import DaemonTest

FEW = ("--set", "recipe.epochs=2")


def draws(count, seed=1):
    """Returns reproducible numbers in [0, 1) that look random."""
    return [(i * 7919 + seed * 104729) % 10007 / 10007 for i in range(count)]


def png(width, height, gray):
    """Returns a gray image of one shade."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes([gray]) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Init(DaemonTest):
    def init(self, path, *arguments):
        """Runs `init`. Returns its report on the data, and the job file."""
        told = self.daemon.cli("init", path, *arguments, "-o", "json", cwd=self.folder)
        answer = json.loads(told.stdout)
        return answer, self.folder / answer["file"]

    def trains(self, spec, *sets):
        """Trains with submit and with local run; only the number of epochs is changed."""
        job = self.daemon.submit(spec, *sets, "--wait")
        self.assertEqual(self.daemon.job(job)["state"], "SUCCEEDED")
        result = json.loads(self.daemon.cli("local", "run", spec, *sets, "-o", "json").stdout)
        self.assertIn("val/loss", result["metrics"])
        return self.daemon.job(job)

    def test_a_csv_of_classes(self):
        lines = ["id,width,port,born,species"]
        for i, (a, b) in enumerate(zip(draws(160), draws(160, 2))):
            species = "setosa" if a > 0.6 else "virginica" if b > 0.5 else "versicolor"
            lines.append(f"{i + 1},{a * 4 + b:.2f},{'CQS'[i % 3]},2026-0{i % 9 + 1}-1{i % 10},{species}")
        path = self.write("flowers.csv", "\n".join(lines) + "\n")
        answer, spec = self.init("flowers.csv")
        self.assertEqual((answer["target"], answer["rows"]), ("species", 160))
        self.assertEqual({c["name"]: c["use"] for c in answer["columns"]}, {
            "id": "left_out", "width": "learned_from", "port": "learned_from", "born": "learned_from",
            "species": "target"})
        job = self.trains(spec, *FEW)
        self.assertEqual((job["name"], job["spec"]["dataset"]["name"]),
                         ("projects/default/jobs/flowers", "projects/default/datasets/flowers@1"), "named as the file")
        self.assertIn("such as flowers-1", self.daemon.cli("submit", spec, check=False).stderr)
        # FEW epochs are too few for the moving average of the weights.
        self.assertEqual([w for w in job["plan"]["warnings"] if "recipe.ema.decay" not in w], [])

        told = self.daemon.cli("init", path, "--out", self.folder / "again.yaml")
        for words in ("a CSV file with 160 rows and 5 columns", "species, 3 classes", "--target chooses another",
                      "looks like an ID", "trainyard submit", "trainyard local run"):
            self.assertIn(words, told.stdout)
        self.assertEqual(told.stderr, "")
        self.assert_refused(self.daemon.cli("init", path, "--out", spec, check=False), 5, "flowers.yaml exists",
                            "--overwrite")
        self.daemon.cli("init", path, "--out", spec, "--overwrite", "--target", "width")
        self.assertIn("target: width", spec.read_text())

    def test_a_regression_separated_by_semicolons_with_missing_targets(self):
        rows = "".join(f"{a:.3f};{b:.3f};{'' if i % 20 == 3 else f'{3 * a - b:.3f}'}\n"
                       for i, (a, b) in enumerate(zip(draws(200), draws(1000, 3)[::5])))
        self.write("houses.csv", "rooms;age;price\n" + rows)
        answer, spec = self.init("houses.csv")
        self.assertEqual(answer["target"], "price")
        text = spec.read_text()
        for field in ("missing_target: skip", "target_kind: numeric", 'delimiter: ";"'):
            self.assertIn(field, text)
        job = self.trains(spec, "--set", "recipe.epochs=20")
        self.assertGreater(job["progress"]["metrics"]["val/r2"], 0.5)

    def test_tabs_and_json_lines(self):
        pairs = list(zip(draws(90), draws(90, 4)))
        self.write("tabs.tsv", "a\tb\tlabel\n" + "".join(f"{a}\t{b}\t{int(a > b)}\n" for a, b in pairs))
        self.trains(self.init("tabs.tsv")[1], *FEW)
        self.write("orders.jsonl", "".join(json.dumps({"size": a, "shop": "north" if b > 0.5 else "south",
                                                       "returned": a > 0.4}) + "\n" for a, b in pairs))
        answer, spec = self.init("orders.jsonl", "--name", "orders-first")
        self.assertEqual(answer["target"], "returned")
        self.assertEqual(self.trains(spec, *FEW)["name"].split("/")[-1], "orders-first")

    def test_images_in_class_folders(self):
        for i in range(40):
            shade = 60 + i if i % 2 else 190 + i
            self.write(f"photos/{('dark', 'light')[i % 2 == 0]}/{i}.png", png(20 + i % 3, 18, shade))
        answer, spec = self.init("photos")
        self.assertIn("40 images of 3 sizes", answer["found"])
        self.assertIn("size: [18, 18]", spec.read_text())
        self.trains(spec, "--set", "recipe.epochs=1")

    def test_text_of_each_kind(self):
        words = "the cat sat on a mat and looked at what the other cats did in the garden".split()
        self.write("book.txt", "".join(words[math.floor(x * len(words))] + (" ", "\n")[i % 9 == 0]
                                       for i, x in enumerate(draws(3000))))
        answer, spec = self.init("book.txt")
        self.assertEqual(answer["format"], "text")
        self.trains(spec, "--set", "recipe.steps=4", "--set", "recipe.evaluate_every_steps=2", "--set",
                    "recipe.schedule.warmup_steps=1")

        lines = ["label,message"]
        for i, x in enumerate(draws(120)):
            lines.append(("ham", "spam")[i % 2] + f",a {('dull', 'cheap')[i % 2]} note number {i} of "
                         f"the day about {words[math.floor(x * len(words))]} and more")
        self.write("messages.csv", "\n".join(lines) + "\n")
        answer, spec = self.init("messages.csv")
        self.assertIn("text: [message]", spec.read_text())
        self.trains(spec, *FEW)
        for i in range(30):
            self.write(f"reviews/{('bad', 'good')[i % 2]}/{i}.txt", f"A {('dull', 'fine')[i % 2]} film, number {i}.\n")
        self.trains(self.init("reviews")[1], *FEW)

    def test_arrays_with_inputs_and_targets(self):
        def npy(descr, shape, data):
            header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
            header += " " * (-(len(header) + 11) % 64) + "\n"
            return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data
        values = draws(180)
        self.write("x.npy", npy("<f4", "(60, 3)", struct.pack("<180f", *values)))
        self.write("y.npy", npy("|u1", "(60,)", bytes(int(values[3 * i] > 0.5) for i in range(60))))
        answer, spec = self.init("x.npy")
        self.assertIn("60 rows and 3 columns", answer["found"])
        self.trains(spec, *FEW)

    def test_unsupported_files_are_answered_with_help(self):
        def refused(path, exit_code, *words):
            self.assert_refused(self.daemon.cli("init", path, check=False, cwd=self.folder), exit_code, *words)
        refused("nowhere.csv", 4, "nowhere.csv: there is no such file or folder")
        self.write("zero.csv", b"")
        refused("zero.csv", 2, "zero.csv is empty (0 bytes)")
        self.write("t.parquet", b"PAR1\x15\x00\x15\x10PAR1")
        refused("t.parquet", 2, "Parquet", "pandas.read_parquet('t.parquet').to_csv('t.csv', index=False)")
        self.write("ragged.csv", "a,b,y\n1,2,3\n1,2\n" + "1,2,4\n" * 20)
        refused("ragged.csv", 2, "row 2 (line 3): 2 fields, expected 3 as in the header")
        self.write("typo.csv", "width,species\n1,a\n2,b\n")
        done = self.daemon.cli("init", self.folder / "typo.csv", "--target", "specis", check=False)
        self.assert_refused(done, 2, "--target: 'specis' is not a column", "did you mean 'species'?",
                            "The columns are 'width', 'species'")
        self.assertFalse((self.folder / "typo.yaml").exists())
        for command in (("submit",), ("plan",), ("local", "run")):
            self.assert_refused(self.daemon.cli(*command, self.folder / "typo.csv", check=False), 2,
                                "typo.csv is data, expected a job file", "trainyard init")


if __name__ == "__main__":
    unittest.main()
