// Tests of retention rules. They fail if a rule deletes jobs or events that it should keep, reports
// something other than it does, leaves files behind, deletes a model's files, or stops at
// unreadable events; if a watcher is not told about missing events; if a job's folder is not
// tidied; or if changes wait for a rule.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>

#include "server/config/paths.h"
#include "server/dispatch/job_files.h"
#include "server/files/removals.h"
#include "server/housekeeping/retention.h"
#include "server/processes/ingest.h"
#include "server/processes/supervisor.h"
#include "server/store/sqlite.h"
#include "server/store/wait_for.h"
#include "src/base/check.h"
#include "tests/data/unsynced_files.h"
#include "tests/server/service_support.h"
#include "tests/server/store_support.h"

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
  /// Returns the IDs of the items of this kind.
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
  Connection open_store() const {
    return {config_.state_dir / "trainyard.db", Connection::Mode::kReadWrite, 10'000};
  }
  /// Copies an ended job with its events `count` times as "copy-1", ... The copies ended before it,
  /// one second apart. The daemon must be stopped.
  void copy_job(const std::string& id, int count) {
    Connection db = open_store();
    const std::string copies =
        "WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1"
        " FROM n WHERE value < " +
        std::to_string(count) + ") ";
    const std::string number = "n.value + 1000";
    const std::map<std::string, std::string> of_job = {
        {"number", number},
        {"id", "'copy-' || n.value"},
        {"uid", "printf('copy-%021d', n.value)"},
        {"end_time_us", "end_time_us + 1000000 * (n.value - 100000)"}};
    for (const std::string table : {"jobs", "events", "event_parts"}) {
      std::string names, values;
      Query columns(db, "SELECT name FROM pragma_table_info(?)");
      columns.bind(table);
      while (columns.step()) {
        const std::string name = columns.text(0);
        const auto changed = of_job.find(name);
        names += (names.empty() ? "" : ", ") + name;
        values += values.empty() ? "" : ", ";
        values += name == "job"                                ? number
                  : table == "jobs" && changed != of_job.end() ? changed->second
                                                               : "t." + name;
      }
      const std::string key = table == "jobs" ? "number" : "job";
      db.execute(("INSERT INTO " + table + " (" + names + ") " + copies + "SELECT " + values +
                  " FROM n, " + table + " t WHERE t." + key +
                  " = (SELECT number FROM jobs WHERE id = '" + id + "')")
                     .c_str());
    }
  }
  int64_t count_jobs(const std::string& which) const {
    Connection db = open_store();
    Query query(db, ("SELECT count(*) FROM jobs WHERE " + which).c_str());
    return query.step() ? query.integer(0) : -1;
  }
  /// Sets the times of the ended jobs back by `seconds`.
  void age_jobs(int64_t seconds, const std::string& id = "") {
    Connection db = open_store();
    const std::string sql = "UPDATE jobs SET end_time_us = end_time_us - " +
                            std::to_string(seconds * 1'000'000) + " WHERE state >= 5" +
                            (id.empty() ? "" : " AND id = '" + id + "'");
    db.execute(sql.c_str());
  }
};

/// Writes a checkpoint of four bytes for a job that has ended. The service removes the empty
/// folders of such a job, maybe while they are created here.
void write_checkpoint(const fs::path& folder) {
  std::error_code removed;
  do {
    fs::create_directories(folder, removed);
  } while (removed);
  std::ofstream(folder / "weights.safetensors") << "1234";
}

TEST_F(ServiceRetention, TheNewestJobsAreKeptAndADryRunListsTheOthers) {
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
  EXPECT_NE(reason(planned, "first").find("its model is kept"), std::string::npos);
  EXPECT_NE(reason(planned, "second").find("cannot be retried"), std::string::npos)
      << reason(planned, "second");
  EXPECT_EQ(jobs(), (Names{"first", "second", "third", "runs"})) << "a dry run removes nothing";

  const std::string uid = get("first").uid();
  write_checkpoint(paths().checkpoints(uid) / "step-000000005");
  asked.set_dry_run(false);
  const v1::CollectGarbageResponse done = collect(asked);
  EXPECT_EQ(names(done, Item::JOB), (Names{"first", "second"}));
  EXPECT_EQ(done.freed_bytes(), 4);
  EXPECT_EQ(jobs(), (Names{"third", "runs"}));
  EXPECT_FALSE(fs::exists(paths().job(uid)));
  EXPECT_TRUE(fs::exists(paths().model(uid) / "model.safetensors"));
  v1::GetModelRequest model;
  model.set_name("projects/default/models/first");
  v1::Model found;
  EXPECT_TRUE(models_->GetModel(context().get(), model, &found).ok());
  v1::RetryJobRequest retry;
  retry.set_name("projects/default/jobs/second");
  v1::Job job;
  EXPECT_EQ(reason_of(jobs_->RetryJob(context().get(), retry, &job)), "JOB_NOT_FOUND");
  EXPECT_TRUE(collect(asked).items().empty()) << "nothing twice";

  asked.mutable_keep_jobs()->set_younger_than_seconds(3600);
  asked.mutable_keep_jobs()->set_newest(0);
  EXPECT_TRUE(collect(asked).items().empty()) << "a job stays that one of the two keeps";
}

