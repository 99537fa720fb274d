// Catches: a rule that takes a job or events which it should keep, that says another thing than it
// does, that leaves files or takes a model's; a watcher who is not told what is missing; a job's
// folder that is not tidied.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "server/config/paths.h"
#include "server/store/sqlite.h"
#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;
using Item = v1::CollectGarbageResponse::Item;
using Names = std::set<std::string>;

class ServiceRetention : public ServiceTest {
 protected:
  StatePaths paths() const { return StatePaths(config_.state_dir); }
  static v1::CollectGarbageRequest request(bool dry_run) {
    v1::CollectGarbageRequest request;
    request.set_dry_run(dry_run);
    return request;
  }
  v1::CollectGarbageResponse collect(const v1::CollectGarbageRequest& asked) {
    v1::CollectGarbageResponse response;
    const grpc::Status s = system_->CollectGarbage(context().get(), asked, &response);
    EXPECT_TRUE(s.ok()) << s.error_message();
    EXPECT_EQ(response.warnings_size(), 0) << response.warnings(0);
    return response;
  }
  /// Their IDs by kind.
  static Names names(const v1::CollectGarbageResponse& response, Item::Kind kind) {
    Names names;
    for (const Item& item : response.items()) {
      if (item.kind() == kind) names.insert(item.name().substr(item.name().rfind('/') + 1));
    }
    return names;
  }
  static std::string reason(const v1::CollectGarbageResponse& response, const std::string& id) {
    for (const Item& item : response.items()) {
      if (item.name().ends_with("/" + id)) return item.reason();
    }
    return "no item";
  }
  Names jobs() {
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(context().get(), {}, &response).ok());
    Names names;
    for (const v1::Job& job : response.jobs()) {
      names.insert(job.name().substr(job.name().rfind('/') + 1));
    }
    return names;
  }
  void run(const std::string& id, const std::string& act = "") {
    submit(id, act);
    wait_for(id, act == "refuse" ? v1::FAILED : v1::SUCCEEDED);
  }
  /// Makes the ended jobs so much older. The daemon must be down.
  void age_jobs(int64_t seconds, const std::string& id = "") {
    Connection db(config_.state_dir / "trainyard.db", Connection::Mode::kReadWrite, 1000);
    const std::string sql = "UPDATE jobs SET end_time_us = end_time_us - " +
                            std::to_string(seconds * 1'000'000) + " WHERE state >= 5" +
                            (id.empty() ? "" : " AND id = '" + id + "'");
    db.execute(sql.c_str());
  }
};

TEST_F(ServiceRetention, KeptJobsAreTheNewestAndWhatGoesIsToldBefore) {
  make_dataset();
  run("first");
  run("second", "refuse");
  run("third");
  submit("runs", "wait_for_stop");
  wait_for("runs", v1::RUNNING);
  EXPECT_TRUE(collect(request(true)).items().empty()) << "no rule by default";
  v1::CollectGarbageRequest asked = request(/*dry_run=*/true);
  asked.mutable_keep_jobs()->set_newest(1);
  const v1::CollectGarbageResponse planned = collect(asked);
  EXPECT_EQ(names(planned, Item::JOB), (Names{"first", "second"}));
  EXPECT_NE(reason(planned, "first").find("its model stays"), std::string::npos);
  EXPECT_NE(reason(planned, "second").find("cannot be retried"), std::string::npos)
      << reason(planned, "second");
  EXPECT_EQ(jobs(), (Names{"first", "second", "third", "runs"})) << "a dry run removes nothing";

  const std::string uid = get("first").uid();
  fs::create_directories(paths().checkpoints(uid) / "step-000000005");
  std::ofstream(paths().checkpoints(uid) / "step-000000005/weights.safetensors") << "1234";
  asked.set_dry_run(false);
  const v1::CollectGarbageResponse done = collect(asked);
  EXPECT_EQ(names(done, Item::JOB), (Names{"first", "second"}));
  EXPECT_EQ(done.freed_bytes(), 4);
  EXPECT_EQ(jobs(), (Names{"third", "runs"}));
  EXPECT_FALSE(fs::exists(paths().job(uid)));
  EXPECT_TRUE(fs::exists(paths().model(uid) / "model.safetensors"));
  v1::GetModelRequest model;
  model.set_name("tenants/default/models/first");
  v1::Model found;
  EXPECT_TRUE(models_->GetModel(context().get(), model, &found).ok());
  v1::RetryJobRequest retry;
  retry.set_name("tenants/default/jobs/second");
  v1::Job job;
  EXPECT_EQ(reason_of(jobs_->RetryJob(context().get(), retry, &job)), "JOB_NOT_FOUND");
  EXPECT_TRUE(collect(asked).items().empty()) << "nothing twice";

  asked.mutable_keep_jobs()->set_younger_than_seconds(3600);
  asked.mutable_keep_jobs()->set_newest(0);
  EXPECT_TRUE(collect(asked).items().empty()) << "a job stays that one of the two keeps";
}

