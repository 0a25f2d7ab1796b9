"""Reports outcomes of ranked choices to the agent of this machine, without waiting for the agent.

A reporter gathers outcomes and sends many in a line of JSON to the control socket of the agent, the way of ``skopos rank
report``. The rules and the bounds are those of ``clients/c/skopos_report.h``: a line is sent by the call that finds it due, one
line is in flight at a time, and nothing waits. There is no thread.
"""

import errno
import os
import re
import select
import socket
import threading
import time
import weakref
from typing import NamedTuple

# Most outcomes of a line, and its greatest length in bytes: the agent refuses more.
_OUTCOMES, _LINE_BYTES = 256, 32 * 1024
# The part of an answer that is read: its numbers and the reason of a refusal, which come first.
_ANSWER_BYTES = 255
# Time after which a line is sent that is not full: the usual time between two rankings.
_EVERY_SECONDS = 1.0
# The least time between two lines: twenty of them a second cost the agent little beside its sensors.
_GAP_SECONDS = 0.05
# The longest time that an outcome waits: that for which a ranking of each second is valid.
_STALE_SECONDS = 5.0
# The longest path of a UNIX socket, that of unix(7) without its final zero.
_PATH_BYTES = 107
# The longest latency: eleven days.
_SECONDS_MAX = 1e6
# A name that needs no escapes in JSON, as long as the longest topic at most.
_NAME = re.compile(r"[!#-\[\]-~]{1,255}")
_TAKEN = re.compile(rb'"taken":(\d+)')


class Counts(NamedTuple):
    """The outcomes of a reporter in this process."""

    waiting: int
    """Not sent, or sent without an answer."""
    taken: int
    """The agent took them."""
    refused: int
    """An argument is out of its range, or the agent refused them, such as those of an unknown candidate."""
    dropped: int
    """Too many, too old, or without an agent. Outcomes of a line without an answer may have been taken."""
    error: int
    """The errno of the last drop; 0 before."""
    answer: str
    """The beginning of the last answer that refused an outcome; empty before."""


