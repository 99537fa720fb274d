"""Tests of images through the service: a folder is uploaded, trained on and predicted. They fail if
any step does not support image files: packing, ingest, schema, plan, training, predict."""

import json
import random
import struct
import tarfile
import unittest
import zlib

from harness import DaemonTest


def grey_file(lines, width, bits):
    """Returns a gray PNG file with these lines of samples."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, len(lines), bits, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + line for line in lines))) + chunk(b"IEND", b""))


def png(shade, height=8, width=8):
    """Returns a grey image whose left half is bright and whose right half has this shade."""
    return grey_file([b"\xf0" * (width // 2) + bytes([shade]) * (width - width // 2)] * height, width, 8)


def deep_png(mean, seed):
    """Returns a gray image of 16 bits with samples around this mean."""
    draw = random.Random(seed)
    return grey_file([struct.pack(">8H", *(min(4095, max(0, round(draw.gauss(mean, 20)))) for _ in range(8)))
                      for _ in range(8)], 8, 16)


SPEC = """
name: shades-mlp
dataset:
  name: shades
  path: pictures
  images: {size: [8, 8], resize: stretch}
model:
  mlp: {hidden: [8]}
recipe:
  epochs: 12
  batch_size: 8
  optimizer: {type: adam, learning_rate: 0.02}
"""


class Images(DaemonTest):
    def pictures(self, folder="pictures"):
        root = self.folder / folder
        for part, count in (("train", 24), ("test", 4)):
            for i in range(count):
                name = ("dark", "light")[i % 2]
                path = root / part / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(png((20, 220)[i % 2] + i, *((8, 8) if i % 3 else (12, 10))))
        (root / "README.txt").write_text("two shades\n")
        return root

    def test_a_folder_is_trained_on_and_pictures_are_predicted(self):
        root = self.pictures()
        spec = self.write("shades.yaml", SPEC)
        self.daemon.cli("submit", spec, "--watch")
        self.assertEqual(self.daemon.job("shades-mlp")["progress"]["metrics"]["test/accuracy"], 1)
        dataset = self.daemon.json("dataset", "get", "shades")
        self.assertEqual(dataset["schema"]["classes"], ["dark", "light"])
        self.assertEqual(dataset["schema"]["image"], [1, 8, 8])
        self.assertEqual(dataset["schema"]["resize"], "STRETCH")
        shown = self.daemon.cli("dataset", "get", "shades").stdout
        self.assertIn("1 x 8 x 8, stretched", shown)
        self.assertIn("1 file that is not an image or has no label", shown)

        dark, light = root / "test/dark/0.png", root / "test/light/1.png"
        answer = self.daemon.json("predict", "shades-mlp", "--images", str(light), str(dark))
        self.assertEqual([p["label"] for p in answer["predictions"]], ["light", "dark"])
        self.assertEqual([p["file"] for p in answer["predictions"]], [str(light), str(dark)])
        lines = self.daemon.cli("predict", "shades-mlp", "--images", str(root / "test"), "-o", "jsonl").stdout
        self.assertTrue(all(f"/{p['label']}/" in p["file"] for p in json.loads(lines)["predictions"]), lines)
        self.assertRegex(self.daemon.cli("predict", "shades-mlp", "--images", str(dark), "-o", "yaml").stdout,
                         r'predictions:\n *- file: "\S+dark/0.png"\n')
        table = self.daemon.cli("predict", "shades-mlp", "--images", str(root / "test")).stdout
        self.assertRegex(table, r"dark/0\.png +dark")
        self.assertEqual(len(table.splitlines()), 5)
        csv = self.daemon.cli("predict", "shades-mlp", "--images", str(dark), "-o", "csv").stdout
        self.assertTrue(csv.startswith("file,prediction,p_dark,p_light\n"))
        text = self.write("text.png", "hello")
        done = self.daemon.cli("predict", "shades-mlp", "--images", text, check=False)
        self.assert_refused(done, done.returncode, "text.png", "neither a JPEG nor a PNG")
        self.assertNotEqual(done.returncode, 0)

        local = self.daemon.cli("local", "run", spec, "-o", "json")
        self.assertIn("test/accuracy", local.stdout)

    def test_a_folder_and_its_archive_hold_the_same_images(self):
        root = self.pictures("others")
        by_folder = self.daemon.json("dataset", "upload", "--images", str(root), "--size", "8,8", "--name", "folder")
        with tarfile.open(self.folder / "pictures.tar.xz", "w:xz") as archive:
            archive.add(root, "pictures")
        by_tar = self.daemon.json("dataset", "upload", "--images", str(self.folder / "pictures.tar.xz"), "--size", "8,8")
        self.assertEqual(by_folder["schema"], by_tar["schema"])
        again = self.daemon.json("dataset", "upload", "--images", str(root), "--size", "8,8")
        self.assertEqual(again["digest"], by_folder["digest"])

        (root / "train/dark/cut.png").write_bytes(png(1)[:-20])
        done = self.daemon.cli("dataset", "upload", "--images", str(root), "--size", "8,8", check=False)
        self.assert_refused(done, done.returncode, "train/dark/cut.png", "cut short")
        done = self.daemon.cli("dataset", "upload", "--images", str(root / "test"), check=False)
        self.assert_refused(done, done.returncode, "images.size")

    def test_all_damaged_images_are_named_or_left_out(self):
        root = self.pictures("damaged")
        upload = ("dataset", "upload", "--images", str(root), "--size", "8,8", "--name", "damaged")
        (root / "train/dark/0.png").write_bytes(png(1)[:-20])
        (root / "train/dark/empty.png").write_bytes(b"")
        (root / "test/light/page.jpg").write_text("<html>Not found</html>")
        done = self.daemon.cli(*upload, check=False)
        self.assert_refused(done, done.returncode, "test/light/page.jpg", "an HTML page", "the first of 3 damaged images",
                            "train/dark/0.png", "cut short", "train/dark/empty.png", "the file is empty", "damaged: skip")
        told = self.daemon.cli(*upload, "--damaged", "skip").stderr
        self.assertIn("3 files are left out (damaged): 'test/light/page.jpg' (its content is an HTML page", told)
        schema = self.daemon.json("dataset", "get", "damaged")["schema"]
        self.assertEqual([int(schema[key]) for key in ("train_rows", "test_rows", "skipped_files")], [23, 4, 4])

    def test_gray_images_of_16_bits_keep_their_depth(self):
        root = self.folder / "deep"
        for i in range(48):
            path = root / ("train", "test")[i // 40] / ("low", "high")[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(deep_png((1000, 1100)[i % 2], i))  # their high bytes are almost always equal
        spec = self.write("deep.yaml", SPEC.replace("shades", "deep").replace("pictures", "deep"))
        self.daemon.cli("submit", spec, "--watch")
        self.assertEqual(self.daemon.job("deep-mlp")["progress"]["metrics"]["test/accuracy"], 1)
        files = sorted(str(path) for path in root.glob("test/*/*.png"))
        answer = self.daemon.json("predict", "deep-mlp", "--images", *files)
        self.assertTrue(all(f"/{p['label']}/" in p["file"] for p in answer["predictions"]), answer)
        self.daemon.cli("model", "export", "deep-mlp", "--format", "onnx", "--out", self.folder / "deep.onnx")
        content = (self.folder / "deep.onnx").read_bytes()
        for fact in (b'"bits":16', b'"resize":"stretch"', b'"filter":"bilinear, antialiased"', b'"mean":['):
            self.assertIn(fact, content)


if __name__ == "__main__":
    unittest.main()
