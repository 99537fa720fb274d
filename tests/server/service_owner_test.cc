// Tests of job owners, drained devices, time limits and dependencies through the whole daemon.
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "proto/convert/spec.h"
#include "src/checkpoint/checkpoint.h"
#include "src/job/identity.h"
#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

class ServiceOwner : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    make_dataset();
  }

  /// Returns the name that the kernel reports for the user of this process.
  static std::string me() {
    const passwd* user = ::getpwuid(::getuid());
    return user != nullptr ? user->pw_name : "uid:" + std::to_string(::getuid());
  }
  /// Restarts the daemon on TCP, with this file of tokens, which may be empty.
  void serve_on_tcp(const std::string& tokens) {
    stop();
    if (!tokens.empty()) {
      std::ofstream(root_ / "token") << tokens;
      std::filesystem::permissions(root_ / "token", std::filesystem::perms::owner_read);
      config_.token_file = root_ / "token";
    }
    config_.listen = "127.0.0.1:0";
    start();
    connect("127.0.0.1:" + std::to_string(daemon_->port()));
  }
  static std::unique_ptr<grpc::ClientContext> context_with(const std::string& token) {
    auto c = context();
    c->AddMetadata("authorization", "Bearer " + token);
    return c;
  }
  std::vector<std::string> list(const v1::ListJobsRequest& request, grpc::ClientContext& c) {
    v1::ListJobsResponse response;
    const grpc::Status s = jobs_->ListJobs(&c, request, &response);
    EXPECT_TRUE(s.ok()) << s.error_message();
    std::vector<std::string> names;
    for (const v1::Job& job : response.jobs()) {
      names.push_back(job.name().substr(job.name().rfind('/') + 1));
    }
    return names;
  }
  std::vector<std::string> list_mine() {
    v1::ListJobsRequest request;
    request.set_mine(true);
    return list(request, *context());
  }
  std::vector<std::string> list_of(const std::string& owner) {
    v1::ListJobsRequest request;
    request.set_owner(owner);
    return list(request, *context());
  }

  grpc::Status drain(const std::string& name, const std::string& reason, bool vacate,
                     v1::Device* device) {
    v1::DrainDeviceRequest request;
    request.set_name(name);
    request.set_reason(reason);
    request.set_vacate(vacate);
    return system_->DrainDevice(context().get(), request, device);
  }
  grpc::Status resume_device(const std::string& name, v1::Device* device) {
    v1::ResumeDeviceRequest request;
    request.set_name(name);
    return system_->ResumeDevice(context().get(), request, device);
  }
  v1::Device get_device(const std::string& name) {
    v1::ListDevicesResponse devices;
    EXPECT_TRUE(system_->ListDevices(context().get(), {}, &devices).ok());
    for (const v1::Device& device : devices.devices()) {
      if (device.name() == name) return device;
    }
    return {};
  }

  grpc::Status retry(const std::string& id, const std::string& new_id, v1::Job* job) {
    v1::RetryJobRequest request;
    request.set_name("projects/default/jobs/" + id);
    request.set_job_id(new_id);
    return jobs_->RetryJob(context().get(), request, job);
  }
  void remove_job(const std::string& id) {
    v1::DeleteJobRequest request;
    request.set_name("projects/default/jobs/" + id);
    google::protobuf::Empty empty;
    const grpc::Status s = jobs_->DeleteJob(context().get(), request, &empty);
    EXPECT_TRUE(s.ok()) << s.error_message();
  }

  /// Writes the job's checkpoint without tensors, since its fake worker only reported one.
  void write_checkpoint(const v1::Job& job) {
    EngineSpec engine = to_engine(job.spec()).value();
    TrainJob run;
    run.model = std::move(engine.model);
    run.recipe = std::move(engine.recipe);
    run.dataset = config_.state_dir / "datasets" / dataset_.digest();
    CheckpointState state;
    state.step = job.checkpoint_step();
    state.job_digest = RunIdentity::of(run).value().record().digest;
    state.extra_json = "{}";
    // Retries if the daemon tidies the folder at that moment: it mistakes the half-written
    // checkpoint for a leftover and deletes it.
    const auto folder = config_.state_dir / "jobs" / job.uid() / "checkpoints";
    ASSERT_TRUE(
        eventually([&] { return save_checkpoint(local_files(), folder, state, {}, {}).ok(); }));
  }

  static v1::SubmitJobRequest request_after(const std::string& id, const std::string& job,
                                            v1::JobDependency::On on) {
    v1::SubmitJobRequest request = job_request(id, "");
    v1::JobDependency& after = *request.mutable_spec()->add_after();
    after.set_job(job);
    after.set_on(on);
    return request;
  }
};

