#include "tests/support/source_path.h"

#include <cstdlib>

namespace trainyard::testing {

std::string source_path(const std::string& path) {
  const char* const folder = std::getenv("TRAINYARD_SOURCE_DIR");
  return std::string(folder != nullptr ? folder : TRAINYARD_SOURCE_DIR) + "/" + path;
}

}  // namespace trainyard::testing
