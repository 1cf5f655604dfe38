"""The file of the subscriptions on a disk that hangs or takes nothing: one thread at most, and nothing stays there
that is not true any more."""

import asyncio
import contextlib
import json
import threading

import pytest

from leadsman.core.parts.subscription_record import SubscriptionFile
from leadsman.core.storage import files


@pytest.fixture
def path(tmp_path):
    return tmp_path / "subscriptions.json"


def record(path):
    return SubscriptionFile(path, "house", lambda: None)


def test_a_disk_that_hangs_holds_one_thread_and_has_what_is_known_once_it_answers(path, monkeypatch):
    answers, replace, writers = threading.Event(), files.replace, set()

    def slow(*given, **words):
        writers.add(threading.get_ident())
        assert answers.wait(60)
        replace(*given, **words)

    monkeypatch.setattr(files, "replace", slow)

    async def live():
        found, most = record(path), 0
        for number in range(30):
            found.keep("mqtt://a", {f"house/{number}"})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.001):
                    await found.forget("mqtt://b")
            most = max(most, len(writers))
            found.known = {}  # as after a connection with other filters
        found.keep("mqtt://a", {"house/last"})
        answers.set()
        await found.forget("mqtt://b")
        return most

    assert asyncio.run(live()) <= 1
    assert len(writers) == 1
    assert json.loads(path.read_text())["subscriptions"] == {"mqtt://a": ["house/last"]}


def test_a_record_that_cannot_be_changed_is_removed_so_that_it_misleads_nobody(path, monkeypatch):
    async def live(found):
        await found.forget("mqtt://a")

    path.write_text(json.dumps({"client_id": "house", "subscriptions": {"mqtt://a": ["house/old"]}}))
    found = record(path)
    assert found.known == {"mqtt://a": {"house/old"}}
    monkeypatch.setattr(
        files, "replace", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    asyncio.run(live(found))

    assert not path.exists()
    assert record(path).known == {}
