"""GGUF files where a folder of a language model is accepted: model.pretrained, init --model, model import, model
upload and dataset.documents.tokenizer. The test fails if a job that begins with a file trains otherwise than with the
folder of the same model, if the imported model gives other answers, or if a bad file is not refused by name before
anything starts. tests/pretrained/gguf_*_test.cc has the format, the types and the architectures.
"""

import json
import subprocess
import unittest

from gguf_files import BF16, F32, gguf, gguf_of_folder, llama_settings, llama_tensors
from harness import BIN, DaemonTest
from test_pretrained import CONFIG, SPEC, safetensors, tensors
from tiny_chat_model import write_chat_model

CHAT_SPEC = """
name: {name}
dataset: {{name: {name}-rows, path: rows.jsonl, documents: {{}}}}
model: {{pretrained: {model}}}
recipe: {{steps: 2, batch_size: 1, seed: 1, precision: fp32, context_length: 64, validation_split: 0,
  lora: {{rank: 2, targets: [all-linear]}}, optimizer: {{type: sgd, learning_rate: 0.01}}}}
"""


class Gguf(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "letters.txt").write_text("abcdefghij klmn" * 100)
        weights = tensors()
        (cls.folder / "llama").mkdir()
        (cls.folder / "llama/config.json").write_text(json.dumps(CONFIG))
        (cls.folder / "llama/model.safetensors").write_bytes(safetensors(weights))
        for name, kind in (("wide", F32), ("narrow", BF16)):
            content = gguf(llama_settings(CONFIG), llama_tensors(weights, CONFIG["head_dim"]), kind)
            (cls.folder / f"{name}.gguf").write_bytes(content)
        write_chat_model(cls.folder / "chat", "Hi!", context=120)
        (cls.folder / "chat.gguf").write_bytes(gguf_of_folder(cls.folder / "chat"))
        rows = [{"messages": [{"role": "user", "content": f"Number {i}?"}, {"role": "assistant", "content": "Hi!"}]}
                for i in range(8)]
        (cls.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run_cli(self, *arguments, check=True):
        done = subprocess.run([BIN / "trainyard", *arguments], capture_output=True, text=True, check=False,
                              cwd=self.folder)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def train(self, name, spec, model, **fields):
        file = self.write(f"{name}.yaml", spec.format(name=name, **{("folder" if "folder" in spec else "model"): model},
                                                      **fields))
        return json.loads(self.run_cli("local", "run", file, "-o", "json").stdout)["metrics"]

    def test_a_file_trains_to_the_same_bits_as_the_folder(self):
        expected = self.train("of-folder", SPEC, "llama", recipe="")
        for name in ("wide", "narrow"):
            with self.subTest(name):
                self.assertEqual(self.train(f"of-{name}", SPEC, f"{name}.gguf", recipe=""), expected)

    def test_its_tokenizer_reads_documents_as_that_of_the_folder(self):
        expected = self.train("chat-of-folder", CHAT_SPEC, "chat")
        self.assertEqual(self.train("chat-of-file", CHAT_SPEC, "chat.gguf"), expected)
        shown = [self.run_cli("dataset", "preview", f"chat-of-{name}.yaml", "--rows", "1").stdout
                 for name in ("folder", "file")]
        self.assertEqual(shown[0], shown[1])

    def test_the_server_trains_it(self):
        spec = self.write("sent.yaml", CHAT_SPEC.format(name="sent-there", model="chat.gguf"))
        self.daemon.cli("submit", spec, "--wait")
        job = self.daemon.job("sent-there")
        self.assertEqual(job["plan"]["initial_weights"]["missing"]["count"], 0)
        self.assertEqual(self.daemon.cli("chat", "sent-there", "--temperature", "0", input="Hello?\n").stdout, "Hi!\n")

    def test_a_tokenizer_alone_is_taken_from_a_file(self):
        self.write("rows.yaml", "name: of-file\npath: rows.jsonl\ndocuments: {tokenizer: chat.gguf}\n")
        self.write("rows-2.yaml", "name: of-folder\npath: rows.jsonl\ndocuments: {tokenizer: chat}\n")
        sizes = []
        for name in ("rows.yaml", "rows-2.yaml"):
            dataset = json.loads(self.daemon.cli("dataset", "upload", self.folder / name, "-o", "json").stdout)
            sizes.append((dataset["schema"]["train_rows"], dataset["schema"]["text"]["vocabulary_size"]))
        self.assertEqual(sizes[0], sizes[1])

    def test_an_imported_model_chats(self):
        self.daemon.cli("model", "import", self.folder / "chat.gguf", "--name", "imported")
        self.assertEqual(self.daemon.cli("chat", "imported", "--temperature", "0", input="Hello?\n").stdout, "Hi!\n")
        self.run_cli("model", "import", "wide.gguf", "--out", "converted")
        self.assertIn("n_kv_head: 1", (self.folder / "converted/model.yaml").read_text())

    def test_equal_numbers_are_equal_weights_in_any_type(self):
        names = [self.daemon.cli("model", "upload", self.folder / name).stdout for name in ("wide.gguf", "narrow.gguf")]
        self.assertEqual(names[0], names[1])

    def test_init_writes_a_job_for_it(self):
        self.run_cli("init", "rows.jsonl", "--model", "chat.gguf", "--out", "drafted.yaml")
        self.assertIn("pretrained: chat.gguf", (self.folder / "drafted.yaml").read_text())
        done = self.run_cli("plan", "drafted.yaml", "--local", "--set", "recipe.lora.rank=2")
        self.assertIn("parameters", done.stdout)
        self.assertNotIn("without weights", done.stderr)

    def refuse(self, content, *words):
        (self.folder / "bad.gguf").write_bytes(content)
        spec = self.write("bad.yaml", SPEC.format(name="bad-file", folder="bad.gguf", recipe=""))
        done = self.run_cli("plan", "--local", spec, check=False)
        self.assert_refused(done, 2, "model.pretrained: bad.gguf: ", *words)

    def test_bad_files_are_refused_by_name(self):
        settings, weights = llama_settings(CONFIG), llama_tensors(tensors(), CONFIG["head_dim"])
        whole = gguf(settings, weights)
        self.refuse(whole[:len(whole) // 2], "tensor 'blk.", "truncated")
        self.refuse(b"PK" + whole[2:], "the first bytes")
        self.refuse(whole[:4] + bytes([0, 0, 0, 3]) + whole[8:], "version", "big endian")
        self.refuse(gguf(settings | {"general.architecture": "gemma3"}, weights), "general.architecture: 'gemma3'",
                    "expected llama, qwen2")
        self.refuse(gguf(settings | {"llama.expert_count": 4}, weights), "llama.expert_count: is 4")
        self.refuse(gguf(settings, weights | {"blk.0.ffn_gate_inp.weight": ([4, 16], [0.0] * 64)}),
                    "tensor 'blk.0.ffn_gate_inp.weight' is not of the network")
        self.refuse(gguf(settings | {"tokenizer.ggml.model": "t5"}, weights), "tokenizer.ggml.model: 't5'")


if __name__ == "__main__":
    unittest.main(verbosity=2)
