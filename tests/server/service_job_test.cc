// Tests of jobs through the whole daemon, over gRPC, with a worker that misbehaves on request.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <fstream>
#include <optional>

#include "proto/convert/run.h"
#include "proto/metrics/packed_metrics.h"
#include "server/config/paths.h"
#include "server/handlers/watch.h"
#include "server/inventory/checked_inventory.h"
#include "tests/server/service_support.h"
#include "tests/support/patience.h"
#include "tests/support/tiny_model.h"

namespace trainyard::server {
namespace {

class ServiceJob : public ServiceTest {
 protected:
  void SetUp() override {
    config_.heartbeat_timeout_seconds = 5;  // a loaded machine may delay a process by two seconds
    ServiceTest::SetUp();
    make_dataset();
  }

  static void expect_gapless(const std::vector<v1::Event>& events, int64_t after) {
    for (size_t i = 0; i < events.size(); ++i) {
      ASSERT_EQ(events[i].seq(), after + 1 + static_cast<int64_t>(i));
    }
  }
};

TEST_F(ServiceJob, GoesFromSubmitToAModel) {
  const v1::Job submitted = submit("first-job", "");
  EXPECT_EQ(submitted.name(), "projects/default/jobs/first-job");
  EXPECT_EQ(submitted.state(), v1::QUEUED);
  EXPECT_EQ(submitted.spec().dataset().name(), "projects/default/datasets/iris@1");
  EXPECT_EQ(submitted.spec().resources().threads(), 1) << "the default is recorded";
  EXPECT_GT(submitted.plan().parameter_count(), 0);
  EXPECT_FALSE(submitted.uid().empty());
  const v1::Job done = wait_for("first-job", v1::SUCCEEDED);
  EXPECT_EQ(done.model(), "projects/default/models/first-job");
  EXPECT_EQ(done.attempt(), 1);
  EXPECT_EQ(done.device(), "devices/cpu");
  EXPECT_EQ(done.progress().metrics().at("val/accuracy"), 0.75);

  v1::GetModelRequest request;
  request.set_name(done.model());
  v1::Model model;
  ASSERT_TRUE(models_->GetModel(context().get(), request, &model).ok());
  EXPECT_EQ(model.digest(), sha256_hex(tiny_weights()));
  EXPECT_EQ(model.parameter_count(), 83);
  EXPECT_EQ(model.schema().classes_size(), 3);

  v1::DownloadModelRequest download;
  download.set_name(done.model());
  auto c = context();
  auto stream = models_->DownloadModel(c.get(), download);
  v1::DownloadModelResponse part;
  std::string names, bytes;
  while (stream->Read(&part)) {
    if (part.has_header()) {
      names += part.header().filename() + " ";
      EXPECT_EQ(part.header().sha256().size(), 64u);
    }
    bytes += part.data();
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(names, "model.safetensors model.json ");
  EXPECT_EQ(bytes, tiny_weights() + kTinyModelJson);
}

TEST_F(ServiceJob, WatchReplaysThenFollowsWithoutAGap) {
  submit("watched", "die_once");
  grpc::Status end;
  v1::WatchJobResponse::Start start;
  const std::vector<v1::Event> all = watch("watched", 0, &end, &start);
  EXPECT_TRUE(end.ok()) << end.error_message();
  EXPECT_EQ(start.job().name(), "projects/default/jobs/watched");
  expect_gapless(all, 0);
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().state().state(), v1::SUCCEEDED) << "ends after the terminal event";
  const std::vector<v1::Event> tail = watch("watched", 3, &end);
  expect_gapless(tail, 3);
  EXPECT_EQ(tail.size(), all.size() - 3);
  const auto newest = static_cast<int64_t>(all.size());
  EXPECT_TRUE(watch("watched", newest, &end).empty());
  EXPECT_TRUE(end.ok());
  watch("watched", newest + 1, &end);
  EXPECT_EQ(end.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(reason_of(end), "SEQUENCE_IN_FUTURE");
  watch("watched", -1, &end);
  EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  watch("no-such-job", 0, &end);
  EXPECT_EQ(reason_of(end), "JOB_NOT_FOUND");
}

TEST_F(ServiceJob, F07AKilledWorkerIsReplacedAndResumesFromTheCheckpoint) {
  submit("dies-once", "die_once");
  const v1::Job done = wait_for("dies-once", v1::SUCCEEDED);
  EXPECT_EQ(done.attempt(), 2);
  grpc::Status end;
  bool queued_again = false, resumed = false, last_words = false;
  for (const v1::Event& e : watch("dies-once", 0, &end)) {
    if (e.state().state() == v1::QUEUED && e.state().reason() == "WORKER_KILLED") {
      queued_again = e.state().message().find("signal 9") != std::string::npos;
    }
    resumed = resumed || (e.state().state() == v1::RUNNING && e.state().resumed_from_step() == 5);
    last_words = last_words || e.log().text().find("about to die") != std::string::npos;
  }
  EXPECT_TRUE(queued_again);
  EXPECT_TRUE(resumed);
  EXPECT_TRUE(last_words);
}

TEST_F(ServiceJob, F09AWorkerThatEndsWithoutAnOutcomeHasNotSucceeded) {
  submit("ends-silently", "exit_silently");
  EXPECT_EQ(wait_for("ends-silently", v1::FAILED).reason(), "WORKER_PROTOCOL_ERROR");
}

TEST_F(ServiceJob, F10ASilentWorkerIsKilledBeforeItsJobIsRequeued) {
  submit("hangs", "hang");
  wait_for("hangs", v1::RUNNING);
  ASSERT_TRUE(eventually([&] { return get("hangs").attempt() >= 2; }));
  grpc::Status end;
  v1::Job job;
  ASSERT_TRUE(cancel("hangs", &job).ok());
  wait_for("hangs", v1::CANCELLED);
  bool hung = false;
  for (const v1::Event& e : watch("hangs", 0, &end)) {
    hung = hung || e.state().reason() == "WORKER_NOT_RESPONDING";
  }
  EXPECT_TRUE(hung);
}

TEST_F(ServiceJob, F11AStalledWorkerIsKilledAndThreeStallsFailTheJob) {
  submit("stalls", "stall");
  submit("slow", "slow");
  const v1::Job stalled = wait_for("stalls", v1::FAILED);
  EXPECT_EQ(stalled.reason(), "WORKER_STALLED");
  EXPECT_EQ(stalled.attempt(), 3);
  EXPECT_NE(stalled.message().find("The worker made no progress for 1 s and was killed at step 0."),
            std::string::npos)
      << stalled.message();
  grpc::Status end;
  int back = 0;
  for (const v1::Event& e : watch("stalls", 0, &end)) {
    if (e.state().state() == v1::QUEUED && e.state().reason() == "WORKER_STALLED") ++back;
  }
  EXPECT_EQ(back, 2) << "it is tried again, from its checkpoint";
  EXPECT_EQ(wait_for("slow", v1::SUCCEEDED).attempt(), 1)
      << "as long, but its steps take longer still";
}

TEST_F(ServiceJob, ARefusalByTheWorkerFailsTheJobWithItsReason) {
  submit("refused", "refuse");
  submit("faulty", "fault");
  const v1::Job refused = wait_for("refused", v1::FAILED);
  EXPECT_EQ(refused.reason(), "LOSS_NOT_FINITE");
  EXPECT_EQ(refused.message(), "step 3: NaN");
  const v1::Job faulty = wait_for("faulty", v1::FAILED);
  EXPECT_EQ(faulty.reason(), "OUT_OF_MEMORY");
  EXPECT_EQ(faulty.attempt(), 1) << "out of memory is never retried unchanged";
}

TEST_F(ServiceJob, F29AKernelFaultIsRetriedTwiceAndReported) {
  submit("astray", "kernel_fault");
  const v1::Job astray = wait_for("astray", v1::FAILED);
  EXPECT_EQ(astray.reason(), "CRASH_LOOP");
  EXPECT_EQ(astray.attempt(), 3);
  EXPECT_NE(astray.message().find("A kernel failed on devices/cpu after step 4: conv1 (Conv): an "
                                  "error (error 7)"),
            std::string::npos)
      << astray.message();
  grpc::Status end;
  std::vector<std::string> reported;
  for (const v1::Event& e : watch("astray", 0, &end)) {
    if (e.state().reason() == "KERNEL_FAULT") reported.push_back(e.state().message());
  }
  ASSERT_EQ(reported.size(), 2u);
  EXPECT_EQ(reported[0], "A kernel failed on devices/cpu after step 4: an error (error 7)")
      << "nobody had asked yet which node it is";
  EXPECT_NE(reported[1].find("conv1 (Conv)"), std::string::npos) << reported[1];
}

TEST_F(ServiceJob, ADeviceFaultRequeuesTheJob) {
  submit("ailing", "device_fault");
  ASSERT_TRUE(eventually([&] { return get("ailing").attempt() >= 4; }))
      << "more often than where a kernel failed";
  v1::Job job;
  ASSERT_TRUE(cancel("ailing", &job).ok());
  wait_for("ailing", v1::CANCELLED);
  grpc::Status end;
  int reported = 0;
  for (const v1::Event& e : watch("ailing", 0, &end)) {
    if (e.state().reason() != "DEVICE_FAULT") continue;
    EXPECT_EQ(e.state().message(),
              "The device devices/cpu failed after step 4: an error (error 7)");
    ++reported;
  }
  EXPECT_GE(reported, 3);
}

// The GPU is in exclusive compute mode. This is no failure, so no loss is counted and the pause
// does not grow.
TEST_F(ServiceJob, ADeviceInUseByAnotherProcessRequeuesTheJob) {
  submit("patient", "busy_twice");
  const v1::Job patient = wait_for("patient", v1::SUCCEEDED);
  EXPECT_EQ(patient.attempt(), 3);
  grpc::Status end;
  int reported = 0;
  for (const v1::Event& e : watch("patient", 0, &end)) {
    if (e.state().reason() != "DEVICE_BUSY") continue;
    EXPECT_EQ(e.state().state(), v1::QUEUED);
    EXPECT_EQ(e.state().message(), "devices/cpu: another process has it.");
    ++reported;
  }
  EXPECT_EQ(reported, 2);
}

// Trouble of the host (descriptors, memory, a disk that fails or is not mounted, a driver that does
// not work) never ends a job, however often it occurs.
TEST_F(ServiceJob, AReadErrorRequeuesTheJobUncounted) {
  struct Trouble {
    const char* act;
    int times;
    const char* words;
    const char* reason = "STORAGE_ERROR";
  };
  constexpr Trouble kTroubles[] = {
      {"host_fault_twice", 2, "system not ready (error 802)", "HOST_FAULT"},
      {"storage_trouble_twice", 2, "Too many open files"},
      {"folder_away_twice", 2, "cannot open STATE_DIR/datasets/"},
      {"bus_error_twice", 2, "killed by signal 7 (Bus error)"},
      {"model_away_once", 1, "the work is done, but the server cannot read its model"}};
  const auto name_of = [](const Trouble& trouble) {
    std::string name = trouble.act;
    std::ranges::replace(name, '_', '-');
    return name;
  };
  for (const Trouble& trouble : kTroubles) submit(name_of(trouble), trouble.act);
  for (const Trouble& trouble : kTroubles) {
    const std::string name = name_of(trouble);
    EXPECT_EQ(wait_for(name, v1::SUCCEEDED).attempt(), trouble.times + 1);
    grpc::Status end;
    int reported = 0;
    for (const v1::Event& e : watch(name, 0, &end)) {
      if (e.state().reason() != trouble.reason) continue;
      const std::string& message = e.state().message();
      EXPECT_EQ(e.state().state(), v1::QUEUED);
      EXPECT_EQ(message.find("A problem of this host, not of the job: "), 0U) << message;
      EXPECT_NE(message.find(trouble.words), std::string::npos) << message;
      EXPECT_EQ(message.find(root_.string()), std::string::npos) << "a server's path";
      ++reported;
    }
    EXPECT_EQ(reported, trouble.times) << name;
  }
}

// The store knows the dataset, so the error must tell the caller to retry.
TEST_F(ServiceJob, AnUnreadableDatasetRefusesASubmitAsUnavailable) {
  const std::filesystem::path datasets = StatePaths(config_.state_dir).root() / "datasets";
  const std::filesystem::path away = root_ / "away";
  std::filesystem::rename(datasets, away);
  v1::Job none;
  const grpc::Status refused = submit(job_request("early", ""), &none);
  std::filesystem::rename(away, datasets);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(reason_of(refused), "STORAGE_ERROR");
  EXPECT_EQ(refused.error_message().find(root_.string()), std::string::npos) << "a server's path";
  submit("early", "");
  wait_for("early", v1::SUCCEEDED);
}

TEST_F(ServiceJob, AWorkerThatCannotBeStartedFailsNoJob) {
  stop();
  const std::filesystem::path worker = root_ / "worker", away = root_ / "away";
  std::filesystem::copy_file(FAKE_WORKER, worker);
  config_.worker = worker;
  start();
  std::filesystem::rename(worker, away);
  submit("patient", "");
  for (int i = 0; i < 3; ++i) {  // the daemon pauses 1 s, 2 s and 4 s between attempts
    ASSERT_TRUE(eventually([&] { return get("patient").attempt() > i; }));
  }
  ASSERT_TRUE(eventually([&] { return get("patient").reason() == "WORKER_START_FAILED"; }));
  EXPECT_EQ(get("patient").state(), v1::QUEUED);
  std::filesystem::rename(away, worker);
  EXPECT_GE(wait_for("patient", v1::SUCCEEDED).attempt(), 4);
}

TEST_F(ServiceJob, AWorkerThatEndsBeforeItsAssignmentFailsNoJob) {
  stop();
  const std::filesystem::path worker = root_ / "worker", whole = root_ / "whole";
  std::filesystem::copy_file(FAKE_WORKER, whole);
  const auto place = [&](const std::filesystem::path& file) {
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    std::filesystem::rename(file, worker);
  };
  std::ofstream(root_ / "broken") << "#!/bin/sh\necho libnone.so: cannot open >&2\nexit 127\n";
  place(root_ / "broken");
  config_.worker = worker;
  start();
  submit("patient", "");
  // A worker that counted as lost would have ended the job after the third attempt.
  ASSERT_TRUE(eventually([&] { return get("patient").attempt() >= 4; }));
  place(whole);
  wait_for("patient", v1::SUCCEEDED);
  grpc::Status end;
  int reported = 0, words = 0;
  for (const v1::Event& e : watch("patient", 0, &end)) {
    reported += e.state().reason() == "WORKER_START_FAILED" && e.state().state() == v1::QUEUED;
    words += e.log().text().find("libnone.so: cannot open") != std::string::npos;
  }
  EXPECT_GE(reported, 3);
  EXPECT_GE(words, 3);
}

TEST_F(ServiceJob, AFinishedJobSucceedsOnceItsModelCanBeRead) {
  const v1::Job job = submit("finished", "model_unreadable");
  const std::filesystem::path model = StatePaths(config_.state_dir).model(job.uid());
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(model / "model.safetensors"); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(get("finished").state(), v1::RUNNING) << get("finished").message();
  std::ofstream(model / "model.json") << kTinyModelJson;
  std::filesystem::remove(model / "model.safetensors");
  std::ofstream(model / "model.safetensors", std::ios::binary) << tiny_weights();
  EXPECT_EQ(wait_for("finished", v1::SUCCEEDED).attempt(), 1);
}

// A worker delivered `{}` and 8 bytes as a model, and the job SUCCEEDED.
TEST_F(ServiceJob, AModelThatCannotBeReadIsRefused) {
  for (const char* what : {"json", "weights"}) {
    v1::SubmitJobRequest request = job_request(std::string("nonsense-") + what, "deliver_nonsense");
    (*request.mutable_spec()->mutable_labels())["nonsense"] = what;
    v1::Job job;
    ASSERT_TRUE(jobs_->SubmitJob(context().get(), request, &job).ok());
    const v1::Job failed = wait_for(request.job_id(), v1::FAILED);
    EXPECT_EQ(failed.reason(), "MODEL_FILE_INVALID") << failed.message();
    const std::filesystem::path model = StatePaths(config_.state_dir).model(job.uid());
    EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(model); }));
  }
}

