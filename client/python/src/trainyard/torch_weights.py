"""Converts PyTorch's weights to Trainyard's and back: the same tensors under different names.

    python -m trainyard.torch_weights to-trainyard --preset resnet18 resnet18.pth resnet18.safetensors
    python -m trainyard.torch_weights to-torch --preset resnet18 model/model.safetensors resnet18.pth

A file whose name ends in .safetensors is a safetensors file; any other is a state dict that torch.save wrote.
docs/python.md names the PyTorch modules of each preset. Needs PyTorch, which is imported when a file is read or
written.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Tensor: TypeAlias = Any  # torch.Tensor; the package must be importable without PyTorch
Weights: TypeAlias = "dict[str, Tensor]"

_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
          "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}
_LEFT_OUT = re.compile(r".*\.(num_batches_tracked|attn\.bias|attn\.masked_bias|position_ids)|pooler\..*")


# --- rules ------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Join:
    """How one or more tensors of PyTorch form one tensor of Trainyard."""

    merge: Callable[[Sequence[Tensor]], Tensor]
    split: Callable[[Tensor, int], Sequence[Tensor]]


SAME = Join(lambda parts: parts[0], lambda whole, _: [whole])
# Hugging Face's GPT-2 has Conv1D layers, whose weights are [inputs, outputs].
TRANSPOSED = Join(lambda parts: parts[0].t(), lambda whole, _: [whole.t()])
# Query, key and value are concatenated along the first axis.
STACKED = Join(lambda parts: _torch().cat(list(parts)), lambda whole, count: whole.chunk(count))
# PyTorch has [1, T, D] and [1, 1, D]; Trainyard omits the first axis.
WITH_BATCH = Join(lambda parts: parts[0].squeeze(0), lambda whole, _: [whole.unsqueeze(0)])
# Trainyard has a convolution over words as one over an image with one channel: [F, 1, width, D]. PyTorch's Conv1d has
# [F, D, width].
WORDS = Join(lambda parts: parts[0] if parts[0].dim() == 4 else parts[0].transpose(1, 2).unsqueeze(1),
             lambda whole, _: [whole])


@dataclass(frozen=True)
class Rule:
    """A pair of name patterns with placeholders: {i} is a number, {i+1} the next one, {p} `weight` or `bias`, {name}
    anything."""

    torch: tuple[str, ...]
    trainyard: str
    join: Join = SAME


def _rules(*rows: tuple[str | tuple[str, ...], str] | tuple[str | tuple[str, ...], str, Join]) -> list[Rule]:
    return [Rule((row[0],) if isinstance(row[0], str) else row[0], row[1], *row[2:]) for row in rows]


def _blocks(names: Mapping[str, str]) -> list[Rule]:
    """Returns rules for the layers of a transformer block."""
    return [Rule((f"{torch}.{{p}}",), f"h{{i}}_{ours}.{{p}}") for ours, torch in names.items()]


_GPT2 = [
    *_blocks({"ln_1": "transformer.h.{i}.ln_1", "ln_2": "transformer.h.{i}.ln_2"}),
    *(Rule((f"transformer.h.{{i}}.{torch}.weight",), f"h{{i}}_{ours}.weight", TRANSPOSED)
      for ours, torch in (("attn_qkv", "attn.c_attn"), ("attn_proj", "attn.c_proj"), ("mlp_fc", "mlp.c_fc"),
                          ("mlp_proj", "mlp.c_proj"))),
    *(Rule((f"transformer.h.{{i}}.{torch}.bias",), f"h{{i}}_{ours}.bias")
      for ours, torch in (("attn_qkv", "attn.c_attn"), ("attn_proj", "attn.c_proj"), ("mlp_fc", "mlp.c_fc"),
                          ("mlp_proj", "mlp.c_proj"))),
    *_rules(("transformer.wte.weight", "wte.weight"), ("transformer.wpe.weight", "wpe.weight"),
            ("transformer.ln_f.{p}", "ln_f.{p}")),
]
_VIT_TORCHVISION = [
    *_blocks({"ln_1": "encoder.layers.encoder_layer_{i}.ln_1", "ln_2": "encoder.layers.encoder_layer_{i}.ln_2",
              "attn_proj": "encoder.layers.encoder_layer_{i}.self_attention.out_proj",
              "mlp_fc": "encoder.layers.encoder_layer_{i}.mlp.0",
              "mlp_proj": "encoder.layers.encoder_layer_{i}.mlp.3"}),
    *_rules(("encoder.layers.encoder_layer_{i}.self_attention.in_proj_{p}", "h{i}_attn_qkv.{p}"),
            ("class_token", "pos_embed.class_token", WITH_BATCH),
            ("encoder.pos_embedding", "pos_embed.weight", WITH_BATCH),
            ("conv_proj.{p}", "patch_embed.{p}"), ("encoder.ln.{p}", "norm.{p}"), ("heads.head.{p}", "head.{p}")),
]
_VIT_TIMM = [
    *_blocks({"ln_1": "blocks.{i}.norm1", "attn_qkv": "blocks.{i}.attn.qkv", "attn_proj": "blocks.{i}.attn.proj",
              "ln_2": "blocks.{i}.norm2", "mlp_fc": "blocks.{i}.mlp.fc1", "mlp_proj": "blocks.{i}.mlp.fc2"}),
    *_rules(("cls_token", "pos_embed.class_token", WITH_BATCH), ("pos_embed", "pos_embed.weight", WITH_BATCH),
            ("patch_embed.proj.{p}", "patch_embed.{p}"), ("norm.{p}", "norm.{p}"), ("fc_norm.{p}", "norm.{p}"),
            ("head.{p}", "head.{p}")),
]
def _vit_of_transformers(layer: str, parts: Sequence[str], names: Mapping[str, str]) -> list[Rule]:
    return [
        *_blocks({"ln_1": f"{layer}.layernorm_before", "ln_2": f"{layer}.layernorm_after",
                  **{ours: f"{layer}.{torch}" for ours, torch in names.items()}}),
        *_rules((tuple(f"{layer}.attention.{part}.{{p}}" for part in parts), "h{i}_attn_qkv.{p}", STACKED),
                ("vit.embeddings.cls_token", "pos_embed.class_token", WITH_BATCH),
                ("vit.embeddings.position_embeddings", "pos_embed.weight", WITH_BATCH),
                ("vit.embeddings.patch_embeddings.projection.{p}", "patch_embed.{p}"),
                ("vit.layernorm.{p}", "norm.{p}"), ("classifier.{p}", "head.{p}")),
    ]


_VIT_TRANSFORMERS = _vit_of_transformers(
    "vit.layers.{i}", ("q_proj", "k_proj", "v_proj"),
    {"attn_proj": "attention.o_proj", "mlp_fc": "mlp.fc1", "mlp_proj": "mlp.fc2"})
_VIT_TRANSFORMERS_4 = _vit_of_transformers(
    "vit.encoder.layer.{i}", ("attention.query", "attention.key", "attention.value"),
    {"attn_proj": "attention.output.dense", "mlp_fc": "intermediate.dense", "mlp_proj": "output.dense"})
_TRANSFORMER = [
    *_blocks({"ln_1": "encoder.layers.{i}.norm1", "attn_proj": "encoder.layers.{i}.self_attn.out_proj",
              "ln_2": "encoder.layers.{i}.norm2", "mlp_fc": "encoder.layers.{i}.linear1",
              "mlp_proj": "encoder.layers.{i}.linear2"}),
    *_rules(("encoder.layers.{i}.self_attn.in_proj_{p}", "h{i}_attn_qkv.{p}"), ("wte.weight", "wte.weight"),
            ("wpe.weight", "wpe.weight"), ("encoder.norm.{p}", "ln_f.{p}"), ("head.{p}", "head.{p}")),
]
def _recurrent(directions: Mapping[str, str]) -> list[Rule]:
    return [*(Rule((f"rnn.{kind}_l{{i}}{torch}",), f"rnn{{i+1}}{ours}.{kind}")
              for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") for torch, ours in directions.items()),
            *_rules(("embedding.weight", "embedding.weight"), ("fc.{p}", "fc.{p}"))]


_TEXT_CNN = _rules(("conv.{i}.weight", "conv{i+1}.weight", WORDS), ("conv.{i}.bias", "conv{i+1}.bias"),
                   ("embedding.weight", "embedding.weight"), ("fc.{p}", "fc.{p}"))
# The names are the same, except that PyTorch joins their parts with "." and Trainyard with "/".
_PLAIN = _rules(("{name}", "{name}"))

# Layouts with their rules. If several match, the first one is used.
_Layouts: TypeAlias = Sequence[tuple[str, list[Rule]]]
_VIT: _Layouts = [("torchvision", _VIT_TORCHVISION), ("timm", _VIT_TIMM), ("transformers", _VIT_TRANSFORMERS),
                  ("transformers-4", _VIT_TRANSFORMERS_4)]
PRESETS: Mapping[str, _Layouts] = {
    **{name: [("torchvision", _PLAIN)] for name in
       ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg13", "vgg16", "vgg19")},
    **{name: _VIT for name in ("vit_tiny", "vit_small", "vit_base")},
    "gpt2": [("transformers", _GPT2)],
    "transformer_classifier": [("torch", _TRANSFORMER)],
    "lstm_classifier": [("torch", _recurrent({"": ""})),
                        ("torch", _recurrent({"_reverse": "_reverse", "": "_forward"}))],
    "text_cnn": [("torch", _TEXT_CNN)],
    **{name: [("torch", _PLAIN)] for name in ("embedding_bag_classifier", "mlp", "lenet5", "autoencoder", "layers")},
}


class WeightsError(ValueError):
    """Tensors are missing, or do not belong to the preset."""


def _torch() -> Any:
    import torch

    return torch


_PLACES = {"i": r"(?P<i>[0-9]+)", "i+1": r"(?P<i1>[0-9]+)", "p": r"(?P<p>weight|bias)", "name": r"(?P<name>.+)"}


def _match(pattern: str, name: str) -> dict[str, str] | None:
    parts = re.split(r"\{([^}]*)\}", pattern)
    regex = "".join(re.escape(part) if k % 2 == 0 else _PLACES[part] for k, part in enumerate(parts))
    found = re.fullmatch(regex, name)
    if found is None:
        return None
    values = {key: value for key, value in found.groupdict().items() if value is not None}
    if "i1" in values:
        if values["i1"] == "0":
            return None
        values["i"] = str(int(values.pop("i1")) - 1)
    return values


def _fill(pattern: str, values: Mapping[str, str]) -> str:
    after = str(int(values["i"]) + 1) if "i" in values else ""
    return re.sub(r"\{([^}]*)\}", lambda m: after if m[1] == "i+1" else values[m[1]], pattern)


def _layouts(preset: str) -> _Layouts:
    if preset not in PRESETS:
        raise WeightsError(f"preset: '{preset}' is not known, expected one of {', '.join(PRESETS)}")
    return PRESETS[preset]


def _best(made: Sequence[tuple[Weights, list[str]]], what: str) -> Weights:
    """Returns the first result with the fewest unmatched names, which must be none."""
    weights, unknown = min(made, key=lambda result: len(result[1]))
    if unknown:
        raise _unknown(unknown, what)
    return weights


def _unknown(names: Sequence[str], what: str) -> WeightsError:
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return WeightsError(f"{what}: {shown}")


# --- names ------------------------------------------------------------------------------------------------------------

def to_trainyard(state: Mapping[str, Tensor], preset: str) -> Weights:
    """Converts a state dict to the tensors of a Trainyard model, in float32. Buffers that Trainyard does not need are
    left out; a tensor that no module of the preset has is an error that names it. A ViT's layout is detected."""
    source = {name: tensor for name, tensor in state.items() if not _LEFT_OUT.fullmatch(name)}
    if preset == "gpt2":
        source = {name if name.startswith("transformer.") else f"transformer.{name}": tensor
                  for name, tensor in source.items() if name != "lm_head.weight"}  # tied to wte
    if preset == "mlp":
        source = _number_linears(source)
    return _best([_to_trainyard(source, rules) for _, rules in _layouts(preset)], f"{preset} has no tensor for")


