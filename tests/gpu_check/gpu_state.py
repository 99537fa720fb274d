"""The GPUs' clocks, power, throttling, ECC errors and processes, as nvidia-smi reports them before,
during and after a run. An answer that does not come is noted, and never waited for."""

import csv
import subprocess
import threading
import time

INTERVAL_S = 5.0
ANSWER_S = 10  # limit of one call of nvidia-smi
FIELDS = ("index", "name", "driver_version", "pstate", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw", "power.limit",
          "temperature.gpu", "clocks_event_reasons.active", "ecc.mode.current", "ecc.errors.corrected.volatile.total",
          "ecc.errors.uncorrected.volatile.total", "compute_mode", "mig.mode.current", "memory.used", "utilization.gpu")
# Bits of clocks_event_reasons.active. Source: nvml.h, nvmlClocksEventReason.
THROTTLED = {0x4: "power limit", 0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "software thermal slowdown",
             0x40: "hardware thermal slowdown", 0x80: "hardware power brake", 0x100: "display clocks"}


def ask(*arguments):
    """Returns the rows of nvidia-smi's answer, or raises OSError with the reason why there is none."""
    try:
        done = subprocess.run(["nvidia-smi", *arguments, "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              timeout=ANSWER_S)
    except FileNotFoundError:
        raise OSError("nvidia-smi was not found") from None
    except subprocess.TimeoutExpired:
        raise OSError(f"nvidia-smi did not answer within {ANSWER_S} s") from None
    if done.returncode != 0:
        raise OSError(f"nvidia-smi: {(done.stdout + done.stderr).strip()[:200] or f'exit status {done.returncode}'}")
    return [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines()) if row]


def sample():
    """One row per GPU, and the processes that use a GPU: {gpus, processes, error}."""
    found = {"gpus": [], "processes": [], "error": ""}
    try:
        found["gpus"] = [dict(zip(FIELDS, row)) for row in ask("--query-gpu=" + ",".join(FIELDS))]
        found["processes"] = [dict(zip(("pid", "name", "memory_mib"), row))
                              for row in ask("--query-compute-apps=pid,process_name,used_memory")]
    except OSError as e:
        found["error"] = str(e)
    return found


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def reasons(text):
    try:
        bits = int(text, 16)
    except (TypeError, ValueError):
        return []
    return [name for bit, name in THROTTLED.items() if bits & bit]


class GpuState(threading.Thread):
    """Samples until stop(). `ours` returns the PIDs of this run."""

    def __init__(self, path, ours, interval_s=INTERVAL_S):
        super().__init__(daemon=True)  # a call that hangs does not keep the run from ending
        self.path, self.ours, self.interval_s = path, ours, interval_s
        self.before = sample()
        self.during, self.others, self.errors = [], {}, []
        self.ended = threading.Event()

    def run(self):
        with open(self.path, "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("seconds", *FIELDS))
            began = time.monotonic()
            while not self.ended.wait(self.interval_s):
                found = sample()
                if found["error"]:
                    self.errors.append(found["error"])
                for gpu in found["gpus"]:
                    rows.writerow((f"{time.monotonic() - began:.1f}", *(gpu.get(field, "") for field in FIELDS)))
                file.flush()
                self.during.append(found)
                ours = {str(pid) for pid in self.ours()}
                self.others.update({p["pid"]: p["name"] for p in found["processes"] if p["pid"] not in ours})

    def stop(self):
        """Returns what was seen: {before, after, said}, where `said` are sentences."""
        self.ended.set()
        self.join(1)
        after = [sample()]
        return {"before": self.before, "after": after[0], "said": self.sentences(after[0])}

    def sentences(self, after):
        said = [f"before: {self.before['error']}"] if self.before["error"] else []
        if self.errors:
            said.append(f"{len(self.errors)} of {len(self.during)} queries failed: {self.errors[0]}")
        if after["error"] and not self.before["error"]:
            said.append(f"after: {after['error']}")
        for gpu in self.before["gpus"]:
            said.append(self.sentence_of(gpu, after))
        at_start = [f"{p['name']} (PID {p['pid']})" for p in self.before["processes"]]
        if at_start:
            said.append("other processes used a GPU before the run: " + ", ".join(at_start))
        others = [f"{name} (PID {pid})" for pid, name in self.others.items() if name not in
                  [p["name"] for p in self.before["processes"]]]
        if others:
            said.append("during the run a GPU was used by processes that are not known as ours, which in a container may be "
                        "ours under the host's numbers: " + ", ".join(others[:8]))
        if self.before["gpus"] and not at_start and not others:
            said.append("no other process used a GPU, as far as nvidia-smi shows processes here")
        return said

    def sentence_of(self, gpu, after):
        rows = [g for found in (self.before, *self.during, after) for g in found["gpus"] if g.get("index") == gpu["index"]]

        def span(field, unit):
            values = [v for v in (number(g.get(field)) for g in rows) if v is not None]
            return f"{min(values):.0f} to {max(values):.0f} {unit}" if values else "not known"

        slowed = sorted({reason for g in rows for reason in reasons(g.get("clocks_event_reasons.active"))})
        errors = []
        for kind in ("corrected", "uncorrected"):
            counts = [number(g.get(f"ecc.errors.{kind}.volatile.total")) for g in (rows[0], rows[-1])]
            if None not in counts:
                errors.append(f"{counts[1] - counts[0]:.0f} {kind} during the run, {counts[1]:.0f} in all")
        return (f"GPU {gpu['index']} ({gpu.get('name')}, driver {gpu.get('driver_version')}): SM clock {span('clocks.sm', 'MHz')} of "
                f"{gpu.get('clocks.max.sm')}, power {span('power.draw', 'W')} of {gpu.get('power.limit')}, "
                f"{span('temperature.gpu', 'degrees C')}; throttled by {', '.join(slowed) or 'nothing'}; "
                f"ECC {gpu.get('ecc.mode.current')}: {'; '.join(errors) or 'no counts'}; "
                f"compute mode {gpu.get('compute_mode')}, MIG {gpu.get('mig.mode.current')}")