TEST_F(ServiceJob, F31AJobThatAlwaysCrashesFailsAndTheQueueContinues) {
  submit("poison", "crash_always");
  submit("behind", "");
  wait_for("behind", v1::SUCCEEDED);
  const v1::Job poison = wait_for("poison", v1::FAILED);
  EXPECT_EQ(poison.reason(), "CRASH_LOOP");
}

TEST_F(ServiceJob, CancelIsDurableIdempotentAndSafeOnAFinishedJob) {
  submit("stops", "wait_for_stop");
  wait_for("stops", v1::RUNNING);
  v1::Job job;
  ASSERT_TRUE(cancel("stops", &job).ok());
  EXPECT_TRUE(job.cancel_requested());
  ASSERT_TRUE(cancel("stops", &job).ok());
  const v1::Job done = wait_for("stops", v1::CANCELLED);
  ASSERT_TRUE(cancel("stops", &job).ok());
  EXPECT_EQ(job.state(), v1::CANCELLED);
  EXPECT_EQ(job.newest_seq(), done.newest_seq()) << "nothing changed";
}

TEST_F(ServiceJob, ARaisedPriorityGoesFirst) {
  stop();
  config_.cpu_slots = 1;
  start();
  submit("blocker", "wait_for_stop");
  wait_for("blocker", v1::RUNNING);
  submit("first", "wait_for_stop");
  submit("second", "");
  const auto set_priority = [&](const char* id, std::optional<int32_t> priority, v1::Job* job) {
    v1::SetJobPriorityRequest request;
    request.set_name(std::string("projects/default/jobs/") + id);
    if (priority) request.set_priority(*priority);
    return jobs_->SetJobPriority(context().get(), request, job);
  };
  v1::Job job;
  ASSERT_TRUE(set_priority("second", 7, &job).ok());
  EXPECT_EQ(job.priority(), 7);
  EXPECT_EQ(job.spec().priority(), 0) << "the spec stays as it was submitted";
  EXPECT_EQ(job.state(), v1::QUEUED);
  EXPECT_EQ(reason_of(set_priority("second", std::nullopt, &job)), "FIELD_REQUIRED");
  EXPECT_EQ(reason_of(set_priority("second", 101, &job)), "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(reason_of(set_priority("nobody", 1, &job)), "JOB_NOT_FOUND");

  ASSERT_TRUE(cancel("blocker", &job).ok());
  const v1::Job second = wait_for("second", v1::SUCCEEDED);
  EXPECT_EQ(reason_of(set_priority("second", 8, &job)), "JOB_STATE_CONFLICT");
  const v1::Job first = wait_for("first", v1::RUNNING);
  EXPECT_GE(first.start_time().seconds() * 1'000'000'000 + first.start_time().nanos(),
            second.end_time().seconds() * 1'000'000'000 + second.end_time().nanos())
      << "the job that came later went first";
  ASSERT_TRUE(cancel("first", &job).ok());
}

// The queue is in memory. After a restart it must equal the store, including changed priorities.
TEST_F(ServiceJob, AQueueContinuesInOrderAfterARestartWithReasons) {
  stop();
  config_.cpu_slots = 1;
  start();
  submit("blocker", "wait_for_stop");
  wait_for("blocker", v1::RUNNING);
  submit("last", "");
  submit("first", "");
  submit("paused", "");
  submit("gone", "");
  v1::Job job;
  v1::SetJobPriorityRequest priority;
  priority.set_name("projects/default/jobs/first");
  priority.set_priority(5);
  ASSERT_TRUE(jobs_->SetJobPriority(context().get(), priority, &job).ok());
  v1::PauseJobRequest pause;
  pause.set_name("projects/default/jobs/paused");
  ASSERT_TRUE(jobs_->PauseJob(context().get(), pause, &job).ok());
  ASSERT_TRUE(cancel("gone", &job).ok());
  ASSERT_TRUE(eventually([&] { return get("last").reason() == "WAITING_FOR_DEVICE"; }));

  stop();
  start();
  const v1::Job first = wait_for("first", v1::SUCCEEDED);
  const v1::Job blocker = wait_for("blocker", v1::RUNNING);
  EXPECT_EQ(first.attempt(), 1);
  EXPECT_EQ(blocker.attempt(), 2);
  ASSERT_TRUE(eventually([&] { return get("last").reason() == "WAITING_FOR_DEVICE"; }));
  EXPECT_FALSE(get("last").message().empty());
  v1::ListJobsRequest list;
  list.add_states(v1::QUEUED);
  v1::ListJobsResponse listed;
  ASSERT_TRUE(jobs_->ListJobs(context().get(), list, &listed).ok());
  ASSERT_EQ(listed.jobs_size(), 1);
  EXPECT_EQ(listed.jobs(0).reason(), "WAITING_FOR_DEVICE");
  EXPECT_EQ(get("paused").reason(), "PAUSED");
  ASSERT_TRUE(cancel("blocker", &job).ok());
  wait_for("last", v1::SUCCEEDED);
  EXPECT_EQ(get("paused").state(), v1::PAUSED);
  v1::ResumeJobRequest resume;
  resume.set_name("projects/default/jobs/paused");
  ASSERT_TRUE(jobs_->ResumeJob(context().get(), resume, &job).ok());
  wait_for("paused", v1::SUCCEEDED);
  EXPECT_EQ(get("gone").state(), v1::CANCELLED);
  EXPECT_EQ(get("gone").attempt(), 0);
}

// There are more calls than handler threads, so no handler may block until the commit.
TEST_F(ServiceJob, ManySubmitsAtATimeAreEachAnsweredAsTheyAreStored) {
  stop();
  config_.cpu_slots = 1;
  start();
  submit("blocker", "wait_for_stop");
  wait_for("blocker", v1::RUNNING);
  constexpr int kCallers = 40;
  std::vector<std::thread> callers;
  std::vector<v1::Job> answers(kCallers);
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      const v1::SubmitJobRequest request = job_request("job-" + std::to_string(i / 2), "");
      const grpc::Status s = submit(request, &answers[static_cast<size_t>(i)]);
      if (!s.ok()) {
        EXPECT_EQ(reason_of(s), "JOB_EXISTS");  // two calls share each job ID
      }
    });
  }
  for (std::thread& t : callers) t.join();
  int stored = 0;
  for (const v1::Job& answer : answers) {
    if (answer.name().empty()) continue;
    ++stored;
    v1::GetJobRequest request;
    request.set_name(answer.name());
    v1::Job job;
    ASSERT_TRUE(jobs_->GetJob(context().get(), request, &job).ok());
    EXPECT_EQ(job.uid(), answer.uid());
    EXPECT_EQ(job.state(), v1::QUEUED);
  }
  EXPECT_EQ(stored, kCallers / 2);
  v1::Job job;
  ASSERT_TRUE(cancel("blocker", &job).ok());
}

