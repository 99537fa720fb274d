"""Tests of scripts/gpu_check without a GPU: how it runs steps, and how it reads their output. They
fail if the check hangs with its children, loses finished results, or reports a failure as
success."""

import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "bench")]
import compare_gpu  # noqa: E402
import peer_models  # noqa: E402
from gpu_check import data, output, pack, place, runner, stages  # noqa: E402
from harness import BIN, EXAMPLES, is_running, wait_until  # noqa: E402

# Prints, then waits for a process in a new session, like a test that starts a daemon.
HANGS = """echo begun; setsid sleep 1000 & echo $! >{pid}; trap '' TERM; while :; do sleep 1; done"""

PARITY = """[==========] Running 2 tests from 1 test suite.
[ RUN      ] Cuda.EveryCaseOfTheTable
[       OK ] Cuda.EveryCaseOfTheTable (3868 ms)
[ RUN      ] Cuda.EveryCaseOfTheTableInBf16
/somewhere/tests/cuda/parity.cc:48: Failure
Expected: (std::abs(got[i] - values[i])) <= (relative_max * scale), actual: 1.0e+18 vs 0.0126
h/grad.1[0] 1.0838897665685586e+18, expected -0.00035061314702033997
Google Test trace:
/somewhere/tests/cuda/parity.cc:104: BatchNormalization/fours row-major reused

/somewhere/tests/cuda/parity.cc:109: Failure
Failed
cublasLtMatmul: an unsupported value
Google Test trace:
/somewhere/tests/cuda/parity.cc:104: Gemm/one channels-last kept

[  FAILED  ] Cuda.EveryCaseOfTheTableInBf16 (11453 ms)
[ RUN      ] Cuda.RepeatsBitByBit
"""


