"""Tests of datasets from files on the server: which paths are allowed, which are refused, and files
that change while they are read."""

import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import unittest
import zlib

from harness import BIN, EXAMPLES, PATIENCE_S, Daemon, DaemonTest, wait_until

ROWS = "size,colour,kind\n" + "".join(f"{i},{'red' if i % 2 else 'blue'},{'a' if i % 2 else 'b'}\n" for i in range(40))


def png(grey):
    """Returns a grey image of 4 x 4 pixels."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes([grey]) * 4 for _ in range(4))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class ServerPath(DaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-root-"))
        cls.arguments = ("--ingest-root", str(cls.root))
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        shutil.rmtree(cls.root, ignore_errors=True)

    def put(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def upload(self, *arguments, check=True):
        return self.daemon.cli("dataset", "upload", "--on-server", *arguments, check=check)

    def test_a_file_is_the_same_dataset_as_its_upload(self):
        path = self.put("rows.csv", ROWS)
        self.upload("--csv", path, "--target", "kind", "--name", "rows-there")
        self.daemon.cli("dataset", "upload", "--csv", path, "--target", "kind", "--name", "rows-here")
        there, here = (self.daemon.json("dataset", "get", name) for name in ("rows-there", "rows-here"))
        self.assertEqual(there["digest"], here["digest"])
        self.assertEqual(there["spec"]["sources"][0]["server_path"], str(path))
        self.assertEqual(int(there["schema"]["train_rows"]), 40)
        self.assertIn(str(path), self.daemon.cli("dataset", "get", "rows-there").stdout)
        self.assertEqual(len(list((self.daemon.state / "datasets").iterdir())) -
                         len(list((self.daemon.state / "datasets").glob("*.tmp"))),
                         len({d["digest"] for d in self.daemon.json("dataset", "list")["datasets"]
                              if d["state"] == "READY"}))
        # The same file gives the same dataset, a changed one does not.
        self.upload("--csv", path, "--target", "kind", "--name", "rows-there")
        path.write_text(ROWS + "99,red,a\n")
        self.upload("--csv", path, "--target", "kind", "--name", "rows-then")
        self.assertNotEqual(self.daemon.json("dataset", "get", "rows-then")["digest"], there["digest"])

    def test_a_job_brings_a_folder_a_text_and_a_test_set(self):
        for i in range(6):
            self.put(f"photos/{'dark' if i % 2 else 'light'}/{i}.png", png(20 + i if i % 2 else 220 + i))
        spec = self.write("photos.yaml", f"""
