/*  nccl.h -- a stand-in for the NCCL calls that examples/ddp_buckets.cu makes, on hostcuda: so that
    the logic of a program that reduces over several GPUs can be tried without one.

    In stream order, as NCCL: an all-reduce begins when all ranks' streams have come to it, and what
    is queued after it on any of them comes after its end. Sums are made on the CPU, rank by rank.
    It takes 15 us and 2 (n - 1) / n of its bytes at 5 GB/s on the modelled clock, a slow link:
    so that small data have something to hide. Nothing was measured. One thread, one process,
    floats only.

    It refuses, as NCCL would or hangs: an all-reduce that not all ranks join in a group, other
    counts on other ranks, a stream of another device. */
#ifndef HOSTCUDA_NCCL_H
#define HOSTCUDA_NCCL_H

#include "cuda_runtime.h"
#include "hostcuda.h"

#include <vector>

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5
} ncclResult_t;

typedef enum {
    ncclFloat = 7
} ncclDataType_t;

typedef enum {
    ncclSum = 0
} ncclRedOp_t;

struct hostcuda_nccl_clique;

typedef struct ncclComm {
    hostcuda_nccl_clique *clique;
    int rank, device;
} * ncclComm_t;

struct hostcuda_nccl_call { /* one rank's part of an all-reduce */
    const float *from;
    float *to;
    size_t count;
    cudaStream_t stream;
};

struct hostcuda_nccl_clique {
    int num, num_alive;
    std::vector<int> devices;
    std::vector<std::vector<hostcuda_nccl_call>> calls; /* of each rank, in this group */
};

struct hostcuda_nccl_args {
    const float *from[16];
    float *to[16];
};

static inline std::vector<hostcuda_nccl_clique *> &hostcuda_nccl_open() {
    static std::vector<hostcuda_nccl_clique *> with_calls; /* in the group that is open */
    return with_calls;
}

static inline int &hostcuda_nccl_depth() {
    static int depth = 0;
    return depth;
}

static void hostcuda_nccl_sum(hostcuda_nccl_args a, int num, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        float sum = 0.0f;
        for (int r = 0; r < num; ++r) sum += a.from[r][i];
        for (int r = 0; r < num; ++r) a.to[r][i] = sum;
    }
}

/* All ranks' streams come to the first one's; it sums; they go on. */
static inline cudaError_t hostcuda_nccl_issue(hostcuda_nccl_clique *c, size_t k) {
    hostcuda_nccl_args args = hostcuda_nccl_args();
    const size_t count = c->calls[0][k].count;
    const double part = 2.0 * (c->num - 1) / c->num;
    const cudaStream_t first = c->calls[0][k].stream;
    cudaEvent_t event = NULL;
    cudaError_t e = cudaSuccess;
    for (int r = 0; r < c->num && e == cudaSuccess; ++r) {
        args.from[r] = c->calls[r][k].from;
        args.to[r] = c->calls[r][k].to;
        e = cudaSetDevice(c->devices[r]);
        if (e == cudaSuccess) e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        if (e == cudaSuccess) e = cudaEventRecord(event, c->calls[r][k].stream);
        if (e == cudaSuccess) e = cudaSetDevice(c->devices[0]);
        if (e == cudaSuccess) e = cudaStreamWaitEvent(first, event, 0);
        if (event) (void)cudaEventDestroy(event);
        event = NULL;
    }
    if (e != cudaSuccess) return e;
    hostcuda_kernel_name(hostcuda_nccl_sum, "all-reduce");
    hostcuda_kernel_time(hostcuda_nccl_sum, 15e3 + part * 4.0 * (double)count / 5.0, 0.0);
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    config.gridDim = config.blockDim = dim3(1);
    config.stream = first;
    e = cudaLaunchKernelEx(&config, hostcuda_nccl_sum, args, c->num, count);
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (e == cudaSuccess) e = cudaEventRecord(event, first);
    for (int r = 1; r < c->num && e == cudaSuccess; ++r) {
        e = cudaSetDevice(c->devices[r]);
        if (e == cudaSuccess) e = cudaStreamWaitEvent(c->calls[r][k].stream, event, 0);
    }
    if (event) (void)cudaEventDestroy(event);
    return e;
}

