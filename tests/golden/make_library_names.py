#!/usr/bin/env python3
"""Writes library_names.json: the names and shapes of the tensors in the weight files of torchvision, timm and
transformers, for tests/engine/weight_names_test.cc.

    venv/bin/python tests/golden/make_library_names.py

Needs torchvision, timm, transformers and safetensors. Networks are as small as their libraries allow, since only names
and shapes are kept. Files of transformers are written by save_pretrained(), whose names can differ from those of the
module; the other libraries' files hold the state dict.
"""

import json
import pathlib
import tempfile

import timm
import torchvision
import transformers
from safetensors import safe_open

CLASSES = 7
VIT = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "image_size": 32, "num_labels": CLASSES}
GPT2 = {"vocab_size": 60, "n_positions": 16, "n_embd": 12, "n_layer": 2, "n_head": 3}
BERT = {"vocab_size": 60, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def state(model):
    return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "pt") as file:
            return {name: list(file.get_slice(name).get_shape()) for name in file.keys()}


def of_torchvision(name, **options):
    return state(getattr(torchvision.models, name)(num_classes=CLASSES, **options))


def of_timm(name, **options):
    return state(timm.create_model(name, num_classes=CLASSES, **options))


def of_transformers(kind, **options):
    config = getattr(transformers, kind[1])(**options)
    return saved(getattr(transformers, kind[0])(config))


def torchvision_vit():
    return state(torchvision.models.VisionTransformer(32, 16, 12, 3, 192, 768, num_classes=CLASSES))


def resnet_of_transformers(layer, depths, sizes):
    return of_transformers(("ResNetForImageClassification", "ResNetConfig"), layer_type=layer, depths=depths,
                           hidden_sizes=sizes, num_labels=CLASSES)


FILES = {
    "torchvision resnet18": lambda: of_torchvision("resnet18"),
    "torchvision resnet50": lambda: of_torchvision("resnet50"),
    "timm resnet18": lambda: of_timm("resnet18"),
    "transformers resnet18": lambda: resnet_of_transformers("basic", [2, 2, 2, 2], [64, 128, 256, 512]),
    "transformers resnet50": lambda: resnet_of_transformers("bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048]),
    "torchvision vgg11": lambda: of_torchvision("vgg11"),
    "torchvision vgg11_bn": lambda: of_torchvision("vgg11_bn"),
    "timm vgg11": lambda: of_timm("vgg11"),
    "torchvision vit_tiny": torchvision_vit,
    "timm vit_tiny": lambda: of_timm("vit_tiny_patch16_224", img_size=32),
    "transformers vit_tiny": lambda: of_transformers(("ViTForImageClassification", "ViTConfig"), **VIT),
    "transformers vit_tiny without a head": lambda: of_transformers(("ViTModel", "ViTConfig"), **VIT),
    "transformers gpt2": lambda: of_transformers(("GPT2LMHeadModel", "GPT2Config"), **GPT2),
    "transformers gpt2 without a head": lambda: of_transformers(("GPT2Model", "GPT2Config"), **GPT2),
    # networks without a preset
    "transformers bert": lambda: of_transformers(("BertForSequenceClassification", "BertConfig"), **BERT),
    "transformers roberta": lambda: of_transformers(("RobertaForSequenceClassification", "RobertaConfig"), **BERT),
    "transformers distilbert": lambda: of_transformers(
        ("DistilBertForSequenceClassification", "DistilBertConfig"), vocab_size=60, dim=8, n_layers=1, n_heads=2,
        hidden_dim=16),
    "transformers llama": lambda: of_transformers(
        ("LlamaForCausalLM", "LlamaConfig"), vocab_size=60, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16),
    "transformers convnext": lambda: of_transformers(
        ("ConvNextForImageClassification", "ConvNextConfig"), hidden_sizes=[4, 4, 4, 4], depths=[1, 1, 1, 1]),
    "torchvision convnext": lambda: of_torchvision("convnext_tiny"),
    "timm convnext": lambda: of_timm("convnext_atto"),
    "torchvision efficientnet": lambda: of_torchvision("efficientnet_b0"),
    "timm efficientnet": lambda: of_timm("efficientnet_b0"),
    "torchvision mobilenet_v2": lambda: of_torchvision("mobilenet_v2"),
    "torchvision mobilenet_v3": lambda: of_torchvision("mobilenet_v3_small"),
    "timm mobilenet_v2": lambda: of_timm("mobilenetv2_050"),
    "timm mobilenet_v3": lambda: of_timm("mobilenetv3_small_050"),
    "transformers mobilenet_v1": lambda: of_transformers(
        ("MobileNetV1ForImageClassification", "MobileNetV1Config"), depth_multiplier=0.25),
    "transformers mobilenet_v2": lambda: of_transformers(
        ("MobileNetV2ForImageClassification", "MobileNetV2Config"), depth_multiplier=0.25),
    "transformers efficientnet": lambda: of_transformers(
        ("EfficientNetForImageClassification", "EfficientNetConfig"), width_coefficient=0.1, depth_coefficient=0.1,
        hidden_dim=128),
}


WITHOUT_PRESET = FILES.keys() - {name for name in FILES if any(p in name for p in ("resnet", "vgg", "vit_tiny", "gpt2"))}


def main():
    files = {name: make() for name, make in FILES.items()}
    for name in WITHOUT_PRESET:  # their matrices and filters are enough to recognize them
        files[name] = {tensor: shape for tensor, shape in files[name].items() if len(shape) > 1 or "scale" in tensor}
    lines = [f"{json.dumps(name)}: {json.dumps(tensors, separators=(',', ':'))}" for name, tensors in files.items()]
    path = pathlib.Path(__file__).with_name("library_names.json")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(path, path.stat().st_size, "bytes,", {name: len(tensors) for name, tensors in files.items()})


if __name__ == "__main__":
    main()