TEST_F(ServiceJob, F12AWorkerThatIgnoresCancelIsKilledAfterTheGrace) {
  submit("ignores", "ignore_stop");
  wait_for("ignores", v1::RUNNING);
  v1::Job job;
  ASSERT_TRUE(cancel("ignores", &job).ok());
  wait_for("ignores", v1::CANCELLED);
}

TEST_F(ServiceJob, SubmitWithTheSameRequestIdIsOneJob) {
  v1::SubmitJobRequest request = job_request("once", "");
  request.set_request_id("7d444840-9dc0-11d1-b245-5ffdce74fad2");
  v1::Job first, again, other;
  ASSERT_TRUE(submit(request, &first).ok());
  ASSERT_TRUE(submit(request, &again).ok());
  EXPECT_EQ(first.uid(), again.uid());
  request.mutable_spec()->mutable_recipe()->set_epochs(3);
  EXPECT_EQ(reason_of(submit(request, &other)), "REQUEST_ID_REUSED");
  EXPECT_EQ(reason_of(submit(job_request("once", ""), &other)), "JOB_EXISTS");
}

// Fails if the default is applied only when the job runs: a new default would then change stored
// jobs.
TEST_F(ServiceJob, ThePrecisionIsStoredInTheSpecAtSubmit) {
  // The job is checked as stored, since its worker will report another plan.
  const v1::Job silent = submit("silent", "");
  EXPECT_EQ(silent.spec().recipe().precision(), v1::Recipe::TF32);
  EXPECT_EQ(silent.plan().precision(), v1::Recipe::TF32);
  EXPECT_EQ(get("silent").spec().recipe().precision(), v1::Recipe::TF32);
  v1::SubmitJobRequest request = job_request("strict", "");
  request.mutable_spec()->mutable_recipe()->set_precision(v1::Recipe::FP32);
  v1::Job strict;
  ASSERT_TRUE(submit(request, &strict).ok());
  EXPECT_EQ(get("strict").spec().recipe().precision(), v1::Recipe::FP32);
  EXPECT_EQ(strict.plan().precision(), v1::Recipe::FP32);

  request = job_request("dry-run", "");
  request.set_validate_only(true);
  v1::Job checked;
  ASSERT_TRUE(submit(request, &checked).ok());
  EXPECT_EQ(checked.spec().recipe().precision(), v1::Recipe::TF32);
  v1::PlanJobRequest plan_request;
  *plan_request.mutable_spec() = request.spec();
  v1::JobPlan plan;
  ASSERT_TRUE(jobs_->PlanJob(context().get(), plan_request, &plan).ok());
  EXPECT_EQ(plan.spec().recipe().precision(), v1::Recipe::TF32);
  EXPECT_EQ(plan.run().precision(), v1::Recipe::TF32);

  request.mutable_spec()->mutable_recipe()->set_precision(static_cast<v1::Recipe::Precision>(9));
  const grpc::Status refused = submit(request, &checked);
  EXPECT_NE(refused.error_message().find("expected fp32, tf32, bf16 or fp16"), std::string::npos)
      << refused.error_message();
}

TEST_F(ServiceJob, ValidateOnlyPlansAndStoresNothing) {
  v1::SubmitJobRequest request = job_request("dry-run", "");
  request.set_validate_only(true);
  v1::Job job;
  ASSERT_TRUE(submit(request, &job).ok());
  EXPECT_TRUE(job.uid().empty());
  EXPECT_EQ(job.plan().steps_total(), 24);
  EXPECT_GT(job.plan().memory().parameter_bytes(), 0);
  EXPECT_EQ(job.plan().memory().dataset_bytes(), 0) << "the CPU holds none of it";
  EXPECT_TRUE(job.plan().device_advice().starts_with("The CPU: this server has no GPU."))
      << job.plan().device_advice() << ", and why stands in the list of devices alone";
  v1::GetJobRequest get;
  get.set_name("projects/default/jobs/dry-run");
  EXPECT_EQ(reason_of(jobs_->GetJob(context().get(), get, &job)), "JOB_NOT_FOUND");
}

