"""Many waiting jobs without the work that submitting them takes."""

import sqlite3


def copy_waiting(state, count, prefix="copy"):
    """Copies the newest job that waits, `count` times, in the store of a stopped daemon; returns the copies' ids."""
    with sqlite3.connect(state / "trainyard.db") as store:
        number, = store.execute("SELECT number FROM jobs WHERE state = 1 ORDER BY number DESC LIMIT 1").fetchone()
        for table, key in (("jobs", "number"), ("events", "job")):
            columns = [row[1] for row in store.execute(f"PRAGMA table_info({table})")]
            values = {key: "n.value", "id": f"printf('{prefix}-%06d', n.value)", "uid": f"printf('{prefix}-%021d', n.value)"}
            store.execute(
                f"WITH RECURSIVE n(value) AS (SELECT {number + 1} UNION ALL SELECT value + 1 FROM n "
                f"WHERE value < {number + count}) INSERT INTO {table} ({', '.join(columns)}) "
                f"SELECT {', '.join(values.get(c, 't.' + c) for c in columns)} FROM n, {table} t WHERE t.{key} = {number}")
    store.close()
    return [f"{prefix}-{n:06d}" for n in range(number + 1, number + count + 1)]
