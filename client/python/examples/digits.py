"""Trains a small convolutional network on 1,797 real handwritten digits, draws its curves, downloads the model and lets
it predict digits that it has never seen. Each `# %%` starts a cell, for editors that run a script cell by cell.

    pip install 'client/python[pandas]'
    trainyardd &
    python client/python/examples/digits.py
"""

# %% Connect. Without an address the client finds the daemon of this user, or TRAINYARD_SERVER.
import sys
from pathlib import Path

import pandas as pd

import trainyard

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

try:
    client = trainyard.Client()
    info = client.server_info()
except trainyard.UnavailableError as error:
    sys.exit(f"{error}\nStart a daemon with 'trainyardd', or name a running one in TRAINYARD_SERVER.")
print(f"{client.server}: version {info.version}, {', '.join(device.model for device in client.devices())}")

# %% The data has one digit per line: 64 pixels from 0 to 16, then the label. 297 digits are held out.
rows = pd.read_csv(EXAMPLES / "digits.csv.gz", header=None)
rows.columns = [*(f"pixel_{i}" for i in range(64)), "digit"]
unseen = rows.tail(297)
dataset = client.upload_frame(rows.head(1500), "digit", target_kind="class", image=[1, 8, 8])
print(f"{dataset.schema.train_rows} images of {list(dataset.schema.image)}, classes {', '.join(dataset.schema.classes)}")

# %% The job: the content of a spec file as a dict (docs/job_spec.md).
spec = {
    "dataset": {"name": dataset.name.rpartition("/")[2]},
    "model": {"layers": [
        {"conv": {"out_channels": 32, "kernel_shape": 3, "pads": 1, "bias": False}},
        {"batch_normalization": None},
        {"relu": None},
        {"max_pool": {"kernel_shape": 2}},
        {"flatten": None},
        {"gemm": {"units": 64}},
        {"relu": None},
        {"gemm": None},
    ]},
    "recipe": {"epochs": 10, "batch_size": 50, "validation_split": 0.2, "seed": 1,
               "optimizer": {"type": "adam", "learning_rate": 0.002}, "schedule": {"type": "cosine"}},
}
plan = client.plan(spec)
print(f"{plan.run.parameter_count:,} parameters, {plan.run.steps_total} steps on {plan.device}")

# %% Mistakes are reported before anything runs, with their position and what would be accepted.
try:
    client.plan({**spec, "recipe": {**spec["recipe"], "epochs": "ten"}})
except trainyard.InvalidArgumentError as error:
    print(f"refused: {error}")

# %% Submit, and follow the progress.
job = client.submit(spec)
for event in client.watch(job):
    if isinstance(event, trainyard.StateEvent):
        print(f"{event.time:%H:%M:%S}  {event.state_name}: {event.message}")
    elif isinstance(event, trainyard.MetricsEvent):
        for point in event.points:
            if point.key == "val/accuracy":
                print(f"{event.time:%H:%M:%S}  step {point.step}: {point.key} {point.value:.3f}")
job = client.wait(job)

# %% The curves: a row for each step, a column for each series. metrics.plot() draws them if matplotlib is installed.
metrics = client.metrics(job)
for key in ("train/loss", "val/loss", "val/accuracy"):
    series = metrics[key].dropna()
    bins = series.groupby(pd.cut(range(len(series)), min(40, len(series)), labels=False)).mean()
    low, high = bins.min(), bins.max()
    heights = ((bins - low) / ((high - low) or 1) * 7).round().astype(int)
    print(f"{key:13} {''.join('▁▂▃▄▅▆▇█'[height] for height in heights)}  {series.iloc[0]:.3f} to {series.iloc[-1]:.3f}")

# %% Download the model: safetensors, and its preprocessing as JSON.
for path in client.download_model(job, "digits_model"):
    print(f"{path}: {path.stat().st_size:,} bytes")

# %% Predict the 297 digits that the model has never seen.
predictions = client.predict(job, unseen.drop(columns="digit")).to_frame()
truth = unseen["digit"].astype(str).reset_index(drop=True)
wrong = predictions[predictions["prediction"] != truth]
print(f"{len(truth) - len(wrong)} of {len(truth)} are right; the first mistakes:")
for index, row in wrong.head(3).iterrows():
    print(f"  a {truth[index]} read as a {row['prediction']}, by {row['p_' + row['prediction']]:.0%}")