TEST_F(ServiceJob, PlanHasLayersMemoryAndTheMeasuredWorkspace) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = job_request("", "").spec();
  request.set_dump(v1::PlanJobRequest::MEMORY);
  v1::JobPlan plan;
  ASSERT_TRUE(jobs_->PlanJob(context().get(), request, &plan).ok());
  ASSERT_EQ(plan.layers_size(), 4);  // two dense layers, the activation between them, and the loss
  EXPECT_EQ(plan.layers(0).op(), "Gemm");
  EXPECT_EQ(plan.layers(0).parameter_count(), 4 * 8 + 8);
  EXPECT_EQ(plan.run().parameter_count(), 4 * 8 + 8 + 8 * 3 + 3);
  EXPECT_EQ(plan.run().memory().workspace_bytes(), 4096);
  EXPECT_TRUE(plan.workspace_measured());
  EXPECT_TRUE(plan.fit().fits());
  EXPECT_EQ(plan.device(), "devices/cpu");
  EXPECT_EQ(plan.spec().dataset().name(), "projects/default/datasets/iris@1");
  EXPECT_NE(plan.dump().find("persistent "), std::string::npos);
  // The dataset's warnings come first, as in the stored job; then the plan's own.
  const int of_dataset = plan.run().warnings_size();
  ASSERT_GT(of_dataset, 0) << "its rows follow a pattern";
  ASSERT_EQ(plan.warnings_size(), of_dataset + 1);
  EXPECT_EQ(plan.warnings(0), plan.run().warnings(0));
  EXPECT_NE(plan.warnings(of_dataset).find("no rows are held out"), std::string::npos);
}

// Starting a worker is the slowest part of a plan. The label makes the second worker die before it
// replies, so the values must come from the first one.
TEST_F(ServiceJob, MeasuredWorkspaceOfCpuKernelsIsUsedByTheNextPlan) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = job_request("", "").spec();
  v1::JobPlan plan;
  ASSERT_TRUE(jobs_->PlanJob(context().get(), request, &plan).ok());
  (*request.mutable_spec()->mutable_labels())["act"] = "die";
  v1::JobPlan again;
  ASSERT_TRUE(jobs_->PlanJob(context().get(), request, &again).ok());
  EXPECT_TRUE(again.workspace_measured());
  EXPECT_EQ(again.run().memory().workspace_bytes(), 4096);
  EXPECT_EQ(again.fit().bytes_needed(), plan.fit().bytes_needed());
  request.mutable_spec()->mutable_resources()->set_threads(2);  // means other kernels
  ASSERT_TRUE(jobs_->PlanJob(context().get(), request, &again).ok());
  EXPECT_FALSE(again.workspace_measured());
}

TEST_F(ServiceJob, PlanWithoutAWorkersAnswerSaysSo) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = job_request("", "die").spec();
  v1::JobPlan plan;
  ASSERT_TRUE(jobs_->PlanJob(context().get(), request, &plan).ok());
  EXPECT_FALSE(plan.workspace_measured());
  EXPECT_NE(plan.warnings(plan.warnings_size() - 1).find("workspace"), std::string::npos);
}

TEST_F(ServiceJob, F15APlanThatDoesNotFitSaysByHowMuchAndSubmitRefusesIt) {
  v1::SubmitJobRequest submitted = job_request("", "");
  for (int i = 0; i < 2; ++i)
    submitted.mutable_spec()->mutable_model()->mutable_mlp()->add_hidden(65536);
  v1::PlanJobRequest request;
  *request.mutable_spec() = submitted.spec();
  v1::JobPlan plan;
  ASSERT_TRUE(jobs_->PlanJob(context().get(), request, &plan).ok());
  EXPECT_FALSE(plan.fit().fits());
  EXPECT_EQ(plan.fit().bytes_available(), int64_t{8} << 30);
  EXPECT_EQ(plan.fit().bytes_short(), plan.fit().bytes_needed() - (int64_t{8} << 30));
  EXPECT_NE(plan.fit().message().find("no batch_size fits"), std::string::npos);
  v1::Job job;
  EXPECT_EQ(reason_of(submit(submitted, &job)), "RESOURCES_IMPOSSIBLE");
}

/// The bytes of a GPU of 4 GiB that are kept free in addition to the plan.
constexpr int64_t kKept = CheckedInventory::kOverheadLeastBytes;
/// The memory of a smaller GPU, a quarter of which is kept free, that has `bytes` for a plan.
constexpr int64_t memory_with_room(int64_t bytes) { return bytes + bytes / 3; }

