// src/data/table/separators.h: common separators of fields in tables.
#pragma once

#include <array>
#include <string_view>

namespace trainyard {

struct Separator {
  char character;
  std::string_view plural;
  std::string_view yaml;  // its notation in a spec file
};

/// Sorted by priority: if several separators fit a text equally well, the first one is assumed.
inline constexpr auto kSeparators = std::to_array<Separator>({{'\t', "tabs", "\"\\t\""},
                                                              {';', "semicolons", "';'"},
                                                              {',', "commas", "','"},
                                                              {'|', "bars", "'|'"}});

/// Returns the separator of a line that was mistaken for a single field; null if it has none.
constexpr const Separator* find_separator(std::string_view line) {
  for (const Separator& separator : kSeparators) {
    if (line.find(separator.character) != std::string_view::npos) return &separator;
  }
  return nullptr;
}

}  // namespace trainyard
