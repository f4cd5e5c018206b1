/* ---- The include guard, and what the library includes: the CUDA runtime, C, pthreads -------- */
#if defined(STREAMPIPE_H) && defined(SPIPE_DEFINITIONS) && !SPIPE_PRIV_CODE
#error "define SPIPE_DEFINITIONS before this file includes streampipe.h for the first time"
#endif
#ifndef STREAMPIPE_H
#define STREAMPIPE_H

/* 1 = this file has the code; 0 = another file of the program has it. */
#if defined(SPIPE_DECLARATIONS) && !defined(SPIPE_DEFINITIONS)
#define SPIPE_PRIV_CODE 0
#else
#define SPIPE_PRIV_CODE 1
#endif

#include <cuda_runtime_api.h>
#ifdef __cplusplus
#include <cuda_runtime.h> /* cudaLaunchKernelEx for SPIPE_LAUNCH */
#endif
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_MSC_VER) && !defined(SPIPE_NO_THREADS)
#define SPIPE_NO_THREADS /* MSVC has no pthreads; MinGW has them */
#endif
#if SPIPE_PRIV_CODE
#ifdef __cplusplus
#include <exception>
#include <new>
#endif
#include <stdarg.h>
#include <time.h>
#if !defined(_MSC_VER)
#include <sys/time.h>
#include <unistd.h>
#endif
#if !defined(_WIN32)
#include <sys/resource.h>
#endif
#if defined(__linux__)
#include <sys/mman.h> /* madvise, if the language standard allows its declaration */
#endif
#if !defined(SPIPE_NO_THREADS)
#include <pthread.h>
#include <signal.h>
#endif
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#include <emmintrin.h> /* streaming stores; sanitizers do not see those */
#define SPIPE_PRIV_STREAM_STORES 1
#else
#define SPIPE_PRIV_STREAM_STORES 0
#endif
#endif

/* ============================================================================================
   >>api    every public type and function, layer by layer
   ============================================================================================ */

/* ---- 1 >>config ----------------------------------------------------------------------------
   Version, limits, linkage, and the names of earlier versions. Uses nothing of the library.

   You may define these before including, in any file; none changes a public struct:
     SPIPE_NO_THREADS   no worker threads: the calling thread does host work, spipe_worker_create
                        returns cudaErrorNotSupported (with MSVC always). Define it in no file, or
                        in all files that share pipelines and other objects.
     SPIPE_DECLARATIONS types, macros and prototypes, and no code: for programs of many files.
     SPIPE_DEFINITIONS  the code for those files, with external linkage (extern "C"), in one file of
                        the program; also that of the optional headers that it includes. Where
                        functions of yours may throw, it is a .cu or C++ file. Where both are
                        defined, it counts: -DSPIPE_DECLARATIONS may be given for all files.
     SPIPE_API          linkage of the public functions without these two (default: static inline).
                        A file with neither has code of its own, also beside files with them.   */
#define SPIPE_VERSION_MAJOR 0
#define SPIPE_VERSION_MINOR 2
#define SPIPE_VERSION_PATCH 0
#define SPIPE_VERSION                                                                              \
    (SPIPE_VERSION_MAJOR * 10000 + SPIPE_VERSION_MINOR * 100 + SPIPE_VERSION_PATCH)
#if defined(__GNUC__) || defined(__clang__)
#define SPIPE_PRIV_ATTRIBUTE(list) __attribute__(list)
#else
#define SPIPE_PRIV_ATTRIBUTE(list)
#endif
/* Linkage of what each file has for itself: private functions, templates, stages of macros. */
#define SPIPE_PRIV_LOCAL static inline SPIPE_PRIV_ATTRIBUTE((unused))
#if defined(SPIPE_DECLARATIONS) || defined(SPIPE_DEFINITIONS)
#undef SPIPE_API
#ifdef __cplusplus
#define SPIPE_API extern "C"
#else
#define SPIPE_API extern
#endif
#elif !defined(SPIPE_API)
#define SPIPE_API SPIPE_PRIV_LOCAL
#endif
/* Linkage of functions whose error must not be ignored, because the work may not be done. */
#if defined(__cplusplus) && __cplusplus >= 201703L
#if defined(SPIPE_DECLARATIONS) || defined(SPIPE_DEFINITIONS)
#define SPIPE_API_RESULT SPIPE_API [[nodiscard]]
#else
#define SPIPE_API_RESULT [[nodiscard]] SPIPE_API
#endif
#elif defined(__clang__) || !defined(__cplusplus)
#define SPIPE_API_RESULT SPIPE_API SPIPE_PRIV_ATTRIBUTE((warn_unused_result))
#else /* g++ would also warn of (void)spipe_run(...) */
#define SPIPE_API_RESULT SPIPE_API
#endif
/* Private functions outside the loop that issues are compiled for size, those in it for speed. */
#define SPIPE_PRIV_RARE  SPIPE_PRIV_ATTRIBUTE((cold)) SPIPE_PRIV_LOCAL
#define SPIPE_PRIV_OFTEN SPIPE_PRIV_ATTRIBUTE((hot)) SPIPE_PRIV_LOCAL