class ServiceGpus : public ServiceTest {
 protected:
  void SetUp() override {
    for (int i = 0; i < 3; ++i) {
      Device gpu;
      gpu.name = "devices/gpu-" + std::to_string(i);
      gpu.kind = DeviceKind::kGpu;
      gpu.model = i < 2 ? "H" : "B";
      gpu.uuid = "GPU-" + std::to_string(i);
      gpu.memory_bytes = int64_t{4} << 30;
      gpus_.push_back(gpu);
    }
    ServiceTest::SetUp();
    wait_until_checked();
    make_dataset();
  }
  /// Waits until the GPUs are checked; their memory is unknown before.
  void wait_until_checked() {
    EXPECT_TRUE(eventually([&] {
      v1::ListDevicesResponse devices;
      if (!system_->ListDevices(context().get(), {}, &devices).ok()) return false;
      return std::ranges::all_of(devices.devices(),
                                 [](const v1::Device& d) { return d.reason().empty(); });
    }));
  }
  void restart() {
    stop();
    start();
    wait_until_checked();
  }
  static v1::SubmitJobRequest gpu_request(const std::string& id, const std::string& act, int gpus) {
    v1::SubmitJobRequest request = job_request(id, act);
    request.mutable_spec()->mutable_recipe()->set_batch_size(120);
    request.mutable_spec()->mutable_resources()->set_device(v1::Resources::GPU);
    if (gpus > 0) request.mutable_spec()->mutable_resources()->set_gpus(gpus);
    return request;
  }
  v1::Job submit_gpus(const std::string& id, const std::string& act, int gpus) {
    v1::Job job;
    const grpc::Status s = submit(gpu_request(id, act, gpus), &job);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return job;
  }
  /// Returns the devices that a worker received: its own, then all of the job's.
  std::string reported(const v1::Job& job, int attempt) {
    std::ifstream file(StatePaths(config_.state_dir).checkpoints(job.uid()) /
                       ("devices-" + std::to_string(attempt)));
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(ServiceGpus, AJobOfTwoGpusOccupiesBothAndAnotherWaits) {
  submit_gpus("pair", "wait_for_stop", 2);
  const v1::Job pair = wait_for("pair", v1::RUNNING);
  EXPECT_EQ(pair.device(), "devices/gpu-0");
  ASSERT_EQ(pair.devices_size(), 2);
  EXPECT_EQ(pair.devices(0), "devices/gpu-0");
  EXPECT_EQ(pair.devices(1), "devices/gpu-1");
  v1::ListDevicesResponse devices;
  ASSERT_TRUE(system_->ListDevices(context().get(), {}, &devices).ok());
  for (const v1::Device& d : devices.devices()) {
    EXPECT_EQ(d.jobs_size(), d.name() == "devices/gpu-0" || d.name() == "devices/gpu-1")
        << d.name();
  }
  submit_gpus("second-pair", "report_devices", 2);
  submit_gpus("single", "report_devices", 1);
  const v1::Job single = wait_for("single", v1::SUCCEEDED);  // runs on the other GPU model
  EXPECT_EQ(reported(single, 1), "devices/gpu-2 devices/gpu-2, sees GPU-2");
  EXPECT_EQ(get("second-pair").reason(), "WAITING_FOR_DEVICE");
  v1::Job job;
  ASSERT_TRUE(cancel("pair", &job).ok());
  EXPECT_EQ(reported(wait_for("second-pair", v1::SUCCEEDED), 1),
            "devices/gpu-0 devices/gpu-0 devices/gpu-1, sees GPU-0,GPU-1");
}

TEST_F(ServiceGpus, F32AFaultOfOneGpuRequeuesTheJob) {
  submit_gpus("faulty", "device_fault_once", 2);
  const v1::Job done = wait_for("faulty", v1::SUCCEEDED);
  EXPECT_EQ(done.attempt(), 2);
  EXPECT_EQ(reported(done, 1), "devices/gpu-0 devices/gpu-0 devices/gpu-1, sees GPU-0,GPU-1");
  EXPECT_EQ(reported(done, 2), reported(done, 1)) << "both were checked again";
  EXPECT_EQ(done.devices_size(), 2);
  EXPECT_EQ(done.spec().resources().gpus(), 2);
  grpc::Status end;
  for (const v1::Event& e : watch("faulty", 0, &end)) {
    if (e.state().state() != v1::RUNNING) continue;
    EXPECT_EQ(e.state().device(), "devices/gpu-0");
    EXPECT_EQ(e.state().devices_size(), 2);
  }
}

// If the job were planned on the CPU while it waits, its plan would lack the memory for the
// resident dataset.
TEST_F(ServiceGpus, AJobThatWaitsForAGpuIsPlannedForOne) {
  stop();
  for (Device& gpu : gpus_) {
    gpu.schedulable = false;
    gpu.checking = true;
  }
  start();
  const v1::Job job = submit_gpus("waits", "", 1);
  EXPECT_EQ(job.state(), v1::QUEUED);
  EXPECT_GT(job.plan().memory().dataset_bytes(), 0);
}

// GPU libraries need tensors aligned to 256 bytes, CPU kernels to 64 bytes.
TEST_F(ServiceGpus, APlanHasTheAlignmentOfItsDevice) {
  const auto planned = [&](v1::Resources::Device device) {
    v1::PlanJobRequest request;
    *request.mutable_spec() = gpu_request("", "", 0).spec();
    request.mutable_spec()->mutable_resources()->set_device(device);
    v1::JobPlan plan;
    const grpc::Status s = jobs_->PlanJob(context().get(), request, &plan);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return plan.run().memory().parameter_bytes();
  };
  const auto submitted = [&](v1::Resources::Device device, const std::string& id) {
    v1::SubmitJobRequest request = gpu_request(id, "", 0);
    request.mutable_spec()->mutable_resources()->set_device(device);
    v1::Job job;
    const grpc::Status s = submit(request, &job);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return job.plan().memory().parameter_bytes();
  };
  // The parameters are float tensors of [8, 4], [8], [3, 8] and [3].
  const int64_t on_cpu = 128 + 64 + 128 + 64, on_gpu = 4 * 256;
  EXPECT_EQ(planned(v1::Resources::CPU), on_cpu);
  EXPECT_EQ(planned(v1::Resources::GPU), on_gpu);
  EXPECT_EQ(submitted(v1::Resources::CPU, "on-cpu"), on_cpu);
  EXPECT_EQ(submitted(v1::Resources::GPU, "on-gpu"), on_gpu);
  EXPECT_EQ(submitted(v1::Resources::AUTO, "auto"), on_gpu) << "it may get a GPU";
}

TEST_F(ServiceGpus, RowsThatDoNotFitOnTheGpuStayOnTheHost) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = gpu_request("", "", 1).spec();
  v1::JobPlan plan;
  ASSERT_TRUE(jobs_->PlanJob(context().get(), request, &plan).ok());
  const int64_t needed = total_bytes(plan.run().memory());
  ASSERT_GT(plan.run().memory().dataset_bytes(), 0);
  const auto has_reported = [&] {
    return std::ranges::any_of(plan.warnings(), [](const std::string& text) {
      return text.find("batches are copied from the host") != std::string::npos;
    });
  };
  EXPECT_FALSE(has_reported());
  // A submit does not include the workspace, which is 4096 bytes.
  for (Device& gpu : gpus_) gpu.memory_bytes = memory_with_room(needed - 4096 - 1);
  restart();
  ASSERT_TRUE(jobs_->PlanJob(context().get(), request, &plan).ok());
  EXPECT_TRUE(plan.fit().fits());
  EXPECT_EQ(plan.run().memory().dataset_bytes(), 0);
  EXPECT_TRUE(has_reported());
  const v1::Job job = submit_gpus("tight", "report_devices", 1);
  EXPECT_EQ(job.plan().memory().dataset_bytes(), 0);
  EXPECT_EQ(reported(wait_for("tight", v1::SUCCEEDED), 1),
            "devices/gpu-0 devices/gpu-0, rows stay on the host, sees GPU-0");
}

TEST_F(ServiceGpus, EachNeedsTheMemoryOfItsPart) {
  const auto plan_of = [&](int gpus) {
    v1::PlanJobRequest request;
    *request.mutable_spec() = gpu_request("", "", gpus).spec();
    v1::JobPlan plan;
    const grpc::Status s = jobs_->PlanJob(context().get(), request, &plan);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return plan;
  };
  const v1::JobPlan one = plan_of(0), two = plan_of(2);
  EXPECT_EQ(two.run().steps_total(), one.run().steps_total());
  EXPECT_GT(two.run().flops_per_step(), one.run().flops_per_step()) << "each updates all weights";
  EXPECT_EQ(two.run().memory().parameter_bytes(), one.run().memory().parameter_bytes());
  EXPECT_GT(one.run().memory().dataset_bytes(), 0);
  EXPECT_EQ(one.fit().bytes_needed(), kKept + total_bytes(one.run().memory()));
  EXPECT_LT(two.run().memory().activation_bytes(), one.run().memory().activation_bytes());
  EXPECT_EQ(two.layers(0).output_shape(0), 60);
  EXPECT_NE(
      two.run().device_advice().find("2 GPUs (H), as requested: each computes 60 of the 120 rows"),
      std::string::npos)
      << two.run().device_advice();
  const auto without_rows = [](const v1::JobPlan& plan) {
    return total_bytes(plan.run().memory()) - plan.run().memory().dataset_bytes();
  };
  const int64_t room = without_rows(one) - 4096 - 1;  // without the workspace of 4096 bytes
  EXPECT_GT(room, without_rows(two));
  for (Device& gpu : gpus_) gpu.memory_bytes = memory_with_room(room);
  restart();
  v1::Job job;
  const auto as_written = [](const std::string& id, int gpus) {
    v1::SubmitJobRequest request = gpu_request(id, "", gpus);
    request.mutable_spec()->mutable_recipe()->set_recompute(v1::Recipe::NONE);
    request.mutable_spec()->mutable_recipe()->set_accumulate_steps(1);
    return request;
  };
  const grpc::Status refused = submit(as_written("too-large", 1), &job);
  EXPECT_EQ(reason_of(refused), "RESOURCES_IMPOSSIBLE");
  EXPECT_TRUE(submit(as_written("in-parts", 2), &job).ok());
  wait_for("in-parts", v1::SUCCEEDED);
  gpus_[1].memory_bytes = memory_with_room(room / 4);  // the smaller GPU decides
  restart();
  EXPECT_EQ(reason_of(submit(as_written("uneven", 2), &job)), "RESOURCES_IMPOSSIBLE");
}

TEST_F(ServiceGpus, ShardTheOptimizersStateOnRequestAndWhereAJobFitsOnlyThen) {
  const auto request_of = [](const std::string& id,
                             const std::vector<v1::Resources::Shard>& shards) {
    v1::SubmitJobRequest request = gpu_request(id, "", 2);
    v1::JobSpec& spec = *request.mutable_spec();
    spec.mutable_model()->mutable_mlp()->clear_hidden();
    spec.mutable_model()->mutable_mlp()->add_hidden(2048);
    spec.mutable_recipe()->mutable_optimizer()->Clear();
    spec.mutable_recipe()->mutable_optimizer()->set_type(v1::Optimizer::ADAM);
    spec.mutable_recipe()->mutable_optimizer()->set_learning_rate(0.001);
    spec.mutable_recipe()->set_recompute(v1::Recipe::NONE);
    spec.mutable_recipe()->set_accumulate_steps(1);
    for (const v1::Resources::Shard shard : shards) spec.mutable_resources()->add_shard(shard);
    return request;
  };
  const auto plan_of = [&](const std::vector<v1::Resources::Shard>& shards) {
    v1::PlanJobRequest request;
    *request.mutable_spec() = request_of("", shards).spec();
    v1::JobPlan plan;
    const grpc::Status s = jobs_->PlanJob(context().get(), request, &plan);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return plan;
  };
  const v1::JobPlan whole = plan_of({v1::Resources::NONE});
  const v1::JobPlan sharded = plan_of({v1::Resources::OPTIMIZER});
  const v1::MemoryPlan &all = whole.run().memory(), &part = sharded.run().memory();
  EXPECT_EQ(part.optimizer_bytes() + sharded.run().shard_saved_bytes(), all.optimizer_bytes());
  EXPECT_LT(part.optimizer_bytes(), all.optimizer_bytes() * 6 / 10);
  EXPECT_EQ(whole.run().exchanges(0).kind(), "all_reduce");
  EXPECT_EQ(sharded.run().exchanges(0).kind(), "reduce_scatter");
  EXPECT_EQ(sharded.run().exchanges(1).kind(), "all_gather");

  const v1::JobPlan split = plan_of({v1::Resources::HEAD});
  EXPECT_EQ(split.run().exchanges(0).kind(), "gather_rows");
  EXPECT_EQ(split.run().exchanges(0).axis(), "rows");
  EXPECT_GT(split.run().head_saved_bytes(), 0);
  EXPECT_EQ(split.run().memory().parameter_bytes() + split.run().head_saved_bytes(),
            all.parameter_bytes());
  const v1::JobPlan both = plan_of({v1::Resources::OPTIMIZER, v1::Resources::HEAD});
  EXPECT_LT(both.run().memory().optimizer_bytes(), split.run().memory().optimizer_bytes());
  EXPECT_EQ(both.run().head_saved_bytes(), split.run().head_saved_bytes());
  const v1::JobPlan pairs = plan_of({v1::Resources::MLP});
  ASSERT_EQ(pairs.run().split_pairs_size(), 1);
  EXPECT_EQ(pairs.run().split_pairs(0).units(), 2048);
  EXPECT_GT(pairs.run().split_pairs(0).exchanged_bytes(), 0);
  EXPECT_EQ(pairs.run().memory().parameter_bytes() + pairs.run().mlp_saved_bytes(),
            all.parameter_bytes());
  const v1::JobPlan parameters = plan_of({v1::Resources::PARAMETERS});
  EXPECT_EQ(parameters.run().exchanges(0).kind(), "all_gather");
  EXPECT_EQ(parameters.run().exchanges(1).kind(), "reduce_scatter");
  EXPECT_GT(parameters.run().parameter_saved_bytes(), 0);
  EXPECT_EQ(parameters.run().memory().parameter_bytes() + parameters.run().parameter_saved_bytes(),
            all.parameter_bytes());
  EXPECT_EQ(parameters.run().shard_saved_bytes(), sharded.run().shard_saved_bytes());

  for (Device& gpu : gpus_) {
    gpu.memory_bytes =
        memory_with_room(total_bytes(all) - all.dataset_bytes() - all.optimizer_bytes() / 8);
  }
  restart();
  v1::Job job;
  const grpc::Status refused = submit(request_of("whole", {v1::Resources::NONE}), &job);
  EXPECT_EQ(reason_of(refused), "RESOURCES_IMPOSSIBLE");
  EXPECT_NE(refused.error_message().find("resources.shard: optimizer"), std::string::npos)
      << refused.error_message();
  ASSERT_TRUE(submit(request_of("open", {}), &job).ok());
  const auto is_optimizer = [](const auto& shard) {
    return shard.size() == 1 && shard[0] == v1::Resources::OPTIMIZER;
  };
  EXPECT_TRUE(is_optimizer(job.spec().resources().shard()));
  EXPECT_TRUE(is_optimizer(job.plan().fit_choice().shard()));
  EXPECT_TRUE(
      job.plan().fit_choice().message().starts_with("resources.shard: optimizer was chosen"))
      << job.plan().fit_choice().message();
  wait_for("open", v1::SUCCEEDED);

  v1::SubmitJobRequest muon = request_of("muon", {v1::Resources::OPTIMIZER});
  muon.mutable_spec()->mutable_recipe()->mutable_optimizer()->set_type(v1::Optimizer::MUON);
  const grpc::Status unable = submit(muon, &job);
  EXPECT_NE(unable.error_message().find("resources.shard: muon updates tensors as a whole"),
            std::string::npos)
      << unable.error_message();
}

TEST_F(ServiceGpus, ShardingPlansAreComparedOnRequest) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = gpu_request("", "", 2).spec();
  for (int i = 0; i < 16; ++i)
    request.mutable_spec()->mutable_model()->mutable_mlp()->add_hidden(32);
  const auto planned = [&] {
    v1::JobPlan plan;
    const grpc::Status s = jobs_->PlanJob(context().get(), request, &plan);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return plan;
  };
  EXPECT_EQ(planned().sharding_plans_size(), 0);
  EXPECT_EQ(planned().sharding_plans_basis(), "");
  request.set_sharding_plans(true);
  const v1::JobPlan fits = planned();
  ASSERT_GT(fits.sharding_plans_size(), 1);
  EXPECT_EQ(fits.sharding_plans(0).verdict(), v1::ShardingRow::CHOSEN);
  EXPECT_TRUE(fits.sharding_plans(0).as_written());
  EXPECT_EQ(fits.sharding_plans(0).bytes(), kKept + total_bytes(fits.run().memory()) -
                                                fits.run().memory().dataset_bytes() -
                                                fits.run().memory().workspace_bytes());
  EXPECT_NE(fits.sharding_plans_basis(), "") << "no rates";

