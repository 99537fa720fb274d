// Tests of projects in a whole daemon: what the queue, the devices and messages show of other
// projects' jobs, and which devices a project's jobs use. The workers only pretend.
#include <gtest/gtest.h>

#include <map>

#include "tests/server/service_support.h"
#include "trainyard/v1/people_service.grpc.pb.h"

namespace trainyard::server {
namespace {

/// "ann" is a member of vision, "bob" of speech, "ops" an operator; each calls with a token.
class ServiceProjectViews : public ServiceTest {
 protected:
  void SetUp() override {
    Device gpu;
    gpu.kind = DeviceKind::kGpu;
    gpu.model = "A";
    gpu.memory_bytes = int64_t{8} << 30;
    for (const char* name : {"gpu-0", "gpu-1"}) {
      gpu.name = std::string("devices/") + name;
      gpu.uuid = std::string("GPU-") + name;
      gpus_.push_back(gpu);
    }
    ServiceTest::SetUp();
    config_.cpu_slots = 1;
    stop();
    start();
    people_ = v1::PeopleService::NewStub(channel_);
    for (const char* project : {"vision", "speech"}) {
      v1::CreateProjectRequest request;
      request.set_project_id(project);
      v1::Project created;
      check(people_->CreateProject(context().get(), request, &created));
    }
    add_member("ann", "vision");
    add_member("bob", "speech");
    v1::SetPersonRequest person;
    person.set_name("ops");
    person.set_server_role(v1::OPERATOR);
    v1::Person stored;
    check(people_->SetPerson(context().get(), person, &stored));
    for (const char* name : {"ann", "bob", "ops"}) {
      v1::CreateTokenRequest request;
      request.set_person(name);
      request.set_name("test");
      v1::CreateTokenResponse response;
      check(people_->CreateToken(context().get(), request, &response));
      tokens_[name] = response.text();
    }
    make_datasets();
  }
  static void check(const grpc::Status& s) { ASSERT_TRUE(s.ok()) << s.error_message(); }
  void add_member(const std::string& person, const std::string& project) {
    v1::SetMemberRequest request;
    request.set_parent("projects/" + project);
    request.set_person(person);
    request.set_role(v1::MEMBER);
    v1::Member member;
    check(people_->SetMember(context().get(), request, &member));
  }
  void make_datasets() {
    const std::string content = "a,b,label\n1,2,x\n3,4,y\n5,6,x\n7,8,y\n";
    for (const auto& [person, project] : {std::pair("ann", "vision"), std::pair("bob", "speech")}) {
      auto upload_context = as(person);
      v1::Upload uploaded;
      auto stream = datasets_->UploadFile(upload_context.get(), &uploaded);
      v1::UploadFileRequest part;
      part.mutable_start()->set_parent(std::string("projects/") + project);
      part.mutable_start()->set_sha256(sha256_hex(content));
      part.mutable_start()->set_size_bytes(static_cast<int64_t>(content.size()));
      stream->Write(part);
      part.mutable_chunk()->set_data(content);
      part.mutable_chunk()->set_crc32c(crc32c(content));
      stream->Write(part);
      part.mutable_finish();
      stream->Write(part);
      stream->WritesDone();
      check(stream->Finish());
      v1::CreateDatasetRequest request;
      request.set_parent(std::string("projects/") + project);
      request.set_dataset_id("iris");
      v1::DatasetSource& source = *request.mutable_spec()->add_sources();
      source.set_role(v1::DatasetSource::DATA);
      source.set_sha256(sha256_hex(content));
      request.mutable_spec()->mutable_csv()->set_target("label");
      v1::Dataset dataset;
      check(datasets_->CreateDataset(as(person).get(), request, &dataset));
      dataset_ = dataset;
      wait_for_ingest();
    }
  }
  std::unique_ptr<grpc::ClientContext> as(const std::string& person) const {
    auto c = context();
    c->AddMetadata("authorization", "Bearer " + tokens_.at(person));
    return c;
  }
  /// Submits a job that runs until it is stopped.
  v1::Job submit_as(const std::string& person, const std::string& project, const std::string& id,
                    v1::Resources::Device device = v1::Resources::CPU) {
    v1::SubmitJobRequest request = job_request(id, "wait_for_stop");
    request.set_parent("projects/" + project);
    request.mutable_spec()->mutable_recipe()->set_batch_size(1);
    request.mutable_spec()->mutable_resources()->set_device(device);
    v1::Job job;
    check(jobs_->SubmitJob(as(person).get(), request, &job));
    return job;
  }
  v1::Job get_as(const std::string& person, const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    check(jobs_->GetJob(as(person).get(), request, &job));
    return job;
  }
  v1::Job wait_as(const std::string& person, const std::string& name, v1::JobState state) {
    v1::Job job;
    EXPECT_TRUE(eventually([&] { return (job = get_as(person, name)).state() == state; }))
        << v1::JobState_Name(job.state()) << ": " << job.message();
    return job;
  }
  v1::ListQueueResponse queue_as(const std::string& person, const std::string& project) {
    v1::ListQueueRequest request;
    request.set_parent("projects/" + project);
    v1::ListQueueResponse response;
    check(jobs_->ListQueue(as(person).get(), request, &response));
    return response;
  }
  v1::ListDevicesResponse devices_as(const std::string& person) {
    v1::ListDevicesResponse response;
    check(system_->ListDevices(as(person).get(), {}, &response));
    return response;
  }
  grpc::Status set_devices(const std::string& person, const std::string& project,
                           const std::vector<std::string>& devices, v1::Project* stored) {
    v1::SetProjectDevicesRequest request;
    request.set_name("projects/" + project);
    request.mutable_devices()->Assign(devices.begin(), devices.end());
    return people_->SetProjectDevices(as(person).get(), request, stored);
  }