class Runner(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="trainyard-gpu-check-")
        self.addCleanup(scratch.cleanup)
        self.out = pathlib.Path(scratch.name)

    def step(self, name, script, limit_s=30.0, **more):
        return runner.Step(name, ["bash", "-c", script], limit_s, **more)

    def run_stages(self, *made, **more):
        results = runner.Results(self.out, {"commit": "fake"}, "a")
        right = runner.run_stages(list(made), results, **more)
        written = json.loads((self.out / "results.json").read_text())
        return right, {s["step"]: s for s in written["steps"]}

    def stage(self, *batches, limit_s=60.0):
        return runner.Stage("a", "fakes", limit_s, list(batches))

    def test_a_step_that_fails_does_not_keep_others_from_running(self):
        right, steps = self.run_stages(self.stage(
            [self.step("bad", "echo expected 1, got 2; exit 3"), self.step("beside", "true")],
            [runner.Step("absent", ["/no/such/program"], 5), self.step("left_out", "true", skip="not there")],
            [self.step("good", "echo 'said=yes'", env={"A": "1"}, notes=lambda text: text.split())]))
        self.assertFalse(right)
        self.assertEqual({n: s["state"] for n, s in steps.items()},
                         {"bad": "failed", "beside": "ok", "absent": "failed", "left_out": "skipped", "good": "ok"})
        self.assertEqual(steps["bad"]["findings"], ["exit status 3", "expected 1, got 2"])
        self.assertEqual(steps["good"]["notes"], ["said=yes"])
        table = (self.out / "results.md").read_text()
        self.assertIn("| a | bad | **failed** |", table)
        self.assertIn("expected 1, got 2", table)
        self.assertEqual((self.out / "a_bad.log").read_text(), "expected 1, got 2\n")

    def test_all_right_is_right(self):
        self.assertTrue(self.run_stages(self.stage([self.step("one", "true")], [self.step("no", "", skip="none")]))[0])

    def test_a_step_that_hangs_is_ended_with_all_that_it_started(self):
        pid = self.out / "pid"
        right, steps = self.run_stages(self.stage([self.step("hangs", HANGS.format(pid=pid), 1), self.step("beside", "true")],
                                                  [self.step("next", "true")]))
        self.assertFalse(right)
        self.assertEqual({n: s["state"] for n, s in steps.items()},
                         {"hangs": "cut short", "beside": "ok", "next": "ok"})
        self.assertFalse(is_running(int(pid.read_text())))

    def test_what_has_no_time_left_is_not_begun_and_the_next_stage_is(self):
        right, steps = self.run_stages(
            self.stage([self.step("long", "sleep 1000", 500)], [self.step("late", "true")], limit_s=1.2),
            runner.Stage("b", "the next", 30, [[self.step("other", "true")]]))
        self.assertFalse(right)
        self.assertEqual({n: s["state"] for n, s in steps.items()},
                         {"long": "cut short", "late": "not begun", "other": "ok"})

    def test_steps_that_hang_together_share_the_time_to_end_by_themselves(self):
        calls, now = [], [100.0]

        class Deaf:
            def __init__(self, pid):
                self.pid = pid

            def terminate(self):
                calls.append("terminate")

            def wait(self, timeout=None):
                if timeout is not None:
                    calls.append("wait")
                    now[0] += timeout
                    raise subprocess.TimeoutExpired("deaf", timeout)

        with mock.patch.object(runner, "descendants", lambda pid: []), mock.patch.object(runner.os, "kill", lambda *_: calls.append("kill")), \
                mock.patch.object(runner.time, "monotonic", lambda: now[0]):
            runner.end_all([Deaf(1000001 + i) for i in range(4)])
        self.assertEqual(calls, ["terminate"] * 4 + ["wait"] * 4 + ["kill"] * 4)
        self.assertAlmostEqual(now[0] - 100, runner.GRACE_S)

    def test_the_time_of_the_whole_run_ends_every_stage(self):
        right, steps = self.run_stages(
            self.stage([self.step("first", "true")], [self.step("hangs", "sleep 1000")]),
            runner.Stage("b", "the next", 30, [[self.step("other", "true")]]), until=time.monotonic() + 2)
        self.assertFalse(right)
        self.assertEqual({n: s["state"] for n, s in steps.items()}, {"first": "ok", "hangs": "cut short", "other": "not begun"})
        self.assertEqual(steps["other"]["findings"], ["the time of the whole run was over"])

    def test_a_step_that_ends_by_itself_is_told_how_long_it_may_work(self):
        limited = self.step("limited", "echo $SECONDS_LEFT", 100, seconds_variable="SECONDS_LEFT", seconds_max=70)
        self.run_stages(self.stage([limited]), until=time.monotonic() + 41)
        self.assertAlmostEqual(float((self.out / "a_limited.log").read_text()), 30, delta=1)
        self.run_stages(self.stage([limited], limit_s=1000))
        self.assertEqual((self.out / "a_limited.log").read_text(), "70\n")

    def test_nothing_more_runs_if_no_gpu_can_be_used(self):
        said = "trainyard: no NVIDIA driver is loaded on this machine (error 35) [CUDA_UNAVAILABLE]"
        right, steps = self.run_stages(
            self.stage([self.step("check", f"echo '{said}'; exit 1", is_hopeless=output.why_no_gpu)], [self.step("next", "true")]),
            runner.Stage("b", "the next", 30, [[self.step("other", "true")]]))
        self.assertFalse(right)
        self.assertEqual(list(steps), ["check"])
        self.assertEqual((self.out / "results.md").read_text().splitlines()[0],
                         f"BROKEN, and nothing more was run: {said}.")

    def test_a_check_that_fails_for_another_reason_is_not_hopeless(self):
        _, steps = self.run_stages(self.stage(
            [self.step("check", "echo 'wrong weights [DEVICE_CHECK_FAILED]'; exit 1", is_hopeless=output.why_no_gpu)],
            [self.step("next", "true")]))
        self.assertEqual(steps["next"]["state"], "ok")

    def test_only_steps_that_may_skip_themselves_do(self):
        right, steps = self.run_stages(self.stage([self.step("may", "exit 77", may_skip_itself=True)]))
        self.assertEqual((right, steps["may"]["state"]), (True, "skipped"))
        right, steps = self.run_stages(self.stage([self.step("may_not", "exit 77")]))
        self.assertEqual((right, steps["may_not"]["state"]), (False, "failed"))

    def test_what_ended_is_written_though_the_whole_is_killed(self):
        pid = self.out / "pid"
        script = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
