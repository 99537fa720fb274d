"""Tests natural mistakes of newcomers: each must be refused with a message that names the place,
the cause and what would be accepted.

mistakes.txt contains the whole output, so that a changed message is seen in review. After an
intended change, `python3 tests/e2e/test_mistakes.py --write` writes the file again; read it as a
newcomer would.
"""

import difflib
import pathlib
import re
import sys
import unittest

from harness import DaemonTest

EXPECTED = pathlib.Path(__file__).with_name("mistakes.txt")

JOB = """name: shop
dataset:
  path: people.csv
  csv: {target: bought}
model:
  mlp: {hidden: [8]}
  loss: softmax_cross_entropy
recipe:
  epochs: 2
  batch_size: 8
  optimizer: {type: adam, learning_rate: 0.01}
"""

HEADER = "age,income,city,bought"
ROWS = [f"{20 + i % 40},{1000 + 37 * (i * i % 53)},{('Rome', 'Oslo', 'Kyiv')[i * i % 3]},{('no', 'yes')[i * 7 % 5 % 2]}"
        for i in range(120)]


def table(header=HEADER, rows=ROWS, separator=","):
    return "\n".join([header, *rows]).replace(",", separator) + "\n"


def in_job(title, old, new, *words, exit_code=2, arguments=()):
    """Returns the case of submitting JOB with `old` replaced by `new`."""
    assert old in JOB, old
    return title, ["submit", "job.yaml", *arguments], words, exit_code, {"job.yaml": JOB.replace(old, new)}, new


def with_data(title, content, *words, old="", new="", exit_code=2):
    """Returns the case of submitting JOB whose data file has this content."""
    job = JOB.replace("people.csv", "data.csv").replace(old, new) if old else JOB.replace("people.csv", "data.csv")
    return title, ["submit", "job.yaml"], words, exit_code, {"job.yaml": job, "data.csv": content}, new


def command(title, line, *words, exit_code=2, files=None):
    return title, line.split(), words, exit_code, files or {}, ""


