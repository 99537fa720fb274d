"""The stages of scripts/gpu_check and their time limits. Their purposes are in docs/cuda.md, "What
a first run on a GPU has to show"."""

import json
import os
import shutil
import sys

from gpu_check import library_logs, output
from gpu_check.place import ROOT
from gpu_check.runner import Stage, Step

# Limits in seconds, for one H100 with 16 cores. A lease is 15 minutes, and one call of it at most
# ten: (a) to (c) together fit into nine minutes, and so do (e) and (f) in another lease. (d) gets
# what is left of the first lease, by --limit.
LIMITS_S = {"a": 150, "b": 170, "c": 220, "d": 380, "e": 420, "f": 120}
FIRST_CALL = "abc"
CALL_S = 560  # limit of a call: nine minutes of stages, and the start
FINISH_S = 15  # of these, for ending what hangs, and writing the results
TITLES = {"a": "check and parity by case", "b": "whole jobs", "c": "the daemon", "d": "profiles and replay alone",
          "e": "beside PyTorch", "f": "compute-sanitizer"}
EMULATOR_IS_SLOWER = 6  # the factor for the limits of the few steps that run on the emulator

# Models of bench_models.h and batch sizes, with the rows of the model of a step's time first. All
# models run in one precision before the next, so that a time limit cuts off whole columns.
PROFILED = ("lenet5:64", "mlp_small:64", "resnet18:512", "resnet50:224:128", "vgg16:224:64", "gpt2_small:1024:16",
            "vit_base:224:64", "transformer_classifier:64", "gpt2_mini:64", "mlp:128", "resnet18:224:256",
            "lstm_classifier:64", "text_cnn:64", "embedding_bag_classifier:128", "autoencoder:64", "decoder:16")
PRECISIONS = ("bf16", "tf32", "fp32", "fp16")

PARITY = {"fp32": "", "bf16": "InBf16", "fp16": "InFp16", "tf32": "InTf32"}
PARITY_S = 90  # limit of a step that checks kernels
# For a step that checks every algorithm. The number of algorithms on a GPU is not known in advance,
# so the step ends by itself, well within the time that it has, and reports what it omitted.
CANDIDATES_S = 70
CANDIDATES_VARIABLE = "TRAINYARD_CANDIDATE_SECONDS"
# In 16 bits cuDNN has up to 26 algorithms for one problem, so several processes share them.
SHAPES_PARTS = {"bf16": 2, "fp16": 2}
TABLE_PARTS = {"bf16": 3, "fp16": 3}

# Selects our own kernels, whose mangled names contain our namespace. Checking the libraries'
# kernels is not our task and takes hours. (Only KEY=VALUE is a filter. compute-sanitizer ignores a
# filter that it does not understand, and then checks all kernels.)
SANITIZE_OURS = ("--kernel-name", "kns=trainyard")


def gtest(launchers, name, program, limit_s, gtest_filter="", env=None):
    command, env = [launchers / program] + ([f"--gtest_filter={gtest_filter}"] if gtest_filter else []), env or {}
    return Step(name, command, limit_s, env, output.of_gtest, output.of_gtest_notes,
                failing_case=lambda text: library_logs.gtest_case(command, env, text))


