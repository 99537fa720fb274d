#!/usr/bin/env python3
"""Compares training speed and memory on one GPU with PyTorch: eager, torch.compile and CUDA graphs, in turns within one
run.

python3 tests/bench/compare_gpu.py build/gpu/bin/train_bench [--pairs 5] [--seconds 1] [--rows lenet5:64:fp32,...]
[--limit SECONDS] [--no-cpu] [--cpu-batch 32] [--json FILE] [--emulated]

Each of PyTorch's modes is tried; the best one is then compared with Trainyard in alternating turns.
On both sides batches start in host memory, as a loader provides them (pinned and copied
asynchronously on PyTorch's side). The table has the medians, the ratio, the share of the GPU's peak
by the plan's FLOPs, and each side's device memory: Trainyard's as planned and as counted by the
driver, minus what the process used for a tiny model before. The last column is Trainyard on all CPU
cores of the machine, in fp32 and with a batch of at most --cpu-batch. A second table shows which
goals are met. --json is written after each row. Needs PyTorch with CUDA. With --emulated, which
only tests this script on the tests' emulated GPU, PyTorch runs eagerly on the CPU, and the numbers
have no meaning.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from bench_process import Process
from peer_models import ROW_LENGTH, TOKENS, WORDS, make_loss, make_model

# model of bench_models.h : batch : precision The most important rows come first; the last ones are
# omitted if --limit is short.
ROWS = ("gpt2_small:1024:32:bf16,resnet50:224:256:bf16,lenet5:64:tf32,mlp_small:64:tf32,vit_base:224:128:bf16,"
        "vgg16:224:128:bf16,resnet18:512:bf16,transformer_classifier:64:bf16,resnet18:224:256:bf16,gpt2_mini:64:tf32,"
        "embedding_bag_classifier:128:tf32,gpt2_small:1024:4:bf16,autoencoder:64:tf32,text_cnn:64:tf32,"
        "lstm_classifier:64:tf32")
# Dense peaks from data sheets in TFLOP/s: bf16 and tf32 with tensor cores, fp32 without.
PEAKS = {"H200": {"bf16": 989, "tf32": 495, "fp32": 67}, "H100": {"bf16": 989, "tf32": 495, "fp32": 67},
         "A100": {"bf16": 312, "tf32": 156, "fp32": 19.5}}

# The goals on an H100 or H200, by model of bench_models.h: speed relative to the best of PyTorch's modes, and
# samples/s.
RATIO_GOALS = {"gpt2_small:1024": 1.15, "resnet50:224": 1.3, "vgg16:224": 1.1, "resnet18": 1.5, "lenet5": 2.5,
               "mlp_small": 3.0}
RATE_GOALS = {"gpt2_small:1024": 400e3 / 1024, "resnet50:224": 5000, "vit_base:224": 3500, "lenet5": 600e3}
MEMORY_GOAL = 0.8  # at most this share of PyTorch's memory
CPU_GOAL = 10.0  # times the machine's CPU, for convolutional networks and transformers; other
                 # models have no goal
WITHOUT_CPU_GOAL = ("mlp_small", "mlp", "embedding_bag_classifier", "lstm_classifier")
SMALL_GPT2 = 4  # a batch size without a goal


def judge(rows):
    """Returns the goals of measured rows, as (what, wanted, got, whether it is met); None: not measured."""
    goals = []

    def add(what, wanted, got, is_passed):
        goals.append((what, wanted, "-" if got is None else got, None if got is None else is_passed))

    for r in rows:
        if "error" in r:
            continue
        name, title = r["model"], f"{r['model']}, {r['batch']}, {r['precision']}"
        is_small = name.startswith("gpt2_small") and r["batch"] == SMALL_GPT2
        if name in RATIO_GOALS and not is_small:
            wanted, got = RATIO_GOALS[name], r["ratio"]
            add(title, f"{wanted}× PyTorch", got and f"{got:.2f}×", got and got >= wanted)
        if name in RATE_GOALS and not is_small:
            wanted = RATE_GOALS[name]
            add(title, f"{wanted:,.0f} samples/s", f"{r['ours']:,.0f}", r["ours"] >= wanted)
        used, theirs = r["our_used_bytes"], r["their_bytes"]
        memory = max(used, r["our_bytes"]) / theirs if theirs else None
        add(title, f"at most {MEMORY_GOAL}× PyTorch's memory", memory and f"{memory:.2f}×",
            memory and memory <= MEMORY_GOAL)
        if name not in WITHOUT_CPU_GOAL:
            times = r["ours"] / r["cpu"] if r["cpu"] else None
            add(title, f"{CPU_GOAL:.0f}× this machine's CPU", times and f"{times:.1f}×", times and times >= CPU_GOAL)
    return goals


def print_goals(rows):
    words = {True: "passed", False: "**missed**", None: "no number"}
    print("\n| goal | wanted | got | |\n" + "| --- " * 4 + "|")
    for what, wanted, got, is_passed in judge(rows):
        print(f"| {what} | {wanted} | {got} | {words[is_passed]} |")


def peer():
    """Serves PyTorch in one of its modes (eager, compiled or CUDA graphs), in a process of its own."""
    import torch

    way, device = os.environ["PEER_WAY"], os.environ["PEER_DEVICE"]
    on_gpu = device == "cuda"
    torch.backends.cudnn.benchmark = True
    cases = {}

    def pinned(tensor):
        return tensor.pin_memory() if on_gpu else tensor

    def synchronize():
        if on_gpu:
            torch.cuda.synchronize()

    def make_case(name, batch, precision):
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        # As in Trainyard, fp32 is strict, and tf32 applies to all products.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.manual_seed(1)
        model, sample = make_model(name)
        images = len(sample) == 3
        layout = torch.channels_last if images else torch.contiguous_format
        model = model.to(device).to(memory_format=layout) if images else model.to(device)
        vocabulary = TOKENS[name][0] if name in TOKENS else WORDS if sample == (ROW_LENGTH,) else 0
        options = {"fused": True} if on_gpu else {}
        if vocabulary or name.startswith("vit"):
            capturable = {"capturable": True} if way == "graph" else {}
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0, **options, **capturable)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **options)
        loss_of = make_loss(name)
        shape = (batch, *sample)
        xs = [pinned(torch.randint(1, vocabulary, shape) if vocabulary else torch.rand(shape)) for _ in range(8)]
        rows, classes = (batch * sample[0], vocabulary) if name in TOKENS else (batch, 10)
        ys = [pinned(torch.randint(0, classes, (rows,))) for _ in range(8)]
        if images:
            xs = [pinned(x.contiguous(memory_format=layout)) for x in xs]
        x, y = xs[0].to(device, copy=True), ys[0].to(device, copy=True)

        def forward():
            with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
                return loss_of(model(x), x, y)

        call = torch.compile(forward) if way == "compile" else forward
        losses = []

        def update():
            optimizer.zero_grad(set_to_none=way != "graph")
            loss = call()
            loss.backward()
            optimizer.step()
            return loss

        if way == "graph":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(5):
                    update()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = update()
        state = {"step": 0}

        def step():
            i = state["step"] % 8
            state["step"] += 1
            x.copy_(xs[i], non_blocking=True)
            y.copy_(ys[i], non_blocking=True)
            if way == "graph":
                graph.replay()
                losses.append(captured.detach().clone())
            else:
                losses.append(update().detach())
            if len(losses) > 1:
                losses.pop(0).item()  # each step's loss is read one step late, as in Trainyard

        for _ in range(20):
            step()
        synchronize()
        return step

    for line in sys.stdin:
        name, batch, precision, seconds = line.split()
        key = (name, batch, precision)
        try:
            if key not in cases:
                cases.clear()  # one model on the device at a time
                if on_gpu:
                    torch.cuda.empty_cache()
                cases[key] = make_case(name, int(batch), precision)
            step = cases[key]
            start, steps = time.perf_counter(), 0
            while time.perf_counter() - start < float(seconds):
                step()
                steps += 1
            synchronize()
            rate = steps * int(batch) / (time.perf_counter() - start)
            answer = {"samples_per_second": rate, "device_bytes": torch.cuda.max_memory_reserved() if on_gpu else 0}
        except Exception as e:  # a way that fails for a model is only a cell of the table
            cases.pop(key, None)
            answer = {"samples_per_second": 0.0, "device_bytes": 0, "error": f"{type(e).__name__}: {e}"[:200]}
        print(json.dumps(answer), flush=True)


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)


def query_gpu(fields, form=""):
    return subprocess.run(["nvidia-smi", f"--query-gpu={fields}", f"--format=csv,noheader{form}"], check=True,
                          capture_output=True, text=True).stdout.strip().splitlines()[0]


class Gpu:
    """The first GPU as the driver reports it, and PyTorch's modes on it."""
    ways, peer_device = ("eager", "compile", "graph"), "cuda"

    def __init__(self):
        self.name = query_gpu("name,driver_version")

    def used_bytes(self):
        """Returns the GPU memory that all processes together use."""
        return int(query_gpu("memory.used", ",nounits")) << 20

    def free_bytes(self):
        return int(query_gpu("memory.free", ",nounits")) << 20


