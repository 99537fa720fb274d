"""Measures how well a job with the default settings of `trainyard init` predicts unseen rows,
compared with scikit-learn.

    python tests/bench/defaults_bench.py --bin build/release/bin [--out FOLDER] [--only NAME...]

Needs pandas, and scikit-learn, statsmodels and vega_datasets, whose bundled data it uses
(defaults_data.py). Three splits of each dataset hold out a quarter of the rows. `trainyard init`
sees only the other rows; `trainyard local` runs its job unchanged, with the held-out rows as the
test set. scikit-learn gets the same rows with its defaults, with dates split into parts, and for
networks and linear models standardized and one-hot. The score is accuracy or R2. Writes
results.json and table.md. Takes about 5 minutes.
"""
import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path

THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
os.environ.update(THREADS)  # must be set before NumPy is loaded

import numpy as np
import pandas as pd
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import defaults_data

SEEDS = [11, 12, 13]  # the rules of `trainyard init` were tuned on the splits 0, 1 and 2
TEST_SHARE = 0.25


def split(data: defaults_data.Data, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    classes = None if data.kind == "numeric" else data.frame[data.target]
    return train_test_split(data.frame, test_size=TEST_SHARE, random_state=seed, stratify=classes)


def with_parts_of_dates(frame: pd.DataFrame, dates: list[str]) -> pd.DataFrame:
    """Returns the numbers that a Trainyard dataset derives from a date, and the month and the hour, which help
    trees."""
    frame = frame.copy()
    for name in dates:
        when = pd.to_datetime(frame.pop(name))
        frame[f"{name}.days"] = (when - pd.Timestamp(1970, 1, 1)) / pd.Timedelta(days=1)
        frame[f"{name}.month"], frame[f"{name}.hour"] = when.dt.month, when.dt.hour
        for part, angle in [("year", (when.dt.dayofyear - 1) / 365), ("week", when.dt.dayofweek / 7),
                            ("day", (when.dt.hour * 60 + when.dt.minute) / 1440)]:
            frame[f"{name}.{part}_sin"] = np.sin(2 * np.pi * angle)
            frame[f"{name}.{part}_cos"] = np.cos(2 * np.pi * angle)
    return frame


def prepared(frame: pd.DataFrame, model):
    """Returns a pipeline for networks and linear models: standardized numbers, one-hot categories, means for missing
    values."""
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    numbers = [name for name in frame.columns if name not in texts]
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts))
    return make_pipeline(columns, model)


def standardized_target(model) -> TransformedTargetRegressor:
    """Without a standardized target, the 200 iterations of MLPRegressor end far from any good fit.
    """
    return TransformedTargetRegressor(model, transformer=StandardScaler())


def rivals(data: defaults_data.Data, frame: pd.DataFrame, seed: int) -> dict:
    """Returns untrained scikit-learn models, by name."""
    if data.kind == "text":
        return {"linear": make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))}
    if data.kind == "class":
        return {
            "mlp": prepared(frame, MLPClassifier(random_state=seed)),
            "mlp_stopped": prepared(
                frame, MLPClassifier(random_state=seed, early_stopping=True, max_iter=1000)),
            "boosting": HistGradientBoostingClassifier(random_state=seed, categorical_features="from_dtype"),
            "linear": prepared(frame, LogisticRegression(max_iter=1000)),
        }
    return {
        "mlp": standardized_target(prepared(frame, MLPRegressor(random_state=seed))),
        "mlp_stopped": standardized_target(
            prepared(frame, MLPRegressor(random_state=seed, early_stopping=True, max_iter=1000))),
        "boosting": HistGradientBoostingRegressor(random_state=seed, categorical_features="from_dtype"),
        "linear": prepared(frame, RidgeCV(np.logspace(-3, 3, 13))),
    }


def scores_of_rivals(data: defaults_data.Data, train: pd.DataFrame, test: pd.DataFrame, seed: int) -> dict[str, float]:
    x_train = with_parts_of_dates(train[data.features], data.dates)
    x_test = with_parts_of_dates(test[data.features], data.dates)
    if data.kind == "text":
        x_train, x_test = train["text"], test["text"]
    else:
        for name in x_train.columns:
            if not pd.api.types.is_numeric_dtype(x_train[name]):
                known = pd.CategoricalDtype(sorted(x_train[name].dropna().unique()))
                x_train[name], x_test[name] = x_train[name].astype(known), x_test[name].astype(known)
    scores = {}
    for name, model in rivals(data, x_train, seed).items():
        model.fit(x_train, train[data.target])
        scores[name] = float(model.score(x_test, test[data.target]))
    return scores


def write_rows(data: defaults_data.Data, train: pd.DataFrame, test: pd.DataFrame, folder: Path) -> tuple[Path, Path]:
    paths = folder / "train.csv", folder / "test.csv"
    for path, rows in zip(paths, (train, test)):
        rows.to_csv(path, index=False)
    return paths


