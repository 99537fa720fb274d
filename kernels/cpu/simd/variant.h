// kernels/cpu/simd/variant.h: function names with the instruction set as a suffix. The build
// defines TRAINYARD_SIMD_VARIANT as baseline, avx2 or avx512.
#pragma once

#define TRAINYARD_VARIANT_CONCAT(name, variant) name##_##variant
#define TRAINYARD_VARIANT_EXPAND(name, variant) TRAINYARD_VARIANT_CONCAT(name, variant)
/// Expands, for example, TRAINYARD_VARIANT(pool_loops) to pool_loops_avx512.
#define TRAINYARD_VARIANT(name) TRAINYARD_VARIANT_EXPAND(name, TRAINYARD_SIMD_VARIANT)
