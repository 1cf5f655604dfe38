"""Any history of writes, restarts and hours: the file holds what a model of a few lines holds."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leadsman.core.spool.file import EXPIRY_CHECK_INTERVAL, SpoolFile, contents
from leadsman.core.spool.row import EXPIRED, FULL, SUPERSEDED, Quota, SpoolRow, size
from leadsman_rigs.examples import examples

NOW = 1_800_000_000.0
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
TOPICS = ("a", "b", "c/d")
QUOTA = Quota(most_bytes=3000, most_age=5000, least_free=0)


class Model:
    """The rows of a file, as a dict."""

    def __init__(self):
        self.rows, self.newest, self.dead, self.looked_at = {}, {}, [], None

    def reopen(self):
        self.newest = {row.topic: row.id for row in sorted(self.rows.values())}
        self.looked_at = None

    def write(self, now, add, settled, dead):
        if not (add or settled or dead):
            return {}
        done = {*settled, *(row.id for row, _ in dead)}
        accepted = {row.id: row for row in add if row.id not in done}
        rows = {key: row for key, row in (self.rows | accepted).items() if key not in done}
        newest = dict(self.newest)
        for row in accepted.values():
            newest[row.topic] = max(newest.get(row.topic, 0), row.id)
        looks = self.looked_at is None or now - self.looked_at >= EXPIRY_CHECK_INTERVAL
        gone = {}

        def remove(row, reason):
            del rows[row.id]
            gone.setdefault((row.topic, reason), []).append(row.id)

        for row in list(rows.values()):
            is_old = row.taken_at < now - QUOTA.most_age and row.id != newest[row.topic]
            if (looks or row.id in accepted) and (is_old or (row.expires_at or now + 1) <= now):
                remove(row, EXPIRED)
        for topic in TOPICS:
            for row in sorted(row for row in rows.values() if row.topic == topic and row.latest)[:-1]:
                remove(row, SUPERSEDED)
        if self.bytes(rows) > QUOTA.most_bytes:
            for row in sorted(rows.values()):
                if self.bytes(rows) > QUOTA.most_bytes // 2 and row.id != newest[row.topic]:
                    remove(row, FULL)
        self.rows, self.dead = rows, [*self.dead, *dead]
        self.newest = {topic: newest[topic] for topic in {row.topic for row in rows.values()}}
        self.looked_at = now if looks else self.looked_at
        return {about: sorted(ids) for about, ids in gone.items()}

    @staticmethod
    def bytes(rows):
        return sum(size(row.topic, len(row.payload)) for row in rows.values())


class Histories(RuleBasedStateMachine):
    """The file beside the model."""

    @initialize()
    def begin(self):
        self.directory = Path(tempfile.mkdtemp(dir=MEMORY))
        self.now, self.model, self.next_id = NOW, Model(), 1
        self.spool = self.opened()

    def opened(self):
        spool, listed = SpoolFile(self.directory / "outbox.db", QUOTA, lambda: self.now), []
        spool.open(listed.append)
        assert {row.topic for row in self.model.rows.values()} <= listed[0]
        return spool

    @rule(data=st.data(), count=st.integers(0, 12))
    def write(self, data, count):
        rows = [self.row(data, self.next_id + place) for place in range(count)]
        self.next_id += count
        known = st.lists(st.integers(1, self.next_id), max_size=6, unique=True)
        dead = [(row, "no") for row in (self.model.rows.get(key) for key in data.draw(known)) if row]
        self.check(rows, data.draw(known), dead[:2])

    @rule(data=st.data())
    @precondition(lambda self: self.model.rows)
    def write_again(self, data):
        """What was perhaps not written is written once more, or an older id comes late."""
        ids = data.draw(st.lists(st.integers(1, self.next_id), min_size=1, max_size=3, unique=True))
        self.check([self.model.rows.get(key) or self.row(data, key) for key in ids], [], [])
        self.next_id = max(self.next_id, *(key + 1 for key in ids))

    def row(self, data, key):
        expires_at = data.draw(st.none() | st.floats(self.now - 100, self.now + 3000))
        payload = bytes(data.draw(st.sampled_from([0, 1, 60, 400, 1100])))
        taken_at = self.now - data.draw(st.sampled_from([0, 0, 0, 6000]))
        topic, latest = data.draw(st.sampled_from(TOPICS)), data.draw(st.booleans())
        return SpoolRow(key, 3, topic, payload, 1, False, taken_at, expires_at, latest)

    def check(self, add, settled, dead):
        expected = self.model.write(self.now, add, settled, dead)
        evicted = self.spool.write(add, settled, dead)
        assert {(each.topic, each.reason): each.ids for each in evicted} == expected

    @rule(seconds=st.sampled_from([1, 700, 4000]))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def restart(self):
        self.spool.close()
        self.model.reopen()
        self.spool = self.opened()
        found, rows = self.spool.found, self.model.rows.values()
        seen = contents(self.spool.path)
        assert (found.rows, seen.rows, seen.bytes) == (len(rows), len(rows), Model.bytes(self.model.rows))
        assert seen.oldest_taken_at == min((row.taken_at for row in rows), default=None)
        known = [*self.model.rows, *(row.id for row, _ in self.model.dead)]
        assert found.next_id == max([0, *known]) + 1

    @invariant()
    def the_file_holds_what_the_model_holds(self):
        read = self.spool.read(0, 1000, 10**9)
        assert read == sorted(self.model.rows.values())
        counts = {topic: sum(row.topic == topic for row in read) for topic in TOPICS}
        assert self.spool.topics() == {topic: count for topic, count in counts.items() if count}
        latest = {row.topic: row.id for row in read if row.latest}
        assert {topic: each.latest for topic, each in self.spool.by_topic().items() if each.latest} == latest
        assert [(each.row, each.why) for each in self.spool.dead_letters()] == self.model.dead

    def teardown(self):
        self.spool.close()
        shutil.rmtree(self.directory)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=examples(30), stateful_step_count=12, deadline=None)
