#!/usr/bin/env python3
"""Compares training speed with PyTorch: the same cores, the same arithmetic, in turns within one run.

venv/bin/python tests/bench/compare_pytorch.py build/release/bin/train_bench --json run.json --out run.md --readme README.md
[--pairs 7] [--seconds 1] [--models resnet18,vgg11:224] [--batches 64] [--isa avx512,avx2] [--precision fp32,bf16]
venv/bin/python tests/bench/compare_pytorch.py --render run.json [more.json] --out run.md --readme README.md

Both sides do the same work: shapes, optimizer, learning rate, number of batches. Each turn starts
from the initial weights and optimizer state, which are restored before the clock starts. Rows
repeat with other labels, so that no model converges: PyTorch computes slowly with the denormal
numbers that follow. The waiting side is stopped (SIGSTOP), and the kernel's accounting shows the
CPU time that it and all other processes used during each turn. No pair is omitted.

PyTorch's setting is searched for each row, one change after another: channels last, torch.compile,
denormal numbers kept, sleeping instead of spinning OpenMP threads, an optimizer that is not fused,
one thread. A faster change stays, and the two fastest settings are tried once more. For Trainyard
only the number of threads is searched. In fp32 both sides multiply in fp32. bf16 is PyTorch's
autocast; such a row is meaningful only on a CPU that multiplies in bf16 (AMX or AVX512_BF16).

--isa avx2 limits the instruction set that each side uses, on the same machine; the peak is then
that of AVX2. PyTorch's MKL ignores such limits on AMD's processors, where it always multiplies with
AVX2 (mkl_blas_def_sgemm_kernel_0_zen). --json is written after each row; --render creates the
tables from such files, with the rows of several files one after another.
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import typing

from bench_process import StoppedProcess, ask_in_turn
from compare_tables import ISA_NAMES, describe_processor, make_readme_table, make_report, ratios_of, replace_readme_table
from peer_models import MODELS

HERE = pathlib.Path(__file__).resolve().parent
CORES = len(os.sched_getaffinity(0))
TRIAL_SECONDS, TRIAL_TURNS = 0.5, 2  # the better of two results, since other load only slows
VECTOR_BITS = {"avx2": 256, "avx512": 512}
# Each library reads the instruction set that it may use from one of these variables. OpenBLAS
# expects the name of a processor; it is also set for AVX-512, because OpenBLAS does not recognize
# every processor.
OUR_LIMITS = {"avx512": {}, "avx2": {"TRAINYARD_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}}
THEIR_LIMITS = {"avx512": {"OPENBLAS_CORETYPE": "SkylakeX"},
                "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
                         "OPENBLAS_CORETYPE": "Haswell", "TORCHINDUCTOR_CPP_MARCH": "x86-64-v3"}}
LIMITING = sorted({name for limits in (OUR_LIMITS, THEIR_LIMITS) for isa in limits for name in limits[isa]} |
                  {"DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})


class Setting(typing.NamedTuple):
    """A setting of PyTorch. The first three fields are fixed when its process starts."""
    threads: int = CORES
    flush: bool = True
    passive: bool = False
    fused: bool = True
    channels_last: bool = False
    compile: bool = False

    def __str__(self):
        words = [f"{self.threads} thread{'s' if self.threads > 1 else ''}",
                 "denormals flushed" if self.flush else "denormals kept", *(["passive wait"] if self.passive else []),
                 "fused optimizer" if self.fused else "optimizer not fused",
                 *(["channels last"] if self.channels_last else []), *(["torch.compile"] if self.compile else [])]
        return ", ".join(words)


def environment(limits, **more):
    """Returns the environment of this process without variables that limit or change a library's dispatch, plus these
    limits."""
    return {**{name: value for name, value in os.environ.items() if name not in LIMITING}, **limits, **more}


def peer_command(setting):
    return [sys.executable, str(HERE / "peer_torch.py"), json.dumps({"threads": setting.threads, "flush": setting.flush})]


def peer_environment(setting, isa):
    wait = {"OMP_WAIT_POLICY": "PASSIVE"} if setting.passive else {}
    return environment(THEIR_LIMITS[isa], OMP_NUM_THREADS=str(setting.threads), MKL_NUM_THREADS=str(setting.threads),
                       TORCHINDUCTOR_COMPILE_THREADS="1", CUDA_VISIBLE_DEVICES="", **wait)


def start_peer(setting, isa):
    peer = StoppedProcess(peer_command(setting), peer_environment(setting, isa))
    peer.read_answer("its start")
    return peer


def start_ours(args, isa, precision):
    return StoppedProcess([args.train_bench, "--serve", "cpu", precision], environment(OUR_LIMITS[isa]))


class Peers:
    """Processes for trials, one for each per-process setting; they run as long as the instruction
    set is the same."""

    def __init__(self, isa):
        self.isa, self.processes = isa, {}

    def try_setting(self, row, setting):
        key = setting[:3]
        if key not in self.processes:
            self.processes[key] = start_peer(setting, self.isa)
        question = ask_peer(row, setting, TRIAL_SECONDS)
        answers = [self.processes[key].ask(question) for _ in range(TRIAL_TURNS)]
        self.processes[key].ask("{}")  # frees its model to save memory
        failed = next((a["error"] for a in answers if "error" in a), None)
        return {"error": failed} if failed else {"rate": max(a["samples_per_second"] for a in answers)}

    def close(self):
        for process in self.processes.values():
            process.close()


def ask_peer(row, setting, seconds, **more):
    return json.dumps({"model": row["model"], "batch": row["batch"], "precision": row["precision"], "seconds": seconds,
                       "fused": setting.fused, "channels_last": setting.channels_last, "compile": setting.compile, **more})


def choose_setting(peers, row, with_compile):
    """Returns PyTorch's fastest setting, and the result of each setting that was tried."""
    trials = {}

    def attempt(setting):
        again = peers.try_setting(row, setting)
        if again.get("rate", 0) >= trials.get(setting, {}).get("rate", 0):
            trials[setting] = again

    def fastest():
        working = [s for s in trials if "rate" in trials[s]]
        if not working:
            raise RuntimeError(f"PyTorch does not train {row['model']}: {trials}")
        return sorted(working, key=lambda s: -trials[s]["rate"])

    images = row["model"].startswith(("vgg", "resnet", "autoencoder", "lenet", "vit"))
    attempt(Setting())
    for change in (*([{"channels_last": True}] if images else []), *([{"compile": True}] if with_compile else []),
                   {"flush": False}, {"passive": True}, {"fused": False}, {"threads": 1, "passive": False}):
        setting = fastest()[0]._replace(**change)
        if setting not in trials:  # a change may repeat a setting, such as one thread on one core
            attempt(setting)
    for setting in fastest()[:2]:
        attempt(setting)
    return fastest()[0], [{"setting": str(s), **trial} for s, trial in trials.items()]


