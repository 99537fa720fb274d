"""Tests the conversion of PyTorch weights to jobs and back
(client/python/src/trainyard/torch_weights.py) for every preset. A PyTorch module gives a job its
first weights, and the job makes one step with a negligible learning rate. Its model, loaded into
the module again, must give the same results as `trainyard predict`, and a language model's loss
must equal PyTorch's. The tests fail if a name, a transposed matrix, the order of query, key and
value, or a tensor gets lost in either direction.

TRAINYARD_TORCH_PYTHON names a Python with torch, and with torchvision, timm and transformers for
their modules. Tests of missing packages are skipped. Names of presets on the command line restrict
the tests to those.
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
    from torch import nn
except ImportError as missing:
    python = os.environ.get("TRAINYARD_TORCH_PYTHON")
    if python and os.environ.get("TRAINYARD_TORCH_TRIED") != python:
        os.execve(python, [python, *sys.argv], dict(os.environ, TRAINYARD_TORCH_TRIED=python))
    print(f"{missing.name} is not installed for {sys.executable}", file=sys.stderr)
    raise SystemExit(77)  # CTest's status for skipped tests

MODULE = SOURCE / "client/python/src/trainyard/torch_weights.py"
BOUND = 1e-5  # for probabilities and losses
CLASSES, TOKENS, ROWS = 3, 12, 24


def load(path):
    spec = importlib.util.spec_from_file_location("torch_weights", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["torch_weights"] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


torch_weights = load(MODULE)


def masked_mean(x, tokens):
    counts = (tokens != 0).unsqueeze(-1).to(x.dtype)
    return (x * counts).sum(1) / counts.sum(1)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(257, 16), nn.Embedding(TOKENS, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, 0.0, "gelu", norm_first=True, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(TOKENS))
        return self.head(masked_mean(self.encoder(x, src_key_padding_mask=tokens == 0), tokens))


class Recurrent(nn.Module):
    def __init__(self, kind, both_ways):
        super().__init__()
        self.embedding = nn.Embedding(257, 6)
        self.rnn = kind(6, 5, 2, batch_first=True, bidirectional=both_ways)
        self.fc = nn.Linear(10 if both_ways else 5, CLASSES)

    def forward(self, tokens):
        lengths = (tokens != 0).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(tokens), lengths, True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], True, total_length=tokens.shape[1])
        return self.fc(masked_mean(states, tokens))


class TextCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(257, 6)
        self.conv = nn.ModuleList(nn.Conv2d(1, 4, (width, 6)) for width in (2, 3))
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, tokens):
        x = self.embedding(tokens)[:, None]
        features = []
        for conv in self.conv:  # windows with padding do not count, except the first
            counts = tokens[:, conv.kernel_size[0] - 1:] != 0
            counts[:, 0] = True
            windows = conv(x).squeeze(3).masked_fill(~counts[:, None], -torch.inf)
            features.append(windows.amax(2).relu())
        return self.fc(torch.cat(features, 1))


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(257, 6, mode="mean", padding_idx=0)
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, tokens):
        return self.fc(self.embedding(tokens))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 3, padding=1), nn.Conv2d(20, 50, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(200, 500), nn.Linear(500, CLASSES)

    def forward(self, x):
        for conv in (self.conv1, self.conv2):
            x = nn.functional.max_pool2d(conv(x), 2).relu()
        return self.fc2(self.fc1(x.flatten(1)).relu())


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.code = nn.Linear(64, 9), nn.Linear(9, 4)
        self.fc2, self.fc3 = nn.Linear(4, 9), nn.Linear(9, 64)

    def forward(self, x):
        x = self.code(self.fc1(x.flatten(1)).relu())
        return self.fc3(self.fc2(x).relu())


def torchvision_model(name, **options):
    from torchvision import models

    return getattr(models, name)(num_classes=CLASSES, **options)


def small_resnet():
    """torchvision's blocks after the stem for small images, the preset's default up to 64 x 64."""
    model = torchvision_model("resnet18")
    model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    return model


def small_vgg():
    model = torchvision_model("vgg11_bn", dropout=0.0)
    model.avgpool = nn.Identity()
    model.classifier = nn.Sequential(nn.Linear(512, 20), nn.ReLU(), nn.Identity(), nn.Linear(20, 20), nn.ReLU(),
                                     nn.Identity(), nn.Linear(20, CLASSES))
    return model


def timm_vit():
    import timm

    return timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=CLASSES)


def torchvision_vit():
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 16, 12, 3, 192, 768, num_classes=CLASSES)


def transformers_vit():
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(
        hidden_size=192, num_attention_heads=3, intermediate_size=768, image_size=32, num_labels=CLASSES,
        layer_norm_eps=1e-6))
    return Logits(model)


class Logits(nn.Module):
    """Returns only the logits of a model from transformers."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).logits

    def state_dict(self, *arguments, **options):
        return self.model.state_dict(*arguments, **options)

    def load_state_dict(self, *arguments, **options):
        return self.model.load_state_dict(*arguments, **options)


