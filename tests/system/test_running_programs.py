"""Real programs: what they write, how they fail, and that none of their processes is left; and the twin, which must do
the same."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from leadsman import App
from leadsman.adapters.program import OutputTooLong, ProgramFailed, Programs
from leadsman.errors import (
    DeviceTimeout,
    DeviceUnavailable,
    GarbledData,
    InvalidType,
    InvalidValue,
    PermanentError,
)
from leadsman.testing import Harness, ProgramsTwin
from leadsman_rigs.watched import on

PIPE = asyncio.subprocess.PIPE
SLACK = 4.0
"""Seconds that a busy machine may take besides."""


def shell(text, *arguments):
    """A call of a program that does what the text says."""
    return lambda programs: programs.run("sh", "-c", text, "sh", *map(str, arguments))


def children():
    return [each for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE]


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_gone(file):
    """Whether the process is gone whose number a program has written to a file."""
    number = int(Path(file).read_text())
    return not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE


class TestBoth:
    """What real programs and their twin both do."""

    @pytest.fixture(params=["real", "twin"])
    def programs(self, request, tmp_path):
        """Makes programs that write some bytes."""

        def make(output, **options):
            (tmp_path / "output").write_bytes(output)
            return Programs(**options) if request.param == "real" else ProgramsTwin(lambda *_: output, **options)

        self.file = str(tmp_path / "output")
        return make

    @pytest.mark.parametrize("text", ["", "21.5\n", "temp=48.3'C\n", "ä€\0\x1b[31m", "x" * 200_000])
    def test_text_is_given_as_it_is(self, programs, text):
        async def scenario(each):
            assert await each.run("cat", self.file) == text

        on(programs(text.encode(), most_bytes=300_000), scenario)

    def test_the_limit_of_bytes_is_exact(self, programs):
        async def scenario(each):
            assert await each.run("cat", self.file) == "12345"

        async def refused(each):
            with pytest.raises(OutputTooLong, match="cat wrote more than 4 bytes; see most_bytes="):
                await each.run("cat", self.file)

        on(programs(b"12345", most_bytes=5), scenario)
        on(programs(b"12345", most_bytes=4), refused)

    def test_bytes_that_are_no_text_are_garbled(self, programs):
        async def scenario(each):
            with pytest.raises(GarbledData, match="cat wrote what is not UTF-8, from byte 4 on"):
                await each.run("cat", self.file)

        on(programs(b"21.5\xff\xfe"), scenario)

    @pytest.mark.parametrize("arguments", [("cat", 21), ("cat", b"x"), (None,)])
    def test_what_is_no_text_is_no_argument(self, programs, arguments):
        async def scenario(each):
            with pytest.raises(InvalidType, match="write text"):
                await each.run(*arguments)
            with pytest.raises(InvalidValue, match="zero byte"):
                await each.run("cat", "\0")
            with pytest.raises(InvalidValue, match="no name"):
                await each.run("")

        on(programs(b""), scenario)


class TestReal:
    """What only real programs do."""

    def fails(self, call, error, match, **options):
        async def scenario(programs):
            with pytest.raises(error, match=match) as caught:
                await call(programs)
            return caught.value

        return on(Programs(**options), scenario)

    def test_a_program_that_cannot_be_started_is_a_named_error(self, tmp_path):
        script, data = tmp_path / "script", tmp_path / "data"
        script.write_text("#!/no/such/interpreter\n")
        script.chmod(0o755)
        data.write_bytes(b"\x00\x01\x02")
        data.chmod(0o755)
        for name, match in {
            "vcgencmt": "vcgencmt cannot be started: it is not installed, or not in \\$PATH; install it",
            "vcgencmd measure_temp": "give its arguments apart: run\\('vcgencmd', 'measure_temp'\\)",
            "/no/such/file": "there is no such file",
            str(script): "the interpreter that its first line names does not exist",
            str(tmp_path): "this user may not execute it",
            str(data): "Exec format error",
        }.items():
            self.fails(lambda programs, name=name: programs.run(name), PermanentError, match)

    @pytest.mark.parametrize(
        "options", [{"timeout": 0}, {"most_bytes": 0}, {"most_bytes": 1.5}, {"most_processes": True}, {"timeout": "x"}]
    )
    def test_an_impossible_limit_is_refused(self, options):
        with pytest.raises(InvalidValue, match=next(iter(options))):
            Programs(**options)

    def test_too_many_arguments_are_a_named_error(self):
        self.fails(lambda programs: programs.run("echo", "x" * 10_000_000), PermanentError, "Argument list too long")

    def test_an_exit_code_comes_with_the_last_line_of_stderr(self):
        text = "echo first >&2; printf 'no \\033[31msensor, password=hunter2\\n\\n' >&2; exit 3"

        error = self.fails(shell(text), ProgramFailed, "sh ended with exit code 3: no ")

        assert error.code == 3
        assert str(error) == "sh ended with exit code 3: no \\x1b[31msensor, password=***"

    def test_what_a_program_wrote_that_ends_with_bits_is_there(self):
        """As smartctl does (matusnovak/prometheus-smartctl#42)."""
        error = self.fails(shell("""printf '{"celsius": 38} \\377'; exit 64"""), ProgramFailed, "exit code 64$")

        assert (error.code, error.output) == (64, '{"celsius": 38} \N{REPLACEMENT CHARACTER}')

    def test_the_output_of_an_error_is_bounded_too(self):
        self.fails(shell("yes | head -c 3000000; exit 64"), OutputTooLong, "more than 65,536 bytes")

    def test_of_errors_without_end_the_last_line_is_kept(self):
        error = self.fails(shell("yes | head -c 3000000 >&2; echo; echo last >&2; exit 1"), ProgramFailed, ": last$")

        assert error.code == 1

    def test_a_signal_that_ended_it_is_named(self):
        assert self.fails(shell("kill -SEGV $$"), ProgramFailed, "sh was ended by SIGSEGV").code == -signal.SIGSEGV
        self.fails(shell("kill -40 $$"), ProgramFailed, "sh was ended by signal 40")

    @pytest.mark.parametrize("how", ["sleep 1000", "trap '' TERM INT HUP; sleep 1000", "kill -STOP $$"])
    def test_at_its_time_limit_it_is_killed_with_all_that_it_started(self, tmp_path, how):
        text = f"echo $$ > {tmp_path}/own; sleep 1000 & echo $! > {tmp_path}/started; {how}"
        before = time.monotonic()

        self.fails(shell(text), DeviceTimeout, "sh did not end within 500ms", timeout=0.5)

        assert time.monotonic() - before < 0.5 + SLACK
        wait_for(lambda: is_gone(tmp_path / "own") and is_gone(tmp_path / "started"))

    def test_one_that_writes_without_end_is_killed_at_the_limit(self):
        before = psutil.Process().memory_info().rss

        self.fails(lambda programs: programs.run("yes"), OutputTooLong, "yes wrote more than 65,536 bytes")

        assert psutil.Process().memory_info().rss - before < 20e6
        assert children() == []

    def test_what_it_left_in_the_background_may_not_keep_the_output_open(self, tmp_path):
        """It is in the group of the program, or, the second one, has left it."""
        said = "sh ended, but a process that it has started kept its output open for 2s; send the output"
        text = f"sleep 1000 & echo $! > {tmp_path}/started; echo 21"
        self.fails(shell(text), DeviceTimeout, said, timeout=2)
        wait_for(lambda: is_gone(tmp_path / "started"))

        text = f"setsid sh -c 'echo $$ > {tmp_path}/left; exec sleep 1000' & sleep 0.2; echo 21"
        self.fails(shell(text), DeviceTimeout, said, timeout=2)
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)

    def test_it_has_no_input_a_decimal_point_and_the_environment(self, monkeypatch):
        monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
        monkeypatch.setenv("ROOM", "attic")

        async def scenario(programs):
            assert await programs.run("cat") == ""
            assert await programs.run("sh", "-c", "echo $LC_ALL $ROOM") == "C.UTF-8 attic\n"
            assert await programs.run("echo", "$ROOM; *") == "$ROOM; *\n"

        on(Programs(), scenario)

    def test_a_call_that_is_cancelled_ends_its_program(self, tmp_path):
        async def scenario(programs):
            call = asyncio.ensure_future(shell(f"echo $$ > {tmp_path}/own; sleep 1000")(programs))
            while not (tmp_path / "own").exists():
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

        on(Programs(timeout=1000), scenario)

        wait_for(lambda: is_gone(tmp_path / "own"))

    def test_one_that_is_cancelled_while_it_starts_leaves_nothing(self):
        text = "sleep 987.654 & sleep 987.654"

        async def scenario(programs):
            for turns in range(12):
                call = asyncio.ensure_future(shell(text)(programs))
                for _ in range(turns):
                    await asyncio.sleep(0)
                time.sleep(0.02)  # what the program starts is there before the loop knows of the program
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(call, 30)

        on(Programs(timeout=1000), scenario)

        # The system takes a killed process back in its own time; one that runs stays for 987 s.
        deadline = time.monotonic() + 30
        while left := [each for each in psutil.process_iter(["cmdline"]) if "987.654" in (each.info["cmdline"] or ())]:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)

    def test_more_than_some_wait_for_each_other_within_the_limit_of_time(self):
        most = 0

        async def scenario(programs):
            nonlocal most

            async def look():
                nonlocal most
                while True:
                    most = max(most, len(psutil.Process().children()))
                    await asyncio.sleep(0.02)

            looking = asyncio.ensure_future(look())
            results = await asyncio.gather(*[programs.run("sleep", "0.3") for _ in range(6)], return_exceptions=True)
            looking.cancel()
            return results

        assert on(Programs(most_processes=2), scenario) == [""] * 6
        assert most == 2
        late = on(Programs(most_processes=1, timeout=1), scenario)
        assert isinstance(late[-1], DeviceTimeout)

    def test_two_hundred_calls_leave_no_descriptor_and_no_process(self):
        async def scenario(programs):
            async def call(number):
                try:
                    return await programs.run("sh", "-c", "exit 1" if number % 2 else "echo 1")
                except ProgramFailed:
                    return "failed"

            await call(0)
            before = psutil.Process().num_fds()
            for start in range(0, 200, 8):
                results = await asyncio.gather(*map(call, range(start, start + 8)))
                assert results == ["1\n", "failed"] * 4
            return psutil.Process().num_fds() - before

        assert on(Programs(), scenario) <= 0
        assert psutil.Process().children() == []

    def test_without_descriptors_a_retry_may_help(self):
        import resource

        async def scenario(programs):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            os.close(lowest := os.dup(0))
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            try:
                with pytest.raises(DeviceUnavailable, match="Too many open files"):
                    await programs.run("echo", "1")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert await programs.run("echo", "1") == "1\n"

        on(Programs(), scenario)


