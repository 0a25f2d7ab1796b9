"""The recorder of a process: a bounded queue, and a thread that writes it to the trace file."""

import collections
import json
import logging
import os
import re
import resource
import threading
import time
import weakref

from . import callpath, record, tracefile

# The name of a service is a part of file names.
_NAME = re.compile(r"[a-z0-9_.-]{1,48}\Z")
# Calls whose records wait for the writer: 65,536 take about 15 MB. Further ones are counted and dropped.
MAX_QUEUED = 65536
# Callpath nodes and names of peers, as in the Rust crate; further ones count as number 0.
MAX_NODES = 65536
MAX_PEERS = 65535
# The share of nodes whose path came with a request: a caller that invents callpaths leaves room for calls that begin here.
MAX_FOREIGN = MAX_NODES // 4 * 3
OTHER_HASH = callpath.child(callpath.ROOT, callpath.name_hash("other"))
# Bounds of Lamport clocks, as in the Rust crate: the furthest that another process moves ours at once, the greatest clock of
# another process that is believed, and the greatest clock that a record holds.
MAX_JUMP = 1 << 28
MAX_BELIEVED = 1 << 31
MAX_LAMPORT = (1 << 32) - 1
MAX_NAME_BYTES = 255
# The writer wakes this often. A crash loses at most this much.
WRITE_SECONDS = 0.1
# Clocks drift, and the time of the day is set.
CALIBRATE_SECONDS = 10
SAMPLE_SECONDS = 1
# Records of one frame, well below its limit.
_CALLS_IN_FRAME = 4096

COUNTER, LEVEL, SIZE = 2, 4, 5
NO_OBJECT, HANDLE = 0, 1

_UNSEEN = {
    "target_internal_rdma_transfer": "HTTP/2 sends a request as one stream, and has no second transfer for a part of it",
    "origin_completion_callback": "the arrival of a response is inside of grpcio, below its interceptors",
}
_SEEN = [name for name in record.INTERVALS if name not in _UNSEEN]

_log = logging.getLogger("skopos_rpc")
_recorders = weakref.WeakSet()


