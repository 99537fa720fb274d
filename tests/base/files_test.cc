// Catches: a replaced file that is torn or lost, errors without the right code, and unbounded
// reads.
#include "src/base/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace trainyard {
namespace {

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

// A folder of that name cannot be replaced by a file: the rename fails after the write.
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
