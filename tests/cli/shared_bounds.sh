# shared_bounds.sh -- with AddressSanitizer hcc finds an access just beside shared memory: of a fixed length,
# of the length that the launch gives, in templates; and the judge of the exercises says that it was shared memory.
# Environment: BACKEND; SAN; HOSTCUDA_CACHE, else the runtime is kept in build/hcc.
. tests/cli/tap.sh

[ "$BACKEND" = host ] || skip_all "hcc is for hostcuda"
[ -z "$SAN" ] || skip_all "hcc takes a sanitizer of its own"
here=$(pwd)
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT || exit 1
HOSTCUDA_CACHE=${HOSTCUDA_CACHE:-$here/build/hcc}
export HOSTCUDA_CACHE
cat >"$dir/beside.cu" <<'END'
#include <stdio.h>
#include <stdlib.h>
template <typename T, int N> struct Row {
    T v[N];
    __device__ T &operator[](int i) { return v[i]; }
};
template <int TILE> __global__ void fixed(float *sum, int mistake) {
    __shared__ float a[TILE][TILE], b[TILE][TILE + 1];
    __shared__ Row<float, TILE> row;
    __shared__ int count, *where;
    static __shared__ double three[3];
    __shared__ __align__(16) float4 four[2];
    __shared__ struct { int x, y; } pair;
    __shared__ int (*pointer)[3];
    int i = threadIdx.x;
    a[0][i] = b[0][i] = row[i] = i;
    count = 1, where = &count, three[0] = 1, four[0].x = 2, pair.x = 4, pointer = nullptr;
    switch (mistake) {
    case 1: a[TILE - 1][i + 1] = 1; break;
    case 2: b[TILE - 1][i + 2] = 1; break;
    case 3: row[i + 1] = 1; break;
    case 4: (&count)[i + 1] = 1; break;
    case 5: three[i] = 1; break;
    case 6: four[i].x = 1; break;
    case 7: a[0][i - 1] = 2; break;
    }
    __syncthreads();
    if (i == 0) *sum = a[0][7] + b[0][1] + row[2] + *where + three[0] + four[0].x + pair.x + sizeof a / sizeof *a + (pointer == nullptr);
}
__global__ void given(float *sum, int mistake) {
    extern __shared__ float all[];
    all[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) *sum = all[mistake];
}
int main(int argc, char **argv) {
    const int mistake = argc > 1 ? atoi(argv[1]) : 0;
    float *x;
    cudaMallocManaged(&x, 3 * sizeof *x);
    cudaStream_t s; // on a thread of its own
    cudaStreamCreate(&s);
    fixed<8><<<2, 8>>>(x, mistake);
    fixed<8><<<2, 8, 0, s>>>(x + 1, 0);
    given<<<1, 32, 128, s>>>(x + 2, mistake == 8 ? 32 : 31);
    given<<<1, 9, 36, s>>>(x + 2, mistake == 9 ? 9 : 8);
    cudaDeviceSynchronize();
    printf("%s\n", x[0] == 27 && x[1] == 27 && x[2] == 1 ? "right" : "wrong");
    cudaStreamDestroy(s);
    return cudaFree(x);
}
END
PATH=$here/tests/cli/hcc:$PATH
for cxx in g++ unoptimised_clang++; do
    command -v ${cxx#unoptimised_} >"$dir/log" || continue
    CXX=$cxx hostcuda/hcc -g -fsanitize=address "$dir/beside.cu" -o "$dir/beside" >"$dir/log" 2>&1 && [ "$("$dir/beside" 2>"$dir/err")" = right ]
    ok $? "$cxx: shared memory with fences around it works as before"
    sed 's/^/# /' "$dir/log" "$dir/err" | grep -v building | head -n 6
    found=
    for mistake in 1 2 3 4 5 6 7 8 9; do
        "$dir/beside" $mistake >"$dir/log" 2>&1
        grep -qE 'AddressSanitizer: (use-after-poison|heap-buffer-overflow)' "$dir/log" && grep -qE '#0 .*(fixed|given).*beside.cu' "$dir/log" && found=$found$mistake
    done
    [ "$found" = 123456789 ]
    ok $? "$cxx: each access beside it is found, with the kernel's name and line"
    [ "$found" = 123456789 ] || echo "# found: $found"
done

judged() { # RULE EXERCISE TEXT: what the judge says of the exercise with the file hole in its hole
    sed '/WRITE HERE/,/END \*\//{/WRITE HERE/r '"$dir/hole"'
/WRITE HERE/!{/END \*\//!d;};}' examples/exercises/"$2".cu >"$dir/$2.cu"
    said=$(examples/exercises/judge "$dir/$2.cu" | head -n 1)
    [ "$said" = "$2: $3" ]
    ok $? "$1"
    [ "$said" = "$2: $3" ] || echo "# it says: $said"
}
echo '    reverse<<<N / BLOCK, BLOCK, BLOCK>>>(dev);' >"$dir/hole"
judged "the judge says it of shared memory whose length the launch gives" 05_shared_size "out of bounds: reverse (line 16) writes 4 bytes beside its 128 bytes of shared memory"
echo '    __syncthreads(); tile[threadIdx.x + 1] += 0;' >"$dir/hole"
judged "and of shared memory of a fixed length" 06_barrier "out of bounds: take_neighbours (line 19) reads 4 bytes beside its shared memory"
done_testing
