// Fails if the pieces of an archive do not fit together, which would break resumed uploads, or if
// its bytes depend on more than the files' paths and contents.
#include "src/base/tar_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "src/base/folder_files.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class TarOfFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "trainyard-tar-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& path, const std::string& content) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path, std::ios::binary) << content;
  }
  std::string whole() const {
    Result<TarFolder> tar = TarFolder::open(folder_);
    std::string bytes;
    EXPECT_TRUE(tar.ok()) << tar.error().message;
    EXPECT_TRUE(tar->read(0, tar->size(), bytes).ok());
    EXPECT_EQ(std::ssize(bytes), tar->size());
    return bytes;
  }
  fs::path folder_;
};

TEST_F(TarOfFolder, ContainsOnlyTheFilesInOrder) {
  write("b/2.png", std::string(512, 'x'));
  write("b.png", "one");
  write("b/.hidden", "x");
  write("__MACOSX/b/1.png", "x");
  write("empty.txt", "");
  const std::string bytes = whole();
  ASSERT_EQ(bytes.size(), 512u * (2 + 2 + 1 + 2));
  EXPECT_TRUE(bytes.starts_with("b.png")) << "'.' sorts before '/'";
  EXPECT_EQ(bytes.substr(512, 4), std::string("one\0", 4));
  EXPECT_EQ(bytes.substr(1024, 8), std::string("b/2.png\0", 8));
  EXPECT_EQ(bytes.substr(1024 + 124, 12), std::string("00000001000\0", 12));
  EXPECT_EQ(bytes.substr(4 * 512, 10), std::string("empty.txt\0", 10));
  EXPECT_EQ(bytes.substr(5 * 512), std::string(1024, '\0'));

  fs::permissions(folder_ / "b.png", fs::perms::owner_read);
  fs::last_write_time(folder_ / "b.png", fs::file_time_type::clock::now() - std::chrono::hours(9));
  EXPECT_EQ(whole(), bytes);
}

TEST_F(TarOfFolder, ContainsEmptyFolders) {
  write("a/1.png", "x");
  write("b/Thumbs.db", "x");
  fs::create_directories(folder_ / "a/none/.hidden");
  const std::string bytes = whole();
  ASSERT_EQ(bytes.size(), 512u * (2 + 1 + 1 + 2));
  EXPECT_EQ(bytes.substr(1024, 8), std::string("a/none/\0", 8));
  EXPECT_EQ(bytes[1024 + 156], '5');
  EXPECT_EQ(bytes.substr(3 * 512, 3), std::string("b/\0", 3));
}

TEST(IgnoredNames, AreThoseOfSystemsAndEditors) {
  std::ifstream file(testing::source_path("tests/golden/ignored_names.txt"));
  int64_t count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("# ")) continue;
    ++count;
    EXPECT_EQ(is_ignored_name(line.substr(2)), line[0] == '+') << line;
  }
  EXPECT_GT(count, 30);
  EXPECT_TRUE(is_ignored_name("Icon\r"));
}

TEST_F(TarOfFolder, EveryPieceMatchesTheWhole) {
  fs::create_directories(folder_ / "a/empty");

  write("a/1.png", std::string(700, 'a'));
  write("a/2.png", "bc");
  write(std::string(99, 'd') + "/" + std::string(99, 'e'), "long");      // name and prefix fields
  write(std::string(120, 'f') + "/" + std::string(130, 'g'), "longer");  // needs a pax header
  const std::string bytes = whole();
  EXPECT_NE(bytes.find(" path=" + std::string(120, 'f')), std::string::npos);
  TarFolder tar = TarFolder::open(folder_).value();
  for (const int64_t step : {1, 7, 511, 512, 513, 5000}) {
    std::string together;
    for (int64_t at = 0; at < tar.size(); at += step) {
      ASSERT_TRUE(tar.read(at, std::min(step, tar.size() - at), together).ok());
    }
    EXPECT_EQ(together, bytes) << step;
  }
}

TEST_F(TarOfFolder, RefusesUnsupportedFiles) {
  EXPECT_NE(TarFolder::open(folder_).error().message.find("there are no files"), std::string::npos);
  write("a/1.png", "abc");
  fs::create_directory_symlink(folder_ / "a", folder_ / "a/again");
  EXPECT_NE(TarFolder::open(folder_).error().message.find("does a link form a loop?"),
            std::string::npos);
  fs::remove(folder_ / "a/again");
  TarFolder tar = TarFolder::open(folder_).value();
  write("a/1.png", "a");
  std::string bytes;
  EXPECT_NE(tar.read(0, tar.size(), bytes).error().message.find("became shorter"),
            std::string::npos);
}

// A link out of an uploaded folder sent a private key to the server.
TEST_F(TarOfFolder, RefusesLinksOutOfTheFolderAndFollowsOthers) {
  write("pos/1.txt", "good");
  const fs::path outside = folder_.string() + "-outside";
  std::ofstream(outside) << "SECRET-KEY";
  fs::create_symlink("1.txt", folder_ / "pos/2.txt");
  EXPECT_NE(whole().find("pos/2.txt"), std::string::npos);
  for (const fs::path& target : {outside, fs::path("../.."), fs::path("/etc")}) {
    fs::create_symlink(target, folder_ / "pos/3.txt");
    const Result<TarFolder> tar = TarFolder::open(folder_);
    ASSERT_FALSE(tar.ok()) << target;
    EXPECT_NE(tar.error().message.find("'pos/3.txt': a link out of the folder, to "),
              std::string::npos)
        << tar.error().message;
    fs::remove(folder_ / "pos/3.txt");
  }
  fs::create_directory_symlink(folder_, outside.string() + "-link");
  EXPECT_TRUE(TarFolder::open(outside.string() + "-link").ok()) << "the folder itself may be one";
  fs::remove(outside.string() + "-link");
  fs::remove(outside);
}

}  // namespace
}  // namespace trainyard
