#include "tests/data/temporary_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "client/cli/temporary_folder.h"

namespace trainyard {
namespace {

TEST(CommandsTemporaryFolder, IsCreatedByTheFirstCallAndRemovedAtTheEnd) {
  const TemporaryFolder parent;
  const char* const before = ::getenv("TMPDIR");
  const std::string restored = before == nullptr ? "" : before;
  ::setenv("TMPDIR", parent.path().c_str(), 1);
  {
    cli::TemporaryFolder folder;
    EXPECT_TRUE(std::filesystem::is_empty(parent.path()));
    const std::filesystem::path path = folder.path();
    EXPECT_EQ(folder.path(), path);
    EXPECT_EQ(path.parent_path(), parent.path());
    std::ofstream(path / "file") << "content";
  }
  EXPECT_TRUE(std::filesystem::is_empty(parent.path()));
  if (before == nullptr) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", restored.c_str(), 1);
  }
}

}  // namespace
}  // namespace trainyard
