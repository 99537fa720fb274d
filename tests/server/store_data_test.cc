// Tests of datasets, uploads and models: repeated calls are idempotent, and changes of content are
// refused.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "server/store/wait_for.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

class StoreData : public ::testing::Test {
 protected:
  TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()), clock);
  DatasetStore& datasets = store->datasets();
  UploadStore& uploads = store->uploads();

  static NewDataset new_dataset(std::string id, std::string digest) {
    NewDataset d;
    d.project = "default";
    d.id = std::move(id);
    d.digest = std::move(digest);
    return d;
  }
  Dataset ready(std::string id, std::string digest) {
    Dataset d = datasets.create(new_dataset(std::move(id), digest)).value().dataset;
    EXPECT_TRUE(answer_of(datasets, &DatasetStore::set_ready, digest, schema(), 5000).ok());
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
  ASSERT_TRUE(answer_of(datasets, &DatasetStore::set_ready, "d1", schema(), 5000).ok());
  for (const char* id : {"digits", "same"}) {
    const Dataset d = datasets.find("default", {id}).value();
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

TEST_F(StoreData, AFailedDatasetIsRetried) {
  ASSERT_TRUE(datasets.create(new_dataset("digits", "d1")).ok());
  ASSERT_TRUE(
      answer_of(datasets, &DatasetStore::set_failed, "d1", "DATASET_INVALID", "row 3: ragged")
          .ok());
  EXPECT_EQ(datasets.find("default", {"digits"}).value().message, "row 3: ragged");
  const CreatedDataset again = datasets.create(new_dataset("digits", "d1")).value();
  EXPECT_TRUE(again.start_ingest);
  EXPECT_EQ(again.dataset.state, v1::Dataset::INGESTING);
  EXPECT_EQ(again.dataset.message, "");
  EXPECT_EQ(again.dataset.version, 1) << "the failed version itself";
}

TEST_F(StoreData, OtherContentIsTheNextVersionAndTheNewestsContentIsThatOneAgain) {
  EXPECT_EQ(ready("digits", "d1").name(), "projects/default/datasets/digits@1");
  EXPECT_EQ(ready("digits", "d2").version, 2);
  EXPECT_EQ(datasets.create(new_dataset("digits", "d2")).value().dataset.version, 2);
  EXPECT_EQ(datasets.create(new_dataset("other", "d2")).value().dataset.version, 1);
  // The name stands for the latest version, even if its content already existed; it is not ingested
  // again.
  const CreatedDataset old = datasets.create(new_dataset("digits", "d1")).value();
  EXPECT_EQ(old.dataset.version, 3);
  EXPECT_EQ(old.dataset.state, v1::Dataset::READY);
  EXPECT_FALSE(old.start_ingest);
  EXPECT_EQ(datasets.find("default", {"digits"}).value().version, 3);
  EXPECT_EQ(datasets.find("default", {"digits", 2}).value().digest, "d2");
  const Error missing = datasets.find("default", {"digits", 7}).error();
  EXPECT_EQ(missing.reason, "DATASET_NOT_FOUND");
  EXPECT_EQ(missing.message, "there is no dataset 'digits@7'; it has the versions 3, 2, 1.");
  EXPECT_EQ(datasets.find("default", {"nobody", 1}).error().message,
            "there is no dataset 'nobody@1'.");
}

TEST_F(StoreData, VersionNumbersAreNeverReused) {
  ready("digits", "d1");
  ready("digits", "d2");
  ASSERT_TRUE(datasets.remove("default", {"digits", 2}).ok());
  EXPECT_EQ(datasets.find("default", {"digits"}).value().version, 1);
  EXPECT_EQ(ready("digits", "d2").version, 3);
  ASSERT_TRUE(datasets.remove("default", {"digits"}).ok());
  EXPECT_EQ(datasets.find("default", {"digits"}).error().reason, "DATASET_NOT_FOUND");
  store.reset();
  store = open_or_die(small_options(directory.path()), clock);
  EXPECT_EQ(store->datasets().create(new_dataset("digits", "d1")).value().dataset.version, 4);
}

TEST_F(StoreData, ConcurrentCreatesGetDistinctNumbers) {
  constexpr int kThreads = 4, kEach = 25;
  std::vector<std::set<int32_t>> versions(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          const std::string digest = std::to_string(t) + "-" + std::to_string(i);
          versions[t].insert(
              datasets.create(new_dataset("digits", digest)).value().dataset.version);
        }
      });
    }
  }
  std::set<int32_t> all;
  for (const std::set<int32_t>& some : versions) all.insert(some.begin(), some.end());
  EXPECT_EQ(all.size(), size_t{kThreads * kEach});
  EXPECT_EQ(*all.begin(), 1);
  EXPECT_EQ(*all.rbegin(), kThreads * kEach);
}

