// kernels/math/key_range.h: which keys a query of attention may attend to. They are always
// adjacent, so that a kernel skips all others without a mask.
#pragma once

#include <cstdint>

#include "kernels/math/host_device.h"

namespace trainyard::math {

/// The keys [begin, end) of a query; begin == end if it has none.
struct KeyRange {
  int64_t begin, end;
  TRAINYARD_HD bool has(int64_t key) const { return key >= begin && key < end; }
};

struct KeyRules {
  int64_t keys;    // that exist
  int64_t window;  // a causal query sees only so many of the newest keys, itself included; 0: all
  bool causal;     // a query sees no key after itself
  bool cached;     // the position of a query is its index among the keys
};

/// Returns the keys of query i. `position` is its place in its document (which begins so many keys
/// before query i) or, if cached, its index among the keys; `count` is the number of keys that a
/// query sees if it is not causal. Both may be nullptr. Any values are allowed: the range is inside
/// the keys.
TRAINYARD_HD inline KeyRange keys_of(const KeyRules& rules, int64_t i, const int32_t* position,
                                     const int32_t* count) {
  KeyRange range{0, rules.keys};
  if (rules.causal) {
    const int64_t own = position != nullptr && rules.cached ? *position : i;
    if (own + 1 < range.end) range.end = own + 1;
    if (position != nullptr && !rules.cached) range.begin = i - *position;
    if (rules.window > 0 && own + 1 - rules.window > range.begin) {
      range.begin = own + 1 - rules.window;
    }
  } else if (count != nullptr && *count < range.end) {
    range.end = *count;
  }
  if (range.begin < 0) range.begin = 0;
  if (range.end < range.begin) range.end = range.begin;
  if (range.begin > rules.keys) range = {rules.keys, rules.keys};
  return range;
}

}  // namespace trainyard::math
