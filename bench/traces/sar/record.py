#!/usr/bin/env python3
"""Records what `sar -dbp 1` would show of block devices, a trace file for each metric.

    bench/traces/record.py --seconds 300 --out DIR vda/file zram0 loop0p1/partition

Each argument is a device of /proc/diskstats, with a word for the name of its files if it should
have another. Every second its counters are read; the files hold, in the base units of Skopos, the
counters themselves (`read_bytes_total`, `write_bytes_total`) and what sysstat derives from two
readings: operations and bytes a second, time a request waits, queue depth, share of busy time.
The load is the caller's: `load.sh` beside this file is the one of the committed traces.
"""

import argparse
import os
import time

SECTOR = 512
UNITS = {
    "ops_per_second": "1/s",
    "read_bytes_per_second": "bytes/s",
    "write_bytes_per_second": "bytes/s",
    "await_seconds": "seconds",
    "queue_depth": "",
    "busy_ratio": "ratio",
    "read_bytes_total": "bytes",
    "write_bytes_total": "bytes",
}


def counters():
    """Returns for each device: reads, read bytes, writes, written bytes, ms in requests, busy ms, queue ms."""
    found = {}
    with open("/proc/diskstats", encoding="ascii") as file:
        for line in file:
            f = line.split()
            reads, writes = int(f[3]), int(f[7])
            waited = int(f[6]) + int(f[10])
            found[f[2]] = (reads, int(f[5]) * SECTOR, writes, int(f[9]) * SECTOR, waited,
                           int(f[12]), int(f[13]))
    return found


def derived(before, after, seconds):
    """Computes the values of sysstat from two readings, by the formulas of iostat(1)."""
    d = [b - a for a, b in zip(before, after)]
    ops = d[0] + d[2]
    return {
        "ops_per_second": ops / seconds,
        "read_bytes_per_second": d[1] / seconds,
        "write_bytes_per_second": d[3] / seconds,
        "await_seconds": d[4] / 1000 / ops if ops else 0,
        "queue_depth": d[6] / 1000 / seconds,
        "busy_ratio": min(1, d[5] / 1000 / seconds),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("device", nargs="+")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--out", required=True)
    parser.add_argument("--load", default="", help="what ran meanwhile, for the files' heads")
    args = parser.parse_args()
    names = dict((d.split("/") * 2)[:2] for d in args.device)
    rows = {device: [] for device in names}
    start = time.monotonic()
    base = before = counters()
    at = 0.0
    for tick in range(1, args.seconds + 1):
        time.sleep(max(0.0, start + tick - time.monotonic()))
        now, after = time.monotonic() - start, counters()
        for device in names:
            row = derived(before[device], after[device], now - at)
            row["read_bytes_total"] = after[device][1] - base[device][1]
            row["write_bytes_total"] = after[device][3] - base[device][3]
            rows[device].append((now, row))
        before, at = after, now
    day = time.strftime("%Y-%m-%d", time.gmtime())
    os.makedirs(args.out, exist_ok=True)
    for device, name in names.items():
        for metric, unit in UNITS.items():
            if len({row[metric] for _, row in rows[device]}) < 3:
                continue  # A device that this load does not touch in this way.
            path = os.path.join(args.out, f"{name}-{metric}.csv")
            with open(path, "w", encoding="ascii") as file:
                file.write(f"# topic: block/{device}/{metric}\n# unit: {unit}\n# recorded: {day}\n")
                if args.load:
                    file.write(f"# load: {args.load}\n")
                file.write("time_seconds,value\n")
                for when, row in rows[device]:
                    value = row[metric]
                    text = str(value) if isinstance(value, int) else f"{value:.6g}"
                    file.write(f"{when:.3f},{text}\n")


if __name__ == "__main__":
    main()
