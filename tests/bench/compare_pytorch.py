#!/usr/bin/env python3
"""Training speed beside PyTorch, same cores, same arithmetic, in turns within one run.

    venv/bin/python tests/bench/compare_pytorch.py build/cpu-release/bin/train_bench \\
        [--pairs 7] [--seconds 1.5] [--compile] [--models resnet18,vgg11:224 --batches 64] [--out FILE.md]

Each side first shows what it does at each of its settings (threads 1 and 2; PyTorch also with
sleeping instead of spinning OpenMP threads, fused and per-tensor optimizer, and with --compile
through torch.compile). The best setting of each side then runs A/B/A/B; the table has the medians,
their spread, the ratio, and each side's share of the fp32 peak measured in the same run. A step is
batch in memory, forward, backward, update; ours also hands out loss and logits.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

# Model and usual batch; the names are those of bench_models.h.
MODELS = {"mlp": 128, "mlp_small": 128, "lenet5": 64, "vgg11": 32, "resnet18": 32, "resnet50": 16, "vit_tiny": 32,
          "gpt2_mini": 4, "gpt2_small": 2, "transformer_classifier": 32, "text_cnn": 32, "lstm_classifier": 32,
          "embedding_bag_classifier": 64, "autoencoder": 64}
NAMES = {"mlp": "MLP 784-512-512-10", "mlp_small": "MLP 784-256-128-10", "lenet5": "LeNet-5",
         "vit_tiny": "ViT-Tiny, 32 px in patches of 4", "gpt2_mini": "GPT, 10.7 M, context 256",
         "gpt2_small": "GPT-2 124M, context 64", "autoencoder": "convolutional autoencoder, 32 px"}
WORDS, ROW_LENGTH = 20000, 128
TOKENS = {"gpt2_mini": (65, 256), "gpt2_small": (50257, 64), "gpt2_small:1024": (50257, 1024)}


def make_model(name):
    """PyTorch's model of a name of bench_models.h, and a sample's shape; tokens have a vocabulary."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
    import torch
    from image_models import VGG, make_image_model
    from reference_models import make_conv_autoencoder, make_lenet5, make_mlp
    from reference_text import Bag, Classifier, TextCnn
    from reference_transformers import (GPT2, GPT_SIZES, VIT_SIZES, TransformerClassifier, ViT,
                                        initialize_transformer)

    if name == "lenet5":
        return make_lenet5(), (1, 28, 28)
    if name == "autoencoder":
        return make_conv_autoencoder((3, 32, 32), (16, 32), 32), (3, 32, 32)
    if name.startswith("mlp"):
        return make_mlp((512, 512) if name == "mlp" else (256, 128)), (784,)
    if name.startswith("gpt2"):
        depth, heads, width = GPT_SIZES[name.partition(":")[0].split("_")[1]]
        model = GPT2(*TOKENS[name], depth=depth, heads=heads, width=width)
        initialize_transformer(model, 1)  # the tied embedding's default would be far too large
        return model, (TOKENS[name][1],)
    text = {"transformer_classifier": lambda: TransformerClassifier(WORDS, ROW_LENGTH, 10),
            "text_cnn": lambda: TextCnn(WORDS, 128, 100, [3, 4, 5], 10),
            "lstm_classifier": lambda: Classifier(torch.nn.LSTM, WORDS, 128, 128, 1, False, False, 10),
            "embedding_bag_classifier": lambda: Bag(WORDS, "mean", 64, 10)}
    if name in text:
        return text[name](), (ROW_LENGTH,)
    preset, _, side = name.partition(":")
    side = int(side or 32)
    if preset in VIT_SIZES:
        return ViT((3, side, side), 10, *VIT_SIZES[preset], patch_size=4 if side < 64 else 16), (3, side, side)
    options = {"dropout": 0.0} if preset in VGG else {}
    return make_image_model(preset, side, 10, **options), (3, side, side)


def make_loss(name):
    """Of what the model gives, the batch and its classes; an autoencoder's target is the batch."""
    import torch

    if name == "autoencoder":
        return lambda output, x, y: torch.nn.functional.mse_loss(output, x)
    return lambda output, x, y: torch.nn.functional.cross_entropy(output, y)


