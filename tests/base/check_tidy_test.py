"""Tests that scripts/check_tidy counts lines and parameters, finds cycles and refused words, and that its
list of exceptions can only shrink."""
import importlib.machinery
import importlib.util
import pathlib
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def load():
    loader = importlib.machinery.SourceFileLoader("check_tidy", str(SOURCE / "scripts/check_tidy"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_tidy", loader))
    loader.exec_module(module)
    return module


check_tidy = load()

CODE = """namespace trainyard {

int sum(int a, const std::map<int, int>& b,
        int c) {
  if (a) {
    return 1;
  }
  return a + c;
}

class Box {
 public:
  Box(int a, int b)
      : a_(a), b_(b) {
    check();
  }
  int area() const {
    return a_ * b_;
  }
};

const std::vector<Row> rows = {
    {"a", 1},
};
}  // namespace trainyard
"""


class CheckTidyTest(unittest.TestCase):
    def test_functions_with_their_lines_and_parameters(self):
        self.assertEqual(list(check_tidy.functions_of(CODE)),
                         [("sum", 7, 3), ("Box", 4, 2), ("area", 3, 0)])
        self.assertEqual(list(check_tidy.python_functions_of("def f(self, a, b, *, c):\n    return a\n")), [("f", 2, 2)])

    def test_a_constant_that_shadows_a_headers_constant_in_one_unit(self):
        texts = {"a/limits.h": "inline constexpr int64_t kMost = 9, kLeast = 1;\n",
                 "a/own.cc": "constexpr int64_t kMost = 5;\n",
                 "a/user.cc": '#include "a/limits.h"\nint x = kMost;\n',
                 "a/other.cc": '#include "a/limits.h"\nint x = kLeast;\n',
                 "b/apart.cc": '#include "a/limits.h"\nint x = kMost;\n'}
        self.assertEqual(list(check_tidy.hidden_constants(texts)),
                         ["kMost of a/own.cc hides a/limits.h's in a/user.cc"])

    def test_complaints_name_exceeded_limits_and_unused_exceptions(self):
        most = check_tidy.LINES_MAX
        values = {("lines", "a.cc"): most, ("lines", "b.cc"): most + 1, ("lines", "c.cc"): most + 9}
        exceptions = check_tidy.read_exceptions(f"# why\nlines {most + 5} c.cc\nlines {most + 5} gone.cc\n")
        self.assertEqual(list(check_tidy.complaints(values, exceptions)), [
            f"b.cc: lines {most + 1}, expected at most {most}",
            f"c.cc: lines {most + 9}, expected at most {most + 5}",
            f"scripts/tidy_exceptions.txt: 'lines {most + 5} gone.cc' is not needed any more; remove the row"])

    def test_refused_words_name_the_word_to_use(self):
        rules = check_tidy.read_refused("# why\n\n\\bGizmo\\w*|\\ba gizmo\\b => widget (Widget)\n")
        text = "int gizmos;  // a gizmo\nclass GizmoBox;\n"
        self.assertEqual(list(check_tidy.refused_words("folder/a.cc", text, rules)), [
            "folder/a.cc:1: 'a gizmo' is a refused word, say: widget (Widget)",
            "folder/a.cc:2: 'GizmoBox' is a refused word, say: widget (Widget)"])
        self.assertEqual(list(check_tidy.refused_words("folder/Gizmo.h", "", rules)),
                         ["folder/Gizmo.h: its name has 'Gizmo', say: widget (Widget)"])

    def test_the_list_of_refused_words_allows_words_with_another_meaning(self):
        rules = check_tidy.read_refused((SOURCE / check_tidy.REFUSED).read_text(encoding="utf-8"))
        self.assertGreater(len(rules), 10)
        right = ("max_pool thread pool cluster_layout tensor layout held_out_rows held-out rows look up lookup looks_complete "
                 "std::lock is held; evaluates elsewhere; taken from; the rows that were taken; travels; meets; outside of; TIME_LIMIT_REACHED, it CONTINUES; "
                 "event=worker_exited event=removal_refused")
        self.assertEqual(list(check_tidy.refused_words("folder/a.cc", right, rules)), [])
        for wrong in ("ErrandRunner", "errands", "run_elsewhere", "HeldRows", "held_rows.h", "HeldElements", "TravellingRows",
                      "TakenRows", "WorkerDoor", "meet_ranks", "OutsideMemory", "hand_over", "look_again_us", "faults_told",
                      "HANDED_OVER", '"CONTINUES"', "`TIME_LIMIT`", "event=worker_gone", "event=serving version="):
            self.assertEqual(len(list(check_tidy.refused_words("folder/a.cc", wrong, rules))), 1, wrong)

    def test_the_tree_has_no_refused_words(self):
        rules = check_tidy.read_refused((SOURCE / check_tidy.REFUSED).read_text(encoding="utf-8"))
        self.assertEqual(list(check_tidy.all_refused_words(rules)), [])

    def test_the_tree_is_within_its_limits(self):
        values = check_tidy.measure(check_tidy.product_files())
        exceptions = check_tidy.read_exceptions((SOURCE / check_tidy.EXCEPTIONS).read_text(encoding="utf-8"))
        self.assertEqual(list(check_tidy.complaints(values, exceptions)), [])
        self.assertGreater(sum(1 for kind, _ in values if kind == "function"), 5000, "functions are found at all")


if __name__ == "__main__":
    unittest.main()
