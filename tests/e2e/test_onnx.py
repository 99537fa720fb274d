"""Tests of models exported as ONNX files, for every preset and every layer: onnx.checker reads
them, onnxruntime runs them on raw rows, and the results must equal those of `trainyard predict`.
They fail if a node has another meaning in ONNX, if the preprocessing is not the model's, or if a
file supports only one batch size.

TRAINYARD_ONNX_PYTHON names a Python with onnx and onnxruntime (requirements_onnx.txt). Without it,
the tests that need them are skipped. Names of presets on the command line restrict the tests to
those.
"""

import csv
import gzip
import json
import os
import pty
import re
import subprocess
import sys
import termios
import unittest

from harness import BIN, EXAMPLES, PATIENCE_S, DaemonTest
from onnx_files import tiny_file, with_trained_parameters

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as missing:
    python = os.environ.get("TRAINYARD_ONNX_PYTHON")
    if python and os.environ.get("TRAINYARD_ONNX_TRIED") != python:
        os.execve(python, [python, *sys.argv], dict(os.environ, TRAINYARD_ONNX_TRIED=python))
    onnxruntime = None
    print(f"{missing.name} is not installed for {sys.executable}", file=sys.stderr)

needs_onnxruntime = unittest.skipIf(onnxruntime is None, "onnx and onnxruntime are not installed")

BOUND = 1e-5  # absolute for probabilities, relative for other numbers

DIGITS = f"""
  path: {EXAMPLES / 'digits.csv.gz'}
  csv: {{header: false, target: c64, target_kind: class, image: [1, 8, 8]}}"""


def spec(dataset, model, recipe=""):
    # Most models need 40 steps until their outputs differ between rows.
    steps = 3 if "vit_" in model or "vgg" in model else 40
    return f"""
dataset:{dataset}
model:{model}
recipe:
  steps: {steps}
  batch_size: 8
  optimizer: {{type: adam, learning_rate: 0.005}}{recipe}
"""


def job_name(name):
    return name.replace("_", "-") + "-model"


def digits_rows():
    with gzip.open(EXAMPLES / "digits.csv.gz", "rt") as file:
        return [line.rsplit(",", 1)[0] for line in file.read().splitlines()[:5]]


