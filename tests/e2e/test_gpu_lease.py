"""Tests of scripts/gpu_check on a machine that is lent for some minutes, with fake programs: results
come back in one archive whatever happens, what is missing ends the run at once with its name, and
the report says what was seen of the GPU and the libraries."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from gpu_check import bundle, gpu_state, libraries, library_logs, output, place, preflight, report  # noqa: E402
from gpu_check.run import Run  # noqa: E402
from gpu_check.runner import Results, Stage, Step, run_stages  # noqa: E402
from harness import is_running, wait_until  # noqa: E402

GPU_CHECK = place.ROOT / "scripts/gpu_check"

# Answers from files in its own folder: `gpus` (a line per call is consumed, the last one stays) and `processes`.
FAKE_NVIDIA_SMI = """#!/bin/bash
cd "$(dirname "$0")"
case "$1" in
  --query-gpu=index,*) head -1 gpus; if (($(wc -l <gpus) > 1)); then sed -i 1d gpus; fi ;;
  --query-compute-apps=*) cat processes ;;
  *) echo "unknown option $1" >&2; exit 9 ;;
esac
"""


def gpu_row(**changed):
    usual = dict(zip(gpu_state.FIELDS, ("0", "NVIDIA H100", "580.95.05", "P0", "1980", "1980", "2619", "120.5", "700.00", "40",
                                        "0x0000000000000000", "Enabled", "5", "0", "Default", "Disabled", "600", "3")))
    return ", ".join({**usual, **{name.replace("__", "."): value for name, value in changed.items()}}.values())


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="trainyard-gpu-lease-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.out = self.folder / "out"
        self.out.mkdir()

    def fake_smi(self, *gpus, processes=""):
        smi = self.folder / "smi"
        smi.mkdir()
        (smi / "gpus").write_text("".join(row + "\n" for row in gpus))
        (smi / "processes").write_text(processes)
        (smi / "nvidia-smi").write_text(FAKE_NVIDIA_SMI)
        (smi / "nvidia-smi").chmod(0o755)
        patched = mock.patch.dict(os.environ, PATH=f"{smi}:{os.environ['PATH']}")
        patched.start()
        self.addCleanup(patched.stop)

    def compile(self, name, source, *arguments):
        path = self.folder / name
        subprocess.run(["cc", "-x", "c", "-", "-x", "none", "-o", path, *arguments], input=source, text=True, check=True)
        return path

    def read_archive(self, archive):
        with tarfile.open(archive) as tar:
            return {pathlib.PurePosixPath(m.name).relative_to("gpu_check_results").as_posix(): tar.extractfile(m).read().decode()
                    for m in tar.getmembers()}


class Archive(Scratch):
    def run_in(self, stages, until=float("inf")):
        results = Results(self.out, {"commit": "fake"}, "".join(s.letter for s in stages))
        with Run(self.out, results, place.Launchers(self.out / "bin", [], ""), self.folder / "results.tar.gz") as watch:
            right = run_stages(stages, results, until, watch)
        return right, self.read_archive(self.folder / "results.tar.gz")

    def test_what_hangs_is_cut_at_the_limit_and_the_archive_has_the_others(self):
        hangs = Step("hangs", ["bash", "-c", "echo begun; exec sleep 1000"], 900)
        right, files = self.run_in([Stage("a", "fakes", 900, [[Step("good", ["echo", "found 7"], 9)], [hangs],
                                                             [Step("late", ["true"], 9)]])], time.monotonic() + 3)
        self.assertFalse(right)
        self.assertEqual(files["a_good.log"], "found 7\n")
        self.assertEqual(files["a_hangs.log"], "begun\n")
        states = {s["step"]: s["state"] for s in json.loads(files["results.json"])["steps"]}
        self.assertEqual(states, {"good": "ok", "hangs": "cut short", "late": "not begun"})
        self.assertEqual(files["results.md"].splitlines()[0], "Nothing was found broken, but not all was seen: 1 step passed; "
                         "2 steps did not finish: hangs, late.")

    def test_the_archive_is_there_though_the_call_is_killed(self):
        pid = self.folder / "pid"
        script = f"""
