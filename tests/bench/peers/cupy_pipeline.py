#!/usr/bin/env python3
"""bench.cu's balanced work as a CuPy user would pipeline it: python3 -B cupy_pipeline.py

Pinned: chunks take turns on 3 or 4 streams, each with device buffers of its own, copied in, computed
and copied out there; the best chunk and stream count of a sweep. Pageable: plain set() and get(), and
through pinned copies of the whole arrays.
"""

import statistics

from peer_common import (CHUNKS_MIB, MIB, arguments, best, calibrate, measure, report, skip)

try:
    import cupy
    import numpy
except ImportError as missing:
    skip(f"{missing.name} is not there")
try:
    if cupy.cuda.runtime.getDeviceCount() < 1:
        skip("CuPy sees no GPU")
except cupy.cuda.runtime.CUDARuntimeError as error:
    skip(f"CuPy sees no GPU: {error}")

BUSY = cupy.ElementwiseKernel(
    "float32 x, int32 steps", "float32 y",
    "y = x; for (int k = 0; k < steps; k++) y = y * 0.9999f + 0.0001f;", "busy")


def pinned_array(n):
    memory = cupy.cuda.alloc_pinned_memory(n * 4)
    return numpy.frombuffer(memory, numpy.float32, n)


class Work:
    """The arrays, and the steps that make the kernel as long as asked."""

    def __init__(self, args):
        n = args.mib * MIB // 4
        self.n = n
        self.pageable = numpy.random.default_rng(1).random(n, dtype=numpy.float32) * 2 - 1
        self.pinned, self.pinned_out = pinned_array(n), pinned_array(n)
        self.pinned[:] = self.pageable
        self.pageable_out = numpy.zeros(n, numpy.float32)
        self.device, self.device_out = cupy.empty(n, "f"), cupy.empty(n, "f")
        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
        copy_ms = statistics.median(self.event_ms(self.copy_in) for _ in range(5))
        self.steps, ms = calibrate(self.kernel_ms, args.kernel * copy_ms)
        self.actual = ms / copy_ms
        BUSY(self.device, self.steps, self.device_out)
        self.reference = self.device_out.copy()
        self.slots = {}
        cupy.cuda.runtime.deviceSynchronize()

    def copy_in(self, stream=None):
        self.device.set(self.pinned, stream=stream or cupy.cuda.get_current_stream())

    def kernel_ms(self, steps):
        return statistics.median(
            self.event_ms(lambda: BUSY(self.device, steps, self.device_out)) for _ in range(3))

    @staticmethod
    def event_ms(run):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        run()
        end.record()
        end.synchronize()
        return cupy.cuda.get_elapsed_time(begin, end)

    def wait(self):
        for stream in self.streams:
            stream.synchronize()

    def both_ways(self):
        self.copy_in(self.streams[0])
        self.reference.get(stream=self.streams[1], out=self.pinned_out, blocking=False)
        self.wait()

    def kernel(self):
        BUSY(self.device, self.steps, self.device_out)
        cupy.cuda.get_current_stream().synchronize()

    def serial(self, source, out):
        self.device.set(source)
        BUSY(self.device, self.steps, self.device_out)
        self.device_out.get(out=out)

    def buffers(self, chunk, num_streams):
        """Made once: allocating per chunk would be what is measured."""
        if (chunk, num_streams) not in self.slots:
            self.slots = {(chunk, num_streams): [
                (cupy.empty(chunk, "f"), cupy.empty(chunk, "f")) for _ in range(num_streams)]}
            cupy.cuda.runtime.deviceSynchronize()
        return self.slots[chunk, num_streams]

    def pipeline(self, source, out, chunk, num_streams):
        slots = self.buffers(chunk, num_streams)
        for k, at in enumerate(range(0, self.n, chunk)):
            count = min(chunk, self.n - at)
            x, y = (buffer[:count] for buffer in slots[k % num_streams])
            with self.streams[k % num_streams] as stream:
                x.set(source[at:at + count], stream=stream)
                BUSY(x, self.steps, y)
                y.get(stream=stream, out=out[at:at + count], blocking=False)
        self.wait()

    def through_pinned(self, chunk, num_streams):
        """Pageable in and out, by whole-array copies into pinned memory and out of it."""
        numpy.copyto(self.pinned, self.pageable)
        self.pipeline(self.pinned, self.pinned_out, chunk, num_streams)
        numpy.copyto(self.pageable_out, self.pinned_out)

    def variant(self, run, out, prepare=lambda: None):
        def reset():
            out.fill(numpy.nan)
            prepare()

        # On the GPU, where 512 MiB are compared in a tenth of the time.
        return run, reset, lambda: bool(cupy.array_equal(cupy.asarray(out), self.reference))


def main():
    args = arguments(__doc__)
    work = Work(args)
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{name}, CuPy {cupy.__version__}, kernel {work.actual:.2f} x the copy in")
    shapes = {f"{s} streams, {c} MiB chunks": (c * MIB // 4, s)
              for s in (3, 4) for c in CHUNKS_MIB if c < args.mib}

    def pipelined(shape):
        return work.variant(lambda: work.pipeline(work.pinned, work.pinned_out, *shape),
                            work.pinned_out, lambda: work.buffers(*shape))

    name = best({key: pipelined(shape) for key, shape in shapes.items()}, args.sweep_rounds)
    shape = shapes[name]
    pinned, pageable = work.pinned_out, work.pageable_out
    variants = {
        "both ways": work.variant(work.both_ways, pinned),
        "kernel": (work.kernel, lambda: None, lambda: True),
        "pinned serial": work.variant(lambda: work.serial(work.pinned, pinned), pinned),
        "pinned " + name: pipelined(shape),
        "pageable plain": work.variant(lambda: work.serial(work.pageable, pageable), pageable),
        "pageable through pinned arrays": work.variant(
            lambda: work.through_pinned(*shape), pageable, lambda: work.buffers(*shape)),
    }
    times = measure(variants, args.rounds)
    report(f"CuPy {cupy.__version__}", {key: times[key] for key in variants}, args)


if __name__ == "__main__":
    main()
