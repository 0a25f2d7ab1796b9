#!/usr/bin/env python3
"""The baseline of `skopos-bench delphi`: an LSTM of the paper's size, trained on each trace.

    pip install numpy
    nice bench/lstm/train.py            # writes bench/lstm/results.json, a few minutes

The paper compares Delphi with LSTM models of 71,851 parameters, one for each metric. Four layers of
50 units and one output have exactly that number if the window of five comes as five features at one
step, as in this script. It uses plain numpy with double precision, Adam, and 200 passes over the first
half of a trace; the test is the second half, one step ahead. The inputs are those of Delphi: the
differences to the last value, divided by their usual size. Without them the LSTM fails on every
counter, which leaves the range of its training. `--sequence` feeds the window as five steps of one feature instead
(71,051 parameters), so that the recurrence has something to do.

The synthetic traces are those of the benchmark, made by the same generator.
"""

import argparse
import json
import math
import os
import time

import numpy as np

WINDOW = 5
UNITS = 50
LAYERS = 4
EPOCHS = 200
BATCH = 32
RATE = 1e-3
HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.join(HERE, "..", "traces")


class Random:
    """SplitMix64 and Irwin-Hall, as in crates/model/src/random.rs."""

    def __init__(self, seed):
        self.state = seed

    def unit(self):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = ((self.state ^ (self.state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return ((z ^ (z >> 31)) >> 11) / (1 << 53)

    def normal(self):
        return sum(self.unit() for _ in range(12)) - 6.0


def synthetic():
    """The series of crates/bench/src/delphi/synthetic.rs."""
    random, count = Random(2021), 1000
    walk, x = [], 0.0
    for _ in range(count):
        x += random.normal()
        walk.append(x)
    steps, level = [], 0.0
    for i in range(count):
        if i % 40 == 0:
            level = 100.0 * random.normal()
        steps.append(level)
    return {
        "random walk": walk,
        "sine(60)": [50.0 + 50.0 * math.sin(2.0 * math.pi * i / 60.0) for i in range(count)],
        "ramp": [10.0 * i for i in range(count)],
        "constant": [42.0] * count,
        "steps": steps,
    }


def recorded():
    """Every trace file under bench/traces, by its name without the extension."""
    found = {}
    for folder, _, files in sorted(os.walk(TRACES)):
        for name in sorted(files):
            if name.endswith(".csv"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    rows = [line.split(",") for line in file if line[0].isdigit()]
                found[name[: -len(".csv")]] = [float(row[1]) for row in rows]
    return found


def sigmoid(x):
    return 0.5 * (1.0 + np.tanh(0.5 * x))


class Lstm:
    def __init__(self, features, seed=1):
        rng = np.random.default_rng(seed)
        self.p = []
        size = features
        for _ in range(LAYERS):
            limit = math.sqrt(6.0 / (size + 4 * UNITS))
            own, _ = np.linalg.qr(rng.normal(size=(4 * UNITS, UNITS)))
            bias = np.zeros(4 * UNITS)
            bias[UNITS : 2 * UNITS] = 1.0  # Remember at first.
            self.p += [rng.uniform(-limit, limit, (size, 4 * UNITS)), own.T.copy(), bias]
            size = UNITS
        limit = math.sqrt(6.0 / (UNITS + 1))
        self.p += [rng.uniform(-limit, limit, (UNITS, 1)), np.zeros(1)]
        self.m = [np.zeros_like(p) for p in self.p]
        self.v = [np.zeros_like(p) for p in self.p]
        self.t = 0

    def parameters(self):
        return sum(p.size for p in self.p)

    def forward(self, x):
        """`x` is batch × steps × features; the output of the last step, and the inputs of all layers."""
        seen, inputs = [], x
        for layer in range(LAYERS):
            w, u, b = self.p[3 * layer : 3 * layer + 3]
            h = c = np.zeros((len(x), UNITS))
            outputs, steps = [], []
            for t in range(inputs.shape[1]):
                z = inputs[:, t] @ w + h @ u + b
                i, f, o = (sigmoid(z[:, k * UNITS : (k + 1) * UNITS]) for k in (0, 1, 3))
                g = np.tanh(z[:, 2 * UNITS : 3 * UNITS])
                new = f * c + i * g
                tanh = np.tanh(new)
                steps.append((inputs[:, t], h, c, i, f, g, o, tanh))
                h, c = o * tanh, new
                outputs.append(h)
            seen.append(steps)
            inputs = np.stack(outputs, axis=1)
        return (inputs[:, -1] @ self.p[-2] + self.p[-1])[:, 0], inputs, seen

    def learn(self, x, y, rate):
        out, last, seen = self.forward(x)
        error = (2.0 / len(y)) * (out - y)[:, None]
        slopes = [np.zeros_like(p) for p in self.p]
        slopes[-2], slopes[-1] = last[:, -1].T @ error, error.sum(0)
        down = np.zeros_like(last)
        down[:, -1] = error @ self.p[-2].T
        for layer in reversed(range(LAYERS)):
            w, u, _ = self.p[3 * layer : 3 * layer + 3]
            dh, dc = np.zeros((len(x), UNITS)), np.zeros((len(x), UNITS))
            below = []
            for t in reversed(range(len(seen[layer]))):
                inputs, h, c, i, f, g, o, tanh = seen[layer][t]
                dh = dh + down[:, t]
                dc = dc + dh * o * (1 - tanh * tanh)
                dz = np.concatenate(
                    [dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g),
                     dh * tanh * o * (1 - o)], axis=1)
                slopes[3 * layer] += inputs.T @ dz
                slopes[3 * layer + 1] += h.T @ dz
                slopes[3 * layer + 2] += dz.sum(0)
                below.append(dz @ w.T)
                dh, dc = dz @ u.T, dc * f
            down = np.stack(below[::-1], axis=1)
        self.t += 1
        for k, slope in enumerate(slopes):
            self.m[k] = 0.9 * self.m[k] + 0.1 * slope
            self.v[k] = 0.999 * self.v[k] + 0.001 * slope * slope
            size = np.sqrt(self.v[k] / (1 - 0.999**self.t)) + 1e-8
            self.p[k] -= rate * self.m[k] / (1 - 0.9**self.t) / size


def evaluate(values, sequence):
    """Trains on the first half, tests on the second."""
    values = np.array(values)
    half = len(values) // 2
    windows = np.lib.stride_tricks.sliding_window_view(values, WINDOW)[:-1]
    targets, last = values[WINDOW:], values[WINDOW - 1 : -1]
    # The sample at index `half` is the first to be tested.
    split = half - WINDOW
    size = np.mean(np.abs(np.diff(values[:half]))) or 1.0
    x, y = (windows - last[:, None]) / size, (targets - last) / size
    x = x[:, :, None] if sequence else x[:, None, :]
    model, rng = Lstm(x.shape[2]), np.random.default_rng(2)
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        order = rng.permutation(split)
        for at in range(0, split, BATCH):
            rows = order[at : at + BATCH]
            model.learn(x[rows], y[rows], RATE * (1 - epoch / EPOCHS))
    seconds = time.perf_counter() - start
    said = last[split:] + model.forward(x[split:])[0] * size
    error = said - targets[split:]
    variance = np.var(targets[split:])
    one = x[split : split + 1]
    start = time.perf_counter()
    for _ in range(100):
        model.forward(one)
    return {
        "mae": float(np.mean(np.abs(error))),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "r2": float(1 - np.mean(error**2) / variance) if variance > 0 else None,
        "train_seconds": seconds,
        "inference_ns": (time.perf_counter() - start) / 100 * 1e9,
        "parameters": model.parameters(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sequence", action="store_true", help="five steps of one feature")
    parser.add_argument("--out", default=os.path.join(HERE, "results.json"))
    args = parser.parse_args()
    results = {}
    for name, values in {**synthetic(), **recorded()}.items():
        if len(values) < 4 * WINDOW:
            continue
        results[name] = {k: v if v is None else float(f"{v:.6g}")
                         for k, v in evaluate(values, args.sequence).items()}
        print(f"{name}: {results[name]}", flush=True)
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
