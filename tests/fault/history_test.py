"""Tests that the kill storm's checker refuses a history with a planted violation of each of its
rules and accepts correct ones."""

import json
import unittest

import history


def event(seq, attempt, state=None):
    made = {"seq": seq, "attempt": attempt, "digest": f"d{seq}"}
    return made if state is None else {**made, "state": state}


def job(request, last, reason="COMPLETED", kind="mlp", weights="w-mlp"):
    """Returns a job that was lost once and then ended in the state `last`."""
    events = [event(1, 0, "QUEUED"), event(2, 1, "STARTING"), event(3, 1, "RUNNING"), event(4, 1),
              event(5, 1, "QUEUED"), event(6, 2, "STARTING"), event(7, 2, "RUNNING"), event(8, 2), event(9, 2, last)]
    return {"state": last, "reason": reason, "attempt": 2, "request": request, "kind": kind, "weights": weights,
            "events": events, "origin": None}


def sound():
    end = {"jobs": {"one": job("r1", "SUCCEEDED"), "two": job("r2", "CANCELLED", "CANCELLED", weights=None),
                    "three": job("r3", "FAILED", "CRASH_LOOP", weights=None)},
           "workers": [], "expected": {"mlp": "w-mlp"}, "crowd": {"c1": "SUCCEEDED", "c2": "CANCELLED"}}
    end["jobs"]["c1"] = job(None, "SUCCEEDED")
    end["jobs"]["copy"] = dict(job("r2", "SUCCEEDED"), origin="two")
    calls = [{"op": "submit", "request": "r1", "kind": "mlp", "job": None},
             {"op": "submit", "request": "r1", "kind": "mlp", "job": "one"},
             {"op": "submit", "request": "r1", "kind": "mlp", "job": "one"},
             {"op": "submit", "request": "r2", "kind": "mlp", "job": "two"},
             {"op": "submit", "request": "r3", "kind": "mlp", "job": None},
             # The request never arrived.
             {"op": "submit", "request": "r4", "kind": "mlp", "job": None},
             {"op": "cancel", "job": "two", "seq": 7}, {"op": "copied", "job": "copy", "of": "two"},
             {"op": "seen", "job": "one", "state": "RUNNING", "attempt": 1},
             {"op": "seen", "job": "three", "state": "FAILED", "attempt": 2},
             {"op": "watched", "job": "one", "after": 0, "events": end["jobs"]["one"]["events"][:5]},
             {"op": "watched", "job": "one", "after": 3, "events": end["jobs"]["one"]["events"][3:]},
             {"op": "watched", "job": "two", "after": 2, "events": []}]
    return json.loads(json.dumps(calls)), json.loads(json.dumps(end))  # deep copies


