#!/usr/bin/env python3
"""A private Slurm for tests: munged, slurmctld and some slurmd processes of this machine in a
temporary folder. Uses the standard library only, and Debian's packages slurm-wlm and munge. It
needs root, since each node has four fake GPUs, which are device files.

    tests/support/slurm.py run [options] -- PROGRAM ARGUMENT...   runs the program with its own Slurm, ends both
    tests/support/slurm.py start [options]                        prints SLURM_CONF=... and more; until stdin closes
    tests/support/slurm.py control FOLDER VERB [NAME]             controls a running one from anywhere: see VERBS

or from Python:

    with slurm.Slurm(nodes=4) as cluster:
        cluster.environment()        # SLURM_CONF, TRAINYARD_SLURM (the folder), TRAINYARD_SLURM_BIN (wrapper commands)
        cluster.kill_controller(); cluster.start_controller()
        cluster.kill_node("n2"); cluster.start_node("n2")
        cluster.lie("sbatch", "once:lost")

The partitions are main, brief (at most a minute) and urgent, whose jobs preempt those of the
others. The folder TRAINYARD_SLURM_BIN contains sbatch, squeue, scancel, scontrol, sinfo and sacct.
They behave like Slurm's commands until they are made to lie (LIES). `missing()` returns the reason
if something is not installed, with which a test skips.
"""
import argparse
import ctypes
import getpass
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun")
WRAPPED = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct")
SEARCHED = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
SKIPPED = 77  # the value of CTest's SKIP_RETURN_CODE
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None, use_errno=True)

LIES = {
    "honest": "do as Slurm's command does",
    "empty": "print nothing and succeed, without doing anything",
    "garbage": "print lines of bytes and succeed, without doing anything",
    "endless": "print without end",
    "fail": "report that the controller cannot be reached, without doing anything",
    "lost": "do it, then report that the answer timed out",
    "slow": "wait (slow=SECONDS, 60 by default), then do it",
    "late": "do it, then wait (late=SECONDS) before answering",
    "twice": "do it twice and answer with the second",
    "held": "wait until it is told otherwise, then do it",
}
WRAPPER = """#!/bin/sh
# {command}, or what tests/support/slurm.py's LIES say. Each run is counted first.
printf . >>'{folder}/runs/{command}'
lie=$(cat '{folder}/lies/{command}' 2>/dev/null)
case $lie in once:*) rm -f '{folder}/lies/{command}'; lie=${{lie#once:}} ;; esac
case $lie in
  empty) exit 0 ;;
  garbage) printf '\\377\\376|x||\\n%s\\n' '17|ty|RUNNING'; exit 0 ;;
  endless) exec yes '17|ty|RUNNING|an answer without end' ;;
  fail) echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1 ;;
  lost) '{real}' "$@" >/dev/null; echo '{command}: error: Socket timed out on send/recv operation' >&2; exit 1 ;;
  slow*) sleep "$(echo "$lie" | sed 's/^slow=\\{{0,1\\}}//;s/^$/60/')" ;;
  late*) '{real}' "$@" >'{folder}/late.'$$; sleep "${{lie#late=}}"; exec cat '{folder}/late.'$$ ;;
  held) while [ "$(cat '{folder}/lies/{command}' 2>/dev/null)" = held ]; do sleep 0.05; done ;;
  twice) cat >'{folder}/twice.'$$; '{real}' "$@" <'{folder}/twice.'$$ >/dev/null; exec '{real}' "$@" <'{folder}/twice.'$$ ;;
esac
exec '{real}' "$@"
"""
CONFIGURATION = """ClusterName=trainyard
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.sock
CredType=cred/munge
SlurmctldPort={controller_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmctldTimeout=30
SlurmdTimeout={node_timeout_s}
KillWait=2
MessageTimeout=10
MinJobAge={keep_ended_s}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
GresTypes=gpu
MailProg=/bin/true
{more}
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs=4 Gres=gpu:4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes={nodes} Default=YES MaxTime=INFINITE State=UP
PartitionName=brief Nodes={nodes} MaxTime=1 State=UP
PartitionName=urgent Nodes={nodes} PriorityTier=10 MaxTime=INFINITE State=UP
"""