def wide_images():
    """Returns the lines of a CSV file with 36 grey images of 32 x 32 pixels, 12 of each of three classes."""
    lines = [",".join([f"p{i}" for i in range(1024)] + ["kind"])]
    for row in range(36):
        pixels = [(row * 37 + i * (i % 7 + row % 3) + i // 32 * 11) % 256 for i in range(1024)]
        lines.append(",".join(map(str, pixels)) + f",{'abc'[row % 3]}")
    return lines


def passengers(target):
    """Returns the lines of a CSV file with numeric columns, one far from 0, with missing values, and categories."""
    lines = ["year,age,port,fare,cabin," + target]
    for i in range(80):
        age = "" if i % 9 == 4 else str(i * 7 % 61 + 0.5)
        port = ["S", "C", "Q", ""][i % 4]
        value = f"{1000 + 13.5 * (i % 17)}" if target == "price" else ["no", "yes"][i * i % 3 % 2]
        lines.append(f"{190000 + i % 5},{age},{port},{7.25 + i * 3 % 40},{'AB'[i % 2]}{i % 3},{value}")
    return lines


def news():
    words = {"sport": ["team", "match", "goal", "coach"], "money": ["bank", "rates", "shares", "loan"]}
    lines = ["topic,text"]
    for i in range(64):
        topic = ("sport", "money")[i % 2]
        lines.append(f"{topic},{words[topic][i // 2 % 4]} word{i % 19} and {words[topic][i // 8 % 4]} today x{i}")
    return lines


IMAGE_MODELS = {
    "mlp": "\n  mlp: {hidden: [16, 12], activation: gelu, dropout: 0.2}",
    "lenet5": "\n  lenet5:",
    "resnet18": "\n  resnet18: {width: 4}",
    "resnet34": "\n  resnet34: {width: 4}",
    "resnet50": "\n  resnet50: {width: 4}",
    "vit_tiny": "\n  vit_tiny: {patch_size: 4}",
    "vit_small": "\n  vit_small: {patch_size: 4, pool: mean}",
    "vit_base": "\n  vit_base: {patch_size: 8}",
    "autoencoder": "\n  autoencoder: {latent: 4}",
    "autoencoder_shares": "\n  autoencoder: {type: dense, hidden: [12], latent: 4}\n  loss: binary_cross_entropy",
}
WIDE_MODELS = {
    "vgg11": "\n  vgg11: {width: 16}",
    "vgg13": "\n  vgg13: {width: 16, batch_normalization: true}",
    "vgg16": "\n  vgg16: {width: 16, batch_normalization: true}",
    "vgg19": "\n  vgg19: {width: 16, batch_normalization: true}",
    "resnet18_imagenet": "\n  resnet18: {width: 4, stem: imagenet}",
}
TEXT_MODELS = {
    "lstm_classifier": ("word", "\n  lstm_classifier: {embedding_dim: 8, hidden_size: 6, layers: 2, bidirectional: true}"),
    "last_token": ("char", "\n  lstm_classifier: {cell: gru, embedding_dim: 8, hidden_size: 5, pooling: last}"),
    "gru_classifier": ("byte", "\n  lstm_classifier: {cell: gru, embedding_dim: 8, hidden_size: 7, pooling: last}"),
    "text_cnn": ("char", "\n  text_cnn: {embedding_dim: 8, filters: 5}"),
    "embedding_bag_classifier": ("word", "\n  embedding_bag_classifier: {embedding_dim: 8}"),
    "embedding_bag_sum": ("char", "\n  embedding_bag_classifier: {embedding_dim: 8, mode: sum}"),
    "transformer_classifier": ("word", "\n  transformer_classifier: {n_layer: 2, n_head: 2, n_embd: 8}"),
}

# Layers that no preset uses, and settings with several meanings.
LAYERS = {
    "windows": """
  layers:
    - conv: {out_channels: 6, kernel_shape: [3, 2], strides: [2, 1], pads: [1, 0, 0, 1]}
    - p_relu:
    - average_pool: {kernel_shape: 3, strides: 2, pads: 1, ceil_mode: true}
    - conv: {out_channels: 6, kernel_shape: 3, pads: 2, dilations: 2, group: 3, bias: false}
    - leaky_relu: {alpha: 0.2}
    - conv_transpose: {out_channels: 4, kernel_shape: 3, strides: 2, pads: 1, output_padding: 1, group: 2}
    - average_pool: {kernel_shape: 3, strides: 1, pads: 1, count_include_pad: true}
    - max_pool: {kernel_shape: 3, strides: 2, pads: 1, ceil_mode: true}
    - batch_normalization: {epsilon: 0.01}
    - p_relu: {shared: true}
    - gemm: {units: 9, bias: false}
    - gemm:""",
    "normal_groups": """
  layers:
    - conv: {out_channels: 6, kernel_shape: 3, pads: 1}
    - group_normalization: {num_groups: 3}
    - pad: {pads: [1, 0, 2, 1], axes: [2, 3], mode: reflect}
    - pad: {pads: [0, 1], axes: [3], value: 0.5}
    - max_pool: {kernel_shape: 2, dilations: 2}
    - resize: {scales: 1.7, mode: linear}
    - instance_normalization:
    - resize: {sizes: [9, 7], nearest_mode: floor, coordinate_transformation_mode: asymmetric}
    - average_pool: {kernel_shape: 2, dilations: [2, 1], strides: 2}
    - pad: {pads: [1, 1], axes: [2], mode: edge}
    - gemm:""",
    "functions": """
  layers:
    - gemm: {units: 12, initializer: normal, initializer_std: 1}
    - swish: {alpha: 1.5}
    - thresholded_relu: {alpha: -0.1}
    - elu: {alpha: 0.7}
    - selu:
    - celu: {alpha: 1.3}
    - softplus:
    - softsign:
    - hard_sigmoid:
    - gelu: {approximate: tanh}
    - hard_swish:
    - mish:
    - gemm: {units: 12, initializer: normal, initializer_std: 1}
    - tanh:
    - sigmoid:
    - clip: {min: 0.1}
    - clip: {min: 0.1, max: 0.9}
    - clip: {max: 0.8}
    - gemm: {units: 12, initializer: normal, initializer_std: 1}
    - softplus:
    - log:
    - neg:
    - exp:
    - sqrt:
    - reciprocal:
    - abs:
      name: values
    - constant: {value: 0.25, shape: [12]}
      name: quarter
    - parameter: {shape: 12}
      name: logits
    - sub:
      name: less
      inputs: [values, quarter]
    - mul:
      inputs: [less, less]
      name: squared
    - max:
      inputs: [squared, logits]
      name: larger
    - min:
      inputs: [larger, values]
      name: image
    - div:
      inputs: [image, values]
      name: quotient
    - pow:
      inputs: [values, quarter]
    - add:
      inputs: [pow1, quotient]
    - rms_normalization:
    - gemm:""",
    "movement": """
  layers:
    - reshape: {shape: [8, -1]}
      name: rows
    - split: {split: [3, 5]}
      name: parts
    - split: {axis: -1, num_outputs: 3}
      inputs: [rows]
      name: columns
    - slice: {starts: [1, -3], ends: [100, -1], axes: [1, 2], steps: [2, 1]}
      inputs: [rows]
    - transpose: {perm: [0, 2, 1]}
    - unsqueeze: {axes: [1, -1]}
    - squeeze: {axes: 1}
    - expand: {shape: [2, 4, 3]}
    - reduce_max: {axes: 2}
    - squeeze:
    - flatten:
      name: a
    - reduce_sum: {axes: [1, 2], keepdims: false}
      inputs: [parts]
      name: b0
    - unsqueeze: {axes: 1}
      name: b
    - reduce_l2: {axes: 2, keepdims: false}
      inputs: [parts.1]
      name: c
    - reduce_min: {axes: -1, keepdims: false}
      inputs: [columns.2]
      name: d
    - reduce_mean: {axes: [1, 2], keepdims: false}
      inputs: [columns.0]
      name: e0
    - reshape: {shape: [1]}
      name: e
    - parameter: {shape: [1, 8]}
      name: token
    - concat: {axis: 1}
      inputs: [rows, token]
      name: tokens
    - parameter: {shape: [8, 5], init: uniform}
      name: matrix
    - mat_mul:
      inputs: [tokens, matrix]
    - softmax: {axis: 1}
    - log_softmax:
    - flatten:
      name: f
    - concat: {axis: 1}
      inputs: [a, b, c, d, e, f]
    - layer_normalization: {bias: false}
    - gemm:""",
    "sequences": """
  layers:
    - reshape: {shape: [8, 8]}
      name: rows
    - linear: {units: 12}
    - position_embedding: {class_token: true}
      name: positions
    - layer_normalization:
    - linear: {units: 36}
    - attention: {q_num_heads: 3, is_causal: true, scale: 0.3}
      name: mixed
    - linear: {units: 6}
      name: query
    - linear: {units: 6}
      name: key
      inputs: [rows]
    - attention: {q_num_heads: 2, is_causal: true}
      inputs: [query, key, key]
    - gru: {hidden_size: 5, direction: reverse, bias: false}
    - lstm: {hidden_size: 5, direction: reverse}
      name: read
    - sequence_pool: {mode: first}
      name: first
    - sequence_pool:
      name: mean
      inputs: [read]
    - concat: {axis: 1}
      inputs: [first, mean, read.1]
    - gemm:""",
}


def tokens_of(texts, text):
    """Returns a short implementation of the tokenization that a file's metadata describes."""
    ids = {piece: i + text["first_piece_id"] for i, piece in enumerate(text["pieces"])}
    rows = []
    for line in texts:
        if text["tokenizer"] == "byte":
            row = [b + text["first_piece_id"] for b in line.encode()]
        else:
            pieces = list(line) if text["tokenizer"] == "char" else re.findall("[a-z0-9]+", line.lower())
            row = [ids.get(piece, text.get("unknown_id")) for piece in pieces]
        row = row[:text["length"]]
        rows.append(row + [text.get("padding_id", 0)] * (text["length"] - len(row)))
    return np.array(rows, np.int64)


class File:
    """An ONNX file that has been checked and is ready to run."""

    def __init__(self, path):
        content = path.read_bytes()
        model = onnx.load_from_string(content)
        onnx.checker.check_model(model, full_check=True)
        # Protobuf's serialization of the same fields must give the same bytes.
        assert model.SerializeToString(deterministic=True) == content, "Protobuf writes other bytes"
        self.model = model
        self.metadata = {p.key: p.value for p in model.metadata_props}
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.inputs = {i.name: i for i in self.session.get_inputs()}

    def run(self, feeds, count):
        """Returns all outputs for the first `count` rows."""
        names = [o.name for o in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, {k: v[:count] for k, v in feeds.items()})))

    def feeds(self, rows, header=None):
        """Converts raw rows (CSV lines without the target) to the file's inputs."""
        cells = list(csv.reader(rows))
        if header is not None and set(self.inputs) == set(header):  # one input per column
            columns = {name: np.array([row[i] for row in cells], object)[:, None] for i, name in enumerate(header)}
            return {name: column if self.inputs[name].type == "tensor(string)" else
                    np.array([[float(cell or "nan")] for cell in column[:, 0]], np.float32)
                    for name, column in columns.items()}
        if "image" in self.inputs:
            image = self.inputs["image"]
            kind = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32}[image.type]
            return {"image": np.array(cells, np.float64).astype(kind).reshape([-1, *image.shape[1:]])}
        if "tokens" in self.inputs:
            return {"tokens": tokens_of([row[0] for row in cells], json.loads(self.metadata["text"]))}
        numeric, categorical = [], []
        for row in cells:
            cell = dict(zip(header, row))
            columns = json.loads(self.metadata["columns"])
            numeric.append([float(cell[c["name"]] or "nan") for c in columns if c["kind"] == "numeric"])
            named = [(cell[c["name"]], c["categories"]) for c in columns if c["kind"] == "categorical"]
            if self.inputs["categorical"].type == "tensor(int64)":  # indices for embeddings
                categorical.append([names.index(value) + 1 if value in names else 0 for value, names in named])
            else:
                categorical.append([float(value == name) for value, names in named for name in names])
        kind = {"tensor(int64)": np.int64, "tensor(float)": np.float32}[self.inputs["categorical"].type]
        return {"numeric": np.array(numeric, np.float32), "categorical": np.array(categorical, kind)}


