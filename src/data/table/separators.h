// src/data/table/separators.h: what separates the fields of tables that people have.
#pragma once

#include <array>
#include <string_view>

namespace trainyard {

struct Separator {
  char character;
  std::string_view plural;
  std::string_view yaml;  // as a spec file writes it
};

/// A text that two of them would explain as well is separated by the first.
inline constexpr auto kSeparators = std::to_array<Separator>({{'\t', "tabs", "\"\\t\""},
                                                              {';', "semicolons", "';'"},
                                                              {',', "commas", "','"},
                                                              {'|', "bars", "'|'"}});

/// The separator of a line that was taken for a single field; null if it has none.
constexpr const Separator* find_separator(std::string_view line) {
  for (const Separator& separator : kSeparators) {
    if (line.find(separator.character) != std::string_view::npos) return &separator;
  }
  return nullptr;
}

}  // namespace trainyard
