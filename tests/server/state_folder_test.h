// tests/server/state_folder_test.h: a store and the folders of its files, for tests that compare
// them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "server/config/paths.h"
#include "src/base/sha256.h"
#include "tests/server/store_support.h"

namespace trainyard::server {

class StateFolderTest : public ::testing::Test {
 protected:
  StateFolderTest() : state_(folder_.path() / "state"), paths_(state_) {
    store_ = open_or_die(small_options(state_));
    EXPECT_TRUE(paths_.create(local_files()).ok());
  }

  static void write(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  /// Creates a complete upload: the file and its row in the store.
  std::string add_upload(const std::string& content) {
    const std::string sha256 = sha256_hex(content);
    const UploadKey key{"default", sha256, std::ssize(content)};
    EXPECT_TRUE(store_->uploads().begin(key).ok());
    EXPECT_TRUE(store_->uploads().advance(key, std::ssize(content)).ok());
    EXPECT_TRUE(store_->uploads().complete(key).ok());
    write(paths_.upload(sha256), content);
    return sha256;
  }

  const TemporaryDirectory folder_;
  const std::filesystem::path state_;
  const StatePaths paths_;
  std::unique_ptr<Store> store_;
};

}  // namespace trainyard::server
