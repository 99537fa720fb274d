// kernels/math/philox.h: the random number generator Philox4x32-10, which computes one block of
// four 32-bit numbers from a counter.
//
// key     = seed (64 bit)
// counter = (index low, index high, step folded to 32 bit, stream): stream identifies the purpose
//           (a parameter, a dropout node, the shuffle), step is the optimizer step or epoch, index
//           the block of four numbers.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Test
// vectors from the Random123 distribution are in tests/kernels/math_philox_test.cc.
#pragma once

#include <cstdint>

#include "kernels/math/host_device.h"

namespace trainyard::math {

struct Philox4 {
  uint32_t v[4];
};

TRAINYARD_HD inline Philox4 philox4x32_10(Philox4 c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.v[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c.v[2];
    c = Philox4{{static_cast<uint32_t>(p1 >> 32) ^ c.v[1] ^ key0, static_cast<uint32_t>(p1),
                 static_cast<uint32_t>(p0 >> 32) ^ c.v[3] ^ key1, static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

/// Returns block number `block` of the stream: its numbers 4*block .. 4*block+3.
TRAINYARD_HD inline Philox4 philox_block(uint64_t seed, uint32_t stream, uint64_t step,
                                         uint64_t block) {
  const Philox4 counter{{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                         static_cast<uint32_t>(step ^ (step >> 32)), stream}};
  return philox4x32_10(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

/// Returns the 32-bit number at `index` in the stream.
TRAINYARD_HD inline uint32_t philox_u32(uint64_t seed, uint32_t stream, uint64_t step,
                                        uint64_t index) {
  return philox_block(seed, stream, step, index / 4).v[index % 4];
}

/// Converts to a uniform number in [0, 1) from the top 24 bits, so that float and double agree
/// exactly.
template <typename T>
TRAINYARD_HD inline T uniform01(uint32_t u) {
  return static_cast<T>(u >> 8) * T(5.9604644775390625e-08);  // 2^-24
}

}  // namespace trainyard::math
