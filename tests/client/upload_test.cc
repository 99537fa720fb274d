// Tests of uploads against a server that cuts streams, loses chunks and refuses: every byte arrives
// once and in order, and committed bytes are not sent again. The fake server tracks the committed
// size itself and records each breach of the contract.
#include "client/lib/upload.h"

#include <gtest/gtest.h>

#include <fstream>

#include "src/base/sha256.h"
#include "tests/client/fake_server.h"

namespace trainyard::client {
namespace {

constexpr int64_t kMiB = 1 << 20;

class Upload : public ::testing::Test {
 protected:
  Upload() : client_(std::move(*Client::connect(server_.connection()))) {
    content_.resize(static_cast<size_t>(7 * kMiB + 12345));
    for (size_t i = 0; i < content_.size(); ++i)
      content_[i] = static_cast<char>(i * 2654435761u >> 13);
    path_ = server_.folder() / "data.bin";
    std::ofstream(path_, std::ios::binary) << content_;
  }
  Result<std::string> upload() {
    return upload_file(*client_, path_,
                       [&](const UploadProgress& p) { seen_.push_back(p.sent_bytes); }, {});
  }
  FakeServer server_;
  std::unique_ptr<Client> client_;
  std::string content_;
  std::filesystem::path path_;
  std::vector<int64_t> seen_;
};

TEST_F(Upload, SendsAFileOnceAndNotAgain) {
  const auto sha256 = upload();
  ASSERT_TRUE(sha256.ok()) << sha256.error().message;
  EXPECT_EQ(*sha256, sha256_hex(content_));
  EXPECT_EQ(server_.state().uploads[*sha256], content_);
  EXPECT_EQ(seen_.back(), static_cast<int64_t>(content_.size()));
  ASSERT_TRUE(upload().ok());
  EXPECT_EQ(server_.state().upload_streams, 1);
  EXPECT_TRUE(server_.state().contract_breaks.empty());
}

TEST_F(Upload, ContinuesWhereTheStreamBroke) {
  server_.state().upload_cut_bytes = 2 * kMiB;  // each stream breaks after two chunks
  const auto sha256 = upload();
  ASSERT_TRUE(sha256.ok()) << sha256.error().message;
  EXPECT_EQ(server_.state().uploads[*sha256], content_);
  EXPECT_EQ(server_.state().upload_streams, 4);
  EXPECT_EQ(server_.state().upload_bytes, static_cast<int64_t>(content_.size()))
      << "bytes were sent twice";
  EXPECT_TRUE(server_.state().contract_breaks.empty());
}

TEST_F(Upload, SendsANewFileAtOnceUnderAnotherName) {
  server_.state().upload_error =
      make_error(ErrorCode::kResourceExhausted, "UPLOAD_TOO_LARGE", "too large");
  ASSERT_FALSE(upload().ok());
  const std::string name = server_.state().upload_name;
  EXPECT_NE(name, sha256_hex(content_)) << "the file was digested before it was sent";
  ASSERT_FALSE(upload().ok());
  EXPECT_EQ(server_.state().upload_name, name) << "a part would not be found again";
  server_.state().upload_error = {};
  ASSERT_TRUE(upload().ok());
  // A file with the size of a known upload may be identical, so it is hashed before it is sent.
  content_[100] = static_cast<char>(content_[100] + 1);
  std::ofstream(path_, std::ios::binary) << content_;
  ASSERT_TRUE(upload().ok());
  EXPECT_EQ(server_.state().upload_name, sha256_hex(content_));
  EXPECT_TRUE(server_.state().contract_breaks.empty());
}

TEST_F(Upload, AFileThatDiffersFromThePartIsSentCompletely) {
  std::stop_source stop;
  const auto cut = upload_file(
      *client_, path_,
      [&](const UploadProgress& p) {
        if (p.sent_bytes >= 3 * kMiB) stop.request_stop();
      },
      stop.get_token());
  ASSERT_FALSE(cut.ok());
  const auto time = std::filesystem::last_write_time(path_);
  content_[static_cast<size_t>(kMiB)] = static_cast<char>(content_[static_cast<size_t>(kMiB)] + 1);
  std::ofstream(path_, std::ios::binary) << content_;
  std::filesystem::last_write_time(path_, time);
  const auto sha256 = upload();
  ASSERT_TRUE(sha256.ok()) << sha256.error().message;
  EXPECT_EQ(*sha256, sha256_hex(content_));
  EXPECT_EQ(server_.state().uploads[*sha256], content_);
}

TEST_F(Upload, SendsADamagedChunkAgain) {
  server_.state().upload_damage_chunks = 2;
  const auto sha256 = upload();
  ASSERT_TRUE(sha256.ok()) << sha256.error().message;
  EXPECT_EQ(server_.state().uploads[*sha256], content_);
}

TEST_F(Upload, GivesUpWhenNothingArrives) {
  server_.state().upload_damage_chunks = 1000;
  const auto sha256 = upload();
  ASSERT_FALSE(sha256.ok());
  EXPECT_EQ(sha256.error().reason, "CHUNK_CHECKSUM_MISMATCH");
  EXPECT_LE(server_.state().upload_streams, kUploadTriesMax + 1);
}

TEST_F(Upload, ARefusalIsNotRetried) {
  server_.state().upload_error =
      make_error(ErrorCode::kResourceExhausted, "UPLOAD_TOO_LARGE", "too large");
  const auto sha256 = upload();
  ASSERT_FALSE(sha256.ok());
  EXPECT_EQ(sha256.error().reason, "UPLOAD_TOO_LARGE");
  EXPECT_EQ(server_.state().upload_streams, 1);
}

TEST_F(Upload, MissingAndEmptyFilesAreRefusedByTheClient) {
  const auto missing = upload_file(*client_, server_.folder() / "none", nullptr, {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  std::ofstream(server_.folder() / "empty");
  const auto empty = upload_file(*client_, server_.folder() / "empty", nullptr, {});
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().reason, "DATASET_INVALID");
  EXPECT_FALSE(upload_file(*client_, server_.folder(), nullptr, {}).ok()) << "a folder is no file";
}

TEST_F(Upload, AnInterruptKeepsThePart) {
  std::stop_source stop;
  const auto sha256 = upload_file(
      *client_, path_,
      [&](const UploadProgress& p) {
        if (p.sent_bytes >= 3 * kMiB) stop.request_stop();
      },
      stop.get_token());
  ASSERT_FALSE(sha256.ok());
  EXPECT_EQ(sha256.error().code, ErrorCode::kCancelled);
  ASSERT_TRUE(upload().ok());
  EXPECT_TRUE(server_.state().contract_breaks.empty());
}

}  // namespace
}  // namespace trainyard::client
