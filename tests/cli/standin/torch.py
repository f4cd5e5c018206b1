"""A stand-in for PyTorch: as much of it as examples/22_python.py uses, on the CUDA runtime that the
shared object under test brings with it (hostcuda). It tries the example's calls where there is no
GPU; it is no test of PyTorch itself. Sums wait for their stream; PyTorch's do not.
"""
import ctypes
import sys
from contextlib import contextmanager

_rt = ctypes.CDLL(sys.argv[1])
_NON_BLOCKING = 1
float32, float64 = ctypes.c_float, ctypes.c_double


def _try(error):
    if error:
        raise RuntimeError(f"CUDA error {error}")


class _Tensor:
    def __init__(self, n, on_device):
        self.n, self.bytes = n, n * 4
        self._at, self._on_device = ctypes.c_void_p(), on_device
        make = _rt.cudaMalloc if on_device else _rt.cudaMallocHost
        _try(make(ctypes.byref(self._at), ctypes.c_size_t(self.bytes)))

    def __del__(self):
        _try((_rt.cudaFree if self._on_device else _rt.cudaFreeHost)(self._at))

    def data_ptr(self):
        return self._at.value

    def record_stream(self, stream):
        assert isinstance(stream, _Stream)

    def copy_(self, values):
        ctypes.memmove(self._at, (ctypes.c_float * self.n)(*values), self.bytes)

    def sum(self, dtype):
        assert dtype is float64 and self._on_device
        host, stream = (ctypes.c_float * self.n)(), _current[-1]
        _try(_rt.cudaMemcpyAsync(host, self._at, ctypes.c_size_t(self.bytes), 2, stream._as_parameter_))
        stream.synchronize()
        return _Number(sum(host))


class _Number(float):
    def item(self):
        return float(self)


class _Range(list):
    def __mod__(self, m):
        return [i % m for i in self]


class _Stream:
    def __init__(self):
        self._as_parameter_ = ctypes.c_void_p()
        _try(_rt.cudaStreamCreateWithFlags(ctypes.byref(self._as_parameter_), _NON_BLOCKING))

    def __del__(self):
        _try(_rt.cudaStreamDestroy(self._as_parameter_))

    @property
    def cuda_stream(self):
        return self._as_parameter_.value

    def wait_stream(self, other):
        other.synchronize()

    def synchronize(self):
        _try(_rt.cudaStreamSynchronize(self._as_parameter_))


class _Default:
    def synchronize(self):
        _try(_rt.cudaDeviceSynchronize())


_current = [_Default()]


class cuda:
    Stream = _Stream

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def current_stream():
        return _current[-1]

    @staticmethod
    @contextmanager
    def stream(stream):
        _current.append(stream)
        yield
        _current.pop()


def empty(n, dtype, device="cpu", pin_memory=False):
    assert dtype is float32 and pin_memory != (device == "cuda")
    return _Tensor(n, device == "cuda")


def arange(n):
    return _Range(range(n))