class Recorder:
    """Records the calls of this process in `folder`.

    `name` has 1 to 48 of the characters a-z 0-9 _ - . A process that is forked gets a file of its own with its first
    record. Raises `ValueError` for a name that is not allowed, and `OSError` if the folder cannot be written.
    """

    def __init__(self, name, folder, config=None, node="", max_queued=MAX_QUEUED):
        if not _NAME.match(name):
            raise ValueError(f"{name!r} is not a name of a service: 1 to 48 of a-z 0-9 _ - .")
        self.enabled = True
        self.name = name
        self._folder = os.fspath(folder)
        self._config = {str(key): str(value) for key, value in (config or {}).items()}
        self._node = node
        self._max_queued = max_queued
        self._pvars = []
        self._pvar_numbers = {}
        # Writers of the file hold this lock; a fork waits for it.
        self._lock = threading.Lock()
        self._names = threading.Lock()
        self._error = None
        self._lost_in_all = 0
        self.lamport = 0
        self.in_flight = {"server": 0, "client": 0}
        self._totals = {"server": 0, "client": 0, "received": 0, "sent": 0}
        for kind in ("request_bytes", "response_bytes"):
            self.register(kind, SIZE, "bytes")
        self._register_own()
        self._reset()
        self._open()
        _recorders.add(self)

    def _register_own(self):
        self.register("process_cpu_ns_total", COUNTER, "ns", _cpu_ns)
        self.register("process_resident_bytes", SIZE, "bytes", _resident_bytes)
        for side in ("server", "client"):
            self.register(f"grpc_{side}_requests_in_flight", LEVEL, "", lambda s=side: self.in_flight[s])
            self.register(f"grpc_{side}_requests_total", COUNTER, "", lambda s=side: self._totals[s])
        for way in ("received", "sent"):
            self.register(f"grpc_bytes_{way}_total", COUNTER, "bytes", lambda w=way: self._totals[w])

    def _reset(self):
        """Begins anew, without anything of the process from which this one was forked."""
        self._queue = collections.deque()
        self._lost = 0
        self._written_lost = 0
        self._nodes = {}
        self._peers = {}
        self._foreign = set()
        self._refused = {
            "nodes_refused": 0, "peers_refused": 0, "values_refused": 0, "clocks_bounded": 0, "newer_contexts": 0,
        }  # fmt: skip
        self._definitions = []
        self._written_pvars = 0
        self._thread = None
        self._file = None
        self._closing = threading.Event()
        self._calibrated = self._sampled = 0.0
        self._random = int.from_bytes(os.urandom(16), "little") | 1

    # -- names ---------------------------------------------------------------------------------------------------

    def node(self, parent_hash, name, is_foreign=False):
        """Interns a callpath node; returns its number and hash. `is_foreign` says that the path above came with a request."""
        key = (parent_hash, name)
        known = self._nodes.get(key)
        if known is not None:
            return known
        with self._names:
            if key in self._nodes:
                return self._nodes[key]
            name = name.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
            own_hash = callpath.child(parent_hash, callpath.name_hash(name))
            is_foreign = parent_hash and (is_foreign or parent_hash in self._foreign)
            if len(self._nodes) >= MAX_NODES or is_foreign and len(self._foreign) >= MAX_FOREIGN:
                self._refused["nodes_refused"] += 1
                # Calls below it are calls below "other", so that their paths are as few as their names.
                return 0, OTHER_HASH
            number = len(self._nodes) + 1
            self._definitions.append(tracefile.node(number, parent_hash, own_hash, name))
            self._nodes[key] = number, own_hash
            if is_foreign:
                self._foreign.add(own_hash)
            return number, own_hash

    def peer(self, name):
        """Interns the name of another entity; 0 for None or if there are too many."""
        if not name:
            return 0
        known = self._peers.get(name)
        if known is not None:
            return known
        with self._names:
            if name in self._peers:
                return self._peers[name]
            if len(self._peers) >= MAX_PEERS:
                self._refused["peers_refused"] += 1
                return 0
            number = self._peers[name] = len(self._peers) + 1
            self._definitions.append(tracefile.peer(number, name))
            return number

    def register(self, name, variable_class, unit="", source=None):
        """Registers a performance variable and returns its tag.

        With `source`, a function without arguments, it belongs to the process and is sampled each second. Without, it
        belongs to requests: `span.value(tag, number)`.
        """
        with self._lock:
            if name not in self._pvar_numbers:
                self._pvar_numbers[name] = len(self._pvars)
                self._pvars.append(None)
            number = self._pvar_numbers[name]
            self._pvars[number] = (variable_class, NO_OBJECT if source else HANDLE, name, unit, source)
            return record.FIRST_PVAR_TAG + number

    def tag(self, name):
        """Returns the tag of a registered variable."""
        return record.FIRST_PVAR_TAG + self._pvar_numbers[name]

    # -- records -------------------------------------------------------------------------------------------------

    def new_id(self):
        """Returns an id of 64 bits, not 0."""
        # A counter of another process, mixed: ids of two processes are as different as their random starts.
        self._random += 0x9E3779B97F4A7C15
        return callpath.child(self._random & (1 << 64) - 1, self._random >> 64)

    def tick(self, seen=0):
        """Advances the Lamport clock past `seen` and returns it. One that is too far ahead is taken in steps, and counted."""
        own = self.lamport
        believed = max(own, min(seen, MAX_BELIEVED, own + MAX_JUMP))
        if believed < seen:
            self._refused["clocks_bounded"] += 1
        self.lamport = min(believed + 1, MAX_LAMPORT)
        return self.lamport

    def count_newer(self):
        """Counts a context of a newer version."""
        self._refused["newer_contexts"] += 1

    def count(self, side, received, sent):
        """Counts a request that ended."""
        self._totals[side] += 1
        self._totals["received"] += received
        self._totals["sent"] += sent

    def write(self, data):
        """Queues the records of one call; counts and drops them if the writer is behind."""
        if len(self._queue) >= self._max_queued or self._error is not None:
            with self._names:
                self._lost += len(data) // record.RECORD_BYTES
            return
        self._queue.append(data)
        if self._thread is None:
            self._start_thread()

    def set_config(self, key, value):
        """Sets a value of the service's configuration, which is kept with the trace."""
        with self._lock:
            self._config[str(key)] = str(value)
            if self._file is not None:
                self._put(tracefile.process(self._describe()))

    def dropped(self):
        """Returns the number of records that were dropped so far."""
        return self._lost_in_all + self._lost

    # -- the file ------------------------------------------------------------------------------------------------

    def _describe(self):
        return {
            "version": 1,
            "name": self.name,
            "pid": os.getpid(),
            "start_ticks": _start_ticks(),
            "node": self._node,
            "boot_id": _boot_id(),
            "config": self._config,
            "host": f"grpcio {_grpc_version()}",
            "intervals": _SEEN,
            "unseen": _UNSEEN,
        }

    def _open(self):
        self._file, self.path = tracefile.create(self._folder, self.name, os.getpid(), _start_ticks())
        self._put(tracefile.process(self._describe()))
        self._calibrate()

    def _put(self, data):
        """Writes to the file. The first failure ends the recording; all records from then on count as dropped."""
        try:
            tracefile.write_all(self._file, data)
        except OSError as error:
            is_first, self._error = self._error is None, error
            self._lost += len(self._queue)
            # A handler of the log may make calls that are recorded: they find the error, and wait for no lock.
            if is_first:
                _log.warning("%s: the trace cannot be written, and further calls are not recorded: %s", self.path, error)

    def _calibrate(self):
        ticks, unix_ns, error_ns = min((_clocks() for _ in range(5)), key=lambda clocks: clocks[2])
        self._put(tracefile.clock(ticks, unix_ns, 1.0, error_ns))
        self._calibrated = time.monotonic()

    def _start_thread(self):
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="skopos-rpc", daemon=True)
                self._thread.start()

    def _run(self):
        closing = self._closing
        while not closing.wait(WRITE_SECONDS):
            self.flush()

    def flush(self):
        """Writes all records that are queued."""
        with self._lock:
            if self._error is not None:
                return
            if self._file is None:
                self._open()
            now = time.monotonic()
            if now - self._calibrated >= CALIBRATE_SECONDS:
                self._calibrate()
            if now - self._sampled >= SAMPLE_SECONDS and self.enabled:
                self._sampled = now
                self._queue.append(self._sample())
            while self._queue:
                self._write_frame()

    def _write_frame(self):
        count = min(len(self._queue), _CALLS_IN_FRAME)
        data = b"".join([self._queue.popleft() for _ in range(count)])
        with self._names:
            definitions, self._definitions = self._definitions, []
            lost, self._lost = self._lost, 0
        self._lost_in_all += lost
        for number in range(self._written_pvars, len(self._pvars)):
            variable_class, binding, name, unit, _ = self._pvars[number]
            definitions.append(tracefile.pvar(number, variable_class, binding, name, unit))
        self._written_pvars = len(self._pvars)
        self._put(b"".join([*definitions, tracefile.records(0, lost, data)]))

    def _sample(self):
        values = []
        for number, (_, _, _, _, source) in enumerate(self._pvars):
            if source is not None:
                try:
                    values.append((record.FIRST_PVAR_TAG + number, source()))
                except Exception:  # A source of the service must not end the writer.
                    self._refused["values_refused"] += 1
        return record.encode_sample(time.monotonic_ns(), values)

    def close(self):
        """Writes all records and ends the file. Calls that end later are not recorded."""
        self.enabled = False
        self._closing.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self.flush()
        with self._lock:
            _recorders.discard(self)
            if self._file is None:
                return
            counters = {"deleted": self.dropped(), "names_refused": 0, "stage": 0, "stage_wanted": 3, **self._refused}
            self._put(tracefile.frame(tracefile.COUNTERS, json.dumps(counters).encode()) + tracefile.end())
            os.close(self._file)
            self._file = None
            self._error = self._error or ValueError("the recorder is closed")


def _forget_parent():
    for recorder in list(_recorders):
        if recorder._file is not None:
            os.close(recorder._file)
        recorder._lock = threading.Lock()
        recorder._names = threading.Lock()
        recorder._lost_in_all = 0
        recorder.in_flight.update(server=0, client=0)
        recorder._reset()


_held = []


def _before_fork():
    for recorder in list(_recorders):
        recorder._lock.acquire()
        _held.append(recorder)


def _after_fork():
    while _held:
        _held.pop()._lock.release()


def _after_fork_in_child():
    _held.clear()
    _forget_parent()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


def _clocks():
    before = time.monotonic_ns()
    unix_ns = time.time_ns()
    after = time.monotonic_ns()
    return (before + after) // 2, unix_ns, (after - before + 1) // 2


def _start_ticks():
    with open("/proc/self/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[19])


def _boot_id():
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as text:
            return text.read().strip().replace("-", "")
    except OSError:
        return ""


def _cpu_ns():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return int((usage.ru_utime + usage.ru_stime) * 1e9)


def _resident_bytes():
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def _grpc_version():
    try:
        import grpc

        return grpc.__version__
    except ImportError:
        return "(absent)"
