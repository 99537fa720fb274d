// Tests of allowed paths. They fail if a path leads out of its allowed folder, if a symbolic link
// is followed, if a message reveals what is outside, or if a change is not noticed.
#include "src/base/allowed_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "src/base/sha256.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class AllowedPaths : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "trainyard-allowed-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    top_ = pattern;
    write("root/a.csv", "content");
    write("root/tree/b/c.txt", "deep");
    write("outside/secret.txt", "secret");
    write("root-beside/d.txt", "sibling");
  }
  void TearDown() override { fs::remove_all(top_); }
  void write(const std::string& path, const std::string& content) const {
    fs::create_directories((top_ / path).parent_path());
    std::ofstream(top_ / path) << content;
  }
  std::vector<fs::path> roots() const { return {top_ / "other", top_ / "root/"}; }
  Result<AllowedPath> open(const std::string& path) const {
    return open_allowed_path(path, roots(), "server_path");
  }
  std::string reason(const std::string& path) const {
    const auto opened = open(path);
    return opened.ok() ? "" : opened.error().reason;
  }
  std::string in_root(const std::string& path) const { return (top_ / "root" / path).string(); }
  std::string stamp(const std::string& path) const {
    const auto opened = open(in_root(path));
    EXPECT_TRUE(opened.ok());
    return stamp_of(*opened, "server_path").value().digest;
  }

  fs::path top_;
};

TEST_F(AllowedPaths, FilesAndFoldersInsideAreOpened) {
  const auto file = open(in_root("a.csv"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_FALSE(file->folder);
  EXPECT_EQ(content_digest(*file).value(), sha256_hex("content"));
  for (const char* path : {"", "tree", "tree/", "tree/./b", ".", "tree//b"}) {
    const auto folder = open(in_root(path));
    ASSERT_TRUE(folder.ok()) << path << ": " << folder.error().message;
    EXPECT_TRUE(folder->folder);
    EXPECT_TRUE(stamp_of(*folder, "x").ok());
  }
}

TEST_F(AllowedPaths, ReadsComeFromTheOpenedFile) {
  const auto file = open(in_root("a.csv"));
  ASSERT_TRUE(file.ok());
  fs::rename(top_ / "root/a.csv", top_ / "root/moved.csv");
  fs::create_symlink(top_ / "outside/secret.txt", top_ / "root/a.csv");
  EXPECT_EQ(content_digest(*file).value(), sha256_hex("content"));
}

TEST_F(AllowedPaths, NothingOutsideIsOpenedOrRevealed) {
  for (const std::string& path :
       {(top_ / "outside/secret.txt").string(), (top_ / "outside/nothing").string(),
        (top_ / "root-beside/d.txt").string(), in_root("../outside/secret.txt"),
        in_root("tree/../../outside/secret.txt"), std::string("a.csv"), std::string("/"),
        std::string(), in_root(std::string("a.csv\0x", 7))}) {
    const auto opened = open(path);
    ASSERT_FALSE(opened.ok()) << path;
    EXPECT_EQ(opened.error().reason, "SERVER_PATH_OUTSIDE") << path;
    EXPECT_EQ(opened.error().code, ErrorCode::kPermissionDenied);
    EXPECT_TRUE(opened.error().message.ends_with(
        "is not inside a folder that the server's operator allows"));
  }
  EXPECT_EQ(open_allowed_path(in_root("a.csv"), {}, "x").error().reason, "SERVER_PATH_DISABLED");
}

TEST_F(AllowedPaths, LinksAndSpecialFilesAreRefused) {
  fs::create_symlink(top_ / "outside/secret.txt", top_ / "root/link");
  fs::create_symlink("a.csv", top_ / "root/inside-link");
  fs::create_symlink(top_ / "outside", top_ / "root/away");
  ASSERT_EQ(::mkfifo(in_root("pipe").c_str(), 0600), 0);
  for (const char* path : {"link", "inside-link", "away", "away/secret.txt", "pipe"}) {
    EXPECT_EQ(reason(in_root(path)), "DATASET_INVALID") << path;
  }
  for (const char* path : {"nothing", "a.csv/b", "tree/nothing/c"}) {
    EXPECT_EQ(reason(in_root(path)), "SERVER_PATH_NOT_FOUND") << path;
  }
  fs::create_symlink(top_ / "outside/secret.txt", top_ / "root/tree/b/link");
  const auto tree = open(in_root("tree"));
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(stamp_of(*tree, "x").error().reason, "DATASET_INVALID");
  if (::geteuid() != 0) {
    fs::permissions(top_ / "root/a.csv", fs::perms::none);
    EXPECT_EQ(reason(in_root("a.csv")), "SERVER_PATH_UNREADABLE");
  }
}

TEST_F(AllowedPaths, AChangedFileIsDetected) {
  const std::string before = stamp("tree"), file = stamp("a.csv");
  EXPECT_EQ(stamp("tree"), before);
  EXPECT_EQ(stamp("a.csv"), file);
  write("root/tree/.hidden", "passed over");
  EXPECT_NE(stamp("a.csv"), stamp("tree/b/c.txt"));
  const auto times = fs::last_write_time(top_ / "root/tree/b/c.txt");
  write("root/tree/b/c.txt", "deEp");  // the same size and modification time
  fs::last_write_time(top_ / "root/tree/b/c.txt", times);
  const std::string rewritten = stamp("tree");
  EXPECT_NE(rewritten, before);
  write("root/tree/e.txt", "");
  EXPECT_NE(stamp("tree"), rewritten);
  write("root/a.csv", "Content");
  EXPECT_NE(stamp("a.csv"), file);
}

}  // namespace
}  // namespace trainyard
