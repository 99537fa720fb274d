"""Files of torchvision, timm and transformers as initial weights (src/models/naming): a network that begins with the
library's own file must train as in PyTorch, with losses within 1e-4 over 20 steps of SGD with momentum on the same
pixels or tokens in the same batches, and predict as PyTorch does afterwards. The test fails if a tensor is drawn at
random, transposed or joined in another order, if running statistics are not taken, or if pixels have another scale.

TRAINYARD_TORCH_PYTHON names a Python with torch, numpy and Pillow, and with torchvision, timm and transformers for
their networks. Tests of missing packages are skipped. tests/bench/library_weights.py runs larger networks.
"""

import os
import random
import sys
import unittest

from harness import DaemonTest

try:
    import torch
    from library_training import (
        batch_rows, difference, losses_of_job, losses_of_torch, normalized, save, torch_weights, write_images)
except ImportError as missing:
    python = os.environ.get("TRAINYARD_TORCH_PYTHON")
    if python and os.environ.get("TRAINYARD_TORCH_TRIED") != python:
        os.execve(python, [python, *sys.argv], dict(os.environ, TRAINYARD_TORCH_TRIED=python))
    print(f"{missing.name} is not installed for {sys.executable}", file=sys.stderr)
    raise SystemExit(77)  # CTest's status for skipped tests

BOUND = 1e-4
STEPS, BATCH, ROWS, SIDE, CLASSES, SEED = 20, 8, 40, 32, 4, 3
RATE, MOMENTUM = 0.001, 0.9
# A ResNet of random weights amplifies rounding so much that PyTorch in single differs from PyTorch in double by a third
# after 20 steps. With residual branches that begin near zero, as in trained networks, it does not.


def torchvision_resnet18():
    from torchvision.models import resnet18

    return resnet18(num_classes=CLASSES, zero_init_residual=True)


def torchvision_vit():
    from torchvision.models import VisionTransformer

    return VisionTransformer(SIDE, 16, 12, 3, 192, 768, num_classes=CLASSES)


def timm_resnet18():
    import timm

    return timm.create_model("resnet18", num_classes=CLASSES)


def timm_vit():
    import timm

    return timm.create_model("vit_tiny_patch16_224", img_size=SIDE, num_classes=CLASSES)


def transformers_vit():
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(
        hidden_size=192, num_attention_heads=3, intermediate_size=768, image_size=SIDE, num_labels=CLASSES,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0))


def transformers_resnet50():
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(
        embedding_size=8, hidden_sizes=[32, 64, 128, 256], depths=[3, 4, 6, 3], num_labels=CLASSES))
    for key, tensor in model.named_parameters():
        if key.endswith("layer.2.normalization.weight"):  # the last one of a residual branch
            torch.nn.init.zeros_(tensor)
    return model


# The network, the spec's model and the scale of pixels.
IMAGE_CASES = {
    "torchvision_resnet18": (torchvision_resnet18, "resnet18: {stem: imagenet}", "imagenet"),
    "timm_resnet18": (timm_resnet18, "resnet18: {stem: imagenet}", "imagenet"),
    "transformers_resnet50": (transformers_resnet50, "resnet50: {stem: imagenet, width: 8}", "imagenet"),
    "torchvision_vit": (torchvision_vit, "vit_tiny:", "imagenet"),
    "timm_vit": (timm_vit, "vit_tiny:", "minus_one_to_one"),
    "transformers_vit": (transformers_vit, "vit_tiny:", "minus_one_to_one"),
}

SPEC = """
name: {name}
dataset: {dataset}
model: {{{model}}}
recipe:
  steps: {steps}
  batch_size: {batch}
  seed: {seed}
  precision: fp32
  optimizer: {{type: sgd, learning_rate: {rate}, momentum: {momentum}}}
  initial_weights: {{path: {name}.safetensors{weights}}}
{recipe}"""