# Title and command, then the words that the message must have: the place, the cause and the correct
# form.
MISTAKES = {
    "Commands": [
        command("train instead of submit", "train shop.yaml", "train", "trainyard submit"),
        command("run instead of submit", "run shop.yaml", "run", "trainyard submit"),
        command("status instead of get", "status shop", "status", "trainyard get"),
        command("ls instead of list", "ls", "ls", "trainyard list"),
        command("dataset ls", "dataset ls", "dataset ls", "trainyard dataset list"),
        command("datasets instead of dataset", "datasets list", "trainyard dataset list"),
        command("models instead of model", "models", "trainyard model list"),
        command("model without a verb", "model", "trainyard model list", "trainyard model export"),
        command("kill instead of cancel", "kill shop", "trainyard cancel"),
        command("job list instead of list", "job list", "job", "trainyard list"),
        command("evaluate without model", "evaluate shop people", "evaluate", "trainyard model evaluate"),
        command("daemon instead of server", "daemon status", "daemon", "trainyard server status"),
        command("a misspelt command", "sumbit shop.yaml", "sumbit", "trainyard submit"),
        command("a misspelt option", "submit shop.yaml --wacth", "--wacth", "--watch"),
        command("an option of another tool", "submit shop.yaml --gpus 2", "--gpus", "resources.gpus"),
        command("no job file", "submit", "SPEC", "required"),
        command("no job", "get", "JOB", "required"),
        command("a spec's field as an option", "submit shop.yaml --epochs 5", "--epochs", "--set recipe.epochs=5"),
        command("a job that does not exist", "get shpo", "no job 'shpo'", "trainyard list", exit_code=4),
        command("a job with capitals", "get Shop", "Shop", "a-z"),
        command("the job file instead of the job", "get shop.yaml", "shop.yaml", "a-z"),
        command("a model that does not exist", "model get shpo", "no model 'shpo'", "trainyard model list", exit_code=4),
        command("a dataset that does not exist", "dataset get peple", "no dataset 'peple'", "trainyard dataset list", exit_code=4),
        command("the server's address without a port", "list --server localhost", "localhost", "host:port"),
        command("the server's address as a URL", "list --server http://localhost:7070", "http", "host:port", "--plaintext"),
        command("nobody at that address", "list --server unix:nobody.sock", "nobody.sock", "trainyardd", exit_code=7),
        command("nobody at that port", "list --server 127.0.0.1:1 --plaintext", "127.0.0.1:1", "trainyardd", exit_code=7),
        command("an output format that is not there", "list -o xml", "xml", "json"),
        command("a word where a number belongs", "list --limit many", "--limit", "many"),
        command("a negative limit", "list --limit -5", "-5"),
        command("a state that is not there", "list --state done", "done", "succeeded"),
        command("cancel of a finished job", "cancel shop", "shop", "SUCCEEDED", exit_code=0),
        command("pause of a finished job", "pause shop", "shop", "SUCCEEDED", exit_code=5),
        command("resume of a finished job", "resume shop", "shop", "SUCCEEDED", "fork", exit_code=5),
        command("retry of a job that succeeded", "retry shop", "shop", "SUCCEEDED", exit_code=5),
        command("delete without a yes", "delete shop", "--yes"),
        command("a priority beyond the range", "prioritize shop --priority 5000", "5000", "100"),
        command("fork with a misspelt field", "fork shop --set recipe.epoch=5", "recipe.epoch", "'epochs'"),
    ],
    "Job files": [
        command("a job file that is not there", "submit jobs.yaml", "jobs.yaml", exit_code=4),
        command("a table instead of a job file", "submit people.csv", "people.csv", "trainyard init"),
        command("a folder instead of a job file", "submit folder", "folder", "trainyard init"),
        command("an empty job file", "submit empty.yaml", "empty.yaml", files={"empty.yaml": ""}),
        command("JSON with a trailing comma", "submit job.json", "job.json:1", files={"job.json": '{"name": "shop",}'}),
        command("a job file in Python", "submit job.py", "job.py", files={"job.py": "import trainyard\nmodel = trainyard.MLP(8)\n"}),
        command("a tab in YAML", "submit job.yaml", "job.yaml:3", "tab",
                files={"job.yaml": JOB.replace("  path", "\tpath")}),
        command("wrong indentation", "submit job.yaml", "job.yaml:10", "indented",
                files={"job.yaml": JOB.replace("  batch_size", "   batch_size")}),
        command("no space after a colon", "submit job.yaml", "job.yaml:", "space after the colon",
                files={"job.yaml": JOB.replace("epochs: 2", "epochs:2")}),
        in_job("Python instead of YAML", "{hidden: [8]}", "dict(hidden=[8])", "job.yaml:6", "model.mlp", "dict(hidden=[8])"),
        in_job("a tuple instead of a list", "[8]", "(8, 8)", "model.mlp.hidden", "square brackets: [8, 8]"),
        in_job("a tuple that repeats a number", "[8]", "(8, 8, 8, 8)", "model.mlp", "square brackets"),
        in_job("no model", "model:\n  mlp: {hidden: [8]}\n  loss: softmax_cross_entropy\n", "", "model", "required"),
        in_job("no recipe", JOB[JOB.index("recipe:"):], "", "recipe"),
        in_job("no data", "  path: people.csv\n", "", "dataset.path"),
        in_job("a key of another tool", "learning_rate: 0.01", "lr: 0.01", "recipe.optimizer.lr", "learning_rate"),
        in_job("the learning rate outside the optimizer", "epochs: 2", "epochs: 2\n  learning_rate: 0.01",
               "recipe.learning_rate", "recipe.optimizer.learning_rate"),
        in_job("a misspelt key", "batch_size", "batchsize", "job.yaml:10", "batch_size"),
        in_job("a key in another style", "batch_size", "batchSize", "job.yaml:10", "batch_size"),
        in_job("a section of another name", "recipe:\n", "training:\n", "training", "recipe"),
        in_job("adamW", "type: adam", "type: adamW", "recipe.optimizer.type", "adamw"),
        in_job("an optimizer that is not there", "type: adam", "type: adagrad", "adagrad", "adamw", "sgd"),
        in_job("mse", "loss: softmax_cross_entropy", "loss: mse", "model.loss", "squared_error"),
        in_job("cross_entropy", "loss: softmax_cross_entropy", "loss: cross_entropy", "model.loss", "softmax_cross_entropy"),
        in_job("silu", "{hidden: [8]}", "{hidden: [8], activation: silu}", "model.mlp.activation", "silu", "'swish'"),
        in_job("cuda", "recipe:\n", "resources: {device: cuda}\nrecipe:\n", "resources.device", "gpu"),
        in_job("time in a wrong unit", "recipe:\n", "resources: {time_limit_seconds: 2 hours}\nrecipe:\n",
               "resources.time_limit_seconds", "2 hours", "number"),
        in_job("epochs in words", "epochs: 2", "epochs: ten", "recipe.epochs", "ten", "number"),
        in_job("a negative number of epochs", "epochs: 2", "epochs: -2", "recipe.epochs", "-2"),
        in_job("half an epoch", "epochs: 2", "epochs: 2.5", "recipe.epochs", "2.5"),
        in_job("a negative learning rate", "0.01", "-0.01", "recipe.optimizer.learning_rate", "-0.01"),
        in_job("a decimal comma", "0.01", "0,01", "job.yaml:11", "recipe.optimizer.learning_rate", "decimal point: 0.01"),
        in_job("a decimal comma on a line of its own", "  optimizer: {type: adam, learning_rate: 0.01}",
               "  optimizer:\n    learning_rate: 0,01", "job.yaml:12", "recipe.optimizer.learning_rate", "0.01"),
        in_job("thousands with a comma", "epochs: 2", "epochs: 1,000", "recipe.epochs", "without separators: 1000"),
        in_job("learning rate 1000", "type: adam, learning_rate: 0.01", "type: sgd, learning_rate: 1000",
               "LOSS_NOT_FINITE", "recipe.optimizer.learning_rate", "1000", exit_code=1,
               arguments=("--set", "dataset.csv.target=income", "--set", "model.loss=mean_squared_error", "--name", "fast",
                          "--wait")),
        in_job("a batch larger than the data", "batch_size: 8", "batch_size: 5000", "recipe.batch_size", "5000", "120"),
        in_job("a batch of none", "batch_size: 8", "batch_size: 0", "recipe.batch_size"),
        in_job("no hidden units", "[8]", "[0]", "model.mlp", "hidden: 0", "1.."),
        in_job("a name with spaces", "name: shop", "name: My Shop", "My Shop", "a-z"),
        in_job("the same name again", "epochs: 2", "epochs: 3", "shop", "JOB_EXISTS", exit_code=5),
        command("a --set without a value", "submit shop.yaml --set recipe.epochs", "recipe.epochs", "path=value"),
        command("a --set of a field that is not there", "submit shop.yaml --set recipe.epoch=3", "recipe.epoch", "'epochs'"),
        command("a --set without its section", "submit shop.yaml --set epochs=3", "epochs", "recipe.epochs"),
        command("a --set with a wrong value", "submit shop.yaml --set recipe.epochs=many", "recipe.epochs", "many"),
        command("a --set of a word with a wrong value", "submit shop.yaml --set recipe.optimizer.type=Adamm", "Adamm", "adam"),
    ],
    "Data": [
        in_job("a data file that is not there", "people.csv", "peple.csv", "peple.csv", exit_code=4),
        in_job("a folder instead of a file", "people.csv", "folder", "folder", "file", exit_code=4),
        in_job("an unknown target", "target: bought", "target: buyed", "buyed", "bought"),
        in_job("no target", "csv: {target: bought}", "csv: {}", "target"),
        with_data("semicolons", table(separator=";"), "csv.delimiter", "semicolons", "delimiter: ';'"),
        with_data("tabs", table(separator="\t"), "csv.delimiter", "tabs", "delimiter: \"\\t\""),
        with_data("Parquet", b"PAR1" + bytes(200) + b"PAR1", "data.csv", "Parquet", "to_csv"),
        with_data("an Excel file", b"PK\x03\x04\x14\x00\x06\x00" + bytes(200), "data.csv", "Excel", "CSV"),
        with_data("a picture", b"\x89PNG\r\n\x1a\n" + bytes(200), "data.csv", "PNG image", "folder"),
        with_data("zero bytes in the text", table().replace("Rome", "Ro\0me", 1), "data.csv", "zero byte", "line"),
        with_data("UTF-16", table().encode("utf-16"), "data.csv", "UTF-16", "UTF-8"),
        with_data("Latin-1", table().replace("Rome", "Köln").encode("latin-1"), "data.csv", "UTF-8"),
        with_data("an empty file", "", "data.csv", "empty"),
        with_data("a header and no rows", HEADER + "\n", "data.csv", "header", "no rows"),
        with_data("no header", table(header=ROWS[0]), "bought", "header"),
        with_data("a row too short", table(rows=[*ROWS[:5], "1,2", *ROWS[5:]]), "data.csv", "line 7", "4"),
        with_data("a number twice in place of names", table(header="7,7,city,bought"), "data.csv", "'7'", "twice", "header: false"),
        with_data("a quote that is not closed", table(rows=[*ROWS, '1,2,"Rome,no']), "data.csv", "quote", "line"),
        with_data("a target that is always the same", table(rows=[r.rsplit(",", 1)[0] + ",no" for r in ROWS]), "bought", "no"),
        with_data("a target that is missing in a row", table(rows=[*ROWS, "1,2,Rome,"]), "bought", "missing_target"),
        with_data("a target of words, to be learned as a number", table(), "bought", "number", "line 2",
                  old="target: bought", new="target: bought, target_kind: numeric"),
        with_data("a column to ignore that is not there", table(), "csv.ignore", "incme", "income",
                  old="target: bought", new="target: bought, ignore: [incme]"),
        command("upload of a file that is not there", "dataset upload --csv nothing.csv --target bought", "nothing.csv", exit_code=4),
        command("upload without a target", "dataset upload --csv people.csv", "target"),
        command("upload of a file without its kind", "dataset upload people.csv --target bought", "--csv people.csv"),
        command("upload with an unknown target", "dataset upload --csv people.csv --target buyed", "buyed", "bought"),
    ],
    "Using the model": [
        command("predict without rows", "predict shop", "--csv"),
        command("predict with a file that is not there", "predict shop --csv nothing.csv", "nothing.csv", exit_code=4),
        command("predict with a column missing", "predict shop --csv rows.csv", "income",
                files={"rows.csv": "age,city\n30,Rome\n"}),
        command("predict with words for numbers", "predict shop --csv rows.csv", "age", "thirty",
                files={"rows.csv": "age,income,city\nthirty,1000,Rome\n"}),
        command("predict with semicolons", "predict shop --csv rows.csv", "semicolons", "commas",
                files={"rows.csv": "age;income;city\n30;1000;Rome\n"}),
        command("predict by a job that has no model", "predict shpo --csv people.csv", "shpo", "trainyard model list", exit_code=4),
        command("generate with a model of a table", "generate shop --prompt Hello", "text", "rows", exit_code=5),
        command("export over a file", "model export shop --format onnx --out people.csv", "people.csv", "--overwrite", exit_code=5),
        command("export into a folder that has a model", "model export shop --out there", "there", "--overwrite", exit_code=5,
                files={"there/model.json": "{}"}),
        command("export of a format that is not there", "model export shop --format pickle", "pickle", "onnx"),
        command("export without saying of what", "export shop", "trainyard model export", "trainyard metrics export"),
        command("metrics into nothing", "metrics export shop", "--tensorboard", "--csv"),
        command("metrics over a file", "metrics export shop --csv people.csv", "people.csv", "--overwrite", "--csv", exit_code=5),
        command("a picture over a file", "plot shop --png people.csv", "people.csv", "--overwrite", "--png", exit_code=5),
        command("a plot of a metric that is not there", "plot shop --metric accuraccy", "accuraccy", "train/accuracy", exit_code=4),
    ],
}


