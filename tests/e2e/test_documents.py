"""Tests of documents through the service: chats are uploaded with the files of a tokenizer, shown token by token, trained
on, killed and resumed. They fail if any step does not support documents: upload, ingest, schema, plan, training,
evaluation, preview."""

import json
import os
import signal
import unittest

from harness import DisturbedTest, wait_until

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "documents.json")

SPEC = """
name: {name}
dataset:
  name: chats
  path: rows.jsonl
  documents: {{tokenizer: model, template: chatml, test_share: 0.1}}
model:
  gpt2: {{n_layer: 2, n_head: 2, n_embd: 16}}
recipe:
  steps: 400
  batch_size: 4
  context_length: 96
  checkpoint_every_steps: 5
  validation_split: 0.2
  seed: 3
  optimizer: {{type: adam, learning_rate: 0.01}}
"""


class Documents(DisturbedTest):
    def spec(self, name):
        self.write_chats()
        return self.write(f"{name}.yaml", SPEC.format(name=name))

    def write_chats(self):
        with open(GOLDEN, encoding="utf-8") as file:
            files = json.load(file)["files"]
        for name, text in files.items():
            self.write(f"model/{name}", text)
        self.write("model/config.json", "{}")  # not a file of the tokenizer
        self.write("rows.jsonl", "".join(json.dumps({"messages": [
            {"role": "user", "content": f"What is {i}{'?' * (i * 7 % 13)}"},
            {"role": "assistant", "content": "The " + "a" * (i * 5 % 11)}]}) + "\n" for i in range(60)))

    def test_a_killed_run_has_the_same_bits(self):
        name = self.daemon.submit(self.spec("killed"))
        wait_until(lambda: int(self.daemon.job(name).get("checkpoint_step", 0)) > 0, "the job has a checkpoint")
        for pid in self.daemon.worker_pids():
            os.kill(pid, signal.SIGKILL)
        self.finish(name)
        self.assertEqual(self.daemon.job(name)["attempt"], 2)

    def test_chats_are_trained_on(self):
        dataset = self.daemon.json("dataset", "get", "chats@1")
        self.assertEqual(int(dataset["schema"]["train_rows"]), 54)
        self.assertEqual(dataset["schema"]["text"]["tokenizer"], "PRETRAINED")
        self.assertGreater(int(dataset["schema"]["documents"]["train_counted"]), 54)
        self.assertEqual([s["role"] for s in dataset["spec"]["sources"]], ["DATA", "TOKENIZER_JSON", "TOKENIZER_CONFIG"])
        self.assertIn("half have at most", self.daemon.cli("dataset", "get", "chats@1").stdout)
        metrics = self.daemon.job("undisturbed")["progress"]["metrics"]
        for key in ("val/loss", "val/perplexity", "val/accuracy", "test/loss"):
            self.assertIn(key, metrics)

    def test_a_local_run_reads_the_same_documents(self):
        out = self.folder / "local"
        text = self.daemon.cli("local", "run", self.spec("local"), "--out", out, "--device", "cpu", "--threads", "1",
                               "--set", "recipe.steps=3")
        self.assertIn("val/loss", text.stdout + text.stderr)

    def test_a_preview_shows_what_counts(self):
        spec = self.spec("preview")
        shown = self.daemon.cli("dataset", "preview", spec, "--rows", "1").stdout
        self.assertIn("[<|im_end|>]", shown)
        self.assertRegex(shown, r"document \d+: \d+ tokens, \d+ count")
        row = json.loads(self.daemon.cli("dataset", "preview", spec, "--rows", "1", "-o", "json").stdout)["rows"][0]
        tokens = row["documents"][0]["tokens"]
        self.assertEqual(tokens[0]["text"], "<|im_start|>")
        counted = "".join(t["text"] for t in tokens if t["counts"])
        self.assertTrue(counted.startswith("The"), counted)
        self.assertTrue(counted.endswith("<|im_end|>"), counted)

    def test_bad_lines_and_folders_are_named(self):
        spec = self.spec("bad")
        self.write("rows.jsonl", '{"text": "fine"}\n{"prompt": "a"}\n{"messages": []}\n')
        done = self.daemon.cli("submit", spec, check=False)
        self.assert_refused(done, done.returncode, "rows.jsonl: line 2", "completion")
        os.remove(self.folder / "model/tokenizer.json")
        done = self.daemon.cli("submit", spec, check=False)
        self.assert_refused(done, done.returncode, "the folder has no tokenizer")


if __name__ == "__main__":
    unittest.main()
