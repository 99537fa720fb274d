#!/usr/bin/env python3
"""Compares the speed of generation with transformers and llama.cpp, which run alternately.

    venv/bin/python tests/bench/generation_peers.py MODEL_FOLDER HF_FOLDER [--gguf FILE] [--bench PROGRAM]
        [--prompt 128] [--tokens 128] [--rounds 3]

MODEL_FOLDER is a model of a Trainyard server (models/ID in its state folder), HF_FOLDER the same model for transformers.
Prints the median tokens per second of each, for the prompt and for new tokens. llama.cpp is left out if the package
llama_cpp is not installed.
"""

import argparse
import json
import os
import statistics
import subprocess
import time


def ours(options):
    done = subprocess.run([options.bench, options.model, str(options.prompt), str(options.tokens)], check=True,
                          capture_output=True, text=True)
    result = json.loads(done.stdout)
    return result["prompt_tokens_per_second"], result["tokens_per_second"], result


def transformers_of(options, dtype):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(os.cpu_count())
    model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=getattr(torch, dtype)).eval()
    prompt = torch.tensor([[1 + i * 7 % 200 for i in range(options.prompt)]])

    def run():
        times = []
        for tokens in (1, options.tokens):
            begin = time.perf_counter()
            model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=tokens,
                           min_new_tokens=tokens, pad_token_id=0)
            times.append(time.perf_counter() - begin)
        return options.prompt / times[0], (options.tokens - 1) / (times[1] - times[0]), None

    return run


def llama_of(options):
    from llama_cpp import Llama

    model = Llama(options.gguf, n_ctx=options.prompt + options.tokens + 8, n_threads=os.cpu_count(), verbose=False)

    def run():
        model.reset()
        begin = time.perf_counter()
        model.eval([1 + i * 7 % 200 for i in range(options.prompt)])
        prompt_s = time.perf_counter() - begin
        begin = time.perf_counter()
        for i in range(options.tokens):
            model.eval([1 + i % 200])
        return options.prompt / prompt_s, options.tokens / (time.perf_counter() - begin), None

    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--gguf")
    parser.add_argument("--bench", default="build/bench/bin/generation_bench")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    runs = {"trainyard fp32": lambda: ours(options),
            "transformers fp32": transformers_of(options, "float32"),
            "transformers bf16": transformers_of(options, "bfloat16")}
    if options.gguf:
        try:
            runs["llama.cpp"] = llama_of(options)
        except ImportError:
            print("llama_cpp is not installed")
    results = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            results[name].append(run())
    for name, rounds in results.items():
        prompt = statistics.median(r[0] for r in rounds)
        tokens = statistics.median(r[1] for r in rounds)
        share = "" if rounds[0][2] is None else f", {rounds[0][2]['share_of_bandwidth']:.0%} of the memory's speed"
        print(f"{name:20} prompt {prompt:8.1f} tokens/s, new {tokens:7.2f} tokens/s{share}")


if __name__ == "__main__":
    main()
