"""Tests that a dry run of a garbage collection reports what it would free, in bytes, and removes nothing."""

import pytest

import trainyard
from trainyard import v1


def test_a_dry_run_lists_items_and_removes_nothing(client, trained):
    assert list(client.collect_garbage(dry_run=True).items) == [], "everything is younger than 7 days"
    answers = [client.collect_garbage(dry_run=True, older_than_seconds=0) for _ in range(2)]
    for answer in answers:
        [item] = [item for item in answer.items if item.name == trained.name]
        assert item.kind == v1.CollectGarbageResponse.Item.CHECKPOINTS
        assert item.freed_bytes > 0 and answer.freed_bytes >= item.freed_bytes


def test_a_run_accepts_the_as_of_of_a_dry_run(client, trained):
    planned = client.collect_garbage(dry_run=True, older_than_seconds=0)
    again = client.collect_garbage(dry_run=True, older_than_seconds=0, as_of=planned.as_of)
    assert again.as_of == planned.as_of
    planned.as_of.FromSeconds(1)  # a time at which no job had ended
    assert list(client.collect_garbage(dry_run=True, older_than_seconds=0, as_of=planned.as_of).items) == []


def test_a_bad_age_is_refused(client):
    with pytest.raises(trainyard.InvalidArgumentError, match="older_than_seconds: -1 is out of range"):
        client.collect_garbage(dry_run=True, older_than_seconds=-1)