#define SPIPE_MAX_BUFFERS 16
#define SPIPE_MAX_STAGES  16
#define SPIPE_MAX_DEPTH   32
#define SPIPE_MAX_THREADS 32
#define SPIPE_MAX_STREAMS 32 /* in a pool: CUDA has at most 32 hardware queues */
#define SPIPE_MAX_DEVICES 16
/* For count, chunk, depth and threads: the library chooses (count: until the sources end). */
#define SPIPE_AUTO ((size_t)-1)

/* 1 = AddressSanitizer watches memory */
#if defined(__SANITIZE_ADDRESS__)
#define SPIPE_PRIV_ASAN 1
#elif defined(__has_feature)
#define SPIPE_PRIV_ASAN __has_feature(address_sanitizer)
#else
#define SPIPE_PRIV_ASAN 0
#endif

/* The stamp in structs that a _default function of this version has made. */
#define SPIPE_PRIV_STAMP ((size_t)0x53700000u + SPIPE_VERSION)

/* Names of earlier versions do not compile; the message gives the new name. */
#if defined(__GNUC__) || defined(__clang__)
#define SPIPE_PRIV_PRAGMA(text)     _Pragma(#text)
#define SPIPE_PRIV_RENAMED(message) SPIPE_PRIV_PRAGMA(GCC error message)
#else
#define SPIPE_PRIV_RENAMED(message) spipe_this_name_has_changed_see_the_changelog
#endif
#define spipe_stage_once  SPIPE_PRIV_RENAMED("spipe_stage_once is now spipe_stage_elementwise")
#define spipe_stage_fixed SPIPE_PRIV_RENAMED("spipe_stage_fixed is now spipe_stage_replayable")
#define spipe_enqueue     SPIPE_PRIV_RENAMED("spipe_enqueue is now spipe_pipeline_enqueue")
#define spipe_next        SPIPE_PRIV_RENAMED("spipe_next is now spipe_pipeline_next")
#define spipe_release     SPIPE_PRIV_RENAMED("spipe_release is now spipe_pipeline_release")
#define spipe_end         SPIPE_PRIV_RENAMED("spipe_end is now spipe_pipeline_end")
#define spipe_add_source_at                                                                        \
    SPIPE_PRIV_RENAMED("spipe_add_source_at is now spipe_add_source with SPIPE_ANY_ORDER")
#define spipe_add_sink_at                                                                          \
    SPIPE_PRIV_RENAMED("spipe_add_sink_at is now spipe_add_sink with SPIPE_ANY_ORDER")
#define spipe_add_source_split                                                                     \
    SPIPE_PRIV_RENAMED("spipe_add_source_split is now spipe_add_split_source")
#define SPIPE_MAPPED    SPIPE_PRIV_RENAMED("SPIPE_MAPPED is now SPIPE_SCHEDULE_ZERO_COPY")
#define SPIPE_ENGINES   SPIPE_PRIV_RENAMED("SPIPE_ENGINES is now SPIPE_SCHEDULE_ENGINES")
#define SPIPE_SERIAL    SPIPE_PRIV_RENAMED("SPIPE_SERIAL is now SPIPE_SCHEDULE_SERIAL")
#define SPIPE_ZERO_COPY SPIPE_PRIV_RENAMED("SPIPE_ZERO_COPY is now SPIPE_SCHEDULE_ZERO_COPY")
#define SPIPE_DEPTH_FIRST                                                                          \
    SPIPE_PRIV_RENAMED("SPIPE_DEPTH_FIRST is gone; examples/09_issue_order.cu has it in plain CUDA")
#define SPIPE_BREADTH_FIRST                                                                        \
    SPIPE_PRIV_RENAMED(                                                                            \
        "SPIPE_BREADTH_FIRST is gone; examples/09_issue_order.cu has it in plain CUDA")