class OnnxInASpec(DaemonTest):
    """`model: {onnx: FILE}`: one command creates a job from another program's network and
    weights."""

    def test_one_command_continues_training(self):
        job = self.daemon.submit(EXAMPLES / "digits_onnx.yaml", "--wait")
        metrics = self.daemon.job(job)["progress"]["metrics"]
        self.assertGreater(metrics["val/accuracy"], 0.95)
        # The file's model knows five of the ten digits, and the other classes' scores start low.
        first = next(s["values"][0] for e in self.daemon.events(job) if "metrics" in e
                     for s in e["metrics"]["series"] if s["key"] == "train/accuracy")
        self.assertGreater(first, 0.35)
        spec = self.daemon.job(job)["spec"]
        self.assertEqual(spec["model"]["onnx"], "")
        self.assertEqual([next(k for k in layer if k not in ("name", "inputs", "bind")) for layer in spec["model"]["layers"]],
                         ["conv", "relu", "conv", "relu", "max_pool", "flatten", "gemm"])
        # The weights become a model on the server, and the same file is not uploaded again.
        weights = spec["recipe"]["initial_weights"]["model"]
        self.assertEqual(self.daemon.json("submit", EXAMPLES / "digits_onnx.yaml", "--dry-run")["spec"]["recipe"]
                         ["initial_weights"]["model"], weights)

    def test_an_omitted_last_layer_becomes_a_new_head(self):
        rows = gzip.open(EXAMPLES / "digits.csv.gz", "rt").read().splitlines()
        self.write("three.csv", "\n".join(r for r in rows if r.rsplit(",", 1)[1] in "012") + "\n")
        text = f"""dataset:
  path: three.csv
  csv: {{header: false, target: c64, target_kind: class, image: [1, 8, 8]}}
model:
  onnx: {EXAMPLES / "digits_0_to_4.onnx"}
recipe:
  epochs: 4
  validation_split: 0.2
  optimizer: {{type: adam, learning_rate: 0.003}}
"""
        self.assert_refused(self.daemon.cli("submit", self.write("old_head.yaml", text), check=False), 2, "10", "3")
        job = self.daemon.submit(self.write("new_head.yaml", text + '  initial_weights: {exclude: ["fc.*"]}\n'), "--wait")
        job = self.daemon.job(job)
        self.assertEqual(job["spec"]["model"]["layers"][-1]["gemm"].get("units", 0), 0)
        self.assertGreater(job["progress"]["metrics"]["val/accuracy"], 0.95)
        report = job["plan"]["initial_weights"]
        self.assertEqual(report["left_out"]["names"], ["fc.weight", "fc.bias"])
        self.assertIn("conv2.weight", report["taken"]["names"])

    def hints(self, *arguments):
        """Returns the hints that a command prints in addition to its result if stderr is a terminal."""
        reader, writer = pty.openpty()
        termios.tcsetwinsize(writer, (50, 250))  # wide enough that no sentence is wrapped
        subprocess.run([BIN / "trainyard", *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=writer, check=True,
                       timeout=PATIENCE_S, env=dict(os.environ, TRAINYARD_SERVER=f"unix:{self.daemon.socket}", NO_COLOR="1"))
        os.close(writer)
        text = b""
        try:
            while part := os.read(reader, 65536):
                text += part
        except OSError:  # at the end Linux reports EIO
            pass
        os.close(reader)
        return text.decode()

    def test_fixed_parameters_are_frozen_before_the_recipes_groups(self):
        file = with_trained_parameters((EXAMPLES / "digits_0_to_4.onnx").read_bytes(), ["conv2.weight", "fc.weight", "fc.bias"])
        (self.folder / "named.onnx").write_bytes(file)
        text = f"dataset:{DIGITS}\nmodel:\n  onnx: named.onnx\nrecipe: {{steps: 2, optimizer: {{learning_rate: 0.1}}"

        def groups(name, more=""):
            recipe = self.daemon.json("submit", self.write(f"{name}.yaml", text + more + "}\n"), "--dry-run")["spec"]["recipe"]
            return [(group["match"], group.get("freeze", False)) for group in recipe.get("parameter_groups", [])]

        of_file = [("conv1.*", True), ("conv2.bias", True)]
        own = ', parameter_groups: [{match: "conv1.bias", freeze: false}]'
        self.assertEqual(groups("plain"), of_file)
        self.assertEqual(groups("own", own), [*of_file, ("conv1.bias", False)])
        # LoRA freezes everything itself and trains what a group unfreezes.
        self.assertEqual(groups("lora", own + ", lora: {rank: 2, targets: [fc]}"), [("conv1.bias", False)])
        # A recipe for a hand-written job needs these groups, and `model import` says so. A submit
        # adds them.
        needs = 'the recipe needs parameter_groups: [{match: "conv1.*", freeze: true}, {match: "conv2.bias", freeze: true}]'
        self.assertIn(needs, self.hints("model", "import", self.folder / "named.onnx", "--out", self.folder / "named"))
        hints = self.hints("submit", self.folder / "own.yaml", "--dry-run")
        self.assertIn("recipe.parameter_groups freezes the weights that the file does not train.", hints)
        self.assertNotIn("the recipe needs", hints)

    def test_everything_missing_is_reported_at_once_and_nothing_is_submitted(self):
        self.write("odd.onnx", tiny_file("Relu", "Bernoulli", "Det", "Bernoulli"))
        path = self.write("odd.yaml", "dataset: {name: any}\nmodel:\n  onnx: odd.onnx\n"
                                      "recipe: {steps: 1, optimizer: {learning_rate: 0.1}}\n")
        self.assert_refused(self.daemon.cli("submit", path, check=False), 5, "odd.yaml:3:9: model.onnx: ", "Bernoulli",
                            "Det", "node1", "node2", "ONNX_UNSUPPORTED")
        self.assertNotIn("odd", self.daemon.cli("list").stdout)


class Onnx(DaemonTest):
    def exported(self, name, text, *flags):
        """Trains with a spec, exports the model and returns the file."""
        job = job_name(name)
        self.daemon.cli("submit", self.write(f"{name}.yaml", f"name: {job}\n{text}"), "--wait")
        path = self.folder / f"{name}.onnx"
        done = self.daemon.cli("model", "export", job, "--format", "onnx", "--out", path, *flags)
        self.assertEqual(done.stdout.strip(), str(path))
        return File(path)

    def judge(self, name, text, rows, header=None, flags=()):
        """Exports the model and compares its results with predict's, for three rows together and
        for one."""
        file = self.exported(name, text, *flags)
        lines = ([",".join(header)] if header else []) + rows
        answer = self.daemon.json("predict", job_name(name), "--csv",
                                  self.write("rows.csv", "\n".join(lines) + "\n"))
        feeds = file.feeds(rows, header)
        for count in (3, 1):
            outputs = file.run(feeds, count)
            expected = answer["predictions"][:count]
            if file.metadata["task"] == "reconstruction":
                values = np.array([p["reconstruction"] for p in expected])
                given = outputs["reconstruction"].reshape(count, -1)
                error = np.abs(given - values).max() / np.abs(values).max()
            elif file.metadata["task"] == "regression":
                values = np.array([p["value"] for p in expected])
                error = np.abs(outputs["prediction"][:, 0] / values - 1).max()
            else:
                self.assertEqual(json.loads(file.metadata["classes"]), answer["classes"])
                values = np.array([p["probabilities"] for p in expected])
                error = np.abs(outputs["probabilities"] - values).max()
                self.assertEqual([answer["classes"][k] for k in outputs["logits"].argmax(1)],
                                 [p["label"] for p in expected])
            self.assertLess(error, BOUND, f"{name}, batch {count}")
            if count > 1:  # identical outputs for all rows would prove nothing
                self.assertGreater(np.ptp(values, axis=0).max(), 10 * BOUND, name)
        print(f"{name}: {error:.1e}")
        return file

    def wanted(self, models):
        return [(name, m) for name, m in models.items() if not ONLY or name in ONLY]

    @needs_onnxruntime
    def test_images(self):
        for name, model in self.wanted({**IMAGE_MODELS, **LAYERS}):
            with self.subTest(name):
                self.judge(name, spec(DIGITS, model), digits_rows())

    @needs_onnxruntime
    def test_wide_images(self):
        lines = wide_images()
        path = self.write("wide.csv", "\n".join(lines) + "\n")
        dataset = f"\n  path: {path}\n  csv: {{target: kind, image: [1, 32, 32]}}"
        rows, header = [line.rsplit(",", 1)[0] for line in lines[1:6]], lines[0].split(",")[:-1]
        for name, model in self.wanted(WIDE_MODELS):
            with self.subTest(name):
                self.judge(name, spec(dataset, model), rows, header)
        for name, model in self.wanted({"fixed_scale": WIDE_MODELS["resnet18_imagenet"]}):
            with self.subTest(name):
                self.judge(name, spec(dataset, model, "\n  normalize: minus_one_to_one"), rows, header)

    @needs_onnxruntime
    def test_tables(self):
        one_score = "\n  loss: binary_cross_entropy"
        by_hand = """
  layers:
    - {name: port, inputs: [input], category_embedding: {column: port, embedding_dim: 2, initializer_std: 1}}
    - {name: numbers, inputs: [input], slice: {starts: 0, ends: 3}}
    - {inputs: [port, numbers], concat: {}}
    - gemm:"""
        for name, target, model in (
                ("survived", "survived", "\n  mlp: {hidden: [8]}"),
                ("one_score", "survived", "\n  mlp: {hidden: [8]}" + one_score),
                ("price", "price", "\n  mlp: {hidden: [8]}"),
                ("embedding", "survived", "\n  mlp: {hidden: [8], embedding: auto}"),
                ("embedding_price", "price", "\n  mlp: {hidden: [8], embedding: {cabin: 3}}"),
                ("embedding_layers", "survived", by_hand)):
            lines = passengers(target)
            path = self.write(f"{target}.csv", "\n".join(lines) + "\n")
            dataset = f"\n  path: {path}\n  csv: {{target: {target}}}"
            with self.subTest(name):
                # The last row has an unseen category.
                rows = [line.rsplit(",", 1)[0] for line in lines[4:9]] + ["190002,30,X,9.5,Z1"]
                file = self.judge(name, spec(dataset, model), rows,
                                  lines[0].split(",")[:-1])
                self.assertEqual(file.metadata["target"], target)

    @needs_onnxruntime
    def test_raw_rows(self):
        """Each column is an input of its own name, and a table's cells are passed unchanged."""
        path = {target: self.write(f"raw_{target}.csv", "\n".join(passengers(target)) + "\n")
                for target in ("survived", "price")}
        for name, target, more, model in (
                ("raw_both", "survived", "", "{hidden: [8]}"),
                ("raw_codes", "price", "", "{hidden: [8], embedding: auto}"),
                ("raw_numbers", "survived", ", ignore: [port, cabin]", "{hidden: [8]}"),
                ("raw_texts", "survived", ", ignore: [year, age, fare]", "{hidden: [8], embedding: {cabin: 3}}")):
            with self.subTest(name):
                header, *lines = [line.split(",")[:-1] for line in passengers(target)]
                rows = [*lines[3:8], ["190002", "30", "X", "9.5", "Z1"], ["190002", "", "NA", "9.5", ""]]
                left = [i for i, column in enumerate(header) if column not in more]
                rows = [",".join(row[i] for i in left) for row in rows]
                dataset = f"\n  path: {path[target]}\n  csv: {{target: {target}{more}}}"
                file = self.judge(name, spec(dataset, f"\n  mlp: {model}"), rows, [header[i] for i in left], ["--raw-rows"])
                self.assertEqual(list(file.inputs), [header[i] for i in left])
                self.assertNotIn("rows", file.metadata)

    def test_raw_rows_that_onnx_cannot_read_are_refused(self):
        days = [f"{i},2024-01-{i % 28 + 1:02},{i % 2}" for i in range(40)]
        small = "\n  mlp: {hidden: [4]}"
        table = self.write("days.csv", "\n".join(["size,day,late", *days]) + "\n")
        logits = self.write("logits.csv", "\n".join(["size,logits,late", *(d.replace("2024-01-", "") for d in days)]) + "\n")
        news_file = self.write("raw_news.csv", "\n".join(news()) + "\n")
        cases = {
            "dates": (f"\n  path: {table}\n  csv: {{target: late, target_kind: class, date: [day]}}", small,
                      ["'day' is a date", "trainyard.load"]),
            "name": (f"\n  path: {logits}\n  csv: {{target: late, target_kind: class}}", small, ["'logits'", "expected one"]),
            "texts": (f"\n  path: {news_file}\n  csv: {{target: topic, text: [text], max_length: 9}}",
                      "\n  embedding_bag_classifier: {embedding_dim: 4}", ["tokens", "trainyard.load"]),
            "images": (DIGITS, small, ["pixels are raw in every"])}
        for name, (dataset, model, words) in cases.items():
            with self.subTest(name):
                job = f"refused-{name}"
                self.daemon.cli("submit", self.write(f"{job}.yaml", f"name: {job}\n" + spec(dataset, model)), "--wait")
                file = self.folder / f"{job}.onnx"
                export = ["model", "export", job, "--out", file, "--raw-rows"]
                refused = self.daemon.cli(*export, "--format", "onnx", check=False)
                self.assert_refused(refused, 5, "ONNX_UNSUPPORTED", *words)
                self.assertFalse(file.exists())
                self.assert_refused(self.daemon.cli(*export, check=False), 2, "--raw-rows", "--format onnx")

    @needs_onnxruntime
    def test_rows_of_text(self):
        lines = news()
        path = self.write("news.csv", "\n".join(lines) + "\n")
        for name, (tokenizer, model) in self.wanted(TEXT_MODELS):
            size = ", vocabulary_size: 25" if tokenizer == "word" else ""
            dataset = (f"\n  path: {path}\n  csv: {{target: topic, text: [text], tokenizer: {tokenizer}, "
                       f"max_length: 23{size}}}")
            with self.subTest(name):
                self.judge(name, spec(dataset, model),
                           ["a goal by the Coach of team7", '""', lines[5].split(",")[1]], ["text"])

    @needs_onnxruntime
    def test_next_tokens(self):
        """Compares the loss over a test text, since predict does not support these models."""
        context = 12
        test = "to be or not to be, that is the question whether"[:4 * context + 1]
        train = self.write("train.txt", "the question is whether to be or not to be, that is " * 9)
        self.write("test.txt", test)
        gpt2 = "\n  gpt2: {n_layer: 2, n_head: 2, n_embd: 12}"
        llama = "\n  decoder: {n_layer: 2, n_head: 4, n_kv_head: 2, n_embd: 16, tied_head: true, window: 5}"
        olmo = """
  decoder:
    n_layer: 2
    n_head: 2
    n_embd: 8
    head_dim: 6
    rope_dim: 4
    rope_scaling: yarn
    rope_factor: 2
    rope_original_positions: 4
    no_rope_layers: [1]
    qkv_bias: true
    qk_norm: all
    norm_place: after
    logits_divisor: 2"""
        for name, tokenizer, model in (("gpt2-char", "char", gpt2), ("gpt2-byte", "byte", gpt2),
                                       ("llama", "char", llama), ("olmo", "byte", olmo)):
            dataset = f"\n  path: {train}\n  test_path: test.txt\n  text: {{tokenizer: {tokenizer}}}"
            with self.subTest(name):
                file = self.exported(name, spec(dataset, model, f"\n  context_length: {context}"))
                text = dict(json.loads(file.metadata["text"]), length=len(test))
                stream = tokens_of([test], text)[0]
                windows = (len(test) - 1) // context
                tokens = stream[:windows * context].reshape(windows, context)
                following = stream[1:windows * context + 1].reshape(windows, context)
                expected = self.daemon.job(job_name(name))["progress"]["metrics"]["test/loss"]
                logits = file.run({"tokens": tokens}, windows)["logits"].astype(np.float64)
                scores = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
                loss = -np.take_along_axis(scores, following[..., None], -1).mean()
                self.assertLess(abs(loss / expected - 1), BOUND)
                one = file.run({"tokens": tokens}, 1)["logits"]
                self.assertLess(np.abs(one - logits[:1]).max(), BOUND)

    def test_wrong_input(self):
        model = self.write("small.yaml", "name: small-model\n" + spec(DIGITS, "\n  mlp: {hidden: [4]}"))
        self.daemon.cli("submit", model, "--wait")
        taken = self.write("taken.onnx", "somebody's")
        export = ["model", "export", "small-model", "--out"]

        def refused(code, words, *arguments):
            self.assert_refused(self.daemon.cli(*arguments, check=False), code, *words)

        refused(2, ["onx", "safetensors, onnx or transformers"], *export, "x", "--format", "onx")
        refused(5, ["taken.onnx", "FILE_EXISTS"], *export, taken, "--format", "onnx")
        refused(4, ["no folder", "away"], *export, self.folder / "away/m.onnx", "--format", "onnx")
        refused(4, ["nobody"], "model", "export", "nobody-1", "--format", "onnx", "--out", self.folder / "n.onnx")
        refused(4, ["away"], "local", "export", self.folder / "away", "--out", self.folder / "n.onnx")
        self.assertEqual(taken.read_text(), "somebody's")
        self.assertEqual(list(self.folder.glob("n.onnx*")), [])

        # Exporting a downloaded model folder gives the same file without a server.
        self.daemon.cli(*export, self.folder / "small")
        self.daemon.cli(*export, self.folder / "a.onnx", "--format", "onnx")
        done = self.daemon.json("local", "export", self.folder / "small", "--out", self.folder / "b.onnx")
        self.assertEqual(int(done["size_bytes"]), (self.folder / "a.onnx").stat().st_size)
        self.assertEqual((self.folder / "a.onnx").read_bytes(), (self.folder / "b.onnx").read_bytes())


ONLY = set()

if __name__ == "__main__":
    ONLY = {argument for argument in sys.argv[1:] if not argument.startswith("-")}
    unittest.main(verbosity=2, argv=[sys.argv[0], *(a for a in sys.argv[1:] if a.startswith("-"))])