def measure_memory(args, row, setting):
    ours = json.loads(subprocess.run([args.train_bench, "--memory", row["model"], str(row["batch"]), row["precision"]],
                                     check=True, capture_output=True, text=True,
                                     env=environment(OUR_LIMITS[row["isa"]])).stdout)
    peer = start_peer(setting, row["isa"])
    theirs = peer.ask(ask_peer(row, setting._replace(compile=False), 0, memory=True))
    peer.close()
    return {"our_bytes": ours["peak_bytes"], "arena_bytes": ours["planned_bytes"], "their_bytes": theirs["peak_bytes"],
            "their_base_bytes": theirs["before_bytes"]}


def measure(args, row, peers):
    """Adds to a row the measurements of both sides at their best settings, in turns."""
    ours = start_ours(args, row["isa"], row["precision"])

    def ask_ours(threads, seconds):
        return f"{row['model']} {row['batch']} {threads} {seconds}"

    our_trials = {threads: max(ours.ask(ask_ours(threads, TRIAL_SECONDS))["samples_per_second"] for _ in range(TRIAL_TURNS))
                  for threads in sorted({1, CORES})}
    threads = max(our_trials, key=our_trials.get)
    setting, their_trials = choose_setting(peers, row, not args.no_compile)
    peer = start_peer(setting, row["isa"])  # a fresh process
    peer.ask(ask_peer(row, setting, 0))
    turns = {"ours": (ours, peer, ask_ours(threads, args.seconds)),
             "theirs": (peer, ours, ask_peer(row, setting, args.seconds))}
    pairs = []
    for i in range(args.pairs):
        order = ("ours", "theirs") if i % 2 == 0 else ("theirs", "ours")
        pairs.append({side: ask_in_turn(turns[side][0], turns[side][2], turns[side][1]) for side in order})
    ours.close()
    peer.close()
    last = pairs[-1]["ours"]
    return {**row, "threads": threads, "setting": str(setting), "gflop_per_sample": last["gflop_per_sample"],
            "planned_minus_used_bytes": last["planned_bytes"] - last["used_bytes"], "pairs": pairs,
            "trials": {"ours": {str(t): rate for t, rate in our_trials.items()}, "theirs": their_trials},
            "memory": measure_memory(args, row, setting)}


