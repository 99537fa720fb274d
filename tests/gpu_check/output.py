"""Extracts the failures from the output of a step."""

import itertools
import json
import re

SAID_MAX = 300  # characters of one failure
ENGINES = "engines of the failing case:"  # printed by tests/cuda/parity.cc after a failure
TRACE = re.compile(r"^\S+:\d+: (.*)$")  # a line below "Google Test trace:"


def of_gtest(output):
    """For a GoogleTest program: every failure with its case, then the tests that failed."""
    test, failures, names = "", [], []
    lines = output.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("[ RUN      ] "):
            test = line[13:].strip()
        elif re.search(r": Failure$", line):
            said, case = [], []
            for at in range(i + 1, len(lines)):
                if lines[at].startswith(("[ ", "[  ")) or re.search(r": Failure$", lines[at]):
                    break
                if lines[at] == "Google Test trace:":
                    traces = map(TRACE.match, lines[at + 1:])
                    case = [m[1] for m in itertools.takewhile(lambda m: m and m[1] != "Failure", traces)]
                    break
                if lines[at].strip():
                    said.append(lines[at].strip())
            failures.append(f"{test}: {', '.join(case) + ': ' if case else ''}{'; '.join(said)[:SAID_MAX]}")
        elif line == ENGINES:
            engines = itertools.takewhile(lambda x: x.startswith("  "), lines[i + 1:])
            failures.append(f"{line} {'; '.join(map(str.strip, engines)) or 'none'}")
        elif line.startswith("[  FAILED  ] ") and line.rstrip().endswith("ms)"):
            names.append(line[13:].split()[0].rstrip(","))
    if re.search(r"^\[  PASSED  \] 0 tests\.$", output, re.MULTILINE) and not failures and not names:
        return ["no test ran: each was skipped"]
    return failures + [f"{name} failed" for name in names if not any(f.startswith(name + ": ") for f in failures)] + \
        ([f"{test} had not ended"] if test and not re.search(rf"\] {re.escape(test)}\b.* ms\)", output) else [])


def of_gtest_notes(output):
    """Skipped tests with their reasons, cases omitted for lack of time, and a filter that matched
    no test."""
    skipped = re.findall(r"^\[  SKIPPED \] (\S+) \(", output, re.MULTILINE)
    reasons = re.findall(r": Skipped\n(.+)\n", output)
    ran = re.search(r"^\[==========\] (\d+) tests? from .* ran", output, re.MULTILINE)
    nothing = ["no test of this build matches the filter: nothing was checked"] if ran and ran[1] == "0" else []
    left_out = [line[:SAID_MAX] for line in output.splitlines() if line.startswith("left out: ")]
    return nothing + left_out + [f"skipped: {name}: {reason}"[:SAID_MAX] for name, reason in
                      itertools.zip_longest(skipped, reasons[:len(skipped)], fillvalue="no reason was given")]


NO_GPU = re.compile(r"CUDA_UNAVAILABLE|CUDA_LIBRARY_MISSING|CUDA_MODULE_MISMATCH|CUDA_MODULE_MISSING|DEVICE_NOT_FOUND|DEVICE_BUSY")


def why_no_gpu(output):
    """Why no program can use the GPU, for the output of `trainyard local check`; "" if one can."""
    return next((line.strip()[:SAID_MAX] for line in output.splitlines() if NO_GPU.search(line)), "")


def of_unittest(output):
    """The failed tests of Python's unittest, each with the last line of its reason."""
    found = []
    for block in re.split(r"^={70}$", output, flags=re.MULTILINE)[1:]:
        name = block.strip().splitlines()[0]
        reasons = re.findall(r"^\w[\w.]*(?:Error|Exception|Exit|Interrupt|Expired)\b.*(?:\n(?!-{70}).+)?", block, re.MULTILINE)
        found.append(f"{name}: {reasons[-1] if reasons else ''}".replace("\n", "; ")[:SAID_MAX])
    begun = re.findall(r"^(\w+) \(.*?\) \.\.\. (.*)$", output, re.MULTILINE)
    for name, said in begun:
        if not re.match(r"ok|FAIL|ERROR|skipped", said):
            found.append(f"{name} had not ended")
        elif not said.startswith(("ok", "skipped")) and not any(f" {name} " in f for f in found):
            found.append(f"{name}: {said}, see the output")
    return found


def of_daemon_notes(output):
    """The daemon's tests that ran, each with its result."""
    return [f"{name}: {said}" for name, said in re.findall(r"^(test_\w+) \(.*?\)(?:\n.*)? \.\.\. (ok|skipped.*)$", output,
                                                           re.MULTILINE)]


def of_algorithms(folder):
    """The time that timed algorithms save compared with the libraries' first proposals."""
    lines = []
    for path in sorted(folder.glob("*.json")):
        choices = json.loads(path.read_text())["choices"]
        for library in ("matmul", "convolution"):
            timed = [c for key, c in choices.items() if key.split()[0] == library and c["taken_us"] > 0]
            if timed:
                first, taken = (sum(c[key] for c in timed) for key in ("first_us", "taken_us"))
                changed = sum(c["taken_us"] < c["first_us"] for c in timed)
                lines.append(f"{library}: {len(timed)} problems timed, {changed} better than the first proposal; "
                             f"once each: {first:.0f} us by first proposals, {taken:.0f} us as taken")
    return "\n".join(lines)


def of_offers(path):
    """One line for each fused operation that the libraries were asked for: for how many problems it
    can be used, and for how many an algorithm lost NaN (src/runtime/cuda/offers.h)."""
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError):
        return []
    found = {}
    for row in rows:
        counts = found.setdefault(f"{row['library']}: {row['operation']}, {row['formats']}", {})
        counts.setdefault(row["offer"], set()).add(row["problem"])
    lines = []
    for what, counts in sorted(found.items()):
        offered, refused, loses = (counts.get(offer, set()) for offer in ("offered", "none", "loses NaN"))
        lines.append(f"{what}: used for {len(offered)} of {len(offered | refused)} problems"
                     + (f"; for {len(loses)} an algorithm lost NaN" if loses else ""))
    return lines
