#!/usr/bin/env python3
"""Writes generation.json: what transformers generates, for tests/engine/generation_golden_test.cc.

    venv/bin/python tests/golden/make_generation_golden.py

The models are those of tests/engine/random_model.cc; their weights are Philox numbers (philox.py), so
the file has only texts, scores and probabilities.
"""

import json
import pathlib

import numpy as np
import torch
import transformers
from philox import stream_of, uniform01
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessorList,
    MinPLogitsWarper,
    Qwen3Config,
    Qwen3ForCausalLM,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

SEED = 7
CONTEXT = 150
VOCABULARY = 17  # the unknown token, then "a" to "p"
PROMPTS = ["a", "abcdef", "pppppppppp", "hgfedcbahgfedcbahgfedcba" * 4]
TOKENS = 48


def weight(name, shape):
    """Returns a tensor as write_random_model() draws it."""
    u = uniform01(SEED, stream_of(name), 0, int(np.prod(shape)))
    is_scale = len(shape) == 1 and name.endswith("weight")
    values = 0.5 + u if is_scale else 0.8 * (2 * u - 1)
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def fill(model, names, transposed=()):
    """Sets the parameters of `model`. `names`: those of this project by those of transformers."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            ours = names[name]
            shape = tuple(parameter.shape)
            if any(part in name for part in transposed) and len(shape) == 2:
                parameter.copy_(weight(ours, shape[::-1]).T)
            else:
                parameter.copy_(weight(ours, shape))
    return model.eval()


def gpt2():
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2,
                        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    names = {"transformer.wte.weight": "wte.weight", "transformer.wpe.weight": "wpe.weight"}
    for kind in ("weight", "bias"):
        names[f"transformer.ln_f.{kind}"] = f"ln_f.{kind}"
        for i in range(2):
            for theirs, ours in (("ln_1", "ln_1"), ("attn.c_attn", "attn_qkv"), ("attn.c_proj", "attn_proj"),
                                 ("ln_2", "ln_2"), ("mlp.c_fc", "mlp_fc"), ("mlp.c_proj", "mlp_proj")):
                names[f"transformer.h.{i}.{theirs}.{kind}"] = f"h{i}_{ours}.{kind}"
    return fill(GPT2LMHeadModel(config), names, transposed=("c_attn", "c_proj", "c_fc"))


def decoder_names():
    names = {"model.embed_tokens.weight": "embed.weight", "model.norm.weight": "norm.weight",
             "lm_head.weight": "head.weight"}
    for i in range(2):
        for theirs, ours in (("input_layernorm", "attn_norm"), ("post_attention_layernorm", "mlp_norm"),
                             ("self_attn.q_proj", "q"), ("self_attn.k_proj", "k"), ("self_attn.v_proj", "v"),
                             ("self_attn.o_proj", "o"), ("self_attn.q_norm", "q_norm"),
                             ("self_attn.k_norm", "k_norm"), ("mlp.gate_proj", "gate"), ("mlp.up_proj", "up"),
                             ("mlp.down_proj", "down")):
            names[f"model.layers.{i}.{theirs}.weight"] = f"h{i}_{ours}.weight"
    return names


SIZES = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=4, max_position_embeddings=CONTEXT,
             rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=False)


def llama():
    # By default "b" would end texts.
    return fill(LlamaForCausalLM(LlamaConfig(**SIZES, bos_token_id=None, eos_token_id=None)), decoder_names())


def qwen3():
    config = Qwen3Config(**SIZES, use_sliding_window=True, sliding_window=40,
                         layer_types=["full_attention", "sliding_attention"])
    config._attn_implementation = "eager"
    return fill(Qwen3ForCausalLM(config), decoder_names())


def generated(model):
    """Returns the greedy continuation of each prompt, and the scores after the whole text."""
    runs = []
    for prompt, penalty in [(p, 1.0) for p in PROMPTS] + [(p, 1.3) for p in PROMPTS]:
        tokens = torch.tensor([[1 + ord(c) - ord("a") for c in prompt]])
        config = GenerationConfig(do_sample=False, max_new_tokens=TOKENS, min_new_tokens=TOKENS,
                                  suppress_tokens=[0], repetition_penalty=penalty, pad_token_id=0, eos_token_id=None, bos_token_id=None)
        with torch.no_grad():
            whole = model.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=config)
            scores = model(whole).logits[0, -1]
        text = "".join(chr(ord("a") + t - 1) for t in whole[0, tokens.shape[1]:].tolist())
        runs.append({"prompt": prompt, "repetition_penalty": penalty, "text": text, "scores": scores.tolist()})
    return runs


def probabilities():
    """Returns scores and the probabilities that transformers' processors make of them."""
    cases = []
    for temperature, top_k, top_p, min_p, penalty in (
            (1, 0, 1, 0, 1), (0.7, 0, 1, 0, 1), (1, 5, 1, 0, 1), (1, 0, 0.8, 0, 1), (1, 0, 1, 0.2, 1),
            (1, 0, 1, 0, 1.5), (1.4, 9, 0.85, 0.1, 1.3), (0.5, 4, 0.5, 0.02, 1.1), (2.5, 12, 0.97, 0.3, 0.8)):
        for seed in range(3):
            scores = 4 * (uniform01(seed, stream_of("scores"), 0, 16) - 0.5)
            seen = [1, 3, 3, 8, 15]
            processors = LogitsProcessorList()
            if penalty != 1:
                processors.append(RepetitionPenaltyLogitsProcessor(penalty))
            if temperature != 1:
                processors.append(TemperatureLogitsWarper(float(temperature)))
            if top_k:
                processors.append(TopKLogitsWarper(top_k))
            if top_p < 1:
                processors.append(TopPLogitsWarper(top_p))
            if min_p:
                processors.append(MinPLogitsWarper(min_p))
            processed = processors(torch.tensor([seen]), torch.tensor(scores[None], dtype=torch.float32))
            cases.append({"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
                          "repetition_penalty": penalty, "seen": sorted(set(seen)),
                          "scores": [float(np.float32(s)) for s in scores],
                          "probabilities": torch.softmax(processed[0].double(), -1).tolist()})
    return cases


def main():
    torch.manual_seed(0)
    golden = {"transformers": transformers.__version__, "context": CONTEXT,
              "models": {"gpt2": generated(gpt2()), "llama": generated(llama()), "qwen3": generated(qwen3())},
              "sampling": probabilities()}
    path = pathlib.Path(__file__).with_name("generation.json")
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