def _to_trainyard(source: Mapping[str, Tensor], rules: Sequence[Rule]) -> tuple[Weights, list[str]]:
    weights: Weights = {}
    unknown: list[str] = []
    for name in source:
        for rule in rules:
            values = next((v for v in (_match(t, name) for t in rule.torch) if v is not None), None)
            names = [_fill(torch, values) for torch in rule.torch] if values is not None else []
            if values is None or any(part not in source for part in names):
                continue
            ours = _fill(rule.trainyard, values)
            if rules is _PLAIN:
                ours = _with_slashes(ours)
            if ours not in weights:
                weights[ours] = rule.join.merge([source[part] for part in names]).float().contiguous()
            break
        else:
            unknown.append(name)
    return weights, unknown


def _with_slashes(name: str) -> str:
    """Converts layer1.0.conv1.weight to layer1/0/conv1.weight."""
    layer, _, kind = name.rpartition(".")
    return f"{layer.replace('.', '/')}.{kind}" if layer else name


def _number_linears(source: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Renames the linear layers of an nn.Sequential, which numbers all its modules, to fc1, fc2, ... in order."""
    found = {name: re.fullmatch(r"(?:.*\.)?([0-9]+)\.(weight|bias)", name) for name in source}
    if not all(found.values()):
        return dict(source)
    numbers = sorted({int(m[1]) for m in found.values() if m})
    return {f"fc{numbers.index(int(m[1])) + 1}.{m[2]}": source[name] for name, m in found.items() if m}


def to_torch(weights: Mapping[str, Tensor], preset: str, layout: str | None = None) -> Weights:
    """Converts the tensors of a Trainyard model to a state dict for load_state_dict(..., strict=False) of the preset's
    module; only counters such as num_batches_tracked are missing. For a ViT, `layout` selects the naming scheme."""
    layouts = [rules for name, rules in _layouts(preset) if layout in (None, name)]
    if not layouts:
        known = dict.fromkeys(name for name, _ in _layouts(preset))
        raise WeightsError(f"layout: {preset} has no '{layout}', expected {' or '.join(known)}")
    state = _best([_to_torch(weights, rules) for rules in layouts], f"{preset} has no tensors named")
    if preset == "gpt2" and "transformer.wte.weight" in state:
        state["lm_head.weight"] = state["transformer.wte.weight"]
    return state


def _to_torch(weights: Mapping[str, Tensor], rules: Sequence[Rule]) -> tuple[Weights, list[str]]:
    state: Weights = {}
    unknown: list[str] = []
    for ours, tensor in weights.items():
        for rule in rules:
            values = _match(rule.trainyard, ours.replace("/", ".") if rules is _PLAIN else ours)
            if values is None:
                continue
            parts = rule.join.split(tensor, len(rule.torch))
            state.update({_fill(torch, values): part.contiguous() for torch, part in zip(rule.torch, parts)})
            break
        else:
            unknown.append(ours)
    return state, unknown


# --- files ------------------------------------------------------------------------------------------------------------

def read_weights(path: Path) -> Weights:
    """Reads a safetensors file, or a state dict that torch.save wrote; executes no code from the file."""
    torch = _torch()
    if path.suffix != ".safetensors":
        loaded = torch.load(path, map_location="cpu", weights_only=True)
        state = loaded.get("state_dict", loaded) if isinstance(loaded, Mapping) else loaded
        if not isinstance(state, Mapping) or not all(isinstance(t, torch.Tensor) for t in state.values()):
            raise WeightsError(f"{path}: is not a state dict, expected names with tensors")
        return dict(state)
    bytes_ = path.read_bytes()
    try:
        (length,) = struct.unpack_from("<Q", bytes_)
        header = json.loads(bytes_[8:8 + length])
        data = memoryview(bytearray(bytes_[8 + length:]))
        weights: Weights = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            kind = getattr(torch, _TYPES[entry["dtype"]])
            flat = torch.frombuffer(data[begin:end], dtype=kind) if end > begin else torch.empty(0, dtype=kind)
            weights[name] = flat.reshape(entry["shape"])
        return weights
    except (struct.error, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise WeightsError(f"{path}: not a safetensors file: {error}") from None


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file or with torch.save, depending on the file's name."""
    torch = _torch()
    if path.suffix != ".safetensors":
        torch.save(dict(weights), path)
        return
    names = {value: key for key, value in _TYPES.items()}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset, parts = 0, []
    for name, tensor in weights.items():
        part = bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        header[name] = {"dtype": names[str(tensor.dtype).removeprefix("torch.")], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(part)]}
        offset += len(part)
        parts.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainyard.torch_weights",
                                     description="Converts PyTorch's weights to Trainyard's and back.")
    directions = parser.add_subparsers(dest="direction", required=True)
    for direction, what in (("to-trainyard", "convert a state dict to weights for recipe.initial_weights"),
                            ("to-torch", "convert an exported model's model.safetensors to a state dict")):
        command = directions.add_parser(direction, help=what, description=what)
        command.add_argument("--preset", required=True, choices=list(PRESETS), metavar="PRESET",
                             help=f"the network: {', '.join(PRESETS)}")
        if direction == "to-torch":
            command.add_argument("--layout", choices=[name for name, _ in _VIT],
                                 help="for a ViT: the library whose names to write")
        command.add_argument("input", type=Path)
        command.add_argument("output", type=Path)
    options = parser.parse_args(arguments)
    try:
        weights = read_weights(options.input)
        if options.direction == "to-trainyard":
            if options.output.suffix != ".safetensors":
                raise WeightsError(f"{options.output}: expected a name that ends in .safetensors")
            weights = to_trainyard(weights, options.preset)
        else:
            weights = to_torch(weights, options.preset, options.layout)
        write_weights(options.output, weights)
    except (WeightsError, OSError, ImportError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{len(weights)} tensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
