#!/usr/bin/env python3
"""Imports models of torchvision and transformers, and writes the table of docs/onnx.md.

    pip install torch torchvision transformers onnx onnxscript onnxruntime
    tests/onnx/model_table.py                      imports each model and compares the results with the table
    tests/onnx/model_table.py --write              writes the table
    tests/onnx/model_table.py --one resnet18       one model, as a line of JSON

Each model has random weights and is exported by an ordinary `torch.onnx.export` with an open batch, or with a fixed one where
PyTorch's exporter cannot leave it open; it is small where its configuration allows it. `onnx_import_run` (tests/onnx/import_run.cc) imports the file and computes its output for two samples,
which must be within 1e-5 of onnxruntime's, relative to the largest number of the output if that is above 1. Each model runs in
a process of its own. Exits with 77 without these packages.
"""
import argparse
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "onnx.md"
BEGIN, END = "<!-- models of tests/onnx/model_table.py -->", "<!-- end of the models -->"
PACKAGES = ("torch", "torchvision", "transformers", "onnx", "onnxscript", "onnxruntime")
BOUND = 1e-5
BATCH, LENGTH, VOCABULARY = 2, 16, 60
SECONDS = 300

# --- torchvision: name of the model and size of its images ---

IMAGES = {
    "alexnet": 224, "squeezenet1_0": 64, "squeezenet1_1": 64, "resnet18": 64, "resnet50": 64, "resnext50_32x4d": 64,
    "densenet121": 64, "googlenet": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64, "mobilenet_v3_large": 64,
    "mnasnet0_5": 64, "shufflenet_v2_x0_5": 64, "efficientnet_b0": 64, "regnet_x_400mf": 64, "regnet_y_400mf": 64,
    "convnext_tiny": 64, "swin_t": 64, "vit_b_16": 224, "segmentation.lraspp_mobilenet_v3_large": 64,
}