  // Sharding is refused for SGD without momentum, with the same text as a spec that names it.
  v1::SubmitJobRequest named = gpu_request("named", "", 2);
  named.mutable_spec()->mutable_resources()->add_shard(v1::Resources::OPTIMIZER);
  v1::Job job;
  const grpc::Status refusal = submit(named, &job);
  const auto refused = std::ranges::find(fits.sharding_plans(), v1::ShardingRow::REFUSED,
                                         [](const v1::ShardingRow& row) { return row.verdict(); });
  ASSERT_NE(refused, fits.sharding_plans().end());
  EXPECT_NE(refusal.error_message().find(refused->message()), std::string::npos)
      << refusal.error_message() << "\n"
      << refused->message();

  // For a job that does not fit, its spec gets the sharding of the chosen row.
  for (Device& gpu : gpus_)
    gpu.memory_bytes = memory_with_room(fits.sharding_plans(0).bytes() - kKept - 1);
  restart();
  const v1::JobPlan made_to_fit = planned();
  ASSERT_GT(made_to_fit.sharding_plans_size(), 1);
  const v1::ShardingRow& chosen = made_to_fit.sharding_plans(0);
  ASSERT_EQ(chosen.verdict(), v1::ShardingRow::CHOSEN);
  EXPECT_LE(chosen.bytes(), chosen.bytes_available());
  const v1::JobSpec& spec = made_to_fit.spec();
  EXPECT_EQ(std::max<int64_t>(1, spec.recipe().accumulate_steps()), chosen.accumulate_steps());
  EXPECT_EQ(std::max(v1::Recipe::NONE, spec.recipe().recompute()), chosen.recompute());
  EXPECT_EQ(spec.resources().shard_size() == 0 ? v1::Resources::NONE : spec.resources().shard(0),
            chosen.shard(0));
  EXPECT_TRUE(made_to_fit.run().has_fit_choice());
  const auto written = std::ranges::find_if(
      made_to_fit.sharding_plans(), [](const v1::ShardingRow& row) { return row.as_written(); });
  ASSERT_NE(written, made_to_fit.sharding_plans().end());
  EXPECT_EQ(written->verdict(), v1::ShardingRow::DOES_NOT_FIT);
  EXPECT_EQ(written->message(), "1 B too large");
}

TEST_F(ServiceGpus, ImpossibleRequestsAreRefusedByField) {
  v1::Job job;
  const grpc::Status three = submit(gpu_request("three", "", 3), &job);
  EXPECT_EQ(reason_of(three), "RESOURCES_IMPOSSIBLE");
  EXPECT_NE(three.error_message().find("spec.resources.gpus: 3"), std::string::npos);
  EXPECT_NE(three.error_message().find("expected 1..2"), std::string::npos)
      << three.error_message();
  EXPECT_EQ(reason_of(submit(gpu_request("seven", "", 7), &job)), "FIELD_OUT_OF_RANGE");
  v1::SubmitJobRequest request = gpu_request("auto", "", 2);
  request.mutable_spec()->mutable_resources()->clear_device();
  EXPECT_EQ(reason_of(submit(request, &job)), "FIELD_CONFLICT");
}

