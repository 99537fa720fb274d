"""The datasets bundled with scikit-learn, statsmodels and vega_datasets, for defaults_bench.py;
nothing is downloaded."""
import importlib
import inspect
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import sklearn.datasets
import statsmodels.datasets
import vega_datasets

SMALLEST_CLASS = 10      # rows; smaller classes are omitted, so that each split has all classes
LARGEST_ROWS = 6000      # per dataset; more rows would cost minutes and change little
DOCSTRING_PACKAGES = ["numpy", "scipy", "pandas", "sklearn", "statsmodels"]


@dataclass
class Data:
    frame: pd.DataFrame
    target: str
    kind: str                                       # class, numeric or text
    dates: list[str] = field(default_factory=list)  # columns of ISO 8601 dates

    @property
    def features(self) -> list[str]:
        return [name for name in self.frame.columns if name != self.target]


def _bundled(load, kind: str) -> Data:
    bunch = load(as_frame=True)
    frame = bunch.data.copy()
    frame.columns = [str(name) for name in frame.columns]
    frame["target"] = [bunch.target_names[i] for i in bunch.target] if kind == "class" else bunch.target
    return Data(frame, "target", kind)


def _statsmodels(name: str) -> pd.DataFrame:
    return getattr(statsmodels.datasets, name).load_pandas().data.copy()


def _vega(name: str) -> pd.DataFrame:
    path = Path(vega_datasets.__file__).parent / "_data" / name
    return pd.read_json(path, convert_dates=False) if path.suffix == ".json" else pd.read_csv(path)


def _votes() -> Data:
    frame = _statsmodels("anes96")
    frame["vote"] = np.where(frame["vote"] == 1, "Dole", "Clinton")
    return Data(frame.drop(columns=["logpopul"], errors="ignore"), "vote", "class")


def _party() -> Data:
    frame = _statsmodels("anes96")
    frame["PID"] = [f"party {int(value)}" for value in frame["PID"]]
    return Data(frame.drop(columns=["logpopul", "vote"], errors="ignore"), "PID", "class")


def _affairs() -> Data:
    frame = _statsmodels("fair")
    frame["affairs"] = np.where(frame["affairs"] > 0, "some", "none")
    return Data(frame, "affairs", "class")


def _mode() -> Data:
    """Predicts which of four means of transport 210 people use, one row each; the features are the
    times and costs of all four."""
    frame = _statsmodels("modechoice")
    wide = frame.pivot(index="individual", columns="mode", values=["ttme", "invc", "invt", "gc"])
    wide.columns = [f"{name}_{int(mode)}" for name, mode in wide.columns]
    chosen = frame[frame["choice"] == 1].set_index("individual")
    wide["hinc"], wide["psize"] = chosen["hinc"], chosen["psize"]
    wide["mode"] = chosen["mode"].map({1: "air", 2: "train", 3: "bus", 4: "car"})
    return Data(wide.reset_index(drop=True), "mode", "class")


def _schools() -> Data:
    frame = _statsmodels("star98")
    frame["share_above"] = frame["NABOVE"] / (frame["NABOVE"] + frame["NBELOW"])
    return Data(frame.drop(columns=["NABOVE", "NBELOW"]), "share_above", "numeric")


def _visits() -> Data:
    frame = _statsmodels("randhie")
    frame["mdvis"] = np.log1p(frame["mdvis"])
    return Data(frame, "mdvis", "numeric")


def _cars(target: str) -> Data:
    frame = _vega("cars.json").drop(columns=["Name"])
    frame = frame[frame[target].notna()]
    return Data(frame, target, "numeric" if target == "Miles_per_Gallon" else "class", ["Year"])


def _weather() -> Data:
    frame = _vega("seattle-weather.csv")
    frame["date"] = frame["date"].str.replace("/", "-")
    return Data(frame, "weather", "class", ["date"])


def _temperatures() -> Data:
    frame = _vega("seattle-temps.csv")
    frame["date"] = frame["date"].str.replace("/", "-")
    return Data(frame, "temp", "numeric", ["date"])


def _airports() -> Data:
    return Data(_vega("airports.csv")[["latitude", "longitude", "state"]].dropna(), "state", "class")


def _stocks() -> Data:
    frame = _vega("stocks.csv")
    frame["date"] = pd.to_datetime(frame["date"], format="%b %d %Y").dt.strftime("%Y-%m-%d")
    return Data(frame, "price", "numeric", ["date"])


def _docstrings() -> Data:
    """Returns the first paragraphs of docstrings; the class is the package, whose own name is removed from the text."""
    texts: dict[str, str] = {}
    for package in DOCSTRING_PACKAGES:
        root = importlib.import_module(package)
        modules = [root]
        for info in pkgutil.iter_modules(root.__path__, package + "."):
            if info.name.rsplit(".", 1)[1].startswith("_") or "test" in info.name or "conftest" in info.name:
                continue
            try:
                modules.append(importlib.import_module(info.name))
            except ImportError:
                continue  # an optional part of the package
        for module in modules:
            for name, value in sorted(vars(module).items()):
                members = [value] + (list(vars(value).values()) if inspect.isclass(value) else [])
                for member in members:
                    text = inspect.getdoc(member) if callable(member) or isinstance(member, property) else None
                    owner = getattr(value, "__module__", None) or ""
                    if not text or not owner.startswith(package):
                        continue
                    paragraph = " ".join(" ".join(text.split("\n\n")[:2]).split())[:600]
                    for word in DOCSTRING_PACKAGES:
                        paragraph = paragraph.replace(word, "")
                    if len(paragraph.split()) >= 5:
                        texts.setdefault(paragraph, package)
    frame = pd.DataFrame({"text": list(texts), "package": list(texts.values())})
    return Data(frame, "package", "text")


LOADERS = {
    "iris": lambda: _bundled(sklearn.datasets.load_iris, "class"),
    "wine": lambda: _bundled(sklearn.datasets.load_wine, "class"),
    "breast_cancer": lambda: _bundled(sklearn.datasets.load_breast_cancer, "class"),
    "digits": lambda: _bundled(sklearn.datasets.load_digits, "class"),
    "diabetes": lambda: _bundled(sklearn.datasets.load_diabetes, "numeric"),
    "anes96_vote": _votes,
    "anes96_party": _party,
    "fair_affairs": _affairs,
    "modechoice": _mode,
    "star98": _schools,
    "randhie": _visits,
    "grunfeld": lambda: Data(_statsmodels("grunfeld"), "invest", "numeric"),
    "cars_origin": lambda: _cars("Origin"),
    "cars_mpg": lambda: _cars("Miles_per_Gallon"),
    "barley": lambda: Data(_vega("barley.json"), "yield", "numeric"),
    "seattle_weather": _weather,
    "seattle_temps": _temperatures,
    "airports": _airports,
    "stocks": _stocks,
    "docstrings": _docstrings,
}


def load(name: str) -> Data:
    data = LOADERS[name]()
    frame = data.frame.reset_index(drop=True)
    if data.kind != "numeric":
        counts = frame[data.target].value_counts()
        frame = frame[frame[data.target].map(counts) >= SMALLEST_CLASS]
    if len(frame) > LARGEST_ROWS:
        frame = frame.sample(LARGEST_ROWS, random_state=0)
    data.frame = frame.reset_index(drop=True)
    return data
