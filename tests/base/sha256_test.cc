// Catches: a digest that is not SHA-256 (FIPS 180-4 examples).
#include "src/base/sha256.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(Sha256, MatchesPublishedExamples) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, OnlyLowerCaseHexIsAName) {
  EXPECT_TRUE(is_sha256_hex(sha256_hex("x")));
  EXPECT_FALSE(is_sha256_hex("../../etc/passwd"));
  EXPECT_FALSE(is_sha256_hex(std::string(64, 'A')));
}

}  // namespace
}  // namespace trainyard
