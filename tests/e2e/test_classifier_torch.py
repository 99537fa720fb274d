"""Language models that classify texts (transformers' ...ForSequenceClassification), as folders in model.pretrained: the
losses of AdamW steps as in PyTorch on the same rows, and after the export to a folder of transformers the same logits.
The test fails if another token than the last one that is not padding gives the scores, if texts are cut or padded
otherwise than by transformers' tokenizer, or if score.weight is not trained, beside an adapter too.

TRAINYARD_TORCH_PYTHON names a Python with torch and transformers; without them the test is skipped. Its last test needs
peft as well.
"""

import importlib.util
import json
import os
import random
import sys
import unittest

from harness import SOURCE, DaemonTest

try:
    import torch
    import transformers
except ImportError as missing:
    python = os.environ.get("TRAINYARD_TORCH_PYTHON")
    if python and os.environ.get("TRAINYARD_TORCH_TRIED") != python:
        os.execve(python, [python, *sys.argv], dict(os.environ, TRAINYARD_TORCH_TRIED=python))
    print(f"{missing.name} is not installed for {sys.executable}", file=sys.stderr)
    raise SystemExit(77)  # CTest's status for skipped tests

from tiny_chat_model import SIZE, TOKENS, write_tokenizer  # noqa: E402

golden_spec = importlib.util.spec_from_file_location("families", SOURCE / "tests/golden/make_families_golden.py")
families = importlib.util.module_from_spec(golden_spec)
golden_spec.loader.exec_module(families)

BOUND = 1e-4
CLASSES = ("left", "right", "up")
STEPS, BATCH, ROWS, LENGTH, RATE = 20, 4, 32, 24, 0.002

SPEC = """
name: {name}
dataset:
  path: rows.jsonl
  jsonl: {{target: label, text: [text], max_length: {length}}}
model: {{pretrained: {folder}}}
recipe:
  steps: {steps}
  batch_size: {batch}
  shuffle: false
  validation_split: 0
  precision: fp32
  optimizer: {{type: adamw, learning_rate: {rate}, weight_decay: 0.01, epsilon: 1.0e-8}}
{recipe}"""


def make_model(family, settings):
    config = families.make_config(family, settings)
    config.num_labels, config.pad_token_id = len(CLASSES), TOKENS["<|pad|>"]
    torch.manual_seed(11)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


class Classifiers(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        families.SIZES["vocab_size"] = SIZE
        families.SIZES.update(pad_token_id=TOKENS["<|pad|>"], bos_token_id=TOKENS["<|endoftext|>"],
                              eos_token_id=TOKENS["<|im_end|>"])
        draw = random.Random(4)
        cls.rows = [{"text": "".join(draw.choice("abcde ") for _ in range(draw.randrange(3, 36))),
                     "label": draw.choice(CLASSES)} for _ in range(ROWS)]
        (cls.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cls.rows))

    def save(self, model, name):
        model.save_pretrained(self.folder / name)
        write_tokenizer(self.folder / name)

    def encode(self, folder, rows):
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        tokenizer.padding_side = "right"
        return tokenizer([row["text"] for row in rows], padding="max_length", max_length=LENGTH, truncation=True,
                         return_tensors="pt")

    def losses_of_torch(self, model, name):
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, eps=1e-8)
        losses = []
        for step in range(STEPS):
            first = step % (ROWS // BATCH) * BATCH
            rows = self.rows[first:first + BATCH]
            batch = self.encode(self.folder / name, rows)
            optimizer.zero_grad(set_to_none=True)
            logits = model.train()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor([CLASSES.index(r["label"]) for r in rows]))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def train(self, name, folder, steps=STEPS, recipe=""):
        """Trains, and returns the loss of the last step."""
        spec = self.write(f"{name}.yaml", SPEC.format(name=name, folder=folder, steps=steps, batch=BATCH, length=LENGTH,
                                                      rate=RATE, recipe=recipe))
        self.daemon.cli("submit", spec, "--wait")
        return self.daemon.job(name)["progress"]["metrics"]["train/loss"]

    def check_export(self, name):
        """Compares the predictions here with the logits of the exported folder in transformers."""
        out = self.folder / f"{name}-exported"
        self.daemon.cli("model", "export", name, "--format", "transformers", "--out", out)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
        self.assertEqual([model.config.id2label[i] for i in range(len(CLASSES))], list(CLASSES))
        batch = self.encode(out, self.rows)
        with torch.no_grad():
            expected = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.softmax(-1)
        lines = self.write(f"{name}.txt", "".join(row["text"] + "\n" for row in self.rows))
        answer = self.daemon.json("predict", name, "--text", lines)["predictions"]
        found = torch.tensor([[p["probabilities"][i] for i in range(len(CLASSES))] for p in answer])
        self.assertLess((found - expected).abs().max().item(), 1e-5)
        return model

    def check(self, case):
        family, settings = families.CASES[case]
        name = "c-" + case.replace(" ", "-").replace(",", "")
        model = make_model(family, settings)
        self.save(model, name)
        theirs = self.losses_of_torch(model, name)
        first, last = self.train(f"{name}-1", name, 1), self.train(f"{name}-20", name)
        worst = max(abs(first / theirs[0] - 1), abs(last / theirs[-1] - 1))
        print(f"  {case:30} losses {theirs[0]:.5f} to {theirs[-1]:.5f}, here {first:.5f} to {last:.5f}, within {worst:.1e}")
        self.assertLess(worst, BOUND)
        trained = self.check_export(f"{name}-20")
        self.assertLess((trained.score.weight - model.score.weight).abs().max().item(), 1e-3)

    def test_an_adapter_of_a_model_that_predicts_tokens_has_the_new_layer(self):
        model = families.make_model("Llama", {})
        self.save(model, "base")
        self.train("lora", "base", recipe="  lora: {rank: 4, alpha: 8, targets: [all-linear]}\n")
        whole = self.check_export("lora")
        out = self.folder / "lora-adapter"
        self.daemon.cli("model", "export", "lora", "--out", out)
        config = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual((config["task_type"], config["modules_to_save"]), ("SEQ_CLS", ["score"]))
        try:
            import peft
        except ImportError:
            self.skipTest("peft is not installed")
        base = transformers.AutoModelForSequenceClassification.from_pretrained(
            self.folder / "base", num_labels=len(CLASSES), pad_token_id=TOKENS["<|pad|>"])
        adapted = peft.PeftModel.from_pretrained(base, out).eval()
        batch = self.encode(self.folder / "base", self.rows)
        with torch.no_grad():
            found, expected = (m(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
                               for m in (adapted, whole))
        self.assertLess((found - expected).abs().max().item(), 1e-4)
        # The adapter continues here as it ends: its layer is not drawn again.
        first = self.train("again", "base", 1, f"  lora: {{adapter: {out}}}\n")
        rows = self.rows[:BATCH]
        target = torch.tensor([CLASSES.index(r["label"]) for r in rows])
        self.assertAlmostEqual(first, torch.nn.functional.cross_entropy(expected[:BATCH], target).item(), places=4)


def add_case(case):
    setattr(Classifiers, "test_" + case.replace(" ", "_").replace(",", ""), lambda self: self.check(case))


for each, (kind, _) in families.CASES.items():
    if kind != "Granite":  # transformers has no classifier of this family
        add_case(each)

if __name__ == "__main__":
    unittest.main()