def score_of_init(programs: Path, data: defaults_data.Data, folder: Path,
                  train: Path, test: Path) -> tuple[float, float]:
    """Returns the score of the job that `trainyard init` writes for the training rows, and its CPU
    seconds."""
    job, out = folder / "job.yaml", folder / "out"
    subprocess.run([programs / "trainyard", "init", train, "--target", data.target, "--out", job], check=True,
                   capture_output=True)
    before = os.times()
    subprocess.run([programs / "trainyard", "local", "run", job, "--set", f"dataset.test_path={test}", "--out", out,
                    "--device", "cpu", "--threads", "1"], check=True, capture_output=True)
    seconds = os.times().children_user - before.children_user
    metrics = json.loads((out / "model" / "model.json").read_text())["metrics"]
    return metrics["test/r2" if data.kind == "numeric" else "test/accuracy"], seconds


def measure(programs: Path, name: str) -> dict:
    data = defaults_data.load(name)
    result = {"kind": data.kind, "rows": len(data.frame), "features": len(data.features), "scores": [],
              "cpu_seconds": []}
    for seed in SEEDS:
        train, test = split(data, seed)
        scores = scores_of_rivals(data, train, test, seed)
        with tempfile.TemporaryDirectory() as folder:
            paths = write_rows(data, train, test, Path(folder))
            scores["trainyard"], seconds = score_of_init(programs, data, Path(folder), *paths)
        result["scores"].append(scores)
        result["cpu_seconds"].append(round(seconds, 2))
    return result


def mean_of(result: dict, model: str) -> float:
    return float(np.mean([scores[model] for scores in result["scores"]]))


def best_mlp(result: dict) -> str:
    """Returns the name of scikit-learn's MLP with or without early stopping, whichever is better on these data."""
    return max(("mlp", "mlp_stopped"), key=lambda model: mean_of(result, model))


def differences(result: dict, rival: str) -> np.ndarray:
    """Returns the differences of the scores, split by split, because all models have the same splits."""
    return np.array([scores["trainyard"] - scores[rival] for scores in result["scores"]])


def sentences(tables: dict) -> list[str]:
    """Returns sentences that say how often a job is at least as good as the better MLP, judged by the spread of its
    scores and, more strictly, by that of the differences."""
    behind, behind_by_split, medians = [], [], {"boosting": [], "the better MLP": []}
    for name, result in tables.items():
        difference = differences(result, best_mlp(result))
        if difference.mean() < -np.std([scores["trainyard"] for scores in result["scores"]], ddof=1):
            behind.append(name)
        if difference.mean() < -difference.std(ddof=1):
            behind_by_split.append(name)
        medians["boosting"].append(differences(result, "boosting").mean())
        medians["the better MLP"].append(difference.mean())

    def count(names: list[str]) -> str:
        return f"{len(tables) - len(names)} of {len(tables)}" + (f" (not {', '.join(names)})" if names else "")

    return [f"At least even with the better MLP, less the spread of the three scores: {count(behind)}; less that of the "
            f"three differences: {count(behind_by_split)}.",
            "Medians of the differences: " + ", ".join(f"{np.median(d):+.3f} to {what}" for what, d in medians.items()) + "."]


def table(results: dict) -> str:
    def cell(result: dict, model: str) -> str:
        scores = [scores[model] for scores in result["scores"]]
        return f"{np.mean(scores):.3f} ± {np.std(scores, ddof=1):.3f}"

    lines = ["| data | rows | score | `trainyard init` | MLP | boosting | linear | CPU s |", "| --- " * 8 + "|"]
    for name, result in results.items():
        is_text = result["kind"] == "text"
        rivals_cells = ["", ""] if is_text else [cell(result, best_mlp(result)), cell(result, "boosting")]
        lines.append("| " + " | ".join(
            [name, f"{result['rows']:,}", "R2" if result["kind"] == "numeric" else "accuracy", cell(result, "trainyard"),
             *rivals_cells, cell(result, "linear"), f"{np.mean(result['cpu_seconds']):.1f}"]) + " |")
    tables = {name: result for name, result in results.items() if result["kind"] != "text"}
    if tables:
        lines += ["", *sentences(tables)]
    return "\n".join(lines) + "\n"


def main() -> None:
    warnings.filterwarnings("ignore")  # warnings of scikit-learn models that do not converge
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("defaults_bench"))
    parser.add_argument("--only", nargs="+", choices=defaults_data.LOADERS, default=list(defaults_data.LOADERS))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    packages = ("scikit-learn", "statsmodels", "vega_datasets", "pandas", "numpy", "scipy")
    versions = {name: version(name) for name in packages}
    versions |= {"python": platform.python_version(), "trainyard": subprocess.run(
        [args.bin / "trainyard", "version"], check=True, capture_output=True, text=True).stdout.strip()}
    results = {}
    for name in args.only:
        begin = time.perf_counter()
        results[name] = measure(args.bin.absolute(), name)
        means = {model: round(mean_of(results[name], model), 4) for model in results[name]["scores"][0]}
        print(f"{name}: {means}, {time.perf_counter() - begin:.0f} s", flush=True)
        (args.out / "results.json").write_text(
            json.dumps({"versions": versions, "seeds": SEEDS, "results": results}, indent=1) + "\n")
        (args.out / "table.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    main()