# --- transformers: class of the model, its configuration, and changes of the usual small sizes ---

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {**SMALL, "vocab_size": VOCABULARY, "max_position_embeddings": 40, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40, "vocab_size": VOCABULARY, "use_cache": False,
       "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
CAUSAL = {**TEXT, "use_cache": False, "num_key_value_heads": 2, "head_dim": 8}
PICTURE = {**SMALL, "image_size": 32, "patch_size": 8}

TEXTS = {
    "BertForSequenceClassification": ("BertConfig", TEXT),
    "BertForMaskedLM": ("BertConfig", TEXT),
    "DistilBertForSequenceClassification": ("DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64,
                                                                 "vocab_size": VOCABULARY, "max_position_embeddings": 40}),
    "RobertaForSequenceClassification": ("RobertaConfig", TEXT),
    "XLMRobertaForSequenceClassification": ("XLMRobertaConfig", TEXT),
    "CamembertForSequenceClassification": ("CamembertConfig", TEXT),
    "AlbertForSequenceClassification": ("AlbertConfig", {**TEXT, "embedding_size": 16}),
    "ElectraForSequenceClassification": ("ElectraConfig", {**TEXT, "embedding_size": 16}),
    "ErnieForSequenceClassification": ("ErnieConfig", TEXT),
    "MPNetForSequenceClassification": ("MPNetConfig", TEXT),
    "MobileBertForSequenceClassification": ("MobileBertConfig", {**TEXT, "embedding_size": 32, "intra_bottleneck_size": 32}),
    "SqueezeBertForSequenceClassification": ("SqueezeBertConfig", {**TEXT, "embedding_size": 32}),
    "ConvBertForSequenceClassification": ("ConvBertConfig", {**TEXT, "embedding_size": 32}),
    "DebertaV2ForSequenceClassification": ("DebertaV2Config", {**TEXT, "relative_attention": True, "position_buckets": 8,
                                                              "pos_att_type": ["p2c", "c2p"]}),
    "FNetForSequenceClassification": ("FNetConfig", TEXT),
    "RoFormerForSequenceClassification": ("RoFormerConfig", TEXT),
    "NystromformerForSequenceClassification": ("NystromformerConfig", {**TEXT, "num_landmarks": 4, "segment_means_seq_len": 16}),
    "ModernBertForSequenceClassification": ("ModernBertConfig", {**TEXT, "local_attention": 8, "cls_token_id": 1,
                                                                "sep_token_id": 2}),
    "XLNetForSequenceClassification": ("XLNetConfig", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64,
                                                       "vocab_size": VOCABULARY}),
    "T5EncoderModel": ("T5Config", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
                                    "vocab_size": VOCABULARY}),
    "GPT2LMHeadModel": ("GPT2Config", GPT),
    "GPTNeoForCausalLM": ("GPTNeoConfig", {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "vocab_size": VOCABULARY,
                                           "attention_types": [[["global", "local"], 1]], "window_size": 8,
                                           "max_position_embeddings": 40, "use_cache": False, "bos_token_id": 1,
                                           "eos_token_id": 2}),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", {**TEXT, "use_cache": False}),
    "GPTJForCausalLM": ("GPTJConfig", {**GPT, "rotary_dim": 8}),
    "OPTForCausalLM": ("OPTConfig", {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32, "use_cache": False}),
    "BloomForCausalLM": ("BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY,
                                         "use_cache": False}),
    "LlamaForCausalLM": ("LlamaConfig", CAUSAL),
    "MistralForCausalLM": ("MistralConfig", CAUSAL),
    "Qwen2ForCausalLM": ("Qwen2Config", CAUSAL),
    "Qwen3ForCausalLM": ("Qwen3Config", CAUSAL),
    "GemmaForCausalLM": ("GemmaConfig", CAUSAL),
    "Gemma2ForCausalLM": ("Gemma2Config", CAUSAL),
    "PhiForCausalLM": ("PhiConfig", {**TEXT, "use_cache": False}),
    "Phi3ForCausalLM": ("Phi3Config", CAUSAL),
    "FalconForCausalLM": ("FalconConfig", {**TEXT, "use_cache": False}),
    "StableLmForCausalLM": ("StableLmConfig", CAUSAL),
    "OlmoForCausalLM": ("OlmoConfig", CAUSAL),
    "Olmo2ForCausalLM": ("Olmo2Config", CAUSAL),
    "GraniteForCausalLM": ("GraniteConfig", CAUSAL),
    "CohereForCausalLM": ("CohereConfig", CAUSAL),
    "Starcoder2ForCausalLM": ("Starcoder2Config", CAUSAL),
    "MixtralForCausalLM": ("MixtralConfig", {**CAUSAL, "num_local_experts": 2}),
    "MambaForCausalLM": ("MambaConfig", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "use_cache": False}),
    "BartForCausalLM": ("BartConfig", {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64,
                                       "vocab_size": VOCABULARY, "max_position_embeddings": 40, "use_cache": False}),
    "CLIPTextModelWithProjection": ("CLIPTextConfig", {**TEXT, "projection_dim": 16}),
}

PICTURES = {
    "ViTForImageClassification": ("ViTConfig", PICTURE),
    "DeiTForImageClassification": ("DeiTConfig", PICTURE),
    "BeitForImageClassification": ("BeitConfig", {**PICTURE, "use_relative_position_bias": True}),
    "Data2VecVisionForImageClassification": ("Data2VecVisionConfig", PICTURE),
    "Dinov2ForImageClassification": ("Dinov2Config", PICTURE),
    "ViTMSNForImageClassification": ("ViTMSNConfig", PICTURE),
    "CLIPVisionModelWithProjection": ("CLIPVisionConfig", {**PICTURE, "projection_dim": 16}),
    "SiglipVisionModel": ("SiglipVisionConfig", PICTURE),
    "SwinForImageClassification": ("SwinConfig", {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2],
                                                  "num_heads": [2, 4], "window_size": 4}),
    "Swinv2ForImageClassification": ("Swinv2Config", {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2],
                                                      "num_heads": [2, 4], "window_size": 4}),
    "ConvNextForImageClassification": ("ConvNextConfig", {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 2, 1]}),
    "ConvNextV2ForImageClassification": ("ConvNextV2Config", {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 2, 1]}),
    "ResNetForImageClassification": ("ResNetConfig", {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 2]}),
    "RegNetForImageClassification": ("RegNetConfig", {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 2],
                                                      "groups_width": 8}),
    "MobileNetV1ForImageClassification": ("MobileNetV1Config", {"depth_multiplier": 0.25}),
    "MobileNetV2ForImageClassification": ("MobileNetV2Config", {"depth_multiplier": 0.35}),
    "MobileViTForImageClassification": ("MobileViTConfig", {"image_size": 64, "hidden_sizes": [16, 24, 32],
                                                            "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32]}),
    "EfficientNetForImageClassification": ("EfficientNetConfig", {}),
    "PoolFormerForImageClassification": ("PoolFormerConfig", {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1]}),
    "SegformerForImageClassification": ("SegformerConfig", {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1],
                                                            "num_attention_heads": [1, 2, 4, 8]}),
    "PvtForImageClassification": ("PvtConfig", {"image_size": 64, "hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1],
                                                "num_attention_heads": [1, 2, 4, 8]}),
    "PvtV2ForImageClassification": ("PvtV2Config", {"image_size": 64, "hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1],
                                                    "num_attention_heads": [1, 2, 4, 8]}),
    "LevitForImageClassification": ("LevitConfig", {}),
    "FocalNetForImageClassification": ("FocalNetConfig", {"image_size": 64, "embed_dim": 8, "depths": [1, 1, 1, 1]}),
    "SegformerForSemanticSegmentation": ("SegformerConfig", {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1],
                                                             "num_attention_heads": [1, 2, 4, 8], "decoder_hidden_size": 32}),
}

