"""Creates the archive for a machine that cannot build: programs, tests, data and Debian's
libraries."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from gpu_check import data
from gpu_check.place import EMULATED_NVML, MANIFEST, OPTIONAL_PROGRAMS, PROGRAMS, ROOT, TESTS, Refused, built

BYTES_MAX = 50_000_000
# Libraries that every host has in versions that match its kernel, compiler and driver, and that
# must not be replaced.
HOSTS_OWN = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libstdc\+\+|libgcc_s)\.so"
                       r"|lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvidia)")
FOLDERS = ("examples", "tests/gpu_check", "tests/golden")
FILES = ("scripts/gpu_check", "tests/e2e/harness.py", "tests/bench/compare_gpu.py", "tests/bench/bench_process.py",
         "tests/bench/peer_models.py")
# Omitted: its 31 MB are ICU's tables. libarchive links libxml2, which links ICU, but nothing here
# calls either.
ICU_DATA = re.compile(r"libicudata\.so\.(\d+)")


def run(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, text=True, **more)


def has_target(build, name):
    return re.search(rf"^{re.escape(name)}: ", run("ninja", "-C", build, "-t", "targets", "all",
                                                   capture_output=True).stdout, re.MULTILINE) is not None


def compile_programs(build, emulated):
    if build == ROOT / "build/release":
        run("cmake", "--preset", "release", "-DTRAINYARD_CUDA=ON", cwd=ROOT)
    elif not (build / "build.ninja").exists():
        raise Refused(f"{build} is no build folder of Ninja's, expected one, or none for build/release")
    targets = [*PROGRAMS, *(n for n in OPTIONAL_PROGRAMS if has_target(build, n)), *TESTS]
    targets += ["trainyard_cuda_emulated", "fake_nvml"] if emulated else ["trainyard_cuda"]
    run("cmake", "--build", build, "--target", *targets)


def libraries_of(files, left_out=HOSTS_OWN):
    """The libraries that `ldd` finds for the files, path by name, without those matched by
    `left_out`, by default the host's own."""
    found = {}
    for file in files:
        for line in run("ldd", file, capture_output=True).stdout.splitlines():
            name, _, path = line.strip().partition(" => ")
            if not path or left_out.match(name):
                continue
            if path.startswith("not found"):
                raise Refused(f"{file} needs {name}, which is not on this machine")
            found[name] = pathlib.Path(path.split()[0])
    return found


def make_icu_stand_in(name, major, folder):
    source = f"const char icudt{major}_dat[16];"
    run("cc", "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{name}", "-o", folder / name, input=source)


def copy_binary(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
    target.chmod(0o755)
    run("strip", "--strip-unneeded", target)


def fill(folder, build, source_data, emulated):
    place = built(build, emulated)
    for name, program in place.programs.items():
        copy_binary(program, folder / ("test_programs" if name in TESTS else "bin") / name)
    copy_binary(place.module, folder / "lib/trainyard/libtrainyard_cuda.so")
    if emulated:
        copy_binary(place.nvml, folder / "lib" / EMULATED_NVML)
    binaries = [*place.programs.values(), place.module]
    for name, path in sorted(libraries_of(binaries).items()):
        icu = ICU_DATA.match(name)
        if icu:
            make_icu_stand_in(name, icu[1], folder / "lib")
        else:
            copy_binary(path.resolve(), folder / "lib" / name)
    skip = shutil.ignore_patterns("__pycache__", "onnx_*", "make_*")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    (folder / "gpu_check").symlink_to("scripts/gpu_check")
    data.cut(source_data, folder / "data")
    manifest = {"commit": place.commit, "emulated": emulated, "architectures": place.architectures}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return place


def compress(folder, file, preset=6):
    # Programs share most of their code; a dictionary that spans several of them finds the
    # repetitions.
    run("tar", "-C", folder.parent, "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-cf", file, "-I",
        f"xz --lzma2=preset={preset},dict=128MiB", folder.name)
    return os.path.getsize(file)


def pack(file, build, source_data, emulated):
    """Writes the archive and prints its content."""
    if not file.parent.is_dir():
        raise Refused(f"--pack: {file.parent} is not there, expected a file in a folder that is")
    if not source_data:
        source_data = ROOT.parent / "shared/data"
    if (lacking := data.missing(source_data)):
        raise Refused(lacking)
    compile_programs(build, emulated)
    with tempfile.TemporaryDirectory(prefix="trainyard-pack-") as scratch:
        folder = pathlib.Path(scratch) / "trainyard_gpu_check"
        folder.mkdir()
        place = fill(folder, build, source_data, emulated)
        size = compress(folder, file)
        whole = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    print(f"{file}: {size / 1e6:.1f} MB packed, {whole / 1e6:.0f} MB unpacked"
          + (", with an emulated GPU" if emulated else ", for " + ", ".join(place.architectures)))
    if size > BYTES_MAX:
        raise Refused(f"{file} has {size / 1e6:.1f} MB, expected at most {BYTES_MAX / 1e6:.0f}")
