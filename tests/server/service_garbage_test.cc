// Tests of garbage collection. They fail if it deletes something that is still needed, counts bytes
// that are not freed, or reports something other than it does.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "server/config/paths.h"
#include "server/store/migrations.h"
#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;
using Item = v1::CollectGarbageResponse::Item;

class ServiceGarbage : public ServiceTest {
 protected:
  StatePaths paths() const { return StatePaths(config_.state_dir); }
  fs::path checkpoints(const std::string& job) { return paths().checkpoints(get(job).uid()); }
  /// Creates the folder. Retries if the daemon deletes a parent at that moment, as it does with an
  /// ended job's empty folders.
  static void make_folder(const fs::path& folder) {
    std::error_code ec;
    do {
      fs::create_directories(folder, ec);
    } while (ec == std::errc::no_such_file_or_directory);
    ASSERT_FALSE(ec) << ec.message();
  }
  /// Creates a checkpoint file of `bytes` bytes for the job.
  void add_checkpoint(const std::string& job, size_t bytes) {
    make_folder(checkpoints(job) / "step-000000005");
    const fs::path folder = checkpoints(job) / "step-000000005";
    std::ofstream(folder / "weights.safetensors") << std::string(bytes, 'w');
    // Without these two, housekeeping would take it for a checkpoint that was half removed.
    std::ofstream(folder / "optimizer.safetensors").close();
    std::ofstream(folder / "state.json").close();
  }
  static void write(const fs::path& path, size_t bytes) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << std::string(bytes, 'x');
  }
  /// Sets the modification times of `path` and everything below it two hours back.
  static void age(const fs::path& path) {
    const auto then = fs::file_time_type::clock::now() - std::chrono::hours(2);
    if (fs::is_directory(path)) {
      for (const auto& entry : fs::recursive_directory_iterator(path)) {
        fs::last_write_time(entry.path(), then);
      }
    }
    fs::last_write_time(path, then);
  }

  static v1::CollectGarbageRequest request(bool dry_run, int64_t older_than_seconds = 0) {
    v1::CollectGarbageRequest request;
    request.set_dry_run(dry_run);
    request.set_older_than_seconds(older_than_seconds);
    return request;
  }
  v1::CollectGarbageResponse collect(const v1::CollectGarbageRequest& asked) {
    v1::CollectGarbageResponse response;
    const grpc::Status s = system_->CollectGarbage(context().get(), asked, &response);
    EXPECT_TRUE(s.ok()) << s.error_message();
    int64_t freed = 0;
    for (const Item& item : response.items()) {
      EXPECT_FALSE(item.reason().empty());
      freed += item.freed_bytes();
    }
    EXPECT_EQ(response.freed_bytes(), freed);
    EXPECT_EQ(response.warnings_size(), 0) << response.warnings(0);
    return response;
  }
  static std::set<std::string> names(const v1::CollectGarbageResponse& response) {
    std::set<std::string> names;
    for (const Item& item : response.items()) {
      EXPECT_TRUE(names.insert(item.name()).second) << item.name() << " twice";
    }
    return names;
  }
};

const std::string kJobs = "projects/default/jobs/";

TEST_F(ServiceGarbage, RemovesCheckpointsOfSucceededJobsAndListsThemInADryRun) {
  make_dataset();
  for (const char* id : {"done", "failed", "cancelled", "runs"}) {
    const std::string act = id;
    submit(id, act == "done" ? "" : act == "failed" ? "refuse" : "wait_for_stop");
    if (act == "cancelled") {
      wait_for(id, v1::RUNNING);
      v1::Job job;
      ASSERT_TRUE(cancel(id, &job).ok());
      wait_for(id, v1::CANCELLED);
    }
  }
  wait_for("done", v1::SUCCEEDED);
  wait_for("failed", v1::FAILED);
  wait_for("runs", v1::RUNNING);
  submit("waits", "wait_for_stop");
  submit("waits-too", "wait_for_stop");
  for (const char* id : {"done", "failed", "cancelled", "runs", "waits", "waits-too"}) {
    add_checkpoint(id, 1000);
  }
  v1::CollectGarbageResponse planned = collect(request(/*dry_run=*/true));
  EXPECT_EQ(names(planned), (std::set<std::string>{kJobs + "done"}));
  EXPECT_EQ(planned.items(0).kind(), Item::CHECKPOINTS);
  EXPECT_EQ(planned.freed_bytes(), 1000);
  EXPECT_TRUE(fs::exists(checkpoints("done") / "step-000000005")) << "a dry run removes nothing";

  v1::CollectGarbageRequest named = request(false);
  *named.mutable_as_of() = planned.as_of();
  const v1::CollectGarbageResponse done = collect(named);
  EXPECT_EQ(done.SerializeAsString(), planned.SerializeAsString());
  EXPECT_FALSE(fs::exists(checkpoints("done")));
  EXPECT_TRUE(fs::exists(paths().model(get("done").uid()) / "model.safetensors"));
  EXPECT_TRUE(names(collect(request(false))).empty()) << "nothing twice";

  v1::CollectGarbageRequest unsuccessful = request(false);
  unsuccessful.set_unsuccessful_jobs(true);
  EXPECT_EQ(names(collect(unsuccessful)),
            (std::set<std::string>{kJobs + "failed", kJobs + "cancelled"}));
  for (const char* id : {"runs", "waits", "waits-too"}) {
    EXPECT_TRUE(fs::exists(checkpoints(id) / "step-000000005")) << id;
  }
}

