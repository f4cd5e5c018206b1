# hcc.sh -- hostcuda/hcc, the compiler driver: launches and shared memory in odd places, lines in messages,
# its options, several files, the runtime that it builds once, a copy that was installed.
# Environment: BACKEND; SAN, the sanitizer of the build or empty. The runtime is kept in build/hcc.
. tests/cli/tap.sh

[ "$BACKEND" = host ] || skip_all "hcc is for hostcuda"
[ "$SAN" != thread ] || skip_all "hcc is tried with the plain build, and with AddressSanitizer"
here=$(pwd)
hcc=$here/hostcuda/hcc
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
HOSTCUDA_CACHE=$here/build/hcc
export HOSTCUDA_CACHE
unset CXX
compilers=
! command -v g++ >/dev/null || compilers=g++
! command -v clang++ >/dev/null || compilers="$compilers unoptimised_clang++"
PATH=$here/tests/cli/hcc:$PATH
[ -n "$compilers" ] || skip_all "there is neither g++ nor clang++"
cd "$dir" || exit 1

holds() { # RULE COMMAND...
    rule=$1
    shift
    "$@" >log 2>&1
    status=$?
    ok $status "$rule"
    [ $status = 0 ] || head -n 8 log | sed 's/^/# /'
}
says() { # RULE TEXT COMMAND...: the command fails, and says this
    rule=$1 text=$2
    shift 2
    ! "$@" >log 2>&1 && grep -qF -e "$text" log
    status=$?
    ok $status "$rule"
    [ $status = 0 ] || head -n 8 log | sed 's/^/# /'
}
right() { "./$1" >"$1.out" 2>&1 && tail -n 1 "$1.out" | grep -q right || { cat "$1.out"; false; }; } # PROGRAM

# Ubuntu's compilers define _FORTIFY_SOURCE, with which glibc's longjmp to another stack ends the program.
fortified() {
    printf '#include <stdio.h>\n#include "%s/hostcuda/hostcuda_kernel.cpp"\n' "$here" >fortified.cpp
    g++ -std=c++14 -O1 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -I"$here/hostcuda/include" -iquote "$here/hostcuda" -c fortified.cpp &&
        nm -u fortified.o >fortified.names && grep -q setjmp fortified.names && ! grep longjmp_chk fortified.names
}
if command -v g++ >/dev/null && command -v nm >/dev/null; then
    holds "threads of a block change stacks where _FORTIFY_SOURCE is defined, too" fortified
fi

cat >bound.cu <<'END'
__global__ void add(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] += n;
}
int main() {
    float *x;
    cudaMalloc(&x, 100 * sizeof(float));
    add<<<1, 128>>>(x, 100);
    return cudaDeviceSynchronize();
}
END
if [ "$SAN" = address ]; then # with a runtime of its own
    "$hcc" -fsanitize=address -g bound.cu -o bound >log 2>&1
    ok $? "-fsanitize=address builds a program and its runtime"
    ! ./bound >log 2>&1 && grep -q 'AddressSanitizer: heap-buffer-overflow' log && grep -q 'bound.cu:3' log
    ok $? "it finds a missing bound in a kernel, with its line"
    done_testing
fi

# ---- launches and shared memory ----------------------------------------------------------------------
cp "$here/tests/cli/hcc/places_kernels.in" places_kernels.cuh
cp "$here/tests/cli/hcc/places.in" places.cu
# What builds a runtime of its own is done side by side.
for cxx in $compilers; do
    (CXX=$cxx "$hcc" places.cu -Wall -Wextra -Werror -o places_$cxx && right places_$cxx && CXX=$cxx "$hcc" -std=c++20 -c places.cu -o places_$cxx.o) >$cxx.log 2>&1 &
done
wait
for cxx in $compilers; do
    [ -f places_$cxx.o ]
    ok $? "$cxx: launches and shared memory in odd places, in C++17 and C++20$(grep -E 'error|wrong' $cxx.log | head -n 1)"
done

# ---- messages ----------------------------------------------------------------------------------------
cat >wrong.cuh <<'END'
static __global__ void k(int *p) { *p = 1; }
static void from_header(int *p) {
    k<<<1,
        1>>>(p); wrong_in_header();
}
END
cat >wrong.cu <<'END'
#include "wrong.cuh"
__global__ void shared(int *p) {
    extern __shared__
        int s[];
    *p = s[0];
}
int main() {
    shared<<<1,
             1, 4>>>
        (0); int x = wrong_in_main;
    k<<<1, 1>>>(0.5);
}
END
for cxx in $compilers; do
    CXX=$cxx "$hcc" -c wrong.cu >log 2>&1
    grep -q 'wrong.cuh:4:.*wrong_in_header' log && grep -q 'wrong.cu:10:.*wrong_in_main' log && grep -q 'wrong.cu:11:.*error' log
    ok $? "$cxx: errors carry the lines of the user's files, also after launches of several lines"
