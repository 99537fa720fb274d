// client/cli/temporary_folder.h: a folder for files that a command needs while it runs.
#pragma once

#include <filesystem>

namespace trainyard::cli {

/// Creates a temporary folder when it is first used, and removes it in the destructor. A signal
/// that ends the program leaves the folder behind, so path() must only be called if files are
/// needed.
class TemporaryFolder {
 public:
  TemporaryFolder() = default;
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  /// Creates the folder in the first call.
  const std::filesystem::path& path();

 private:
  std::filesystem::path path_;  // empty until the folder is created
};

}  // namespace trainyard::cli