from gpu_check.runner import *
import pathlib
steps = [[Step("first", ["true"], 9)], [Step("second", ["bash", "-c", "echo $$ >{pid}; exec sleep 1000"], 999)], [Step("third", ["true"], 9)]]
sys.exit(not run_stages([Stage("a", "fakes", 999, steps)], Results(pathlib.Path({str(self.out)!r}), {{}}, "a")))
"""
        for number, second in ((signal.SIGKILL, "running"), (signal.SIGTERM, "cut short")):
            whole = subprocess.Popen([sys.executable, "-B", "-c", script], stdout=subprocess.DEVNULL)
            written = self.out / "results.json"
            wait_until(lambda: pid.exists() and pid.read_text(), "the second step")
            whole.send_signal(number)
            self.assertNotEqual(whole.wait(20), 0)
            said = json.loads(written.read_text())
            self.assertEqual([(s["step"], s["state"]) for s in said["steps"]], [("first", "ok"), ("second", second)])
            if is_running(int(pid.read_text())):  # no step was left to end it
                os.kill(int(pid.read_text()), signal.SIGKILL)
            pid.unlink()
        self.assertEqual(said["interrupted"], "SIGTERM")


    def test_stages_run_one_by_one_are_one_table(self):
        def run(letter, commit, script):
            results = runner.Results(self.out, {"commit": commit}, letter)
            right = runner.run_stages([runner.Stage(letter, "fakes", 60.0, [[self.step(f"step_{letter}", script)]])], results)
            written = json.loads((self.out / "results.json").read_text())
            return right, {s["step"]: s["state"] for s in written["steps"]}
        self.assertEqual(run("b", "one", "false"), (False, {"step_b": "failed"}))
        # The exit status is that of the steps that ran this time.
        self.assertEqual(run("a", "one", "true"), (True, {"step_a": "ok", "step_b": "failed"}))
        table = (self.out / "results.md").read_text()
        self.assertLess(table.index("| a | step_a | ok |"), table.index("| b | step_b | **failed** |"))
        self.assertEqual(run("b", "one", "true"), (True, {"step_a": "ok", "step_b": "ok"}))
        self.assertEqual(run("a", "another", "true"), (True, {"step_a": "ok"}))
        (self.out / "results.json").write_text("{")
        self.assertEqual(run("b", "another", "true"), (True, {"step_b": "ok"}))


class Output(unittest.TestCase):
    def test_every_failing_case_of_parity_is_listed(self):
        found = output.of_gtest(PARITY)
        self.assertEqual(len(found), 3, found)
        self.assertIn("InBf16: BatchNormalization/fours row-major reused: ", found[0])
        self.assertIn("h/grad.1[0] 1.0838897665685586e+18", found[0])
        self.assertIn("Gemm/one channels-last kept: Failed; cublasLtMatmul", found[1])
        self.assertEqual(found[2], "Cuda.RepeatsBitByBit had not ended")
        self.assertEqual(output.of_gtest(PARITY.split("[ RUN      ] Cuda.EveryCaseOfTheTableInBf16")[0]), [])

    def test_a_filter_that_no_test_matches_is_told(self):
        nothing = "[==========] Running 0 tests from 0 test suites.\n[==========] 0 tests from 0 test suites ran. (0 ms total)\n"
        self.assertIn("nothing was checked", output.of_gtest_notes(nothing)[0])
        skips = "tests/cuda/parity_test.cc:23: Skipped\nno GPU: libcublasLt.so.13 is missing\n\n[  SKIPPED ] Cuda.Two (3 ms)\n"
        self.assertEqual(output.of_gtest_notes(skips), ["skipped: Cuda.Two: no GPU: libcublasLt.so.13 is missing"])
        self.assertEqual(output.of_gtest(skips + "[  PASSED  ] 0 tests.\n[  SKIPPED ] 1 test, listed below:\n"),
                         ["no test ran: each was skipped"])

    def test_what_a_test_had_no_time_for_is_told(self):
        line = "left out: 3 cases, from Gemm/one row-major on; the time was over behind 40 candidates"
        self.assertEqual(output.of_gtest_notes(f"[ RUN      ] CudaCandidates.OfTheTable\n{line}\n"), [line])

    def test_failures_of_unittest(self):
        script = """import unittest
