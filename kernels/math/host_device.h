// kernels/math/host_device.h: TRAINYARD_HD marks a function for host and device. On the host the
// function is always inlined, for two reasons: loops around it must vectorize, and the linker must
// not choose a copy that was compiled for one instruction set for all callers
// (kernels/cpu/simd/simd.h).
#pragma once

#ifdef __CUDACC__
#define TRAINYARD_HD __host__ __device__
#else
#define TRAINYARD_HD [[gnu::always_inline]]
#endif