import pathlib, sys
sys.path.insert(0, {str(TESTS)!r})
from gpu_check.place import Launchers
from gpu_check.run import Run
from gpu_check.runner import Results, Stage, Step, run_stages
out = pathlib.Path({str(self.out)!r})
results = Results(out, {{}}, "a")
steps = [[Step("first", ["echo", "one"], 9)], [Step("second", ["bash", "-c", "echo $$ >{pid}; exec sleep 1000"], 999)]]
with Run(out, results, Launchers(out / "bin", [], ""), pathlib.Path({str(self.folder / 'results.tar.gz')!r})) as watch:
    run_stages([Stage("a", "fakes", 999, steps)], results, watch=watch)
"""
        for number, first_words in ((signal.SIGKILL, "but not all was seen: 1 step passed; the run had not ended"),
                                    (signal.SIGTERM, "but not all was seen: 1 step passed; the run was interrupted by SIGTERM")):
            whole = subprocess.Popen([sys.executable, "-B", "-c", script], stdout=subprocess.DEVNULL)
            wait_until(lambda: pid.exists() and pid.read_text(), "the second step")
            whole.send_signal(number)
            whole.wait(60)
            if is_running(int(pid.read_text())):  # nobody was left to end it
                os.kill(int(pid.read_text()), signal.SIGKILL)
            pid.unlink()
            files = self.read_archive(self.folder / "results.tar.gz")
            self.assertEqual(files["a_first.log"], "one\n")
            self.assertIn(first_words, files["results.md"].splitlines()[0])

    def test_the_archive_is_small_whatever_the_steps_print(self):
        (self.out / "a_long.log").write_bytes(b"begin" + os.urandom(6 << 20) + b"end")
        (self.out / "a_short.log").write_bytes(b"all of it")
        (self.out / "bin").mkdir()
        (self.out / "bin/trainyard").write_text("no result")
        archive = self.out / "results.tar.gz"
        for most in (bundle.BYTES_MAX, 300_000):
            with mock.patch.object(bundle, "BYTES_MAX", most):
                bundle.write(self.out, archive)
            self.assertLess(archive.stat().st_size, most)
            with tarfile.open(archive) as tar:
                names = [m.name for m in tar.getmembers()]
                self.assertEqual(names, ["gpu_check_results/a_long.log", "gpu_check_results/a_short.log"])
                long, short = (tar.extractfile(name).read() for name in names)
            self.assertTrue(long.startswith(b"begin") and long.endswith(b"end") and b"bytes are left out here" in long)
            self.assertEqual(short, b"all of it")

    def test_one_failing_case_runs_again_with_the_libraries_logs(self):
        fails = "echo wrong; [ -z $CUBLASLT_LOG_FILE ] || echo '[Error][cublasLtMatmul] misaligned by 192' >$CUBLASLT_LOG_FILE; exit 1"
        again = ["bash", "-c", "echo again >>" + str(self.folder / "runs") + "; " + fails]
        steps = [Step(name, ["bash", "-c", fails], 9, failing_case=lambda text: (text.strip(), again, {})) for name in ("one", "two")]
        _, files = self.run_in([Stage("a", "fakes", 60, [[step] for step in steps])])
        self.assertEqual((self.folder / "runs").read_text(), "again\n", "only the first failing case")
        self.assertIn("library_logs/cublaslt_%i.log", files)
        self.assertIn("- wrong: it failed again, exit status 1; library_logs/ has its output and logs\n"
                      "- cublaslt_%i.log: [Error][cublasLtMatmul] misaligned by 192\n", files["results.md"])

    def test_one_gpu_cannot_show_how_nccl_aborts(self):
        self.fake_smi(gpu_row())
        _, files = self.run_in([Stage("a", "fakes", 60, [[Step("good", ["true"], 9)]])])
        self.assertIn("two processes that share a GPU cannot join in NCCL", files["results.md"])
        self.assertIn("aborting its communicator was not tested", files["results.md"])


class WhatIsMissing(Scratch):
    def archive_with(self, **programs):
        """An unpacked archive whose programs are compiled from `programs`, arguments of cc by name."""
        root = self.folder / "archive"
        for folder in ("scripts", "tests", "bin", "test_programs", "lib/trainyard"):
            (root / folder).mkdir(parents=True)
        shutil.copytree(TESTS / "gpu_check", root / "tests/gpu_check")
        shutil.copy(GPU_CHECK, root / "scripts")
        (root / place.MANIFEST).write_text('{"commit": "c", "emulated": true, "architectures": []}')
        self.compile("module.so", "int entry;", "-shared")
        for name in ("lib/trainyard/libtrainyard_cuda.so", "lib/" + place.EMULATED_NVML):
            shutil.copy(self.folder / "module.so", root / name)
        for name, arguments in programs.items():
            source = "int main(void) { return 0; }"
            shutil.copy(self.compile(name, source, *arguments), root / "bin" / name)
        return root

    def run_archive(self, root):
        done = subprocess.run([sys.executable, "-B", root / "scripts/gpu_check", "--stage", "a", "--bundle",
                               self.folder / "results.tar.gz"], capture_output=True, text=True)
        return done, self.read_archive(self.folder / "results.tar.gz")

    def test_a_missing_library_ends_the_run_at_once_with_its_name(self):
        self.compile("libabsent.so.7", "int entry;", "-shared", "-Wl,-soname,libabsent.so.7")
        linked = ["-Wl,--no-as-needed", str(self.folder / "libabsent.so.7")]
        root = self.archive_with(trainyard=linked, trainyardd=[])
        done, files = self.run_archive(root)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(files["results.md"].splitlines()[0], "BROKEN on an emulated GPU, and nothing more was run: libabsent.so.7 "
                         "is missing, which trainyard needs.")
        self.assertEqual(json.loads(files["results.json"])["steps"], [])
        self.assertIn("libabsent.so.7 is missing", done.stdout)

    def test_a_program_that_does_not_start_ends_the_run_at_once(self):
        root = self.archive_with(trainyard=[], trainyardd=[])
        (root / "bin/trainyardd").unlink()
        shutil.copy(self.compile("crashes", "int main(void) { __builtin_trap(); }"), root / "bin/trainyardd")
        done, files = self.run_archive(root)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(files["results.md"].splitlines()[0], r"nothing more was run: trainyardd does not start: ended by signal \d+\.$")

    def test_cudas_libraries_are_named_with_the_places_where_they_were_sought(self):
        none = place.Place({}, self.compile("module.so", "int entry;", "-shared"), [], False)
        (said,) = preflight.problems(none, self.out, "", ["libcudnn.so.9", "libnvrtc.so.13"])
        self.assertRegex(said, r"^libcudnn\.so\.9, libnvrtc\.so\.13 not found: .*LD_LIBRARY_PATH.*PyTorch's packages")

    def test_a_version_that_the_hosts_library_lacks_is_named(self):
        def make_library(version):
            script = self.folder / "versions"
            script.write_text(version + " { global: call; };")
            self.compile("libours.so.1", "int call(void) { return 1; }", "-shared", "-fPIC", "-Wl,-soname,libours.so.1",
                         f"-Wl,--version-script={script}")

        make_library("NOVEL_2")
        program = self.compile("program", "int call(void); int main(void) { return call(); }", str(self.folder / "libours.so.1"))
        self.assertEqual(preflight.lacking_libraries(program, str(self.folder)), [])
        make_library("OLD_1")
        self.assertEqual(preflight.lacking_libraries(program, str(self.folder)), ["NOVEL_2 in libours.so.1"])


class TheGpu(Scratch):
    def watch(self, others=""):
        state = gpu_state.GpuState(self.out / "gpu_state.csv", lambda: [os.getpid()], interval_s=0.05)
        state.start()
        wait_until(lambda: len(state.during) >= 2, "two samples")
        return state.stop()["said"]

    def test_clocks_power_throttling_and_ecc_are_reported(self):
        self.fake_smi(gpu_row(), gpu_row(clocks__sm="1200", power__draw="698.00", clocks_event_reasons__active="0x0000000000000044"),
                      gpu_row(temperature__gpu="81", ecc__errors__corrected__volatile__total="7",
                              ecc__errors__uncorrected__volatile__total="1"))
        gpu, processes = self.watch()
        self.assertEqual(gpu, "GPU 0 (NVIDIA H100, driver 580.95.05): SM clock 1200 to 1980 MHz of 1980, power 120 to 698 W of 700.00, "
                         "40 to 81 degrees C; throttled by hardware thermal slowdown, power limit; ECC Enabled: 2 corrected during the "
                         "run, 7 in all; 1 uncorrected during the run, 1 in all; compute mode Default, MIG Disabled")
        self.assertIn("no other process used a GPU", processes)
        rows = (self.out / "gpu_state.csv").read_text().splitlines()
        self.assertEqual(rows[0].split(",")[:3], ["seconds", "index", "name"])
        self.assertGreaterEqual(len(rows), 3)

    def test_other_processes_are_named(self):
        self.fake_smi(gpu_row(), processes=f"{os.getpid()}, ours, 100\n4711, /usr/bin/miner, 9000\n")
        said = " ".join(self.watch())
        self.assertIn("before the run: ours (PID", said)
        self.assertIn("/usr/bin/miner (PID 4711)", said)

    def test_an_nvidia_smi_that_hangs_is_noted_and_not_waited_for(self):
        self.fake_smi(gpu_row())
        (self.folder / "smi/nvidia-smi").write_text("#!/bin/sh\nexec sleep 1000\n")
        with mock.patch.object(gpu_state, "ANSWER_S", 0.3):
            state = gpu_state.GpuState(self.out / "gpu_state.csv", list, interval_s=0.05)
            state.start()
            wait_until(lambda: state.errors, "a failed query")
            said = state.stop()["said"]
        self.assertIn("before: nvidia-smi did not answer within 0.3 s", said)


class TheLibraries(Scratch):
    def test_loaded_libraries_are_reported_with_path_and_version(self):
        self.compile("libcudnn.so.9", "unsigned long cudnnGetVersion(void) { return 91900; }", "-shared", "-fPIC")
        self.compile("libcublasLt.so.13.1.0.3", "int entry;", "-shared")
        (self.folder / "libcublasLt.so.13").symlink_to("libcublasLt.so.13.1.0.3")
        loads = subprocess.Popen([sys.executable, "-c", "import ctypes, sys; [ctypes.CDLL(p) for p in sys.argv[1:]]; print('', flush=True); "
                                  "sys.stdin.read()", self.folder / "libcudnn.so.9", self.folder / "libcublasLt.so.13"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(loads.wait)
        self.addCleanup(loads.stdin.close)
        self.addCleanup(loads.stdout.close)
        loads.stdout.readline()
        found = libraries.describe(libraries.mapped(loads.pid), "")
        self.assertEqual(found["libcudnn.so.9"], {"path": str(self.folder / "libcudnn.so.9"), "version": "9.19.0"})
        # The maps have the name of the file behind the link.
        (name,) = [name for name in found if "cublasLt" in name]
        self.assertEqual(report.library_lines(found)[0].partition(": ")[0], name)
        self.assertIn("libcublasLt.so.13.1.0.3", found[name]["path"])

    def test_what_the_libraries_offered_is_summed_up(self):
        rows = [{"library": "cuBLASLt", "operation": "product, relu", "formats": "bf16 to bf16", "problem": p, "offer": o}
                for p, o in (("1", "loses NaN"), ("1", "offered"), ("2", "none"), ("3", "offered"), ("3", "offered"))]
        (self.out / "offers").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.assertEqual(output.of_offers(self.out / "offers"),
                         ["cuBLASLt: product, relu, bf16 to bf16: used for 2 of 3 problems; for 1 an algorithm lost NaN"])
        self.assertEqual(output.of_offers(self.out / "absent"), [])

    def test_the_engines_of_a_failing_case_are_listed(self):
        text = """[ RUN      ] Cuda.EveryCaseOfTheTable
