// client/cli/temporary_folder.h: a folder for files that a command needs while it runs.
#pragma once

#include <filesystem>

namespace trainyard::cli {

/// The destructor removes the folder. A signal that ends the program leaves it, so a command that
/// needs no such files must not make one.
class TemporaryFolder {
 public:
  TemporaryFolder() = default;
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  /// The first call makes the folder.
  const std::filesystem::path& path();

 private:
  std::filesystem::path path_;  // empty until the folder is made
};

}  // namespace trainyard::cli