  std::unique_ptr<v1::PeopleService::Stub> people_;
  std::map<std::string, std::string> tokens_;
};

// Both projects have a job "same": neither may appear as the other's.
TEST_F(ServiceProjectViews, OtherProjectsJobsHaveAPlaceButNoName) {
  submit_as("ann", "vision", "same");
  wait_as("ann", "projects/vision/jobs/same", v1::RUNNING);
  submit_as("bob", "speech", "same");
  submit_as("ann", "vision", "next");
  const std::string secret = "projects/vision";
  ASSERT_TRUE(eventually([&] {
    return get_as("bob", "projects/speech/jobs/same").message().find("held by") !=
           std::string::npos;
  }));
  const std::string why = get_as("bob", "projects/speech/jobs/same").message();
  EXPECT_NE(why.find("held by a job of another project (for"), std::string::npos) << why;
  EXPECT_EQ(get_as("ann", "projects/vision/jobs/next").message().find("same"), std::string::npos);

  const v1::ListQueueResponse of_bob = queue_as("bob", "speech");
  ASSERT_EQ(of_bob.jobs_size(), 2);
  EXPECT_EQ(of_bob.waiting(), 2);
  EXPECT_EQ(of_bob.jobs(0).name(), "projects/speech/jobs/same");
  EXPECT_EQ(of_bob.jobs(0).owner(), "bob");
  EXPECT_FALSE(of_bob.jobs(0).other_project());
  EXPECT_TRUE(of_bob.jobs(1).other_project());
  EXPECT_EQ(of_bob.jobs(1).position(), 2);
  EXPECT_EQ(of_bob.ShortDebugString().find(secret), std::string::npos) << of_bob.DebugString();
  EXPECT_EQ(of_bob.ShortDebugString().find("ann"), std::string::npos);
  const v1::ListQueueResponse of_ops = queue_as("ops", "speech");
  ASSERT_EQ(of_ops.jobs_size(), 2);
  EXPECT_EQ(of_ops.jobs(1).name(), "projects/vision/jobs/next") << "an operator sees all";

  const v1::ListDevicesResponse devices = devices_as("bob");
  const v1::Device& cpu = devices.devices(0);
  EXPECT_EQ(cpu.jobs_size(), 0);
  ASSERT_EQ(cpu.uses_size(), 1);
  EXPECT_TRUE(cpu.uses(0).other_project());
  EXPECT_EQ(cpu.uses(0).job(), "");
  EXPECT_EQ(cpu.uses(0).planned_bytes(), devices_as("ann").devices(0).uses(0).planned_bytes());
  EXPECT_EQ(devices.ShortDebugString().find(secret), std::string::npos) << devices.DebugString();
  EXPECT_EQ(devices_as("ann").devices(0).jobs(0), "projects/vision/jobs/same");
  EXPECT_EQ(devices_as("ops").devices(0).uses(0).job(), "projects/vision/jobs/same");
}

TEST_F(ServiceProjectViews, OnlyOperatorsSeeWhoDrainedADevice) {
  v1::DrainDeviceRequest request;
  request.set_name("devices/gpu-0");
  request.set_reason("a new fan");
  v1::Device device;
  check(system_->DrainDevice(as("ops").get(), request, &device));
  EXPECT_EQ(device.reason(), "Drained by ops: a new fan.");
  const v1::Device seen = devices_as("ann").devices(1);
  EXPECT_EQ(seen.reason(), "Drained by an operator: a new fan.");
  EXPECT_TRUE(seen.has_drain());
  EXPECT_EQ(seen.drain().owner(), "");
  EXPECT_EQ(devices_as("ops").devices(1).drain().owner(), "ops");
}

TEST_F(ServiceProjectViews, AProjectsJobsUseTheDevicesThatAnOperatorAllows) {
  v1::Project stored;
  EXPECT_EQ(reason_of(set_devices("ann", "vision", {"devices/gpu-1"}, &stored)), "ROLE_REQUIRED");
  EXPECT_EQ(reason_of(set_devices("ops", "vision", {"devices/gpu-7"}, &stored)),
            "DEVICE_NOT_FOUND");
  check(set_devices("ops", "vision", {"devices/gpu-1"}, &stored));
  EXPECT_EQ(stored.devices(0), "devices/gpu-1");

  v1::SubmitJobRequest impossible = job_request("never", "");
  impossible.set_parent("projects/vision");
  impossible.mutable_spec()->mutable_recipe()->set_batch_size(1);
  impossible.mutable_spec()->mutable_resources()->set_device(v1::Resources::CPU);
  v1::Job job;
  const grpc::Status refused = jobs_->SubmitJob(as("ann").get(), impossible, &job);
  EXPECT_EQ(reason_of(refused), "RESOURCES_IMPOSSIBLE");
  EXPECT_NE(refused.error_message().find("which may use only devices/gpu-1"), std::string::npos)
      << refused.error_message();

  submit_as("ann", "vision", "first", v1::Resources::AUTO);
  EXPECT_EQ(wait_as("ann", "projects/vision/jobs/first", v1::RUNNING).device(), "devices/gpu-1");
  const v1::ListDevicesResponse listed = devices_as("ann");
  ASSERT_EQ(listed.project_devices_size(), 1);
  EXPECT_EQ(listed.project_devices(0).project(), "projects/vision");
  EXPECT_EQ(listed.project_devices(0).devices(0), "devices/gpu-1");
  EXPECT_EQ(devices_as("bob").project_devices_size(), 0);

  // The change counts at once for a job that waits, and the one that runs goes on.
  submit_as("ann", "vision", "second", v1::Resources::GPU);
  ASSERT_TRUE(eventually([&] {
    const std::string message = get_as("ann", "projects/vision/jobs/second").message();
    return message.find("The project vision may use devices/gpu-1; it is in use.") !=
           std::string::npos;
  })) << get_as("ann", "projects/vision/jobs/second").message();
  check(set_devices("ops", "vision", {"devices/gpu-0", "devices/gpu-1"}, &stored));
  EXPECT_EQ(wait_as("ann", "projects/vision/jobs/second", v1::RUNNING).device(), "devices/gpu-0");
  EXPECT_EQ(get_as("ann", "projects/vision/jobs/first").state(), v1::RUNNING);
}

}  // namespace
}  // namespace trainyard::server