done
if command -v objdump >/dev/null; then
    for cxx in $compilers; do
        CXX=$cxx "$hcc" -g -c places.cu -o places.o && objdump --dwarf=decodedline places.o >lines 2>/dev/null
        line=$(grep -n 'int line = LINE_HERE' places.cu | sed 's/:.*//')
        grep -Eq "places.cu +$line " lines && grep -q 'places_kernels.cuh' lines && ! grep -q '/hcc\.' lines
        ok $? "$cxx: a debugger sees the lines of the user's files"
    done
else
    skip "a debugger sees the lines of the user's files" "objdump is not there"
fi
refuses() { # RULE TEXT: of the program on standard input
    cat >refused.cu
    says "$1" "$2" "$hcc" -c refused.cu
}
refuses "a kernel that is called like a function is refused" "refused.cu:3: error: the kernel k is called without" <<'END'
__global__ void k(int *p) { *p = 1; }
int main() {
    k(0);
}
END
refuses "a kernel that launches a kernel is refused" "refused.cu:3: error: a kernel launches a kernel" <<'END'
__global__ void k(int *p) {
    if (p)
        k<<<1, 1>>>(p);
}
END
refuses "a kernel that returns a value is refused" "refused.cu:1: error: a kernel returns void: k" <<'END'
__global__ int k(int *p) { return *p; }
END
refuses "a parameter that is a reference is refused" "a kernel's parameter cannot be a reference" <<'END'
__global__ void k(int &p) { p = 1; }
void f(int x) { k<<<1, 1>>>(x); }
END
refuses "extern __shared__ without [] is refused" "refused.cu:1: error: extern __shared__ declares one array" <<'END'
__global__ void k(int *p) { extern __shared__ int s; *p = s; }
END
refuses "a kernel that calls a function of the host is refused, as by nvcc" "refused.cu:4: error: twice is a function of the host" <<'END'
int both(int x);
__host__ __device__ int both(int x) { return x; }
static int twice(int x) { return 2 * x; }
__global__ void k(int *p) { *p = both(1) + twice(2); }
END
refuses "so is one that calls the host's libraries" "refused.cu:3: error: rand runs on the host alone" <<'END'
#include <stdlib.h>
__device__ int luck(int x) {
    return rand() + x;
}
END
refuses "and a function of the host that calls one of the device" "refused.cu:3: error: twice is a __device__ function" <<'END'
template <typename T> __device__ T twice(T x) { return x + x; }
int main() {
    return twice<int>(2);
}
END
cat >sides.cu <<'END'
#include <cstdlib>
#include <functional>
#include <iostream>
struct Pair {
    int a, b;
    Pair(int x) : a{x}, b(x) {}
    __host__ __device__ ~Pair() {}
    int sum() const { return a + b; }
    __device__ int difference() const { return a - b; }
};
constexpr int three() { return 3; }
static int of_host(int x) { return x + 1; }
__device__ int of_device(int x) { return x + three(); }
template <typename T> T named(T x) { return x; }
namespace far { int of_host_too(int x) { return x; } __device__ int near(int x) { return x; } }
__host__ __device__ int either(int x) {
#ifdef __CUDA_ARCH__
    return of_device(x);
#else
    return of_host(x);
#endif
}
__global__ void all(int *p) {
    auto named = [](int x) { return x; };
    int of_host_too = far::near(1), rand = 2;
    *p = named(3) + of_device(1) + either(3) + of_host_too + rand;
    Pair pair(3);
    *p += pair.difference();
}
template <typename F> __global__ void call(F f, int *p) { *p = f(3); }
int main() {
    int *p;
    cudaMallocManaged(&p, sizeof *p);
    all<<<1, 1>>>(p);
    cudaDeviceSynchronize();
    bool good = *p == 3 + 4 + 4 + 1 + 2;
    call<<<1, 1>>>([=] __device__(int x) { return of_device(x); }, p);
    call<<<1, 1>>>([] __host__ __device__(int x) { return of_device(x); }, p);
    cudaDeviceSynchronize();
    std::function<int(int)> f = of_host;
    good = good && *p == 6 && f(1) + named(3) + far::of_host_too(3) + Pair(4).sum() + either(1) == 18;
    std::cout << (good ? "right" : "wrong") << " " << rand() % 1 << std::endl;
    return cudaFree(p);
}
END
for cxx in $compilers; do
    CXX=$cxx "$hcc" sides.cu -o sides >log 2>&1 && ./sides | grep -q '^right'
    ok $? "$cxx: what nvcc accepts is accepted: members, lambdas, names that are used twice, both sides"