/somewhere/tests/cuda/parity.cc:48: Failure
h/grad[0] 1, expected 2; h/grad has the bytes from 512 to 1024 of the arena, the workspace those from 4096 to 8192
Google Test trace:
/somewhere/tests/cuda/parity.cc:104: Gemm/one row-major reused

engines of the failing case:
  matmul sizes=1,2,3: cublaslt 6472
  conv sizes=4: cudnn engine=4
[  FAILED  ] Cuda.EveryCaseOfTheTable (3 ms)
"""
        failure, engines = output.of_gtest(text)
        self.assertIn("the bytes from 512 to 1024 of the arena", failure)
        self.assertEqual(engines, "engines of the failing case: matmul sizes=1,2,3: cublaslt 6472; conv sizes=4: cudnn engine=4")

    def test_the_first_failing_case_is_found_in_the_output(self):
        text = """[ RUN      ] Cuda.EveryCaseOfTheTableInBf16
/somewhere/tests/cuda/parity.cc:48: Failure
Expected: (std::abs(got[i] - values[i])) <= (relative_max * scale)
Google Test trace:
/somewhere/tests/cuda/parity.cc:104: BatchNormalization/fours row-major reused

/somewhere/tests/cuda/parity.cc:109: Failure
Google Test trace:
/somewhere/tests/cuda/parity.cc:104: Gemm/one channels-last kept
"""
        command = ["bin/cuda_parity_test", "--gtest_filter=Cuda.Every*"]
        self.assertEqual(library_logs.gtest_case(command, {"A": "b", "TRAINYARD_CANDIDATE_PART": "1/3"}, text),
                         ("Cuda.EveryCaseOfTheTableInBf16, BatchNormalization/fours",
                          ["bin/cuda_parity_test", "--gtest_filter=Cuda.EveryCaseOfTheTableInBf16"],
                          {"A": "b", "TRAINYARD_CASE": "BatchNormalization/fours"}))
        self.assertIsNone(library_logs.gtest_case(command, {}, "[ RUN      ] Cuda.One\nkilled\n"))


class FirstSentence(unittest.TestCase):
    def sentence(self, *states, **content):
        steps = [{"stage": "a", "step": f"s{i}", "state": state, "limit_s": 1, "findings": ["exit status 1", "y[3] is NaN"]}
                 for i, state in enumerate(states)]
        return report.first_sentence({"ended": True, **content}, steps)

    def test_it_says_what_is_broken_or_that_nothing_is(self):
        self.assertEqual(self.sentence("ok", "ok", "skipped"), "Nothing is broken: 2 steps passed; 1 step skipped.")
        self.assertEqual(self.sentence("ok", "failed"), "BROKEN: a/s1 (y[3] is NaN); 1 step passed.")
        self.assertEqual(self.sentence("ok", "cut short"), "Nothing was found broken, but not all was seen: 1 step passed; 1 step did not finish: s1.")
        self.assertEqual(self.sentence("skipped"), "Nothing was shown: 0 steps passed; 1 step skipped.")
        self.assertEqual(self.sentence(hopeless="no GPU"), "BROKEN, and nothing more was run: no GPU.")
        self.assertIn("BROKEN on an emulated GPU: ", self.sentence("failed", emulated=True))
        self.assertIn(", and 3 more; 0 steps passed", self.sentence(*["failed"] * 9))


if __name__ == "__main__":
    unittest.main(verbosity=2)