def torch_worker():
    """The peer, in a process of its own per setting, because OpenMP is configured at start."""
    import time

    import torch

    setting = json.loads(os.environ["PEER_SETTING"])
    torch.set_num_threads(setting["threads"])
    cases = {}

    def make_case(name, batch):
        torch.manual_seed(1)
        model, sample = make_model(name)
        vocabulary = TOKENS[name][0] if name in TOKENS else WORDS if sample == (ROW_LENGTH,) else 0
        layout = torch.channels_last if setting["channels_last"] else torch.contiguous_format
        images = len(sample) == 3
        if images:
            model = model.to(memory_format=layout)
        # As bench_models.h: transformers and text models by AdamW.
        if vocabulary or name.startswith("vit"):
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0,
                                          fused=setting["fused"])
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9,
                                        fused=setting["fused"])
        loss_of = make_loss(name)
        shape = (batch, *sample)
        if vocabulary:
            xs = [torch.randint(1, vocabulary, shape) for _ in range(8)]
        else:
            xs = [torch.rand(shape) for _ in range(8)]
        if images:
            xs = [x.contiguous(memory_format=layout) for x in xs]
        targets = (batch * sample[0], vocabulary) if name in TOKENS else (batch, 10)
        ys = [torch.randint(0, targets[1], targets[:1]) for _ in range(8)]
        call = torch.compile(lambda x, y: loss_of(model(x), x, y)) if setting["compile"] else (
            lambda x, y: loss_of(model(x), x, y))
        state = {"step": 0}

        def step():
            i = state["step"] % 8
            state["step"] += 1
            optimizer.zero_grad(set_to_none=True)
            call(xs[i], ys[i]).backward()
            optimizer.step()

        for _ in range(20 if name.startswith("mlp") or name == "lenet5" else 2):
            step()
        return step

    def peak_bytes():
        for line in pathlib.Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024

    for line in sys.stdin:
        if line.startswith("memory"):
            _, name, batch = line.split()
            before = peak_bytes()
            step = make_case(name, int(batch))
            step()
            print(json.dumps({"before_bytes": before, "peak_bytes": peak_bytes()}), flush=True)
            continue
        name, batch, seconds = line.split()
        batch, seconds = int(batch), float(seconds)
        key = (name, batch)
        if key not in cases:
            cases[key] = make_case(name, batch)
        step = cases[key]
        start = time.perf_counter()
        steps = 0
        while time.perf_counter() - start < seconds:
            step()
            steps += 1
        rate = steps * batch / (time.perf_counter() - start)
        print(json.dumps({"samples_per_second": rate, "torch": torch.__version__}), flush=True)


class Process:
    def __init__(self, command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=env)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.process.args[0]} ended at: {line}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def peer_settings(with_compile, model):
    if not model.startswith("mlp") and model != "lenet5":
        # Larger models: the layout and the threads decide, not the optimizer or the waiting.
        images = model.startswith(("vgg", "resnet", "autoencoder"))
        return [{"threads": t, "wait": "default", "fused": True, "compile": with_compile,
                 "channels_last": c} for t in (1, 2) for c in ((False, True) if images else (False,))]
    settings = []
    for threads in (1, 2):
        for wait in ("default", "passive") if threads > 1 else ("default",):
            for fused in (False, True):
                settings.append({"threads": threads, "wait": wait, "fused": fused,
                                 "compile": False, "channels_last": False})
        if with_compile:
            settings.append({"threads": threads, "wait": "default", "fused": True,
                             "compile": True, "channels_last": False})
    return settings


def start_peer(setting):
    env = dict(os.environ, PEER_SETTING=json.dumps(setting), OPENBLAS_CORETYPE="SkylakeX",
               OMP_NUM_THREADS=str(setting["threads"]), MKL_NUM_THREADS=str(setting["threads"]))
    if setting["wait"] == "passive":
        env["OMP_WAIT_POLICY"] = "PASSIVE"
    return Process([sys.executable, __file__, "--peer"], env)


def label(setting):
    return (f"{setting['threads']} thread{'s' if setting['threads'] > 1 else ''}"
            + (", passive wait" if setting["wait"] == "passive" else "")
            + (", fused SGD" if setting["fused"] else "")
            + (", channels last" if setting["channels_last"] else "")
            + (", torch.compile" if setting["compile"] else ""))


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)


