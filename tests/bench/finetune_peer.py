#!/usr/bin/env python3
"""Compares a step of fine-tuning SmolLM2-135M by LoRA with transformers and PEFT, in turns.

    python3 tests/bench/finetune_peer.py [--turns 3] [--threads 2] [--share 1.0] [--seconds 20]

Rank 16 on all linear layers, batch 2 x 256, fp32 against fp32 and bf16 against bf16. --share is the
share of the tokens that count in the loss; a model that learns answers only has less than 1. Both
sides train on random tokens with random weights, which take the time that real ones take. Prints
tokens/s and peak memory of each process, and their ratios. Other programs on the machine slow both
sides down, so only the ratios count. Needs torch, transformers and peft for the peer, and
build/release/bin/step_profile.
"""

import argparse
import json
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

ROWS, CONTEXT, VOCABULARY = 2, 256, 49152
ROOT = pathlib.Path(__file__).resolve().parents[2]


def train_peer(precision, threads, share, seconds):
    """Prints the median seconds of a step and the peak memory of this process, as JSON."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=576, num_hidden_layers=30, num_attention_heads=9,
                         num_key_value_heads=3, intermediate_size=1536, rms_norm_eps=1e-5,
                         max_position_embeddings=2048, tie_word_embeddings=True)
    torch.set_default_dtype(torch.bfloat16 if precision == "bf16" else torch.float32)
    model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    model.train()
    times = []
    begin = time.monotonic()
    while len(times) < 4 or time.monotonic() - begin < seconds:
        tokens = torch.randint(VOCABULARY, (ROWS, CONTEXT))
        labels = tokens.clone()
        labels.view(-1)[int(share * labels.numel()):] = -100
        start = time.monotonic()
        loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        times.append(time.monotonic() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": statistics.median(times[1:]), "mib": peak / 1024}))


def run_ours(precision, args):
    out = subprocess.run([ROOT / "build/release/bin/step_profile", "smollm2", str(ROWS), str(args.threads), "none",
                          precision, "lora", str(args.share)], capture_output=True, text=True, check=True).stdout
    step = float(re.search(r"step ([0-9.]+) us", out)[1]) / 1e6
    resident = int(re.search(r"most resident (\d+) KiB", out)[1])
    return {"seconds": step, "mib": resident / 1024}


def run_peer(precision, args):
    command = [sys.executable, __file__, "--peer", precision, "--threads", str(args.threads), "--share",
               str(args.share), "--seconds", str(args.seconds)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    if args.peer:
        train_peer(args.peer, args.threads, args.share, args.seconds)
        return
    for precision in ("fp32", "bf16"):
        ours, theirs = [], []
        for _ in range(args.turns):
            ours.append(run_ours(precision, args))
            theirs.append(run_peer(precision, args))
        for name, runs in (("trainyard", ours), ("transformers + peft", theirs)):
            seconds = statistics.median(r["seconds"] for r in runs)
            print(f"{precision} {name:20} {ROWS * CONTEXT / seconds:7.0f} tokens/s "
                  f"{max(r['mib'] for r in runs):7.0f} MiB")
        speed = statistics.median(t["seconds"] / o["seconds"] for o, t in zip(ours, theirs))
        memory = max(o["mib"] for o in ours) / max(t["mib"] for t in theirs)
        print(f"{precision} trainyard / peer: {speed:.2f} times the tokens/s, {memory:.2f} times the memory",
              flush=True)


if __name__ == "__main__":
    main()
