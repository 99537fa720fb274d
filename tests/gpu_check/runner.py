"""Runs steps in stages within their time limits, and writes the result of each when it ends. Uses
only the standard library."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time

from gpu_check import report

GRACE_S = 3.0  # between terminating processes and killing them
TICK_S = 1.0  # between two calls of the watch's tick() while steps run


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
    # Whether the exit status 77 means that the step cannot run here; else it is a failure, since a
    # test that skips everything shows nothing.
    may_skip_itself: bool = False
    # A variable that gets the seconds that the step may work, and the most that it needs: a step
    # that ends by itself is not cut short if it begins late.
    seconds_variable: str = ""
    seconds_max: float = 0
    # Converts the output of a failure to a reason why no later step can succeed, or "".
    is_hopeless: object = None
    # Converts the output of a failure to (description, command, environment) of its first failing
    # case alone, to run it again with the libraries' logs; None if there is none.
    failing_case: object = None


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


def end_all(processes):
    """Ends processes and all their descendants, which may have sessions of their own. All have the
    same few seconds to end by themselves."""
    pids = set()
    for process in processes:
        pids |= {process.pid, *descendants(process.pid)}
        process.terminate()
    until = time.monotonic() + GRACE_S
    for process in processes:
        try:
            process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            pids |= set(descendants(process.pid))  # processes that it has started meanwhile
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for process in processes:
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
        return "hopeless" in self.content or any(s["state"] not in ("ok", "skipped") for s in self.steps)

    def write_report(self):
        self.content["summary"] = report.first_sentence(self.content, self.all_steps())
        self.write()
        (self.out / "results.md").write_text(report.text(self.content, self.all_steps()))


class Running:
    def __init__(self, stage, step, results, limit_s):
        self.step, self.results = step, results
        self.log = results.out / f"{stage.letter}_{step.name}.log"
        self.began = time.monotonic()
        self.deadline = self.began + limit_s
        self.entry = results.add(stage, step, "running")
        env = dict(os.environ, **step.env)
        if step.seconds_variable:
            env[step.seconds_variable] = f"{min(step.seconds_max, 0.75 * limit_s):.0f}"
        with open(self.log, "wb") as log:
            try:
                self.process = subprocess.Popen(
                    [str(word) for word in step.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env=env, start_new_session=True)
            except OSError as e:
                self.process = None
                self.finish("failed", [f"it does not start: {e}"])

    def is_done(self):
        if self.process is None:
            return True
        code = self.process.poll()
        if code == 77 and self.step.may_skip_itself:
            self.finish("skipped", [])
        elif code is not None:
            said = [] if code == 0 else [f"exit status {code}"] if code > 0 else [f"ended by signal {-code}"]
            self.finish("ok" if code == 0 else "failed", said)
        return self.process is None

    def has_time(self):
        return time.monotonic() < self.deadline

    def finish_cut_short(self):
        """Notes the end of a step whose process end_all() has ended."""
        self.finish("cut short", [f"it had not ended after {time.monotonic() - self.began:.0f} s"])

    def read(self, reader, output):
        try:
            return reader(output) if reader else []
        except Exception as e:  # such as a killed step's incomplete file; the others continue
            return [f"{self.log.name} cannot be read: {type(e).__name__}: {e}"]

    def finish(self, state, said):
        output = self.log.read_text(errors="replace")
        findings = self.read(self.step.findings, output) if state not in report.GOOD else []
        if state == "failed" and not findings:
            findings = [line for line in output.splitlines() if line.strip()][-3:]
        notes = self.read(self.step.notes, output)
        self.process = None
        self.entry.update(state=state, seconds=round(time.monotonic() - self.began, 2), findings=said + findings,
                          notes=notes)
        if state == "failed" and self.step.is_hopeless and (why := self.step.is_hopeless(output)):
            self.results.content.setdefault("hopeless", why)
        self.results.write()
        print(f"  {self.step.name:30} {state:10} {self.entry['seconds']:7.1f} s", flush=True)
        for line in (said + findings)[:report.SHOWN_MAX]:
            print(f"      {line}", flush=True)
        for line in notes:
            print(f"      {line}", flush=True)


def cut_short(running):
    end_all([r.process for r in running if r.process is not None])
    for r in running:
        r.finish_cut_short()


class Watch:
    """What a run does beside its steps. This one does nothing."""

    def tick(self):
        """Called every TICK_S while steps run."""

    def after_batch(self, ended, seconds_left):
        """Called with the steps of a batch, each with its entry in the results and its log."""


def run_batch(stage, batch, until, why_over, results, stop, watch):
    running, begun = [], []
    for step in batch:
        left = until - time.monotonic()
        if step.skip:
            results.add(stage, step, "skipped", notes=[step.skip])
            print(f"  {step.name:30} skipped    {step.skip}", flush=True)
        elif left < 1:
            results.add(stage, step, "not begun", findings=[why_over])
            print(f"  {step.name:30} not begun, {why_over}", flush=True)
        else:
            running.append(Running(stage, step, results, min(step.limit_s, left)))
    begun, ticked = list(running), time.monotonic()
    while (running := [r for r in running if not r.is_done()]) and not stop:
        if (late := [r for r in running if not r.has_time()]):
            cut_short(late)
        if time.monotonic() - ticked >= TICK_S:
            watch.tick()
            ticked = time.monotonic()
        time.sleep(0.05)
    cut_short(running)
    watch.after_batch([(r.step, r.entry, r.log) for r in begun], until - time.monotonic())


def run_stages(stages, results, until=float("inf"), watch=None):
    """Returns true if every step succeeded. `until`, in the time of time.monotonic(), is when the
    last step must have ended. SIGINT and SIGTERM end the running steps, and the results stay
    complete. Ends early if a step shows that no later one can succeed."""
    watch, stop = watch or Watch(), []
    before = {number: signal.signal(number, lambda n, frame: stop.append(signal.Signals(n).name))
              for number in (signal.SIGINT, signal.SIGTERM)}
    for stage in stages:
        if stop or "hopeless" in results.content:
            break
        print(f"({stage.letter}) {stage.title}, at most {stage.limit_s:.0f} s", flush=True)
        stage_end = time.monotonic() + stage.limit_s
        why_over = "the stage's time was over" if stage_end < until else "the time of the whole run was over"
        for batch in stage.batches:
            if not stop and "hopeless" not in results.content:
                run_batch(stage, batch, min(stage_end, until), why_over, results, stop, watch)
                results.write_report()
    for number, handler in before.items():
        signal.signal(number, handler)
    if stop:
        results.content["interrupted"] = stop[0]
        print(f"interrupted by {stop[0]}: what follows was not run", flush=True)
    results.content["ended"] = True
    results.write_report()
    return not stop and not results.failed()
