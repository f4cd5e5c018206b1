"""What the peers share: medians, random order, sweeps, and the table.

The work is bench.cu's: 512 MiB of floats in, one kernel as long as the pinned copy in, 512 MiB out.
A peer gives the variants as functions that start with nothing queued and return when all is done.
"""

import argparse
import json
import random
import statistics
import sys
import time

MIB = 1 << 20
CHUNKS_MIB = (1, 2, 4, 8, 16, 32, 64)
SKIP = 77


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def arguments(doc):
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--mib", type=int, default=512, help="MiB in and out (512)")
    parser.add_argument("--kernel", type=float, default=1.0, help="x the pinned copy in (1)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sweep-rounds", type=int, default=3)
    parser.add_argument("--json", help="write all samples to this file")
    return parser.parse_args()


def once(run, reset, right):
    """Milliseconds of one run; its output was poisoned before and is checked after."""
    reset()
    begin = time.perf_counter()
    run()
    ms = (time.perf_counter() - begin) * 1e3
    if not right():
        raise SystemExit("wrong output")
    return ms


def measure(variants, rounds, warm=1):
    """variants: name -> (run, reset, right). Each once a round, in random order."""
    times = {name: [] for name in variants}
    for k in range(-warm, rounds):
        for name in random.sample(sorted(variants), len(variants)):
            ms = once(*variants[name])
            if k >= 0:
                times[name].append(ms)
    return times


def best(candidates, rounds):
    """The candidate of the least median, by name."""
    times = measure(candidates, rounds)
    return min(times, key=lambda name: statistics.median(times[name]))


def calibrate(time_of, want_ms):
    """The number of steps for which time_of(steps) is want_ms: it grows about linearly."""
    few, many = 64, 1024
    time_of(many)
    ms = time_of(few)
    slope = (time_of(many) - ms) / (many - few)
    steps = few
    for _ in range(3):
        steps = max(0, int(steps + (want_ms - ms) / slope))
        ms = time_of(steps)
    return steps, ms


def quartiles(values):
    if len(values) < 2:
        return values[0], values[0], values[0]
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def report(title, times, args):
    """Prints median ms and fraction of the bound, paired by round."""
    bound = [max(pair) for pair in zip(times["both ways"], times["kernel"])]
    print(f"{title}: {args.mib} MiB each way, {args.rounds} rounds")
    for name, ms in times.items():
        low, mid, high = quartiles([b / m for b, m in zip(bound, ms)])
        print(f"  {name:34} {statistics.median(ms):9.3f} ms   {mid:.3f} of the bound"
              f" [{low:.3f} {high:.3f}]")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"peer": title, "mib": args.mib, "kernel": args.kernel, "ms": times}, f)