TEST_F(ServiceJob, ABadSpecIsRefusedByFieldAndNothingIsStored) {
  const auto refusal = [&](const std::function<void(v1::SubmitJobRequest&)>& change) {
    v1::SubmitJobRequest request = job_request("", "");
    change(request);
    v1::Job job;
    return reason_of(submit(request, &job));
  };
  EXPECT_EQ(refusal([](auto& r) { r.clear_spec(); }), "FIELD_REQUIRED");
  EXPECT_EQ(refusal([](auto& r) { r.set_job_id("No!"); }), "NAME_MALFORMED");
  EXPECT_EQ(refusal([](auto& r) { r.set_parent("projects/other"); }), "PROJECT_NOT_FOUND");
  EXPECT_EQ(refusal([](auto& r) { r.set_request_id("7"); }), "REQUEST_ID_MALFORMED");
  EXPECT_EQ(refusal([](auto& r) { r.mutable_spec()->clear_dataset(); }), "FIELD_REQUIRED");
  EXPECT_EQ(refusal([](auto& r) { r.mutable_spec()->mutable_dataset()->set_name("nowhere"); }),
            "DATASET_NOT_FOUND");
  EXPECT_EQ(refusal([](auto& r) {
              r.mutable_spec()->mutable_recipe()->mutable_initial_weights()->set_job("nowhere");
            }),
            "MODEL_NOT_FOUND");
  EXPECT_EQ(refusal([](auto& r) { r.mutable_spec()->mutable_recipe()->set_batch_size(1000); }),
            "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(refusal([](auto& r) {
              r.mutable_spec()->mutable_recipe()->mutable_optimizer()->set_learning_rate(-1);
            }),
            "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(refusal([](auto& r) { (*r.mutable_spec()->mutable_labels())["a\nb"] = "c"; }),
            "LABEL_INVALID");
  // The C1 control character CSI, and a right-to-left override.
  for (const char* odd : {"\xc2\x9b", "\xe2\x80\xae"}) {
    EXPECT_EQ(refusal([odd](auto& r) { (*r.mutable_spec()->mutable_labels())["a"] = odd; }),
              "LABEL_INVALID");
  }
  EXPECT_EQ(refusal([](auto& r) {
              for (int i = 0; i < 2; ++i)
                r.mutable_spec()->mutable_model()->mutable_mlp()->add_hidden(65536);
            }),
            "RESOURCES_IMPOSSIBLE");
  EXPECT_EQ(refusal([](auto& r) {
              r.mutable_spec()->mutable_resources()->set_device(v1::Resources::GPU);
            }),
            "RESOURCES_IMPOSSIBLE");
  EXPECT_EQ(refusal([](auto& r) {
              v1::Recipe& recipe = *r.mutable_spec()->mutable_recipe();
              recipe.GetReflection()->MutableUnknownFields(&recipe)->AddVarint(4711, 1);
            }),
            "FIELD_UNKNOWN");
  v1::ListJobsRequest list;
  v1::ListJobsResponse listed;
  ASSERT_TRUE(jobs_->ListJobs(context().get(), list, &listed).ok());
  EXPECT_EQ(listed.jobs_size(), 0);
}

TEST_F(ServiceJob, AFinishedJobCanBeDeletedAndARunningOneCannot) {
  submit("removable", "");
  wait_for("removable", v1::SUCCEEDED);
  submit("busy", "wait_for_stop");
  wait_for("busy", v1::RUNNING);
  v1::DeleteJobRequest request;
  google::protobuf::Empty empty;
  request.set_name("projects/default/jobs/busy");
  EXPECT_EQ(reason_of(jobs_->DeleteJob(context().get(), request, &empty)), "JOB_STATE_CONFLICT");
  const std::string uid = get("removable").uid();
  // A worker leaves such a folder. Without checkpoints the job's end would delete the job's folder.
  std::filesystem::create_directories(config_.state_dir / "jobs" / uid / "step-1");
  request.set_name("projects/default/jobs/removable");
  EXPECT_TRUE(jobs_->DeleteJob(context().get(), request, &empty).ok());
  EXPECT_FALSE(std::filesystem::exists(config_.state_dir / "jobs" / uid));
  EXPECT_EQ(reason_of(jobs_->DeleteJob(context().get(), request, &empty)), "JOB_NOT_FOUND");
}

/// Returns the largest permitted model. It does not fit, and the search for settings that fit takes
/// some 15 plans of half a second or more each.
v1::JobSpec large_spec() {
  v1::JobSpec spec;
  spec.mutable_dataset()->set_name("iris");
  v1::Block& block = *spec.mutable_model()->add_blocks();
  block.set_name("b");
  block.add_layers()->mutable_gemm()->set_units(512);
  block.add_layers()->mutable_relu();
  v1::Layer::Use& use = *spec.mutable_model()->add_layers()->mutable_use();
  use.set_block("b");
  use.set_repeat(4999);
  spec.mutable_model()->add_layers()->mutable_gemm();
  spec.mutable_recipe()->set_epochs(2);
  spec.mutable_recipe()->set_batch_size(120);
  spec.mutable_recipe()->mutable_optimizer()->set_learning_rate(0.1);
  return spec;
}

/// Fixture with a CPU of little memory and a network whose activations need more than its weights.
class ServiceFit : public ServiceJob {
 protected:
  void SetUp() override {
    config_.cpu_memory_bytes_max = kBytesMax;
    ServiceJob::SetUp();
  }
  static constexpr int64_t kBytesMax = 340'000;
  static v1::SubmitJobRequest deep_request(const std::string& id) {
    v1::SubmitJobRequest request = job_request(id, "");
    request.mutable_spec()->mutable_recipe()->set_batch_size(120);
    v1::ModelSpec& model = *request.mutable_spec()->mutable_model();
    for (int i = 0; i < 16; ++i) model.mutable_mlp()->add_hidden(32);
    return request;
  }
  v1::JobPlan plan(const v1::SubmitJobRequest& submitted) {
    v1::PlanJobRequest request;
    *request.mutable_spec() = submitted.spec();
    v1::JobPlan plan;
    const grpc::Status s = jobs_->PlanJob(context().get(), request, &plan);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return plan;
  }
};

TEST_F(ServiceFit, OmittedFieldsAreChosenSoThatTheJobFits) {
  const v1::SubmitJobRequest request = deep_request("fits-by-choice");
  const v1::JobPlan planned = plan(request);
  EXPECT_TRUE(planned.fit().fits()) << planned.fit().message();
  v1::Job job;
  const grpc::Status submitted = submit(request, &job);
  ASSERT_TRUE(submitted.ok()) << submitted.error_message();
  const v1::FitChoice& choice = job.plan().fit_choice();
  EXPECT_GT(choice.bytes_as_written(), kBytesMax);
  EXPECT_LE(bytes_on_cpu(job.plan().memory()), kBytesMax);
  // The choice is in the stored spec, so that every attempt, retry and fork uses it.
  const v1::Recipe& recipe = job.spec().recipe();
  EXPECT_TRUE(choice.accumulate_steps() > 1 ||
              choice.recompute() != v1::Recipe::RECOMPUTE_UNSPECIFIED);
  EXPECT_EQ(recipe.accumulate_steps(), choice.accumulate_steps());
  EXPECT_EQ(recipe.recompute(), choice.recompute());
  EXPECT_NE(choice.message().find("chosen: as written, the job needs"), std::string::npos)
      << choice.message();
  EXPECT_EQ(planned.spec().recipe().accumulate_steps(), recipe.accumulate_steps());
  EXPECT_EQ(planned.run().fit_choice().message(), choice.message());
  const v1::Job done = wait_for("fits-by-choice", v1::SUCCEEDED);
  EXPECT_EQ(done.plan().fit_choice().message(), choice.message()) << "a worker's plan replaced it";
}

TEST_F(ServiceFit, FieldsOfTheSpecAreKept) {
  v1::SubmitJobRequest request = deep_request("as-written");
  request.mutable_spec()->mutable_recipe()->set_recompute(v1::Recipe::NONE);
  request.mutable_spec()->mutable_recipe()->set_accumulate_steps(1);
  EXPECT_FALSE(plan(request).fit().fits());
  v1::Job job;
  EXPECT_EQ(reason_of(submit(request, &job)), "RESOURCES_IMPOSSIBLE");
  request.mutable_spec()->mutable_model()->mutable_mlp()->clear_hidden();
  request.mutable_spec()->mutable_model()->mutable_mlp()->add_hidden(8);
  ASSERT_TRUE(submit(request, &job).ok());
  EXPECT_FALSE(job.plan().has_fit_choice());
}

class ServicePlanning : public ServiceJob {
 protected:
  void SetUp() override {
    config_.cpu_memory_bytes_max = int64_t{6} << 30;
    ServiceJob::SetUp();
  }
  grpc::Status submit_large(std::chrono::milliseconds timeout) {
    grpc::ClientContext c;
    c.set_deadline(std::chrono::system_clock::now() + timeout);
    return submit_large(c);
  }
  grpc::Status submit_large(grpc::ClientContext& c) {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = large_spec();
    v1::Job job;
    return jobs_->SubmitJob(&c, request, &job);
  }
  static int64_t cpu_ms() { return int64_t{std::clock()} * 1000 / CLOCKS_PER_SEC; }
};

