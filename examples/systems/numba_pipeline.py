"""numba_pipeline.py -- load, compute, store in chunks over Numba's streams: in a row, and overlapped.

    python3 numba_pipeline.py                             needs numba and numpy, and a GPU
    NUMBA_ENABLE_CUDASIM=1 python3 numba_pipeline.py      without a GPU: results only, no times

What it is: the pipeline that most notes on Numba's streams draw, whole. Each chunk is copied in, worked
on and copied out on the next of three streams, each with its own device memory. Three things are easily
left out, and each costs the overlap or the result:
  - memory from cuda.pinned_array: an "asynchronous" copy of other memory waits;
  - copies into arrays that are there (to_device with to=, copy_to_host with ary=): allocating waits for
    the device;
  - one wait at the end. A stream runs in order, so its memory may be used again without one; reading
    the result before that wait reads what is not there yet.
What the library does with the same work is in ../22_python.py.

Prints both times and "right"; without numba or a GPU it says so and exits with status 77.
"""
import os
import sys
import time


def skip(why):
    print("skipped:", why)
    sys.exit(77)


try:
    import numpy as np

    if not hasattr(np, "row_stack"):  # NumPy 2.5 dropped this name of vstack; Numba still asks for it
        np.row_stack = np.vstack
    from numba import cuda
except (ImportError, AttributeError) as why:  # not there, or not for this NumPy
    skip(why)
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
if not SIMULATED and not cuda.is_available():
    skip("numba finds no GPU")

COUNT = 1 << 12 if SIMULATED else 1 << 26
CHUNK = COUNT // 16
STREAMS = 3


@cuda.jit
def compute(y, x):
    i = cuda.grid(1)
    if i < y.size:
        v = x[i]
        for _ in range(8):
            v = v * 0.5 + 1.0
        y[i] = v


def in_a_row(x, y, dev_x, dev_y):
    stream = cuda.stream()
    for first in range(0, COUNT, CHUNK):
        part = slice(first, first + CHUNK)
        cuda.to_device(x[part], stream=stream, to=dev_x[0])
        compute[(CHUNK + 255) // 256, 256, stream](dev_y[0], dev_x[0])
        dev_y[0].copy_to_host(ary=y[part], stream=stream)
        stream.synchronize()  # after each chunk: nothing overlaps


def overlapped(x, y, dev_x, dev_y):
    streams = [cuda.stream() for _ in range(STREAMS)]
    for k, first in enumerate(range(0, COUNT, CHUNK)):
        part, slot = slice(first, first + CHUNK), k % STREAMS
        cuda.to_device(x[part], stream=streams[slot], to=dev_x[slot])
        compute[(CHUNK + 255) // 256, 256, streams[slot]](dev_y[slot], dev_x[slot])
        dev_y[slot].copy_to_host(ary=y[part], stream=streams[slot])
    cuda.synchronize()  # once


x = cuda.pinned_array(COUNT, dtype=np.float32)
y = cuda.pinned_array(COUNT, dtype=np.float32)
x[:] = np.arange(COUNT) % 1000
want = x.copy()
for _ in range(8):
    want = want * np.float32(0.5) + np.float32(1.0)
dev_x = [cuda.device_array(CHUNK, dtype=np.float32) for _ in range(STREAMS)]
dev_y = [cuda.device_array(CHUNK, dtype=np.float32) for _ in range(STREAMS)]
try:
    compute[1, 1](dev_y[0][:1], dev_x[0][:1])  # compiles, which a NumPy newer than Numba knows ends
except AttributeError as unknown:
    skip(f"this Numba does not go with this NumPy: {unknown}")
right = True
for name, run in (("in a row", in_a_row), ("overlapped", overlapped)):
    for _ in range(2):  # the first one warms up
        y[:] = 0
        start = time.perf_counter()
        run(x, y, dev_x, dev_y)
        took = time.perf_counter() - start
    right &= bool(np.allclose(y, want))
    print(f"{name:12}" + ("  (simulated)" if SIMULATED else f"{took * 1e3:9.3f} ms"))
print("right: NumPy finds the same" if right else "WRONG: not what NumPy finds")
sys.exit(not right)
