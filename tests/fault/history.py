"""Checks whether everything that clients saw of a server that was killed again and again can be
true.

A history is a list of dictionaries in the order in which the clients' calls finished:

  {"op": "submit", "request": UUID, "kind": SPEC, "job": NAME or None}   None: no reply came
  {"op": "cancel", "job": NAME, "seq": NEWEST}                           acknowledged, with the job's newest event
  {"op": "copied", "job": NAME, "of": NAME}              a retry or fork that was acknowledged
  {"op": "seen", "job": NAME, "state": STATE, "attempt": N}              the result of get or list
  {"op": "watched", "job": NAME, "after": SEQ, "events": [EVENT, ...]}   one stream, perhaps cut off

An event is {"seq", "attempt", "digest"} and, for a change of state, "state". The end is the content
of the store after everything has stopped: {"jobs": {NAME: {"state", "reason", "attempt", "request",
"kind", "weights", "events", "origin"}}, "workers": [PID], "expected": {KIND: digest of the weights
of an undisturbed run}, "crowd": {NAME: STATE or None}}. The crowd are jobs that waited from the
beginning with the lowest priority, with their final states; some are among the jobs too. A job's
origin is the name of the job that it retries or forks, or None. Both have the same spec, and so the
same request and weights.
"""

ALLOWED = {  # from server/store/job_state.h
    None: {"QUEUED"},
    "QUEUED": {"STARTING", "PAUSED", "CANCELLED", "FAILED"},
    "STARTING": {"RUNNING", "QUEUED", "PAUSED", "CANCELLED", "FAILED"},
    "RUNNING": {"SUCCEEDED", "FAILED", "CANCELLED", "PAUSED", "QUEUED"},
    "PAUSED": {"QUEUED", "CANCELLED"},
    "SUCCEEDED": set(), "FAILED": set(), "CANCELLED": set(),
}
TERMINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}
LOST_TOO_OFTEN = {"CRASH_LOOP"}  # the only reason with which kills alone may end a job


def check(history, end):
    """Returns the broken promises, each with the invariant of RELIABILITY.md, section 6, that it violates."""
    return [*submits(history, end), *event_logs(end), *streams(history, end), *observations(history, end),
            *outcomes(end), *cancels(history, end), *crowd(end)]


def submits(history, end):
    names = {}
    for call in history:
        if call["op"] != "submit" or call["job"] is None:
            continue
        if call["job"] not in end["jobs"]:
            yield f"I1: the submit of {call['job']} was acknowledged and the job is not there"
        if names.setdefault(call["request"], call["job"]) != call["job"]:
            yield f"I2: request {call['request']} was answered with {names[call['request']]} and {call['job']}"
    for call in history:
        if call["op"] == "copied" and end["jobs"].get(call["job"], {}).get("origin") != call["of"]:
            yield f"I1: {call['job']} was acknowledged as made of {call['of']} and is not"
    asked = {call["request"] for call in history if call["op"] == "submit"}
    owners = {}
    for name, job in end["jobs"].items():
        if name in end["crowd"]:
            continue
        if job["request"] not in asked and job["origin"] is None:
            yield f"I2: nobody asked for {name}"
        if job["origin"] is None and owners.setdefault(job["request"], name) != name:
            yield f"I2: request {job['request']} made {owners[job['request']]} and {name}"


def crowd(end):
    for name, state in end["crowd"].items():
        if state is None:
            yield f"I1: {name} waited and is not there"
        elif state not in ("SUCCEEDED", "CANCELLED"):
            yield f"I4: {name} waited, was cancelled at last, and is {state}"


def event_logs(end):
    for name, job in end["jobs"].items():
        numbers = [event["seq"] for event in job["events"]]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"I5: the events of {name} are numbered {numbers}"
        state, attempt = None, 0
        for event in job["events"]:
            if event["attempt"] < attempt:
                yield f"I3: {name} has an event of attempt {event['attempt']} after attempt {attempt} had begun"
            if "state" not in event:
                if state in TERMINAL:
                    yield f"I4: {name} has event {event['seq']} after it was {state}"
                attempt = max(attempt, event["attempt"])
                continue
            if event["state"] not in ALLOWED[state]:
                yield f"I4: {name} went from {state} to {event['state']}"
            if event["state"] == "STARTING" and event["attempt"] != attempt + 1:
                yield f"I3: attempt {event['attempt']} of {name} began after attempt {attempt}"
            state, attempt = event["state"], max(attempt, event["attempt"])
        if state != job["state"]:
            yield f"I4: {name} is {job['state']} and its last event says {state}"
        if job["state"] not in TERMINAL:
            yield f"I1: {name} never ended: it is {job['state']}"


def streams(history, end):
    for call in history:
        if call["op"] != "watched":
            continue
        job = end["jobs"].get(call["job"])
        if job is None:
            yield f"I1: {call['job']} was watched and is not there"
            continue
        numbers = [event["seq"] for event in call["events"]]
        first = call["after"] + 1
        if numbers != list(range(first, first + len(numbers))):
            yield f"I5: a watcher of {call['job']} after {call['after']} got {numbers}"
        stored = {event["seq"]: event for event in job["events"]}
        for event in call["events"]:
            if stored.get(event["seq"]) != event:
                yield f"I5: event {event['seq']} of {call['job']} was {event} and became {stored.get(event['seq'])}"


def observations(history, end):
    for call in history:
        if call["op"] != "seen":
            continue
        job = end["jobs"].get(call["job"])
        if job is None:
            yield f"I1: {call['job']} was seen and is not there"
        elif call["state"] in TERMINAL and call["state"] != job["state"]:
            yield f"I4: {call['job']} was seen {call['state']} and became {job['state']}"
        elif call["attempt"] > job["attempt"]:
            yield f"I3: {call['job']} was seen in attempt {call['attempt']} and ended in {job['attempt']}"


def outcomes(end):
    for name, job in end["jobs"].items():
        if job["state"] == "SUCCEEDED" and job["weights"] != end["expected"].get(job["kind"]):
            yield f"I9: {name} ({job['kind']}, attempt {job['attempt']}) has other weights than an undisturbed run"
        if job["state"] == "FAILED" and job["reason"] not in LOST_TOO_OFTEN:
            yield f"I7: {name} failed with {job['reason']}"
    if end["workers"]:
        yield f"I8: all jobs have ended, and workers run: {end['workers']}"


def cancels(history, end):
    for call in history:
        if call["op"] != "cancel" or call["job"] not in end["jobs"]:
            continue
        for event in end["jobs"][call["job"]]["events"]:
            if event.get("state") == "STARTING" and event["seq"] > call["seq"]:
                yield f"I4: {call['job']} started again, at event {event['seq']}, after its cancel was acknowledged"
