// tests/support/golden.h: compares text with a file under tests/golden/. TRAINYARD_UPDATE_GOLDEN=1
// writes the file instead; review the difference before committing it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/source_path.h"

namespace trainyard::testing {

inline void expect_golden(const std::string& file, const std::string& text) {
  const std::string path = source_path("tests/golden/" + file);
  if (std::getenv("TRAINYARD_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream in(path);
  ASSERT_TRUE(in) << path << " is missing; run with TRAINYARD_UPDATE_GOLDEN=1";
  std::ostringstream expected;
  expected << in.rdbuf();
  EXPECT_EQ(text, expected.str()) << "differs from " << path;
}

}  // namespace trainyard::testing
