"""Tests of folders of images as datasets, and of predictions for image files."""

import io
import json
import tarfile

import numpy as np
import pytest
from conftest import SOURCE
from test_jobs import refused

import trainyard
from trainyard import v1
from trainyard._tar import TarFolder, is_ignored_name

Image = pytest.importorskip("PIL.Image")


def save(path, shade, size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, shade).save(path)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    root = tmp_path_factory.mktemp("images") / "pictures"
    for i in range(20):
        save(root / "train" / ("dark", "light")[i % 2] / f"{i}.png", (20, 220)[i % 2] + i, (8 + i % 3, 8))
        save(root / "test" / ("dark", "light")[i % 2] / f"{i}.jpg", (30, 210)[i % 2] + i)
    (root / ".hidden").write_text("x")
    (root / "notes.txt").write_text("x")
    return root


SPEC = {"path": "pictures", "images": {"size": [8, 8], "resize": "pad"}}


@pytest.fixture(scope="module")
def shades(client, pictures):
    client.upload_dataset(SPEC, folder=pictures.parent, name="py-shades")
    return client.wait(client.submit({
        "dataset": {"name": "py-shades"}, "model": {"mlp": {"hidden": [8]}},
        "recipe": {"epochs": 12, "batch_size": 4, "optimizer": {"type": "adam", "learning_rate": 0.02}}}, name="py-shades"))


def test_a_folder_is_a_dataset_and_the_command_line_packs_the_same_bytes(client, daemon, pictures):
    dataset = client.upload_dataset(SPEC, folder=pictures.parent, name="py-shades")
    assert list(dataset.schema.image) == [1, 8, 8] and list(dataset.schema.classes) == ["dark", "light"]
    assert (dataset.schema.train_rows, dataset.schema.test_rows, dataset.schema.skipped_files) == (20, 20, 1)
    assert dataset.schema.resize == v1.ImagesFormat.PAD
    told = json.loads(daemon.cli("dataset", "upload", "--images", str(pictures), "--size", "8,8", "--resize", "pad", "-o",
                                 "json").stdout)
    assert told["digest"] == dataset.digest
    assert [s.sha256 for s in dataset.spec.sources] == [s["sha256"] for s in told["spec"]["sources"]]


def test_what_systems_and_editors_leave_in_folders_is_ignored():
    lines = (SOURCE / "tests/golden/ignored_names.txt").read_text().splitlines()
    cases = [line for line in lines if not line.startswith("# ")]
    assert len(cases) > 30 and is_ignored_name(b"Icon\r")
    assert {line for line in cases if is_ignored_name(line[2:].encode()) != line.startswith("+")} == set()


def test_the_tar_is_readable_by_others_in_any_pieces(tmp_path):
    root = tmp_path / "files"
    contents = {"a/1.png": b"one", "a.png": b"x" * 512, "b/" + "n" * 99: b"", "c" * 120 + "/" + "d" * 130: b"long",
                "e" * 99 + "/" + "f" * 99: b"split", "V\u00f6gel/1.png": b"v"}
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "c/none/.git").mkdir(parents=True)
    packed = TarFolder(root)
    whole = packed[0:len(packed)]
    assert len(whole) == len(packed)
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
        assert [member.name for member in archive if member.isdir()] == ["c/none"]
    assert found == contents and list(found) == sorted(contents, key=str.encode)
    for size in (1, 7, 511, 512, 513, 4000):
        assert b"".join(packed.pieces(size)) == whole
    (tmp_path / "empty").mkdir()
    refused(trainyard.InvalidArgumentError, lambda: TarFolder(tmp_path / "empty"), "there are no files")
    (root / "a/2.png").symlink_to("1.png")
    assert b"a/2.png" in TarFolder(root)[0:len(TarFolder(root))]
    (root / "a/3.png").symlink_to(tmp_path / "empty")
    refused(trainyard.InvalidArgumentError, lambda: TarFolder(root), "a link out of the folder")


def test_predict_gives_the_same_for_paths_bytes_pillow_and_arrays(client, shades, pictures, monkeypatch):
    assert client.job(shades).progress.metrics["test/accuracy"] == 1
    paths = sorted((pictures / "train").glob("*/*.png"))
    wanted = client.predict(shades, paths)
    assert list(wanted.labels) == [path.parent.name for path in paths]
    images = [Image.open(path) for path in paths]
    arrays = [np.asarray(image) for image in images]
    for rows in ([path.read_bytes() for path in paths], images, arrays, [array[:, :, None] for array in arrays],
                 [image.convert("RGB") for image in images]):
        assert client.predict(shades, rows) == wanted
    monkeypatch.setattr("trainyard.predictions.REQUEST_IMAGES_MAX", 3)
    assert client.predict(shades, paths) == wanted


def test_arrays_of_16_bits_are_predicted_as_the_files(client, tmp_path):
    generator, arrays, paths = np.random.default_rng(0), [], []
    for i in range(24):
        arrays.append(generator.integers(0, 50, (8, 8), np.uint16) + np.uint16((1000, 1100)[i % 2]))
        paths.append(tmp_path / "deep" / ("low", "high")[i % 2] / f"{i}.png")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(arrays[-1]).save(paths[-1])
    client.upload_dataset({"path": "deep", "images": {}}, folder=tmp_path, name="py-deep")
    job = client.wait(client.submit({
        "dataset": {"name": "py-deep"}, "model": {"mlp": {"hidden": [8]}},
        "recipe": {"epochs": 12, "batch_size": 4, "optimizer": {"type": "adam", "learning_rate": 0.02}}}, name="py-deep"))
    wanted = client.predict(job, paths)
    assert list(wanted.labels) == [path.parent.name for path in paths]
    assert client.predict(job, arrays) == wanted
    refused(trainyard.InvalidArgumentError, lambda: client.predict(job, [np.zeros((8, 8, 3), np.uint16)]),
            "an array of uint16, expected bytes (uint8), or uint16 for gray")


def test_files_that_are_not_images_are_refused(client, shades, pictures, tmp_path):
    (tmp_path / "text.png").write_text("hello")
    good = pictures / "test" / "dark" / "0.jpg"
    refused(trainyard.InvalidArgumentError, lambda: client.predict(shades, [good, tmp_path / "text.png"]), "text.png")
    refused(trainyard.InvalidArgumentError, lambda: client.predict(shades, [good, 3]), "rows[1]")
    refused(trainyard.InvalidArgumentError, lambda: client.predict(shades, [np.zeros((8, 8))]), "expected bytes")
    refused(trainyard.NotFoundError, lambda: client.predict(shades, [tmp_path / "none.png"]), "none.png")
    refused(trainyard.InvalidArgumentError,
            lambda: client.upload_dataset({"path": "pictures", "images": {}}, folder=pictures.parent), "images.size")
    refused(trainyard.InvalidArgumentError,
            lambda: client.upload_dataset({"path": "x", "images": {}, "cifar": {}}), "images and cifar")
