// Tests of uploads that break at any byte: the committed offset never decreases, and only correct
// content gets its final name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/files/uploads.h"
#include "server/rpc/names.h"
#include "src/base/crc32c.h"
#include "tests/data/faulty_files.h"

namespace trainyard::server {
namespace {

class TestClock final : public Clock {
 public:
  int64_t wall_us() const override { return now_us; }
  int64_t steady_us() const override { return now_us; }
  int64_t now_us = int64_t{1'700'000'000} * 1'000'000;
};

class ServiceUploads : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("uploads-" + std::to_string(::getpid()) + "-" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    StoreOptions options;
    options.state_dir = root_;
    options.reserve_bytes = 0;
    Result<std::unique_ptr<Store>> store = Store::open(options, clock_);
    ASSERT_TRUE(store.ok()) << store.error().message;
    store_ = std::move(store).value();
    ASSERT_TRUE(StatePaths(root_).create(local_files()).ok());
    uploads_ =
        std::make_unique<Uploads>(*store_, local_files(), clock_, StatePaths(root_), 1 << 20);
    for (int i = 0; i < 5000; ++i) content_ += static_cast<char>(i * 7);
    sha_ = sha256_hex(content_);
  }
  void TearDown() override {
    uploads_.reset();
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  std::unique_ptr<UploadWriter> open(int64_t offset) {
    auto writer = uploads_->open({"default", sha_, static_cast<int64_t>(content_.size())}, offset);
    EXPECT_TRUE(writer.ok()) << writer.error().message;
    return writer.ok() ? std::move(writer).value() : nullptr;
  }
  Status send(UploadWriter& writer, size_t from, size_t count) {
    const std::string_view part = std::string_view(content_).substr(from, count);
    return writer.append(static_cast<int64_t>(from), part, crc32c(part));
  }

  TestClock clock_;
  std::filesystem::path root_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Uploads> uploads_;
  std::string content_;
  std::string sha_;
};

TEST_F(ServiceUploads, ABrokenUploadContinuesWhereItStopped) {
  {
    auto writer = open(0);
    ASSERT_TRUE(send(*writer, 0, 1000).ok());
    ASSERT_TRUE(send(*writer, 1000, 500).ok());
    ASSERT_TRUE(writer->pause().ok());
  }
  EXPECT_EQ(uploads_->find({"default", sha_})->committed_size, 1500);
  EXPECT_FALSE(uploads_->find({"default", sha_})->complete);
  const auto wrong = uploads_->open({"default", sha_, static_cast<int64_t>(content_.size())}, 0);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().reason, "UPLOAD_OFFSET_MISMATCH");
  EXPECT_EQ(wrong.error().metadata.at("committed_size"), "1500");
  {
    auto writer = open(1500);
    ASSERT_TRUE(send(*writer, 1500, 3500).ok());
    const Result<Upload> done = writer->finish();
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_TRUE(done->complete);
  }
  std::ifstream file(StatePaths(root_).upload(sha_), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), content_);
  const auto again = uploads_->open({"default", sha_, static_cast<int64_t>(content_.size())}, 0);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, nullptr) << "the same content again needs no bytes";
}

