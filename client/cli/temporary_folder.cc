#include "client/cli/temporary_folder.h"

#include <stdlib.h>

#include <string>
#include <system_error>

#include "src/base/check.h"

namespace trainyard::cli {

const std::filesystem::path& TemporaryFolder::path() {
  if (!path_.empty()) return path_;
  std::string path = (std::filesystem::temp_directory_path() / "trainyard-local-XXXXXX").string();
  TRAINYARD_CHECK(::mkdtemp(path.data()) != nullptr,
                  "a temporary folder can be created in " + path);
  path_ = path;
  return path_;
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace trainyard::cli