class Mistakes(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        self = cls()
        cls.here = cls.folder / "here"
        self.write("here/people.csv", table())
        self.write("here/shop.yaml", JOB.replace("  loss: softmax_cross_entropy\n", ""))
        (cls.here / "folder").mkdir()
        cls.daemon.cli("submit", "shop.yaml", "--wait", cwd=cls.here)
        cls.daemon.cli("metrics", "export", "shop", "--csv", "metrics.csv", cwd=cls.here)

    def normalised(self, text):
        text = text.replace(str(self.folder), "FOLDER")
        text = re.sub(r"\b[0-9a-f]{32,64}\b", "DIGEST", text)
        text = re.sub(r"\b\d+(\.\d+)? (ms|s|min|h)\b", "TIME", text)
        # The step and the value depend on rounding.
        text = re.sub(r"the loss of step \d+ is \w+", "the loss of step N is inf", text)
        # The list of metrics contains some that depend on the time.
        text = re.sub(r"(there are train/accuracy), [^\[]*", r"\1 and others ", text)
        return re.sub(r"\b\d+(\.\d+)? ([KMGT]iB)\b", r"N \2", text)

    def play(self, title, arguments, words, exit_code, files, change):
        for name, content in files.items():
            self.write(f"here/{name}", content)
        done = self.daemon.cli(*arguments, cwd=self.here, check=False)
        told = self.normalised(done.stderr)
        text = f"## {title}\n"
        if change:
            text += "".join(f"job.yaml: {line}\n" for line in change.strip().splitlines())
        text += f"$ trainyard {' '.join(arguments)}\n{told}exit {done.returncode}\n\n"
        wrong = [f"says nothing of {word!r}" for word in words if word not in told]
        if done.returncode != exit_code:
            wrong.append(f"exit {done.returncode} and not {exit_code}")
        if len(told) > 2000:
            wrong.append("is too long to be read")
        if done.stdout and exit_code != 1:  # 1: the job ran and failed, and its name is printed
            wrong.append(f"writes to standard output: {done.stdout!r}")
        return text, [f"{title}: {w}\n{text}" for w in wrong]

    def played(self):
        out, wrong = "", []
        for chapter, mistakes in MISTAKES.items():
            out += f"# {chapter}\n\n"
            for mistake in mistakes:
                text, faults = self.play(*mistake)
                out += text
                wrong += faults
        return out, wrong

    def test_each_message_names_place_cause_and_what_would_be_accepted(self):
        self.assertGreaterEqual(sum(map(len, MISTAKES.values())), 60)
        out, wrong = self.played()
        if WRITE:
            EXPECTED.write_text(out)
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        if not WRITE:
            expected = EXPECTED.read_text()
            changes = difflib.unified_diff(expected.splitlines(), out.splitlines(), EXPECTED.name, "now", lineterm="")
            self.assertEqual(out, expected, "messages changed; if that is meant, run this file with --write\n" +
                             "\n".join(changes))


WRITE = "--write" in sys.argv

if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[a for a in sys.argv if a != "--write"])
