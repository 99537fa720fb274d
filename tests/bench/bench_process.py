"""Processes that a benchmark queries in turns, and the kernel's accounting of each turn."""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
LIBC = ctypes.CDLL(None)


class Process:
    """A process that replies to each line on its standard input with a line of JSON."""

    def __init__(self, command, env=None, before_exec=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
                                        preexec_fn=before_exec)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.read_answer(line)

    def read_answer(self, question):
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.process.args[0]} ended at: {question}")
        return json.loads(answer)

    def close(self):
        self.process.communicate()  # closes its standard input and waits for it


class StoppedProcess(Process):
    """A process that is stopped (SIGSTOP) except while it answers, so that none of its threads can
    use a core between its turns. It is killed when this process ends for any reason, because a
    stopped process would not notice the end of its input."""

    def __init__(self, command, env=None):
        super().__init__(command, env, before_exec=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))

    def ask(self, line):
        self.process.send_signal(signal.SIGCONT)
        try:
            return super().ask(line)
        finally:
            self.process.send_signal(signal.SIGSTOP)

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        super().close()


def read_cpu_seconds(pid):
    """Returns the CPU seconds of all threads of a process, including threads that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def read_machine_seconds():
    """Returns the CPU seconds of all cores together: used by any process, and stolen by the hypervisor."""
    fields = [int(f) / TICKS for f in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, interrupts, soft_interrupts, steal = fields[:8]
    return user + nice + system + interrupts + soft_interrupts, steal


def ask_in_turn(process, question, waiting):
    """Returns the answer, and the seconds of this turn: wall time; CPU time of this process, of the
    waiting process and of all other processes; and stolen time."""

    def read():
        return (time.monotonic(), read_cpu_seconds(process.process.pid), read_cpu_seconds(waiting.process.pid),
                time.process_time(), *read_machine_seconds())

    before = read()
    answer = process.ask(question)
    clock, own, idle, driver, busy, steal = (b - a for a, b in zip(before, read()))
    return {**answer, "clock_s": round(clock, 3), "own_cpu_s": round(own, 3), "waiting_cpu_s": round(idle, 3),
            "others_cpu_s": round(max(0.0, busy - own - idle - driver), 3), "steal_s": round(steal, 3)}
