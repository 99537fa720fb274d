"""The way from a file of examples and the folder of a language model to a trained one, through the service: `init --model`
writes the job, `model import` makes a model of the server, adapters survive kills with the same bits, classifiers predict.
Bad input is refused before anything starts, with the field and what to do. The model is tiny (tiny_chat_model.py).
"""

import json
import os
import signal
import unittest

from harness import DaemonTest, wait_until
from tiny_chat_model import SIZE, write_chat_model

CHATS = [{"messages": [{"role": "user", "content": f"Number {i}?" + "?" * (i * 7 % 13)},
                       {"role": "assistant", "content": "Hi!" + "i" * (i % 5)}]} for i in range(40)]
REVIEWS = [{"text": f"{'good' if i % 2 else 'bad'} thing number {i}", "label": "good" if i % 2 else "bad"} for i in range(40)]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


class FineTuning(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_chat_model(cls.folder / "Tiny-Chat", "Hi!", context=96)
        (cls.folder / "chats.jsonl").write_text(lines(CHATS))
        (cls.folder / "reviews.jsonl").write_text(lines(REVIEWS))

    def init(self, data, model="Tiny-Chat"):
        out = self.folder / f"{data}.yaml"
        return out, self.daemon.cli("init", self.folder / data, "--model", self.folder / model, "--out", out, "--overwrite")

    def change_model(self, name, config=None, **files):
        """A copy of the model with another config and other files; None removes a file."""
        folder = self.folder / name
        write_chat_model(folder, "Hi!", context=96)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
        for file, text in files.items():
            target = folder / file.replace("__", ".")
            if text is None:
                os.remove(target)
            else:
                target.write_text(text)
        return folder

    def refused(self, spec, *words):
        for command in (("plan", "--local"), ("submit",)):
            done = self.daemon.cli(*command, spec, check=False)
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assert_refused(done, done.returncode, *words)

    def test_init_writes_a_job_that_trains(self):
        spec, done = self.init("chats.jsonl")
        self.assertIn("40 chats", done.stdout)
        text = spec.read_text()
        self.assertIn("pretrained: Tiny-Chat", text)
        self.assertIn("lora: {rank: 16", text)
        # The longest chat has between 64 and 128 tokens of one byte each, and the model can read 96.
        self.assertIn("context_length: 96", text)
        self.daemon.cli("submit", spec, "--name", "from-init", "--wait", "--set", "recipe.epochs=1", "--set",
                        "recipe.lora.rank=2")
        answer = json.loads(self.daemon.cli("chat", "from-init", "-o", "jsonl", "--tokens", "5", input="x\n").stdout)
        self.assertIn("content", answer)

    def test_init_chooses_the_length_by_tokens_and_without_a_tokenizer_by_bytes(self):
        write_chat_model(self.folder / "long", "Hi!", context=4096)
        rows = [{"text": "\u00e9" * 300}]  # 600 bytes: 600 tokens of this tokenizer, and an end token
        (self.folder / "accents.jsonl").write_text(lines(rows * 4))
        self.assertIn("context_length: 1024", self.init("accents.jsonl", "long")[0].read_text())
        bare = self.folder / "long-bare"
        bare.mkdir()
        (bare / "config.json").write_text((self.folder / "long/config.json").read_text())
        self.assertIn("context_length: 256", self.init("accents.jsonl", "long-bare")[0].read_text())

    def test_init_makes_a_classifier_of_texts_with_labels(self):
        spec, done = self.init("reviews.jsonl")
        self.assertIn("40 texts of 2 classes", done.stdout)
        self.assertIn("the class of a text", done.stdout)
        self.assertIn("target: label", spec.read_text())
        self.daemon.cli("submit", spec, "--name", "reviews", "--wait", "--set", "recipe.epochs=20", "--set",
                        "recipe.lora.rank=4", "--set", "recipe.optimizer.learning_rate=0.01")
        job = self.daemon.job("reviews")
        self.assertIn("val/accuracy", job["progress"]["metrics"])
        self.assertEqual(job["plan"]["initial_weights"]["missing"]["names"], ["score.weight"])
        rows = self.write("new.txt", "good thing number 7\nbad thing number 8\n")
        answer = self.daemon.json("predict", "reviews", "--text", rows)["predictions"]
        self.assertEqual([p["label"] for p in answer], ["good", "bad"])
        out = self.folder / "reviews-transformers"
        self.daemon.cli("model", "export", "reviews", "--format", "transformers", "--out", out)
        config = json.loads((out / "config.json").read_text())
        self.assertEqual(config["architectures"], ["LlamaForSequenceClassification"])
        self.assertEqual(config["id2label"], {"0": "bad", "1": "good"})
        self.assertLess(config["pad_token_id"], SIZE)
        # The folder trains further, with its own last layer.
        self.write("again.yaml", spec.read_text().replace("pretrained: Tiny-Chat", f"pretrained: {out}"))
        self.daemon.cli("submit", self.folder / "again.yaml", "--name", "again", "--wait", "--set", "recipe.epochs=1",
                        "--set", "recipe.lora.rank=4")
        self.assertEqual(int(self.daemon.job("again")["plan"]["initial_weights"]["missing"].get("count", 0)), 0)
        done = self.daemon.cli("model", "import", out, "--name", "classifier", check=False)
        self.assert_refused(done, done.returncode, "architectures", "a classifier of 2 classes")

    def test_a_table_of_texts_can_be_a_csv(self):
        self.write("reviews.csv", "text,label\n" + "".join(f"{r['text']},{r['label']}\n" for r in REVIEWS))
        spec = self.write("csv.yaml", """
name: from-csv
dataset: {path: reviews.csv, csv: {target: label, text: [text], max_length: 40}}
model: {pretrained: Tiny-Chat}
recipe: {steps: 2, batch_size: 4, optimizer: {type: adamw, learning_rate: 0.001}}
""")
        self.daemon.cli("submit", spec, "--wait")
        dataset = self.daemon.json("dataset", "get", self.daemon.job("from-csv")["spec"]["dataset"]["name"])
        self.assertEqual(dataset["schema"]["text"]["tokenizer"], "PRETRAINED")
        self.assertEqual(int(dataset["schema"]["text"]["max_length"]), 40)

    def test_a_folder_becomes_a_model_of_the_server(self):
        done = self.daemon.cli("model", "import", self.folder / "Tiny-Chat", "--name", "imported")
        self.assertEqual(done.stdout.strip(), "imported")
        self.assertEqual(self.daemon.cli("chat", "imported", "--temperature", "0", input="Hello?\n").stdout, "Hi!\n")
        self.assertEqual(self.daemon.cli("generate", "imported", "--prompt", "\n", "--temperature", "0").stdout, "Hi!\n")
        again = self.daemon.cli("model", "import", self.folder / "Tiny-Chat", "--name", "imported", check=False)
        self.assertIn(again.returncode, (0, 5), again.stderr)  # the same weights under the same name
        for name, change, words in (
                ("no-weights", {"model__safetensors": None}, ["has no weights"]),
                ("no-tokens", {"tokenizer__json": None}, ["there is no tokenizer", "expected tokenizer.json"]),
                ("few-rows", {"config": {"vocab_size": SIZE - 1}}, ["model.embed_tokens.weight", f"[{SIZE - 1}, {SIZE}]"])):
            with self.subTest(name):
                done = self.daemon.cli("model", "import", self.change_model(name, **change), "--name", name, check=False)
                self.assert_refused(done, done.returncode, *words)

    def spec(self, name, data="chats.jsonl", model="Tiny-Chat", recipe="", documents="{}"):
        return self.write(f"{name}.yaml", f"""
name: {name}
dataset: {{path: {data}, documents: {documents}}}
model: {{pretrained: {model}}}
recipe:
  steps: 2
  batch_size: 2
  context_length: 64
  lora: {{rank: 2, alpha: 4, targets: [all-linear]}}
  optimizer: {{type: adamw, learning_rate: 0.001}}
{recipe}""")

    def test_bad_input_is_refused_before_anything_starts(self):
        self.change_model("code", tokenizer_config__json=json.dumps(
            {"eos_token": "<|im_end|>", "chat_template": "{% for m in messages %}{{ evil(m) }}{% endfor %}"}))
        self.refused(self.spec("code-template", model="code"), "chat template is a program", "not executed", "template: NAME")
        self.change_model("silent", tokenizer__json=None)
        self.refused(self.spec("no-tokenizer", model="silent"), "the folder has no tokenizer", "tokenizer.json")
        self.change_model("gemma", config={"model_type": "gemma3"})
        self.refused(self.spec("unknown-family", model="gemma"), "model.pretrained", "model_type: 'gemma3'", "llama")
        wrong = [{"messages": [{"role": "assistant", "content": "first"}, {"role": "user", "content": "then"}]}]
        self.write("order.jsonl", lines(CHATS[:2] + wrong))
        self.refused(self.spec("wrong-order", data="order.jsonl"), "line 3", "messages[0].role",
                     "'assistant' begins the chat, expected system or user")

    def test_tokens_beyond_the_table_are_refused(self):
        tokenizer = json.loads((self.folder / "Tiny-Chat/tokenizer.json").read_text())
        tokenizer["added_tokens"].append({"id": SIZE + 3, "content": "<|more|>", "single_word": False, "lstrip": False,
                                          "rstrip": False, "normalized": False, "special": True})
        self.change_model("beyond", tokenizer__json=json.dumps(tokenizer))
        self.refused(self.spec("beyond", model="beyond"), "vocab_size", f"expected {SIZE + 4} or more")
        done = self.daemon.cli("model", "import", self.folder / "beyond", "--name", "beyond", check=False)
        self.assert_refused(done, done.returncode, f"the tokenizer has {SIZE + 4} tokens", "vocab_size")

    def test_documents_longer_than_a_row_are_counted_before_they_are_cut(self):
        long = [{"messages": [{"role": "user", "content": "x" * 80}, {"role": "assistant", "content": "y"}]}]
        self.write("long.jsonl", lines(CHATS + long))
        done = self.daemon.cli("plan", "--local", self.spec("long-rows", data="long.jsonl"))
        self.assertRegex(done.stdout + done.stderr, r"documents are longer than recipe.context_length 64")
        done = self.daemon.cli("plan", "--local", self.spec("long-context"), "--set", "recipe.context_length=128",
                               check=False)
        self.assert_refused(done, done.returncode, "positions_max", "96")

    def test_an_adapter_names_its_base_as_people_do(self):
        for name, config, title in (("plain", {}, "plain-base"),
                                    ("hub", {"_name_or_path": "HuggingFaceTB/SmolLM2-135M"}, "HuggingFaceTB/SmolLM2-135M"),
                                    ("path", {"_name_or_path": "/home/me/models/x"}, "path-base")):
            with self.subTest(name):
                self.change_model(f"{name}-base", config=config)
                self.daemon.cli("submit", self.spec(f"named-{name}", model=f"{name}-base"), "--wait")
                out = self.folder / f"{name}-adapter"
                self.daemon.cli("model", "export", f"named-{name}", "--out", out)
                config = json.loads((out / "adapter_config.json").read_text())
                self.assertEqual(config["base_model_name_or_path"], title)

    def test_an_adapter_has_the_same_bits_after_twenty_kills(self):
        recipe = "  checkpoint_every_steps: 5\n  seed: 3\n"
        def submit(name):
            self.daemon.cli("submit", self.spec(name, recipe=recipe), "--set", "recipe.steps=600", "--set",
                            "resources.threads=1", "--set", "recipe.lora.dropout=0.1")

        submit("undisturbed")
        self.daemon.cli("wait", "undisturbed")
        submit("disturbed")
        for kill in range(20):
            before = int(self.daemon.job("disturbed").get("checkpoint_step", 0))

            def went_on():
                job = self.daemon.job("disturbed")
                self.assertNotIn(job["state"], ("SUCCEEDED", "FAILED"), f"after {kill} kills: {job}")
                return job["state"] == "RUNNING" and int(job.get("checkpoint_step", 0)) > before

            wait_until(went_on, f"a checkpoint after {kill} kills")
            if kill % 2 == 0:
                for pid in self.daemon.worker_pids():
                    os.kill(pid, signal.SIGKILL)
            else:
                self.daemon.kill()
                self.daemon.kill_workers()
                self.daemon.start()
        self.daemon.cli("wait", "disturbed")
        files = {}
        for name in ("undisturbed", "disturbed"):
            out = self.folder / f"{name}-files"
            self.daemon.cli("model", "export", name, "--out", out)
            files[name] = [(out / file).read_bytes() for file in ("adapter_model.safetensors", "model.safetensors")]
        self.assertEqual(files["disturbed"], files["undisturbed"])
        self.assertGreater(self.daemon.job("disturbed")["attempt"], 20)


if __name__ == "__main__":
    unittest.main()
