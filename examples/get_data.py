#!/usr/bin/env python3
"""Downloads the data that examples need and that the project does not include. Needs only the standard library.

    python3 examples/get_data.py                      # lists the datasets
    python3 examples/get_data.py titanic mnist        # downloads these into examples/
    python3 examples/get_data.py titanic --made       # generates data of the same form, without a network

Generated data is for trying a spec: it has the same columns or sizes and something to learn in it, but the results say
nothing about those on the real data. Downloads are compared with their SHA-256. Existing files are kept.
"""

import argparse
import csv
import gzip
import hashlib
import io
import pathlib
import random
import struct
import sys
import tarfile
import urllib.request
import zlib

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 60
SEABORN = "https://raw.githubusercontent.com/mwaskom/seaborn-data/master/"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()

# The description of each dataset, and its files with their URL and the SHA-256 of their decompressed content. CIFAR-10 is one
# archive.
SETS = {
    "titanic": ("891 passengers, who survived", {"tabular/titanic.csv": (
        SEABORN + "titanic.csv", "81787d320d7f7b03df935e91de8bd19e11d45c5bbcab86ef4d4a76dc91b7d4f2")}),
    "penguins": ("344 penguins of three species", {"tabular/penguins.csv": (
        SEABORN + "penguins.csv", "e07636bd8af74260099ea2f8678e2eabbf35def579940cc76f67061ee16c06c1")}),
    "diamonds": ("53,940 diamonds and their prices", {"tabular/diamonds.csv": (
        SEABORN + "diamonds.csv", "9574730b03aba241d899c4a97511c5061b19358fab89510774fb6c24168345c4")}),
    "ag_news": ("7,600 news items in four classes", {"ag_news/test.csv": (
        "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/test.csv",
        "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699")}),
    "tinyshakespeare": ("1.1 MB of plays", {"tinyshakespeare/input.txt": (
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed")}),
    "mnist": ("70,000 handwritten digits of 28 x 28 pixels", {
        "mnist/train-images-idx3-ubyte.gz": (
            MNIST + "train-images-idx3-ubyte.gz",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        "mnist/train-labels-idx1-ubyte.gz": (
            MNIST + "train-labels-idx1-ubyte.gz",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        "mnist/t10k-images-idx3-ubyte.gz": (
            MNIST + "t10k-images-idx3-ubyte.gz",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        "mnist/t10k-labels-idx1-ubyte.gz": (
            MNIST + "t10k-labels-idx1-ubyte.gz",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2")}),
    "cifar10": ("60,000 photographs of 32 x 32 pixels in ten classes, 170 MB", {"cifar10": (CIFAR10, "")}),
}


def content_of(path, data):
    return gzip.decompress(data) if path.endswith(".gz") else data


def download(path, url, digest):
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        data = answer.read()
    found = hashlib.sha256(content_of(path, data)).hexdigest()
    if digest and found != digest:
        raise SystemExit(f"{url}: what came has the SHA-256 {found}, expected {digest}; nothing was written")
    return data


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


def png(width, height, rgb):
    """Encodes an image, given as rows of three bytes per pixel, as PNG."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + rgb[i * 3 * width:(i + 1) * 3 * width] for i in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def unpack_cifar10(data):
    """Yields (part/CLASS/number.png, image) for each record of the binary version: a byte for the class, then 1,024 bytes for
    each color."""
    record, plane = 3073, 1024
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            name = pathlib.PurePath(member.name).name
            if not name.endswith("_batch.bin") and not name.startswith("data_batch_"):
                continue
            batch = archive.extractfile(member).read()
            if len(batch) != 10_000 * record:
                raise SystemExit(f"{member.name}: {len(batch)} bytes, expected {10_000 * record}")
            part = "test" if name.startswith("test") else "train"
            for i in range(0, len(batch), record):
                r, g, b = (batch[i + 1 + c * plane:i + 1 + (c + 1) * plane] for c in range(3))
                rgb = bytes(v for pixel in zip(r, g, b) for v in pixel)
                yield f"{part}/{CIFAR10_CLASSES[batch[i]]}/{name[:-4]}-{i // record:05}.png", png(32, 32, rgb)


# --- generated data, which is always the same --------------------------------------------------------


def table(header, rows):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue().encode()


def make_titanic(some):
    header = "survived pclass sex age sibsp parch fare embarked class who adult_male deck embark_town alive alone".split()
    rows = []
    for _ in range(891):
        pclass, female, age = some.choice((1, 2, 3, 3)), some.random() < 0.35, round(some.uniform(1, 70))
        lives = some.random() < 0.1 + 0.55 * female + 0.12 * (3 - pclass) + 0.1 * (age < 10)
        sibsp, parch, port = some.choice((0, 0, 0, 1, 2)), some.choice((0, 0, 0, 1)), some.choice("SSSCQ")
        rows.append((int(lives), pclass, "female" if female else "male", age if some.random() < 0.8 else "", sibsp, parch,
                     round(some.uniform(5, 20) * (4 - pclass) ** 1.5, 2), port, ("First", "Second", "Third")[pclass - 1],
                     "child" if age < 16 else "woman" if female else "man", not female and age >= 16, "",
                     {"S": "Southampton", "C": "Cherbourg", "Q": "Queenstown"}[port], "yes" if lives else "no",
                     sibsp + parch == 0))
    return {"tabular/titanic.csv": table(header, rows)}


def make_penguins(some):
    kinds = (("Adelie", 38.8, 18.3, 190, 3700), ("Chinstrap", 48.8, 18.4, 196, 3730), ("Gentoo", 47.5, 15.0, 217, 5080))
    rows = []
    for i in range(344):
        species, *middles = kinds[i % 3]
        measures = [round(m * some.gauss(1, 0.05), 1) for m in middles]
        island = {"Adelie": "Torgersen", "Chinstrap": "Dream", "Gentoo": "Biscoe"}[species]
        missing = some.random() < 0.02
        rows.append((species, island, *([""] * 4 if missing else measures), some.choice(("MALE", "FEMALE", ""))))
    header = "species island bill_length_mm bill_depth_mm flipper_length_mm body_mass_g sex".split()
    return {"tabular/penguins.csv": table(header, rows)}


def make_diamonds(some):
    cuts, colors = ("Fair", "Good", "Very Good", "Premium", "Ideal"), "JIHGFED"
    clarities = ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")
    rows = []
    for _ in range(10_000):
        carat = round(some.lognormvariate(-0.4, 0.55) + 0.2, 2)
        cut, color, clarity = some.randrange(5), some.randrange(7), some.randrange(8)
        price = 4000 * carat ** 1.7 * (1 + 0.03 * cut) * (1 + 0.05 * color) * (1 + 0.09 * clarity) / 1.6
        x = round(6.5 * carat ** (1 / 3), 2)
        rows.append((carat, cuts[cut], colors[color], clarities[clarity], round(some.gauss(61.7, 1.4), 1),
                     round(some.gauss(57, 2)), round(price * some.lognormvariate(0, 0.08)), x, x, round(0.62 * x, 2)))
    return {"tabular/diamonds.csv": table("carat cut color clarity depth table price x y z".split(), rows)}


def make_ag_news(some):
    topics = ("minister election treaty border president embassy", "match coach season league goal champion",
              "shares profit market bank merger oil", "software chip satellite browser research server")
    others = "the a new said after on over week report plan two first more its for with as year".split()
    rows = []
    for _ in range(7600):
        topic = some.randrange(4)

        def words(count):
            return " ".join(some.choice(topics[topic].split()) if some.random() < 0.25 else some.choice(others)
                            for _ in range(count))
        rows.append((topic + 1, words(7).capitalize(), words(25).capitalize() + "."))
    header, *body = rows
    return {"ag_news/test.csv": table(header, body)}


def make_tinyshakespeare(some):
    names, verbs = ("ROMEO", "JULIET", "NURSE", "TYBALT"), ("speak", "hear", "love", "forget", "follow", "betray")
    things = ("my lord", "this night", "thy name", "the sweet rose", "my poor heart", "that cruel sword")
    ends = (".", "!", "?", ", I pray thee.")
    lines = []
    for _ in range(8000):
        lines.append(f"{some.choice(names)}:\nI {some.choice(verbs)} {some.choice(things)} and "
                     f"{some.choice(verbs)} {some.choice(things)}{some.choice(ends)}\n\n")
    return {"tinyshakespeare/input.txt": "".join(lines).encode()}


def make_mnist(some):
    """Makes images of the real digits in digits.csv.gz, which have 8 x 8 pixels, by enlarging and shifting them at
    random."""
    with gzip.open(HERE / "digits.csv.gz", "rt") as file:
        digits = [[int(v) for v in line.split(",")] for line in file]
    files = {}
    for part, count in (("train", 6000), ("t10k", 1000)):
        images, labels = bytearray(), bytearray()
        for _ in range(count):
            *pixels, label = some.choice(digits[:1400] if part == "train" else digits[1400:])
            top, left = some.randrange(5), some.randrange(5)
            rows = [bytes(28)] * top
            for y in range(24):
                line = bytes(min(255, 16 * pixels[y // 3 * 8 + x // 3]) for x in range(24))
                rows.append(bytes(left) + line + bytes(4 - left))
            images += b"".join(rows + [bytes(28)] * (4 - top))
            labels.append(label)
        packed = {"images-idx3": struct.pack(">4I", 0x803, count, 28, 28) + images,
                  "labels-idx1": struct.pack(">2I", 0x801, count) + labels}
        for name, data in packed.items():
            files[f"mnist/{part}-{name}-ubyte.gz"] = gzip.compress(data, 1, mtime=0)
    return files


def make_cifar10(some):
    """Makes images of noise with a square in the color of their class."""
    files = {}
    for part, count in (("train", 200), ("test", 20)):
        for number, name in enumerate(CIFAR10_CLASSES):
            color = (25 * number, 255 - 25 * number, 60 + 19 * (number * 7 % 10))
            for i in range(count):
                rgb = bytearray(some.randbytes(3 * 32 * 32))
                top, left = some.randrange(16), some.randrange(16)
                for y in range(top, top + 16):
                    rgb[3 * (32 * y + left):3 * (32 * y + left + 16)] = bytes(color) * 16
                files[f"cifar10/{part}/{name}/{i:03}.png"] = png(32, 32, bytes(rgb))
    return files


def get(name, made, folder):
    _, wanted = SETS[name]
    missing = {path: source for path, source in wanted.items() if not (folder / path).exists()}
    if not missing:
        print(f"{name}: is there already: {folder / next(iter(wanted))}")
    elif made:
        files = globals()["make_" + name](random.Random(name))
        for path, data in files.items():
            if not (folder / path).exists():
                write(folder / path, data)
        print(f"{name}: made up in {folder / next(iter(wanted))}")
    else:
        for path, (url, digest) in missing.items():
            data = download(path, url, digest)
            if name == "cifar10":
                part = folder / "cifar10.part"
                for image, pixels in unpack_cifar10(data):
                    write(part / image, pixels)
                part.replace(folder / path)
            else:
                write(folder / path, data)
            print(f"{name}: {folder / path}")


def main():
    parser = argparse.ArgumentParser(description="Brings the data of examples.", epilog="; ".join(
        f"{name}: {what}" for name, (what, _) in SETS.items()))
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SETS))
    parser.add_argument("--made", action="store_true", help="make up data of the same form, without a network")
    parser.add_argument("--into", type=pathlib.Path, default=HERE, metavar="FOLDER", help="default: the folder of this file")
    options = parser.parse_args()
    for name in options.names:
        if name not in SETS:
            parser.error(f"'{name}' is not known, expected {', '.join(SETS)}")
    if not options.names:
        for name, (what, files) in SETS.items():
            there = all((options.into / path).exists() for path in files)
            print(f"{name:16} {what}{' (is there)' if there else ''}")
    for name in options.names:
        try:
            get(name, options.made, options.into)
        except OSError as error:
            sys.exit(f"{name}: cannot be downloaded or stored: {error}; with --made data of the same form is made up")


if __name__ == "__main__":
    main()