# Preset: the module, the spec's model, the data, the layout of the written weights.
CASES = {
    "mlp": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.ReLU(), nn.Linear(7, CLASSES)),
            "mlp: {hidden: [7]}", "small", None),
    "lenet5": (LeNet, "lenet5:", "small", None),
    "autoencoder": (Autoencoder, "autoencoder: {type: dense, hidden: [9], latent: 4}", "small", None),
    "resnet18": (small_resnet, "resnet18:", "large", None),
    "vgg11": (small_vgg, "vgg11: {batch_normalization: true, hidden: 20, dropout: 0}", "large", None),
    "vit_tiny of torchvision": (torchvision_vit, "vit_tiny:", "large", "torchvision"),
    "vit_tiny of timm": (timm_vit, "vit_tiny:", "large", "timm"),
    "vit_tiny of transformers": (transformers_vit, "vit_tiny:", "large", "transformers"),
    "transformer_classifier": (Transformer, "transformer_classifier: {n_layer: 2, n_head: 2, n_embd: 16, hidden: 24}",
                               "text", None),
    "lstm_classifier": (lambda: Recurrent(nn.LSTM, False),
                        "lstm_classifier: {embedding_dim: 6, hidden_size: 5, layers: 2}", "text", None),
    "lstm_classifier of GRUs in both directions": (
        lambda: Recurrent(nn.GRU, True),
        "lstm_classifier: {cell: gru, embedding_dim: 6, hidden_size: 5, layers: 2, bidirectional: true}", "text", None),
    "text_cnn": (TextCnn, "text_cnn: {embedding_dim: 6, filters: 4, widths: [2, 3], dropout: 0}", "text", None),
    "embedding_bag_classifier": (Bag, "embedding_bag_classifier: {embedding_dim: 6}", "text", None),
}

SPEC = """
name: {name}
dataset:
  path: {data}
  {format}
model:
  {model}
recipe:
  steps: 1
  batch_size: {batch}
  shuffle: false
  optimizer: {{type: sgd, learning_rate: 1e-30}}
  initial_weights: {{path: {weights}}}
{recipe}"""
FORMATS = {
    "small": "csv: {header: false, target: c64, target_kind: class, image: [1, 8, 8]}",
    "large": "csv: {header: false, target: c3072, target_kind: class, image: [3, 32, 32]}",
    "text": f"csv: {{target: label, target_kind: class, text: [words], tokenizer: byte, max_length: {TOKENS}}}",
}


def image_rows(size):
    draw = random.Random(5)
    return [[draw.randrange(256) for _ in range(size)] for _ in range(ROWS)]


def text_rows():
    draw = random.Random(6)
    return ["".join(draw.choice("abcdefg hij") for _ in range(draw.randrange(4, TOKENS))).strip() + "z"
            for _ in range(ROWS)]


