// tests/mutants/mutant.h: which mutant of tests/mutants/list.toml a program runs with. Included
// only by the copy of the sources that scripts/mutants makes.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace trainyard {

/// True if TRAINYARD_MUTANT is `number`. The first time it makes the file TRAINYARD_MUTANT_REACHED,
/// which tells a mutant that no test reaches from one that no test notices. Static: files compiled
/// for other instruction sets keep their own.
[[maybe_unused]] static bool mutant(int number) {
  static const int chosen = [] {
    const char* text = std::getenv("TRAINYARD_MUTANT");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  if (number != chosen) return false;
  static const bool noted = [] {
    const char* path = std::getenv("TRAINYARD_MUTANT_REACHED");
    std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
    return file != nullptr && std::fclose(file) == 0;
  }();
  (void)noted;
  return true;
}

}  // namespace trainyard
