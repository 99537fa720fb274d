"""Renders the results of compare_pytorch.py as tables: statistics, the whole run in Markdown, and
the table of the README.

A run is the content of the JSON file: {"run": {...}, "peaks": {ISA: {THREADS: GFLOP/s}}, "rows":
[...]}. A row has its pairs, each with the measurements of both sides in their turns
(bench_process.ask_in_turn).
"""

import re
import statistics
import textwrap

from peer_models import NAMES

BEGIN, END = "<!-- compare_pytorch.py --readme writes from here -->", "<!-- to here -->"
ISA_NAMES = {"avx2": "AVX2", "avx512": "AVX-512"}
MIB = 1024 * 1024
WAITING_SHARE_MAX = 0.01  # the waiting side's CPU time / a turn's time; with more it was not asleep
OTHERS_SHARE_MAX = 0.05   # other processes' CPU time / the cores' time in a turn; more disturbs the turn


def describe_processor(cpuinfo):
    """Describes the processor from the text of /proc/cpuinfo: vendor and name, family (a hypervisor
    may hide the model's name), cores."""
    lines = [line.partition(":") for line in cpuinfo.splitlines()]
    first = {}
    for name, _, value in lines:
        first.setdefault(name.strip(), value.strip())
    cores = sum(1 for name, _, _ in lines if name.strip() == "processor")
    virtual = "virtual " if "hypervisor" in first.get("flags", "").split() else ""
    return (f"{first.get('model name', 'unknown')} (family {first.get('cpu family', '?')} model {first.get('model', '?')} "
            f"stepping {first.get('stepping', '?')}), {cores} {virtual}core{'s' if cores != 1 else ''}")


def ratios_of(row):
    return [pair["ours"]["samples_per_second"] / pair["theirs"]["samples_per_second"] for pair in row["pairs"]]


def rates_of(row, side):
    return [pair[side]["samples_per_second"] for pair in row["pairs"]]


def faults_of(pair, cores):
    """Returns the reasons to doubt a pair; it counts nevertheless."""
    faults = []
    for side, other in (("ours", "PyTorch"), ("theirs", "ours")):
        turn = pair[side]
        if turn["waiting_cpu_s"] > WAITING_SHARE_MAX * turn["clock_s"]:
            faults.append(f"{other} used the CPU while it waited")
        if turn["others_cpu_s"] + turn["steal_s"] > OTHERS_SHARE_MAX * cores * turn["clock_s"]:
            faults.append(f"others used the CPU beside {'ours' if side == 'ours' else 'PyTorch'}")
        if turn["loss"] is None:
            faults.append(f"the loss of {'ours' if side == 'ours' else 'PyTorch'} was not finite")
    return faults


def summarize(row, peaks):
    """Returns the medians, the ratio with its range, and each side's share of the fp32 peak of the row's instruction
    set."""
    ratios = ratios_of(row)
    ours, theirs = (statistics.median(rates_of(row, side)) for side in ("ours", "theirs"))
    peak = max(peaks[row["isa"]].values())
    return {"ours": ours, "theirs": theirs, "ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios),
            "our_share": ours * row["gflop_per_sample"] / peak, "their_share": theirs * row["gflop_per_sample"] / peak}


def title_of(row):
    bf16 = ", bf16" if row["precision"] == "bf16" else ""
    return f"{NAMES.get(row['model'], row['model'])}, {row['batch']}{bf16}"


def three_digits(rate):
    return f"{float(f'{rate:.3g}'):,.{0 if rate >= 100 else 1 if rate >= 10 else 2}f}"


def format_ratio(s):
    return f"{s['ratio']:.2f} ({s['least']:.2f} to {s['most']:.2f})"


def make_table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(str(cell) for cell in cells) + " |" for cells in rows]


def describe_peaks(peaks):
    return ", ".join(f"{max(by_threads.values()):.0f} GFLOP/s with {ISA_NAMES[isa]}" for isa, by_threads in peaks.items())


def make_readme_table(result, link):
    """Returns a paragraph, and one line per model and precision; for instruction sets other than the first, only ratio
    and share."""
    run, peaks = result["run"], result["peaks"]
    first, *others = list(peaks)
    base = min(row["memory"]["their_base_bytes"] for row in result["rows"]) / MIB
    pairs = {len(row["pairs"]) for row in result["rows"]}
    is_mixed = any(row["precision"] == "bf16" for row in result["rows"])
    bf16 = ", in rows marked bf16 in bf16 (PyTorch by autocast)" if is_mixed else ""
    text = (f"{run['processor']}, {ISA_NAMES[first]}, PyTorch {run['torch'].partition('+')[0]}, {run['date']} "
            f"([the run]({link})). Each turn starts again from the initial weights, and the labels are such that no model "
            f"converges. While one side runs, the other is stopped. Both compute products in fp32{bf16}. The peak of fp32 in "
            f"this run is {describe_peaks(peaks)}. A ratio is Trainyard's samples/s divided by PyTorch's, as the median of "
            f"{min(pairs)} pairs of turns, with its range. Importing PyTorch alone takes {base:,.0f} MiB.")
    text = textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
    head = ["model, batch", "samples/s", "PyTorch", "ratio", "share of the fp32 peak, PyTorch's", "MiB", "PyTorch"]
    for isa in others:
        head += [f"{ISA_NAMES[isa]}: ratio", "share, PyTorch's"]
    by_title = {}
    for row in result["rows"]:
        by_title.setdefault(title_of(row), {})[row["isa"]] = row
    lines = []
    for title, by_isa in by_title.items():
        cells = [title] + ["" for _ in head[1:]]
        for isa, row in by_isa.items():
            s = summarize(row, peaks)
            shares = f"{100 * s['our_share']:.0f} %, {100 * s['their_share']:.0f} %"
            if isa == first:
                cells[1:7] = [three_digits(s["ours"]), three_digits(s["theirs"]), format_ratio(s), shares,
                              f"{row['memory']['our_bytes'] / MIB:,.0f}", f"{row['memory']['their_bytes'] / MIB:,.0f}"]
            else:
                at = 7 + 2 * others.index(isa)
                cells[at:at + 2] = [format_ratio(s), shares]
        lines.append(cells)
    return "\n".join([text, "", *make_table(head, lines)])


