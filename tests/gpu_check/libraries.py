"""Which files of CUDA's libraries the programs have loaded, and which versions these are."""

import json
import os
import pathlib
import re
import subprocess
import sys

NAME = re.compile(r"lib(cuda|cudart|cublas|cublasLt|cudnn\w*|nccl|nvrtc[\w.-]*|nvJitLink|nvidia-ml|trainyard_cuda\w*|fake_nvml)\.so[\d.]*$")

# Reads {name: path} and prints {name: version}. Runs in a process of its own, since a library may crash.
VERSIONS = """
import ctypes, json, sys
def number(n):
    return f"{n // 10000}.{n // 100 % 100}.{n % 100}"
found = {}
for name, path in json.load(sys.stdin).items():
    try:
        library, value, second = ctypes.CDLL(path), ctypes.c_int(0), ctypes.c_int(0)
        if name.startswith("libcublasLt."):
            library.cublasLtGetVersion.restype = ctypes.c_size_t
            found[name] = number(library.cublasLtGetVersion())
        elif name.startswith("libcudnn."):
            library.cudnnGetVersion.restype = ctypes.c_size_t
            found[name] = number(library.cudnnGetVersion())
        elif name.startswith("libnccl.") and library.ncclGetVersion(ctypes.byref(value)) == 0:
            found[name] = number(value.value)
        elif name.startswith("libnvrtc.") and library.nvrtcVersion(ctypes.byref(value), ctypes.byref(second)) == 0:
            found[name] = f"{value.value}.{second.value}"
        elif name.startswith("libcuda.") and library.cuDriverGetVersion(ctypes.byref(value)) == 0:
            found[name] = f"CUDA {value.value // 1000}.{value.value % 1000 // 10}"
    except (OSError, AttributeError) as e:
        found[name] = f"not readable: {e}"
print(json.dumps(found))
"""


def mapped(pid):
    """{name: path} of the libraries that a process has loaded; empty if it has ended."""
    try:
        lines = (pathlib.Path("/proc") / str(pid) / "maps").read_text().splitlines()
    except OSError:
        return {}
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return {pathlib.Path(path).name: path for path in paths if NAME.search(path)}


def versions(paths, library_path):
    """{name: version} of libraries that state one; never fails."""
    try:
        done = subprocess.run([sys.executable, "-c", VERSIONS], input=json.dumps(paths), capture_output=True, text=True, timeout=30,
                              env=dict(os.environ, LD_LIBRARY_PATH=library_path))
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}


def describe(paths, library_path):
    """{name: {path, version}} for the report. A library's file often has its version in its name."""
    known = versions(paths, library_path)
    found = {}
    for name, path in sorted(paths.items()):
        real = os.path.realpath(path)
        in_name = re.search(r"\.so\.(\d+(?:\.\d+)+)$", real)
        found[name] = {"path": path if real == path else f"{path} -> {real}",
                       "version": known.get(name) or (in_name[1] if in_name else "")}
    return found
