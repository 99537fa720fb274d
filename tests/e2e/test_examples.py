"""Tests of examples whose data is not part of the repository: one command downloads it. The tests
use invented data, since they have no network. The data must have the form that the specs expect,
and a download with other content must not be written."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import BIN, EXAMPLES

sys.path.insert(0, str(EXAMPLES))
import get_data  # noqa: E402


def data_of(spec):
    """Returns the files and folders named in a dataset's spec."""
    text = re.sub(r"#.*", "", spec.read_text())
    return re.findall(r"^  (?:path|\w+_(?:images|labels)): (\S+)", text, re.MULTILINE)


class Examples(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="examples-test-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_every_spec_has_its_data_or_a_command_that_brings_it(self):
        brought = {path: name for name, (_, files) in get_data.SETS.items() for path in files}
        for spec in sorted(EXAMPLES.glob("*.yaml")):
            self.assertTrue(data_of(spec), spec)
            for path in data_of(spec):
                if path in brought:
                    first = spec.read_text().partition("\ndataset:")[0]
                    self.assertTrue(f"get_data.py {brought[path]} " in first or "The data is that of" in first, spec)
                else:
                    self.assertTrue((EXAMPLES / path).is_file(), f"{spec}: {path}")

    def test_generated_data_has_the_form_that_the_specs_expect(self):
        subprocess.run([sys.executable, EXAMPLES / "get_data.py", "--made", "--into", self.folder, *get_data.SETS], check=True,
                       stdout=subprocess.DEVNULL)
        for spec in sorted(EXAMPLES.glob("*.yaml")):
            # Skipped: the data of digits is in the repository, and training the tokenizer of shakespeare_bpe takes
            # minutes.
            if spec.name.startswith(("digits", "shakespeare_bpe")):
                continue
            copied = shutil.copy(spec, self.folder)
            done = subprocess.run([BIN / "trainyard", "plan", copied, "--local"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, f"{spec.name}: {done.stderr}")

    def test_downloads_with_a_wrong_digest_are_not_written(self):
        source = self.folder / "rows.csv"
        source.write_text("a,b\n1,2\n")
        with self.assertRaises(SystemExit) as refused:
            get_data.download("tabular/rows.csv", source.as_uri(), "0" * 64)
        self.assertIn("expected " + "0" * 64, str(refused.exception))
        digest = "492d5ea496056f1a6a6592241032fab764c321596317930b4fa0e1e8bc3b7470"
        self.assertEqual(get_data.download("tabular/rows.csv", source.as_uri(), digest), source.read_bytes())

    def test_an_unknown_dataset_name_lists_the_known_ones(self):
        done = subprocess.run([sys.executable, EXAMPLES / "get_data.py", "titanik"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("'titanik' is not known, expected titanic", done.stderr)


if __name__ == "__main__":
    unittest.main()