TEST_F(ServiceRetention, ThinnedEventsKeepTheStoryAndSaySo) {
  make_dataset();
  run("job-1", "die_once");
  const v1::Job before = get("job-1");
  EXPECT_FALSE(before.events_thinned());
  grpc::Status end;
  v1::WatchJobResponse::Start start;
  const std::vector<v1::Event> all = watch("job-1", 0, &end, &start);
  EXPECT_EQ(start.oldest_seq(), 1);
  std::vector<int64_t> story;
  v1::Event last_metrics;
  for (const v1::Event& e : all) {
    if (e.has_metrics()) last_metrics = e;
    if (e.has_state() || e.has_checkpoint()) story.push_back(e.seq());
  }
  ASSERT_TRUE(last_metrics.has_metrics());
  story.push_back(last_metrics.seq());
  std::ranges::sort(story);
  ASSERT_LT(story.size() + 10, all.size());

  v1::CollectGarbageRequest asked = request(/*dry_run=*/true);
  asked.set_keep_events_seconds(3600);
  EXPECT_TRUE(collect(asked).items().empty());
  asked.set_keep_events_seconds(0);
  EXPECT_EQ(names(collect(asked), Item::EVENTS), (Names{"job-1"}));
  EXPECT_EQ(watch("job-1", 0, &end).size(), all.size());
  asked.set_dry_run(false);
  EXPECT_EQ(names(collect(asked), Item::EVENTS), (Names{"job-1"}));

  v1::Job after = get("job-1");
  EXPECT_TRUE(after.events_thinned());
  after.clear_events_thinned();
  EXPECT_EQ(after.DebugString(), before.DebugString()) << "the job itself stays";
  const std::vector<v1::Event> left = watch("job-1", 0, &end, &start);
  EXPECT_TRUE(end.ok()) << end.error_message();
  EXPECT_TRUE(start.job().events_thinned());
  EXPECT_EQ(start.oldest_seq(), before.newest_seq());
  std::vector<int64_t> seqs;
  for (const v1::Event& e : left) {
    seqs.push_back(e.seq());
    const v1::Event& was = all[static_cast<size_t>(e.seq() - 1)];
    ASSERT_EQ(was.seq(), e.seq());
    if (e.has_metrics()) {
      ASSERT_EQ(e.metrics().series_size(), 1);
      EXPECT_EQ(e.metrics().series(0).values(0), before.progress().metrics().at("train/loss"));
      EXPECT_EQ(e.time().seconds(), was.time().seconds());
    } else {
      EXPECT_EQ(e.SerializeAsString(), was.SerializeAsString());
    }
  }
  EXPECT_EQ(seqs, story);
  // Whoever comes back goes on behind what was seen last, whether that event is still there or not.
  for (const int64_t seen : {int64_t{5}, story[2], before.newest_seq() - 1}) {
    std::vector<int64_t> rest;
    for (const v1::Event& e : watch("job-1", seen, &end)) rest.push_back(e.seq());
    const auto from = std::ranges::upper_bound(story, seen);
    EXPECT_EQ(rest, std::vector<int64_t>(from, story.end())) << seen;
    EXPECT_TRUE(end.ok());
  }
  EXPECT_TRUE(collect(asked).items().empty()) << "nothing twice";
}

