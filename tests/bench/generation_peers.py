#!/usr/bin/env python3
"""Compares the speed of generation with transformers and llama.cpp, which run alternately.

    venv/bin/python tests/bench/generation_peers.py MODEL_FOLDER HF_FOLDER [--gguf FILE ...] [--bench PROGRAM]
        [--prompt 128] [--tokens 128] [--rounds 5]

MODEL_FOLDER is a model of a Trainyard server (models/ID in its state folder), HF_FOLDER the same model for transformers.
Prints for each the median tokens per second, for the prompt and for new tokens, and the median of the ratio to
transformers in the same precision, round by round: on a busy machine only such ratios count. The share of the memory's
speed is that of the bytes of the weights that a new token needs. llama.cpp is that of the package xllamacpp, and is left
out without it.
"""

import argparse
import json
import os
import statistics
import subprocess
import time


def ours(options, flags):
    command = [options.bench, options.model, str(options.prompt), str(options.tokens), *flags]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    return result["prompt_tokens_per_second"], result["tokens_per_second"], result["share_of_bandwidth"]


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


def llama_of(options, gguf):
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = gguf
    parameters.n_ctx = options.prompt + options.tokens + 64
    parameters.n_parallel = 1
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        threads.n_threads = os.cpu_count()
    server = xllamacpp.Server(parameters)
    request = {"prompt": [1 + i * 7 % 200 for i in range(options.prompt)], "n_predict": options.tokens,
               "ignore_eos": True, "temperature": 0, "cache_prompt": False}

    def run():
        answer = server.handle_completions(request)
        times = (answer if isinstance(answer, dict) else json.loads(answer))["timings"]
        return times["prompt_per_second"], times["predicted_per_second"], None

    return run


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--gguf", action="append", default=[])
    parser.add_argument("--bench", default="build/bench/bin/generation_bench")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def programs(options):
    """Returns (name, function of a round, name of the program that it is compared with)."""
    found = [("transformers fp32", transformers_of(options, "float32"), None),
             ("trainyard fp32", lambda: ours(options, ["--f32"]), "transformers fp32"),
             ("transformers bf16", transformers_of(options, "bfloat16"), None),
             ("trainyard", lambda: ours(options, []), "transformers bf16")]
    for gguf in options.gguf:
        try:
            found.append((f"llama.cpp {os.path.basename(gguf)}", llama_of(options, gguf), "trainyard"))
        except ImportError:
            print("xllamacpp is not installed")
            break
    return found


def main():
    options = parse_arguments()
    runs = programs(options)
    results = {name: [] for name, _, _ in runs}
    for _ in range(options.rounds):
        for name, run, _ in runs:
            results[name].append(run())
    for name, _, peer in runs:
        rounds = results[name]
        prompt, tokens = (statistics.median(r[i] for r in rounds) for i in (0, 1))
        line = f"{name:28} prompt {prompt:8.1f} tokens/s, new {tokens:7.2f} tokens/s"
        if rounds[0][2] is not None:
            line += f", {statistics.median(r[2] for r in rounds):.0%} of the memory's speed"
        if peer is not None:
            ratios = [[a[i] / b[i] for a, b in zip(rounds, results[peer])] for i in (0, 1)]
            line += (f"; {statistics.median(ratios[0]):.2f} times the prompt and {statistics.median(ratios[1]):.2f} times "
                     f"({min(ratios[1]):.2f} to {max(ratios[1]):.2f}) the new tokens of {peer}")
        print(line)


if __name__ == "__main__":
    main()
