// tests/support/source_path.h: finds files of the repository for tests, such as those in
// tests/golden/.
#pragma once

#include <string>

namespace trainyard::testing {

/// Returns the absolute path of a file or folder of the repository. The environment variable
/// TRAINYARD_SOURCE_DIR names the repository on a machine that only runs the tests; the default is
/// the folder from which they were built.
std::string source_path(const std::string& path);

}  // namespace trainyard::testing
