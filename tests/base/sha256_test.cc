// Checks SHA-256 against the examples of FIPS 180-4.
#include "src/base/sha256.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/no_descriptors.h"

namespace trainyard {
namespace {

TEST(Sha256, MatchesPublishedExamples) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, OnlyLowerCaseHexIsAccepted) {
  EXPECT_TRUE(is_sha256_hex(sha256_hex("x")));
  EXPECT_FALSE(is_sha256_hex("../../etc/passwd"));
  EXPECT_FALSE(is_sha256_hex(std::string(64, 'A')));
}

// If no file descriptor is free, the error must not say that the file is missing, so that the
// caller retries.
TEST(Sha256, AnUnreadableFileIsNotReportedAsMissing) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("sha256_test-" + std::to_string(::getpid()));
  std::ofstream(path) << "abc";
  EXPECT_EQ(sha256_file(path).value(), sha256_hex("abc"));
  const Result<std::string> starved = [&] {
    const testing::NoDescriptors none;
    return sha256_file(path);
  }();
  ASSERT_FALSE(starved.ok());
  EXPECT_EQ(starved.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(starved.error().reason, "STORAGE_ERROR");
  std::filesystem::remove(path);
  EXPECT_EQ(sha256_file(path).error().reason, "FILE_NOT_FOUND");
}

}  // namespace
}  // namespace trainyard
