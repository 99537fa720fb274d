// src/base/grouped.h: numbers with thousands separators.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard {

/// Converts 1797 to "1,797".
inline std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t begin = digits[0] == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > begin + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

}  // namespace trainyard
