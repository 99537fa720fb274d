// kernels/cpu/places.h: numbers keys in the order in which they were first added, using a hash
// table with open addressing that is at most half full.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace trainyard::kernels::cpu {

class Places {
 public:
  /// `memory` has bytes_for(keys) bytes.
  Places(int64_t keys, void* memory)
      : mask_(capacity_for(keys) - 1),
        keys_(static_cast<int32_t*>(memory)),
        places_(keys_ + mask_ + 1) {
    std::fill_n(keys_, mask_ + 1, -1);
  }
  static int64_t bytes_for(int64_t keys) {
    return 2 * capacity_for(keys) * static_cast<int64_t>(sizeof(int32_t));
  }
  int64_t count() const { return count_; }
  /// Adds a key, which must not be negative. Returns true if the key is new.
  bool add(int32_t k) {
    const int64_t at = slot(k);
    if (keys_[at] == k) return false;
    keys_[at] = k;
    places_[at] = static_cast<int32_t>(count_++);
    return true;
  }
  int32_t of(int32_t k) const { return places_[slot(k)]; }

 private:
  static int64_t capacity_for(int64_t keys) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * keys)));
  }
  int64_t slot(int32_t k) const {
    // Knuth's multiplicative hash, which separates adjacent keys; these are frequent under Zipf's
    // law.
    auto at = static_cast<int64_t>((static_cast<uint64_t>(k) * 0x9E3779B97F4A7C15u) >> 20) & mask_;
    while (keys_[at] != k && keys_[at] >= 0) at = (at + 1) & mask_;
    return at;
  }
  int64_t mask_, count_ = 0;
  int32_t *keys_, *places_;
};

}  // namespace trainyard::kernels::cpu
