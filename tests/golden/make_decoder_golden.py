#!/usr/bin/env python3
"""Writes decoders.safetensors: tiny random language models of transformers, one of each family that
the preset decoder covers, with their scores and the losses of 20 steps of AdamW, for
tests/engine/golden_decoder_test.cc. Needs torch, transformers and safetensors from PyPI.

Rows hold several documents, which a model of transformers reads one by one. The loss of a step is
the mean over all tokens that count.
"""

import pathlib

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import (GraniteConfig, LlamaConfig, MistralConfig, Olmo2Config, Qwen2Config,
                          Qwen3Config, SmolLM3Config)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

SEED = 20261130
STEPS, BATCHES, ROWS, LENGTH, VOCABULARY = 20, 4, 2, 24, 40
PADDING = 0
# The lengths of the documents of each row; the rest of a row is padding.
DOCUMENTS = [[[10, 9], [24]], [[24], [3, 21]], [[7, 7, 7], [2, 12]], [[23], [1, 1, 22]]]
LEARNING_RATE, WEIGHT_DECAY = 3e-3, 0.01

COMMON = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
              rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=PADDING,
              attn_implementation="eager")
THETA = {"rope_type": "default", "rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}

FAMILIES = {
    "llama": LlamaConfig(**COMMON, head_dim=4, rope_parameters=LLAMA3),
    "llama_bias": LlamaConfig(**COMMON, head_dim=8, attention_bias=True, mlp_bias=True,
                              tie_word_embeddings=True, rope_parameters=LINEAR),
    "mistral": MistralConfig(**COMMON, head_dim=4, sliding_window=5, rope_parameters=THETA),
    "qwen2": Qwen2Config(**COMMON, tie_word_embeddings=True, use_sliding_window=True,
                         sliding_window=4, max_window_layers=1, rope_parameters=THETA),
    "qwen3": Qwen3Config(**COMMON, head_dim=8, rope_parameters=YARN),
    "granite": GraniteConfig(**COMMON, embedding_multiplier=3.0, residual_multiplier=0.4,
                             attention_multiplier=0.2, logits_scaling=2.0,
                             tie_word_embeddings=True, rope_parameters=THETA),
    "olmo2": Olmo2Config(**COMMON, rope_parameters=THETA),
    "smollm3": SmolLM3Config(**COMMON, no_rope_layers=[1, 0], tie_word_embeddings=True,
                             rope_parameters=THETA),
}

# Tables of real models: name, width of a head, parameters.
TABLES = {
    "plain": (64, {"rope_type": "default", "rope_theta": 100000.0}),
    "linear": (80, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    "llama3": (128, {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                     "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192}),
    "yarn": (128, {"rope_type": "yarn", "rope_theta": 5000000.0, "factor": 4.0,
                   "original_max_position_embeddings": 32768}),
    "yarn_all": (96, {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 32.0,
                      "original_max_position_embeddings": 4096, "beta_fast": 16.0,
                      "beta_slow": 2.0, "attention_factor": 1.5, "truncate": False}),
}
TABLE_POSITIONS = [0, 1, 2, 17, 100, 1000, 2047]

LAYER_NAMES = {
    "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v",
    "self_attn.o_proj": "o", "self_attn.q_norm": "q_norm", "self_attn.k_norm": "k_norm",
    "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down",
    "input_layernorm": "attn_norm",
}


def our_name(name, family):
    """Returns the preset's name of a weight: "model.layers.0.mlp.up_proj.weight" -> "h0_up.weight"."""
    module, _, parameter = name.rpartition(".")
    if module in ("model.embed_tokens", "model.norm", "lm_head"):
        return {"model.embed_tokens": "embed", "model.norm": "norm", "lm_head": "head"}[module] + "." + parameter
    _, _, layer, rest = module.split(".", 3)
    if rest == "post_attention_layernorm":
        part = "attn_norm" if family == "olmo2" else "mlp_norm"
    elif rest == "post_feedforward_layernorm":
        part = "mlp_norm"
    else:
        part = LAYER_NAMES[rest]
    return f"h{layer}_{part}.{parameter}"


def make_batches():
    """Tokens, positions and targets [BATCHES, ROWS, LENGTH]. The first third of a document and the
    end of every one have no target that counts."""
    rng = np.random.default_rng(SEED)
    tokens = np.full((BATCHES, ROWS, LENGTH), PADDING, np.int32)
    positions = np.zeros_like(tokens)
    targets = np.full_like(tokens, -1)
    for b in range(BATCHES):
        for r in range(ROWS):
            at = 0
            for length in DOCUMENTS[b][r]:
                document = rng.integers(3, VOCABULARY, length).astype(np.int32)
                tokens[b, r, at:at + length] = document
                positions[b, r, at:at + length] = np.arange(length)
                counted = np.arange(length - 1) >= length // 3
                targets[b, r, at:at + length - 1] = np.where(counted, document[1:], -1)
                at += length
    return tokens, positions, targets


def documents_of(positions, row, batch):
    """The (begin, end) of each document, and of each token of the padding."""
    starts = [t for t in range(LENGTH) if positions[batch, row, t] == 0]
    return zip(starts, starts[1:] + [LENGTH])


def scores_of(model, tokens, positions, batch):
    rows = []
    for row in range(ROWS):
        for begin, end in documents_of(positions, row, batch):
            ids = torch.tensor(tokens[batch, row, begin:end].astype(np.int64))[None]
            rows.append(model(input_ids=ids, use_cache=False).logits[0])
    return torch.cat(rows)


def randomize(model):
    """Weights large enough that every part of the model changes its scores."""
    generator = torch.Generator().manual_seed(SEED)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if "norm" in name:
            p.data = 1 + 0.2 * noise
        elif name.endswith("bias"):
            p.data = 0.2 * noise
        else:
            p.data = noise * (0.5 if "embed" in name else 0.25)


def run(family, config, batches, out):
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.eval()  # without dropout; the models have none
    randomize(model)
    for name, p in model.named_parameters():
        out[f"{family}/{our_name(name, family)}"] = p.detach().numpy().copy()
    tokens, positions, targets = batches
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    losses = []
    for step in range(STEPS):
        batch = step % BATCHES
        scores = scores_of(model, tokens, positions, batch)
        if step == 0:
            out[f"{family}/scores"] = scores.detach().numpy().copy()
        target = torch.tensor(targets[batch].reshape(-1).astype(np.int64))
        loss = torch.nn.functional.cross_entropy(scores, target, ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    out[f"{family}/losses"] = np.array(losses, np.float32)
    print(family, sum(p.numel() for p in model.parameters()), losses[0], losses[-1])


def add_table(name, dim, parameters, out):
    config = LlamaConfig(hidden_size=dim, num_attention_heads=1, num_key_value_heads=1, head_dim=dim,
                         max_position_embeddings=131072, rope_parameters=dict(parameters))
    rotary = LlamaRotaryEmbedding(config)
    cos, sin = rotary(torch.zeros(1), torch.tensor([TABLE_POSITIONS]))
    out[f"tables/{name}/frequencies"] = rotary.inv_freq.numpy().copy()
    out[f"tables/{name}/cos"] = cos[0, :, :dim // 2].numpy().copy()
    out[f"tables/{name}/sin"] = sin[0, :, :dim // 2].numpy().copy()


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    batches = make_batches()
    out = dict(zip(("tokens", "positions", "targets"), batches))
    for family, config in FAMILIES.items():
        run(family, config, batches, out)
    out["tables/positions"] = np.array(TABLE_POSITIONS, np.int32)
    for name, (dim, parameters) in TABLES.items():
        add_table(name, dim, parameters, out)
    path = pathlib.Path(__file__).with_name("decoders.safetensors")
    save_file(out, path, metadata={"transformers": transformers.__version__,
                                   "torch": torch.__version__.split("+")[0]})
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
