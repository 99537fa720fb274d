// tests/server/store_support.h: a store in a temporary directory, and a clock that the test sets.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "server/store/event_rows.h"
#include "server/store/store.h"
#include "server/store/wait_for.h"
#include "tests/server/fake_clock.h"
#include "tests/support/patience.h"

namespace trainyard::server {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    // Uses /dev/shm if possible: the tests check what is written when, not the speed of a disk.
    const std::filesystem::path memory = "/dev/shm";
    const bool usable = ::access(memory.c_str(), W_OK | X_OK) == 0;
    const std::filesystem::path base = usable ? memory : std::filesystem::temp_directory_path();
    std::string pattern = (base / "store_test_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline StoreOptions small_options(const std::filesystem::path& directory) {
  StoreOptions options;
  options.state_dir = directory;
  options.reserve_bytes = 0;
  return options;
}

inline std::unique_ptr<Store> open_or_die(const StoreOptions& options,
                                          const Clock& clock = system_clock()) {
  Result<std::unique_ptr<Store>> store = Store::open(options, clock);
  if (!store.ok()) {
    ADD_FAILURE() << store.error().reason << ": " << store.error().message;
    std::abort();
  }
  return std::move(*store);
}

inline NewJob new_job(std::string id = "") {
  NewJob job;
  job.project = "default";
  job.id = std::move(id);
  job.spec.mutable_dataset()->set_name("projects/default/datasets/digits@1");
  job.spec.mutable_recipe()->set_epochs(3);
  return job;
}

/// Selects the jobs of the default project.
inline JobQuery all_jobs() {
  JobQuery query;
  query.projects = {"default"};
  return query;
}

inline AttemptUpdate update_of(const Job& job, int64_t number = 0) {
  AttemptUpdate update;
  update.job_uid = job.uid;
  update.attempt = job.attempt;
  update.report_number = number;
  return update;
}
inline Move move_to(JobState to, std::string reason = "TEST") {
  Move move;
  move.to = to;
  move.reason = std::move(reason);
  move.message = "By a test.";
  return move;
}
inline v1::Event log_event(std::string text) {
  v1::Event event;
  event.mutable_log()->set_text(std::move(text));
  return event;
}

/// Brings a new job to RUNNING.
inline Job run_job(Store& store, NewJob job = new_job()) {
  Job j = store.jobs().submit(std::move(job)).value();
  j = store.jobs()
          .start_attempt(j.uid, {"devices/cpu"}, "nonce", "DEVICE_ASSIGNED", "On the CPU.")
          .value();
  AttemptUpdate started = update_of(j, 1);
  started.move = move_to(JobState::kRunning);
  return answer_of(store.jobs(), &JobStore::update_attempt, std::move(started)).value();
}

/// Puts every job that is starting or running back into the queue.
inline void requeue_active(Store& store) {
  const std::vector<Job> active = store.jobs().list_active().value();
  for (const Job& job : active) {
    AttemptUpdate lost = update_of(job);
    lost.move = move_to(JobState::kQueued);
    const Result<Job> moved = answer_of(store.jobs(), &JobStore::update_attempt, std::move(lost));
    EXPECT_TRUE(moved.ok()) << moved.error().message;
  }
}

/// One batch of a job's events.
struct EventBatch : EventRange {
  std::vector<v1::Event> events;  // in order, without a gap
};
inline Result<EventBatch> read_events(const JobStore& jobs, const std::string& uid, int64_t after,
                                      int32_t count_max) {
  EventBatch batch;
  ASSIGN_OR_RETURN(
      static_cast<EventRange&>(batch),
      jobs.visit_events(uid, after, count_max, 1 << 20, [&](int64_t, std::string_view bytes) {
        v1::Event& event = batch.events.emplace_back();
        EXPECT_TRUE(unpack_event(bytes, event));
      }));
  return batch;
}

/// Returns all events of a job, read in small batches; fails the test on a gap.
inline std::vector<v1::Event> all_events(Store& store, const std::string& uid) {
  std::vector<v1::Event> events;
  for (;;) {
    const EventBatch batch =
        read_events(store.jobs(), uid, static_cast<int64_t>(events.size()), 7).value();
    if (batch.events.empty()) {
      EXPECT_EQ(batch.newest_seq, static_cast<int64_t>(events.size()));
      return events;
    }
    for (const v1::Event& e : batch.events) {
      EXPECT_EQ(e.seq(), static_cast<int64_t>(events.size()) + 1);
      events.push_back(e);
    }
  }
}

}  // namespace trainyard::server
