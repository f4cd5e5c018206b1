/* hostcuda: CUDA's names for constants. */
#ifndef HOSTCUDA_MATH_CONSTANTS_H
#define HOSTCUDA_MATH_CONSTANTS_H

#define CUDART_INF_F        __builtin_inff()
#define CUDART_NAN_F        __builtin_nanf("")
#define CUDART_MAX_NORMAL_F 3.40282347e+38f
#define CUDART_SQRT_TWO_F   1.41421356f
#define CUDART_PI_F         3.14159265f
#define CUDART_PIO2_F       1.57079633f
#define CUDART_PIO4_F       0.785398163f
#define CUDART_2OVERPI_F    0.636619772f
#define CUDART_LN2_F        0.693147181f
#define CUDART_L2E_F        1.44269504f
#define CUDART_INF          __builtin_inf()
#define CUDART_NAN          __builtin_nan("")
#define CUDART_SQRT_TWO     1.4142135623730951
#define CUDART_PI           3.1415926535897931
#define CUDART_PIO2         1.5707963267948966
#define CUDART_PIO4         0.78539816339744828
#define CUDART_2OVERPI      0.63661977236758138
#define CUDART_LN2          0.69314718055994531
#define CUDART_L2E          1.4426950408889634

#endif
