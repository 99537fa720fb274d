"""Finds where programs, tests, data and libraries are: in a build folder of a checkout, or in an
unpacked archive."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import site
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]  # the root of the checkout or the archive
MANIFEST = "gpu_check.json"  # at the root of an archive
PROGRAMS = ("trainyard", "trainyard-local", "trainyardd", "trainyard-worker", "train_bench")
OPTIONAL_PROGRAMS = ("trainyard-tokenizer",)
TESTS = {"cuda_parity_test": "cuda", "cuda_device_test": "cuda", "train_test": "engine", "recipe_test": "engine",
         "sparse_lookup_test": "engine"}
EMULATED_MODULE, EMULATED_NVML = "libtrainyard_cuda_emulated.so", "libfake_nvml.so"
# Libraries that the module opens by name when needed, in addition to those that it links.
OPENED_LATER = ("libnvrtc.so", "libnccl.so.2")
OFFERS = "library_offers.jsonl"  # in OUT: which fused operations the libraries offered (src/runtime/cuda/offers.h)


class Refused(Exception):
    """The reason why a request cannot be carried out, as a sentence for the user."""


@dataclasses.dataclass
class Place:
    programs: dict  # path by name
    module: pathlib.Path
    libraries: list  # folders with our libraries that a bare Debian lacks
    emulated: bool  # an emulated GPU replaces the real one: few tests run, and nothing is timed
    nvml: pathlib.Path = None  # replaces NVML if the GPU is emulated
    commit: str = ""
    # architectures that the module has code for, such as "sm_90"
    architectures: list = dataclasses.field(default_factory=list)


def archive():
    """The place of the unpacked archive that contains this file, or None."""
    manifest = ROOT / MANIFEST
    if not manifest.exists():
        return None
    said = json.loads(manifest.read_text())
    programs = {p.name: p for folder in ("bin", "test_programs") for p in (ROOT / folder).iterdir()}
    return Place(programs, ROOT / "lib/trainyard/libtrainyard_cuda.so", [ROOT / "lib"], said["emulated"],
                 ROOT / "lib" / EMULATED_NVML if said["emulated"] else None, said["commit"], said["architectures"])


def architectures_of(build):
    """The architectures for which nvcc compiles a build's kernels: "sm_90", or "compute_120" for
    PTX."""
    rules = build / "build.ninja"
    lists = re.findall(r"--generate-code=\S*code=\[([^]]*)\]", rules.read_text() if rules.exists() else "")
    return sorted({name for names in lists for name in names.split(",")})


def built(build, emulated):
    """The place of a build folder in this checkout."""
    programs = {name: build / "bin" / name for name in PROGRAMS + OPTIONAL_PROGRAMS}
    programs.update({name: build / "tests" / folder / name for name, folder in TESTS.items()})
    module = "tests/cuda/" + EMULATED_MODULE if emulated else "lib/trainyard/libtrainyard_cuda.so"
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return Place({n: p for n, p in programs.items() if p.exists() or n not in OPTIONAL_PROGRAMS}, build / module, [],
                 emulated, build / "tests/server" / EMULATED_NVML if emulated else None, commit.stdout.strip(),
                 [] if emulated else architectures_of(build))


def missing_programs(place):
    """Describes the files that a step would not find, in one sentence; empty if all exist."""
    files = [*place.programs.values(), place.module, *([place.nvml] if place.nvml else [])]
    lacking = [str(f) for f in files if not f.is_file()]
    return f"not there: {', '.join(lacking)}" if lacking else ""


def needed(file):
    """The names of the CUDA libraries that a file links and that are found by name."""
    data = file.read_bytes()  # without readelf: names end in a zero byte in the string table
    return sorted({m.decode() for m in re.findall(rb"\0(lib(?:cublasLt|cublas|cudnn)\.so\.\d+)(?=\0)", data)})


def cuda_folders(module):
    """The folders with CUDA's libraries that the loader does not know, and the names of libraries
    that are missing."""
    wanted = needed(module)
    major = next((n.rsplit(".", 1)[1] for n in wanted if "cublas" in n), "")
    wanted += [name + "." + major if name.endswith(".so") else name for name in OPENED_LATER] if wanted else []
    known = subprocess.run("ldconfig -p 2>/dev/null || /sbin/ldconfig -p", shell=True, capture_output=True,
                           text=True).stdout
    candidates = [pathlib.Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    for top in ("/usr/local", "/opt"):
        candidates += sorted(pathlib.Path(top).glob("cuda*/lib64"), reverse=True)
        candidates += sorted(pathlib.Path(top).glob("cuda*/targets/*/lib"), reverse=True)
    for packages in dict.fromkeys([*site.getsitepackages(), site.getusersitepackages(), *sys.path]):
        candidates += sorted(pathlib.Path(packages).glob("nvidia/*/lib"))
    folders, missing = [], []
    for name in wanted:
        if f"\t{name} " in known:
            continue
        folder = next((c for c in candidates if (c / name).exists()), None)
        if folder is None:
            missing.append(name)
        elif folder not in folders:
            folders.append(folder)
    return folders, missing


@dataclasses.dataclass
class Launchers:
    folder: pathlib.Path  # scripts that start the programs with their libraries, module and golden data
    missing: list  # the names of CUDA's libraries that were found nowhere
    library_path: str  # the LD_LIBRARY_PATH of the scripts


def make_launchers(place, out):
    """The environment of this process is not changed, since PyTorch must not get our libraries."""
    cuda, missing = ([], []) if place.emulated else cuda_folders(place.module)
    library_path = [str(f) for f in [*cuda, *place.libraries]] + \
        [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    if place.nvml:
        (out / "nvml").mkdir(parents=True, exist_ok=True)
        link = out / "nvml/libnvidia-ml.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(place.nvml)
        library_path.insert(0, str(link.parent))
    env = {"LD_LIBRARY_PATH": ":".join(dict.fromkeys(library_path)), "TRAINYARD_CUDA_MODULE": place.module,
           "TRAINYARD_SOURCE_DIR": ROOT, "TRAINYARD_TEST_DEVICE": "gpu-0", "TRAINYARD_LIBRARY_OFFERS": out / OFFERS}
    if "trainyard-tokenizer" in place.programs:
        env["TRAINYARD_TOKENIZER_PROGRAM"] = place.programs["trainyard-tokenizer"]
    if place.emulated:
        env["TRAINYARD_NVML_SCRIPT"] = "devices=1,context=600"
    words = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in env.items())
    folder = out / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in place.programs.items():
        script = folder / name
        script.write_text(f"#!/bin/sh\n{words} exec {shlex.quote(str(program))} \"$@\"\n")
        script.chmod(0o755)
    return Launchers(folder, missing, env["LD_LIBRARY_PATH"])
