"""22_cupy.py -- the pipeline of 22_python.cu on a CuPy stream, with CuPy's and NumPy's arrays.

    nvcc -O3 -I.. -shared -Xcompiler -fPIC -o lib22_python.so 22_python.cu
    python3 22_cupy.py ./lib22_python.so

You learn: the same as in 22_python.py, with CuPy's names: array.data.ptr, array.ctypes.data of a
NumPy array in pinned memory, stream.ptr. CuPy's memory pool is divided by stream and there is no
record_stream. So create the array that the pipeline writes while the pipeline's stream is current,
and keep it until the pipeline is destroyed.

Expected output:
    sum of 1000003 squares by the pipeline and CuPy: 332833500005.0, as it must be
    20 runs, Python waits after each: ... ms; once: ... ms
Without CuPy or a GPU it says so and exits with status 77.
"""
import ctypes
import sys
import time


def skip(why):
    print("skipped:", why)
    sys.exit(77)


try:
    import cupy
    import cupyx
except ImportError:
    skip("CuPy is not installed")
if not cupy.is_available():
    skip("CuPy finds no GPU")

lib = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "./lib22_python.so")
lib.squares_create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
lib.squares_create.restype = ctypes.c_void_p
lib.squares_enqueue.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
lib.squares_enqueue.restype = ctypes.c_int
lib.squares_destroy.argtypes = [ctypes.c_void_p]
lib.squares_destroy.restype = ctypes.c_int


def check(error):
    if error != 0:
        raise RuntimeError(f"CUDA error {error}")


def runs_ms(waits):
    """20 runs, each with work of Python's beside it; waiting after each, or once, at the end."""
    for _ in range(2):  # the first time warms up
        start = time.perf_counter()
        for _ in range(20):
            check(lib.squares_enqueue(squares, stream.ptr))
            if waits:
                stream.synchronize()
            sum(range(5000))
        stream.synchronize()
    return (time.perf_counter() - start) * 1e3


n = 1000003
stream = cupy.cuda.Stream(non_blocking=True)
x = cupyx.empty_pinned(n, dtype="float32")  # a NumPy array
for first in range(0, n, 1000):
    x[first:first + 1000] = range(min(1000, n - first))
with stream:
    y = cupy.empty(n, dtype="float32")
    squares = lib.squares_create(x.ctypes.data, y.data.ptr, n)
    if not squares:
        sys.exit("the pipeline could not be made")
    waited, once = runs_ms(True), runs_ms(False)
    check(lib.squares_enqueue(squares, stream.ptr))
    total = y.sum(dtype="float64")  # CuPy's own kernel, after the pipeline, unwaited for
stream.synchronize()
want = sum((i % 1000) ** 2 for i in range(n))
print(f"sum of {n} squares by the pipeline and CuPy: {total.item()}, "
      + ("as it must be" if total.item() == want else f"WRONG: it is {want}"))
print(f"20 runs, Python waits after each: {waited:.3f} ms; once: {once:.3f} ms")
check(lib.squares_destroy(squares))  # before x and y go
sys.exit(total.item() != want)
