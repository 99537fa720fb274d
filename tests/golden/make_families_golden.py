#!/usr/bin/env python3
"""Writes families.json: tiny random models of each family as transformers saves them, for tests/engine/families_test.cc.

Each case has the text of config.json (of the transformers that is installed, and for some as transformers 4 wrote it), and the
names, types and shapes of the tensors that save_pretrained writes.

    python tests/golden/make_families_golden.py            needs torch and transformers
"""
import json
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors import safe_open

SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 16}

CASES = {
    "llama": ("Llama", {}),
    "llama tied, biases, llama3": ("Llama", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3)),
    "llama linear": ("Llama", dict(rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}, head_dim=16)),
    "mistral": ("Mistral", dict(sliding_window=16)),
    "mistral without window": ("Mistral", dict(sliding_window=None)),
    "qwen2": ("Qwen2", dict(tie_word_embeddings=True)),
    "qwen2 window, yarn": ("Qwen2", dict(use_sliding_window=True, sliding_window=8, max_window_layers=2, rope_parameters=YARN)),
    "qwen3": ("Qwen3", dict(head_dim=16)),
    "smollm3": ("SmolLM3", {}),
    "granite": ("Granite", dict(embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22,
                                attention_multiplier=0.0078125)),
    "olmo2": ("Olmo2", {}),
    "gpt2": ("GPT2", {}),
}


def make_config(family, settings):
    kind = getattr(transformers, family + "Config")
    if family == "GPT2":
        return kind(vocab_size=SIZES["vocab_size"], n_positions=64, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return kind(**(SIZES | settings))


def make_model(family, settings, seed=7):
    """Returns a model in evaluation mode whose norms and biases are random, too."""
    torch.manual_seed(seed)
    name = family + ("LMHeadModel" if family == "GPT2" else "ForCausalLM")
    model = getattr(transformers, name)(make_config(family, settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.copy_(0.2 * torch.randn_like(parameter))
    return model


def main():
    cases = {}
    for name, (family, settings) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            make_model(family, settings).save_pretrained(folder)
            config = json.loads((Path(folder) / "config.json").read_text())
            config.pop("transformers_version", None)
            with safe_open(Path(folder) / "model.safetensors", "pt") as file:
                tensors = {key: file.get_slice(key).get_shape() for key in file.keys()}
        cases[name] = {"config": config, "tensors": dict(sorted(tensors.items()))}
    path = Path(__file__).parent / "families.json"
    lines = [f" {json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