def first_line_with(word, text):
    return next((line.strip() for line in text.splitlines() if word in line), f"no line with {word}")


def describe_sides(args, isa):
    """Returns the libraries of each side and their versions, as reported by themselves."""
    run = subprocess.run([args.train_bench, "--memory", "mlp_small", "8"], check=True, capture_output=True, text=True,
                         env=environment(OUR_LIMITS[isa], ONEDNN_VERBOSE="1"))
    meter = start_ours(args, isa, "fp32")
    loops = meter.ask(f"peak 1 {VECTOR_BITS[isa]}")["loops"]
    meter.close()
    setting = Setting()
    said = subprocess.run([*peer_command(setting), "--describe"], check=True, capture_output=True, text=True,
                          env={**peer_environment(setting, isa), "ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1"}).stdout
    facts = json.loads(said.splitlines()[-1])
    mkl = next((line.strip("- ") for line in facts["build"].splitlines() if "Math Kernel" in line), "no MKL")
    return facts, {"ours": f"loops for {ISA_NAMES.get(loops, loops)}; {first_line_with('isa:', run.stdout)}",
                   "theirs": f"ATen {facts['capability']}; {first_line_with('isa:', said)}; {mkl}; products in fp32: "
                             f"float32_matmul_precision {facts['float32_matmul_precision']}, oneDNN's precision of products, "
                             f"convolutions and recurrences {', '.join(facts['onednn_fp32_precision'])}; denormal numbers are flushed in every "
                             "thread of the pool where a setting says so"}


class Meter:
    """The highest fp32 peak measured, by instruction set and threads; load by other processes only
    lowers a measurement."""

    def __init__(self, args, isas):
        self.args, self.peaks = args, {isa: {} for isa in isas}

    def measure(self):
        meter = start_ours(self.args, next(iter(self.peaks)), "fp32")
        for isa, by_threads in self.peaks.items():
            for threads in sorted({1, CORES}):
                seen = meter.ask(f"peak {threads} {VECTOR_BITS[isa]}")["gflops"]
                by_threads[str(threads)] = max(seen, by_threads.get(str(threads), 0))
        meter.close()