class LibraryWeights(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pixels, cls.labels = write_images(cls.folder / "images", ROWS, SIDE, CLASSES)

    def spec(self, name, model, dataset="{path: images, images: {}}", recipe="", weights="", steps=STEPS):
        return self.write(f"{name}.yaml", SPEC.format(
            name=name, dataset=dataset, model=model, steps=steps, batch=BATCH, seed=SEED, rate=RATE, momentum=MOMENTUM,
            weights=weights, recipe=recipe))

    def make(self, make, name):
        """Returns a network whose tensors all differ from their usual initial values, and writes its file."""
        torch.manual_seed(11)
        try:
            model = make()
        except ImportError as missing:
            self.skipTest(str(missing))
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.add_(0.01 * torch.randn_like(tensor))
            for key, tensor in model.named_buffers():
                if key.endswith(("running_mean", "running_var")):
                    tensor.mul_(1.1).add_(0.05)
        save(model, self.folder / f"{name}.safetensors")
        return model

    def compare(self, name, theirs):
        report = self.daemon.job(name)["plan"]["initial_weights"]
        for left in ("missing", "unused", "left_out", "mismatched"):
            self.assertFalse(report.get(left, {}).get("names"), (left, report))
        worst = difference(losses_of_job(self.daemon, name), theirs)
        print(f"  {name:24} {report['taken']['count']:>4} tensors by the names of {report['naming']}, "
              f"losses {theirs[0]:.4f} to {theirs[-1]:.4f} within {worst:.1e}")
        self.assertLess(worst, BOUND)

    def check_images(self, case):
        make, preset, scale = IMAGE_CASES[case]
        name = case.replace("_", "-")
        model = self.make(make, name)
        done = self.daemon.cli("submit", self.spec(name, preset, recipe=f"  normalize: {scale}\n"), "--wait")
        self.assertIn("initial weights of ", done.stderr)
        self.assertNotIn("recipe.normalize", done.stderr)
        x, y = normalized(self.pixels, scale), torch.from_numpy(self.labels)
        rows = [batch_rows(ROWS, BATCH, SEED, step) for step in range(STEPS)]
        self.compare(name, losses_of_torch(model, [(x[r], y[r]) for r in rows], RATE, MOMENTUM))
        with torch.no_grad():
            scores = model.eval()(x)
            expected = getattr(scores, "logits", scores).softmax(1)
        files = sorted((self.folder / "images").rglob("*.png"))
        answer = self.daemon.json("predict", name, "--images", *files)["predictions"]
        got = torch.tensor([a["probabilities"] for a in answer])
        self.assertLess((got - expected).abs().max().item(), BOUND)

    def test_transformers_gpt2(self):
        context, windows = 16, 40
        text = bytes(random.Random(9).randrange(97, 117) for _ in range(context * windows + 1))
        self.write("text.txt", text)

        def gpt2():
            from transformers import GPT2Config, GPT2LMHeadModel

            return GPT2LMHeadModel(GPT2Config(
                vocab_size=256, n_positions=2 * context, n_embd=24, n_layer=2, n_head=3, resid_pdrop=0, embd_pdrop=0,
                attn_pdrop=0, bos_token_id=0, eos_token_id=0))

        name = "transformers-gpt2"
        model = self.make(gpt2, name)
        spec = self.spec(name, "gpt2: {n_layer: 2, n_head: 3, n_embd: 24}", "{path: text.txt, text: {tokenizer: byte}}",
                         f"  context_length: {context}\n  shuffle: false\n")
        done = self.daemon.cli("submit", spec, "--wait")
        self.assertIn("by the names of transformers' GPT-2", done.stderr)
        taken = self.daemon.job(name)["plan"]["initial_weights"]["taken"]["names"]
        self.assertIn("wpe.weight (the first 16 of 32 rows)", taken)
        tokens = torch.tensor(list(text))
        x, y = tokens[:-1].reshape(-1, context), tokens[1:].reshape(-1, context)
        steps = [slice(first * BATCH, (first + 1) * BATCH) for first in
                 (step % (windows // BATCH) for step in range(STEPS))]
        self.compare(name, losses_of_torch(model, [(x[s], y[s]) for s in steps], RATE, MOMENTUM))

    def test_another_network_and_other_classes_are_refused_with_what_to_write(self):
        self.make(torchvision_resnet18, "resnet")
        for command in (("submit",), ("plan",), ("local", "run")):
            done = self.daemon.cli(*command, self.spec("resnet", "vit_tiny:"), check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("The file has the names of torchvision's or timm's ResNet, which is the network of the "
                          "presets resnet18", done.stdout + done.stderr)
        state = torchvision_resnet18().state_dict()
        other = {key.replace("layer", "stage"): tensor for key, tensor in state.items()}
        torch_weights().write_weights(self.folder / "renamed.safetensors", other)
        spec = self.spec("renamed", "resnet18: {stem: imagenet}")
        for command in (("submit",), ("plan",), ("local", "run")):
            done = self.daemon.cli(*command, spec, check=False)
            self.assertNotEqual(done.returncode, 0)
            for words in ("only 7 of the 102 tensors of", "95 tensors of the model", "stage1.0.bn1.bias",
                          "layer1/0/conv1.weight", "partial: true"):
                self.assertIn(words, done.stderr)
        accepted = self.spec("renamed", "resnet18: {stem: imagenet}", weights=", partial: true", steps=1)
        for command in (("submit",), ("plan",), ("local", "run")):
            done = self.daemon.cli(*command, accepted)
            self.assertIn("7 loaded", done.stdout + done.stderr)
        self.write("classes/a/1.png", next((self.folder / "images/class0").iterdir()).read_bytes())
        self.write("classes/b/2.png", next((self.folder / "images/class1").iterdir()).read_bytes())
        spec = self.spec("resnet", "resnet18: {stem: imagenet}", "{path: classes, images: {}}", "  drop_last: false\n")
        self.assert_refused(self.daemon.cli("submit", spec, check=False), 2, "fc.weight [4, 512] where [2, 512] is needed",
                            "exclude: ['fc.*']")

    def test_pixels_of_another_scale_are_reported(self):
        self.make(torchvision_resnet18, "scale")
        spec = self.spec("scale", "resnet18: {stem: imagenet}", steps=1)
        for command in (("submit",), ("plan",), ("local", "run")):
            done = self.daemon.cli(*command, spec)
            self.assertIn("recipe.normalize: imagenet", done.stdout + done.stderr)
        bad = self.spec("scale", "resnet18: {stem: imagenet}", "{path: images, images: {channels: 1}}",
                        "  normalize: imagenet\n")
        self.assert_refused(self.daemon.cli("submit", bad, check=False), 2, "recipe.normalize",
                            "needs images of 3 channels, and the dataset's have 1")


def add_case(case):
    setattr(LibraryWeights, "test_" + case, lambda self: self.check_images(case))


for each in IMAGE_CASES:
    add_case(each)

if __name__ == "__main__":
    unittest.main()