class Reporter:
    """Reports outcomes to the agent that listens at ``path``, whether it runs or not. Any number of threads may use it.

    Signal handlers may not. A child of ``os.fork`` goes on with the same reporter: its outcomes and counts begin anew, and
    those of the parent stay with the parent.
    """

    def __init__(self, path, profile=None):
        """Takes the path of ``agent.sock`` beside the segment, and a profile; without one, the only profile of the agent.

        Raises ValueError if the profile is not a name, or the path is too long for a socket.
        """
        if profile is not None and not _NAME.fullmatch(profile):
            raise ValueError(f"{profile!r} is not the name of a profile, such as 'reads'")
        self._path = os.fspath(path)
        if len(os.fsencode(self._path)) > _PATH_BYTES:
            raise ValueError(f"{self._path} is longer than {_PATH_BYTES} bytes, the longest path of a socket")
        of_profile = "" if profile is None else f'"profile":"{profile}",'
        self._head = f'{{"verb":"outcomes",{of_profile}"outcomes":['
        self._begin_anew()
        _reporters.add(self)

    def _begin_anew(self):
        self._lock = threading.Lock()
        self._socket = None
        self._in_flight = 0
        self._outcomes, self._bytes = [], 0
        self._first = self._sent = self._next = -_EVERY_SECONDS
        self._taken = self._refused = self._dropped = self._error = 0
        self._answer = ""

    def report(self, candidate, seconds, failed=False, probability=None):
        """Reports that a candidate served a request in ``seconds``, or failed it after that time.

        ``probability`` is that with which the caller chose the candidate, above 0 and at most 1; without one, the agent takes
        the weight of the candidate. Returns True if the outcome waits or was sent, and False if it is dropped, because too
        many come or the agent does not answer.

        Raises ValueError if the name is not 1 to 255 characters of printable ASCII without spaces, double quotes and
        backslashes, or a number is out of its range; the outcome is counted as refused.
        """
        outcome = self._outcome(candidate, seconds, failed, probability)
        with self._lock:
            now = time.monotonic()
            self._drop_stale(now)
            if self._is_full(outcome) and now >= self._next:
                self._send(now)
            if self._is_full(outcome):
                self._dropped += 1
                self._error = errno.EAGAIN
                return False
            if not self._outcomes:
                self._first, self._bytes = now, len(self._head)
            self._outcomes.append(outcome)
            self._bytes += len(outcome) + 1
            is_due = len(self._outcomes) == _OUTCOMES or now - self._sent >= _EVERY_SECONDS
            if is_due and now >= self._next:
                self._send(now)
            return True

    def flush(self, timeout=0.0):
        """Sends what waits, at most 20 lines a second, and waits at most ``timeout`` seconds for the answers of the agent.

        Returns True if no outcome waits then: each was taken, refused or dropped, as the counts say.
        """
        end = time.monotonic() + timeout
        while True:
            with self._lock:
                now = time.monotonic()
                self._drop_stale(now)
                if now >= self._next:
                    self._send(now)
                else:
                    self._settle()
                if self._in_flight == 0 and not self._outcomes:
                    return True
                answer = select.poll()
                if self._socket is not None:
                    answer.register(self._socket, select.POLLIN)
            if now >= end:
                return False
            # Another thread may take the answer, or send a line: look again after the time of one line.
            answer.poll(1000 * min(end - now, _GAP_SECONDS))

    def counts(self):
        """Returns the counts, also those of an answer that has come since the last call."""
        with self._lock:
            self._settle()
            waiting = self._in_flight + len(self._outcomes)
            return Counts(waiting, self._taken, self._refused, self._dropped, self._error, self._answer)

    def close(self):
        """Closes the reporter. Outcomes that wait are dropped and counted: flush before."""
        with self._lock:
            self._drop(errno.ECANCELED)
            self._abandon(errno.ECANCELED)

    def _outcome(self, candidate, seconds, failed, probability):
        """Returns an outcome as JSON."""
        wrong = None
        if not (isinstance(candidate, str) and _NAME.fullmatch(candidate)):
            wrong = f"{candidate!r} is not the name of a candidate, such as 'n02'"
        # NaN is in no range.
        elif not 0.0 <= seconds <= _SECONDS_MAX:
            wrong = f"{seconds!r} is not a latency; a latency is a number of seconds from 0 to {_SECONDS_MAX:.0f}"
        elif probability is not None and not 0.0 < probability <= 1.0:
            wrong = f"{probability!r} is not a probability above 0 and at most 1"
        if wrong is not None:
            with self._lock:
                self._refused += 1
            raise ValueError(wrong)
        parts = [f'{{"candidate":"{candidate}","seconds":{float(seconds)!r}']
        if failed:
            parts.append(',"failed":true')
        if probability is not None:
            parts.append(f',"probability":{float(probability)!r}')
        return "".join(parts) + "}"

    def _is_full(self, outcome):
        # A comma before the outcome, and three bytes at the end of the line.
        is_long = self._bytes + len(outcome) + 4 > _LINE_BYTES
        return len(self._outcomes) == _OUTCOMES or (bool(self._outcomes) and is_long)

    def _drop(self, error):
        if self._outcomes:
            self._dropped += len(self._outcomes)
            self._error = error
            self._outcomes = []

    def _drop_stale(self, now):
        if now - self._first > _STALE_SECONDS:
            self._drop(errno.ETIMEDOUT)

    def _abandon(self, error):
        """Counts the line in flight as dropped, and closes its connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._dropped += self._in_flight
            self._error = error
            self._in_flight = 0

    def _settle(self):
        """Takes the answer about the line in flight, if it has come. Returns True if no line is in flight then."""
        if self._socket is None:
            return True
        try:
            answer = self._socket.recv(_ANSWER_BYTES)
        except BlockingIOError:
            return False
        except OSError as e:
            self._abandon(e.errno)
            return True
        if not answer:
            self._abandon(errno.ECONNRESET)
            return True
        self._socket.close()
        self._socket = None
        # An answer without this number refuses the whole line. A quote in a text of the answer has a backslash.
        number = _TAKEN.search(answer)
        taken = min(int(number.group(1)), self._in_flight) if number else 0
        self._taken += taken
        self._refused += self._in_flight - taken
        if taken < self._in_flight:
            self._answer = answer.decode("utf-8", "replace").rstrip("\n")
        self._in_flight = 0
        return True

    def _send(self, now):
        """Sends the line, unless the last one has no answer yet."""
        self._next = now + _GAP_SECONDS
        if not self._settle() or not self._outcomes:
            return
        self._sent = now
        line = (self._head + ",".join(self._outcomes) + "]}\n").encode("ascii")
        connection = None
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            connection.connect(self._path)
            # The kernel takes a part of a line if the buffers of sockets are configured to be tiny.
            if connection.send(line, socket.MSG_NOSIGNAL) < len(line):
                raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        except OSError as e:
            self._drop(e.errno)
            if connection is not None:
                connection.close()
            return
        self._socket, self._in_flight, self._outcomes = connection, len(self._outcomes), []


_reporters = weakref.WeakSet()


def _after_fork_in_child():
    for reporter in list(_reporters):
        if reporter._socket is not None:
            reporter._socket.close()
        reporter._begin_anew()


os.register_at_fork(after_in_child=_after_fork_in_child)