TEST_F(ServiceRetention, OnlyTheNamedItemsAreRemoved) {
  make_dataset();
  run("first");
  run("second");
  v1::CollectGarbageRequest asked = request(/*dry_run=*/true);
  asked.mutable_keep_jobs()->set_newest(1);
  asked.set_keep_events_seconds(0);
  asked.set_older_than_seconds(0);
  const v1::CollectGarbageResponse planned = collect(asked);
  EXPECT_EQ(names(planned, Item::JOB), Names{"first"});
  EXPECT_EQ(names(planned, Item::EVENTS), Names{"second"});

  run("third");  // runs between the dry run and the deletion
  const std::string uid = get("third").uid();
  write_checkpoint(paths().checkpoints(uid) / "step-000000005");
  asked.set_dry_run(false);
  *asked.mutable_as_of() = planned.as_of();
  const v1::CollectGarbageResponse done = collect(asked);
  EXPECT_EQ(names(done, Item::JOB), Names{"first"});
  EXPECT_EQ(names(done, Item::EVENTS), Names{"second"});
  EXPECT_EQ(names(done, Item::CHECKPOINTS), Names());
  EXPECT_EQ(done.as_of().SerializeAsString(), planned.as_of().SerializeAsString());
  EXPECT_EQ(jobs(), (Names{"second", "third"}));

  asked.clear_as_of();
  EXPECT_EQ(names(collect(asked), Item::JOB), Names{"second"}) << "as of now";
}

