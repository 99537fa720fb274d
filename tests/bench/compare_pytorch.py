#!/usr/bin/env python3
"""Training speed beside PyTorch, same cores, same arithmetic, in turns within one run.

    venv/bin/python tests/bench/compare_pytorch.py build/cpu-release/bin/train_bench \\
        [--pairs 7] [--seconds 1.5] [--compile] [--models resnet18,vgg11 --batches 64] [--out tests/bench/results/FILE.md]

Each side first shows what it does at each of its settings (threads 1 and 2; PyTorch also with
sleeping instead of spinning OpenMP threads, fused and per-tensor optimizer, and with --compile
through torch.compile). The best setting of each side then runs A/B/A/B; the table has the medians,
their spread, the ratio, and each side's share of the fp32 peak measured in the same run. A step is
batch in memory, forward, backward, SGD with momentum; ours also hands out loss and logits.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

MODELS = ["mlp", "mlp_small", "lenet5"]  # also image presets with their side: resnet18, resnet18:224
BATCHES = [64, 128]
NAMES = {"mlp": "MLP 784-512-512-10", "mlp_small": "MLP 784-256-128-10", "lenet5": "LeNet-5"}


def torch_worker():
    """The peer, in a process of its own per setting, because OpenMP is configured at start."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
    import time

    import torch
    from image_models import make_image_model
    from reference_models import make_lenet5, make_mlp

    setting = json.loads(os.environ["PEER_SETTING"])
    torch.set_num_threads(setting["threads"])
    cases = {}

    def make_model(name, batch):
        if name == "lenet5":
            return make_lenet5(), (batch, 1, 28, 28)
        if name.startswith("mlp"):
            return make_mlp((512, 512) if name == "mlp" else (256, 128)), (batch, 784)
        preset, _, side = name.partition(":")
        side = int(side or 32)
        return make_image_model(preset, side, 10), (batch, 3, side, side)

    def make_case(name, batch):
        torch.manual_seed(1)
        model, shape = make_model(name, batch)
        layout = torch.channels_last if setting["channels_last"] else torch.contiguous_format
        if len(shape) == 4:
            model = model.to(memory_format=layout)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9,
                                    fused=setting["fused"])
        loss_of = torch.nn.CrossEntropyLoss()
        xs = [torch.rand(shape) for _ in range(8)]
        if len(shape) == 4:
            xs = [x.contiguous(memory_format=layout) for x in xs]
        ys = [torch.randint(0, 10, (batch,)) for _ in range(8)]
        call = torch.compile(lambda x, y: loss_of(model(x), y)) if setting["compile"] else (
            lambda x, y: loss_of(model(x), y))
        state = {"step": 0}

        def step():
            i = state["step"] % 8
            state["step"] += 1
            optimizer.zero_grad(set_to_none=True)
            call(xs[i], ys[i]).backward()
            optimizer.step()

        for _ in range(20 if len(shape) == 2 or shape[1] == 1 else 2):
            step()
        return step

    for line in sys.stdin:
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


def peer_settings(with_compile, models):
    if not all(m.startswith("mlp") or m == "lenet5" for m in models):
        # Large convolutions: the layout and the threads decide, not the optimizer or the waiting.
        return [{"threads": t, "wait": "default", "fused": True, "compile": with_compile,
                 "channels_last": c} for t in (1, 2) for c in (False, True)]
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


def compare(args):
    ours = Process([args.train_bench, "--serve"])
    peers = [(s, start_peer(s)) for s in peer_settings(args.compile, args.models.split(","))]
    peak = {t: ours.ask(f"peak {t}")["gflops"] for t in (1, 2)}
    rows, settings, torch_version = [], [], ""
    for model in args.models.split(","):
        for batch in args.batches:
            trial = min(args.seconds, 1.0)
            our_rates = {t: ours.ask(f"{model} {batch} {t} {trial}")["samples_per_second"]
                         for t in (1, 2)}
            threads = max(our_rates, key=our_rates.get)
            peer_rates = [p.ask(f"{model} {batch} {trial}") for _, p in peers]
            best = max(range(len(peers)), key=lambda i: peer_rates[i]["samples_per_second"])
            torch_version = peer_rates[best]["torch"]
            settings.append((model, batch, our_rates,
                             [(label(s), r["samples_per_second"])
                              for (s, _), r in zip(peers, peer_rates)]))
            a, b, last = [], [], None
            for _ in range(args.pairs):
                last = ours.ask(f"{model} {batch} {threads} {args.seconds}")
                a.append(last["samples_per_second"])
                b.append(peers[best][1].ask(f"{model} {batch} {args.seconds}")
                         ["samples_per_second"])
            ratio = statistics.median(x / y for x, y in zip(a, b))
            gflop = last["gflop_per_sample"]
            rows.append([
                NAMES.get(model, model), batch, f"{statistics.median(a):,.0f}", threads,
                statistics.median(a) * gflop,  # a share of the peak once that is known
                f"{statistics.median(b):,.0f}", label(peers[best][0]),
                statistics.median(b) * gflop,
                f"**{ratio:.2f}×**", f"{100 * spread(a):.0f} / {100 * spread(b):.0f} %",
                last["planned_bytes"] - last["used_bytes"]])
            print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    # Again at the end: the best of both is the peak, whatever disturbed one of them.
    peak = {t: max(peak[t], ours.ask(f"peak {t}")["gflops"]) for t in peak}
    for row in rows:
        row[4], row[7] = (f"{100 * gflops / peak[2]:.1f} %" for gflops in (row[4], row[7]))
    ours.close()
    for _, p in peers:
        p.close()
    return rows, settings, peak, torch_version


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
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batches", default=BATCHES,
                        type=lambda text: [int(b) for b in text.split(",")])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    load_before = os.getloadavg()[0]
    rows, settings, peak, version = compare(args)
    head = ["model", "batch", "ours/s", "threads", "of peak", "PyTorch/s", "its best setting",
            "of peak", "ratio", "spread", "arena planned - used, bytes"]
    lines = [f"# Training speed beside PyTorch {version}", "",
             f"{cpu_name()}, {os.cpu_count()} cores; fp32 peak measured in this run "
             f"{peak[2]:.0f} GFLOP/s (1 thread {peak[1]:.0f}); load average before "
             f"{load_before:.1f}; medians of {args.pairs} interleaved pairs of "
             f"{args.seconds} s.", "",
             "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(str(v) for v in row) + " |" for row in rows]
    lines += ["", "Trials that chose the settings, samples per second:", ""]
    for model, batch, our_rates, peer_rates in settings:
        lines.append(f"- {NAMES.get(model, model)}, batch {batch}: ours "
                     + ", ".join(f"{t} thr. {r:,.0f}" for t, r in our_rates.items())
                     + "; PyTorch " + "; ".join(f"{n}: {r:,.0f}" for n, r in peer_rates))
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
