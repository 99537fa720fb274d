// src/base/join.h: lists in the sentences of messages.
#pragma once

#include <cstddef>
#include <ranges>
#include <string>
#include <string_view>

namespace trainyard {

/// "a", "a or b", "a, b or c": ", " between them, `last` in front of the last one.
template <std::ranges::sized_range Texts>
std::string joined(const Texts& texts, std::string_view last = " or ") {
  std::string all;
  size_t i = 0;
  for (const auto& text : texts) {
    if (i > 0) all += i + 1 == std::ranges::size(texts) ? last : ", ";
    all += text;
    ++i;
  }
  return all;
}

}  // namespace trainyard