TEST_F(StoreData, FailedVersionsAreNotUsed) {
  ready("digits", "d1");
  ASSERT_TRUE(datasets.create(new_dataset("digits", "d2")).ok());
  ASSERT_TRUE(
      answer_of(datasets, &DatasetStore::set_failed, "d2", "DATASET_INVALID", "row 3: ragged")
          .ok());
  EXPECT_EQ(datasets.find("default", {"digits"}).value().version, 2);
  EXPECT_EQ(datasets.find_usable("default", {"digits"}).value().version, 1);
  EXPECT_EQ(datasets.find_usable("default", {"digits", 2}).value().state, v1::Dataset::FAILED)
      << "named, it is what was asked for";
  ASSERT_TRUE(datasets.create(new_dataset("digits", "d3")).ok());
  EXPECT_EQ(datasets.find_usable("default", {"digits"}).value().version, 3) << "being read";
  ASSERT_TRUE(datasets.remove("default", {"digits", 1}).ok());
  ASSERT_TRUE(datasets.remove("default", {"digits", 3}).ok());
  EXPECT_EQ(datasets.find_usable("default", {"digits"}).value().message, "row 3: ragged");
  EXPECT_EQ(datasets.find_usable("default", {"nobody"}).error().reason, "DATASET_NOT_FOUND");
}

TEST_F(StoreData, SubmitNeedsAReadyDatasetAndKeepsIt) {
  NewJob job = new_job("user");
  job.dataset = {"digits", 1};
  EXPECT_EQ(store->jobs().submit(job).error().reason, "DATASET_NOT_FOUND");
  ASSERT_TRUE(datasets.create(new_dataset("digits", "d1")).ok());
  EXPECT_EQ(store->jobs().submit(job).error().reason, "DATASET_NOT_READY");
  ASSERT_TRUE(answer_of(datasets, &DatasetStore::set_ready, "d1", schema(), 1).ok());
  ASSERT_TRUE(store->jobs().submit(job).ok());
  EXPECT_EQ(datasets.remove("default", {"digits", 1}).error().reason, "DATASET_IN_USE");
  ASSERT_TRUE(store->jobs().request_cancel("default", "user").ok());
  const DatasetStore::Removed removed = datasets.remove("default", {"digits", 1}).value();
  EXPECT_EQ(removed.unused_digests, std::vector<std::string>{"d1"});
  EXPECT_EQ(datasets.remove("default", {"digits"}).error().reason, "DATASET_NOT_FOUND");
}

TEST_F(StoreData, AJobKeepsItsVersionAndRemovingAllVersionsNamesTheJob) {
  ready("digits", "d1");
  ready("digits", "d2");
  ready("digits", "d3");
  NewJob job = new_job("user");
  job.dataset = {"digits", 2};
  ASSERT_TRUE(store->jobs().submit(job).ok());
  EXPECT_TRUE(datasets.remove("default", {"digits", 3}).ok());
  const Error all = datasets.remove("default", {"digits"}).error();
  EXPECT_EQ(all.reason, "DATASET_IN_USE");
  EXPECT_NE(all.message.find("digits@2 is used by the unfinished job user"), std::string::npos)
      << all.message;
  EXPECT_TRUE(datasets.find("default", {"digits", 1}).ok()) << "all or nothing";
  ASSERT_TRUE(store->jobs().request_cancel("default", "user").ok());
  EXPECT_EQ(datasets.remove("default", {"digits"}).value().datasets.size(), 2u);
  NewJob late = new_job("late");
  late.dataset = {"digits", 2};
  EXPECT_EQ(store->jobs().submit(late).error().reason, "DATASET_NOT_FOUND");
}