static inline const char *ncclGetErrorString(ncclResult_t r) {
    if (r == ncclSuccess) return "no error";
    if (r == ncclUnhandledCudaError) return "unhandled cuda error";
    return r == ncclInvalidArgument ? "invalid argument" : "invalid usage";
}

static inline ncclResult_t ncclCommInitAll(ncclComm_t *comms, int num, const int *devices) {
    int there = 0;
    if (!comms || num < 1 || num > 16) return ncclInvalidArgument;
    if (cudaGetDeviceCount(&there) != cudaSuccess) return ncclUnhandledCudaError;
    hostcuda_nccl_clique *c = new hostcuda_nccl_clique();
    c->num = c->num_alive = num;
    c->calls.resize((size_t)num);
    for (int r = 0; r < num; ++r) {
        c->devices.push_back(devices ? devices[r] : r);
        if (c->devices[(size_t)r] < 0 || c->devices[(size_t)r] >= there) {
            delete c;
            return ncclInvalidArgument;
        }
    }
    for (int r = 0; r < num; ++r) comms[r] = new ncclComm{c, r, c->devices[(size_t)r]};
    return ncclSuccess;
}

static inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!comm) return ncclSuccess;
    if (--comm->clique->num_alive == 0) delete comm->clique;
    delete comm;
    return ncclSuccess;
}

static inline ncclResult_t ncclGroupStart(void) {
    ++hostcuda_nccl_depth();
    return ncclSuccess;
}

static inline ncclResult_t ncclGroupEnd(void) {
    std::vector<hostcuda_nccl_clique *> &open = hostcuda_nccl_open();
    ncclResult_t result = ncclSuccess;
    int before = 0;
    if (hostcuda_nccl_depth() == 0) return ncclInvalidUsage;
    if (--hostcuda_nccl_depth() > 0) return ncclSuccess;
    if (cudaGetDevice(&before) != cudaSuccess) return ncclUnhandledCudaError;
    for (hostcuda_nccl_clique *c : open) {
        for (const std::vector<hostcuda_nccl_call> &calls : c->calls) {
            if (calls.size() != c->calls[0].size()) result = ncclInvalidUsage;
        }
        for (size_t k = 0; k < c->calls[0].size() && result == ncclSuccess; ++k) {
            for (int r = 1; r < c->num; ++r) {
                if (c->calls[(size_t)r][k].count != c->calls[0][k].count) result = ncclInvalidUsage;
            }
            if (result == ncclSuccess && hostcuda_nccl_issue(c, k) != cudaSuccess) {
                result = ncclUnhandledCudaError;
            }
        }
        for (std::vector<hostcuda_nccl_call> &calls : c->calls) calls.clear();
    }
    open.clear();
    return cudaSetDevice(before) == cudaSuccess ? result : ncclUnhandledCudaError;
}

static inline ncclResult_t ncclAllReduce(const void *from, void *to, size_t count,
                                         ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                         cudaStream_t stream) {
    std::vector<hostcuda_nccl_clique *> &open = hostcuda_nccl_open();
    int found = 0;
    if (!from || !to || !comm || type != ncclFloat || op != ncclSum) return ncclInvalidArgument;
    if (hostcuda_nccl_depth() == 0 && comm->clique->num > 1) return ncclInvalidUsage; /* hangs */
    (void)ncclGroupStart();
    for (hostcuda_nccl_clique *c : open) found |= c == comm->clique;
    if (!found) open.push_back(comm->clique);
    comm->clique->calls[(size_t)comm->rank].push_back(
        {(const float *)from, (float *)to, count, stream});
    return ncclGroupEnd();
}

#endif
