// tests/mutants/mutant.h: tells a program which mutant of tests/mutants/list.toml is active. Only
// the copy of the sources that scripts/mutants makes includes it.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace trainyard {

/// Returns true if TRAINYARD_MUTANT is `number`. The first such call creates the file
/// TRAINYARD_MUTANT_REACHED, which distinguishes a mutant that no test reaches from one that no
/// test notices. The function is static, since files compiled for other instruction sets need their
/// own copy.
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
