"""Tests that torch.nn.Modules are converted to jobs. Skipped without PyTorch and its exporter's packages."""

import copy

import pytest
from conftest import NO_TORCH, PROGRAM, digits_spec
from test_jobs import refused

import trainyard

torch = pytest.importorskip("torch", reason=NO_TORCH)
pytest.importorskip("onnxscript", reason=NO_TORCH)

from trainyard.torch_models import from_torch  # noqa: E402


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                               torch.nn.Flatten(), torch.nn.Linear(512, 10))


def test_a_module_continues_training_from_its_weights(client, module, tmp_path):
    parts = from_torch(module, torch.zeros(2, 1, 8, 8), tmp_path / "net", program=PROGRAM)
    assert module.training and (tmp_path / "net/model.safetensors").exists()
    spec = digits_spec(steps=1, **parts["recipe"])
    spec["recipe"].pop("epochs")
    spec["model"] = parts["model"]
    job = client.wait(client.submit(spec))
    assert job.plan.initial_weights.missing.count == 0 and job.plan.initial_weights.taken.count >= 6
    fresh = dict(spec, recipe={k: v for k, v in spec["recipe"].items() if k != "initial_weights"})
    assert client.wait(client.submit(fresh)).progress.metrics["train/loss"] != job.progress.metrics["train/loss"]


def test_a_frozen_module_trains_only_its_new_head(client, module, tmp_path):
    frozen = copy.deepcopy(module).requires_grad_(False)
    frozen[-1] = torch.nn.Linear(512, 10)
    parts = from_torch(frozen, torch.zeros(2, 1, 8, 8), tmp_path / "net", program=PROGRAM)
    assert len(parts["recipe"]["parameter_groups"]) == 2  # one freezes all parameters, one excludes the head
    spec = digits_spec(**parts["recipe"])
    spec["model"] = parts["model"]
    assert client.check(spec).plan.trained_parameter_count == 512 * 10 + 10


def test_dropout_is_part_of_the_model(tmp_path):
    nn = torch.nn
    block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=True)
    parts = from_torch(nn.Sequential(block, nn.Dropout(0.5), nn.Flatten(), nn.Linear(32, 3)), torch.zeros(2, 4, 8),
                       tmp_path / "net", program=PROGRAM)
    layers = parts["model"]["layers"]
    assert [layer["attention"]["dropout"] for layer in layers if "attention" in layer] == [0.25]
    assert [layer["dropout"]["ratio"] for layer in layers if "dropout" in layer] == [0.25] * 3 + [0.5]


class Parts(torch.nn.Module):
    """Takes the halves of eight numbers apart."""

    def __init__(self, halves):
        super().__init__()
        self.halves, self.fc, self.out = halves, torch.nn.Linear(8, 8), torch.nn.Linear(4, 3)

    def forward(self, x):
        a, b = self.halves(self.fc(x))
        return self.out(a * torch.sigmoid(b))


@pytest.mark.parametrize("halves", [lambda x: x.chunk(2, 1), lambda x: x.split(4, 1), lambda x: x.split([4, 4], 1),
                                    lambda x: x.view(-1, 2, 4).unbind(1)])
def test_parts_of_a_tensor_are_taken(halves, tmp_path):
    parts = from_torch(Parts(halves), torch.zeros(2, 8), tmp_path / "net", program=PROGRAM)
    assert sum("gemm" in layer for layer in parts["model"]["layers"]) == 2
    assert "parameter_groups" not in parts["recipe"]


