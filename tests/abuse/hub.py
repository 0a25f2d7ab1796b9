"""The hub that is abused, with simulated nodes behind it, and its memory."""

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

NODES, FACTS = 50, 300
START_SECONDS = 20.0


class Hub:
    """A hub in a folder of its own, so that it meets no other instance of this machine."""

    def __init__(self, program: Path, most_bytes: int) -> None:
        self.program, self.most_bytes = program, most_bytes
        self.folder = Path(tempfile.mkdtemp(prefix="skopos-abuse-"))
        self.plane, self.http, self.flight = free_ports(3)
        self.topic = ""
        self.hub: subprocess.Popen[bytes] | None = None
        self.simulation: subprocess.Popen[bytes] | None = None

    @property
    def unix(self) -> str:
        return str(self.folder / "run" / "hub.sock")

    @property
    def pid(self) -> int:
        return self.hub.pid if self.hub else 0

    def start(self) -> None:
        """Starts the hub, and its nodes unless they run, and waits until it knows all of them."""
        endpoint = f"tcp/127.0.0.1:{self.plane}"
        http_at, flight_at = f"127.0.0.1:{self.http}", f"127.0.0.1:{self.flight}"
        addresses = ["--listen", endpoint, "--http", http_at, "--flight", flight_at]
        self.hub = self._spawn("hub", "--insecure", *addresses)
        if self.simulation is None:
            args = ["--nodes", str(NODES), "--facts", str(FACTS), "--rate", "1", "--insecure"]
            self.simulation = self._spawn("simulate", *args, "--connect", endpoint)
        self._wait()

    def is_alive(self) -> bool:
        return self.hub is not None and self.hub.poll() is None

    def stop(self, *, with_nodes: bool = True) -> None:
        for process in (self.hub, self.simulation if with_nodes else None):
            if process and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        self.hub = None
        if with_nodes:
            self.simulation = None

    def last_words(self) -> str:
        """Returns how the hub ended, and the last line of its log that tells why."""
        lines = (self.folder / "hub.log").read_text(errors="replace").strip().splitlines()
        words = ("panicked", "allocation", "error", "overflow")
        telling = [line for line in lines if any(word in line for word in words)]
        code = self.hub.poll() if self.hub else None
        return f"exit {code}: {(telling or lines or [''])[-1][:150]}"

    def _spawn(self, verb: str, *args: str) -> subprocess.Popen[bytes]:
        places = {name: self.folder / name for name in ("home", "run", "state")}
        for place in places.values():
            place.mkdir(mode=0o700, exist_ok=True)
        home, run, state = (str(place) for place in places.values())
        env = {"HOME": home, "XDG_STATE_HOME": state, "SKOPOS_DIR": run, "SKOPOS_STATE": state, "PATH": os.defpath}
        # A backtrace shows where a hub panicked.
        env["RUST_BACKTRACE"] = "1"
        limit = self._limit if verb == "hub" else None
        command = [str(self.program), verb, *args]
        with (self.folder / f"{verb}.log").open("ab") as log:
            return subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=limit
            )

    def _limit(self) -> None:
        """Bounds the memory of the hub, and writes no image of it when it dies."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (self.most_bytes, self.most_bytes))

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            try:
                if self._knows_all():
                    return
            except OSError:
                pass
            if not self.is_alive():
                raise SystemExit(f"the hub ended while it started: {self.last_words()}")
            time.sleep(0.2)
        raise SystemExit(f"the hub did not get its {NODES} nodes within {START_SECONDS:.0f} s: see {self.folder}")

    def _knows_all(self) -> bool:
        nodes = [node for node in self._get("/api/v1/nodes")["nodes"] if node["topics"] >= FACTS]
        if len(nodes) < NODES:
            return False
        readings = self._get("/api/v1/get?topic=*/load/load_1m")["readings"]
        self.topic = readings[0]["topic"] if readings else ""
        return bool(self.topic)

    def _get(self, path: str) -> dict:
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=5)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Returns `VmRSS`, or `VmHWM` for the peak, of a process in MB; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    found = (line.split()[1] for line in lines if line.startswith(field + ":"))
    return int(next(found, "0")) / 1024


def forget_peak(pid: int) -> None:
    """Makes the kernel count the peak of a process's memory from now on."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        pass


def free_ports(count: int) -> list[int]:
    """Returns TCP ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports
