/* hcc's rewriter: what CUDA has and hostcuda has not, so that a failed build can say so. */
#ifndef HOSTCUDA_REWRITER_MISSING_H
#define HOSTCUDA_REWRITER_MISSING_H

#include <string>

namespace rewriter {

struct Missing {
    const char *begins; /* names of the API and of headers that begin so */
    const char *because;
};

const char *const NO_TEXTURES = "hostcuda has no textures, surfaces and CUDA arrays";
const char *const NO_GROUPS = "hostcuda has of cooperative groups the block and tiles of a warp";
const char *const NO_COOPERATION =
    "hostcuda runs blocks one after another: none can wait for others";
const char *const NO_BRANCHES = "hostcuda does not know which threads took a branch";
const char *const NO_GRAPHICS = "hostcuda shares nothing with OpenGL, Vulkan, Direct3D and EGL";
const char *const NO_PTX = "hostcuda has no PTX: a kernel is code of this CPU";
const char *const NO_CACHE_POLICY = "hostcuda models no cache, so there is nothing to keep in it";
const char *const NO_CLUSTERS = "hostcuda has no thread block clusters";
const char *const NO_DRIVER = "hostcuda has the runtime API, not the driver API";
const char *const NO_IPC = "hostcuda has no memory or events shared between processes";
const char *const NO_HALF = "hostcuda has no half precision types";
const char *const NO_GRAPH_NODES = "hostcuda has graphs by stream capture, not node by node";
const char *const NO_LIBRARY =
    "hostcuda has none of the toolkit's libraries: write a kernel for it";
const char *const NO_TENSOR_CORES = "hostcuda has no tensor cores";
const char *const NOT_IN_13 =
    "CUDA 13 has no such member; cudaDeviceGetAttribute tells it, as cudaDevAttrClockRate";
const char *const NO_3D = "hostcuda has no copies in three dimensions";

const Missing ALL_MISSING[] = {
    {"tex1D", NO_TEXTURES},
    {"tex2D", NO_TEXTURES},
    {"tex3D", NO_TEXTURES},
    {"texCubemap", NO_TEXTURES},
    {"surf1D", NO_TEXTURES},
    {"surf2D", NO_TEXTURES},
    {"surf3D", NO_TEXTURES},
    {"cudaTexture", NO_TEXTURES},
    {"cudaSurface", NO_TEXTURES},
    {"cudaCreateTexture", NO_TEXTURES},
    {"cudaCreateSurface", NO_TEXTURES},
    {"cudaBindTexture", NO_TEXTURES},
    {"cudaMallocArray", NO_TEXTURES},
    {"cudaMalloc3DArray", NO_TEXTURES},
    {"cudaFreeArray", NO_TEXTURES},
    {"cudaMemcpyToArray", NO_TEXTURES},
    {"cudaMemcpy2DToArray", NO_TEXTURES},
    {"cudaCreateChannelDesc", NO_TEXTURES},
    {"cudaChannelFormat", NO_TEXTURES},
    {"texture_", NO_TEXTURES},
    {"surface_", NO_TEXTURES},
    {"cooperative_groups/", NO_GROUPS},
    {"coalesced_", NO_BRANCHES},
    {"binary_partition", NO_BRANCHES},
    {"labeled_partition", NO_BRANCHES},
    {"multi_grid_group", NO_COOPERATION},
    {"cudaLaunchCooperativeKernel", NO_COOPERATION},
    {"cuda_gl_interop", NO_GRAPHICS},
    {"cuda_egl_interop", NO_GRAPHICS},
    {"cuda_vdpau_interop", NO_GRAPHICS},
    {"cuda_d3d", NO_GRAPHICS},
    {"cudaGraphics", NO_GRAPHICS},
    {"GL/", NO_GRAPHICS},
    {"helper_gl", NO_GRAPHICS},
    {"cudaAccessPolicyWindow", NO_CACHE_POLICY},
    {"cudaStreamSetAttribute", NO_CACHE_POLICY},
    {"cudaStreamAttr", NO_CACHE_POLICY},
    {"__cluster_dims__", NO_CLUSTERS},
    {"cudaLaunchAttributeCluster", NO_CLUSTERS},
    {"cuInit", NO_DRIVER},
    {"cuCtx", NO_DRIVER},
    {"cuDevice", NO_DRIVER},
    {"cuModule", NO_DRIVER},
    {"cuMem", NO_DRIVER},
    {"cuLaunch", NO_DRIVER},
    {"CUdevice", NO_DRIVER},
    {"CUcontext", NO_DRIVER},
    {"CUmodule", NO_DRIVER},
    {"CUfunction", NO_DRIVER},
    {"CUresult", NO_DRIVER},
    {"nvrtc", NO_DRIVER},
    {"cudaIpc", NO_IPC},
    {"cuda_fp16", NO_HALF},
    {"cuda_bf16", NO_HALF},
    {"cuda_fp8", NO_HALF},
    {"__half", NO_HALF},
    {"half2", NO_HALF},
    {"__nv_bfloat16", NO_HALF},
    {"cudaGraphCreate", NO_GRAPH_NODES},
    {"cudaGraphAdd", NO_GRAPH_NODES},
    {"cudaGraphExecUpdate", NO_GRAPH_NODES},
    {"cublas", NO_LIBRARY},
    {"cufft", NO_LIBRARY},
    {"curand", NO_LIBRARY},
    {"cusparse", NO_LIBRARY},
    {"cusolver", NO_LIBRARY},
    {"cudnn", NO_LIBRARY},
    {"npp", NO_LIBRARY},
    {"thrust", NO_LIBRARY},
    {"cub", NO_LIBRARY},
    {"cuda/", NO_LIBRARY},
    {"clockRate", NOT_IN_13},
    {"memoryClockRate", NOT_IN_13},
    {"deviceOverlap", NOT_IN_13},
    {"computeMode", NOT_IN_13},
    {"kernelExecTimeoutEnabled", NOT_IN_13},
    {"mma.h", NO_TENSOR_CORES},
    {"wmma", NO_TENSOR_CORES},
    {"cudaMalloc3D", NO_3D},
    {"cudaMemcpy3D", NO_3D},
    {"cudaMemset3D", NO_3D},
};

/* Why a name or header is not there; "" if nothing is known of it. A longer name that has letters
 * behind `cub` or `thrust` is somebody else's. */
inline std::string missing_because(const std::string &name) {
    for (const Missing &m : ALL_MISSING) {
        const std::string begins = m.begins;
        if (name.compare(0, begins.size(), begins) != 0) continue;
        const bool word = begins == "cub" || begins == "thrust" || begins == "wmma";
        if (!word || name.size() == begins.size() || name[begins.size()] == '/') return m.because;
    }
    return "";
}

} /* namespace rewriter */

#endif