def check_and_parity(launchers, emulated):
    scale = EMULATOR_IS_SLOWER if emulated else 1

    def parity(name, tests, case="", **env):
        return gtest(launchers, name, "cuda_parity_test", PARITY_S, tests, dict(env, **{"TRAINYARD_CASE": case} if case else {}))

    def candidates(name, test, parts, case=""):
        steps = []
        for precision, suffix in PARITY.items():
            count = parts.get(precision, 1)
            for part in range(1, count + 1):
                of = f"_{part}_of_{count}" if count > 1 else ""
                step = parity(f"{name}_{precision}{of}", f"CudaCandidates.{test}{suffix}", case,
                              TRAINYARD_CANDIDATE_PART=f"{part}/{count}")
                step.seconds_variable, step.seconds_max = CANDIDATES_VARIABLE, scale * CANDIDATES_S
                steps.append(step)
        return steps

    cases = "Gemm" if emulated else ""
    check = [launchers / "trainyard", "local", "check", "--device", "gpu-0"]
    real_shapes = parity("real_shapes", "Cuda.RealShapes")
    shape_candidates = candidates("candidates", "OfRealShapes", SHAPES_PARTS)
    for step in [real_shapes, *shape_candidates]:
        step.skip = "an emulator takes hours for the shapes of real networks" if emulated else ""
    # Processes act as several nodes, as far as the GPUs here allow; then NCCL uses sockets between
    # them, as between hosts.
    nodes = [gtest(launchers, "nodes", "cuda_device_test", 60, "CudaNodes.*"),
             gtest(launchers, "nodes_by_sockets", "cuda_device_test", 60, "CudaNodes.TwoProcesses*",
                   {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"})]
    for step in nodes:
        step.may_skip_itself = True  # with one GPU
    # The steps that find most faults in the least time come first. The candidates come last and use the time that is left.
    return [
        [Step("check", check, 60, is_hopeless=output.why_no_gpu)],
        [*(parity(f"parity_{p}", f"Cuda.EveryCaseOfTheTable{suffix}", cases) for p, suffix in PARITY.items()), real_shapes,
         parity("others", "Cuda.*-Cuda.EveryCaseOfTheTable*:Cuda.RealShapes", cases)],
        [parity("workspace", "Workspace.*")],
        [gtest(launchers, "networks", "cuda_device_test", 60,
               "*GathersTheBatches*:*EvaluatesTheRows*" if emulated else "-CudaNodes.*")],
        nodes,
        shape_candidates + candidates("table_candidates", "OfTheTable", TABLE_PARTS, cases),
    ]


def whole_jobs(launchers, emulated):
    """Each program's tests are divided among processes that share the GPU."""
    steps = []
    # the other tests of this program use CPU ranks
    on_the_device = "SparseLookup.FollowsPyTorch:SparseLookup.UpdatesOnly*"
    for name, shards, tests, few in (("train_test", 8, "", "Training.S*"), ("recipe_test", 4, "", "LossesGolden.*"),
                                     ("sparse_lookup_test", 1, on_the_device, on_the_device)):
        for shard in range(shards):
            env = {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard)}
            steps.append(gtest(launchers, f"{name}_{shard + 1}_of_{shards}", name, LIMITS_S["b"],
                               few if emulated else tests, env))
    return [steps]


def daemon(launchers, out, data, emulated):
    env = {"TRAINYARD_BIN": str(launchers), "TRAINYARD_TEST_DATA": str(data), "TRAINYARD_GPU_CHECK_OUT": str(out),
           "TRAINYARD_GPU_CHECK_SMALL": "1" if emulated else "", "PYTHONDONTWRITEBYTECODE": "1"}
    return [[Step("daemon", [sys.executable, ROOT / "tests/gpu_check/daemon_check.py"], LIMITS_S["c"], env,
                  output.of_unittest, output.of_daemon_notes)]]


def profile_notes(path):
    def notes(text):
        try:
            line = json.loads(next(x for x in text.splitlines() if x.startswith("{")))
        except StopIteration:
            return []
        replay = f", replay alone {line['replay_us']:.1f} us" if line.get("replay_us") else ""
        together = f", {line['steps_together']} at once" if line["steps_together"] > 1 else ""
        said = [f"{line['samples_per_second']:.6g} samples/s: a step {line['step_us']:.1f} us{replay}{together}"]
        if path.exists():
            profile = json.loads(path.read_text())
            total = sum(op["seconds"] for op in profile["ops"])
            least = sum(op["least_seconds"] for op in profile["ops"])
            most = sorted(profile["ops"], key=lambda op: -op["seconds"])[:4]
            said.append(f"{100 * least / total:.0f} % of the bound; "
                        + ", ".join(f"{op['op']} {1e6 * op['seconds']:.0f} us" for op in most))
        return said
    return notes


def profiles(launchers, out, emulated):
    rows = [(row, p) for p in PRECISIONS for row in PROFILED]
    if emulated:
        rows = [("mlp_small:8", p) for p in PRECISIONS[:2]]
    batches = []
    for row, precision in rows:
        model, batch = row.rsplit(":", 1)
        name = f"{row}:{precision}".replace(":", "_")
        path = out / "profiles" / f"{name}.json"
        command = [launchers / "train_bench", "--model", model, batch, "--device", "gpu-0", "--precision", precision,
                   "--seconds", "0.1" if emulated else "1", "--replay", "5" if emulated else "1000",
                   "--profile-json", path]
        batches.append([Step(name, command, 45, {"TRAINYARD_ALGORITHMS": str(out / "algorithms")},
                             notes=profile_notes(path))])
    return batches


def pytorch(launchers, out, emulated, rows, why_not, limit_s):
    command = [sys.executable, ROOT / "tests/bench/compare_gpu.py", launchers / "train_bench", "--json",
               out / "speed.json", "--limit", limit_s - 90, "--pairs", 3, "--cpu-batch", 4]
    if emulated:
        command += ["--emulated", "--pairs", 1, "--seconds", 0.1]
    command += ["--rows", rows or "mlp_small:8:tf32"] if rows or emulated else []
    env = {"TRAINYARD_ALGORITHMS": str(out / "algorithms"), "PYTHONDONTWRITEBYTECODE": "1"}
    return [[Step("speed", command, limit_s, env, skip=why_not, notes=lambda text: [
        line for line in text.splitlines() if "not measured" in line or " ended at: " in line
        or "no number means anything" in line])]]


def sanitizer(launchers, emulated):
    program = shutil.which("compute-sanitizer", path=os.environ.get("PATH", os.defpath) + ":/usr/local/cuda/bin")
    skip = "an emulated GPU has none" if emulated else "" if program else \
        "compute-sanitizer is not there, on PATH or in /usr/local/cuda/bin"
    always = ["--target-processes", "all", "--error-exitcode", "1"]
    test = [launchers / "cuda_parity_test", "--gtest_filter=Cuda.EveryCaseOfTheTable"]

    def findings(text):
        return [x for x in text.splitlines() if x.startswith("========= ") and (
            "Invalid" in x or "Error" in x or "Race" in x or "Uninitialized" in x or "SUMMARY" in x)]

    def step(tool, options, case=""):
        return Step(tool, [program, "--tool", tool, *always, *options, *test], LIMITS_S["f"],
                    {"TRAINYARD_CASE": case} if case else {}, findings=findings, skip=skip)

    # Initcheck must check the libraries' kernels too: it treats only memory written by checked
    # kernels as written, and the question is whether a cuDNN engine reads before it writes. So it
    # runs only convolutions.
    return [[step("memcheck", SANITIZE_OURS), step("racecheck", SANITIZE_OURS), step("initcheck", [], "Conv")]]


def stages(place, launchers, out, data, letters, rows="", why_no_pytorch="", limit_s=float("inf")):
    """The stages named by `letters`, in their order. `rows` are the rows of stage (e); `limit_s` is
    the time of the whole run, in which (e) must know its part."""
    scale = EMULATOR_IS_SLOWER if place.emulated else 1
    made = {
        "a": lambda: check_and_parity(launchers, place.emulated),
        "b": lambda: whole_jobs(launchers, place.emulated),
        "c": lambda: daemon(launchers, out, data, place.emulated),
        "d": lambda: profiles(launchers, out, place.emulated),
        "e": lambda: pytorch(launchers, out, place.emulated, rows, why_no_pytorch,
                             min(LIMITS_S["e"], limit_s / scale - FINISH_S)),
        "f": lambda: sanitizer(launchers, place.emulated),
    }
    result = [Stage(letter, TITLES[letter], scale * LIMITS_S[letter], made[letter]()) for letter in LIMITS_S
              if letter in letters]
    for stage in result:
        for batch in stage.batches:
            for step in batch:
                step.limit_s *= scale
    return result