def test_sines_and_cosines_of_positions_are_constants(tmp_path):
    class Rotary(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(8, 8)

        def forward(self, x):
            angle = torch.arange(8).float() * 0.1
            return self.fc(x) * angle.cos() + self.fc.bias * angle.sin()

    layers = from_torch(Rotary(), torch.zeros(2, 8), tmp_path / "net", program=PROGRAM)["model"]["layers"]
    assert [layer["parameter"].get("trainable", True) for layer in layers if "parameter" in layer].count(False) == 2


def test_token_types_that_are_not_given_are_rows_of_their_table(tmp_path):
    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.kind, self.out = torch.nn.Embedding(50, 8), torch.nn.Embedding(2, 8), torch.nn.Linear(8, 3)
            self.register_buffer("kinds", torch.zeros(1, 6, dtype=torch.long))

        def forward(self, x):
            return self.out((self.word(x) + self.kind(self.kinds)).mean(1))

    layers = from_torch(Words(), torch.zeros(2, 6, dtype=torch.long), tmp_path / "net", program=PROGRAM)["model"]["layers"]
    assert [layer["parameter"]["shape"] for layer in layers if "parameter" in layer] == [[2, 8]]


def test_a_gru_of_several_layers_is_imported(tmp_path):
    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.token = torch.nn.Parameter(torch.ones(1, 1, 6) * 0.1)
            self.rnn = torch.nn.GRU(6, 4, 2, batch_first=True)

        def forward(self, x):
            return self.rnn(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1))[0][:, -1]

    parts = from_torch(Recurrent(), torch.zeros(2, 4, 6), tmp_path / "net", program=PROGRAM)
    assert sum("gru" in layer for layer in parts["model"]["layers"]) == 2


def refused_module(module, shape, folder, *words):
    return refused(trainyard.InvalidArgumentError, lambda: from_torch(
        module, torch.zeros(2, *shape), folder / "refused", program=PROGRAM), *words)


@pytest.mark.parametrize("module, words", [
    (torch.nn.Embedding(5, 4, padding_idx=0), "padding_idx=0"),
    (torch.nn.Embedding(5, 4, max_norm=1.0), "max_norm=1.0"),
    (torch.nn.Embedding(5, 4, scale_grad_by_freq=True), "scale_grad_by_freq"),
    (torch.nn.LSTM(4, 4, 2, dropout=0.5), "dropout=0.5"),
    (torch.nn.GRU(4, 4, 2, dropout=0.5), "dropout=0.5"),
    (torch.nn.BatchNorm1d(4, track_running_stats=False), "track_running_stats=False"),
    (torch.nn.BatchNorm1d(4, momentum=None), "momentum=None"),
    (torch.nn.InstanceNorm1d(4, track_running_stats=True), "track_running_stats=True"),
])
def test_a_setting_that_onnx_cannot_express_is_refused_by_its_submodule(module, words, tmp_path):
    error = refused_module(torch.nn.ModuleDict({"inner": module}), (4,), tmp_path, "inner: ", words)
    assert error.reason == "MODULE_UNSUPPORTED" and not (tmp_path / "refused").exists()


class TwoNorms(torch.nn.Module):
    """Two layers that share one weight."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.LayerNorm(4), torch.nn.LayerNorm(4)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x).tanh())


@pytest.mark.parametrize("module, shape, words", [
    (torch.nn.Dropout2d(0.5), (3, 6, 6), "no layer"),
    (torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(3, 4, 3)), (3, 6, 6), "weight"),
    (TwoNorms(), (4,), "used elsewhere"),
])
def test_modules_that_no_layer_trains_equally_are_refused(module, shape, words, tmp_path):
    assert refused_module(module, shape, tmp_path, words).reason == "ONNX_UNSUPPORTED"


def test_modules_without_a_layer_are_reported(module, tmp_path):
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.sort(x, dim=1).values

    error = refused(trainyard.InvalidArgumentError,
                    lambda: from_torch(Odd(), torch.zeros(2, 4), tmp_path / "odd", program=PROGRAM), "TopK")
    assert error.reason == "ONNX_UNSUPPORTED"
    refused(trainyard.NotFoundError,
            lambda: from_torch(module, torch.zeros(2, 1, 8, 8), tmp_path / "x", program="no-such-program"), "program")