def missing():
    """Returns the reason why no Slurm can be started here, or None."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=SEARCHED) is None]
    if absent:
        return f"{', '.join(absent)} not found: apt-get install slurm-wlm munge"
    if os.geteuid() != 0:
        return "the GPUs of the test's nodes are device files, which only root can make"
    return None


def free_ports(count):
    """Returns ports on which nothing listens now. Another program may take one; start() then tries again."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_time(pid):
    """Returns the start time of a process, which distinguishes processes with the same PID. None if it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Cluster:
    """A running Slurm, given its folder: the operations that `control` and tests in other processes
    use."""

    preexec = None  # hook for the daemons that are started

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.conf = self.folder / "slurm.conf"
        self.bin = self.folder / "bin"

    def environment(self):
        return {"SLURM_CONF": str(self.conf), "TRAINYARD_SLURM": str(self.folder), "TRAINYARD_SLURM_BIN": str(self.bin),
                "TRAINYARD_SLURM_CONTROL": str(pathlib.Path(__file__).resolve())}

    def run(self, command, *arguments, check=True, input=None, timeout=60):
        """Runs Slurm's own command, never a wrapper."""
        program = shutil.which(command, path=SEARCHED)
        return subprocess.run([program, *map(str, arguments)], env=self._plain_environment(), text=True, check=check,
                              capture_output=True, input=input, timeout=timeout)

    def lie(self, command, what="honest"):
        """Makes the wrapper `command` do `what` from its next run on. With the prefix "once:" only
        in the next run."""
        if command not in WRAPPED or what.removeprefix("once:").split("=")[0] not in LIES:
            raise ValueError(f"no wrapper {command} that can be {what}")
        path = self.folder / "lies" / command
        if what == "honest":
            path.unlink(missing_ok=True)
        else:
            fresh = path.with_suffix(".new")
            fresh.write_text(what)
            fresh.rename(path)

    def runs(self, command):
        """Returns the number of runs of the wrapper `command`."""
        path = self.folder / "runs" / command
        return path.stat().st_size if path.exists() else 0

    def start_controller(self, empty=False):
        """With `empty`, the controller starts without the previous state: it knows no jobs, and job
        IDs start again. Without it, a killed controller has forgotten the last five seconds."""
        if empty:
            shutil.rmtree(self.folder / "state")
            (self.folder / "state").mkdir()
        self._start("slurmctld", "slurmctld", "-D", "-f", self.conf)
        self._wait(lambda: "is UP" in self.run("scontrol", "ping", check=False).stdout, "the controller answers")

    def kill_controller(self):
        self._kill("slurmctld")

    def start_node(self, node):
        """Starts the node's daemon and returns once it can be reached."""
        log = self.folder / "log" / f"slurmd-{node}.log"

        def starts():
            return log.read_text(errors="replace").count("] slurmd started on ") if log.exists() else 0
        before = starts()
        self._start(f"slurmd-{node}", "slurmd", "-D", "-N", node, "-f", self.conf)
        self._wait(lambda: starts() > before, f"the node {node} has started")

    def kill_node(self, node):
        """Kills the node's daemon and all its jobs, as a power cut would."""
        doomed = [pid for pid in self._tagged() if self._runs_on(pid, node)]
        # Stop all of them before the kill, since one that saw another one die would report it to
        # the controller.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            self._signal_daemon(f"slurmd-{node}", number)
            for pid in doomed:
                self._signal(pid, number)
        self._kill(f"slurmd-{node}")

    def node_state(self, node):
        return self.run("sinfo", "--noheader", "-N", "-n", node, "-o", "%T").stdout.split()[0]

    def wait_for_nodes(self, timeout_s=60):
        def idle():
            states = self.run("sinfo", "--noheader", "-N", "-p", "main", "-o", "%N %T", check=False).stdout.split("\n")
            return [line for line in states if line] and all(line.endswith(" idle") for line in states if line)
        self._wait(idle, "all nodes are idle", timeout_s)

    # The methods below are private.

    def _plain_environment(self):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "SQUEUE"))}
        return dict(kept, SLURM_CONF=str(self.conf), TRAINYARD_SLURM=str(self.folder))

    def _start(self, name, program, *arguments):
        log = open(self.folder / "log" / f"{name}.out", "ab")
        process = subprocess.Popen([shutil.which(program, path=SEARCHED), *map(str, arguments)],
                                   env=self._plain_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   start_new_session=True, cwd=self.folder, preexec_fn=self.preexec)
        log.close()
        (self.folder / "pids" / name).write_text(f"{process.pid} {start_time(process.pid)}")
        return process

    def _kill(self, name):
        path = self.folder / "pids" / name
        if not path.exists():
            return
        pid, began = path.read_text().split()
        if start_time(pid) == began:
            self._signal(int(pid), signal.SIGKILL)
            self._wait(lambda: start_time(pid) != began, f"{name} has ended")
            self._reap(int(pid))
        path.unlink()

    @staticmethod
    def _signal(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    @staticmethod
    def _reap(pid):
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # another process of the test is its parent

    @staticmethod
    def _environment_of(pid):
        try:
            text = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        except OSError:
            return {}
        return dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)

    @staticmethod
    def _words(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:
            return []

    def _runs_on(self, pid, node):
        if self._environment_of(pid).get("SLURMD_NODENAME") == node:
            return True
        # slurmstepd's title is `slurmstepd: [7.batch]`, and its socket in the node's spool folder
        # contains that number.
        title = " ".join(self._words(pid))
        if not title.startswith("slurmstepd"):
            return False
        step = title.partition("[")[2].partition("]")[0]
        return any((self.folder / "spool" / node).glob(f"{node}_{step.replace('batch', '4294967291')}*"))

    def _signal_daemon(self, name, number):
        path = self.folder / "pids" / name
        if path.exists():
            pid, began = path.read_text().split()
            if start_time(pid) == began:
                self._signal(int(pid), number)

    def _tagged(self):
        """Yields the processes of Slurm and its jobs: their environment names this cluster's configuration."""
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                if self._environment_of(entry.name).get("SLURM_CONF") == str(self.conf):
                    yield int(entry.name)

    def _wait(self, condition, what, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if condition():
                return
            time.sleep(0.05)
        logs = "".join(f"--- {path}\n{path.read_text(errors='replace')[-2000:]}"
                       for path in sorted((self.folder / "log").iterdir()))
        raise TimeoutError(f"not within {timeout_s} s: {what}\n{logs}")


class Slurm(Cluster):
    """Starts a Slurm and ends it with all its processes."""

    @staticmethod
    def preexec():
        # Ends the daemons if this process is killed, as after a test's time limit.
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def __init__(self, nodes=4, first_job_id=1, max_job_id=99999, keep_ended_s=300, node_timeout_s=10, more=""):
        """`keep_ended_s` is MinJobAge, the time for which ended jobs are listed. `more` has further
        lines of slurm.conf."""
        super().__init__(tempfile.mkdtemp(prefix="trainyard-slurm-", dir="/tmp"))
        self.count = nodes
        self.values = {"keep_ended_s": keep_ended_s, "node_timeout_s": node_timeout_s,
                       "more": f"FirstJobId={first_job_id}\nMaxJobId={max_job_id}\n{more}"}

    def __enter__(self):
        # This process becomes the parent of jobs' orphaned processes, so that none is left behind.
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.folder.chmod(0o755)  # jobs of other users and munge read files in it
        for name in ("munge", "state", "spool", "log", "bin", "lies", "runs", "pids"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "munge").chmod(0o711)
        for node in self.node_names():
            (self.folder / "spool" / node).mkdir(exist_ok=True)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._write_gpus()
        self._write_wrappers()
        self._start("munged", "munged", "-F", "--force", "--key-file", key, "--socket", self.folder / "munge/munge.sock",
                    "--pid-file", self.folder / "munge/munged.pid", "--log-file", self.folder / "log/munged.log",
                    "--seed-file", self.folder / "munge/seed", "--num-threads", "2")
        self._wait((self.folder / "munge/munge.sock").exists, "munged listens", 20)
        for attempt in range(3):
            self._write_configuration()
            try:
                self.start_controller()
                for node in self.node_names():
                    self.start_node(node)
                self.wait_for_nodes()
                return self
            except TimeoutError:  # another program took one of the ports
                if attempt == 2:
                    raise
                for node in self.node_names():
                    self._kill(f"slurmd-{node}")
                self.kill_controller()
                shutil.rmtree(self.folder / "state")
                (self.folder / "state").mkdir()
        raise AssertionError("unreachable")

    def stop(self):
        for name in [f"slurmd-{node}" for node in self.node_names()] + ["slurmctld", "munged"]:
            self._kill(name)
        for _ in range(20):  # repeat, since a killed process may just have started another one
            left = [pid for pid in self._tagged() if self._is_slurms(pid)]
            for pid in left:
                self._signal(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_slurms(self, pid):
        """Returns false for a test's own process, which may also have SLURM_CONF of this cluster."""
        words = self._words(pid)
        return "SLURM_JOB_ID" in self._environment_of(pid) or bool(words and words[0].startswith("slurmstepd"))

    def node_names(self):
        return [f"n{number}" for number in range(1, self.count + 1)]

    def _write_gpus(self):
        """Makes device files, each of which is another /dev/null; with only a count, the nodes would be INVAL."""
        for number in range(4):
            path = self.folder / f"gpu{number}"
            if not path.exists():
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (self.folder / "gres.conf").write_text(f"NodeName={','.join(self.node_names())} Name=gpu File={self.folder}/gpu[0-3]\n")

    def _write_configuration(self):
        ports = free_ports(self.count + 1)
        self.conf.write_text(CONFIGURATION.format(
            folder=self.folder, host=socket.gethostname().split(".")[0], user=getpass.getuser(),
            controller_port=ports[0], ports=f"[{','.join(map(str, ports[1:]))}]", nodes=f"n[1-{self.count}]", **self.values))

    def _write_wrappers(self):
        for command in WRAPPED:
            real = shutil.which(command, path=SEARCHED) or f"/usr/bin/{command}"
            path = self.bin / command
            path.write_text(WRAPPER.format(command=command, real=real, folder=self.folder))
            path.chmod(0o755)


VERBS = {
    "kill-controller": lambda cluster: cluster.kill_controller(),
    "start-controller": lambda cluster: cluster.start_controller(),
    "start-empty-controller": lambda cluster: cluster.start_controller(empty=True),
    "kill-node": lambda cluster, node: cluster.kill_node(node),
    "start-node": lambda cluster, node: cluster.start_node(node),
    "wait-for-nodes": lambda cluster: cluster.wait_for_nodes(),
    "lie": lambda cluster, command, what: cluster.lie(command, what),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("run", "start"):
        each = verbs.add_parser(name)
        each.add_argument("--nodes", type=int, default=4)
        each.add_argument("--first-job-id", type=int, default=1)
        each.add_argument("--max-job-id", type=int, default=99999)
        each.add_argument("--keep-ended-s", type=int, default=300)
        each.add_argument("--node-timeout-s", type=int, default=10)
        if name == "run":
            each.add_argument("command", nargs="+")
    control = verbs.add_parser("control")
    control.add_argument("folder")
    control.add_argument("what", choices=VERBS)
    control.add_argument("arguments", nargs="*")
    arguments = parser.parse_args()
    if arguments.verb == "control":
        VERBS[arguments.what](Cluster(arguments.folder), *arguments.arguments)
        return 0
    if why := missing():
        print(f"skipped: {why}", file=sys.stderr)
        return SKIPPED
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the cluster ends too
    with Slurm(arguments.nodes, arguments.first_job_id, arguments.max_job_id, arguments.keep_ended_s,
               arguments.node_timeout_s) as cluster:
        if arguments.verb == "run":
            return subprocess.run(arguments.command, env=dict(os.environ, **cluster.environment())).returncode
        for name, value in cluster.environment().items():
            print(f"{name}={value}", flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