class TestVirtualTime:
    """A real program under a clock that jumps."""

    def app(self, *command, **options):
        app = App("house", adapters=(Programs(**options),))

        @app.telemetry("chip", interval="1m")
        async def chip(programs: Programs):
            return {"t": float(await programs.run(*command))}

        return app

    def test_the_time_waits_for_it(self):
        with Harness(self.app("sh", "-c", "sleep 0.1; echo 21.5", timeout=0.05)) as harness:
            harness.run("5m")

            assert harness.states("chip") == [{"t": 21.5}] * 5

    def test_one_that_hangs_times_out_in_virtual_time_and_is_killed(self):
        with Harness(self.app("sleep", "1000", timeout="20s"), patience=0.3) as harness:
            before = time.monotonic()
            harness.run("59s")

            assert time.monotonic() - before < 1 + SLACK
            assert [each["message"] for each in harness.errors("chip")] == [
                "sleep did not end within 20s; see timeout="
            ]
            assert children() == []

    def test_it_waits_for_one_that_a_handler_starts_itself_and_for_what_that_leaves_behind(self):
        app = App("house")

        @app.telemetry("exec", interval="1m")
        async def executed():
            process = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.1; echo 21", stdout=PIPE)
            return {"t": float((await process.communicate())[0])}

        @app.telemetry("shell", interval="1m")
        async def in_background():
            process = await asyncio.create_subprocess_shell("(sleep 0.1; echo 22) &", stdout=PIPE)
            return {"t": float((await process.communicate())[0])}

        with Harness(app) as harness:
            harness.run("3m")

            assert harness.states("exec") == [{"t": 21.0}] * 3
            assert harness.states("shell") == [{"t": 22.0}] * 3

    def test_one_that_hung_and_is_killed_ends_before_the_time_goes_on(self):
        app, took = App("house"), []

        @app.telemetry("chip", interval="1m")
        async def chip():
            process = await asyncio.create_subprocess_exec("sleep", "1000", stdout=PIPE)
            loop = asyncio.get_running_loop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await process.wait()
            process.kill()
            before = loop.time()
            await process.wait()
            took.append(loop.time() - before)

        with Harness(app, patience=0.2) as harness:
            harness.run("2m59s")

        assert took == [0.0] * 3

    def test_one_that_never_ends_does_not_hold_the_time_for_ever(self):
        app, lines = App("house"), []

        @app.source("radio")
        async def radio():
            code = "import time\nwhile True: time.sleep(0.05); print(1, flush=True)"
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=PIPE)
            try:
                async for line in process.stdout:
                    lines.append(line)
                    yield {"t": float(line)}
            finally:
                process.kill()
                await process.wait()

        with Harness(app, patience=0.3) as harness:
            harness.run("1h")

        assert len(lines) >= 2
        assert children() == []

    def test_it_ends_with_the_app(self):
        with Harness(self.app("sleep", "1000", timeout="1h"), patience=0.1) as harness:
            harness.run("10s")
            assert len(children()) == 1
            harness.stop()

            assert (harness.left_behind, children()) == (0, [])
            assert harness.stopped_in < 1


