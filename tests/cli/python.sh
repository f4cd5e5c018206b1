#!/bin/sh
# python.sh -- example 22 as a user runs it: the wrapper is built as a shared object and called by Python.
# With a GPU it runs with PyTorch or CuPy; on hostcuda with a stand-in for each.
# Environment: BUILD, the build folder; BACKEND; SAN, the sanitizer it was built with or empty; CXX,
# NVCC.
. tests/cli/tap.sh

command -v python3 >/dev/null || skip_all "python3 is not installed"
[ -z "$SAN" ] || skip_all "Python is not instrumented; the sanitizers see 22_python itself"
[ -f examples/22_python.cu ] || skip_all "there is no examples/22_python.cu"
# Python itself, where python3 is a script that looks for it each time.
PATH=$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))'):$PATH
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
so=$dir/lib22_python.so

if [ "$BACKEND" = cuda ]; then
    "${NVCC:-nvcc}" -O2 -I. -shared -Xcompiler -fPIC -o "$so" examples/22_python.cu 2>"$dir/err"
else
    "${CXX:-g++}" -std=c++14 -O1 -fPIC -shared -pthread -x c++ -include cuda_runtime.h -I. -Ihostcuda/include \
        -o "$so" examples/22_python.cu -x none "$BUILD"/hostcuda/*.cpp.o 2>"$dir/err"
fi
ok $? "the wrapper builds as a shared object$(head -n 1 "$dir/err")"

run() { # RULE PROGRAM [VARIABLE=VALUE]
    rule=$1 program=$2
    shift 2
    env "$@" python3 "examples/$program" "$so" >"$dir/out" 2>"$dir/err"
    status=$?
    if [ $status = 77 ]; then skip "$rule" "$(sed 's/^skipped: //' "$dir/out")"
    else test $status = 0 && grep -q "as it must be" "$dir/out"; ok $? "$rule: $(grep "as it must be" "$dir/out"; tail -n 1 "$dir/err")"
    fi
}
for pair in PyTorch:22_python.py CuPy:22_cupy.py; do
    name=${pair%:*} program=${pair#*:}
    run "on a $name stream, with $name's arrays" "$program" PYTHONDONTWRITEBYTECODE=1
    if [ "$BACKEND" = cuda ]; then
        skip "on a stand-in for $name" "it is for hostcuda"
    else
        # hostcuda ends with 97 if a stream, an event or memory is left.
        run "on a stand-in for $name, and nothing is left behind" "$program" PYTHONPATH=tests/cli/standin PYTHONDONTWRITEBYTECODE=1
    fi
done
# Numba's simulator runs kernels in Python, without a GPU and without times.
python3 -c "import numba" 2>/dev/null && simulate=$([ "$BACKEND" = cuda ] || echo 1)
env ${simulate:+NUMBA_ENABLE_CUDASIM=1} PYTHONDONTWRITEBYTECODE=1 python3 examples/systems/numba_pipeline.py >"$dir/out" 2>"$dir/err"
status=$?
if [ $status = 77 ]; then skip "Numba's pipeline is right, in a row and overlapped" "$(sed 's/^skipped: //' "$dir/out")"
else test $status = 0 && grep -q '^right' "$dir/out"; ok $? "Numba's pipeline is right, in a row and overlapped: $(cat "$dir/out" "$dir/err" | tail -n 1)"
fi
done_testing
