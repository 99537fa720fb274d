// tests/support/source_path.h: where tests find files of the repository, such as those under
// tests/golden/.
#pragma once

#include <string>

namespace trainyard::testing {

/// A file or folder of the repository by its path there. The repository is the one that the tests
/// were built from, or lies where TRAINYARD_SOURCE_DIR in the environment says, on a machine that
/// only runs them.
std::string source_path(const std::string& path);

}  // namespace trainyard::testing
