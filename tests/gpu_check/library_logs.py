"""Runs one failing case again, alone, with the logs of cuBLASLt, cuDNN and NCCL. Only one: logs of
everything would slow down all steps, and be too large to carry back."""

import os
import re
import subprocess

LIMIT_S = 45
SHOWN_MAX = 8  # lines of errors in the report
ERROR = re.compile(r"\[Error\]|^E!|Error:|NCCL WARN|CUDNN_STATUS_(?!SUCCESS)\w+|CUBLAS_STATUS_(?!SUCCESS)\w+")


def settings(folder):
    """The environment that makes the libraries write logs into a folder. Sources: cuBLAS and cuDNN
    documentation, logging; NCCL documentation, environment variables."""
    return {"CUBLASLT_LOG_LEVEL": "5", "CUBLASLT_LOG_FILE": str(folder / "cublaslt_%i.log"),
            "CUDNN_LOGLEVEL_DBG": "3", "CUDNN_LOGDEST_DBG": str(folder / "cudnn_%i.log"),
            "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(folder / "nccl_%p.log")}


def gtest_case(command, env, output):
    """(description, command, environment) of the first failing case of a GoogleTest program."""
    failures = re.split(r": Failure$", output, flags=re.M)
    if len(failures) < 2:
        return None
    tests = re.findall(r"^\[ RUN      \] (\S+)$", failures[0], re.M)
    if not tests:
        return None
    case = re.search(r"^\S+:\d+: (\S+(?: \S+)*?) (?:row-major|channels-last)\b", failures[1], re.M)
    named = {"TRAINYARD_CASE": case[1]} if case else {}
    unfiltered = [word for word in command if not str(word).startswith("--gtest_filter")]
    return (tests[-1] + (f", {case[1]}" if case else ""), [*unfiltered, f"--gtest_filter={tests[-1]}"],
            {name: value for name, value in {**env, **named}.items() if not name.startswith(("GTEST_", "TRAINYARD_CANDIDATE_PART"))})


def run_again(description, command, env, out, limit_s):
    """Returns sentences about the run and the errors in the logs."""
    folder = out / "library_logs"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "output.log", "wb") as log:
        try:
            code = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=limit_s,
                                  env={**os.environ, **env, **settings(folder)}).returncode
            ended = "it passed this time" if code == 0 else f"it failed again, exit status {code}"
        except subprocess.TimeoutExpired:
            ended = f"it had not ended after {limit_s:.0f} s"
        except OSError as e:
            ended = f"it does not start: {e}"
    said = [f"{description}: {ended}; library_logs/ has its output and logs"]
    errors = []
    for path in sorted(folder.iterdir()):
        if path.name != "output.log":
            errors += [f"{path.name}: {line.strip()[:240]}" for line in path.read_text(errors="replace").splitlines()
                       if ERROR.search(line)]
    return said + (list(dict.fromkeys(errors))[:SHOWN_MAX] or ["the libraries logged no error"])
