"""22_python.py -- a streampipe pipeline on a PyTorch stream, with PyTorch tensors.

    nvcc -O3 -I.. -shared -Xcompiler -fPIC -o lib22_python.so 22_python.cu
    python3 22_python.py ./lib22_python.so

You learn: the pipeline gets tensor.data_ptr() and stream.cuda_stream, and what PyTorch queues on
that stream afterwards can use the result without a wait. Three traps:
  - ctypes assumes that every argument and result is a 32-bit int: declare them all, or a pointer
    loses its upper half;
  - PyTorch reuses a tensor's memory when Python drops the tensor: keep the tensors of a pipeline
    until it is destroyed, and name the stream to the allocator (record_stream);
  - a tensor made on the current stream is ready for another stream only after wait_stream.

Expected output:
    sum of 1000003 squares by the pipeline and PyTorch: 332833500005.0, as it must be
    20 runs, Python waits after each: ... ms; once: ... ms
Without PyTorch or a GPU it says so and exits with status 77.
"""
import ctypes
import sys
import time


def skip(why):
    print("skipped:", why)
    sys.exit(77)


try:
    import torch
except ImportError:
    skip("PyTorch is not installed")
if not torch.cuda.is_available():
    skip("PyTorch finds no GPU")

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
            check(lib.squares_enqueue(squares, stream.cuda_stream))
            if waits:
                stream.synchronize()
            sum(range(5000))
        stream.synchronize()
    return (time.perf_counter() - start) * 1e3


n = 1000003
x = torch.empty(n, dtype=torch.float32, pin_memory=True)
y = torch.empty(n, dtype=torch.float32, device="cuda")
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())  # y was made there
y.record_stream(stream)

squares = lib.squares_create(x.data_ptr(), y.data_ptr(), n)
if not squares:
    sys.exit("the pipeline could not be made")
x.copy_(torch.arange(n) % 1000)  # on the CPU
with torch.cuda.stream(stream):
    waited, once = runs_ms(True), runs_ms(False)
    check(lib.squares_enqueue(squares, stream.cuda_stream))
    total = y.sum(dtype=torch.float64)  # PyTorch's own kernel, after the pipeline, unwaited for
stream.synchronize()
want = sum((i % 1000) ** 2 for i in range(n))
print(f"sum of {n} squares by the pipeline and PyTorch: {total.item()}, "
      + ("as it must be" if total.item() == want else f"WRONG: it is {want}"))
print(f"20 runs, Python waits after each: {waited:.3f} ms; once: {once:.3f} ms")
check(lib.squares_destroy(squares))  # before x and y go
sys.exit(total.item() != want)