name: photos
dataset: {{name: photos, server_path: {self.root}/photos, images: {{}}}}
model: {{mlp: {{hidden: [4]}}}}
recipe: {{epochs: 2, batch_size: 2, optimizer: {{type: sgd, learning_rate: 0.1}}}}
""")
        self.daemon.cli("submit", spec, "--watch")
        folder = self.daemon.json("dataset", "get", "photos")
        self.assertEqual(folder["schema"]["classes"], ["dark", "light"])
        # The client sends a folder as a tar, which gives the same content.
        self.daemon.cli("dataset", "upload", "--images", self.root / "photos", "--name", "photos-sent")
        self.assertEqual(self.daemon.json("dataset", "get", "photos-sent")["digest"], folder["digest"])
        self.put("a/train.txt", "abcd" * 50)
        self.put("a/test.txt", "abab")
        self.upload("--text", self.root / "a/train.txt", "--test", self.root / "a/test.txt", "--name", "letters")
        self.assertEqual(int(self.daemon.json("dataset", "get", "letters")["schema"]["test_rows"]), 4)
        shutil.copy(EXAMPLES / "digits.csv.gz", self.root / "digits.csv.gz")
        self.upload("--csv", self.root / "digits.csv.gz", "--no-header", "--target", "c64", "--image", "1,8,8")

    def test_files_outside_the_allowed_folders_are_refused(self):
        secret = self.write("secret.csv", ROWS)
        self.put("inside.csv", ROWS)
        os.symlink(secret, self.root / "link.csv")
        os.symlink(self.folder, self.root / "away")
        os.mkfifo(self.root / "pipe")
        self.put("tree/a/1.png", png(1))
        os.symlink(secret, self.root / "tree/a/2.png")
        sibling = pathlib.Path(str(self.root) + "-beside")
        for path in (secret, self.folder / "not-there.csv", f"{self.root}/../secret.csv", "relative.csv",
                     f"{self.root}/x/../../etc/passwd", sibling / "x.csv", "/"):
            done = self.upload("--csv", path, "--target", "kind", check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assert_refused(done, done.returncode, "not inside a folder that the server's operator allows",
                                "SERVER_PATH_OUTSIDE")
        for path, word in (("link.csv", "is a link"), ("away/secret.csv", "is a link"),
                           ("gone.csv", "SERVER_PATH_NOT_FOUND"), ("pipe", "neither a file nor a folder"),
                           ("inside.csv/x", "SERVER_PATH_NOT_FOUND")):
            done = self.upload("--csv", self.root / path, "--target", "kind", check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assert_refused(done, done.returncode, word)
            self.assertNotIn("/proc/self", done.stderr)
        done = self.upload("--images", self.root / "tree", check=False)
        self.assert_refused(done, 2, "is a link")
        done = self.upload("--csv", self.root / "tree", "--target", "kind", check=False)
        self.assertNotEqual(done.returncode, 0)
        spec = self.write("both.yaml", f"path: inside.csv\nserver_path: {self.root}/inside.csv\ncsv: {{target: kind}}\n")
        self.assert_refused(self.daemon.cli("dataset", "upload", spec, check=False), 2, "server_path")
        if os.geteuid() != 0:  # root can read every file
            path = self.put("closed.csv", ROWS)
            path.chmod(0)
            done = self.upload("--csv", path, "--target", "kind", check=False)
            self.assert_refused(done, done.returncode, "SERVER_PATH_UNREADABLE")

    def test_a_file_that_changes_before_it_is_read_is_refused(self):
        # Two ingests of server files run at a time. While two slow ones run, the third file can be
        # changed.
        words = random.Random(1)
        text = "".join(
            "".join(words.choice("abcdefghij") for _ in range(words.randint(2, 9))) + (" " if i % 12 else "\n")
            for i in range(25_000))
        rows = ROWS + "77,red,a\n"  # rows that no other dataset has
        path = self.put("moving.csv", rows)
        environment = dict(os.environ, TRAINYARD_SERVER=f"unix:{self.daemon.socket}")

        def begin(*arguments):
            return subprocess.Popen([BIN / "trainyard", "dataset", "upload", *map(str, arguments)], env=environment,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def state(name):
            done = self.daemon.cli("dataset", "get", name, "-o", "json", check=False)
            return json.loads(done.stdout)["state"] if done.returncode == 0 else None

        slow = {name: begin("--on-server", "--text", self.put(f"{name}.txt", name + " " + text), "--tokenizer", "unigram",
                            "--vocabulary-size", "2000", "--name", name) for name in ("slow", "slower")}
        for name in slow:
            wait_until(lambda: state(name) == "INGESTING", f"the ingest {name} runs")
        moving = begin("--on-server", "--csv", path, "--target", "kind", "--name", "moving")
        wait_until(lambda: state("moving") == "INGESTING", "the third one waits")
        for name in slow:
            self.assertEqual(state(name), "INGESTING")
        path.write_text(rows + "99,red,a\n")
        _, told = moving.communicate(timeout=PATIENCE_S)
        self.assertNotEqual(moving.returncode, 0)
        self.assertIn("has changed since the dataset was created", told)
        for process in slow.values():
            self.assertEqual(process.wait(120), 0)
            process.stdout.close()
            process.stderr.close()
        path.write_text(rows)  # restored, and read on the next request
        self.upload("--csv", path, "--target", "kind", "--name", "moving")
        self.assertEqual(state("moving"), "READY")

    def test_a_server_without_allowed_folders_says_so(self):
        path = self.put("closed.csv", ROWS)
        daemon = Daemon(self.folder / "closed").start()
        done = daemon.cli("dataset", "upload", "--on-server", "--csv", path, "--target", "kind", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assert_refused(done, done.returncode, "SERVER_PATH_DISABLED", "ingest_root")
        daemon.stop()

    def test_a_local_run_has_no_server(self):
        spec = self.write("local.yaml", f"""
dataset: {{server_path: {self.root}/x.csv, csv: {{target: kind}}}}
model: {{mlp: {{}}}}
recipe: {{epochs: 1, optimizer: {{type: sgd, learning_rate: 0.1}}}}
""")
        done = self.daemon.cli("local", "run", spec, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assert_refused(done, done.returncode, "server_path")


if __name__ == "__main__":
    unittest.main()