TEST_F(ServiceRetention, BadRulesAreRefusedByField) {
  const auto refused = [&](const v1::CollectGarbageRequest& asked) {
    v1::CollectGarbageResponse response;
    const grpc::Status s = system_->CollectGarbage(context().get(), asked, &response);
    return reason_of(s) + " " + s.error_message();
  };
  v1::CollectGarbageRequest asked = request(true);
  asked.mutable_keep_jobs();
  EXPECT_EQ(refused(asked).find("FIELD_REQUIRED keep_jobs"), 0U) << refused(asked);
  asked.mutable_keep_jobs()->set_newest(-1);
  EXPECT_EQ(refused(asked).find("FIELD_OUT_OF_RANGE keep_jobs.newest"), 0U) << refused(asked);
  asked.mutable_keep_jobs()->set_newest(0);
  asked.mutable_keep_jobs()->set_younger_than_seconds(-1);
  EXPECT_EQ(refused(asked).find("FIELD_OUT_OF_RANGE keep_jobs.younger"), 0U) << refused(asked);
  asked = request(true);
  asked.set_keep_events_seconds(kKeptSecondsMax + 1);
  EXPECT_EQ(refused(asked).find("FIELD_OUT_OF_RANGE keep_events"), 0U) << refused(asked);
}

TEST_F(ServiceRetention, TheDaemonAppliesItsRulesByItself) {
  make_dataset();
  for (const char* id : {"old-1", "old-2", "young"}) run(id);
  submit("waits", "wait_for_stop");
  stop();
  age_jobs(7200, "old-1");
  age_jobs(7100, "old-2");
  config_.keep_jobs.emplace().newest = 0;
  start();
  ASSERT_TRUE(eventually([&] {
    return jobs() == Names{"young", "waits"};
  })) << "those that ended within the hour stay, and so do unfinished ones";
  stop();
  age_jobs(7200);
  config_.keep_jobs.reset();
  config_.keep_events_seconds = 3600;
  start();
  ASSERT_TRUE(eventually([&] { return get("young").events_thinned(); }));
  EXPECT_FALSE(get("waits").events_thinned());
  v1::CollectGarbageRequest asked = request(true);
  EXPECT_TRUE(collect(asked).items().empty()) << "the settings are the defaults of a request";
}

TEST_F(ServiceRetention, TheFolderOfAnEndedJobKeepsWhatIsOfUse) {
  make_dataset();
  run("done");
  submit("runs", "wait_for_stop");
  wait_for("runs", v1::RUNNING);
  const std::string done = get("done").uid();
  const std::string runs = get("runs").uid();
  ASSERT_TRUE(eventually([&] { return !fs::exists(paths().job(done)); }))
      << "it has no checkpoint: nothing is left";
  stop();
  // What an earlier version, or a daemon that was killed, left.
  const auto write = [](const fs::path& path) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
  };
  for (const std::string& uid : {done, runs}) {
    write(paths().checkpoints(uid) / "step-000000005/weights.safetensors");
    write(paths().checkpoints(uid) / "step-000000010.tmp/weights.safetensors");
    write(paths().spool(uid, 7));
  }
  write(config_.state_dir / "models" / (done + ".tmp") / "model.safetensors");
  fs::create_directories(paths().checkpoints("0123456789abcdef"));
  start();
  ASSERT_TRUE(eventually([&] {
    return !fs::exists(paths().spool(done, 7)) &&
           !fs::exists(paths().checkpoints(done) / "step-000000010.tmp") &&
           !fs::exists(config_.state_dir / "models" / (done + ".tmp"));
  }));
  EXPECT_TRUE(fs::exists(paths().checkpoints(done) / "step-000000005/weights.safetensors"));
  EXPECT_TRUE(fs::exists(paths().model(done) / "model.safetensors"));
  EXPECT_TRUE(fs::exists(paths().checkpoints(runs) / "step-000000010.tmp")) << "it is unfinished";
  EXPECT_TRUE(fs::exists(paths().checkpoints("0123456789abcdef"))) << "it may be a fork's";
}

}  // namespace
}  // namespace trainyard::server
