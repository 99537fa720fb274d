"""Files of other tools through the service: what they hold is uploaded, trained on and predicted. Catches a step of the
way that does not know a format: packing, roles, ingest, schema, plan, training, predict."""

import io
import struct
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
    """Two columns, and whether the first is the larger."""
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
        self.assertIn("data: array 'inputs': the header promises [120, 2], 960 bytes, but there are only 959", done.stderr)

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
        self.assertEqual(schema["image"], ["1", "2", "2"])
        answer = self.daemon.json("predict", "shades-npy", "--npy", self.folder / "images.npy")
        self.assertEqual([p["label"] for p in answer["predictions"]][:4], ["light", "dark"] * 2)


if __name__ == "__main__":
    unittest.main()
