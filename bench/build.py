#!/usr/bin/env python3
"""Measures the build of Skopos:
bench/build.py [release|debug|tests]... [--cores 2] [--folder DIR] [--keep] [--out DIR]

Each build begins with an empty target folder below --folder, which --keep leaves there. Sources of
dependencies that are not in cargo's folder are downloaded. `make run` builds the release programs and runs
them for a second; `make test` builds and runs the tests. Time is wall-clock time on the given number of
processors; processor time is what all processes of the build used. Prints the report that `skopos-bench`
prints with --json, and writes it to DIR/build.json of --out after each part. A part that fails is a note in
it. Needs a quiet machine for an hour.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import resource
import shutil
import subprocess
import tempfile
import time

# Limits of the project for two cores, in seconds and bytes.
GOALS = {
    "release programs": {"from nothing": 900, "after a change of one line in score": 60},
    "debug programs": {"from nothing": None, "after a change of one line in score": 20},
    "tests": {"from nothing, built and run": 1200},
}
SIZES = {"skopos": 120e6, "skopos-agent": 16e6}


def run(command, cores, env):
    """Runs a command on the first processors; returns wall-clock and processor seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(["taskset", "-c", f"0-{cores - 1}", *command], check=True, env=env,
                   stdin=subprocess.DEVNULL, stdout=2)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall, used


def row(case, metric, unit, value, goal=None):
    return {
        "case": case, "metric": metric, "unit": unit, "value": value, "peers": {},
        "ratio": None, "goal": None if goal is None else f"≤ {goal:g}",
        "met": None if goal is None else value <= goal,
    }


# One line of code that is changed and put back.
SOURCE = "crates/score/src/budget.rs"
LINE, CHANGED = "const SWAP_RATIO: f64 = 1.5;", "const SWAP_RATIO: f64 = 1.6;"


@contextlib.contextmanager
def changed_line():
    with open(SOURCE) as file:
        text = file.read()
    assert LINE in text, f"{SOURCE} has no line {LINE!r}"
    try:
        with open(SOURCE, "w") as file:
            file.write(text.replace(LINE, CHANGED))
        yield
    finally:
        with open(SOURCE, "w") as file:
            file.write(text)


def measure_programs(case, first, options, cores, target):
    """Runs the command `first`, and builds again after a change of one line. Yields rows as they are measured."""
    env = dict(os.environ, CARGO_TARGET_DIR=target)
    build = ["cargo", "build", "--locked", "-p", "skopos", *options]
    goals, changed = GOALS[case], "after a change of one line in score"
    wall, used = run(first or build, cores, env)
    yield row(case, "from nothing", "s", wall, goals["from nothing"])
    yield row(case, "from nothing, processor time", "s", used)
    with changed_line():
        wall, _ = run(build, cores, env)
    yield row(case, changed, "s", wall, goals[changed])


def measure_release(cores, target):
    first = ["make", "run", "ARGS=--for 1s"]
    yield from measure_programs("release programs", first, ["--release"], cores, target)
    for name, goal in SIZES.items():
        size = os.path.getsize(os.path.join(target, "release", name))
        yield row("size of the release program", name, "MB", size / 1e6, goal / 1e6)


def measure_debug(cores, target):
    yield from measure_programs("debug programs", None, [], cores, target)


def measure_tests(cores, target):
    wall, _ = run(["make", "test"], cores, dict(os.environ, CARGO_TARGET_DIR=target))
    metric = "from nothing, built and run"
    yield row("tests", metric, "s", wall, GOALS["tests"][metric])


PARTS = {"release": measure_release, "debug": measure_debug, "tests": measure_tests}


def commit():
    described = subprocess.run(["git", "describe", "--always", "--dirty"], check=True,
                               capture_output=True, text=True)
    return described.stdout.strip()


def machine():
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line)
    total = next(int(line.split()[1]) for line in open("/proc/meminfo") if "MemTotal" in line)
    version = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True)
    return {
        "cpu": cpu, "cores": os.cpu_count(), "memory_bytes": total * 1024,
        "kernel": f"{platform.release()} {platform.machine()}", "host": platform.node(),
        "versions": {"rustc": version.stdout.split()[1], "skopos": commit()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", help="where the target folders are")
    parser.add_argument("--keep", action="store_true", help="leave the target folders there")
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    now = datetime.datetime.now(datetime.timezone.utc)
    report = {"bench": "build", "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "machine": machine(),
              "notes": [], "rows": []}
    for part in arguments.parts or PARTS:
        target = tempfile.mkdtemp(prefix="skopos-build-", dir=arguments.folder)
        try:
            for measured in PARTS[part](arguments.cores, target):
                report["rows"].append(measured)
        except (subprocess.CalledProcessError, OSError, AssertionError) as failed:
            report["notes"].append(f"{part}: {failed}")
        finally:
            if not arguments.keep:
                shutil.rmtree(target, ignore_errors=True)
        text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
        if arguments.out:
            os.makedirs(arguments.out, exist_ok=True)
            with open(os.path.join(arguments.out, "build.json"), "w") as file:
                file.write(text)
    print(text, end="")
    if report["notes"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
