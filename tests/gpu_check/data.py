"""The small real datasets on which stage (c) trains, cut from the larger ones that tests use."""

import pathlib
import shutil
import tarfile

IMAGES_OF_A_CLASS = 200  # images from each of the ten classes
FILES = ("mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz", "tinyshakespeare/input.txt")
CIFAR10 = "cifar10/cifar10-2000.tar"
CIFAR10_WHOLE = "cifar10/cifar10-jpg.tar.xz"


def missing(folder):
    """Describes the files that cut() would not find, in one sentence; empty if all exist."""
    lacking = [name for name in (*FILES, CIFAR10_WHOLE) if not (pathlib.Path(folder) / name).is_file()]
    if not lacking:
        return ""
    return (f"{', '.join(lacking)}: not in {folder}. --data FOLDER or TRAINYARD_TEST_DATA names a folder with MNIST's test "
            "files (IDX, gzip), CIFAR-10 as JPEG files (train/CLASS/*.jpg in a .tar.xz) and tiny Shakespeare under "
            "these names")


def cut(source, target):
    """Copies MNIST's test files, 2,000 unchanged images of CIFAR-10, and tiny Shakespeare."""
    source, target = pathlib.Path(source), pathlib.Path(target)
    for name in FILES:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
    (target / CIFAR10).parent.mkdir(parents=True, exist_ok=True)
    taken = {}
    with tarfile.open(source / CIFAR10_WHOLE, "r|xz") as whole, tarfile.open(target / CIFAR10, "w") as few:
        for member in whole:
            parts = pathlib.PurePosixPath(member.name).parts
            if not member.isfile() or parts[0] != "train":
                continue
            taken[parts[1]] = taken.get(parts[1], 0) + 1
            if taken[parts[1]] <= IMAGES_OF_A_CLASS:
                few.addfile(member, whole.extractfile(member))