TEST_F(ServiceGarbage, AJobWhoseCheckpointsWereRemovedSaysSo) {
  make_dataset();
  submit("done", "die_once");
  wait_for("done", v1::SUCCEEDED);
  ASSERT_GT(get("done").checkpoint_step(), 0);
  collect(request(true));
  EXPECT_GT(get("done").checkpoint_step(), 0);
  collect(request(false));
  EXPECT_EQ(get("done").checkpoint_step(), 0);
  v1::ListCheckpointsRequest list;
  list.set_name(kJobs + "done");
  v1::ListCheckpointsResponse listed;
  ASSERT_TRUE(jobs_->ListCheckpoints(context().get(), list, &listed).ok());
  EXPECT_EQ(listed.checkpoints_size(), 0);
  v1::ForkJobRequest fork;
  fork.set_name(kJobs + "done");
  v1::Job job;
  const grpc::Status refused = jobs_->ForkJob(context().get(), fork, &job);
  EXPECT_EQ(reason_of(refused), "CHECKPOINT_NOT_FOUND");
  EXPECT_NE(refused.error_message().find("has no checkpoint"), std::string::npos);
  stop();
  start();
  EXPECT_EQ(get("done").checkpoint_step(), 0) << "after a restart too";
}

TEST_F(ServiceGarbage, RecentJobsAndJobsWithoutAModelAreKept) {
  make_dataset();
  submit("done", "");
  wait_for("done", v1::SUCCEEDED);
  add_checkpoint("done", 1000);
  EXPECT_TRUE(names(collect({})).empty()) << "the default is days";
  EXPECT_TRUE(names(collect(request(false, 3600))).empty());
  v1::DeleteModelRequest remove;
  remove.set_name("projects/default/models/done");
  google::protobuf::Empty empty;
  ASSERT_TRUE(models_->DeleteModel(context().get(), remove, &empty).ok());
  EXPECT_TRUE(names(collect(request(false))).empty()) << "its checkpoint is all there is of it";
  EXPECT_TRUE(fs::exists(checkpoints("done") / "step-000000005"));
}

TEST_F(ServiceGarbage, FilesSharedWithAnotherJobFreeNoSpace) {
  make_dataset();
  for (const char* id : {"parent", "fork"}) {
    submit(id, "");
    wait_for(id, v1::SUCCEEDED);
  }
  submit("running-fork", "wait_for_stop");
  wait_for("running-fork", v1::RUNNING);
  add_checkpoint("parent", 1000);
  const auto link = [&](const char* job) {
    make_folder(checkpoints(job) / "step-000000005");
    fs::create_hard_link(checkpoints("parent") / "step-000000005/weights.safetensors",
                         checkpoints(job) / "step-000000005/weights.safetensors");
  };
  link("fork");
  std::ofstream(checkpoints("fork") / "own") << std::string(10, 'o');
  v1::CollectGarbageResponse both = collect(request(true));
  EXPECT_EQ(names(both).size(), 2u);
  EXPECT_EQ(both.freed_bytes(), 1010) << "once, with the last of its names";
  for (const Item& item : both.items()) EXPECT_EQ(item.shared_bytes(), 0) << item.name();
  link("running-fork");
  both = collect(request(false));
  EXPECT_EQ(both.freed_bytes(), 10);
  for (const Item& item : both.items()) EXPECT_EQ(item.shared_bytes(), 1000) << item.name();
  EXPECT_EQ(fs::file_size(checkpoints("running-fork") / "step-000000005/weights.safetensors"),
            1000u);
}