done
refuses "a <<< without its end is refused" "refused.cu:2: error: no >>>" <<'END'
__global__ void k(int *p) { *p = 1; }
int main() { k<<<1, 1>>; }
END
refuses "textures are refused in words" "refused.cu:2: note: tex2D: hostcuda has no textures" <<'END'
__global__ void k(float *p, cudaTextureObject_t t) {
    *p = tex2D<float>(t, 0, 0);
}
END
refuses "a header that hostcuda has not is refused in words" "refused.cu:1: note: cuda_fp16.h: hostcuda has no half precision" <<'END'
#include <cuda_fp16.h>
END
printf '\n#include <cuda_gl_interop.h>\n' >graphics.cuh
for cxx in $compilers; do
    echo '#include "graphics.cuh"' >refused.cu
    says "$cxx: so is one that a header includes" "graphics.cuh:2: note: cuda_gl_interop.h: hostcuda shares nothing with OpenGL" env CXX=$cxx "$hcc" -c refused.cu
done
printf '#include <cuda_runtime.h>\n#include "curand.h"\n' >refused.cpp
says "and one in a .cpp file" "refused.cpp:2: note: curand.h: hostcuda has none of the toolkit's libraries" "$hcc" -c refused.cpp
refuses "cuda.h is there, the driver API is refused in words" "refused.cu:3: note: CUdevice: hostcuda has the runtime API, not the driver API" <<'END'
#include <cuda.h>
static_assert(CUDA_VERSION == CUDART_VERSION, "one version");
CUdevice device;
END
refuses "a member that CUDA 13 dropped is refused in words" "refused.cu:1: note: clockRate: CUDA 13 has no such member" <<'END'
int rate(const cudaDeviceProp &p) { return p.clockRate; }
END
cat >beginner.cu <<'END'
#include <cuda.h>
#include <math_constants.h>
#include <stdio.h>
__global__ void k(float *p) { *p = CUDART_PI_F; }
int main() {
    float *p, host = 0;
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaMalloc(&p, 4);
    k<<<1, 2048>>>(p);
    k<<<0, 1>>>(p);
    k<<<dim3(1, 70000), 1>>>(p);
    k<<<1, 1, 1 << 20>>>(p);
    cudaMemcpy(p, &host, 400, cudaMemcpyHostToDevice);
    cudaMemcpy(&host, p, 4, cudaMemcpyHostToDevice);
    cudaMemcpy(&host, NULL, 4, cudaMemcpyDeviceToHost);
    cudaMemset(&host, 0, 4);
    cudaFree(&host);
    cudaGetLastError();
    cudaStreamCreate(&s);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    k<<<1, 1, 0, s>>>(p);
    cudaStreamEndCapture(s, &graph);
    cudaGraphInstantiate(&exec, graph, NULL, NULL, 0); // as before CUDA 12
    cudaGraphLaunch(exec, s);
    cudaStreamSynchronize(s);
    cudaMemcpy(&host, p, 4, cudaMemcpyDeviceToHost);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(s);
    cudaFree(p);
    printf("%s\n", host > 3.14f && host < 3.15f ? "right" : "wrong");
}
END
holds "cuda.h, math_constants.h and cudaGraphInstantiate of CUDA 11 build" "$hcc" beginner.cu -o beginner
./beginner >beginner.out 2>said && grep -q '^right' beginner.out
ok $? "and do what they say"
while read -r text; do
    grep -qF "$text" said
    ok $? "what is refused at run time is said: $text"
