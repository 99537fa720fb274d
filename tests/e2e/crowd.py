"""Creates many waiting jobs without submitting each of them."""

import sqlite3


def copy_waiting(state, count, prefix="copy", kinds=1, owners=(None,), priorities=(None,)):
    """Copies the newest `kinds` waiting jobs, in turn, into the store of a stopped daemon and
    returns the IDs of the `count` copies. Owners and priorities are assigned in turn too; None
    keeps the copied job's value."""
    with sqlite3.connect(state / "trainyard.db") as store:
        originals = [n for n, in store.execute("SELECT number FROM jobs WHERE state = 1 ORDER BY number DESC LIMIT ?", (kinds,))]
        number = originals[0]
        store.execute("CREATE TEMP TABLE copies (number INTEGER PRIMARY KEY, original INTEGER, owner TEXT, priority INTEGER)")
        store.executemany("INSERT INTO copies VALUES (?, ?, ?, ?)", (
            (number + 1 + i, originals[i % kinds], owners[i // kinds % len(owners)], priorities[i // kinds % len(priorities)])
            for i in range(count)))
        for table, key in (("jobs", "number"), ("events", "job")):
            columns = [row[1] for row in store.execute(f"PRAGMA table_info({table})")]
            values = {key: "c.number", "id": f"printf('{prefix}-%06d', c.number)", "uid": f"printf('{prefix}-%021d', c.number)",
                      "owner": "coalesce(c.owner, t.owner)", "priority": "coalesce(c.priority, t.priority)"}
            store.execute(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values.get(c, 't.' + c) for c in columns)} "
                          f"FROM copies c JOIN {table} t ON t.{key} = c.original ORDER BY c.number")
    store.close()
    return [f"{prefix}-{n:06d}" for n in range(number + 1, number + count + 1)]