TEST_F(StoreData, DigestIsUsedWhileAnyDatasetHasIt) {
  ready("digits", "d1");
  ready("same", "d1");
  ready("digits", "d2");
  ready("digits", "d1");
  using Digests = std::vector<std::string>;
  EXPECT_EQ(datasets.remove("default", {"digits"}).value().unused_digests, Digests{"d2"});
  EXPECT_EQ(datasets.remove("default", {"same"}).value().unused_digests, Digests{"d1"});
  ready("digits", "d1");
  ready("digits", "d2");
  ready("digits", "d1");
  EXPECT_EQ(datasets.remove("default", {"digits", 4}).value().unused_digests, Digests{})
      << "version 6 has it";
  EXPECT_EQ(datasets.remove("default", {"digits"}).value().unused_digests, (Digests{"d1", "d2"}));
}

TEST_F(StoreData, DatasetsPageNewestFirst) {
  for (const char* id : {"aaaa", "bbbb", "cccc"})
    ASSERT_TRUE(datasets.create(new_dataset(id, id)).ok());
  ASSERT_TRUE(datasets.create(new_dataset("aaaa", "more")).ok());
  ASSERT_TRUE(datasets.create(new_dataset("aaaa", "aaaa")).ok());
  std::string all;
  std::string token;
  do {
    const DatasetPage page = datasets.list("default", true, 2, token).value();
    for (const Dataset& d : page.datasets) all += d.ref().text() + " ";
    token = page.next_page_token;
  } while (!token.empty());
  EXPECT_EQ(all, "aaaa@3 aaaa@2 cccc@1 bbbb@1 aaaa@1 ");
  ASSERT_TRUE(datasets.remove("default", {"aaaa"}).ok());
  ASSERT_TRUE(datasets.create(new_dataset("zzzz", "zzzz")).ok());
  ASSERT_TRUE(datasets.create(new_dataset("zzzz", "more")).ok());
  const DatasetPage first = datasets.list("default", false, 2, "").value();
  ASSERT_EQ(first.datasets.size(), 2u);
  EXPECT_EQ(first.datasets[0].name(), "projects/default/datasets/zzzz@2");
  EXPECT_EQ(first.datasets[1].id, "cccc");
  EXPECT_EQ(datasets.list("default", true, 2, first.next_page_token).error().reason,
            "PAGE_TOKEN_INVALID");
  const DatasetPage second = datasets.list("default", false, 2, first.next_page_token).value();
  ASSERT_EQ(second.datasets.size(), 1u);
  EXPECT_EQ(second.datasets[0].id, "bbbb");
  EXPECT_EQ(second.next_page_token, "");
  EXPECT_EQ(store->models().list("default", 2, first.next_page_token).error().reason,
            "PAGE_TOKEN_INVALID");
}

TEST_F(StoreData, F26CommittedSizeNeverGoesBack) {
  EXPECT_EQ(uploads.find("default", "abc").value().committed_size, 0);
  EXPECT_EQ(uploads.advance({"default", "abc", 100}, 10).error().reason, "UPLOAD_NOT_FOUND");
  ASSERT_TRUE(uploads.begin({"default", "abc", 100}).ok());
  EXPECT_EQ(uploads.advance({"default", "abc", 100}, 60).value().committed_size, 60);
  EXPECT_EQ(uploads.advance({"default", "abc", 100}, 40).value().committed_size, 60);
  EXPECT_EQ(uploads.begin({"default", "abc", 100}).value().committed_size, 60);
  EXPECT_EQ(uploads.begin({"default", "abc", 90}).value().committed_size, 0) << "another size";
  EXPECT_EQ(uploads.find("default", "abc").value().committed_size, 60) << "that of most bytes";
  EXPECT_EQ(uploads.find("default", "abc", 90).value().committed_size, 0);
  EXPECT_EQ(uploads.advance({"default", "abc", 100}, 101).error().reason, "UPLOAD_TOO_LARGE");
  EXPECT_TRUE(uploads.complete({"default", "abc", 100}).value().complete);
  EXPECT_TRUE(uploads.complete({"default", "abc", 100}).value().complete);
  EXPECT_EQ(uploads.find("default", "abc").value().committed_size, 100);
  EXPECT_TRUE(uploads.find("default", "abc", 90).value().complete) << "content is content";
}

