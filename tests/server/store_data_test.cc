// Datasets, uploads and models: idempotent where clients retry, refused where content would change.
#include <gtest/gtest.h>

#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

class StoreData : public testing::Test {
 protected:
  TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()), clock);
  DatasetStore& datasets = store->datasets();
  UploadStore& uploads = store->uploads();

  static NewDataset new_dataset(std::string id, std::string digest) {
    NewDataset d;
    d.id = std::move(id);
    d.digest = std::move(digest);
    return d;
  }
  static v1::DatasetSchema schema() {
    v1::DatasetSchema s;
    s.set_target("digit");
    s.set_train_rows(1797);
    return s;
  }
};

TEST_F(StoreData, DatasetIsIngestedOnceForADigest) {
  EXPECT_TRUE(datasets.create(new_dataset("digits", "d1")).value().start_ingest);
  EXPECT_FALSE(datasets.create(new_dataset("digits", "d1")).value().start_ingest);
  EXPECT_FALSE(datasets.create(new_dataset("same", "d1")).value().start_ingest);
  EXPECT_EQ(datasets.list_ingesting().value().size(), 1u);
  EXPECT_EQ(datasets.create(new_dataset("digits", "d2")).error().reason, "DATASET_EXISTS");
  ASSERT_TRUE(datasets.set_ready("d1", schema(), 5000).ok());
  for (const char* id : {"digits", "same"}) {
    const Dataset d = datasets.find("default", id).value();
    EXPECT_EQ(d.state, v1::Dataset::READY);
    EXPECT_EQ(d.schema.target(), "digit");
    EXPECT_EQ(d.size_bytes, 5000);
  }
  const CreatedDataset third = datasets.create(new_dataset("third", "d1")).value();
  EXPECT_FALSE(third.start_ingest);
  EXPECT_EQ(third.dataset.state, v1::Dataset::READY);
  EXPECT_EQ(third.dataset.schema.train_rows(), 1797);
  EXPECT_TRUE(datasets.list_ingesting().value().empty());
}

TEST_F(StoreData, FailedDatasetIsTriedAgain) {
  ASSERT_TRUE(datasets.create(new_dataset("digits", "d1")).ok());
  ASSERT_TRUE(datasets.set_failed("d1", "DATASET_INVALID", "row 3: ragged").ok());
  EXPECT_EQ(datasets.find("default", "digits").value().message, "row 3: ragged");
  const CreatedDataset again = datasets.create(new_dataset("digits", "d1")).value();
  EXPECT_TRUE(again.start_ingest);
  EXPECT_EQ(again.dataset.state, v1::Dataset::INGESTING);
  EXPECT_EQ(again.dataset.message, "");
}

TEST_F(StoreData, SubmitNeedsAReadyDatasetAndKeepsIt) {
  NewJob job = new_job("user");
  job.dataset_id = "digits";
  EXPECT_EQ(store->jobs().submit(job).error().reason, "DATASET_NOT_FOUND");
  ASSERT_TRUE(datasets.create(new_dataset("digits", "d1")).ok());
  EXPECT_EQ(store->jobs().submit(job).error().reason, "DATASET_NOT_READY");
  ASSERT_TRUE(datasets.set_ready("d1", schema(), 1).ok());
  ASSERT_TRUE(store->jobs().submit(job).ok());
  EXPECT_EQ(datasets.remove("default", "digits").error().reason, "DATASET_IN_USE");
  ASSERT_TRUE(store->jobs().request_cancel("default", "user").ok());
  const DatasetStore::Removed removed = datasets.remove("default", "digits").value();
  EXPECT_TRUE(removed.digest_unused);
  EXPECT_EQ(datasets.remove("default", "digits").error().reason, "DATASET_NOT_FOUND");
}

TEST_F(StoreData, DigestIsUsedWhileAnyDatasetHasIt) {
  ASSERT_TRUE(datasets.create(new_dataset("digits", "d1")).ok());
  ASSERT_TRUE(datasets.create(new_dataset("same", "d1")).ok());
  EXPECT_FALSE(datasets.remove("default", "digits").value().digest_unused);
  EXPECT_TRUE(datasets.remove("default", "same").value().digest_unused);
}

TEST_F(StoreData, DatasetsPageNewestFirst) {
  for (const char* id : {"aaaa", "bbbb", "cccc"})
    ASSERT_TRUE(datasets.create(new_dataset(id, id)).ok());
  const DatasetPage first = datasets.list("default", 2, "").value();
  ASSERT_EQ(first.datasets.size(), 2u);
  EXPECT_EQ(first.datasets[0].id, "cccc");
  const DatasetPage second = datasets.list("default", 2, first.next_page_token).value();
  ASSERT_EQ(second.datasets.size(), 1u);
  EXPECT_EQ(second.datasets[0].id, "aaaa");
  EXPECT_EQ(second.next_page_token, "");
  EXPECT_EQ(store->models().list("default", 2, first.next_page_token).error().reason,
            "PAGE_TOKEN_INVALID");
}

TEST_F(StoreData, F26CommittedSizeNeverGoesBack) {
  EXPECT_EQ(uploads.find("default", "abc").value().committed_size, 0);
  EXPECT_EQ(uploads.advance("default", "abc", 10).error().reason, "UPLOAD_NOT_FOUND");
  ASSERT_TRUE(uploads.begin("default", "abc", 100).ok());
  EXPECT_EQ(uploads.advance("default", "abc", 60).value().committed_size, 60);
  EXPECT_EQ(uploads.advance("default", "abc", 40).value().committed_size, 60);
  EXPECT_EQ(uploads.begin("default", "abc", 100).value().committed_size, 60);
  EXPECT_EQ(uploads.begin("default", "abc", 90).error().reason, "UPLOAD_SIZE_CONFLICT");
  EXPECT_EQ(uploads.advance("default", "abc", 101).error().reason, "UPLOAD_TOO_LARGE");
  EXPECT_TRUE(uploads.complete("default", "abc").value().complete);
  EXPECT_TRUE(uploads.complete("default", "abc").value().complete);
  EXPECT_EQ(uploads.find("default", "abc").value().committed_size, 100);
}

TEST_F(StoreData, F26IdleUploadsAreListedAndForgotten) {
  ASSERT_TRUE(uploads.begin("default", "old", 100).ok());
  ASSERT_TRUE(uploads.begin("default", "whole", 0).ok());
  ASSERT_TRUE(uploads.complete("default", "whole").ok());
  clock.pass(10);
  ASSERT_TRUE(uploads.begin("default", "new", 100).ok());
  const std::vector<Upload> idle = uploads.list_idle(clock.wall_us()).value();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].sha256, "old");
  ASSERT_TRUE(uploads.remove("default", "old").ok());
  ASSERT_TRUE(uploads.remove("default", "old").ok());
  EXPECT_TRUE(uploads.list_idle(clock.wall_us()).value().empty());
}

}  // namespace
}  // namespace trainyard::server