SOUNDS = {
    "Wav2Vec2ForSequenceClassification": ("Wav2Vec2Config", {**SMALL, "vocab_size": 20, "conv_dim": [16, 16, 16],
                                                             "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 3],
                                                             "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16,
                                                             "num_conv_pos_embedding_groups": 4}),
    "ASTForAudioClassification": ("ASTConfig", {**SMALL, "max_length": 64, "num_mel_bins": 32}),
}


def names():
    return [*(f"torchvision.{name}" for name in IMAGES),
            *(f"transformers.{name}" for kind in (TEXTS, PICTURES, SOUNDS) for name in kind)]


def make(name):
    """Returns a model and an example of its input."""
    import torch

    package, _, kind = name.partition(".")
    if package == "torchvision":
        from torchvision import models
        size = IMAGES[kind]
        settings = {"weights": None}
        if kind == "googlenet":
            settings["init_weights"] = False  # drawing them takes minutes
        if "." in kind:
            settings["weights_backbone"] = None
        model = models.get_model(kind.rsplit(".", maxsplit=1)[-1], **settings)
        return model, torch.randn(BATCH, 3, size, size)
    import transformers

    config, settings = next(kinds[kind] for kinds in (TEXTS, PICTURES, SOUNDS) if kind in kinds)
    model = getattr(transformers, kind)(getattr(transformers, config)(**settings))
    if kind in TEXTS:
        return model, torch.randint(3, VOCABULARY, (BATCH, LENGTH))
    if kind in PICTURES:
        size = settings.get("image_size") or {"EfficientNetForImageClassification": 64,
                                              "LevitForImageClassification": 224}.get(kind, 64)
        return model, torch.randn(BATCH, model.config.num_channels if hasattr(model.config, "num_channels") else 3, size, size)
    return model, torch.randn(BATCH, 64, 32) if kind.startswith("AST") else torch.randn(BATCH, 2000)


def spread_weights(model):
    """Gives every parameter numbers of its own, because the exporter joins parameters that are equal, such as biases of 0."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)


def export(model, example, file, batch):
    """Exports with an open batch, or, without `batch`, for as many samples as the example has."""
    import torch

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (example,), str(file), dynamo=True, verbose=False, dynamic_shapes=({0: batch},) if batch else None)


def cause_of(error):
    """Returns the line of an exporter's error that says what failed."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    found = re.search(r"^<class '([\w.]+)'>: (.*)$", text, re.M)
    name, line = found.groups() if found else (type(error).__name__, (text.strip().splitlines() or [""])[0])
    return f"{name.rsplit('.', maxsplit=1)[-1]}: {line[:160]}"


def run_one(name, program):
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model, example = make(name)
    model.eval()
    spread_weights(model)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "model.onnx"
        opened = True
        try:
            export(model, example, file, torch.export.Dim("batch", min=1, max=64))
        except Exception:  # whatever PyTorch's exporter raises
            opened = False
            try:
                export(model, example, file, None)
            except Exception as error:
                return {"not_exported": cause_of(error)}
        del model
        return {**compare(file, example.numpy(), pathlib.Path(folder), program), "open": opened}