// I6 for uploads: whichever file operation fails or is the last one before the daemon ends, the
// next daemon completes the upload with the same content, and the committed offset never decreases.
TEST_F(ServiceUploads, F26EachFailingFileOperationCostsNothingCommitted) {
  using Mode = FaultyFiles::Mode;
  const auto size = static_cast<int64_t>(content_.size());
  for (const Mode mode : {Mode::kBefore, Mode::kAfter, Mode::kCrash}) {
    int fail_at = 0;
    for (;; ++fail_at) {
      FaultyFiles faulty(fail_at, mode);
      int64_t committed = 0;
      {
        Uploads uploads(*store_, faulty, clock_, StatePaths(root_), 1 << 20);
        auto writer = uploads.open({"default", sha_, size}, 0);
        if (writer.ok()) {
          ASSERT_TRUE(send(**writer, 0, content_.size()).ok());
          committed = (*writer)->pause().value().committed_size;
          (void)(*writer)->finish();
        }
      }
      const Upload left = uploads_->find({"default", sha_, size}).value();
      EXPECT_GE(left.committed_size, committed) << "operation " << fail_at;
      auto writer = uploads_->open({"default", sha_, size}, left.committed_size);
      ASSERT_TRUE(writer.ok()) << "operation " << fail_at << ": " << writer.error().message;
      if (*writer) {
        const auto from = static_cast<size_t>(left.committed_size);
        if (from < content_.size()) {
          ASSERT_TRUE(send(**writer, from, content_.size() - from).ok());
        }
        const auto finished = (*writer)->finish();
        ASSERT_TRUE(finished.ok()) << "operation " << fail_at << ": " << finished.error().message;
      }
      EXPECT_TRUE(uploads_->find({"default", sha_}).value().complete) << "operation " << fail_at;
      EXPECT_EQ(sha256_file(StatePaths(root_).upload(sha_)).value(), sha_);
      std::filesystem::remove(StatePaths(root_).upload(sha_));
      ASSERT_TRUE(store_->uploads().remove({"default", sha_, size}).ok());
      if (faulty.operations() <= fail_at) break;
    }
    EXPECT_GE(fail_at, 2);  // creating the part file, and the rename
  }
}

// F20: a power cut or a user may have deleted bytes that the row in the store still promises.
TEST_F(ServiceUploads, F26ALostPartialUploadRestartsFromTheBeginning) {
  const auto size = static_cast<int64_t>(content_.size());
  {
    auto writer = open(0);
    ASSERT_TRUE(send(*writer, 0, 1500).ok());
    ASSERT_TRUE(writer->pause().ok());
  }
  std::filesystem::resize_file(StatePaths(root_).upload_part("default", sha_, size), 700);
  EXPECT_EQ(uploads_->find({"default", sha_, size}).value().committed_size, 0);
  auto writer = open(0);
  ASSERT_TRUE(send(*writer, 0, content_.size()).ok());
  EXPECT_TRUE(writer->finish().ok());
}

TEST_F(ServiceUploads, WrongContentIsDroppedAndCanBeSentAgain) {
  {
    auto writer = open(0);
    const std::string other(content_.size(), 'x');
    ASSERT_TRUE(writer->append(0, other, crc32c(other)).ok());
    const Result<Upload> done = writer->finish();
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().reason, "CONTENT_HASH_MISMATCH");
  }
  EXPECT_EQ(uploads_->find({"default", sha_})->committed_size, 0);
  EXPECT_FALSE(std::filesystem::exists(StatePaths(root_).upload(sha_)));
  auto writer = open(0);
  ASSERT_TRUE(send(*writer, 0, content_.size()).ok());
  EXPECT_TRUE(writer->finish().ok());
}

TEST_F(ServiceUploads, AnUploadMayDeclareItsDigestAtTheEnd) {
  const std::string made_up = sha256_hex("what the file looks like");
  const auto size = static_cast<int64_t>(content_.size());
  EXPECT_FALSE(store_->uploads().has_size("default", size).value());
  {
    auto writer = uploads_->open({"default", made_up, size}, 0).value();
    ASSERT_TRUE(send(*writer, 0, 1000).ok());
    ASSERT_TRUE(writer->pause().ok());
  }
  {
    auto writer = uploads_->open({"default", made_up, size}, 1000).value();
    ASSERT_TRUE(send(*writer, 1000, content_.size() - 1000).ok());
    EXPECT_EQ(writer->finish("../x").error().reason, "NAME_MALFORMED");
    const Result<Upload> done = writer->finish(sha_);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(done->sha256, sha_);
    EXPECT_TRUE(done->complete);
  }
  EXPECT_TRUE(uploads_->find({"default", sha_})->complete);
  EXPECT_EQ(sha256_file(StatePaths(root_).upload(sha_)).value(), sha_);
  EXPECT_EQ(uploads_->find({"default", made_up})->committed_size, 0)
      << "the made-up name is left behind";
  EXPECT_FALSE(std::filesystem::exists(StatePaths(root_).upload_part("default", made_up, size)));
  EXPECT_TRUE(store_->uploads().has_size("default", size).value());
  auto wrong = uploads_->open({"default", made_up, size}, 0).value();
  ASSERT_TRUE(send(*wrong, 0, content_.size()).ok());
  EXPECT_EQ(wrong->finish(sha256_hex("other")).error().reason, "CONTENT_HASH_MISMATCH");
  EXPECT_TRUE(uploads_->find({"default", sha_})->complete);
}

