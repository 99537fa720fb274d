"""Finds out, in seconds, whether the programs start at all. If not, a run would only spend a lease."""

import os
import pathlib
import re
import subprocess

LOADER = pathlib.Path("/lib64/ld-linux-x86-64.so.2")
START_S = 60  # limit of one program's start


def lacking_libraries(file, library_path):
    """The libraries that a program or library needs and the loader does not find, and versions that
    this machine's libraries do not have."""
    try:
        done = subprocess.run([LOADER, "--list", file], capture_output=True, text=True, timeout=START_S,
                              env=dict(os.environ, LD_LIBRARY_PATH=library_path))
    except (OSError, subprocess.TimeoutExpired) as e:
        return [f"the loader {LOADER} cannot read it: {e}"]
    said = done.stdout + done.stderr
    found = re.findall(r"^\s*(\S+) => not found", said, re.M)
    found += [f"{version} in {pathlib.Path(library).name}" for library, version in
              re.findall(r": (\S+): version [`'](\S+)' not found", said)]
    if not found and done.returncode != 0:
        found = re.findall(r"error while loading shared libraries: (\S+?):", said) or [said.strip()[-200:]]
    return list(dict.fromkeys(found))


def refuses_to_start(command):
    """Why the command does not start, or "". Its own exit status does not matter, if it has one."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, stdin=subprocess.DEVNULL)
    except OSError as e:
        return str(e)
    except subprocess.TimeoutExpired:
        return f"it has not ended after {START_S} s"
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}"
    if done.returncode != 0:
        return f"exit status {done.returncode}: {''.join(last)[:200]}"
    return ""


def problems(place, launchers, library_path, missing):
    """Sentences that name each missing library and each program that does not start."""
    said = []
    if missing:
        said.append(f"{', '.join(missing)} not found: not known to the loader, and in no folder of LD_LIBRARY_PATH, of a toolkit "
                    "(/usr/local/cuda*, /opt/cuda*) or of PyTorch's packages (nvidia/*/lib)")
    lacks = {}  # the files that need it, by library
    for file in [*place.programs.values(), place.module, *([place.nvml] if place.nvml else [])]:
        if not file.is_file():
            said.append(f"{file} is not there")
            continue
        for name in lacking_libraries(file, library_path):
            if name not in missing:
                lacks.setdefault(name, []).append(file.name)
    for name, files in lacks.items():
        said.append(f"{name} is missing, which {', '.join(files[:4])}{' and others' if len(files) > 4 else ''} "
                    f"need{'s' if len(files) == 1 else ''}")
    if said:
        return said  # starting them would only repeat it
    for name in place.programs:
        version = {"trainyard": ["version"], "trainyardd": ["--version"]}.get(name)
        if name.endswith("_test"):
            version = ["--gtest_list_tests"]
        if version and (why := refuses_to_start([launchers / name, *version])):
            said.append(f"{name} does not start: {why}")
    return said
