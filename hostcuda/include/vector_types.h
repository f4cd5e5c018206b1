/* hostcuda: the vector types and dim3 of CUDA, with CUDA's alignments. */
#ifndef HOSTCUDA_VECTOR_TYPES_H
#define HOSTCUDA_VECTOR_TYPES_H

#define HOSTCUDA_ALIGNED(n) __attribute__((aligned(n)))

/* a1..a4: the alignment of the 1, 2, 3 and 4 component type. */
#define HOSTCUDA_VECTORS(base, name, a1, a2, a3, a4)                                               \
    struct HOSTCUDA_ALIGNED(a1) name##1 {                                                          \
        base x;                                                                                    \
    };                                                                                             \
    struct HOSTCUDA_ALIGNED(a2) name##2 {                                                          \
        base x, y;                                                                                 \
    };                                                                                             \
    struct HOSTCUDA_ALIGNED(a3) name##3 {                                                          \
        base x, y, z;                                                                              \
    };                                                                                             \
    struct HOSTCUDA_ALIGNED(a4) name##4 {                                                          \
        base x, y, z, w;                                                                           \
    };                                                                                             \
    typedef struct name##1 name##1;                                                                \
    typedef struct name##2 name##2;                                                                \
    typedef struct name##3 name##3;                                                                \
    typedef struct name##4 name##4

HOSTCUDA_VECTORS(signed char, char, 1, 2, 1, 4);
HOSTCUDA_VECTORS(unsigned char, uchar, 1, 2, 1, 4);
HOSTCUDA_VECTORS(short, short, 2, 4, 2, 8);
HOSTCUDA_VECTORS(unsigned short, ushort, 2, 4, 2, 8);
HOSTCUDA_VECTORS(int, int, 4, 8, 4, 16);
HOSTCUDA_VECTORS(unsigned int, uint, 4, 8, 4, 16);
HOSTCUDA_VECTORS(long, long, 8, 16, 8, 16);
HOSTCUDA_VECTORS(unsigned long, ulong, 8, 16, 8, 16);
HOSTCUDA_VECTORS(long long, longlong, 8, 16, 8, 16);
HOSTCUDA_VECTORS(unsigned long long, ulonglong, 8, 16, 8, 16);
HOSTCUDA_VECTORS(float, float, 4, 8, 4, 16);
HOSTCUDA_VECTORS(double, double, 8, 16, 8, 16);
#undef HOSTCUDA_VECTORS

struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
        : x(vx), y(vy), z(vz) {}

    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}

    operator uint3() const {
        uint3 v;
        v.x = x;
        v.y = y;
        v.z = z;
        return v;
    }
#endif
};
typedef struct dim3 dim3;

#endif