// The upload is large enough that a thread hashes its bytes while they arrive, also across a pause.
TEST_F(ServiceUploads, ALargeUploadIsHashedAsItArrives) {
  Uploads uploads(*store_, local_files(), clock_, StatePaths(root_), 1 << 30);
  content_.assign(static_cast<size_t>(3 * FollowingDigest::kThreadBytes + 7), 'l');
  for (size_t i = 0; i < content_.size(); i += 1000) content_[i] = static_cast<char>(i);
  const std::string sha256 = sha256_hex(content_);
  const auto size = static_cast<int64_t>(content_.size());
  for (const size_t damage : {content_.size(), size_t{100}, content_.size() - 1}) {
    Result<Upload> done = Upload();
    for (const auto& [from, to] : {std::pair(size_t{0}, content_.size() / 2),
                                   std::pair(content_.size() / 2, content_.size())}) {
      auto writer = uploads.open({"default", sha256, size}, static_cast<int64_t>(from)).value();
      for (size_t at = from; at < to;) {
        std::string part = content_.substr(at, std::min(to - at, size_t{1} << 20));
        if (damage >= at && damage < at + part.size()) part[damage - at] = '!';
        ASSERT_TRUE(writer->append(static_cast<int64_t>(at), part, crc32c(part)).ok());
        at += part.size();
      }
      done = to < content_.size() ? writer->pause() : writer->finish();
    }
    EXPECT_EQ(done.ok(), damage == content_.size());
    if (!done.ok()) {
      EXPECT_EQ(done.error().reason, "CONTENT_HASH_MISMATCH");
      continue;
    }
    std::filesystem::remove(StatePaths(root_).upload(sha256));
    ASSERT_TRUE(store_->uploads().remove({"default", sha256, size}).ok());
  }
}

TEST_F(ServiceUploads, WrongContentIsFoundAfterAResumeToo) {
  {
    auto writer = open(0);
    const std::string other(1000, 'x');
    ASSERT_TRUE(writer->append(0, other, crc32c(other)).ok());
    ASSERT_TRUE(writer->pause().ok());
  }
  auto writer = open(1000);
  ASSERT_TRUE(send(*writer, 1000, 4000).ok());
  EXPECT_EQ(writer->finish().error().reason, "CONTENT_HASH_MISMATCH");
}

TEST_F(ServiceUploads, ADamagedChunkIsRefusedAndEarlierBytesAreKept) {
  auto writer = open(0);
  ASSERT_TRUE(send(*writer, 0, 1000).ok());
  const Status damaged = writer->append(1000, content_.substr(1000, 10), 12345);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().reason, "CHUNK_CHECKSUM_MISMATCH");
  EXPECT_EQ(damaged.error().code, ErrorCode::kDataLoss);
  ASSERT_TRUE(writer->pause().ok());
  EXPECT_EQ(uploads_->find({"default", sha_})->committed_size, 1000);
}

