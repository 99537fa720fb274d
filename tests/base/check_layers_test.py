"""Tests that scripts/check_layers reports what docs/architecture.md forbids and reads the table
there."""

import importlib.machinery
import importlib.util
import pathlib
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def load():
    loader = importlib.machinery.SourceFileLoader("check_layers", str(SOURCE / "scripts/check_layers"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_layers", loader))
    loader.exec_module(module)
    return module


check_layers = load()
PAGE = """
| folder | may include | what it owns |
| --- | --- | --- |
| `src/base` | `kernels/*` | text |
| `src/train` | `src/base` `src/data` | the loop |
| `src/data` | `src/base` `src/data/load` | rows |
| `src/data/load` | `src/data` | batches |
| `server/store` | `wire` | SQLite |
| `kernels` | | loops |

| not | the table | of folders |
| --- | --- | --- |
| `trainyardd` | | |
"""
ROWS = check_layers.read_rows(PAGE)


class CheckLayers(unittest.TestCase):
    def refused(self, path, included):
        return check_layers.complaint(path, included, ROWS)

    def test_reads_the_table(self):
        self.assertEqual(list(ROWS), ["src/base", "src/train", "src/data", "src/data/load", "server/store", "kernels"])
        self.assertEqual(ROWS["src/train"], ["src/base", "src/data"])

    def test_allows_what_the_table_lists(self):
        for path, included in (("src/train/loop.cc", "src/base/text.h"), ("src/train/loop.cc", "src/train/loop.h"),
                               ("src/base/half.h", "kernels/math/half.h"), ("kernels/cuda/view.h", "kernels/math/half.h"),
                               ("server/store/job.h", "trainyard/v1/job_service.pb.h"), ("src/base/text.h", "string")):
            self.assertIsNone(self.refused(path, included), f"{path} {included}")

    def test_refuses_all_else(self):
        for path, included in (("src/base/text.h", "src/train/loop.h"), ("kernels/gemm.h", "src/base/text.h"),
                               ("src/train/loop.cc", "src/data/load/loader.h"),  # has its own row
                               ("src/train/loop.cc", "trainyard/v1/job_service.pb.h"),
                               ("server/store/job.h", "src/base/text.h"),
                               ("src/train/loop.cc", "grpcpp/grpcpp.h"), ("kernels/gemm.h", "google/protobuf/message.h"),
                               ("src/train/loop.cc", "cuda_runtime.h"), ("server/store/job.h", "cublasLt.h"),
                               ("src/train/loop.cc", "src/" + "nowhere/x.h")):
            self.assertIsNotNone(self.refused(path, included), f"{path} {included}")

    def test_this_tree_keeps_its_own_table(self):
        rows = check_layers.read_rows((SOURCE / check_layers.PAGE).read_text(encoding="utf-8"))
        self.assertGreater(len(rows), 30)
        for folder in rows:
            self.assertTrue((SOURCE / folder).is_dir(), folder)
        for folder, patterns in rows.items():
            for pattern in patterns:
                self.assertTrue(pattern == "wire" or (SOURCE / pattern.removesuffix("/*")).is_dir(), f"{folder}: {pattern}")


if __name__ == "__main__":
    unittest.main()
