"""A stand-in for CuPy: as much of it as examples/22_cupy.py uses, on the CUDA runtime that the shared
object under test brings with it (hostcuda). It tries the example's calls where there is no GPU; it is
no test of CuPy itself. Sums wait for their stream; CuPy's do not.
"""
import ctypes
import sys

_rt = ctypes.CDLL(sys.argv[1])
_NON_BLOCKING = 1


def _try(error):
    if error:
        raise RuntimeError(f"CUDA error {error}")


class _Array:
    def __init__(self, n, dtype, make, free):
        assert dtype == "float32"
        self.n, self.bytes, self._at, self._free = n, n * 4, ctypes.c_void_p(), free
        _try(make(ctypes.byref(self._at), ctypes.c_size_t(self.bytes)))

    def __del__(self):
        _try(self._free(self._at))


class _Pinned(_Array):
    """Of NumPy's arrays: a slice is filled from numbers, and .ctypes.data is the address."""

    def __init__(self, n, dtype):
        super().__init__(n, dtype, _rt.cudaMallocHost, _rt.cudaFreeHost)
        self.ctypes = type("", (), {"data": self._at.value})

    def __setitem__(self, at, values):
        assert len(values) == len(range(*at.indices(self.n)))  # NumPy, too, takes no other number
        ctypes.memmove(self._at.value + at.start * 4, (ctypes.c_float * len(values))(*values), len(values) * 4)


class _OnDevice(_Array):
    def __init__(self, n, dtype):
        super().__init__(n, dtype, _rt.cudaMalloc, _rt.cudaFree)
        self.data = type("", (), {"ptr": self._at.value})
        assert _current, "made on the default stream: its pool may have that memory in use there"

    def sum(self, dtype):
        assert dtype == "float64"
        host, stream = (ctypes.c_float * self.n)(), _current[-1]
        _try(_rt.cudaMemcpyAsync(host, self._at, ctypes.c_size_t(self.bytes), 2, ctypes.c_void_p(stream.ptr)))
        stream.synchronize()
        return _Number(sum(host))


class _Number(float):
    def item(self):
        return float(self)


_current = []


class _Stream:
    def __init__(self, non_blocking):
        assert non_blocking
        made = ctypes.c_void_p()
        _try(_rt.cudaStreamCreateWithFlags(ctypes.byref(made), _NON_BLOCKING))
        self.ptr = made.value

    def __del__(self):
        _try(_rt.cudaStreamDestroy(ctypes.c_void_p(self.ptr)))

    def __enter__(self):
        _current.append(self)

    def __exit__(self, *_):
        _current.pop()

    def synchronize(self):
        _try(_rt.cudaStreamSynchronize(ctypes.c_void_p(self.ptr)))


class cuda:
    Stream = _Stream


empty = _OnDevice


def is_available():
    return True