def replace_readme_table(readme, table):
    """Returns the README with the text between the two marks replaced by the table."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1 or readme.index(BEGIN) > readme.index(END):
        raise ValueError(f"the README does not have the lines '{BEGIN}' and '{END}' once each, in this order")
    before, after = readme.split(BEGIN)[0], readme.split(END)[1]
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def describe_trials(row):
    trials = row["trials"]
    ours = ", ".join(f"{threads} thread{'s' if threads != '1' else ''} {three_digits(rate)}"
                     for threads, rate in trials["ours"].items())
    theirs = "; ".join(f"{t['setting']}: " + (three_digits(t["rate"]) if "rate" in t else f"does not work ({t['error']})")
                       for t in trials["theirs"])
    return f"- {title_of(row)}, {ISA_NAMES[row['isa']]}: ours {ours}. PyTorch {theirs}"


def make_pairs_table(result):
    cores, lines = result["run"]["cores"], []
    for row in result["rows"]:
        for index, (pair, ratio) in enumerate(zip(row["pairs"], ratios_of(row))):
            ours, theirs = pair["ours"], pair["theirs"]

            def both(key, form):
                return " / ".join("-" if turn[key] is None else form(turn[key]) for turn in (ours, theirs))

            lines.append([f"{title_of(row)}, {ISA_NAMES[row['isa']]}" if index == 0 else "", f"{ratio:.3f}",
                          both("samples_per_second", three_digits), both("steps", str), both("loss", "{:.3g}".format),
                          both("waiting_cpu_s", lambda s: f"{1e3 * s:.0f}"), both("others_cpu_s", lambda s: f"{1e3 * s:.0f}"),
                          both("steal_s", lambda s: f"{1e3 * s:.0f}"), "; ".join(faults_of(pair, cores))])
    return make_table(["row", "ratio", "samples/s", "steps", "loss at the end", "CPU of the waiting side, ms",
                       "CPU of others, ms", "stolen, ms", "doubts"], lines)


def make_report(result):
    """Returns the whole run as Markdown: the two sides, the rows, the trials that chose settings, every pair."""
    run, peaks, rows = result["run"], result["peaks"], result["rows"]
    faulty = sum(1 for row in rows for pair in row["pairs"] if faults_of(pair, run["cores"]))
    lines = [f"# Training speed and memory compared with PyTorch {run['torch']}", "",
             f"{run['processor']}. {run['date']}. Turns of {run['seconds']} s. fp32 peak, the best that was measured between the "
             f"rows: {describe_peaks(peaks)}. Load average {run['load_before']:.1f} before and {run['load_after']:.1f} behind.", "",
             "Both sides begin each turn with their initial weights and optimizer state, and rows come again with other labels, "
             "so that neither converges; they have the same shapes, optimizer, learning rate and number of batches. The side that "
             "waits is stopped (SIGSTOP). Turns alternate, and each pair begins with the other side. Every pair counts: "
             f"{faulty} of {sum(len(row['pairs']) for row in rows)} have doubts, which the last table names. A ratio is the median "
             "of its pairs' ratios, with the least and the greatest. Shares are of the fp32 peak of that instruction set, also in "
             "bf16, whose own peak is higher. Memory is the largest resident set of a process that trains this model alone, "
             "PyTorch without torch.compile, whose compiler takes some too.", ""]
    for isa, facts in run["facts"].items():
        lines += [f"{ISA_NAMES[isa]}:", "", f"- ours: {facts['ours']}", f"- PyTorch: {facts['theirs']}", ""]
    cells = []
    for row in rows:
        s, memory = summarize(row, peaks), row["memory"]
        cells.append([title_of(row), ISA_NAMES[row["isa"]], three_digits(s["ours"]), row["threads"],
                      f"{100 * s['our_share']:.1f} %", three_digits(s["theirs"]), row["setting"],
                      f"{100 * s['their_share']:.1f} %", f"**{s['ratio']:.2f}×** ({s['least']:.2f} to {s['most']:.2f})",
                      f"{memory['our_bytes'] / MIB:.0f}",
                      f"{memory['their_bytes'] / MIB:.0f} ({memory['their_base_bytes'] / MIB:.0f})",
                      f"{memory['arena_bytes'] / MIB:.1f}", row["planned_minus_used_bytes"]])
    lines += make_table(["model, batch", "instruction set", "ours/s", "threads", "of peak", "PyTorch/s", "its best setting",
                         "of peak", "ratio (range)", "memory: ours, MiB", "PyTorch (bare import), MiB", "arena, MiB",
                         "planned - used, bytes"], cells)
    lines += ["", "Trials that chose the settings, samples per second:", "", *map(describe_trials, rows)]
    lines += ["", "Pairs, ours / PyTorch:", "", *make_pairs_table(result)]
    return re.sub(r"[ \t]+\n", "\n", "\n".join(lines)) + "\n"
