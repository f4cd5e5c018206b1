#!/usr/bin/env python3
"""many.cu's work as a PyTorch user would do it: python3 -B torch_threads.py [--quick] ...

Each thread has host arrays and a torch.cuda.Stream of its own; it copies the whole in, computes
y = 2x + 1, copies the whole out and waits for the stream. Kept: with device tensors made once. Once:
with tensors made and freed each time, which PyTorch takes from its cache. Its calls let go of the GIL
while they work, but between them the threads take turns: that is what a PyTorch user gets. Streams
come from a pool of 32, so two of 64 threads may share one. GB/s: both directions together, all
threads, the median of the rounds; every output is compared.
"""

import argparse
import concurrent.futures
import datetime
import os
import statistics
import subprocess
import sys
import threading
import time

from peer_common import skip

try:
    import torch
except ImportError:
    skip("PyTorch is not there")
if not torch.cuda.is_available():
    skip("PyTorch sees no GPU")

KIB = 1 << 10
GIB = 1 << 30
WARM_RUNS = 2
SIZES_KIB = (256, 1 * KIB, 4 * KIB, 64 * KIB, 256 * KIB)
QUICK_KIB = (4 * KIB, 64 * KIB)
ONE = torch.ones(())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1 and 16 threads, 4 and 64 MiB")
    parser.add_argument("--smoke", action="store_true", help="whether it works, in a second")
    parser.add_argument("--work", help="this kind only: 'kept, pinned'")
    parser.add_argument("--threads", type=int, help="this many only")
    parser.add_argument("--only", default="rates", help="as many.cu; there are rates alone here")
    return parser.parse_known_args()[0]  # many.cu passes over what it does not know, too


def print_machine():
    """The line that bench_machine_print prints."""
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                               capture_output=True, text=True, check=True)
        driver = asked.stdout.split("\n")[0].strip()
    except (OSError, subprocess.CalledProcessError):
        driver = "unknown"
    now = datetime.datetime.now(datetime.timezone.utc)
    print(f"{torch.cuda.get_device_name()}, driver {driver}, runtime {torch.version.cuda}, "
          f"{len(os.sched_getaffinity(0))} cores, {now:%Y-%m-%d %H:%M} UTC", flush=True)


class Job:
    """One row's work, the same for all threads: what goes in, and what must come out."""

    def __init__(self, kept, pinned, kib):
        self.kept, self.pinned, self.kib = kept, pinned, kib
        self.bytes = kib * KIB
        self.x = torch.arange(self.bytes // 4).remainder_(8191).to(torch.float32)
        self.y = 2 * self.x + 1


class Hand:
    """What one thread has."""

    def __init__(self, pinned):
        self.pinned = pinned
        self.stream = torch.cuda.Stream()
        self.host = [torch.empty(0), torch.empty(0)]
        self.runs = 0

    def begin(self, job):
        n = job.x.numel()
        if self.host[0].numel() < n:
            self.host = [torch.empty(n, pin_memory=self.pinned) for _ in range(2)]
        self.x, self.y = (whole[:n] for whole in self.host)
        self.x.copy_(job.x)
        self.y.fill_(float("nan"))
        if job.kept:
            with torch.cuda.stream(self.stream):
                self.dx, self.dy = (torch.empty(n, device="cuda") for _ in range(2))
        self.run = self.run_kept if job.kept else self.run_once
        for _ in range(WARM_RUNS):
            self.run()
        self.runs = 0

    def run_kept(self):
        with torch.cuda.stream(self.stream):
            self.dx.copy_(self.x, non_blocking=True)
            torch.add(ONE, self.dx, alpha=2, out=self.dy)
            self.y.copy_(self.dy, non_blocking=True)
        self.stream.synchronize()

    def run_once(self):
        with torch.cuda.stream(self.stream):
            dx = self.x.to("cuda", non_blocking=True)
            self.y.copy_(torch.add(ONE, dx, alpha=2), non_blocking=True)
        self.stream.synchronize()

    def right(self, job):
        self.dx = self.dy = None
        return torch.equal(self.y, job.y)


def rate(hands, job, seconds):
    """Threads that begin together and run until a time is over, each to the end of its run: GB/s."""
    began = []
    together = threading.Barrier(len(hands) + 1, lambda: began.append(time.perf_counter()))
    stop = threading.Event()

    def work(hand):
        try:
            hand.begin(job)
            together.wait()
        except BaseException:
            together.abort()  # or the others would wait for this one
            raise
        while not stop.is_set():
            hand.run()
            hand.runs += 1

    with concurrent.futures.ThreadPoolExecutor(len(hands)) as team:
        working = [team.submit(work, hand) for hand in hands]
        try:
            together.wait()
            time.sleep(seconds)
        except threading.BrokenBarrierError:
            pass  # the thread that failed says why below
        stop.set()
        concurrent.futures.wait(working)
        took = time.perf_counter() - began[0] if began else 0
        failures = [f.exception() for f in working if f.exception()]
        for failure in sorted(failures, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
            raise failure
        if not all(team.map(lambda hand: hand.right(job), hands)):
            raise SystemExit(f"wrong output, {job.kib} KiB, {len(hands)} threads")
    return 2e-9 * job.bytes * sum(hand.runs for hand in hands) / took


def main():
    args = arguments()
    if args.only != "rates":
        skip("PyTorch's threads are measured for their rates alone")
    sizes, counts, rounds, seconds = SIZES_KIB, (1, 4, 16, 64), 3, 0.5
    if args.quick:
        sizes, counts, seconds = QUICK_KIB, (1, 16), 0.3
    if args.smoke:
        sizes, counts, rounds, seconds = SIZES_KIB[:1], (1, 4), 1, 0.02
    if args.threads:
        counts = [threads for threads in counts if threads == args.threads]
    torch.set_num_threads(1)  # the threads here fill and compare arrays; none starts others
    print_machine()
    print(f"PyTorch {torch.__version__}, threads of Python {sys.version.split()[0]}\n")
    print("| threads | work | each way | PyTorch |\n| --- | --- | --- | --- |", flush=True)
    for pinned in (True, False):
        hands = []
        for kept in (True, False):
            work = f"{'kept' if kept else 'once'}, {'pinned' if pinned else 'pageable'}"
            for kib in sizes if args.work in (None, work) else ():
                job = Job(kept, pinned, kib)
                for threads in counts:
                    if threads * job.bytes > 8 * GIB:
                        continue
                    hands += [Hand(pinned) for _ in range(len(hands), threads)]
                    got = [rate(hands[:threads], job, seconds) for _ in range(rounds)]
                    print(f"| {threads} | {work} | {kib} KiB | {statistics.median(got):.1f} |",
                          flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
