// kernels/math/host_device.h: marks a function for both compilers.
#pragma once

#ifdef __CUDACC__
#define TRAINYARD_HD __host__ __device__
#else
#define TRAINYARD_HD
#endif
