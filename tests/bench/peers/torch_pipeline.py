#!/usr/bin/env python3
"""bench.cu's balanced work as a PyTorch user would pipeline it: python3 -B torch_pipeline.py

Pinned: chunks take turns on 3 or 4 streams, each copied in, computed and copied out there; the best
chunk and stream count of a sweep. Pageable: plain to-and-fro, and through pin_memory().
"""

import statistics

from peer_common import (CHUNKS_MIB, MIB, arguments, best, calibrate, measure, report, skip)

try:
    import torch
except ImportError:
    skip("PyTorch is not there")
if not torch.cuda.is_available():
    skip("PyTorch sees no GPU")

KERNEL = """
template <typename T> T busy(T x, int steps) {
    for (int k = 0; k < steps; k++) x = x * T(0.9999) + T(0.0001);
    return x;
}
"""
JITTED = torch.cuda.jiterator._create_jit_fn(KERNEL, steps=0)


class Work:
    """The arrays, and the steps that make the kernel as long as asked."""

    def __init__(self, args):
        n = args.mib * MIB // 4
        self.n = n
        self.pageable = torch.rand(n) * 2 - 1
        self.pinned = self.pageable.pin_memory()
        self.pinned_out = torch.empty(n).pin_memory()
        self.pageable_out = torch.zeros(n)
        self.device = self.pinned.cuda()
        copy_ms = statistics.median(
            self.event_ms(lambda: self.device.copy_(self.pinned, non_blocking=True))
            for _ in range(5))
        self.steps, ms = calibrate(self.kernel_ms, args.kernel * copy_ms)
        self.actual = ms / copy_ms
        self.reference = self.busy(self.device)
        self.streams = [torch.cuda.Stream() for _ in range(4)]
        torch.cuda.synchronize()

    def busy(self, x):
        return JITTED(x, steps=self.steps)

    def kernel_ms(self, steps):
        self.steps = steps
        return statistics.median(self.event_ms(lambda: self.busy(self.device)) for _ in range(3))

    @staticmethod
    def event_ms(run):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def both_ways(self):
        with torch.cuda.stream(self.streams[0]):
            self.device.copy_(self.pinned, non_blocking=True)
        with torch.cuda.stream(self.streams[1]):
            self.pinned_out.copy_(self.reference, non_blocking=True)
        torch.cuda.synchronize()

    def kernel(self):
        self.busy(self.device)
        torch.cuda.synchronize()

    def serial(self, source, out):
        out.copy_(self.busy(source.cuda()))
        torch.cuda.synchronize()

    def pipeline(self, source, out, chunk, num_streams):
        for k, at in enumerate(range(0, self.n, chunk)):
            part = slice(at, min(at + chunk, self.n))
            with torch.cuda.stream(self.streams[k % num_streams]):
                x = source[part].to("cuda", non_blocking=True)
                out[part].copy_(self.busy(x), non_blocking=True)
        torch.cuda.synchronize()

    def through_pin_memory(self, chunk, num_streams):
        """Pageable in and out; the pinned copy in is made anew, as a data loader does."""
        self.pipeline(self.pageable.pin_memory(), self.pinned_out, chunk, num_streams)
        self.pageable_out.copy_(self.pinned_out)

    def variant(self, run, out):
        def reset():
            out.fill_(float("nan"))
            torch.cuda.synchronize()

        return run, reset, lambda: torch.equal(out.cuda(), self.reference)


def main():
    args = arguments(__doc__)
    work = Work(args)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, kernel {work.actual:.2f} x "
          "the copy in")
    shapes = {f"{s} streams, {c} MiB chunks": (c * MIB // 4, s)
              for s in (3, 4) for c in CHUNKS_MIB if c < args.mib}
    name = best({key: work.variant(lambda shape=shape: work.pipeline(
        work.pinned, work.pinned_out, *shape), work.pinned_out)
        for key, shape in shapes.items()}, args.sweep_rounds)
    shape = shapes[name]
    pinned, pageable = work.pinned_out, work.pageable_out
    variants = {
        "both ways": work.variant(work.both_ways, pinned),
        "kernel": (work.kernel, lambda: None, lambda: True),
        "pinned serial": work.variant(lambda: work.serial(work.pinned, pinned), pinned),
        "pinned " + name: work.variant(
            lambda: work.pipeline(work.pinned, pinned, *shape), pinned),
        "pageable plain": work.variant(lambda: work.serial(work.pageable, pageable), pageable),
        "pageable through pin_memory()": work.variant(
            lambda: work.through_pin_memory(*shape), pageable),
    }
    times = measure(variants, args.rounds)
    report(f"PyTorch {torch.__version__}", {key: times[key] for key in variants}, args)


if __name__ == "__main__":
    main()
