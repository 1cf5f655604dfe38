"""The duties of process 1, which a program has in a container that has no init."""

import os
import signal

_OF_A_FAULT = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")
"""What the system sends for a fault of this process."""
_OF_A_TERMINAL = ("SIGTTIN", "SIGTTOU", "SIGTSTP")
"""What the system sends to a whole group that shares a terminal."""


def leave_process_one() -> None:
    """Go on in a child. Process 1 calls it, before other imports and threads.

    A signal without a handler does not end process 1, and process 1 inherits what other processes leave behind, which
    stays in the table of processes until it is waited for (pid_namespaces(7)). So process 1 only passes signals on,
    waits for whatever ends, and ends as the child does: with its exit code, or with 128 and the number of its signal,
    as a shell has it. The child, which has none of these duties, waits for its own children alone.
    """
    watched = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    watched -= {signal.Signals[name] for name in (*_OF_A_FAULT, *_OF_A_TERMINAL)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        came = signal.sigwaitinfo(watched)
        if came.si_signo == signal.SIGCHLD:
            _reap(child)
        elif came.si_code <= 0:  # a process sent it; what the system sends, such as at Ctrl-C, goes to the child, too
            os.kill(child, came.si_signo)


def _reap(child: int) -> None:
    """Wait for all that has ended, and end with the child."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        if ended == 0:
            return
