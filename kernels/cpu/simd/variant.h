// kernels/cpu/simd/variant.h: names that differ per instruction set. TRAINYARD_SIMD_VARIANT is
// baseline, avx2 or avx512 and comes from the build.
#pragma once

#define TRAINYARD_VARIANT_CONCAT(name, variant) name##_##variant
#define TRAINYARD_VARIANT_EXPAND(name, variant) TRAINYARD_VARIANT_CONCAT(name, variant)
/// pool_loops -> pool_loops_avx512
#define TRAINYARD_VARIANT(name) TRAINYARD_VARIANT_EXPAND(name, TRAINYARD_SIMD_VARIANT)
