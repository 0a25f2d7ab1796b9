"""Reports outcomes with the module for Python, as outcomes.c does with the header for C."""

import os
import signal
import sys
import threading
import traceback

from skopos_shm import Reporter, report

# Time that only ends a hang.
PATIENCE_SECONDS = 180
CHILDREN, THREADS = 20, 2


def show(reporter):
    counts = reporter.counts()
    print(counts.waiting, counts.taken, counts.refused, counts.dropped, counts.error, flush=True)


def once(reporter):
    assert reporter.report("n02", 0.0012)
    show(reporter)


def hung(reporter):
    assert reporter.report("n02", 0.0012, failed=True, probability=0.25)
    assert sum(not reporter.report("n03", 3e-9 * at) for at in range(1, 300)) == 43
    assert not reporter.flush()
    show(reporter)
    assert reporter.flush(PATIENCE_SECONDS)
    show(reporter)
    assert "ranks no profile" in reporter.counts().answer
    assert reporter.report("n03", 1.0)
    assert reporter.flush(PATIENCE_SECONDS)
    show(reporter)


def stale(reporter):
    report._STALE_SECONDS = 0.0
    assert reporter.report("n02", 1.0)
    assert reporter.report("n02", 2.0)
    then = report.time.monotonic()
    while report.time.monotonic() == then:
        pass
    assert reporter.report("n02", 3.0)
    show(reporter)


def child(reporter):
    signal.alarm(PATIENCE_SECONDS)
    assert reporter.counts()[:4] == (0, 0, 0, 0)
    assert reporter.report("n02", 0.001)
    assert reporter.flush(PATIENCE_SECONDS)
    assert reporter.counts()[:4] == (0, 1, 0, 0)


def fork_children(reporter):
    for _ in range(CHILDREN):
        forked = os.fork()
        if forked == 0:
            try:
                child(reporter)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(forked, 0) == (forked, 0)


def check_invalid(reporter):
    for arguments in [
        (None, 1.0), ("", 1.0), ('a"b', 1.0), ("n02", float("nan")), ("n02", -1.0), ("n02", 2e6),
        ("n02", 1.0, False, 1.5), ("n02", 1.0, False, 0.0),
    ]:
        try:
            reporter.report(*arguments)
        except ValueError:
            continue
        raise AssertionError(arguments)
    try:
        Reporter("agent.sock", "a b")
    except ValueError:
        return
    raise AssertionError("a b")


def agent(reporter):
    assert reporter.report("n99", 0.1)
    assert reporter.flush(PATIENCE_SECONDS) and reporter.counts().refused == 1
    assert "n99" in reporter.counts().answer
    check_invalid(reporter)
    for at in range(100):
        assert reporter.report("n02" if at % 2 else "n03", 0.001 * at, at % 10 == 0, 0.5 if at % 2 else None)
    assert reporter.flush(PATIENCE_SECONDS)
    assert reporter.counts()[:4] == (0, 100, 9, 0), reporter.counts()
    over, reported = threading.Event(), [0] * THREADS

    def work(number):
        while not over.is_set():
            reporter.report("n02", 0.001)
            reported[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for worker in workers:
        worker.start()
    try:
        fork_children(reporter)
    finally:
        over.set()
    for worker in workers:
        worker.join()
    assert reporter.flush(PATIENCE_SECONDS)
    counts = reporter.counts()
    assert counts.waiting == 0 and counts.refused == 9, counts
    assert counts.taken + counts.dropped == 100 + sum(reported), counts
    print(counts.taken + CHILDREN)


# An outcome waits for as long as the test does, on a busy machine.
report._STALE_SECONDS = 600.0
with_reporter = {"once": once, "hung": hung, "stale": stale, "agent": agent}[sys.argv[1]]
with_reporter(Reporter(sys.argv[2], "reads"))
