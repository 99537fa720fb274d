// Fails if a replaced file is torn or lost in a power cut, if an error has a wrong code, or if a
// read is unbounded.
#include "src/base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace {
std::vector<ino_t> synced;  // inodes in the order of their syncs
bool sync_fails = false;
}  // namespace

// Overrides libc's fsync() and records the call.
extern "C" int fsync(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) == 0) synced.push_back(st.st_ino);
  if (sync_fails) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace trainyard {
namespace {

ino_t inode(const std::filesystem::path& path) {
  struct stat st {};
  EXPECT_EQ(::stat(path.c_str(), &st), 0) << path;
  return st.st_ino;
}

std::filesystem::path temporary_folder() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "trainyard-files-XXXXXX").string();
  return ::mkdtemp(pattern.data());
}

TEST(Files, ReplaceFileLeavesNoTemporaryFile) {
  const auto folder = temporary_folder();
  ASSERT_TRUE(replace_file(local_files(), folder / "a", "one").ok());
  ASSERT_TRUE(replace_file(local_files(), folder / "a", "two").ok());
  EXPECT_EQ(read_file(folder / "a", 100).value(), "two");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.tmp"));
  std::filesystem::remove_all(folder);
}

TEST(Files, ReplaceFileWritesPartsInOrder) {
  const auto folder = temporary_folder();
  const std::string first = "one ", second = "two";
  const std::vector<std::span<const std::byte>> parts = {
      std::as_bytes(std::span(first)), {}, std::as_bytes(std::span(second))};
  ASSERT_TRUE(replace_file(local_files(), folder / "a", parts).ok());
  EXPECT_EQ(read_file(folder / "a", 100).value(), "one two");
  std::filesystem::remove_all(folder);
}

// A file cannot replace a folder of that name, so the rename fails after the write.
TEST(Files, FailedRenameLeavesNoTemporaryFile) {
  const auto folder = temporary_folder();
  std::filesystem::create_directory(folder / "a");
  const Status s = replace_file(local_files(), folder / "a", "one");
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().reason, "STORAGE_ERROR");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a.tmp"));
  std::filesystem::remove_all(folder);
}

// First the file is synced, then renamed, then the directory with its name is synced.
TEST(Files, WrittenFilesSurviveAPowerCut) {
  const auto folder = temporary_folder();
  synced.clear();
  ASSERT_TRUE(replace_file(local_files(), folder / "a", "one").ok());
  EXPECT_EQ(synced, (std::vector<ino_t>{inode(folder / "a"), inode(folder)}));
  std::filesystem::create_directory(folder / "below");
  synced.clear();
  ASSERT_TRUE(local_files().rename_durable(folder / "a", folder / "below/a").ok());
  EXPECT_EQ(synced, std::vector<ino_t>{inode(folder / "below")});
  synced.clear();
  ASSERT_TRUE(local_files().sync_directory(folder).ok());
  EXPECT_EQ(synced, std::vector<ino_t>{inode(folder)});
  auto filler = local_files().create_file(folder / "filled", 3);
  ASSERT_TRUE(filler.ok());
  const std::string text = "two";
  ASSERT_TRUE((*filler)->write_at(0, std::as_bytes(std::span(text))).ok());
  synced.clear();
  ASSERT_TRUE((*filler)->finish().ok());
  EXPECT_EQ(synced, std::vector<ino_t>{inode(folder / "filled")});
  std::filesystem::remove_all(folder);
}

TEST(Files, AFailedSyncIsAFailedWrite) {
  const auto folder = temporary_folder();
  ASSERT_TRUE(replace_file(local_files(), folder / "a", "one").ok());
  sync_fails = true;
  EXPECT_FALSE(replace_file(local_files(), folder / "a", "two").ok());
  EXPECT_FALSE(local_files().sync_directory(folder).ok());
  sync_fails = false;
  EXPECT_EQ(read_file(folder / "a", 100).value(), "one");
  std::filesystem::remove_all(folder);
}

TEST(Files, FullDiskIsResourceExhausted) {
  const std::string text(1 << 16, 'x');
  const auto part = std::as_bytes(std::span(text.data(), text.size()));
  const Status s = local_files().write_file("/dev/full", std::span(&part, 1));
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().reason, "STORAGE_FULL");
}

TEST(Files, ReadIsBounded) {
  const Result<std::string> r = read_file("/dev/zero", 1000);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().reason, "FILE_TOO_LARGE");
  EXPECT_EQ(read_file("/no/such/file", 10).error().code, ErrorCode::kNotFound);
}

TEST(MappedFile, MapsContentAndEmptyFiles) {
  const auto folder = temporary_folder();
  ASSERT_TRUE(replace_file(local_files(), folder / "a", "abc").ok());
  ASSERT_TRUE(replace_file(local_files(), folder / "b", "").ok());
  EXPECT_EQ(MappedFile::open(folder / "a").value().bytes().size(), 3u);
  EXPECT_TRUE(MappedFile::open(folder / "b").value().bytes().empty());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trainyard