TEST_F(ServiceUploads, OffsetsSizesAndChunksAreChecked) {
  auto writer = open(0);
  EXPECT_EQ(send(*writer, 1, 10).error().reason, "UPLOAD_OFFSET_MISMATCH");
  EXPECT_EQ(writer->append(-1, "x", crc32c("x")).error().reason, "UPLOAD_OFFSET_MISMATCH");
  EXPECT_EQ(writer->append(0, "", 0).error().reason, "FIELD_OUT_OF_RANGE");
  const std::string large((1 << 20) + 1, 'x');
  EXPECT_EQ(writer->append(0, large, crc32c(large)).error().reason, "FIELD_OUT_OF_RANGE");
  const std::string more(content_.size() + 1, 'x');
  EXPECT_EQ(writer->append(0, more, crc32c(more)).error().reason, "UPLOAD_TOO_LARGE");
  EXPECT_EQ(writer->finish().error().reason, "UPLOAD_OFFSET_MISMATCH") << "bytes are missing";
  EXPECT_EQ(uploads_->open({"default", sha_, 5000}, 0).error().reason, "UPLOAD_BUSY");
  EXPECT_EQ(uploads_->open({"default", "../../etc/passwd", 5}, 0).error().reason, "NAME_MALFORMED");
  const std::string other = sha256_hex("other");
  EXPECT_EQ(uploads_->open({"default", other, 0}, 0).error().reason, "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(uploads_->open({"default", other, (1 << 20) + 1}, 0).error().reason,
            "UPLOAD_TOO_LARGE");
  EXPECT_EQ(uploads_->open({"default", other, 10}, 5).error().reason, "UPLOAD_OFFSET_MISMATCH");
  EXPECT_TRUE(uploads_->open({"default", other, 10}, 0).ok())
      << "a refusal must not keep the claim";
}

TEST_F(ServiceUploads, AnAbandonedUploadExpiresAndAnActiveOneDoesNot) {
  {
    auto writer = open(0);
    ASSERT_TRUE(send(*writer, 0, 1000).ok());
    ASSERT_TRUE(writer->pause().ok());
    clock_.now_us += Uploads::kIdleUsMax + 1;
    uploads_->expire();
    EXPECT_EQ(uploads_->find({"default", sha_})->committed_size, 1000) << "it has a writer";
  }
  uploads_->expire();
  EXPECT_EQ(uploads_->find({"default", sha_})->committed_size, 0);
  EXPECT_FALSE(std::filesystem::exists(StatePaths(root_).upload_part("default", sha_, 5000)));
}

TEST_F(ServiceUploads, AWrongDeclaredSizeDoesNotBlockOthers) {
  auto wrong = uploads_->open({"default", sha_, 7}, 0);
  ASSERT_TRUE(wrong.ok());
  ASSERT_TRUE((*wrong)->append(0, "abc", crc32c("abc")).ok());
  EXPECT_EQ(uploads_->open({"default", sha_, 7}, 0).error().reason, "UPLOAD_BUSY");
  {
    auto writer = open(0);
    ASSERT_TRUE(send(*writer, 0, 1000).ok());
    ASSERT_TRUE(writer->pause().ok());
  }
  ASSERT_TRUE((*wrong)->pause().ok());
  wrong->reset();
  EXPECT_EQ(uploads_->find({"default", sha_, 7})->committed_size, 3);
  EXPECT_EQ(uploads_->find({"default", sha_, 5000})->committed_size, 1000);
  auto writer = open(1000);
  ASSERT_TRUE(send(*writer, 1000, 4000).ok());
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_TRUE(uploads_->find({"default", sha_, 7})->complete) << "content is known by its digest";
}