TEST_F(ServiceOwner, OnTheUnixSocketTheOwnerIsThePeersUser) {
  const v1::Job job = submit("mine-1", "");
  EXPECT_EQ(job.owner(), me());
  wait_for("mine-1", v1::SUCCEEDED);
  EXPECT_EQ(list_mine(), std::vector<std::string>{"mine-1"});
  EXPECT_EQ(list_of(me()), std::vector<std::string>{"mine-1"});
  EXPECT_TRUE(list_of("someone-else").empty());
  v1::ListJobsRequest both;
  both.set_mine(true);
  both.set_owner("ada");
  v1::ListJobsResponse response;
  const grpc::Status s = jobs_->ListJobs(context().get(), both, &response);
  EXPECT_EQ(reason_of(s), "FIELD_CONFLICT");
  stop();
  start();
  EXPECT_EQ(get("mine-1").owner(), me()) << "stored";
}

TEST_F(ServiceOwner, OtherMetadataDoesNotChangeTheOwner) {
  auto c = context();
  c->AddMetadata("trainyard_user", "root-of-all");
  v1::Job job;
  ASSERT_TRUE(jobs_->SubmitJob(c.get(), job_request("mine-1", ""), &job).ok());
  EXPECT_EQ(job.owner(), me());
}

TEST_F(ServiceOwner, OnTcpTheOwnerIsTheTokensName) {
  serve_on_tcp("ada 0123456789abcdef-ada\nbob 0123456789abcdef-bob\n0123456789abcdef-any\n");
  v1::Job job;
  ASSERT_TRUE(jobs_
                  ->SubmitJob(context_with("0123456789abcdef-ada").get(),
                              job_request("hers", "refuse"), &job)
                  .ok());
  EXPECT_EQ(job.owner(), "ada");
  ASSERT_TRUE(
      jobs_->SubmitJob(context_with("0123456789abcdef-any").get(), job_request("unnamed", ""), &job)
          .ok());
  EXPECT_EQ(job.owner(), "token");
  v1::ListJobsRequest mine;
  mine.set_mine(true);
  EXPECT_EQ(list(mine, *context_with("0123456789abcdef-ada")), std::vector<std::string>{"hers"});
  EXPECT_TRUE(list(mine, *context_with("0123456789abcdef-bob")).empty());
  connect("unix:" + config_.socket.string());
  wait_for("hers", v1::FAILED);
  v1::RetryJobRequest retry;  // another user retries and becomes the new job's owner
  retry.set_name("projects/default/jobs/hers");
  ASSERT_TRUE(jobs_->RetryJob(context().get(), retry, &job).ok());
  EXPECT_EQ(job.owner(), me());
  EXPECT_EQ(get("hers").owner(), "ada");
}

