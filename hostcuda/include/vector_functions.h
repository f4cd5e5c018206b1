/* hostcuda: make_int2 and the others. */
#ifndef HOSTCUDA_VECTOR_FUNCTIONS_H
#define HOSTCUDA_VECTOR_FUNCTIONS_H

#include "vector_types.h"

#define HOSTCUDA_MAKE(base, name)                                                                  \
    static inline __attribute__((unused)) name##1 make_##name##1(base x) {                         \
        name##1 v;                                                                                 \
        v.x = x;                                                                                   \
        return v;                                                                                  \
    }                                                                                              \
    static inline __attribute__((unused)) name##2 make_##name##2(base x, base y) {                 \
        name##2 v;                                                                                 \
        v.x = x;                                                                                   \
        v.y = y;                                                                                   \
        return v;                                                                                  \
    }                                                                                              \
    static inline __attribute__((unused)) name##3 make_##name##3(base x, base y, base z) {         \
        name##3 v;                                                                                 \
        v.x = x;                                                                                   \
        v.y = y;                                                                                   \
        v.z = z;                                                                                   \
        return v;                                                                                  \
    }                                                                                              \
    static inline __attribute__((unused)) name##4 make_##name##4(base x, base y, base z, base w) { \
        name##4 v;                                                                                 \
        v.x = x;                                                                                   \
        v.y = y;                                                                                   \
        v.z = z;                                                                                   \
        v.w = w;                                                                                   \
        return v;                                                                                  \
    }

HOSTCUDA_MAKE(signed char, char)
HOSTCUDA_MAKE(unsigned char, uchar)
HOSTCUDA_MAKE(short, short)
HOSTCUDA_MAKE(unsigned short, ushort)
HOSTCUDA_MAKE(int, int)
HOSTCUDA_MAKE(unsigned int, uint)
HOSTCUDA_MAKE(long, long)
HOSTCUDA_MAKE(unsigned long, ulong)
HOSTCUDA_MAKE(long long, longlong)
HOSTCUDA_MAKE(unsigned long long, ulonglong)
HOSTCUDA_MAKE(float, float)
HOSTCUDA_MAKE(double, double)
#undef HOSTCUDA_MAKE

#endif