TEST_F(ServiceRetention, ThinnedEventsKeepStatesAndLastMetrics) {
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
  ASSERT_LT(story.size() + 5, all.size());

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
  // A reconnecting watcher continues after the last event that it saw, even if that event was
  // deleted.
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
  asked = request(true);
  *asked.mutable_as_of() = collect(asked).as_of();
  asked.mutable_as_of()->set_seconds(asked.as_of().seconds() + 60);
  EXPECT_EQ(refused(asked).find("FIELD_OUT_OF_RANGE as_of: is 60 s in the future"), 0U)
      << refused(asked);
  for (const auto& [seconds, nanos] : {std::pair<int64_t, int32_t>{-1, 0},
                                       {1, -1},
                                       {1, 1'000'000'000},
                                       {INT64_MAX, 0},
                                       {INT64_MIN, 0}}) {
    asked.mutable_as_of()->set_seconds(seconds);
    asked.mutable_as_of()->set_nanos(nanos);
    EXPECT_EQ(refused(asked).find("FIELD_OUT_OF_RANGE as_of: is not a time"), 0U) << refused(asked);
  }
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
  // The job is older than the jobs already processed; the daemon must process it in its next pass.
  age_jobs(10'000, "young");
  EXPECT_EQ(names(collect(request(true)), Item::JOB), (Names{"young"}))
      << "the setting is a request's default";
  v1::CollectGarbageRequest all_stay = request(true);
  all_stay.mutable_keep_jobs()->set_newest(1000);
  EXPECT_TRUE(collect(all_stay).items().empty());
  stop();
  config_.keep_jobs.reset();
  config_.keep_events_seconds = 3600;
  start();
  ASSERT_TRUE(eventually([&] { return get("young").events_thinned(); }));
  EXPECT_FALSE(get("waits").events_thinned());
  run("next");
  EXPECT_TRUE(collect(request(true)).items().empty());
  age_jobs(20'000, "next");
  EXPECT_EQ(names(collect(request(true)), Item::EVENTS), (Names{"next"}))
      << "the setting is a request's default";
  all_stay.set_keep_events_seconds(kKeptSecondsMax);
  EXPECT_TRUE(collect(all_stay).items().empty());
}

TEST_F(ServiceRetention, JobsWithNothingToThinDoNotBlockOthers) {
  constexpr int kCopies = 10'002;  // more than one call returns
  make_dataset();
  run("quiet", "refuse");
  run("talks");
  stop();
  open_store().execute("UPDATE jobs SET newest_seq = 0 WHERE id = 'quiet'");
  copy_job("quiet", kCopies);
  start();
  v1::CollectGarbageRequest asked = request(/*dry_run=*/true);
  asked.set_keep_events_seconds(0);
  v1::CollectGarbageResponse response = collect(asked);
  EXPECT_EQ(names(response, Item::EVENTS), (Names{"talks"}));
  EXPECT_FALSE(response.more());
  EXPECT_EQ(count_jobs("events_thinned > 0"), 0) << "a dry run changes nothing";
  asked.set_dry_run(false);
  EXPECT_EQ(names(collect(asked), Item::EVENTS), (Names{"talks"}));
  EXPECT_EQ(count_jobs("events_thinned = 0"), 0) << "the next one need not read them";
  EXPECT_EQ(count_jobs("events_thinned = 2"), 1);
}

class ServiceDamagedEvents : public ServiceRetention {
 protected:
  static constexpr int kCopies = 50;  // so many that one pass over the jobs needs several batches
  /// Damages an event of a job that is neither the first nor the last one processed.
  void damage_one() {
    make_dataset();
    run("talks");
    stop();
    copy_job("talks", kCopies);
    open_store().execute(
        "UPDATE events SET payload = x'ffffff' WHERE seq = 2 AND job ="
        " (SELECT number FROM jobs WHERE id = 'copy-3')");
  }
};

TEST_F(ServiceDamagedEvents, AreKeptAndReportedByGarbageCollection) {
  damage_one();
  start();
  for (const bool dry_run : {true, false}) {
    v1::CollectGarbageRequest asked = request(dry_run);
    asked.set_keep_events_seconds(0);
    v1::CollectGarbageResponse response;
    const grpc::Status s = system_->CollectGarbage(context().get(), asked, &response);
    ASSERT_TRUE(s.ok()) << s.error_message();
    EXPECT_EQ(response.items_size(), kCopies) << "all but one, and the job itself";
    ASSERT_EQ(response.warnings_size(), 1);
    EXPECT_EQ(response.warnings(0).find("projects/default/jobs/copy-3: "), 0U)
        << response.warnings(0);
  }
  EXPECT_EQ(count_jobs("events_thinned = 0"), 1);
}

TEST_F(ServiceDamagedEvents, DoNotBlockRetentionOfLaterJobs) {
  damage_one();
  age_jobs(7200);
  config_.keep_events_seconds = 3600;
  start();
  EXPECT_TRUE(eventually([&] { return count_jobs("events_thinned = 2") == kCopies; }))
      << count_jobs("events_thinned = 2");
  EXPECT_EQ(count_jobs("events_thinned = 0 AND id = 'copy-3'"), 1);
}

/// A file system that throws an exception, although the code expects errors as return values.
class ThrowingFiles final : public UnsyncedFiles {
 public:
  Status remove_all(const fs::path& path) override {
    if (throws && path.parent_path().filename() == "jobs") {
      throws = false;
      throw std::runtime_error("a fault");
    }
    return UnsyncedFiles::remove_all(path);
  }
  std::atomic<bool> throws = false;
};

TEST_F(ServiceRetention, AFaultDoesNotEndTheDaemonsRules) {
  make_dataset();
  run("aged");
  run("young");
  stop();
  age_jobs(7200, "aged");
  config_.keep_jobs.emplace().newest = 0;
  const auto files = std::make_shared<ThrowingFiles>();
  files->throws = true;
  change_parts_ = [files](DaemonParts& parts) {
    parts.files = files.get();
    parts.housekeeping_pause_ms = 20;
  };
  start();
  ASSERT_TRUE(eventually([&] { return !files->throws.load(); }));
  age_jobs(7200, "young");
  EXPECT_TRUE(eventually([&] { return jobs().empty(); }));
}

/// Tests the rules on a store without a daemon.
class RetentionPieces : public ::testing::Test {
 protected:
  EndedJob end_job(int logs) {
    const Job job = run_job(*store_);
    AttemptUpdate update = update_of(job);
    for (int i = 0; i < logs; ++i) update.events.push_back(log_event("line"));
    update.move = move_to(JobState::kFailed);
    EXPECT_TRUE(answer_of(store_->jobs(), &JobStore::update_attempt, std::move(update)).ok());
    return store_->jobs().list_ended({}).value().back();
  }
  int64_t commits() const {
    Connection db(directory_.path() / "trainyard.db", Connection::Mode::kReadOnly, 1000);
    Query query(db, "SELECT value FROM settings WHERE key = 'commit'");
    return query.step() ? std::stoll(query.text(0)) : -1;
  }
  EventsThinned thinned(const EndedJob& job) {
    return store_->jobs().find_uid(job.uid).value().events_thinned;
  }

  TemporaryDirectory directory_;
  FakeClock clock_;
  std::unique_ptr<Store> store_ = open_or_die(small_options(directory_.path()), clock_);
  StatePaths paths_{directory_.path()};
  std::function<int64_t()> since_boot_ = [this] { return clock_.steady_us(); };
  ClockJumps jumps_{local_files(), directory_.path() / "clock", clock_, "boot", since_boot_};
  Retention retention_{*store_, local_files(), paths_, clock_, jumps_};
};

// The clock jumped by 400 days, and the next start removed jobs that had ended minutes before.
TEST_F(RetentionPieces, AJumpOfTheClockMakesNoJobOld) {
  constexpr int64_t kDayUs = int64_t{24} * 3600 * 1'000'000;
  KeptJobs kept;
  kept.younger_than_seconds = 30 * 24 * 3600;
  const auto expired = [&] {
    const auto jobs = retention_.list_expired(kept, clock_.wall_us(), nullptr, 100);
    EXPECT_TRUE(jobs.ok());
    return std::ssize(*jobs);
  };
  end_job(1);
  jumps_.observe();
  clock_.set_wall(clock_.wall_us() + 400 * kDayUs);
  // The next daemon of the same boot finds the jump by the file.
  ClockJumps next(local_files(), directory_.path() / "clock", clock_, "boot", since_boot_);
  next.observe();
  jumps_.observe();
  EXPECT_EQ(expired(), 0);
  end_job(1);
  clock_.pass(29 * kDayUs);
  EXPECT_EQ(expired(), 0);
  EXPECT_EQ(next.ended_before(clock_.wall_us(), 30 * kDayUs),
            jumps_.ended_before(clock_.wall_us(), 30 * kDayUs));
  clock_.pass(2 * kDayUs);
  EXPECT_EQ(expired(), 2) << "31 days after both ends";
}

TEST_F(RetentionPieces, AJumpThatIsTakenBackIsForgotten) {
  constexpr int64_t kDayUs = int64_t{24} * 3600 * 1'000'000;
  const auto age_of = [&](int64_t age_us) {
    return clock_.wall_us() - jumps_.ended_before(clock_.wall_us(), age_us);
  };
  jumps_.observe();
  clock_.set_wall(clock_.wall_us() + 400 * kDayUs);
  jumps_.observe();
  clock_.pass(kDayUs);
  EXPECT_EQ(age_of(2 * kDayUs), 402 * kDayUs);
  EXPECT_EQ(age_of(kDayUs / 2), kDayUs / 2) << "after the jump";
  clock_.set_wall(clock_.wall_us() - 400 * kDayUs);
  jumps_.observe();
  EXPECT_EQ(age_of(2 * kDayUs), 2 * kDayUs);
  clock_.set_wall(clock_.wall_us() + 30'000'000);  // an adjustment
  jumps_.observe();
  EXPECT_EQ(age_of(kDayUs), kDayUs);
}

TEST_F(RetentionPieces, OtherChangesRunBetweenAThousandRows) {
  std::vector<EndedJob> jobs;
  for (int i = 0; i < 20; ++i) jobs.push_back(end_job(600));
  const int64_t before = commits();
  for (const Status& s : retention_.thin(jobs, [] { return false; })) {
    EXPECT_TRUE(s.ok()) << s.error().message;
  }
  EXPECT_GE(commits() - before, 20) << "two of them would be more than a thousand";
  for (const EndedJob& job : jobs) EXPECT_EQ(thinned(job), EventsThinned::kDone);
}

TEST_F(RetentionPieces, AnInterruptedRemovalIsNotReportedAsDone) {
  const std::vector<EndedJob> jobs = {end_job(2500), end_job(10)};
  int asked = 0;
  const std::vector<Status> cut = retention_.thin(jobs, [&] { return ++asked > 1; });
  ASSERT_EQ(cut.size(), 2U);
  for (const Status& s : cut) {
    ASSERT_FALSE(s.ok());
    EXPECT_EQ(s.error().reason, Retention::kStopped);
  }
  EXPECT_EQ(thinned(jobs[0]), EventsThinned::kBegun);
  EXPECT_EQ(thinned(jobs[1]), EventsThinned::kNo);
  const std::vector<Status> kept = retention_.remove(jobs, [] { return true; });
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_FALSE(kept[1].ok());
  for (const Status& s : retention_.thin(jobs, [] { return false; })) EXPECT_TRUE(s.ok());
  for (const EndedJob& job : jobs) EXPECT_EQ(thinned(job), EventsThinned::kDone);
}

// Fails if a fault can delete the files of all jobs instead of one job's.
TEST_F(RetentionPieces, OnlyFilesOfTheJobAreRemoved) {
  const EndedJob ended = end_job(1);
  EndedJob runs = ended;
  runs.state = JobState::kRunning;
  EXPECT_THROW(retention_.remove({&runs, 1}, [] { return false; }), InvariantError);
  EndedJob nobody = ended;
  nobody.uid.clear();
  EXPECT_THROW(retention_.remove({&nobody, 1}, [] { return false; }), InvariantError);
  EXPECT_TRUE(store_->jobs().find_uid(ended.uid).ok());

  const std::filesystem::path root = directory_.path();
  EXPECT_TRUE(paths_.holds(paths_.job(ended.uid)));
  EXPECT_TRUE(paths_.holds(paths_.upload_part("default", "sha256", 7)));
  const StatePaths same(root / "");
  EXPECT_TRUE(same.holds(same.job(ended.uid)));
  EXPECT_FALSE(same.holds(same.job("")));
  for (const std::filesystem::path& path :
       {root, root / "", root / "jobs", paths_.job(""), paths_.job("."), paths_.job(".."),
        paths_.model("../x/../../jobs"), root / "jobs/../../other/x", root.parent_path(),
        std::filesystem::path("jobs/x"), std::filesystem::path()}) {
    EXPECT_FALSE(paths_.holds(path)) << path;
    EXPECT_THROW((void)remove_kept(local_files(), paths_, path), InvariantError) << path;
  }
  std::filesystem::create_directories(paths_.job(ended.uid));
  EXPECT_THROW(tidy_ended_job(paths_, "", /*succeeded=*/false), InvariantError);
  Supervisor supervisor{SupervisorOptions{}, clock_};
  IngestRunner ingests(*store_, supervisor, local_files(), paths_, {});
  EXPECT_THROW(ingests.enqueue(Dataset()), InvariantError);
  // A wrong path from a damaged store is refused without a failed check.
  ASSERT_TRUE(store_->removals().note("jobs").ok());
  finish_removals(*store_, local_files(), paths_);
  EXPECT_TRUE(std::filesystem::exists(paths_.job(ended.uid)));
}

TEST_F(ServiceRetention, TheFolderOfAnEndedJobKeepsUsefulFiles) {
  make_dataset();
  run("done");
  submit("runs", "wait_for_stop");
  wait_for("runs", v1::RUNNING);
  const std::string done = get("done").uid();
  const std::string runs = get("runs").uid();
  ASSERT_TRUE(eventually([&] { return !fs::exists(paths().job(done)); }))
      << "it has no checkpoint: nothing is left";
  stop();
  // Files that a killed daemon left behind.
  const auto write = [](const fs::path& path) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
  };
  for (const std::string& uid : {done, runs}) {
    write(paths().checkpoints(uid) / "step-000000005/weights.safetensors");
    write(paths().checkpoints(uid) / "step-000000010.tmp/weights.safetensors");
    write(paths().checkpoints(uid) / "step-000000005/optimizer.safetensors");
    write(paths().checkpoints(uid) / "step-000000005/state.json");
    write(paths().checkpoints(uid) / "step-000000003/state.json");  // half removed
    write(paths().spool(uid, 7));
  }
  write(config_.state_dir / "models" / (done + ".tmp") / "model.safetensors");
  fs::create_directories(paths().checkpoints("0123456789abcdef"));
  start();
  ASSERT_TRUE(eventually([&] {
    return !fs::exists(paths().spool(done, 7)) &&
           !fs::exists(paths().checkpoints(done) / "step-000000010.tmp") &&
           !fs::exists(paths().checkpoints(done) / "step-000000003") &&
           !fs::exists(config_.state_dir / "models" / (done + ".tmp"));
  }));
  EXPECT_TRUE(fs::exists(paths().checkpoints(done) / "step-000000005/weights.safetensors"));
  EXPECT_TRUE(fs::exists(paths().model(done) / "model.safetensors"));
  EXPECT_TRUE(fs::exists(paths().checkpoints(runs) / "step-000000010.tmp")) << "it is unfinished";
  EXPECT_TRUE(fs::exists(paths().checkpoints("0123456789abcdef"))) << "it may be a fork's";
}

}  // namespace
}  // namespace trainyard::server