// A project has what it has sent itself. It learns nothing from what another one has sent.
TEST_F(ServiceUploads, AProjectHasOnlyWhatItHasSent) {
  ASSERT_TRUE(store_->people().create_project("other").ok());
  const auto size = static_cast<int64_t>(content_.size());
  const UploadKey theirs{"other", sha_, size};
  {
    auto writer = open(0);
    ASSERT_TRUE(send(*writer, 0, content_.size()).ok());
    EXPECT_TRUE(uploads_->open(theirs, 0).ok()) << "the other project's stream is not in the way";
    ASSERT_TRUE(writer->finish().ok());
  }
  EXPECT_FALSE(uploads_->find(theirs)->complete);
  EXPECT_EQ(uploads_->find(theirs)->committed_size, 0);
  EXPECT_FALSE(store_->uploads().has_size("other", size).value());

  // Other bytes of the right length do not become the file, not even when all have arrived.
  const std::string original = content_;
  content_ = std::string(content_.size(), 'x');
  auto writer = uploads_->open(theirs, 0).value();
  ASSERT_TRUE(send(*writer, 0, content_.size()).ok());
  ASSERT_EQ(writer->pause()->committed_size, size);
  writer.reset();
  EXPECT_FALSE(uploads_->find(theirs)->complete);
  std::filesystem::remove(StatePaths(root_).upload_part("other", sha_, size));
  EXPECT_FALSE(uploads_->find(theirs)->complete) << "nor when the part is lost";
  writer = uploads_->open(theirs, 0).value();
  ASSERT_TRUE(send(*writer, 0, content_.size()).ok());
  EXPECT_EQ(writer->finish().error().reason, "CONTENT_HASH_MISMATCH");
  writer.reset();
  EXPECT_FALSE(uploads_->find(theirs)->complete);
  EXPECT_TRUE(uploads_->find({"default", sha_})->complete);

  content_ = original;
  writer = uploads_->open(theirs, 0).value();
  ASSERT_NE(writer, nullptr) << "the bytes are asked for";
  ASSERT_TRUE(send(*writer, 0, content_.size()).ok());
  ASSERT_TRUE(writer->finish().ok());
  writer.reset();
  EXPECT_TRUE(uploads_->find(theirs)->complete);

  // There is one file, which stays while one of the projects has it.
  uploads_->discard("default", sha_);
  EXPECT_FALSE(uploads_->find({"default", sha_})->complete);
  EXPECT_TRUE(uploads_->find(theirs)->complete);
  EXPECT_EQ(sha256_file(StatePaths(root_).upload(sha_)).value(), sha_);
  uploads_->discard("other", sha_);
  EXPECT_FALSE(std::filesystem::exists(StatePaths(root_).upload(sha_)));
}

TEST_F(ServiceUploads, PausedPartsOfTwoProjectsAreApart) {
  ASSERT_TRUE(store_->people().create_project("other").ok());
  const auto size = static_cast<int64_t>(content_.size());
  {
    auto writer = open(0);
    ASSERT_TRUE(send(*writer, 0, 2000).ok());
    ASSERT_TRUE(writer->pause().ok());
  }
  EXPECT_EQ(uploads_->open({"other", sha_, size}, 2000).error().reason, "UPLOAD_OFFSET_MISMATCH")
      << "another project's bytes cannot be continued";
  {
    auto writer = uploads_->open({"other", sha_, size}, 0).value();
    ASSERT_TRUE(writer->append(0, "not what it claims", crc32c("not what it claims")).ok());
    ASSERT_TRUE(writer->pause().ok());
  }
  EXPECT_EQ(uploads_->find({"default", sha_, size})->committed_size, 2000);
  auto writer = open(2000);
  ASSERT_TRUE(send(*writer, 2000, content_.size() - 2000).ok());
  EXPECT_TRUE(writer->finish().ok()) << "the first project's part was not touched";
}

TEST_F(ServiceUploads, UnreferencedContentIsRemovedAfterAnHour) {
  {
    auto writer = open(0);
    ASSERT_TRUE(send(*writer, 0, 5000).ok());
    ASSERT_TRUE(writer->finish().ok());
  }
  NewDataset dataset;
  dataset.project = "default";
  dataset.id = "digits";
  dataset.digest = "1111";
  dataset.spec.add_sources()->set_sha256(sha_);
  ASSERT_TRUE(store_->datasets().create(dataset).ok());
  clock_.now_us += Uploads::kIdleUsMax + 1;
  uploads_->expire();
  EXPECT_TRUE(uploads_->find({"default", sha_})->complete) << "a dataset was made of it";
  ASSERT_TRUE(store_->datasets().remove("default", {"digits"}).ok());
  uploads_->collect();
  EXPECT_FALSE(uploads_->find({"default", sha_})->complete);
  EXPECT_FALSE(std::filesystem::exists(StatePaths(root_).upload(sha_)));
  auto again = open(0);
  ASSERT_TRUE(send(*again, 0, 5000).ok());
  ASSERT_TRUE(again->finish().ok());
  uploads_->collect();
  EXPECT_TRUE(uploads_->find({"default", sha_})->complete)
      << "its dataset may be created in a moment";
}

}  // namespace
}  // namespace trainyard::server
