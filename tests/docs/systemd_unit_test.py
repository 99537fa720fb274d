"""Tests that systemd accepts the unit without warnings, that it restricts the service as much as
before, and that its settings fit the daemon.

Nothing starts under systemd here: systemd-analyze and this test read the file. The test fails for a
misspelled or unknown setting (systemd ignores those), for a setting that opens up the service, and
for one that harms workers that outlive the daemon (docs/decisions/workers-that-survive-the-daemon.md)."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
UNIT = SOURCE / "docker/trainyardd.service"
FRONT_UNIT = SOURCE / "packaging/front/trainyard-front.service"
PROGRAM = pathlib.Path(os.environ.get("TRAINYARD_BIN", SOURCE / "build/release/bin")) / "trainyardd"

# The value of 'systemd-analyze security' of systemd 252. It may only decrease, and
# docs/operations.md names it.
EXPOSURE_MAX = 1.9

# Settings on which the promises of docs/operations.md depend, and settings that must not return.
NEEDED = {
    "KillMode": "process",  # a crash of the daemon leaves its workers running
    "OOMPolicy": "continue",  # the end of one worker does not end all
    "Restart": "on-failure",  # the restarted daemon adopts the workers
    "ExecReload": "/bin/kill -USR2 $MAINPID",
    "RuntimeDirectoryMode": "0755",  # everyone sees the socket, so that clients can say who may use it
    "RuntimeDirectoryPreserve": "yes",  # otherwise systemd removes it while a crashed daemon's clients reconnect
    "StateDirectoryMode": "0700",  # the group that may use the socket reads no state
}
HARMFUL = {
    "PrivateTmp": "systemd removes it with the daemon, under the workers that go on",
    "RemoveIPC": "systemd removes the shared memory of workers that go on",
}


def settings(text):
    """Returns the last value of each key. Sections are ignored, since no key is in two of them."""
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.M))


def analyze(*arguments):
    done = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, LC_ALL="C.UTF-8", SYSTEMD_COLORS="0"))
    return done.stdout, done.stderr.strip(), done.returncode


def checked(text, program, name=UNIT.name):
    """Returns systemd's complaints about the unit, checked with a program of this machine instead of the installed
    one."""
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / name
        unit.write_text(re.sub("/usr/bin/trainyardd|/usr/sbin/haproxy", str(program), text))
        _, said, code = analyze("verify", "--man=no", str(unit))
        found = [f"verify: {line}" for line in said.splitlines()]
        if code != 0 and not found:
            found.append(f"verify ends with {code}")
        table, said, _ = analyze("security", "--offline=true", "--no-pager", str(unit))
    figure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", table)
    if not figure:
        return found + [f"security: no figure: {said}"]
    if float(figure[1]) > EXPOSURE_MAX:
        found.append(f"security: {figure[1]}, at most {EXPOSURE_MAX}")
    return found


def without_what_workers_need(text):
    unit = settings(text)
    found = [f"{key}={unit.get(key)}, must be {value}" for key, value in NEEDED.items() if unit.get(key) != value]
    return found + [f"{key}: {why}" for key, why in HARMFUL.items() if unit.get(key, "no") not in ("no", "")]


def against_the_daemon(text):
    """Checks that the daemon accepts the command line, and that systemd waits longer than the
    daemon drains."""
    unit = settings(text)
    flags = unit["ExecStart"].split()[1:]
    if "--socket-group trainyard" not in unit["ExecStart"] or unit["Group"] != "trainyard":
        return ["ExecStart: the socket is not for the group trainyard, of which the daemon is a member"]
    done = subprocess.run([PROGRAM, *flags, "--config", "/dev/null", "--print-config"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        return [f"trainyardd {' '.join(flags)}: {done.stderr.strip()}"]
    drain = int(re.search(r"^drain_seconds: (\d+)", done.stdout, re.M)[1])
    return [] if int(unit["TimeoutStopSec"]) > drain else [f"TimeoutStopSec={unit['TimeoutStopSec']} and drain_seconds {drain}"]


def main():
    text = UNIT.read_text()
    found = without_what_workers_need(text)
    operations = (SOURCE / "docs/operations.md").read_text()
    if f"rates the unit {EXPOSURE_MAX}" not in operations:
        found.append(f"docs/operations.md does not say 'rates the unit {EXPOSURE_MAX}'")
    built = PROGRAM.is_file()
    if built:
        found += against_the_daemon(text)
    skipped = not shutil.which("systemd-analyze")
    if not skipped:
        program = PROGRAM if built else "/bin/true"
        found += checked(text, program)
        found += checked(FRONT_UNIT.read_text(), "/bin/true", FRONT_UNIT.name)
        # Planted mistakes must be found, so that a test without complaints means something.
        for old, new in (("KillMode=process", "KilMode=process"), ("OOMPolicy=continue", "OOMPolicy=cont"),
                         ("ProtectSystem=strict", "ProtectSystem=no"), (str(text.split("ExecReload=")[1].split()[0]), "/bin/none")):
            if not checked(text.replace(old, new, 1), program):
                found.append(f"{new} was not noticed")
    for line in found:
        print(line)
    if skipped and not found:
        print("systemd-analyze is not installed")
        return 77
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