class TorchWeights(DaemonTest):
    def data(self, kind):
        """Returns the rows, the CSV with labels, and the input of `predict`."""
        if kind == "text":
            rows = text_rows()
            csv = "label,words\n" + "".join(f"{'abc'[i % 3]},{row}\n" for i, row in enumerate(rows))
            return rows, self.write("text.csv", csv), ["--text", self.write("rows.txt", "\n".join(rows) + "\n")]
        rows = image_rows(64 if kind == "small" else 3072)
        lines = [",".join(map(str, row)) for row in rows]
        csv = "".join(f"{line},{'abc'[i % 3]}\n" for i, line in enumerate(lines))
        return rows, self.write(f"{kind}.csv", csv), ["--csv", self.write(f"{kind}-rows.csv", "\n".join(lines) + "\n")]

    def inputs(self, kind, rows, preprocessing):
        if kind == "text":
            return torch.tensor([([1 + b for b in row.encode()] + [0] * TOKENS)[:TOKENS] for row in rows])
        shape = (1, 8, 8) if kind == "small" else (3, 32, 32)
        x = torch.tensor(rows, dtype=torch.float64).reshape(-1, *shape) * preprocessing["image_scale"]
        mean, std = (torch.tensor(preprocessing[key], dtype=torch.float64).reshape(-1, 1, 1)
                     for key in ("image_mean", "image_std"))
        return ((x - mean) / std).float()

    def train(self, name, preset, module, spec):
        """Converts the module's weights, trains one step and converts the model's weights back,
        using the command-line programs."""
        torch.save(module.state_dict(), self.folder / f"{name}.pth")
        weights = self.folder / f"{name}.safetensors"
        convert = torch_weights.main
        self.assertEqual(convert(["to-trainyard", "--preset", preset, str(self.folder / f"{name}.pth"), str(weights)]), 0)
        self.daemon.cli("submit", self.write(f"{name}.yaml", spec), "--wait")
        report = self.daemon.job(name)["plan"]["initial_weights"]
        for left in ("missing", "unused", "left_out", "mismatched"):
            self.assertFalse(report.get(left, {}).get("names"), (left, report))
        self.daemon.cli("model", "export", name, "--out", self.folder / f"out-{name}")
        return self.folder / f"out-{name}"

    def check(self, case):
        make, model, kind, layout = CASES[case]
        preset, name = case.split()[0], case.replace("_", "-").replace(" ", "-").lower() + "-case"
        torch.manual_seed(7)
        try:
            module = make()
        except ImportError as missing:
            self.skipTest(str(missing))
        with torch.no_grad():  # changes tensors that start as 0 too, such as biases
            for p in module.parameters():
                p.add_(0.02 * torch.randn_like(p))
        rows, data, ask = self.data(kind)
        folder = self.train(name, preset, module, SPEC.format(
            name=name, data=data, format=FORMATS[kind], model=model, batch=8, weights=f"{name}.safetensors", recipe=""))
        options = ["--layout", layout] if layout else []
        back = self.folder / f"{name}-back.pth"
        self.assertEqual(torch_weights.main(["to-torch", "--preset", preset, *options,
                                             str(folder / "model.safetensors"), str(back)]), 0)
        state = torch_weights.read_weights(back)
        original = module.state_dict()
        statistics = ("running_mean", "running_var", "num_batches_tracked")
        if preset == "mlp":  # names its layers by number, unlike a Sequential
            state = {key.replace("fc1", "1").replace("fc2", "3"): t for key, t in state.items()}
        for key, tensor in state.items():
            if not key.endswith(statistics):
                torch.testing.assert_close(tensor, original[key], rtol=0, atol=1e-20, msg=key)
        missing = module.load_state_dict(state, strict=False)
        self.assertFalse(missing.unexpected_keys)
        self.assertEqual([k for k in missing.missing_keys if not k.endswith("num_batches_tracked")], [])
        info = json.loads((folder / "model.json").read_text())
        with torch.no_grad():
            expected = module.eval()(self.inputs(kind, rows, info["preprocessing"]))
        answer = self.daemon.json("predict", name, *ask)["predictions"]
        if preset == "autoencoder":
            p = info["preprocessing"]
            expected = (expected * p["image_std"][0] + p["image_mean"][0]) / p["image_scale"] / 255
            got = torch.tensor([a["reconstruction"] for a in answer]) / 255
        else:
            expected = expected.softmax(1)
            got = torch.tensor([a["probabilities"] for a in answer])
        worst = (got - expected).abs().max().item()
        print(f"  {case:44} {len(state):4} tensors, answers within {worst:.1e}")
        self.assertLess(worst, BOUND)

    def test_gpt2(self):
        try:
            from transformers import GPT2Config, GPT2LMHeadModel
        except ImportError as missing:
            self.skipTest(str(missing))
        torch.manual_seed(8)
        context, windows = 16, 8
        module = GPT2LMHeadModel(GPT2Config(
            vocab_size=256, n_positions=context, n_embd=24, n_layer=2, n_head=3, resid_pdrop=0, embd_pdrop=0,
            attn_pdrop=0, bos_token_id=0, eos_token_id=0)).eval()
        text = bytes(random.Random(9).randrange(97, 117) for _ in range(context * (windows + 1) + 1))
        data = self.write("text.txt", text)
        folder = self.train("gpt2-case", "gpt2", module, SPEC.format(
            name="gpt2-case", data=data, format="text: {tokenizer: byte}",
            model="gpt2: {n_layer: 2, n_head: 3, n_embd: 24}", batch=windows, weights="gpt2-case.safetensors",
            recipe=f"  context_length: {context}\n"))
        tokens = torch.tensor(list(text[:context * windows + 1]))
        with torch.no_grad():
            logits = module(tokens[:-1].reshape(windows, context)).logits
            expected = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:]).item()
        got = self.daemon.job("gpt2-case")["progress"]["metrics"]["train/loss"]
        print(f"  gpt2: loss {got:.7f}, PyTorch {expected:.7f}")
        self.assertLess(abs(got - expected) / expected, BOUND)
        state = torch_weights.to_torch(torch_weights.read_weights(folder / "model.safetensors"), "gpt2")
        for key, tensor in module.state_dict().items():
            torch.testing.assert_close(state[key], tensor, rtol=0, atol=1e-20, msg=key)

    def test_mistakes_are_reported_by_name(self):
        with self.assertRaisesRegex(torch_weights.WeightsError, r"gpt2 has no tensor for: transformer\.conv1\.weight"):
            torch_weights.to_trainyard({"conv1.weight": torch.zeros(1)}, "gpt2")
        with self.assertRaisesRegex(torch_weights.WeightsError, "text_cnn has no tensors named: h0_ln_1.weight"):
            torch_weights.to_torch({"h0_ln_1.weight": torch.zeros(1)}, "text_cnn")
        with self.assertRaisesRegex(torch_weights.WeightsError, "preset: 'resnet19' is not known"):
            torch_weights.to_trainyard({}, "resnet19")
        with self.assertRaisesRegex(torch_weights.WeightsError, "expected torchvision or timm or transformers"):
            torch_weights.to_torch({}, "vit_tiny", "keras")
        broken = self.write("broken.safetensors", "no")
        self.assertEqual(torch_weights.main(["to-torch", "--preset", "mlp", str(broken), "x.pth"]), 2)


def add_case(case):
    setattr(TorchWeights, "test_" + case.replace(" ", "_"), lambda self: self.check(case))


for each in CASES:
    add_case(each)

if __name__ == "__main__":
    asked = sys.argv[1:]
    if asked and not asked[0].startswith("-"):
        sys.argv[1:] = [f"TorchWeights.test_{name}" for name in asked]
    unittest.main()
