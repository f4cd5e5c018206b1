/*  exercise.h -- what the exercises share: checks whose words the judge reads, a clock, a kernel
    that lasts as long as one likes. `make exercise N=07` builds, runs and judges one of them.    */
#ifndef EXERCISE_H
#define EXERCISE_H

#include "streampipe.h" /* what the lessons showed may be used, such as spipe_stream_create */

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __HOSTCUDA__
#include "hostcuda.h"
#else
#include <time.h>
#endif

/* Ends the program if a call of CUDA failed. */
#define CHECK(call) judge_call((call), #call, __LINE__)

static inline void judge_call(cudaError_t e, const char *call, int line) {
    if (e == cudaSuccess) return;
    printf("failed: line %d: %s: %s\n", line, call, cudaGetErrorString(e));
    exit(1);
}

/* Ends the program unless each of the n numbers at got is wanted(its index). */
template <typename T, typename F>
static void judge(const char *name, const T *got, int n, F wanted) {
    int first = -1, wrong = 0;
    for (int i = 0; i < n; ++i) {
        if (got[i] == (T)wanted(i)) continue;
        if (wrong++ == 0) first = i;
    }
    if (wrong == 0) return;
    printf("wrong: %s[%d] is %.12g, wanted %.12g; %d of %d are wrong\n", name, first,
           (double)got[first], (double)(T)wanted(first), wrong, n);
    exit(1);
}

/* Ends the program if a time is longer than wanted. */
static inline void judge_ms(const char *what, double ms, double at_most) {
    if (ms <= at_most) return;
    printf("slow: %s took %.3f ms, wanted at most %.3f ms\n", what, ms, at_most);
    exit(1);
}

/* Ends the program if something that shall hold does not. */
static inline void judge_that(int holds, const char *what) {
    if (holds) return;
    printf("wrong: %s\n", what);
    exit(1);
}

/* What main returns when it has come to its end. */
static inline int judge_done(void) {
    printf("right\n");
    return 0;
}

/* The host's clock. Without a GPU it is modelled: it follows from what was issued and waits. */
static inline double now_ms(void) {
#ifdef __HOSTCUDA__
    return hostcuda_now_ns() * 1e-6;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
#endif
}

/* busy<<<1, 32, 0, stream>>>() takes 1 ms, and a small part of the GPU. */
static __global__ void busy() {
#ifdef __CUDA_ARCH__
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < 1000000);
#endif
}

/* To be called first: the first launch of a kernel takes longer, and the model must know busy. */
static inline void prepare_busy(void) {
#ifdef __HOSTCUDA__
    hostcuda_kernel_time(busy, 1e6, 0);
#endif
    busy<<<1, 32>>>();
    CHECK(cudaDeviceSynchronize());
}

#endif /* EXERCISE_H */