def compare(file, example, folder, program):
    import numpy as np
    import onnxruntime

    tokens = example.dtype == np.int64
    (folder / "input").write_bytes(example.astype(np.int32 if tokens else np.float32).tobytes())
    done = subprocess.run([program, file, folder / "input", folder / "output", str(BATCH)], capture_output=True, text=True)
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    report = json.loads(done.stdout)
    if "refused" in report:
        return report
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    expected = session.run([report["output"]], {session.get_inputs()[0].name: example})[0]
    found = np.fromfile(folder / "output", np.float32)
    expected = np.moveaxis(expected, report["output_batch"], 0).ravel() if report["output_batch"] > 0 else expected.ravel()
    report["largest"] = float(np.abs(expected).max())
    report["difference"] = float(np.abs(found - expected).max()) if found.shape == expected.shape else float("inf")
    return report


def run_in_child(name, program):
    """Runs a model in a process of its own, which has the packages from this one."""
    for package in PACKAGES:
        importlib.import_module(package)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "result.json"
        child = os.fork()
        if child == 0:
            os.environ["HF_HUB_OFFLINE"] = "1"
            signal.alarm(SECONDS)
            try:
                file.write_text(json.dumps(run_one(name, program)))
            except BaseException as error:  # the parent writes the table
                file.write_text(json.dumps({"failed": f"{type(error).__name__}: {error}"}))
            os._exit(0)
        os.waitpid(child, 0)
        return json.loads(file.read_text()) if file.exists() else {"failed": f"ended, or took more than {SECONDS} s"}


def is_in(result):
    return "difference" in result and result["difference"] <= BOUND * max(1.0, result["largest"])


def row_of(name, result):
    """Returns a row of the table, without numbers that differ between machines."""
    if is_in(result):
        found = ", ".join(f"{count} {what}" for op, what in (("Attention", "`attention`"), ("RMSNormalization", "`rms_normalization`"))
                          if (count := result["operations"].get(op)))
        return f"| {name} | {'in' if result['open'] else 'in, fixed batch'} | {found} |"
    if "difference" in result:
        return f"| {name} | wrong | differs by {result['difference']:.1e} |"
    kind = next(kind for kind in ("refused", "not_exported", "failed") if kind in result)
    text = re.sub(r"(, '[^']*'){2,}\)", ", ...)", result[kind]).replace("|", "\\|").replace("<", "&lt;")
    return f"| {name} | {kind.replace('_', ' ')} | {text[:300]} |"


def table_of(results):
    counted = sum(is_in(result) for result in results.values())
    rows = [row_of(name, result) for name, result in results.items()]
    return "\n".join([BEGIN, f"{counted} of {len(rows)} models are imported.", "", "| model | | attention and normalization that become one layer, or the reason |",
                      "| --- | --- | --- |", *rows, END])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", metavar="NAME", help="a model of the table")
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("--results", type=pathlib.Path, metavar="FOLDER", help="keep each model's result, and do not repeat those")
    parser.add_argument("--program", default=ROOT / "build/release/tests/onnx/onnx_import_run", type=pathlib.Path)
    arguments = parser.parse_args()
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        print(f"skipped: {', '.join(missing)} missing")
        return 77
    if arguments.one:
        print(json.dumps(run_one(arguments.one, arguments.program)))
        return 0
    results = {}
    for name in names():
        kept = arguments.results / f"{name}.json" if arguments.results else None
        if kept and kept.exists():
            results[name] = json.loads(kept.read_text())
            continue
        results[name] = run_in_child(name, arguments.program)
        print(row_of(name, results[name]), results[name].get("difference", ""), flush=True)
        if kept:
            kept.write_text(json.dumps(results[name]))
    page = PAGE.read_text()
    begin, end = page.index(BEGIN), page.index(END) + len(END)
    table = table_of(results)
    if arguments.write:
        PAGE.write_text(page[:begin] + table + page[end:])
    elif table != page[begin:end]:
        print("docs/onnx.md has another table; --write writes it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