TEST_F(ServicePlanning, StopsSoonAfterItsCallerDisconnects) {
  EXPECT_EQ(submit_large(std::chrono::milliseconds(300)).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(eventually([] {
    const int64_t before = cpu_ms();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return cpu_ms() - before < 60;
  }));
}

TEST_F(ServicePlanning, DoesNotDelayOtherCalls) {
  const v1::Job small = submit("small-job", "");
  std::vector<grpc::ClientContext> contexts(10);
  std::atomic<int> ended = 0;
  std::vector<std::jthread> callers;
  for (grpc::ClientContext& c : contexts) {
    callers.emplace_back([&] {
      (void)submit_large(c);
      ++ended;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(get("small-job").uid(), small.uid());
  EXPECT_EQ(ended, 0) << "it waited for a plan";
  for (grpc::ClientContext& c : contexts) c.TryCancel();
}

// Fails if a drain waits for all running plans, which would take minutes.
TEST_F(ServicePlanning, DoesNotDelayADrain) {
  std::vector<std::jthread> callers;
  std::vector<grpc::Status> ends(10);
  for (grpc::Status& end : ends) {
    callers.emplace_back([this, &end] { end = submit_large(patience()); });
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto start = std::chrono::steady_clock::now();
  stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, promised(std::chrono::seconds(10)));
  callers.clear();
  for (const grpc::Status& end : ends) {
    EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE) << end.error_message();
  }
}

TEST_F(ServiceJob, F04AStopLetsWorkersCheckpointAndTheNextStartResumes) {
  submit("goes-on", "wait_for_stop");
  wait_for("goes-on", v1::RUNNING);
  auto c = context();
  v1::WatchJobRequest request;
  request.set_name("projects/default/jobs/goes-on");
  auto stream = jobs_->WatchJob(c.get(), request);
  v1::WatchJobResponse response;
  do {  // read the first event, since a drain may end the stream before the others
    ASSERT_TRUE(stream->Read(&response));
  } while (response.events().empty());
  int64_t seen = response.events().rbegin()->seq();
  std::thread drain([&] { daemon_->drain(); });
  while (stream->Read(&response)) {
    if (!response.events().empty()) seen = response.events().rbegin()->seq();
  }
  const grpc::Status end = stream->Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(reason_of(end), "SERVER_DRAINING");
  EXPECT_GT(seen, 0) << "the resume point";
  drain.join();
  stop();
  start();
  ASSERT_TRUE(eventually([&] { return get("goes-on").attempt() == 2; }));
  wait_for("goes-on", v1::RUNNING);
  EXPECT_EQ(get("goes-on").checkpoint_step(), 5);
  v1::Job job;
  ASSERT_TRUE(cancel("goes-on", &job).ok());
  wait_for("goes-on", v1::CANCELLED);
  grpc::Status ended;
  expect_gapless(watch("goes-on", seen, &ended), seen);
}

TEST_F(ServiceJob, TheSpoolOfADeadWorkerIsImported) {
  submit("untold", "done_but_untold");
  wait_for("untold", v1::SUCCEEDED);
  const v1::Job job = get("untold");
  EXPECT_EQ(job.attempt(), 1);
  EXPECT_EQ(job.progress().metrics().at("train/loss"), 0.5);
  EXPECT_EQ(job.model(), "projects/default/models/untold");
  EXPECT_TRUE(eventually([&] {
    const std::filesystem::recursive_directory_iterator files(config_.state_dir / "jobs");
    return std::none_of(begin(files), end(files),
                        [](const std::filesystem::directory_entry& entry) {
                          return entry.path().filename().string().starts_with("reports-");
                        });
  })) << "its spool is removed";
}

TEST_F(ServiceJob, F25ASlowWatcherGetsEveryEventOnceAndHeartbeatsAreNeverAhead) {
  v1::SubmitJobRequest request = job_request("many-steps", "");
  (*request.mutable_spec()->mutable_labels())["steps"] = "5000";
  v1::Job job;
  ASSERT_TRUE(submit(request, &job).ok());
  auto c = context();
  v1::WatchJobRequest watch_request;
  watch_request.set_name(job.name());
  auto stream = jobs_->WatchJob(c.get(), watch_request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  wait_for("many-steps", v1::SUCCEEDED);  // training must not wait for the watcher
  int64_t last = 0;
  while (stream->Read(&response)) {
    if (response.has_heartbeat()) {
      EXPECT_LE(response.heartbeat().newest_seq(), last);
      continue;
    }
    for (const v1::Event& event : response.events()) {
      ASSERT_EQ(event.seq(), last + 1);
      last = event.seq();
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_GE(last, 5000);
}

TEST_F(ServiceJob, PackedMetricsEqualUnpackedOnes) {
  v1::SubmitJobRequest request = job_request("many-steps", "");
  (*request.mutable_spec()->mutable_labels())["steps"] = "500";
  v1::Job job;
  ASSERT_TRUE(submit(request, &job).ok());
  for (const bool past : {false, true}) {
    if (past) wait_for("many-steps", v1::SUCCEEDED);
    auto c = context();
    v1::WatchJobRequest watch_request;
    watch_request.set_name(job.name());
    watch_request.set_packed(true);
    auto stream = jobs_->WatchJob(c.get(), watch_request);
    std::vector<v1::Event> events;
    int packed = 0;
    for (v1::WatchJobResponse response; stream->Read(&response);) {
      events.insert(events.end(), response.events().begin(), response.events().end());
    }
    EXPECT_TRUE(stream->Finish().ok());
    grpc::Status end;
    const std::vector<v1::Event> plain = watch("many-steps", 0, &end);
    ASSERT_EQ(events.size(), plain.size());
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_FALSE(events[i].has_metrics());
      EXPECT_FALSE(plain[i].has_packed_metrics());
      packed += events[i].has_packed_metrics();
      ASSERT_TRUE(unpack_metrics(events[i]));
      ASSERT_EQ(events[i].SerializeAsString(), plain[i].SerializeAsString()) << i;
    }
    EXPECT_GT(packed, 0);
  }
}

TEST_F(ServiceJob, PastEventsShareMessages) {
  v1::SubmitJobRequest request = job_request("many-steps", "");
  (*request.mutable_spec()->mutable_labels())["steps"] = "500";
  v1::Job job;
  ASSERT_TRUE(submit(request, &job).ok());
  wait_for("many-steps", v1::SUCCEEDED);
  auto c = context();
  v1::WatchJobRequest watch_request;
  watch_request.set_name(job.name());
  watch_request.set_after(7);
  auto stream = jobs_->WatchJob(c.get(), watch_request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.has_start());
  int64_t last = 7;
  int messages = 0, events = 0;
  while (stream->Read(&response)) {
    messages += !response.events().empty();
    events += response.events_size();
    for (const v1::Event& event : response.events()) {
      ASSERT_EQ(event.seq(), last + 1);
      last = event.seq();
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_LT(messages, events / 4);
}

/// A watch stream that is cancelled at its end.
struct OpenStream {
  OpenStream(v1::JobService::Stub& jobs, const std::string& name) {
    context.set_deadline(std::chrono::system_clock::now() + patience());
    v1::WatchJobRequest request;
    request.set_name(name);
    stream = jobs.WatchJob(&context, request);
  }
  ~OpenStream() {
    context.TryCancel();
    stream->Finish();
  }
  bool answered() {
    v1::WatchJobResponse response;
    return stream->Read(&response) && response.has_start();
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>> stream;
};

TEST_F(ServiceJob, TooManyStreamsOfAConnectionAreRefusedAndNotLeftWaiting) {
  const std::string name = submit("watched", "wait_for_stop").name();
  std::vector<std::unique_ptr<OpenStream>> streams;
  for (int i = 0; i < kWatchStreamsPerConnectionMax; ++i) {
    streams.push_back(std::make_unique<OpenStream>(*jobs_, name));
  }
  for (const auto& open : streams) ASSERT_TRUE(open->answered());
  grpc::Status end;
  watch("watched", 0, &end);
  EXPECT_EQ(end.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reason_of(end), "STREAM_LIMIT_REACHED");
  EXPECT_NE(end.error_message().find("open another connection"), std::string::npos);
  EXPECT_EQ(get("watched").name(), name) << "other calls go on";
  const auto full = jobs_.get();
  const std::unique_ptr<v1::JobService::Stub> kept = std::move(jobs_);
  connect("unix:" + config_.socket.string());  // opens another connection
  EXPECT_TRUE(OpenStream(*jobs_, name).answered());
  streams.pop_back();
  EXPECT_TRUE(eventually([&] { return OpenStream(*full, name).answered(); })) << "a place is free";
}

TEST_F(ServiceJob, StreamsBeyondTheServersLimitAreRefusedWithASentence) {
  stop();
  config_.watch_streams_max = 2;
  start();
  const std::string name = submit("watched", "wait_for_stop").name();
  OpenStream one(*jobs_, name), two(*jobs_, name);
  ASSERT_TRUE(one.answered());
  ASSERT_TRUE(two.answered());
  grpc::Status end;
  watch("watched", 0, &end);
  EXPECT_EQ(reason_of(end), "STREAM_LIMIT_REACHED");
  EXPECT_NE(end.error_message().find("watch_streams_max"), std::string::npos);
}

TEST_F(ServiceJob, AQuietStreamSendsHeartbeats) {
  submit("quiet", "wait_for_stop");
  wait_for("quiet", v1::RUNNING);
  auto c = context();
  v1::WatchJobRequest request;
  request.set_name("projects/default/jobs/quiet");
  auto stream = jobs_->WatchJob(c.get(), request);
  v1::WatchJobResponse response;
  int beats = 0;
  int64_t seen = 0;
  while (beats < 3 && stream->Read(&response)) {
    if (!response.events().empty()) seen = response.events().rbegin()->seq();
    if (response.has_heartbeat()) {
      ++beats;
      EXPECT_EQ(response.heartbeat().newest_seq(), seen);
    }
  }
  EXPECT_EQ(beats, 3);
  c->TryCancel();
  stream->Finish();
}

}  // namespace
}  // namespace trainyard::server