TEST_F(StoreData, F26IdleUploadsAreListedAndForgotten) {
  ASSERT_TRUE(uploads.begin({"default", "old", 100}).ok());
  ASSERT_TRUE(uploads.begin({"default", "whole", 0}).ok());
  ASSERT_TRUE(uploads.complete({"default", "whole", 0}).ok());
  clock.pass(10);
  ASSERT_TRUE(uploads.begin({"default", "new", 100}).ok());
  const std::vector<Upload> idle = uploads.list_idle(clock.wall_us()).value();
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].sha256, "old");
  ASSERT_TRUE(uploads.advance({"default", "old", 100}, 1).ok());
  EXPECT_TRUE(uploads.list_idle(clock.wall_us()).value().empty()) << "bytes came";
  ASSERT_TRUE(uploads.remove({"default", "old", 100}).ok());
  ASSERT_TRUE(uploads.remove({"default", "old", 100}).ok());
  EXPECT_TRUE(uploads.list_idle(clock.wall_us()).value().empty());
}

TEST_F(StoreData, UnreferencedContentIsListedOnceItIsOld) {
  NewDataset dataset = new_dataset("digits", "1111");
  dataset.spec.add_sources()->set_sha256("used");
  ASSERT_TRUE(datasets.create(dataset).ok());
  for (const char* sha256 : {"used", "stray"}) {
    ASSERT_TRUE(uploads.begin({"default", sha256, 5}).ok());
    ASSERT_TRUE(uploads.complete({"default", sha256, 5}).ok());
  }
  ASSERT_TRUE(uploads.begin({"default", "part", 5}).ok());
  EXPECT_TRUE(uploads.list_unused(clock.wall_us()).value().uploads.empty()) << "too new";
  clock.pass(10);
  const UnusedUploads unused = uploads.list_unused(clock.wall_us()).value();
  ASSERT_EQ(unused.uploads.size(), 1u);
  EXPECT_EQ(unused.uploads[0].sha256, "stray");
  EXPECT_EQ(unused.files, std::set<std::string>{"stray"});
  EXPECT_TRUE(uploads.remove_unused({{"default", "used"}}).value().empty());
  ASSERT_TRUE(datasets.remove("default", {"digits"}).ok());
  EXPECT_EQ(uploads.remove_unused({{"default", "used"}, {"default", "stray"}}).value(),
            (std::vector<std::string>{"stray", "used"}));
  EXPECT_FALSE(uploads.find("default", "used").value().complete);
}

TEST_F(StoreData, F26TheFileOfAModelIsNotForgotten) {
  ASSERT_TRUE(uploads.begin({"default", "abc", 100}).ok());
  ASSERT_TRUE(uploads.complete({"default", "abc", 100}).ok());
  NewWeights weights;
  weights.project = "default";
  weights.id = "pretrained";
  weights.sha256 = "abc";
  ASSERT_TRUE(answer_of(store->models(), &ModelStore::create, weights).ok());
  EXPECT_TRUE(uploads.remove_unused({{"default", "abc"}}).value().empty());
  EXPECT_TRUE(uploads.find("default", "abc").value().complete);
  ASSERT_TRUE(store->models().remove("default", "pretrained").ok());
  EXPECT_EQ(uploads.remove_unused({{"default", "abc"}}).value(), std::vector<std::string>{"abc"});
  EXPECT_FALSE(uploads.find("default", "abc").value().complete);
}

