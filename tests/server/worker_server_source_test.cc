// Fails if an unchanged file on the server is read again, or if a changed file is mistaken for an
// unchanged one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>

#include "server/worker/server_source.h"
#include "src/base/sha256.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

/// Returns the number of bytes that this process has read by system calls.
int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string name;
  int64_t bytes = 0;
  io >> name >> bytes;
  return name == "rchar:" ? bytes : -1;
}

class WorkerServerSource : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("source" + std::to_string(::getpid()));
    fs::create_directories(root_ / "folder");
    content_ = std::string(kBytes, 'c');
    std::ofstream(root_ / "rows.csv") << content_;
    std::ofstream(root_ / "folder/a.txt") << content_;
  }
  void TearDown() override { fs::remove_all(root_); }
  ServerSource open(const std::string& name) {
    v1::DatasetSource source;
    source.set_server_path(root_ / name);
    const std::vector<fs::path> roots = {root_};
    return std::move(ServerSource::open(source, 0, roots)).value();
  }
  static constexpr int64_t kBytes = 8 << 20;
  // Returns a time at which the files' time stamps are old enough to be trusted.
  static int64_t later() { return std::time(nullptr) + 60; }

  fs::path root_;
  std::string content_;
};

TEST_F(WorkerServerSource, IsNotReadAgainWhileItsTimestampIsTheSame) {
  for (const std::string name : {"rows.csv", "folder"}) {
    const ServerSource first = open(name);
    const std::string stamp = first.trusted_stamp(later());
    const std::string digest = first.digest().value();
    ASSERT_FALSE(stamp.empty());

    const ServerSource again = open(name);
    const int64_t before = bytes_read();
    EXPECT_TRUE(again.check_content(digest, stamp).ok());
    const int64_t with_stamp = bytes_read() - before;
    EXPECT_TRUE(again.check_content(digest, "").ok());
    const int64_t without = bytes_read() - before - with_stamp;
    if (before >= 0) {
      EXPECT_LT(with_stamp, kBytes / 8) << name;
      EXPECT_GE(without, kBytes) << name;
    }
    EXPECT_EQ(again.check_content(sha256_hex("other"), "").error().reason, "SOURCE_CHANGED");
  }
}

TEST_F(WorkerServerSource, AChangeIsFoundIfTheTimestampDiffers) {
  const std::string stamp = open("rows.csv").trusted_stamp(later());
  const std::string digest = sha256_hex(content_);
  content_[5] = 'd';  // the size stays the same
  std::ofstream(root_ / "rows.csv") << content_;
  const Status changed = open("rows.csv").check_content(digest, stamp);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().reason, "SOURCE_CHANGED");
  EXPECT_EQ(changed.error().message.find("/proc"), std::string::npos) << changed.error().message;
  EXPECT_TRUE(open("rows.csv").check_content(sha256_hex(content_), stamp).ok());
}

TEST_F(WorkerServerSource, TheTimestampOfAFileChangedJustNowIsNotTrusted) {
  const int64_t now = std::time(nullptr);
  EXPECT_EQ(open("rows.csv").trusted_stamp(now), "");
  EXPECT_EQ(open("folder").trusted_stamp(now), "");
  EXPECT_EQ(open("rows.csv").trusted_stamp(now + ServerSource::kSettledS - 1), "");
  EXPECT_NE(open("rows.csv").trusted_stamp(later()), "");
}

}  // namespace
}  // namespace trainyard
