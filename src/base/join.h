// src/base/join.h: joins texts to lists for messages.
#pragma once

#include <cstddef>
#include <ranges>
#include <string>
#include <string_view>

namespace trainyard {

/// Joins texts as "a", "a or b" or "a, b or c": `last` stands before the last text, ", " before
/// each earlier one.
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

/// Returns text such as "a, b, c and 4 more": the first eight texts, and the number of the others
/// if there are any.
template <std::ranges::sized_range Texts>
std::string first_names(const Texts& texts) {
  constexpr size_t kShown = 8;
  std::string all;
  size_t i = 0;
  for (const auto& text : texts) {
    if (i == kShown) break;
    all += (i > 0 ? ", " : "") + std::string(text);
    ++i;
  }
  const size_t count = std::ranges::size(texts);
  return count > kShown ? all + " and " + std::to_string(count - kShown) + " more" : all;
}

}  // namespace trainyard