class EmulatedGpu:
    ways, peer_device = ("eager",), "cpu"
    name = "an emulated GPU, PyTorch on the CPU: no number means anything"

    def used_bytes(self):
        return 0

    def free_bytes(self):
        return float("inf")


def start_peer(gpu, way):
    return Process([sys.executable, __file__, "--peer"], dict(os.environ, PEER_WAY=way, PEER_DEVICE=gpu.peer_device))


def find_best(gpu, question):
    """Returns PyTorch's best way, a process that is ready to run it, and the result of each way.

    Tries one way after another. The best process so far keeps running only if the GPU's memory
    suffices for another one as well."""
    peers = {way: start_peer(gpu, way) for way in gpu.ways}  # they import PyTorch in parallel
    trials, best = {}, None
    for way in gpu.ways:
        trials[way] = peers[way].ask(question)
        loser = way
        if best is None or trials[way]["samples_per_second"] > trials[best]["samples_per_second"]:
            best, loser = way, best
        if loser in peers:
            peers.pop(loser).close()
        if best in peers and gpu.free_bytes() < 1.25 * trials[best]["device_bytes"]:
            peers.pop(best).close()
    return best, peers.get(best) or start_peer(gpu, best), trials


def measure_cpu(args, name, batch):
    cpu = Process([args.train_bench, "--serve", "cpu"])
    cores = len(os.sched_getaffinity(0))
    answer = cpu.ask(f"{name} {min(batch, args.cpu_batch)} {cores} {args.seconds}")
    cpu.close()
    return answer["samples_per_second"]