def measure(args, model, batch):
    """One row of the table: both sides at their best setting, in turns. Processes end with the row."""
    ours = Process([args.train_bench, "--serve"])
    peers = [(s, start_peer(s)) for s in peer_settings(args.compile, model)]
    trial = min(args.seconds, 1.0)
    for _, p in peers:  # all have loaded before anything counts
        p.ask(f"{model} {batch} 0")
    our_rates = {t: ours.ask(f"{model} {batch} {t} {trial}")["samples_per_second"] for t in (1, 2)}
    peer_rates = [p.ask(f"{model} {batch} {trial}")["samples_per_second"] for _, p in peers]
    threads = max(our_rates, key=our_rates.get)
    setting, peer = peers[max(range(len(peers)), key=lambda i: peer_rates[i])]
    for _, p in peers:
        if p is not peer:
            p.close()
    a, b, last = [], [], None
    for _ in range(args.pairs):
        last = ours.ask(f"{model} {batch} {threads} {args.seconds}")
        a.append(last["samples_per_second"])
        b.append(peer.ask(f"{model} {batch} {args.seconds}")["samples_per_second"])
    ours.close()
    peer.close()
    fresh = start_peer(setting)
    their_memory = fresh.ask(f"memory {model} {batch}")
    fresh.close()
    memory = json.loads(subprocess.run([args.train_bench, "--memory", model, str(batch)], check=True,
                                       capture_output=True, text=True).stdout)
    gflop = last["gflop_per_sample"]
    row = {"model": NAMES.get(model, model), "batch": batch, "ours": statistics.median(a), "threads": threads,
           "our_gflops": statistics.median(a) * gflop, "theirs": statistics.median(b), "setting": label(setting),
           "their_gflops": statistics.median(b) * gflop,
           "ratio": statistics.median(x / y for x, y in zip(a, b)),
           "spread": f"{100 * spread(a):.0f} / {100 * spread(b):.0f} %",
           "our_memory": memory["peak_bytes"], "their_memory": their_memory["peak_bytes"],
           "their_base": their_memory["before_bytes"],
           "arena": memory["planned_bytes"], "difference": last["planned_bytes"] - last["used_bytes"]}
    trials = (model, batch, our_rates, [(label(s), r) for (s, _), r in zip(peers, peer_rates)])
    print(row, file=sys.stderr, flush=True)
    return row, trials


def compare(args):
    meter = Process([args.train_bench, "--serve"])
    peak = {t: meter.ask(f"peak {t}")["gflops"] for t in (1, 2)}
    rows, settings = [], []
    for model in args.models.split(","):
        for batch in args.batches or [MODELS.get(model.partition(":")[0], 32)]:
            row, trials = measure(args, model, batch)
            rows.append(row)
            settings.append(trials)
            # Again and again: the best is the peak, whatever disturbed another one.
            peak = {t: max(peak[t], meter.ask(f"peak {t}")["gflops"]) for t in peak}
    meter.close()
    return rows, settings, peak


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def main():
    if "--peer" in sys.argv:
        return torch_worker()
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_bench")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--models", default=",".join(MODELS),
                        help="names of bench_models.h")
    parser.add_argument("--batches", help="instead of each model's usual one",
                        type=lambda text: [int(b) for b in text.split(",")])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    load_before = os.getloadavg()[0]
    rows, settings, peak = compare(args)
    from importlib.metadata import version
    mib = 1024 * 1024
    head = ["model", "batch", "ours/s", "threads", "of peak", "PyTorch/s", "its best setting", "of peak", "ratio",
            "spread", "memory: ours, MiB", "PyTorch (bare import), MiB", "arena, MiB", "planned - used, bytes"]
    lines = [f"# Training speed and memory beside PyTorch {version('torch')}", "",
             f"{cpu_name()}, {os.cpu_count()} cores; fp32 peak measured in this run "
             f"{peak[2]:.0f} GFLOP/s (1 thread {peak[1]:.0f}); load average before "
             f"{load_before:.1f}; medians of {args.pairs} interleaved pairs of "
             f"{args.seconds} s. Memory is the largest resident set of a process that trains this model alone.", "",
             "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for r in rows:
        cells = [r["model"], r["batch"], f"{r['ours']:,.4g}", r["threads"], f"{100 * r['our_gflops'] / peak[2]:.1f} %",
                 f"{r['theirs']:,.4g}", r["setting"], f"{100 * r['their_gflops'] / peak[2]:.1f} %",
                 f"**{r['ratio']:.2f}×**", r["spread"], f"{r['our_memory'] / mib:.0f}",
                 f"{r['their_memory'] / mib:.0f} ({r['their_base'] / mib:.0f})", f"{r['arena'] / mib:.1f}",
                 r["difference"]]
        lines.append("| " + " | ".join(str(c) for c in cells) + " |")
    lines += ["", "Trials that chose the settings, samples per second:", ""]
    for model, batch, our_rates, peer_rates in settings:
        lines.append(f"- {NAMES.get(model, model)}, batch {batch}: ours "
                     + ", ".join(f"{t} thr. {r:,.0f}" for t, r in our_rates.items())
                     + "; PyTorch " + "; ".join(f"{n}: {r:,.4g}" for n, r in peer_rates))
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
