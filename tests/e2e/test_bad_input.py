"""Tests of all kinds of bad input: the message names the field, the exit code is right, and nothing
is lost."""

import gzip
import struct
import unittest

from harness import DaemonTest, digits_spec

IDX_SPEC = """name: idx
dataset:
  train_images: images
  train_labels: labels
model: {{mlp: {{hidden: [8]}}}}
recipe: {{epochs: 1, batch_size: 2, optimizer: {{learning_rate: 0.1}}}}
"""


class BadInput(DaemonTest):
    def tearDown(self):
        # Whatever was sent, the daemon must still reply.
        self.assertEqual(self.daemon.cli("health").returncode, 0)

    def submit(self, text, *arguments):
        return self.daemon.cli("submit", self.write("job.yaml", text), *arguments, check=False)

    def changed(self, old, new):
        text = digits_spec(self.folder, "bad-input").read_text()
        self.assertIn(old, text)
        return text.replace(old, new)

    def csv(self, content, target="y", rows="a,b,y\n"):
        self.write("table.csv", rows + content)
        return self.submit(f"""name: table
dataset:
  path: table.csv
  csv: {{target: {target}}}
model: {{mlp: {{hidden: [4]}}}}
recipe: {{epochs: 1, batch_size: 1, optimizer: {{learning_rate: 0.1}}}}
""")

    def test_unknown_field_names_line_and_nearest(self):
        done = self.submit(self.changed("batch_size: 50", "batchsize: 50"))
        self.assert_refused(done, 2, "batchsize", "batch_size", "job.yaml:")

    def test_wrong_type(self):
        self.assert_refused(self.submit(self.changed("batch_size: 50", "batch_size: many")), 2, "batch_size", "many")

    def test_field_given_twice(self):
        self.assert_refused(self.submit(self.changed("seed: 7", "seed: 7\n  seed: 8")), 2, "seed")

    def test_missing_dataset(self):
        done = self.submit("""name: none
dataset: {name: no-such-data}
model: {mlp: {hidden: [4]}}
recipe: {epochs: 1, optimizer: {learning_rate: 0.1}}
""")
        self.assert_refused(done, 4, "no-such-data", "DATASET_NOT_FOUND")

    def test_missing_file(self):
        self.assert_refused(self.submit(self.changed("digits.csv.gz", "no.csv.gz")), 4, "no.csv.gz")

    def test_target_column_missing(self):
        self.assert_refused(self.csv("1,2,x\n3,4,y\n", target="label"), 2, "label")

    def test_ragged_rows_are_named(self):
        self.assert_refused(self.csv("1,2,p\n3,4\n5,6,q\n"), 2, "3")

    def test_bad_numbers_and_empty_files(self):
        self.assert_refused(self.csv("", rows=""), 2)
        self.assert_refused(self.csv(""), 2)
        self.assert_refused(self.csv("1,inf,p\n2,3,q\n"), 2)

    def test_a_line_of_64_mib_is_refused_without_taking_memory(self):
        with open(self.folder / "table.csv", "wb") as file:
            file.write(b"a,b,y\n1,2,p\n")
            for _ in range(64):
                file.write(b"7" * (1 << 20))
            file.write(b"\n")
        done = self.submit("""name: table
dataset: {path: table.csv, csv: {target: y}}
model: {mlp: {hidden: [4]}}
recipe: {epochs: 1, batch_size: 1, optimizer: {learning_rate: 0.1}}
""")
        self.assert_refused(done, 2, "line")

    def idx(self, images, labels):
        self.write("images", images)
        self.write("labels", labels)
        return self.submit(IDX_SPEC.format())

    def test_wrong_idx_headers(self):
        labels = struct.pack(">II", 0x801, 4) + bytes([0, 1, 0, 1])
        good = struct.pack(">IIII", 0x803, 4, 3, 3) + bytes(36)
        self.assert_refused(self.idx(good[:-1], labels), 2)  # truncated data
        self.assert_refused(self.idx(good[:6], labels), 2)                        # truncated header
        self.assert_refused(self.idx(struct.pack(">IIII", 0x803, 2**31 - 1, 2**31 - 1, 2**31 - 1) + bytes(36), labels), 2)
        self.assert_refused(self.idx(b"PK\x03\x04" + bytes(50), labels), 2)  # another file type
        self.assert_refused(self.idx(good, labels[:-1]), 2)  # too few labels
        self.assert_refused(self.idx(gzip.compress(good)[:-5], labels), 2)  # truncated gzip

    def test_batch_larger_than_data(self):
        self.assert_refused(self.submit(self.changed("batch_size: 50", "batch_size: 50000")), 2, "recipe.batch_size")

    def test_learning_rates(self):
        for rate in ("0", "-1", ".nan", "1e400", "fast"):
            done = self.submit(self.changed("learning_rate: 0.05", f"learning_rate: {rate}"))
            self.assert_refused(done, 2, "learning_rate")

    def test_epochs(self):
        for epochs in ("0", "-3", "1e9", "2.5"):
            self.assert_refused(self.submit(self.changed("epochs: 3", f"epochs: {epochs}")), 2, "epochs")

    def test_field_without_effect(self):
        done = self.submit(self.changed("type: sgd", "type: adam"))
        self.assert_refused(done, 2, "momentum", "FIELD_UNUSED")

    def test_shapes_that_do_not_fit_name_the_layer(self):
        done = self.submit(digits_spec(self.folder, "bad-shape", """  layers:
    - {name: too_big, conv: {out_channels: 4, kernel_shape: [20]}}
    - gemm: {}""").read_text())
        self.assert_refused(done, 2, "too_big")

    def test_model_too_large_for_memory_says_by_how_much(self):
        done = self.submit(self.changed("hidden: [64]", "hidden: [65536, 65536, 65536, 65536]"))
        self.assert_refused(done, 2, "RESOURCES_IMPOSSIBLE", "GiB")

    def test_gpu_on_a_server_without_one(self):
        if any(d["kind"] == "GPU" for d in self.daemon.json("device", "list")["devices"]):
            self.skipTest("this machine has a GPU")
        text = digits_spec(self.folder, "wants-gpu").read_text() + "resources: {device: gpu}\n"
        self.assert_refused(self.submit(text), 2, "RESOURCES_IMPOSSIBLE")

    def test_job_names(self):
        self.assert_refused(self.daemon.cli("get", "no-such-job", check=False), 4, "no-such-job", "JOB_NOT_FOUND")
        for name in ("..", "UPPER", "a" * 300, "%2e%2e", "x;rm -rf"):
            self.assert_refused(self.daemon.cli("get", name, check=False), 2, "NAME_MALFORMED")

    def test_same_name_with_other_content(self):
        self.daemon.submit(digits_spec(self.folder, "taken-name"))
        text = digits_spec(self.folder, "taken-name").read_text().replace("seed: 7", "seed: 9")
        self.assert_refused(self.submit(text), 5, "JOB_EXISTS")

    def test_request_id_makes_submit_safe_to_repeat(self):
        text = digits_spec(self.folder, "repeat").read_text().replace("name: repeat\n", "")
        path = self.write("repeat.yaml", text)
        key = "3b241101-e2bb-4255-8caf-4136c566a962"
        first = self.daemon.submit(path, "--request-id", key)
        self.assertEqual(self.daemon.submit(path, "--request-id", key), first)
        done = self.submit(text.replace("seed: 7", "seed: 9"), "--request-id", key)
        self.assert_refused(done, 2, "REQUEST_ID_REUSED")
        self.assert_refused(self.submit(text, "--request-id", "not-a-uuid"), 2, "request")

    def test_predict_with_rows_that_do_not_fit(self):
        name = self.daemon.submit(digits_spec(self.folder, "predict-bad"), "--wait").splitlines()[0]
        done = self.daemon.cli("predict", name, "--csv", self.write("rows.csv", "1,2,3\n"), check=False)
        self.assert_refused(done, 2, "DATASET_INVALID")
        done = self.daemon.cli("predict", name, "--idx", self.write("rows.idx", b"nonsense"), check=False)
        self.assert_refused(done, 2, "DATASET_INVALID")

    def test_server_not_running(self):
        done = self.daemon.cli("list", "--server", f"unix:{self.folder}/nobody.sock", check=False)
        self.assert_refused(done, 7, "trainyardd")

    def test_unknown_command_suggests(self):
        self.assert_refused(self.daemon.cli("sumbit", "x.yaml", check=False), 2, "submit")


if __name__ == "__main__":
    unittest.main(verbosity=2)
