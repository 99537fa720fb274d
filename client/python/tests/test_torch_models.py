"""A torch.nn.Module into a job. Skipped without PyTorch and its exporter's packages."""

import pytest
from conftest import PROGRAM, digits_spec
from test_jobs import refused

import trainyard

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from trainyard.torch_models import from_torch  # noqa: E402


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                               torch.nn.Flatten(), torch.nn.Linear(512, 10))


def test_a_module_trains_on_and_starts_from_its_weights(client, module, tmp_path):
    parts = from_torch(module, torch.zeros(2, 1, 8, 8), tmp_path / "net", program=PROGRAM)
    assert module.training and (tmp_path / "net/model.safetensors").exists()
    spec = digits_spec(steps=1, **parts["recipe"])
    spec["recipe"].pop("epochs")
    spec["model"] = parts["model"]
    job = client.wait(client.submit(spec))
    assert job.plan.initial_weights.missing.count == 0 and job.plan.initial_weights.taken.count >= 6
    fresh = dict(spec, recipe={k: v for k, v in spec["recipe"].items() if k != "initial_weights"})
    assert client.wait(client.submit(fresh)).progress.metrics["train/loss"] != job.progress.metrics["train/loss"]


def test_what_has_no_layer_is_told(module, tmp_path):
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.sort(x, dim=1).values

    error = refused(trainyard.InvalidArgumentError,
                    lambda: from_torch(Odd(), torch.zeros(2, 4), tmp_path / "odd", program=PROGRAM), "TopK")
    assert error.reason == "ONNX_UNSUPPORTED"
    refused(trainyard.NotFoundError,
            lambda: from_torch(module, torch.zeros(2, 1, 8, 8), tmp_path / "x", program="no-such-program"), "program")
