"""Tests that every mutant of list.toml fits the sources, so that a change that moves a mutated
piece is noticed, and that scripts/mutants refuses a list that does not fit. Builds nothing."""

import importlib.machinery
import importlib.util
import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def load():
    loader = importlib.machinery.SourceFileLoader("mutants", str(SOURCE / "scripts/mutants"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
    sys.modules["mutants"] = module  # dataclasses look for it there
    loader.exec_module(module)
    return module


mutants = load()


def one(find, becomes, within=""):
    return mutants.Mutant(7, "somewhere/a.cc", "a bug", find, becomes, within, ["a_test"])


class List(unittest.TestCase):
    def setUp(self):
        self.mutants = mutants.read_list((SOURCE / mutants.LIST).read_text())

    def test_every_mutant_fits_the_sources(self):
        wrong = []
        for mutant in self.mutants:
            try:
                mutants.apply_all([mutant])
            except mutants.Mistake as mistake:
                wrong.append(str(mistake))
        self.maxDiff = None
        self.assertEqual(wrong, [])
        mutants.apply_all(self.mutants)  # all of them together must fit, too

    def test_every_mutant_is_run_by_an_existing_program(self):
        known = set()
        for page in SOURCE.glob("tests/*/CMakeLists.txt"):
            known.update(re.findall(r"trainyard_test\((\w+)", page.read_text()))
        for mutant in self.mutants:
            self.assertTrue(mutant.tests, mutant.name)
            for test in mutant.tests:
                self.assertIn(mutants.program_of(test), known, mutant.name)

    def test_the_product_does_not_mention_mutants(self):
        for path in {mutant.path for mutant in self.mutants}:
            self.assertNotIn("mutant", (SOURCE / path).read_text(), path)


class Rewriting(unittest.TestCase):
    def rewritten(self, text, *changes):
        return mutants.mutate(text, list(changes)).removeprefix(mutants.INCLUDE)

    def test_a_mutated_expression_keeps_its_line_breaks(self):
        self.assertEqual(self.rewritten("f(a <\n  b);", one("a < b", "a > b")),
                         "f((::trainyard::mutant(7) ? (a > b) : (a <\n  b)));")

    def test_a_mutated_statement_is_omitted_or_replaced(self):
        self.assertEqual(self.rewritten("if (x) wait();", one("wait();", "")),
                         "if (x) { if (!::trainyard::mutant(7)) { wait(); } }")
        self.assertEqual(self.rewritten("wait();", one("wait();", "go();")),
                         "{ if (::trainyard::mutant(7)) { go(); } else { wait(); } }")

    def test_within_chooses_among_several_places(self):
        self.assertEqual(self.rewritten("x = s; y = s;", one("s", "t", within="y = s")),
                         "x = s; y = (::trainyard::mutant(7) ? (t) : (s));")

    def test_text_that_is_missing_or_ambiguous_is_refused_by_name(self):
        for text, count in [("b", 0), ("a + a", 2)]:
            with self.assertRaisesRegex(mutants.Mistake, rf"mutant 7 \(somewhere/a\.cc.*{count} places"):
                self.rewritten(text, one("a", "c"))

    def test_mutants_that_overlap_are_refused(self):
        with self.assertRaisesRegex(mutants.Mistake, "overlaps"):
            self.rewritten("a + b", one("a + b", "c"), one("b", "c"))

    def test_a_failure_is_named_by_its_test(self):
        failed = "[ RUN      ] A.B\nx\n[  FAILED  ] A.B (3 ms)\n"
        self.assertEqual(mutants.name_of_failure(failed, 1), "A.B")
        self.assertEqual(mutants.name_of_failure("[ RUN      ] A.B\n", None), "A.B (hangs)")
        self.assertEqual(mutants.name_of_failure("[ RUN      ] A.B\n", -11), "A.B (SIGSEGV)")


if __name__ == "__main__":
    unittest.main()
