#!/usr/bin/env python3
"""Writes peft.json and peft.safetensors: what transformers and PEFT say about training low-rank
additions to a small Llama (tests/engine/peft_golden_test.cc).

Needs torch, transformers, peft and safetensors:
    python3 tests/golden/make_peft_golden.py

The weights are bfloat16 numbers, as those of published models are; all arithmetic is float32.
"""

import json
import pathlib

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

FOLDER = pathlib.Path(__file__).parent
STEPS, DISTINCT, ROWS, CONTEXT, VOCABULARY = 20, 4, 3, 12, 40
LEARNING_RATE, WEIGHT_DECAY = 5e-3, 0.01
CONFIG = LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, intermediate_size=48, rms_norm_eps=1e-5, rope_theta=10000.0,
                     max_position_embeddings=64, tie_word_embeddings=False, attention_bias=False)
MODULES = {"self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v", "self_attn.o_proj": "o",
           "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down",
           "input_layernorm": "attn_norm", "post_attention_layernorm": "mlp_norm"}
# name, alpha, rank_scaling, targets, share of the tokens that count
CASES = [("linear", 8, "linear", "all-linear", 1.0), ("sqrt", 6, "sqrt", "all-linear", 1.0),
         ("some_layers", 8, "linear", ["q_proj", "v_proj", "down_proj"], 1.0),
         ("answers", 8, "linear", "all-linear", 0.4)]


def our_name(theirs):
    """Returns the preset's name of a tensor of the Llama model, such as h0_q.weight."""
    theirs = theirs.removeprefix("base_model.model.").replace(".base_layer.", ".").replace(".default.", ".")
    fixed = {"model.embed_tokens.weight": "embed.weight", "model.norm.weight": "norm.weight",
             "lm_head.weight": "head.weight"}
    if theirs in fixed:
        return fixed[theirs]
    _, _, layer, rest = theirs.split(".", 3)
    for module, ours in MODULES.items():
        if rest.startswith(module + "."):
            return f"h{layer}_{ours}{rest[len(module):]}"
    raise ValueError(theirs)


def base_model():
    torch.manual_seed(1)
    model = LlamaForCausalLM(CONFIG).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            value = torch.randn(p.shape) * (0.15 if p.dim() == 2 else 0.1)
            p.copy_((value + (1 if p.dim() == 1 else 0)).bfloat16().float())
    return model


def batches(share):
    generator = torch.Generator().manual_seed(2)
    rows = []
    for _ in range(DISTINCT):
        tokens = torch.randint(VOCABULARY, (ROWS, CONTEXT + 1), generator=generator)
        target = tokens[:, 1:].clone()
        # Documents count from some token on, as the answers of a chat do.
        target[torch.rand(target.shape, generator=generator) >= share] = -1
        rows.append((tokens[:, :-1], target))
    return [rows[step % DISTINCT] for step in range(STEPS)]


def train(alpha, rank_scaling, targets, share):
    config = LoraConfig(r=4, lora_alpha=alpha, lora_dropout=0.0, target_modules=targets, bias="none",
                        use_rslora=rank_scaling == "sqrt")
    model = get_peft_model(base_model(), config)
    generator = torch.Generator().manual_seed(3)
    adapters = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.requires_grad:
                p.copy_(torch.randn(p.shape, generator=generator) * (0.2 if "lora_A" in name else 0.05))
                adapters[our_name(name)] = p.detach().clone()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    losses = []
    for tokens, target in batches(share):
        logits = model(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), target.reshape(-1),
                                                 ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, adapters, sum(p.numel() for p in trained)


def main():
    torch.set_num_threads(1)
    tensors = {our_name(name): p.detach().bfloat16().contiguous() for name, p in base_model().named_parameters()}
    cases = []
    for name, alpha, rank_scaling, targets, share in CASES:
        losses, adapters, trained = train(alpha, rank_scaling, targets, share)
        for tensor, value in adapters.items():
            tensors[f"{name}/{tensor}"] = value.contiguous()
        tensors[f"{name}/tokens"] = torch.stack([t for t, _ in batches(share)]).int().contiguous()
        tensors[f"{name}/targets"] = torch.stack([t for _, t in batches(share)]).int().contiguous()
        cases.append({"name": name, "rank": 4, "alpha": alpha, "rank_scaling": rank_scaling,
                      "targets": targets if isinstance(targets, list) else [targets], "trained": trained,
                      "losses": losses})
        print(name, trained, losses[0], losses[-1])
    save_file(tensors, FOLDER / "peft.safetensors")
    facts = {"rows": ROWS, "context": CONTEXT, "vocabulary": VOCABULARY, "learning_rate": LEARNING_RATE,
             "weight_decay": WEIGHT_DECAY, "n_layer": 2, "n_embd": 32, "n_head": 4, "n_kv_head": 2, "hidden": 48,
             "cases": cases}
    (FOLDER / "peft.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