TEST_F(StoreData, AFileOfTwoProjectsStaysUntilNeitherHasIt) {
  ASSERT_TRUE(store->people().create_project("other").ok());
  NewDataset dataset = new_dataset("digits", "1111");
  dataset.project = "other";
  dataset.spec.add_sources()->set_sha256("abc");
  for (const char* project : {"default", "other"}) {
    EXPECT_FALSE(uploads.find(project, "abc").value().complete) << project << " has sent nothing";
    ASSERT_TRUE(uploads.begin({project, "abc", 5}).ok());
    ASSERT_TRUE(uploads.complete({project, "abc", 5}).ok());
  }
  ASSERT_TRUE(datasets.create(dataset).ok());
  clock.pass(10);
  const UnusedUploads unused = uploads.list_unused(clock.wall_us()).value();
  ASSERT_EQ(unused.uploads.size(), 1u);
  EXPECT_EQ(unused.uploads[0].project, "default")
      << "a dataset of the other project does not count";
  EXPECT_TRUE(unused.files.empty()) << "the other project needs the file";
  EXPECT_TRUE(uploads.remove_unused({{"default", "abc"}, {"other", "abc"}}).value().empty());
  EXPECT_FALSE(uploads.find("default", "abc").value().complete);
  EXPECT_TRUE(uploads.find("other", "abc").value().complete);
  ASSERT_TRUE(datasets.remove("other", {"digits"}).ok());
  EXPECT_EQ(uploads.remove_unused({{"other", "abc"}}).value(), std::vector<std::string>{"abc"});
}

TEST_F(StoreData, DatasetsOfTwoProjectsShareTheIngestedForm) {
  ASSERT_TRUE(store->people().create_project("other").ok());
  NewDataset theirs = new_dataset("digits", "d1");
  theirs.project = "other";
  ASSERT_TRUE(datasets.create(theirs).value().start_ingest);
  EXPECT_FALSE(datasets.create(new_dataset("digits", "d1")).value().start_ingest);
  ASSERT_TRUE(answer_of(datasets, &DatasetStore::set_ready, "d1", v1::DatasetSchema(), 10).ok());
  EXPECT_TRUE(datasets.has_ready("default", "d1").value());
  const DatasetStore::Removed ours = datasets.remove("default", {"digits"}).value();
  EXPECT_TRUE(ours.unused_digests.empty()) << "the other project still has it";
  EXPECT_FALSE(datasets.has_ready("default", "d1").value());
  EXPECT_TRUE(datasets.has_ready("other", "d1").value());
  EXPECT_EQ(datasets.remove("other", {"digits"}).value().unused_digests,
            std::vector<std::string>{"d1"});
}

TEST_F(StoreData, DataSharedWithAnotherProjectIsInUseWithoutTheNameOfTheJob) {
  ASSERT_TRUE(store->people().create_project("other").ok());
  ready("digits", "d1");
  NewWeights weights;
  weights.project = "default";
  weights.id = "base";
  weights.sha256 = "abc";
  ASSERT_TRUE(uploads.begin({"default", "abc", 100}).ok());
  ASSERT_TRUE(uploads.complete({"default", "abc", 100}).ok());
  ASSERT_TRUE(answer_of(store->models(), &ModelStore::create, weights).ok());

  NewJob job = new_job("their-job");
  job.project = "other";
  job.dataset = {"digits", 1};
  EXPECT_EQ(store->jobs().submit(job).error().reason, "DATASET_NOT_FOUND") << "of its own project";
  job.dataset_project = "default";
  job.initial_model_id = "base";
  EXPECT_EQ(store->jobs().submit(job).error().reason, "MODEL_NOT_FOUND") << "of its own project";
  job.initial_model_project = "default";
  ASSERT_TRUE(store->jobs().submit(job).ok());

  const Error dataset = datasets.remove("default", {"digits"}).error();
  EXPECT_EQ(dataset.message,
            "projects/default/datasets/digits@1 is used by an unfinished job of another project; "
            "wait until it ends.");
  const Error model = store->models().remove("default", "base").error();
  EXPECT_EQ(model.message,
            "an unfinished job of another project starts from projects/default/models/base; wait "
            "until it ends.");
  // Data of the same names in the job's own project is not in use.
  NewDataset own = new_dataset("digits", "d1");
  own.project = "other";
  ASSERT_TRUE(datasets.create(own).ok());
  EXPECT_TRUE(datasets.remove("other", {"digits"}).ok());
  ASSERT_TRUE(store->jobs().request_cancel("other", "their-job").ok());
  EXPECT_TRUE(datasets.remove("default", {"digits"}).ok());
  EXPECT_TRUE(store->models().remove("default", "base").ok());
}