done <<'END'
k is not launched: a block has at most 1024 threads (64 in z), not 2048 x 1 x 1
k is not launched: a grid of 0 x 1 x 1 blocks has none
k is not launched: a grid has at most 2147483647 x 65535 x 65535 blocks, not 1 x 70000 x 1
k is not launched: its blocks may have 49152 bytes of dynamic shared memory, not 1048576
a copy is refused: its destination has fewer than the 400 bytes to copy
a copy is refused: cudaMemcpyHostToDevice, but it is from memory of the device to memory of the host
a copy is refused: its source is NULL
a memset is refused: it is for memory of the device, not of malloc
cudaFree: no memory that is still allocated on a device begins at
END
refuses "PTX is refused in words" "refused.cu:3: note: asm: hostcuda has no PTX" <<'END'
__global__ void k(unsigned *p) {
    unsigned lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    *p = lane;
}
END
refuses "waiting for all blocks of a grid is refused in words" "hostcuda runs blocks one after another" <<'END'
#include <cooperative_groups.h>
__global__ void k() { cooperative_groups::this_grid().sync(); }
END
refuses "so are coalesced groups" "note: coalesced_threads: hostcuda does not know which threads took a branch" <<'END'
#include <cooperative_groups.h>
__global__ void k(int *p) { *p = cooperative_groups::coalesced_threads().size(); }
END

# ---- options -----------------------------------------------------------------------------------------
mkdir -p 'a folder/include' lib && cd 'a folder' || exit 1
cat >include/scale.cuh <<'END'
template <typename T>
__global__ void scale(T *p, T by) { p[threadIdx.x] *= by; }
END
cat >one.cu <<'END'
#include <scale.cuh>
#include <stdio.h>
extern "C" int from_c(int);
int from_cpp(int), from_object(int);
void launch(int *p);
#ifdef __STRICT_ANSI__
#error "the default is C++17 with the extensions of GNU"
#endif
static_assert(__cplusplus >= 201703L, "C++17");
int main() {
    int *p;
    cudaMallocHost(&p, sizeof(int));
    *p = from_c(START) + from_cpp(0) + from_object(0);
    launch(p);
    scale<<<1, 1>>>(p, 2);
    cudaDeviceSynchronize();
    printf("%s\n", *p == 2 * 3 * (START + 1 + 2 + 4) ? "right" : "wrong");
    return cudaFreeHost(p) != cudaSuccess;
}
END
cat >two.cu <<'END'
#include "scale.cuh"
void launch(int *p) { scale<<<1, 1>>>(p, 3); }
END
printf '#include <cuda_runtime.h>\nint from_c(int class) { return class + 1; }\n' >three.c
printf '#include <cuda_runtime_api.h>\nint from_cpp(int) { cudaStream_t s = nullptr; return s ? 0 : 2; }\n' >four.cpp
printf 'int from_object(int) { return 4; }\n' >five.txt
holds "-c makes an object beside the folder's other files" "$hcc" -x cu -c five.txt
holds "several .cu, .c, .cpp and .o files become one program, in a folder with a space" \
    "$hcc" -I include -DSTART=10 one.cu two.cu three.c four.cpp five.o -lm -o 'pro gram'
holds "which runs right" right 'pro gram'
ar rcs ../lib/libfive.a five.o
"$hcc" -Iinclude -D START=11 -O2 -g -c one.cu two.cu && "$hcc" three.c four.cpp -c -std=c99 -Wall &&
    "$hcc" -o linked one.o two.o three.o four.o -L../lib -lfive && right linked
ok $? "-c makes objects that hcc, -L and -l link; -std=c99 is for the C file alone"
"$hcc" -arch=sm_90 -gencode arch=compute_80,code=sm_80 -lineinfo --use_fast_math -Xptxas -v -rdc=true --expt-relaxed-constexpr \
    -maxrregcount 32 -std=gnu++17 -Xcompiler=-Wall,-Wextra,-DSTART=12 -Xcompiler -Iinclude -lcudart one.cu two.cu three.c four.cpp five.o --output-file nvcc >log 2>&1 &&
    right nvcc