TEST_F(ServiceOwner, OnTcpATokenIsNeeded) {
  serve_on_tcp("");
  v1::Job job;
  const grpc::Status s = submit(job_request("nobodys", ""), &job);
  EXPECT_EQ(s.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(reason_of(s), "CREDENTIALS_MISSING");
}

TEST_F(ServiceOwner, NothingStartsOnADrainedDeviceUntilItIsResumed) {
  submit("stays", "wait_for_stop");
  wait_for("stays", v1::RUNNING);
  v1::Device device;
  ASSERT_TRUE(drain("devices/cpu", "new memory", false, &device).ok());
  EXPECT_EQ(device.health(), v1::Device::QUARANTINED);
  EXPECT_EQ(device.reason(), "Drained by " + me() + ": new memory.");
  EXPECT_EQ(device.drain().owner(), me());
  EXPECT_GT(device.drain().time().seconds(), 0);
  EXPECT_EQ(device.jobs_size(), 1);
  submit("waits", "");
  ASSERT_TRUE(eventually([&] {
    return get("waits").message().find(" cpu: Drained by an operator: new memory.") !=
           std::string::npos;
  })) << get("waits").message();
  EXPECT_EQ(get("stays").state(), v1::RUNNING) << "it goes on";
  stop();
  start();
  EXPECT_EQ(get_device("devices/cpu").drain().reason(), "new memory") << "a restart keeps it";
  ASSERT_TRUE(eventually([&] {
    return get("waits").message().find("Drained by an operator") != std::string::npos;
  })) << "the dispatcher has looked: "
      << get("waits").message();
  EXPECT_EQ(get("waits").state(), v1::QUEUED);
  ASSERT_TRUE(resume_device("devices/cpu", &device).ok());
  EXPECT_FALSE(device.has_drain());
  EXPECT_EQ(device.health(), v1::Device::HEALTHY);
  wait_for("waits", v1::SUCCEEDED);
  ASSERT_TRUE(resume_device("devices/cpu", &device).ok()) << "safe to repeat";
  v1::Job job;
  ASSERT_TRUE(cancel("stays", &job).ok());
}

TEST_F(ServiceOwner, ADrainMaySendTheJobsBackToTheQueue) {
  submit("leaves", "wait_for_stop");
  wait_for("leaves", v1::RUNNING);
  v1::Device device;
  ASSERT_TRUE(drain("devices/cpu", "", true, &device).ok());
  EXPECT_EQ(device.reason(), "Drained by " + me() + ".");
  const v1::Job back = wait_for("leaves", v1::QUEUED);
  EXPECT_EQ(back.checkpoint_step(), 5) << "with a checkpoint";
  ASSERT_TRUE(resume_device("devices/cpu", &device).ok());
  ASSERT_TRUE(eventually([&] { return get("leaves").attempt() == 2; }));
  v1::Job job;
  ASSERT_TRUE(cancel("leaves", &job).ok());
}

TEST_F(ServiceOwner, AnUnknownDeviceIsRefusedWithTheKnownOnes) {
  v1::Device device;
  grpc::Status s = drain("devices/gpu-7", "", false, &device);
  EXPECT_EQ(s.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(reason_of(s), "DEVICE_NOT_FOUND");
  EXPECT_EQ(s.error_message(), "name: there is no device devices/gpu-7, expected devices/cpu");
  EXPECT_EQ(reason_of(resume_device("devices/gpu-7", &device)), "DEVICE_NOT_FOUND");
  EXPECT_EQ(reason_of(drain("gpu 7", "", false, &device)), "NAME_MALFORMED");
  EXPECT_EQ(reason_of(drain("devices/cpu", std::string(257, 'x'), false, &device)),
            "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(reason_of(drain("devices/cpu", "two\nlines", false, &device)), "FIELD_OUT_OF_RANGE");
  EXPECT_FALSE(get_device("devices/cpu").has_drain());
}

TEST_F(ServiceOwner, MemoryOfOtherProcessesIsReportedAsOfNow) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  const auto others_when_used = [&](int64_t bytes) {
    Devices now = inventory_->read();
    now.devices.at(0).memory_used_bytes = bytes;
    inventory_->set(now);
    return get_device("devices/cpu").others_bytes();
  };
  EXPECT_EQ(others_when_used(3 * kGiB), 3 * kGiB) << "though no job makes anyone look";
  EXPECT_EQ(others_when_used(0), 0);
  Devices devices = inventory_->read();
  devices.devices.at(0).overhead_bytes = kGiB;
  inventory_->set(devices);
  submit("runs", "wait_for_stop");
  wait_for("runs", v1::RUNNING);
  int64_t planned = 0;  // the plan counts once the dispatcher has received it
  EXPECT_TRUE(eventually([&] {
    const v1::Device device = get_device("devices/cpu");
    planned = device.uses_size() == 1 ? device.uses(0).planned_bytes() : 0;
    return planned >= kGiB && others_when_used(2 * kGiB + planned) == 2 * kGiB;
  }));
  EXPECT_EQ(others_when_used(planned), 0);
  v1::Job job;
  ASSERT_TRUE(cancel("runs", &job).ok());
}

class ServiceDrainedGpu : public ServiceOwner {
 protected:
  void SetUp() override {
    gpus_ = {gpu("devices/gpu-0", "GPU-a"), gpu("devices/gpu-1", "GPU-b")};
    ServiceOwner::SetUp();
  }
  static Device gpu(const std::string& name, const std::string& uuid) {
    Device device;
    device.name = name;
    device.kind = DeviceKind::kGpu;
    device.model = "H";
    device.uuid = uuid;
    device.memory_bytes = int64_t{8} << 30;
    return device;
  }
};

TEST_F(ServiceDrainedGpu, IsIdentifiedByItsUuidAndStaysDrainedWhileAbsent) {
  v1::Device device;
  ASSERT_TRUE(drain("devices/gpu-1", "hot", false, &device).ok());
  stop();
  gpus_ = {gpu("devices/gpu-0", "GPU-b")};  // the first GPU is removed, so the indices have changed
  start();
  EXPECT_EQ(get_device("devices/gpu-0").drain().reason(), "hot");
  stop();
  gpus_ = {gpu("devices/gpu-0", "GPU-a")};
  start();
  EXPECT_FALSE(get_device("devices/gpu-0").has_drain());
  const v1::Device away = get_device("devices/gpu-1");
  EXPECT_EQ(away.health(), v1::Device::UNKNOWN);
  EXPECT_EQ(away.reason(), "The device is absent. Drained by " + me() + ": hot.");
  ASSERT_TRUE(resume_device("devices/gpu-1", &device).ok());
  EXPECT_FALSE(device.has_drain());
  EXPECT_TRUE(get_device("devices/gpu-1").name().empty());
}

TEST_F(ServiceDrainedGpu, IsResumedByItsNameEvenIfAnotherGpuHasThatNameNow) {
  v1::Device device;
  ASSERT_TRUE(drain("devices/gpu-1", "hot", false, &device).ok());
  const Device cpu = inventory_->read().devices.at(0);
  const auto shown = [&] {
    v1::ListDevicesResponse devices;
    EXPECT_TRUE(system_->ListDevices(context().get(), {}, &devices).ok());
    std::vector<std::string> reasons;
    for (const v1::Device& d : devices.devices()) {
      if (d.name() == "devices/gpu-1") reasons.push_back(d.drain().reason());
    }
    return reasons;
  };
  inventory_->set({{cpu, gpu("devices/gpu-0", "GPU-a"), gpu("devices/gpu-1", "GPU-c")}, ""});
  EXPECT_EQ(shown(), (std::vector<std::string>{"", "hot"}))
      << "the one in its place is not drained";
  ASSERT_TRUE(drain("devices/gpu-1", "noisy", false, &device).ok());
  ASSERT_TRUE(drain("devices/gpu-0", "stays", false, &device).ok());
  EXPECT_EQ(shown(), (std::vector<std::string>{"noisy", "hot"}));
  ASSERT_TRUE(resume_device("devices/gpu-1", &device).ok());
  EXPECT_FALSE(device.has_drain());
  EXPECT_EQ(shown(), (std::vector<std::string>{""}));
  EXPECT_EQ(get_device("devices/gpu-0").drain().reason(), "stays");
  inventory_->set({{cpu, gpu("devices/gpu-0", "GPU-a"), gpu("devices/gpu-1", "GPU-b")}, ""});
  EXPECT_EQ(shown(), (std::vector<std::string>{""})) << "it is back";
  ASSERT_TRUE(drain("devices/gpu-1", "hot", false, &device).ok());
  inventory_->set({{cpu, gpu("devices/gpu-0", "GPU-b"), gpu("devices/gpu-1", "GPU-a")}, ""});
  ASSERT_TRUE(resume_device("devices/gpu-1", &device).ok());
  EXPECT_EQ(get_device("devices/gpu-0").drain().reason(), "hot") << "only by the name it has";
  EXPECT_FALSE(get_device("devices/gpu-1").has_drain());
}

TEST_F(ServiceDrainedGpu, AJobMayBeSubmittedForIt) {
  v1::Device device;
  ASSERT_TRUE(drain("devices/gpu-0", "", false, &device).ok());
  ASSERT_TRUE(drain("devices/gpu-1", "hot", false, &device).ok());
  v1::SubmitJobRequest request = job_request("waits", "");
  request.mutable_spec()->mutable_resources()->set_device(v1::Resources::GPU);
  v1::Job job;
  const grpc::Status s = submit(request, &job);
  ASSERT_TRUE(s.ok()) << s.error_message();
  ASSERT_TRUE(eventually([&] {
    return get("waits").message().find("Drained by an operator") != std::string::npos;
  })) << get("waits").message();
}

TEST_F(ServiceOwner, AJobAtItsTimeLimitEndsAndARetryContinues) {
  v1::SubmitJobRequest request = job_request("limited", "wait_for_stop");
  request.mutable_spec()->mutable_resources()->set_time_limit_seconds(1);
  v1::Job job;
  ASSERT_TRUE(submit(request, &job).ok());
  const v1::Job ended = wait_for("limited", v1::FAILED);
  EXPECT_EQ(ended.reason(), "TIME_LIMIT_REACHED");
  EXPECT_EQ(ended.attempt(), 1);
  EXPECT_EQ(ended.checkpoint_step(), 5);
  EXPECT_GE(ended.run_seconds(), 1.0);
  EXPECT_LT(ended.run_seconds(), 15.0);
  EXPECT_NE(ended.message().find("of at most 1 s (resources.time_limit_seconds)"),
            std::string::npos)
      << ended.message();
  write_checkpoint(ended);
  ASSERT_TRUE(retry("limited", "limited-2", &job).ok());
  EXPECT_EQ(job.origin().job(), ended.name());
  EXPECT_EQ(job.origin().step(), 5);
  EXPECT_EQ(job.checkpoint_step(), 5);
  EXPECT_EQ(job.spec().resources().time_limit_seconds(), 1);
  EXPECT_EQ(job.run_seconds(), 0) << "it has all of its time again";
  wait_for("limited-2", v1::RUNNING);
  ASSERT_TRUE(cancel("limited-2", &job).ok());
}

TEST_F(ServiceOwner, ATimeLimitHoldsOverARestart) {
  v1::SubmitJobRequest request = job_request("limited", "wait_for_stop");
  request.mutable_spec()->mutable_resources()->set_time_limit_seconds(2);
  v1::Job job;
  ASSERT_TRUE(submit(request, &job).ok());
  wait_for("limited", v1::RUNNING);
  stop();
  start();
  const v1::Job ended = wait_for("limited", v1::FAILED);
  EXPECT_EQ(ended.reason(), "TIME_LIMIT_REACHED");
  EXPECT_EQ(ended.attempt(), 2);
}

TEST_F(ServiceOwner, ATimeLimitHasARange) {
  for (const int64_t seconds : {int64_t{0}, int64_t{-1}, int64_t{315'360'001}}) {
    v1::SubmitJobRequest request = job_request("limited", "");
    request.mutable_spec()->mutable_resources()->set_time_limit_seconds(seconds);
    v1::Job job;
    const grpc::Status s = submit(request, &job);
    EXPECT_EQ(reason_of(s), "FIELD_OUT_OF_RANGE");
    EXPECT_NE(s.error_message().find("resources.time_limit_seconds: " + std::to_string(seconds) +
                                     " is out of range, expected 1..315360000"),
              std::string::npos)
        << s.error_message();
  }
}

TEST_F(ServiceOwner, AJobStartsOnceTheOneBeforeItHasSucceeded) {
  submit("first", "wait_for_stop");
  wait_for("first", v1::RUNNING);
  v1::Job job;
  ASSERT_TRUE(submit(request_after("second", "first", v1::JobDependency::ANY), &job).ok());
  EXPECT_EQ(job.reason(), "WAITING_FOR_JOB");
  EXPECT_EQ(job.message(), "Waits for the job first to end.");
  EXPECT_EQ(job.spec().after(0).job(), "projects/default/jobs/first");
  ASSERT_TRUE(submit(request_after("third", "second", v1::JobDependency::SUCCESS), &job).ok());
  ASSERT_TRUE(submit(request_after("needy", "first", v1::JobDependency::SUCCESS), &job).ok());
  submit("between", "");  // must not wait behind jobs that wait for their dependencies
  wait_for("between", v1::SUCCEEDED);
  EXPECT_EQ(get("second").state(), v1::QUEUED);
  stop();
  start();
  wait_for("first", v1::RUNNING);
  EXPECT_EQ(get("second").reason(), "WAITING_FOR_JOB") << "also after a restart";
  ASSERT_TRUE(cancel("first", &job).ok());
  wait_for("third", v1::SUCCEEDED);
  const v1::Job needy = wait_for("needy", v1::CANCELLED);
  EXPECT_EQ(needy.reason(), "DEPENDENCY_FAILED");
  EXPECT_EQ(needy.attempt(), 0);
  // A retry would depend on the same failed job, so it is refused immediately.
  v1::RetryJobRequest retry;
  retry.set_name(needy.name());
  const grpc::Status refused = jobs_->RetryJob(context().get(), retry, &job);
  EXPECT_EQ(reason_of(refused), "DEPENDENCY_FAILED");
}

// A client that never got the reply sends the request again.
TEST_F(ServiceOwner, ARepeatedRequestReturnsItsJobAlsoIfItsDependencyIsGone) {
  submit("first", "wait_for_stop");
  v1::SubmitJobRequest request = request_after("second", "first", v1::JobDependency::SUCCESS);
  request.set_request_id("7d444840-9dc0-11d1-b245-5ffdce74fad2");
  v1::Job second;
  v1::Job job;
  ASSERT_TRUE(submit(request, &second).ok());
  ASSERT_TRUE(cancel("first", &job).ok());
  wait_for("second", v1::CANCELLED);
  const auto expect_it = [&] {
    const grpc::Status s = submit(request, &job);
    ASSERT_TRUE(s.ok()) << s.error_message();
    EXPECT_EQ(job.uid(), second.uid());
    EXPECT_EQ(job.state(), v1::CANCELLED);
  };
  expect_it();
  remove_job("first");
  expect_it();
  v1::SubmitJobRequest other = request;
  other.set_job_id("third");
  EXPECT_EQ(reason_of(submit(other, &job)), "REQUEST_ID_REUSED");
  v1::SubmitJobRequest check = request;
  check.set_validate_only(true);
  EXPECT_EQ(reason_of(submit(check, &job)), "JOB_NOT_FOUND") << "a check is of today";
  check.set_validate_only(false);
  check.set_request_id("7d444840-9dc0-11d1-b245-5ffdce74fad3");
  EXPECT_EQ(reason_of(submit(check, &job)), "JOB_NOT_FOUND") << "a new request";
  remove_job("second");
  EXPECT_EQ(reason_of(submit(request, &job)), "JOB_NOT_FOUND");
}

TEST_F(ServiceOwner, ARetryOfAnUnstartedJobDoesNotCheckItsDependencyAgain) {
  submit("first", "slow");
  v1::Job job;
  ASSERT_TRUE(submit(request_after("second", "first", v1::JobDependency::SUCCESS), &job).ok());
  v1::PauseJobRequest pause;
  pause.set_name(job.name());
  ASSERT_TRUE(jobs_->PauseJob(context().get(), pause, &job).ok());
  v1::Job third;
  ASSERT_TRUE(submit(request_after("third", "first", v1::JobDependency::SUCCESS), &third).ok());
  ASSERT_TRUE(cancel("third", &third).ok());
  wait_for("first", v1::SUCCEEDED);
  ASSERT_TRUE(cancel("second", &job).ok());
  EXPECT_EQ(job.attempt(), 0);
  remove_job("first");
  const grpc::Status s = retry("second", "second-2", &job);
  ASSERT_TRUE(s.ok()) << s.error_message();
  EXPECT_EQ(job.spec().after_size(), 0);
  wait_for("second-2", v1::SUCCEEDED);
  EXPECT_EQ(reason_of(retry("third", "third-2", &job)), "JOB_NOT_FOUND")
      << "it was cancelled before it had what it waited for";
}

TEST_F(ServiceOwner, ADeletedModelIsNotWaitedFor) {
  submit("base", "");
  wait_for("base", v1::SUCCEEDED);
  v1::SubmitJobRequest request = request_after("tuned", "base", v1::JobDependency::SUCCESS);
  request.mutable_spec()->mutable_recipe()->mutable_initial_weights()->set_job("base");
  v1::DeleteModelRequest remove;
  google::protobuf::Empty empty;
  remove.set_name("projects/default/models/base");
  ASSERT_TRUE(models_->DeleteModel(context().get(), remove, &empty).ok());
  v1::PlanJobRequest plan;
  *plan.mutable_spec() = request.spec();
  v1::JobPlan planned;
  EXPECT_EQ(reason_of(jobs_->PlanJob(context().get(), plan, &planned)), "MODEL_NOT_FOUND");
  v1::Job job;
  const grpc::Status refused = submit(request, &job);
  EXPECT_EQ(reason_of(refused), "MODEL_NOT_FOUND");
  request.set_validate_only(true);
  const grpc::Status checked = submit(request, &job);
  EXPECT_EQ(reason_of(checked), "MODEL_NOT_FOUND");
  EXPECT_EQ(checked.error_message(), refused.error_message()) << "a check says the same";
}

TEST_F(ServiceOwner, BadDependenciesAreRefusedByTheirField) {
  v1::Job job;
  grpc::Status s = submit(request_after("a-job", "nowhere", v1::JobDependency::SUCCESS), &job);
  EXPECT_EQ(s.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(reason_of(s), "JOB_NOT_FOUND");
  s = submit(request_after("a-job", "No Job!", v1::JobDependency::SUCCESS), &job);
  EXPECT_EQ(reason_of(s), "NAME_MALFORMED") << s.error_message();
  s = submit(request_after("a-job", "a-job", static_cast<v1::JobDependency::On>(7)), &job);
  EXPECT_NE(s.error_message().find("after[0].on: 7 is not known, expected success or any"),
            std::string::npos)
      << s.error_message();
  submit("first", "");
  v1::SubmitJobRequest twice = request_after("a-job", "first", v1::JobDependency::SUCCESS);
  twice.mutable_spec()->add_after()->set_job("projects/default/jobs/first");
  s = submit(twice, &job);
  EXPECT_EQ(reason_of(s), "FIELD_CONFLICT") << s.error_message();
  v1::SubmitJobRequest many = job_request("a-job", "");
  for (int i = 0; i < 65; ++i) {
    many.mutable_spec()->add_after()->set_job("job-" + std::to_string(i));
  }
  s = submit(many, &job);
  EXPECT_NE(s.error_message().find("after: 65 jobs, expected at most 64"), std::string::npos)
      << s.error_message();
  v1::SubmitJobRequest check = request_after("a-job", "nowhere", v1::JobDependency::ANY);
  check.set_validate_only(true);
  EXPECT_EQ(reason_of(submit(check, &job)), "JOB_NOT_FOUND") << "a check says the same";
}

TEST_F(ServiceOwner, AJobMayBeginWithTheModelOfOneThatHasNotFinished) {
  submit("base", "slow");
  v1::SubmitJobRequest request = request_after("tuned", "base", v1::JobDependency::SUCCESS);
  request.mutable_spec()->mutable_recipe()->mutable_initial_weights()->set_job("base");
  v1::Job job;
  const grpc::Status s = submit(request, &job);
  ASSERT_TRUE(s.ok()) << s.error_message();
  EXPECT_EQ(job.reason(), "WAITING_FOR_JOB");

  v1::SubmitJobRequest loose = request;
  loose.set_job_id("loose");
  loose.mutable_spec()->mutable_after(0)->set_on(v1::JobDependency::ANY);
  const grpc::Status any = submit(loose, &job);
  EXPECT_EQ(reason_of(any), "FIELD_CONFLICT");
  EXPECT_NE(any.error_message().find("expected on: success"), std::string::npos);
  loose.mutable_spec()->clear_after();
  const grpc::Status none = submit(loose, &job);
  EXPECT_EQ(reason_of(none), "MODEL_NOT_FOUND");
  EXPECT_NE(none.error_message().find("name it in `after`"), std::string::npos)
      << none.error_message();

  wait_for("base", v1::SUCCEEDED);
  wait_for("tuned", v1::SUCCEEDED);
}

}  // namespace
}  // namespace trainyard::server