class T(unittest.TestCase):
    def test_1_good(self): pass
    def test_2_bad(self): self.assertEqual(1, 2, 'weights differ')
unittest.main(verbosity=2)"""
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stderr
        (failure,) = output.of_unittest(said)
        self.assertIn("test_2_bad", failure)
        self.assertIn("1 != 2 : weights differ", failure)
        cut = said.split("=" * 70)[0] + "\ntest_3_slow (__main__.T.test_3_slow) ... "
        self.assertEqual(output.of_unittest(cut), ["test_2_bad: FAIL, see the output", "test_3_slow had not ended"])


def family(name):
    """Returns the family of a preset or benchmark model, whose name may include a size: resnet50:224, gpt2_mini,
    vit_base."""
    return re.sub(r"^(?:(vgg|resnet)\d+|(vit|gpt2|mlp)_\w+)$", lambda m: m[1] or m[2], name.partition(":")[0])


def is_run_by(name, command):
    """Returns whether this GoogleTest command line runs the test `name`."""
    chosen = next((str(word).split("=", 1)[1] for word in command if str(word).startswith("--gtest_filter=")), "*")
    wanted, _, unwanted = chosen.partition("-")
    return any(fnmatch.fnmatchcase(name, p) for p in (wanted or "*").split(":")) and \
        not any(fnmatch.fnmatchcase(name, p) for p in unwanted.split(":"))


class EverythingIsInAStage(unittest.TestCase):
    """Fails if a preset has no benchmark, or if no stage runs a test for a GPU."""

    def test_every_family_of_presets_is_profiled_and_compared(self):
        with tempfile.TemporaryDirectory() as folder:
            spec = pathlib.Path(folder) / "spec.yaml"
            spec.write_text(f"name: none\ndataset: {{name: d, path: {EXAMPLES / 'digits.csv.gz'}}}\n"
                            "model:\n  no_such_preset: {}\nrecipe: {steps: 1}\n")
            refused = subprocess.run([BIN / "trainyard", "local", "run", spec], capture_output=True, text=True)
        said = re.search(r"model.no_such_preset: unknown field, expected (.*), layers, ", refused.stderr)
        self.assertIsNotNone(said, refused.stderr)
        presets = {family(name) for name in said[1].split(", ")}
        self.assertLessEqual({"mlp", "vgg", "resnet", "vit", "gpt2", "autoencoder"}, presets)
        rows = [row.rsplit(":", 2)[0] for row in compare_gpu.ROWS.split(",")]
        peers = presets - {"decoder"}  # tests/bench/finetune_peer.py compares decoders with transformers
        for what, names, expected in (("profiles (d)", [row.rsplit(":", 1)[0] for row in stages.PROFILED], presets),
                                      ("beside PyTorch on a GPU (e)", rows, peers),
                                      ("beside PyTorch on a CPU", peer_models.MODELS, peers)):
            self.assertEqual({family(name) for name in names}, expected, what)

    def test_every_test_for_a_gpu_is_in_a_stage(self):
        lists = (TESTS / "cuda/CMakeLists.txt").read_text()
        programs = re.findall(r"trainyard_test\((\w+) LABEL gpu\b", lists)
        self.assertEqual(set(programs), {name for name, folder in place.TESTS.items() if folder == "cuda"})
        steps = [step for batch in stages.check_and_parity(pathlib.Path("bin"), emulated=False) for step in batch]
        for program in programs:
            path = BIN.parent / "tests/cuda" / program
            if not path.exists():
                self.skipTest(f"{path} is not there: a build without CUDA")
            listed = subprocess.run([path, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
            suite, names = "", []
            for line in listed.splitlines():
                if line.startswith("  "):
                    names.append(suite + line.split()[0])
                elif line.rstrip().endswith("."):
                    suite = line.strip()
            self.assertGreater(len(names), 2, listed)
            for name in names:
                running = [step for step in steps
                           if step.command[0] == pathlib.Path("bin") / program and is_run_by(name, step.command)]
                # Some tests run again in other environments. The parts of a split test must be
                # complete.
                parts = [step.env["TRAINYARD_CANDIDATE_PART"] for step in running if "TRAINYARD_CANDIDATE_PART" in step.env]
                whole = [f"{i + 1}/{len(parts)}" for i in range(len(parts))]
                self.assertTrue(running and parts == whole and len(parts) in (0, len(running)), f"{program}: {name} is in {[s.name for s in running]}")

    def test_every_test_of_whole_jobs_is_in_a_stage(self):
        lists = (TESTS / "engine/CMakeLists.txt").read_text()
        of_programs = {m[1]: m[0] for m in re.findall(r"trainyard_test\(((\w+)[^)]*)\)", lists)}
        run = " ".join(of_programs[name] for name, folder in place.TESTS.items() if folder == "engine")
        users = [f.name for f in (TESTS / "engine").glob("*_test.cc") if "make_tested_backend" in f.read_text()]
        self.assertGreater(len(users), 5)
        self.assertEqual([name for name in users if name not in run.split()], [])

    def test_stage_a_begins_with_what_tells_most(self):
        batches = [[step.name for step in batch] for batch in stages.check_and_parity(pathlib.Path("bin"), emulated=False)]
        self.assertEqual(batches[0], ["check"])
        self.assertLessEqual({"parity_fp32", "parity_bf16", "real_shapes"}, set(batches[1]))
        self.assertTrue(all("candidates" in name for name in batches[-1]), batches[-1])
        self.assertFalse([name for batch in batches[:-1] for name in batch if "candidates" in name])

    def test_steps_that_look_at_candidates_end_before_they_are_cut_short(self):
        for emulated in (False, True):
            for stage in stages.stages(place.Place({}, pathlib.Path("m"), [], emulated), pathlib.Path("bin"), pathlib.Path("out"),
                                       pathlib.Path("data"), "a"):
                limited = [step for batch in stage.batches for step in batch if step.seconds_variable]
                self.assertGreaterEqual(len(limited), 8)
                for step in limited:
                    self.assertEqual(step.seconds_variable, "TRAINYARD_CANDIDATE_SECONDS")
                    self.assertIn("Candidates", " ".join(map(str, step.command)))
                    self.assertLess(step.seconds_max, 0.8 * step.limit_s)


class Stages(unittest.TestCase):
    def test_limits_keep_what_they_promise_and_are_documented(self):
        limits = stages.LIMITS_S
        self.assertLessEqual(limits["a"] + limits["b"] + limits["c"], 540)
        self.assertLessEqual(limits["e"] + limits["f"], 540)
        self.assertLessEqual(stages.CALL_S, 560)
        self.assertLess(540 + stages.FINISH_S, stages.CALL_S)
        self.assertEqual(stages.FIRST_CALL, "abc")
        head = (place.ROOT / "scripts/gpu_check").read_text()
        self.assertEqual({m[0]: int(m[1]) for m in re.findall(r"^\| (\w) \|.*\| (\d+) \|$", head, re.MULTILINE)}, limits)

    def test_the_sanitizer_understands_its_filters_and_initcheck_sees_cudnns_kernels(self):
        steps = {step.name: [str(word) for word in step.command]
                 for batch in stages.sanitizer(pathlib.Path("bin"), emulated=False) for step in batch}
        self.assertEqual(list(steps), ["memcheck", "racecheck", "initcheck"])
        for name, command in steps.items():
            filters = [command[i + 1] for i, word in enumerate(command) if word.startswith("--kernel-name")]
            self.assertEqual(len(filters), 0 if name == "initcheck" else 1, name)
            for value in filters:
                self.assertRegex(value, r"^(kernel_name|kne|kernel_substring|kns|regex)=")

    def refused(self, code, words, *arguments, program=place.ROOT / "scripts/gpu_check"):
        done = subprocess.run([sys.executable, program, *arguments], capture_output=True, text=True,
                              env=dict(os.environ, TRAINYARD_TEST_DATA=""))
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_what_cannot_be_is_refused_in_a_sentence(self):
        self.refused(1, "cifar10/cifar10-jpg.tar.xz: not in /nowhere", "--pack", "x.tar.xz", "--data", "/nowhere")
        self.refused(1, "--pack: /nowhere is not there", "--pack", "/nowhere/x.tar.xz")
        self.refused(2, "--stage: 'ax' is not known, expected letters of abcdef", "--stage", "ax")
        self.refused(2, "--limit: is needed for stage d, which takes what is left of a lease", "--stage", "d")
        self.refused(2, "--limit: 5 is too short, expected more than 15 seconds", "--limit", "5")
        self.refused(2, "--rows: 'resnet50:bf16' is not known, expected model:batch:precision", "--rows", "resnet50:bf16")
        with tempfile.TemporaryDirectory() as empty:
            self.refused(1, f"not there: {empty}/bin/trainyard, ", "--build", empty, "--out", empty)

    def test_an_archive_runs_what_it_has(self):
        with tempfile.TemporaryDirectory() as scratch:
            archive = pathlib.Path(scratch)
            for folder in ("scripts", "tests", "bin", "test_programs"):
                (archive / folder).mkdir()
            shutil.copytree(TESTS / "gpu_check", archive / "tests/gpu_check")
            program = shutil.copy(place.ROOT / "scripts/gpu_check", archive / "scripts")
            (archive / place.MANIFEST).write_text('{"commit": "c", "emulated": true, "architectures": []}')
            for argument in (("--build", "."), ("--pack", "x"), ("--emulated",)):
                self.refused(2, f"{argument[0]}: is not available in an archive", *argument, program=program)

    def test_an_archive_says_what_its_kernels_are_compiled_for(self):
        with tempfile.TemporaryDirectory() as build:
            self.assertEqual(place.architectures_of(pathlib.Path(build)), [])
            (pathlib.Path(build) / "build.ninja").write_text(
                "  FLAGS = --generate-code=arch=compute_90,code=[sm_90] "
                "--generate-code=arch=compute_120,code=[compute_120,sm_120]\n")
            self.assertEqual(place.architectures_of(pathlib.Path(build)), ["compute_120", "sm_120", "sm_90"])

    def test_the_hosts_own_libraries_stay_the_hosts(self):
        own = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libcublasLt.so.13",
               "libcudnn_graph.so.9", "libcuda.so.1", "libnccl.so.2", "libnvidia-ml.so.1")
        ours = ("libcrypto.so.3", "libcares.so.2", "libgrpc.so.29", "libdnnl.so.2", "libmd.so.0", "libmpfr.so.6")
        self.assertTrue(all(pack.HOSTS_OWN.match(name) for name in own))
        self.assertFalse([name for name in ours if pack.HOSTS_OWN.match(name)])

    def test_2000_images_are_enough(self):
        self.assertEqual(10 * data.IMAGES_OF_A_CLASS, 2000)


class Goals(unittest.TestCase):
    """Fails if a goal passes because its number is missing, or if a comparison is reversed."""

    ROW = {"model": "lenet5", "batch": 64, "precision": "tf32", "ours": 650e3, "theirs": 200e3, "ratio": 3.25,
           "our_bytes": 40 << 20, "our_used_bytes": 60 << 20, "their_bytes": 100 << 20, "cpu": 20e3}

    def judged(self, **changed):
        return {wanted: passed for _, wanted, _, passed in compare_gpu.judge([dict(self.ROW, **changed)])}

    def test_each_number_has_its_own_verdict(self):
        self.assertEqual(self.judged(), {"2.5× PyTorch": True, "600,000 samples/s": True,
                                         "at most 0.8× PyTorch's memory": True, "10× this machine's CPU": True})
        self.assertEqual(set(self.judged(ours=150e3, ratio=0.75, our_used_bytes=90 << 20, cpu=20e3).values()), {False})

    def test_what_was_not_measured_is_neither_passed_nor_missed(self):
        judged = self.judged(ratio=None, their_bytes=0, cpu=None)
        self.assertEqual([judged["2.5× PyTorch"], judged["at most 0.8× PyTorch's memory"],
                          judged["10× this machine's CPU"]], [None] * 3)
        self.assertEqual(compare_gpu.judge([{"row": "lenet5:64:tf32", "error": "out of time"}]), [])

    def test_rows_without_a_stated_goal_are_not_judged_by_others(self):
        small = self.judged(model="gpt2_small:1024", batch=4)
        self.assertEqual(set(small), {"at most 0.8× PyTorch's memory", "10× this machine's CPU"})
        self.assertNotIn("10× this machine's CPU", self.judged(model="mlp_small"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