ok $? "options of nvcc for the GPU are ignored, -Xcompiler is passed on"
says "an unknown long option is refused" "--gpu-magic is an option that neither hcc knows" "$hcc" --gpu-magic one.cu
says "an unknown short option is refused" "-quick is an option that neither hcc knows" "$hcc" -quick one.cu
says "-ptx is refused" "-ptx: hcc makes no code for a GPU" "$hcc" -ptx one.cu
says "a library that hostcuda has not is refused" "-lcublas: hostcuda has the CUDA runtime alone" "$hcc" one.cu -lcublas
says "a file that is not there is refused" "none.cu is not there" "$hcc" none.cu
says "-o for two objects is refused" "-o names one file" "$hcc" -c one.cu two.cu -o x.o
"$hcc" -E -Iinclude two.cu | grep -q 'kernel_of(.*scale' && "$hcc" -S -Iinclude two.cu && grep -q hostcuda two.s
ok $? "-E shows what is compiled, -S the assembler's text"
"$hcc" -Iinclude -MMD -c two.cu && grep -q '^two.o:.*two.cu.*scale.cuh' two.d && "$hcc" -Iinclude -MM two.cu | grep -q 'two.o: two.cu include/scale.cuh'
ok $? "-MMD and -MM name the user's files"
mkdir -p toolkit && touch toolkit/cuda_runtime.h
"$hcc" -Itoolkit -Iinclude -c two.cu 2>log && grep -q "hostcuda's headers take the place" log
ok $? "NVIDIA's headers given by -I are left out, and that is said"
cat >per_thread.cu <<'END'
#include <stdio.h>
int main() {
    unsigned long long none, own;
    cudaStreamGetId(0, &none);
    cudaStreamGetId(cudaStreamPerThread, &own);
    printf("%s\n", none == own ? "the thread's" : "legacy");
}
END
"$hcc" per_thread.cu -o legacy && "$hcc" --default-stream per-thread per_thread.cu -o own && "$hcc" -default-stream=per-thread per_thread.cu -o again &&
    ./legacy | grep -q legacy && ./own | grep -q thread && ./again | grep -q thread
ok $? "--default-stream per-thread makes stream 0 the thread's own"
cd ..

# ---- the runtime, built once -----------------------------------------------------------------------------
echo 'int main() {}' >small.cu
HOSTCUDA_CACHE="$dir/an own place"
cp -R "$here/hostcuda" copy
# What its rewriter does is seen above: here it copies, and compiling it takes a tenth of the time.
for part in preprocessed sides; do echo "int $part = 0;" >copy/rewriter/$part.cpp; done
cat >copy/rewriter/rewriter.cpp <<'END'
#include <fstream>
int main(int, char **words) { std::ofstream(words[2]) << std::ifstream(words[1]).rdbuf(); }
END
(copy/hcc -c small.cu -o one.o >one.log 2>&1; echo $? >one.status) &
(copy/hcc -c small.cu -o two.o >two.log 2>&1; echo $? >two.status) &
wait
[ "$(cat one.status two.status | tr '\n' ' ')" = "0 0 " ] && cmp one.o two.o && [ "$(ls "$HOSTCUDA_CACHE" | wc -l)" = 1 ] && [ -z "$(ls "$HOSTCUDA_CACHE"/* | grep made)" ]
ok $? "two of hcc at once build the same thing side by side, and leave it whole"
copy/hcc -c small.cu 2>log && [ ! -s log ]
ok $? "what is built is used again"
echo '/* changed */' >>copy/rewriter/missing.h
copy/hcc -c small.cu 2>log && grep -q 'building' log && [ "$(ls "$HOSTCUDA_CACHE" | wc -l)" = 2 ]
ok $? "it is built again when its sources change"
echo 'not C++' >>copy/rewriter/rewriter.cpp
says "if that fails, it is said" "did not compile with" copy/hcc -c small.cu
[ -z "$(ls "$HOSTCUDA_CACHE"/* | grep made)" ]
ok $? "and nothing half done is left"
says "a place that cannot be written is named" "HOSTCUDA_CACHE names another place" sh -c "HOSTCUDA_CACHE=/dev/null/x '$hcc' -c small.cu"
HOSTCUDA_CACHE=$here/build/hcc

# ---- installed -------------------------------------------------------------------------------------------
cat >piped.cu <<'END'
#include <streampipe.h>
int main() {
    cudaStream_t s;
    SPIPE_CHECK(spipe_stream_create(&s, SPIPE_PRIORITY_DEFAULT));
    SPIPE_CHECK(cudaStreamDestroy(s));
    puts("right");
}
END
MAKEFLAGS='' make -C "$here" --no-print-directory install PREFIX="$dir/installed" >log 2>&1
ln -s "$dir/installed/share/streampipe/hostcuda/hcc" hcc_link
./hcc_link piped.cu -o piped >log 2>&1 && right piped && [ ! -s log ]
ok $? "installed, and called through a link, it builds with streampipe.h and the runtime that is there"
for lesson in 01_streams.cu 05_pinned_pageable.c; do
    start=$(date +%s%N)
    "$hcc" "$here/examples/$lesson" -o lesson 2>log && ./lesson >out && grep -q '^right' out
    ok $? "the lesson $lesson builds and is right"
    echo "# building and running it took $((($(date +%s%N) - start) / 1000000)) ms"
done
done_testing