def compare(args):
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    for isa in args.isa:
        if f" {isa.replace('avx512', 'avx512f')}" not in cpuinfo:
            sys.exit(f"compare_pytorch.py: this CPU has no {ISA_NAMES[isa]}")
    if "bf16" in args.precision and " avx512_bf16" not in cpuinfo and " amx_bf16" not in cpuinfo:
        print("compare_pytorch.py: this CPU does not multiply in bf16; rows in bf16 measure conversions", file=sys.stderr)
    run = {"processor": describe_processor(cpuinfo), "cores": CORES, "date": datetime.date.today().isoformat(),
           "seconds": args.seconds, "load_before": os.getloadavg()[0], "facts": {}}
    meter = Meter(args, args.isa)
    result = {"run": run, "peaks": meter.peaks, "rows": []}
    for isa in args.isa:
        facts, run["facts"][isa] = describe_sides(args, isa)
        run["torch"] = facts["torch"]
    meter.measure()
    peers = {isa: Peers(isa) for isa in args.isa}
    for model in args.models:
        for batch, precision, isa in itertools.product(args.batches or [MODELS.get(model.partition(":")[0], 32)],
                                                       args.precision, args.isa):
            if precision == "bf16" and isa == "avx2":
                continue  # AVX2 has no instructions that multiply in bf16
            row = measure(args, {"model": model, "batch": batch, "precision": precision, "isa": isa}, peers[isa])
            meter.measure()
            result["rows"].append(row)
            run["load_after"] = os.getloadavg()[0]
            if args.json:
                args.json.write_text(json.dumps(result, indent=1) + "\n")
            print(f"{model} {batch} {precision} {isa}: {statistics.median(ratios_of(row)):.2f} "
                  f"({', '.join(f'{r:.2f}' for r in ratios_of(row))}), PyTorch with {row['setting']}", file=sys.stderr, flush=True)
    for each in peers.values():
        each.close()
    return result


def merge(results):
    """Merges the rows of several runs on one machine, with the facts of the first run and the
    highest peaks."""
    merged = results[0]
    for result in results[1:]:
        if result["run"]["processor"] != merged["run"]["processor"]:
            sys.exit("compare_pytorch.py: --render: these runs are of different processors")
        merged["rows"] += result["rows"]
        merged["run"]["load_after"] = result["run"]["load_after"]
        merged["run"]["facts"] = {**result["run"]["facts"], **merged["run"]["facts"]}
        for isa, by_threads in result["peaks"].items():
            known = merged["peaks"].setdefault(isa, {})
            for threads, peak in by_threads.items():
                known[threads] = max(peak, known.get(threads, 0))
    return merged


def words(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_bench", nargs="?")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    parser.add_argument("--models", default=list(MODELS), type=words, help="names of bench_models.h")
    parser.add_argument("--batches", help="instead of each model's usual one",
                        type=lambda text: [int(b) for b in text.split(",")])
    parser.add_argument("--isa", type=words, help="avx512, avx2 or both; the first is the one that the README shows whole")
    parser.add_argument("--precision", type=words, default=["fp32"], help="fp32, bf16 or both, which are rows of their own")
    parser.add_argument("--no-compile", action="store_true", help="do not try torch.compile")
    parser.add_argument("--json", type=pathlib.Path, help="everything that is measured, written after each row")
    parser.add_argument("--render", type=pathlib.Path, nargs="+", help="make the tables of these files and measure nothing")
    parser.add_argument("--out", type=pathlib.Path, help="the whole run in Markdown; else it is printed")
    parser.add_argument("--readme", type=pathlib.Path, help="replace the table in this file; needs --out, which it links")
    args = parser.parse_args()
    if (args.train_bench is None) == (args.render is None):
        parser.error("expected either train_bench or --render")
    if args.readme and not args.out:
        parser.error("--readme needs --out, the run that the README links")
    has_avx512 = " avx512f" in pathlib.Path("/proc/cpuinfo").read_text()
    args.isa = args.isa or ["avx512" if has_avx512 else "avx2"]
    if unknown := [w for w in args.isa if w not in VECTOR_BITS] + [w for w in args.precision if w not in ("fp32", "bf16")]:
        parser.error(f"{unknown[0]}: expected avx512 or avx2, and fp32 or bf16")
    result = merge([json.loads(file.read_text()) for file in args.render]) if args.render else compare(args)
    report = make_report(result)
    if args.out:
        args.out.write_text(report)
    else:
        print(report)
    if args.readme:
        link = os.path.relpath(args.out, args.readme.parent)
        args.readme.write_text(replace_readme_table(args.readme.read_text(), make_readme_table(result, link)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
