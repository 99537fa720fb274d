"""Runs steps in stages within their time limits, and writes the result of each when it ends. Uses
only the standard library."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time

GRACE_S = 3.0  # between terminating a process and killing it
SHOWN_MAX = 12  # lines of failures in the table; results.json has all


@dataclasses.dataclass
class Step:
    """A process whose output is written to STAGE_NAME.log."""
    name: str
    command: list
    limit_s: float
    env: dict = dataclasses.field(default_factory=dict)  # added to this process's environment
    findings: object = None  # converts the output to a list of lines that describe the failures
    notes: object = None  # converts the output to lines that are shown even without a failure
    skip: str = ""  # why the step cannot run here


@dataclasses.dataclass
class Stage:
    letter: str
    title: str
    limit_s: float
    batches: list  # lists of steps; the steps of one list run at the same time


def descendants(pid):
    """The processes below `pid`, from /proc."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue  # the process has ended meanwhile
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def end(process):
    """Ends a process and all its descendants, which may have sessions of their own."""
    pids = {process.pid, *descendants(process.pid)}
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pids |= set(descendants(process.pid))  # processes that it has started meanwhile
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


class Results:
    """The results of the steps so far: `OUT/results.json`, which is rewritten whenever something
    changes.

    Stages can be run one at a time: results of an earlier run of the same commit stay for stages
    that `letters` does not name."""

    def __init__(self, out, head, letters):
        self.out = out
        self.earlier, self.steps = [], []
        try:
            before = json.loads((out / "results.json").read_text())
        except (OSError, ValueError):
            before = {}
        if before.get("commit") == head.get("commit"):
            self.earlier = [s for s in before.get("steps", []) if s["stage"] not in letters]
        self.content = dict(head)

    def add(self, stage, step, state, **said):
        entry = {"stage": stage.letter, "step": step.name, "state": state, "limit_s": step.limit_s, **said}
        self.steps.append(entry)
        self.write()
        return entry

    def all_steps(self):
        return sorted(self.earlier + self.steps, key=lambda s: s["stage"])

    def write(self):
        path = self.out / "results.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(dict(self.content, steps=self.all_steps()), indent=1) + "\n")
        new.replace(path)

    def failed(self):
        return any(s["state"] not in ("ok", "skipped") for s in self.steps)

    def table(self):
        lines = ["| stage | step | result | seconds, of at most | |", "| --- | --- | --- | --- | --- |"]
        for s in self.all_steps():
            said = s.get("findings", []) + s.get("notes", [])
            if len(said) > SHOWN_MAX:
                said = said[:SHOWN_MAX] + [f"and {len(said) - SHOWN_MAX} more in results.json"]
            seconds = f"{s['seconds']:.1f}" if "seconds" in s else "-"
            words = "<br>".join(line.replace("|", "\\|") for line in said)
            result = s["state"] if s["state"] in ("ok", "skipped") else f"**{s['state']}**"
            lines.append(f"| {s['stage']} | {s['step']} | {result} | {seconds} / {s['limit_s']:.0f} | {words} |")
        return "\n".join(lines) + "\n"


class Running:
    def __init__(self, stage, step, results, limit_s):
        self.step, self.results = step, results
        self.log = results.out / f"{stage.letter}_{step.name}.log"
        self.began = time.monotonic()
        self.deadline = self.began + limit_s
        self.entry = results.add(stage, step, "running")
        with open(self.log, "wb") as log:
            try:
                self.process = subprocess.Popen(
                    [str(word) for word in step.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=dict(os.environ, **step.env), start_new_session=True)
            except OSError as e:
                self.process = None
                self.finish("failed", [f"it does not start: {e}"])

    def is_done(self):
        if self.process is None:
            return True
        code = self.process.poll()
        if code is not None:
            said = [] if code == 0 else [f"exit status {code}"] if code > 0 else [f"ended by signal {-code}"]
            self.finish("ok" if code == 0 else "failed", said)
        elif time.monotonic() >= self.deadline:
            self.cut_short()
        return self.process is None

    def cut_short(self):
        seconds = time.monotonic() - self.began
        end(self.process)
        self.finish("cut short", [f"it had not ended after {seconds:.0f} s"])

    def read(self, reader, output):
        try:
            return reader(output) if reader else []
        except Exception as e:  # such as a killed step's incomplete file; the others continue
            return [f"{self.log.name} cannot be read: {type(e).__name__}: {e}"]

    def finish(self, state, said):
        output = self.log.read_text(errors="replace")
        findings = self.read(self.step.findings, output) if state != "ok" else []
        if state == "failed" and not findings:
            findings = [line for line in output.splitlines() if line.strip()][-3:]
        notes = self.read(self.step.notes, output)
        self.process = None
        self.entry.update(state=state, seconds=round(time.monotonic() - self.began, 2), findings=said + findings,
                          notes=notes)
        self.results.write()
        print(f"  {self.step.name:30} {state:10} {self.entry['seconds']:7.1f} s", flush=True)
        for line in (said + findings)[:SHOWN_MAX]:
            print(f"      {line}", flush=True)
        for line in notes:
            print(f"      {line}", flush=True)


def run_batch(stage, batch, stage_end, results, stop):
    running = []
    for step in batch:
        left = stage_end - time.monotonic()
        if step.skip:
            results.add(stage, step, "skipped", notes=[step.skip])
            print(f"  {step.name:30} skipped    {step.skip}", flush=True)
        elif left < 1:
            results.add(stage, step, "not begun", findings=["the stage's time was over"])
            print(f"  {step.name:30} not begun, the stage's time was over", flush=True)
        else:
            running.append(Running(stage, step, results, min(step.limit_s, left)))
    while (running := [r for r in running if not r.is_done()]) and not stop:
        time.sleep(0.05)
    for r in running:
        r.cut_short()


def run_stages(stages, results):
    """Returns true if every step succeeded. SIGINT and SIGTERM end the running steps, and the table
    is still printed."""
    stop = []
    before = {number: signal.signal(number, lambda n, frame: stop.append(signal.Signals(n).name))
              for number in (signal.SIGINT, signal.SIGTERM)}
    for stage in stages:
        if stop:
            break
        print(f"({stage.letter}) {stage.title}, at most {stage.limit_s:.0f} s", flush=True)
        stage_end = time.monotonic() + stage.limit_s
        for batch in stage.batches:
            if not stop:
                run_batch(stage, batch, stage_end, results, stop)
    for number, handler in before.items():
        signal.signal(number, handler)
    if stop:
        results.content["interrupted"] = stop[0]
        results.write()
        print(f"interrupted by {stop[0]}: what follows was not run", flush=True)
    table = results.table()
    (results.out / "results.md").write_text(table)
    print("\n" + table, flush=True)
    return not stop and not results.failed()
