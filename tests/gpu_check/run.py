"""What a run does beside its steps: watches the GPU, notes the libraries that the programs load, runs
one failing case again with the libraries' logs, and keeps the report and the archive of all results
up to date."""

import os
import signal
import time

from gpu_check import bundle, libraries, library_logs, output
from gpu_check.gpu_state import GpuState
from gpu_check.place import OFFERS
from gpu_check.runner import Watch, descendants

BUNDLE_EVERY_S = 60.0
ONE_GPU = ("one GPU was seen, and two processes that share a GPU cannot join in NCCL: that a rank which stops, or an error of NCCL, "
           "ends a job by aborting its communicator was not tested; nor was any exchange between GPUs")


class Run(Watch):
    """Used as a context: leaving it writes the report and the archive, whatever has happened."""

    def __init__(self, out, results, launchers, archive):
        self.out, self.results, self.launchers = out, results, launchers
        self.archive = archive.resolve() if archive else None
        self.paths, self.described = {}, {}  # of libraries by name, and those that content has
        self.bundled_at = time.monotonic()
        self.has_logs = False
        (out / OFFERS).unlink(missing_ok=True)  # of an earlier run
        self.gpu = GpuState(out / "gpu_state.csv", lambda: [os.getpid(), *descendants(os.getpid())])

    def __enter__(self):
        if len(self.gpu.before["gpus"]) < 2:
            self.results.content["cannot_show"] = [ONE_GPU]
        self.gpu.start()
        return self

    def __exit__(self, kind, error, trace):
        if kind is SystemExit and isinstance(error.code, int) and error.code > 128:
            self.results.content["interrupted"] = signal.Signals(error.code - 128).name
        elif kind is not None:
            self.results.content["interrupted"] = f"{kind.__name__} {error}".strip()
        self.results.content["gpu_state"] = self.gpu.stop()
        self.write()
        print(f"\n{(self.out / 'results.md').read_text()}\nall of it: {self.out}"
              + (f", and in {self.archive}" if self.archive else ""), flush=True)

    def write(self):
        if self.described != self.paths:  # it takes a second
            self.results.content["libraries"] = libraries.describe(self.paths, self.launchers.library_path)
            self.described = dict(self.paths)
        self.results.content["offers"] = output.of_offers(self.out / OFFERS)
        if (gained := output.of_algorithms(self.out / "algorithms")):
            (self.out / "algorithms.md").write_text(gained + "\n")
        self.results.write_report()
        self.write_bundle()

    def write_bundle(self):
        try:
            if self.archive:
                bundle.write(self.out, self.archive)
        except OSError as e:  # such as a full disk; the steps continue, and the next archive may succeed
            print(f"{self.archive} cannot be written: {e}", flush=True)
        self.bundled_at = time.monotonic()

    def tick(self):
        for pid in descendants(os.getpid()):
            self.paths.update(libraries.mapped(pid))
        if time.monotonic() - self.bundled_at > BUNDLE_EVERY_S:
            self.write_bundle()

    def after_batch(self, ended, seconds_left):
        for step, entry, log in ended:
            if entry["state"] != "failed" or self.has_logs or not step.failing_case or seconds_left < 10:
                continue
            case = step.failing_case(log.read_text(errors="replace"))
            if case:
                self.has_logs = True  # also if the next lines fail
                self.results.content["library_logs"] = library_logs.run_again(
                    *case, self.out, min(library_logs.LIMIT_S, seconds_left - 5))
        self.write()