TEST_F(ServiceGarbage, RemovesUnreferencedFilesAfterAnHour) {
  make_dataset();
  submit("done", "");
  wait_for("done", v1::SUCCEEDED);
  submit("runs", "wait_for_stop");
  wait_for("runs", v1::RUNNING);
  const fs::path root = config_.state_dir;
  const std::vector<std::string> left = {"jobs/0123", "models/0123", "datasets/abc.tmp",
                                         "uploads/notes"};
  for (const std::string& name : left) {
    write(name == "uploads/notes" ? root / name : root / name / "a/file", 100);
    age(root / name);
  }
  write(root / "jobs/forked/checkpoints/step-000000005.tmp/weights.safetensors", 100);
  age(root / "jobs/forked");
  // A file written just now protects its folder.
  write(root / "jobs/forked/checkpoints/step-000000005.tmp/state.json", 1);
  for (const auto& folder : {"jobs", "models", "datasets", "uploads"}) {
    for (const auto& entry : fs::directory_iterator(root / folder)) {
      // The grace period must not protect any of the other folders.
      if (entry.path().filename() != "forked") age(entry.path());
    }
  }
  // An unreadable copy of the store in another schema might refer to any of these files.
  const fs::path copy =
      root / ("trainyard.db.schema-" + std::to_string(newest_schema_version() + 1));
  write(copy, 100);
  age(copy);
  EXPECT_EQ(names(collect(request(false, 3600))), std::set<std::string>());
  EXPECT_TRUE(fs::exists(copy));
  fs::remove(copy);
  const v1::CollectGarbageResponse done = collect(request(false, 3600));
  EXPECT_EQ(names(done), (std::set<std::string>(left.begin(), left.end())));
  EXPECT_EQ(done.freed_bytes(), 400);
  for (const std::string& name : left) EXPECT_FALSE(fs::exists(root / name)) << name;
  EXPECT_TRUE(fs::exists(root / "jobs/forked")) << "somebody makes a job of it";
  EXPECT_TRUE(fs::exists(paths().job(get("runs").uid())));
  EXPECT_TRUE(fs::exists(paths().model(get("done").uid())));
  EXPECT_EQ(get_dataset(dataset_.name()).state(), v1::Dataset::READY);
  EXPECT_FALSE(fs::is_empty(root / "uploads")) << "the dataset's, which is not an hour old";
}

TEST_F(ServiceGarbage, AnActiveUploadIsKeptAtAnyAge) {
  const std::string content(100'000, 'c');
  v1::Upload up;
  ASSERT_TRUE(upload(content, &up, /*finish=*/false).ok());
  const fs::path part = paths().upload_part("default", sha256_hex(content), std::ssize(content));
  ASSERT_TRUE(fs::exists(part));
  age(part);
  // A link of both names exists while an upload is being completed.
  fs::create_hard_link(part, paths().upload(sha256_hex(content)));
  age(paths().upload(sha256_hex(content)));
  EXPECT_TRUE(names(collect(request(false))).empty());
  EXPECT_TRUE(fs::exists(part));
  EXPECT_TRUE(fs::exists(paths().upload(sha256_hex(content))));
}

TEST_F(ServiceGarbage, RefusesABadAgeAndWaitsForABackup) {
  v1::CollectGarbageResponse response;
  const grpc::Status bad = system_->CollectGarbage(context().get(), request(true, -1), &response);
  EXPECT_EQ(reason_of(bad), "FIELD_OUT_OF_RANGE");
  EXPECT_NE(bad.error_message().find("older_than_seconds: -1"), std::string::npos);
  v1::Upload up;
  ASSERT_TRUE(upload(std::string(8 << 20, 'x'), &up).ok());  // more than a stream buffers
  auto c = context();
  auto backup = system_->Backup(c.get(), {});
  v1::BackupResponse message;
  ASSERT_TRUE(backup->Read(&message));
  const grpc::Status busy = system_->CollectGarbage(context().get(), request(true), &response);
  EXPECT_EQ(busy.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(reason_of(busy), "GC_BUSY");
  while (backup->Read(&message)) {
  }
  EXPECT_TRUE(backup->Finish().ok());
  EXPECT_TRUE(eventually(
      [&] { return system_->CollectGarbage(context().get(), request(true), &response).ok(); }));
}

}  // namespace
}  // namespace trainyard::server