TEST_F(StoreData, OnlyTheOwnerAndMaintainersAddVersions) {
  NewDataset adas = new_dataset("digits", "d1");
  adas.owner = "ada";
  ASSERT_EQ(datasets.create(adas).value().dataset.owner, "ada");
  NewDataset bobs = new_dataset("digits", "d1");
  bobs.owner = "bob";
  EXPECT_EQ(datasets.create(bobs).value().dataset.owner, "ada") << "the same content is no change";
  bobs.digest = "d2";
  const Error refusal = datasets.create(bobs).error();
  EXPECT_EQ(refusal.code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(
      refusal.message,
      "dataset_id: the dataset 'digits' belongs to ada, and only its owner and maintainers of "
      "projects/default may add a version with other content; choose another dataset_id");
  bobs.may_change_others = true;
  EXPECT_EQ(datasets.create(bobs).value().dataset.owner, "bob");
  const OwnerStore& owners = store->owners();
  EXPECT_EQ(owners.find("default", "datasets", "digits@1").value(), "ada");
  EXPECT_EQ(owners.find("default", "datasets", "digits@2").value(), "bob");
  EXPECT_EQ(owners.find("default", "datasets", "digits").value(), "") << "several people";
  EXPECT_EQ(owners.find("default", "datasets", "digits@3").value(), std::nullopt);
  EXPECT_EQ(owners.find("default", "datasets", "none").value(), std::nullopt);
  EXPECT_EQ(owners.find("other", "datasets", "digits").value(), std::nullopt);
}

// F03 for deletions: the row is deleted and the daemon ends before the files are. The next daemon
// must learn which files to delete.
TEST_F(StoreData, F03LeftoversOfADeletionAreListedAtTheNextStart) {
  const Job job = run_job(*store, new_job("trained"));
  AttemptUpdate end = update_of(job, 2);
  end.move = move_to(JobState::kSucceeded);
  end.model = NewModel{"digest", 1, 1, {}};
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, std::move(end)).ok());
  ready("digits", "d1");
  ready("kept", "d2");
  ASSERT_TRUE(store->jobs().remove("default", "trained").ok());
  ASSERT_TRUE(store->models().remove("default", "trained").ok());
  ASSERT_TRUE(datasets.remove("default", {"digits"}).ok());
  store.reset();

  store = open_or_die(small_options(directory.path()), clock);
  const std::vector<std::string> all = {"datasets/d1", "jobs/" + job.uid, "models/" + job.uid};
  EXPECT_EQ(store->removals().list().value(), all);
  ASSERT_TRUE(store->removals().forget("jobs/" + job.uid).ok());
  // A dataset of the same content is created again, so the folder belongs to a row and must stay.
  ASSERT_TRUE(store->datasets().create(new_dataset("again", "d1")).ok());
  EXPECT_EQ(store->removals().list().value(), std::vector<std::string>{"models/" + job.uid});

  // A fork's files exist before its row, which takes them off the list of removals.
  NewJob fork = new_job("forked");
  fork.uid = "0123456789abcdef0123456789abcdef";
  const std::vector<std::string> noted = {"jobs/" + fork.uid, "models/" + job.uid};
  ASSERT_TRUE(store->removals().note("jobs/" + fork.uid).ok());
  EXPECT_EQ(store->removals().list().value(), noted);
  ASSERT_TRUE(store->jobs().submit(fork).ok());
  EXPECT_EQ(store->removals().list().value(), std::vector<std::string>{"models/" + job.uid});
}

}  // namespace
}  // namespace trainyard::server