def measure(args, gpu, text, peak):
    *name, batch, precision = text.split(":")
    name = ":".join(name)
    question = f"{name} {batch} {precision} {args.seconds}"
    nobody = gpu.used_bytes()
    ours = Process([args.train_bench, "--serve", "gpu-0", precision])
    ours.ask("mlp_small 1 1 0")
    smallest = gpu.used_bytes()
    ours.ask(f"{name} {batch} 1 {args.seconds}")
    used = gpu.used_bytes()
    best, peer, trials = find_best(gpu, question)
    a, b = [], []
    for _ in range(args.pairs):
        a.append(ours.ask(f"{name} {batch} 1 {args.seconds}"))
        b.append(peer.ask(question))
    ours.close()
    peer.close()
    rates = [[r["samples_per_second"] for r in side] for side in (a, b)]
    medians = [statistics.median(r) for r in rates]
    share = [m * a[0]["gflop_per_sample"] / 1e3 / peak[precision] for m in medians] if peak else None
    return {"model": name, "batch": int(batch), "precision": precision, "ours": medians[0], "theirs": medians[1],
            "way": best, "ratio": statistics.median(x / y for x, y in zip(*rates) if y) if medians[1] else None,
            "spread": [spread(r) if statistics.median(r) else None for r in rates], "share_of_peak": share,
            "our_bytes": a[-1]["planned_bytes"], "their_bytes": b[-1]["device_bytes"],
            "our_used_bytes": used - smallest, "constant_bytes": smallest - nobody,
            "cpu": None if args.no_cpu else measure_cpu(args, name, int(batch)), "trials": trials}


def main():
    if "--peer" in sys.argv:
        return peer()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_bench")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds, after which no row is begun")
    parser.add_argument("--no-cpu", action="store_true")
    parser.add_argument("--cpu-batch", type=int, default=32)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--emulated", action="store_true")
    args = parser.parse_args()
    gpu = EmulatedGpu() if args.emulated else Gpu()
    peak = next((p for name, p in PEAKS.items() if name in gpu.name), None)
    rows = []

    def keep(row):
        rows.append(row)
        if args.json:
            args.json.write_text(json.dumps({"gpu": gpu.name, "rows": rows}, indent=1) + "\n")

    print(f"{gpu.name}\n\n| model | batch | precision | ours/s | of peak | PyTorch/s | its best way | of peak | ratio "
          "| device memory, MiB: planned, used, PyTorch | times the CPU |\n|" + " --- |" * 11, flush=True)
    start = time.monotonic()
    for text in args.rows.split(","):
        try:
            if time.monotonic() - start > args.limit:
                raise RuntimeError("not measured: out of time")
            r = measure(args, gpu, text, peak)
        # a measuring process that has ended is an error of its row, too
        except (RuntimeError, OSError, subprocess.SubprocessError) as e:
            r = {"row": text, "error": str(e)}
            print(f"| {text} | | | {e} | | | | | | | |", flush=True)
            keep(r)
            continue
        keep(r)
        ratio = f"**{r['ratio']:.2f}×**" if r["ratio"] else "-"
        cpu = f"{r['ours'] / r['cpu']:.1f}×" if r["cpu"] else "-"
        shares = [f"{100 * share:.1f} %" for share in r["share_of_peak"] or ()] or ["-", "-"]
        print(f"| {r['model']} | {r['batch']} | {r['precision']} | {r['ours']:,.4g} | {shares[0]} "
              f"| {r['theirs']:,.4g} | {r['way']} | {shares[1]} | {ratio} "
              f"| {r['our_bytes'] / 2**20:,.0f}, {r['our_used_bytes'] / 2**20:,.0f}, {r['their_bytes'] / 2**20:,.0f} "
              f"| {cpu} |", flush=True)
    print_goals(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