APP = """
import os
from leadsman.adapters.program import Programs

programs = Programs(timeout=600)

@app.telemetry("sound", interval=0.2)
async def sound():
    return {"t": 1}

@app.telemetry("slow", interval=600, timeout=600)
async def slow():
    await programs.run("sh", "-c", f"echo $$ > {os.environ['OWN']}; exec sleep 300")
"""


class TestProcess:
    """An app as a process of its own."""

    @pytest.fixture
    def own(self, tmp_path, monkeypatch):
        """The file with the number of the process that its program is."""
        monkeypatch.setenv("OWN", str(tmp_path / "own"))
        return tmp_path / "own"

    def test_sigterm_ends_both_in_time(self, mosquitto, listen, start_app, own):
        app = start_app(APP, mosquitto.url)
        wait_for(own.exists)

        exit_code, took = app.end()

        assert exit_code == 0
        assert took <= 2 + SLACK
        assert is_gone(own)
        assert "did not end in time" not in app.log

    def test_one_that_was_killed_leaves_nothing_that_is_in_the_way_of_the_next(
        self, mosquitto, listen, start_app, own, tmp_path
    ):
        listener = listen(mosquitto.port)
        app = start_app(APP, mosquitto.url, state=tmp_path / "kept")
        wait_for(lambda: own.exists() and own.read_text())
        app.process.kill()
        app.process.wait()
        orphan = int(own.read_text())

        files = {os.readlink(each).split(":")[0] for each in Path(f"/proc/{orphan}/fd").iterdir()}
        following = start_app(APP, mosquitto.url, state=tmp_path / "kept")

        assert files == {"/dev/null", "pipe"}
        listener.wait_for("sys/sound/state", 5)
        os.kill(orphan, signal.SIGKILL)
        assert following.end()[0] == 0