class History(unittest.TestCase):
    def test_consistent_histories_are_accepted(self):
        self.assertEqual(history.check(*sound()), [])

    def refuses(self, invariant, words, plant):
        calls, end = sound()
        plant(calls, end)
        found = history.check(calls, end)
        self.assertTrue(any(line.startswith(invariant + ":") and words in line for line in found), found)

    def test_an_acknowledged_job_that_is_lost(self):
        def plant(calls, end):
            del end["jobs"]["three"]
            calls[4]["job"] = "three"
        self.refuses("I1", "is not there", plant)

    def test_a_job_of_the_crowd_that_is_lost_or_never_ends(self):
        self.refuses("I1", "c2 waited and is not there", lambda calls, end: end["crowd"].update(c2=None))
        self.refuses("I4", "c2 waited", lambda calls, end: end["crowd"].update(c2="QUEUED"))
        self.refuses("I9", "c1", lambda calls, end: end["jobs"]["c1"].update(weights="other"))

    def test_a_watched_or_listed_job_that_is_lost(self):
        self.refuses("I1", "was seen", lambda calls, end: end["jobs"].pop("three"))
        self.refuses("I1", "was watched", lambda calls, end: end["jobs"].pop("two"))

    def test_one_request_and_two_answers(self):
        self.refuses("I2", "was answered with", lambda calls, end: calls[2].update(job="two"))

    def test_one_request_and_two_jobs(self):
        self.refuses("I2", "made", lambda calls, end: end["jobs"]["two"].update(request="r1"))

    def test_an_acknowledged_copy_that_is_lost_or_of_another_job(self):
        self.refuses("I1", "as made of", lambda calls, end: end["jobs"].pop("copy"))
        self.refuses("I1", "as made of", lambda calls, end: end["jobs"]["copy"].update(origin="one"))

    def test_a_job_that_was_never_submitted(self):
        self.refuses("I2", "nobody", lambda calls, end: end["jobs"]["two"].update(request="r9"))

    def test_a_job_that_never_ends(self):
        def plant(calls, end):
            del end["jobs"]["three"]["events"][7:]
            end["jobs"]["three"]["state"] = "RUNNING"
        self.refuses("I1", "never ended", plant)

    def test_a_gap_a_duplicate_and_a_disorder_in_the_log(self):
        self.refuses("I5", "are numbered", lambda calls, end: end["jobs"]["three"]["events"].pop(3))
        self.refuses("I5", "are numbered", lambda calls, end: end["jobs"]["three"]["events"][3].update(seq=3))

    def test_a_gap_and_a_duplicate_in_a_stream(self):
        self.refuses("I5", "a watcher", lambda calls, end: calls[11]["events"].pop(1))
        self.refuses("I5", "a watcher", lambda calls, end: calls[11]["events"].insert(1, calls[11]["events"][0]))
        self.refuses("I5", "a watcher", lambda calls, end: calls[11]["events"].pop(0))

    def test_an_event_that_changes_or_vanishes_after_it_was_seen(self):
        self.refuses("I5", "became", lambda calls, end: calls[10]["events"][3].update(digest="other"))
        self.refuses("I5", "became None", lambda calls, end: calls[11]["events"].append(event(10, 2)))

    def test_a_transition_that_is_not_in_the_table(self):
        self.refuses("I4", "from STARTING to SUCCEEDED",
                     lambda calls, end: end["jobs"]["one"]["events"][6].update(state="SUCCEEDED"))

    def test_something_happens_after_the_end(self):
        self.refuses("I4", "after it was", lambda calls, end: end["jobs"]["one"]["events"].append(event(10, 2)))

    def test_the_state_and_the_last_event_differ(self):
        self.refuses("I4", "its last event says", lambda calls, end: end["jobs"]["one"].update(state="FAILED"))

    def test_a_terminal_state_that_changes(self):
        self.refuses("I4", "and became", lambda calls, end: calls[9].update(state="SUCCEEDED"))

    def test_a_cancelled_job_that_starts_again(self):
        self.refuses("I4", "started again", lambda calls, end: calls[6].update(seq=5))

    def test_attempts_out_of_order(self):
        self.refuses("I3", "had begun", lambda calls, end: end["jobs"]["one"]["events"][7].update(attempt=1))
        self.refuses("I3", "began after", lambda calls, end: end["jobs"]["one"]["events"][5].update(attempt=3))
        self.refuses("I3", "was seen in attempt", lambda calls, end: calls[8].update(attempt=3))

    def test_other_weights(self):
        self.refuses("I9", "other weights", lambda calls, end: end["jobs"]["one"].update(weights="w"))
        self.refuses("I9", "other weights", lambda calls, end: end["jobs"]["one"].update(kind="cnn"))

    def test_a_failure_that_kills_do_not_explain(self):
        self.refuses("I7", "INTERNAL", lambda calls, end: end["jobs"]["three"].update(reason="INTERNAL"))

    def test_a_worker_that_is_left_running(self):
        self.refuses("I8", "[77]", lambda calls, end: end.update(workers=[77]))

    def test_every_transition_is_that_of_the_daemon(self):
        """Checks that the table of transitions equals that of server/store/job_state.h."""
        import pathlib
        import re
        text = (pathlib.Path(__file__).resolve().parents[2] / "server/store/job_state.h").read_text()
        body = text[text.index("constexpr bool can_move"):text.index("constexpr bool is_terminal")]
        table = {}
        for cases, moves in re.findall(r"((?:case k\w+:\s*)+)return (.*?);", body, re.S):
            for case in re.findall(r"case k(\w+)", cases):
                table[case.upper()] = {to.upper() for to in re.findall(r"to == k(\w+)", moves)}
        self.assertEqual(table, {state: to for state, to in history.ALLOWED.items() if state})


if __name__ == "__main__":
    unittest.main()
