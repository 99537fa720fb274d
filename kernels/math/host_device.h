// kernels/math/host_device.h: marks a function for both compilers. On the host it is always
// inlined: loops around it must vectorize, and a copy of it compiled for one instruction set must
// never be the one that the linker keeps for all (kernels/cpu/simd/simd.h).
#pragma once

#ifdef __CUDACC__
#define TRAINYARD_HD __host__ __device__
#else
#define TRAINYARD_HD [[gnu::always_inline]]
#endif
