// Tests of the dispatcher in a whole daemon: jobs that share a device, preemption, and the reasons
// shown for waiting jobs. The workers only pretend.
#include <gtest/gtest.h>

#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

class QueueTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    make_dataset();
  }
  void restart() {
    stop();
    start();
  }
  v1::Job submit_with(const std::string& id, int32_t priority, bool exclusive = false) {
    v1::SubmitJobRequest request = job_request(id, "wait_for_stop");
    request.mutable_spec()->set_priority(priority);
    request.mutable_spec()->mutable_resources()->set_exclusive(exclusive);
    v1::Job job;
    EXPECT_TRUE(submit(request, &job).ok());
    return job;
  }
  v1::ListQueueResponse queue(const std::string& id = "") {
    v1::ListQueueRequest request;
    if (!id.empty()) request.set_name("projects/default/jobs/" + id);
    v1::ListQueueResponse response;
    EXPECT_TRUE(jobs_->ListQueue(context().get(), request, &response).ok());
    return response;
  }
  std::vector<std::string> reasons(const std::string& id) {
    std::vector<std::string> reasons;
    grpc::Status end;
    for (const v1::Event& event : watch(id, 0, &end)) {
      if (event.has_state()) reasons.push_back(event.state().reason());
    }
    return reasons;
  }
};

TEST_F(QueueTest, APreemptionMakesRoomForHigherPriority) {
  config_.cpu_slots = 1;
  config_.preemption = true;
  config_.preempt_after_seconds = 0;
  restart();
  submit_with("lower", 0);
  wait_for("lower", v1::RUNNING);
  submit_with("higher", 5);
  wait_for("higher", v1::RUNNING);
  const v1::Job low = get("lower");
  EXPECT_EQ(low.state(), v1::QUEUED);
  EXPECT_EQ(low.attempt(), 1);
  v1::Job job;
  ASSERT_TRUE(cancel("higher", &job).ok());
  ASSERT_TRUE(eventually([&] { return get("lower").attempt() == 2; }));
  wait_for("lower", v1::RUNNING);
  ASSERT_TRUE(cancel("lower", &job).ok());
  wait_for("lower", v1::CANCELLED);
  const std::vector<std::string> reported = reasons("lower");
  EXPECT_EQ(std::ranges::count(reported, "PREEMPTED"), 1);
  EXPECT_EQ(std::ranges::count(reported, "WORKER_STOPPED"), 0);
}

TEST_F(QueueTest, WithoutPreemptionAJobWaitsAndSaysSo) {
  config_.cpu_slots = 1;
  restart();
  submit_with("lower", 0);
  wait_for("lower", v1::RUNNING);
  submit_with("higher", 5);
  ASSERT_TRUE(eventually([&] { return get("higher").reason() == "WAITING_FOR_DEVICE"; }));
  const std::string message = get("higher").message();
  EXPECT_NE(message.find("lower has a lower priority"), std::string::npos) << message;
  EXPECT_NE(message.find("preemption is off"), std::string::npos) << message;
  EXPECT_EQ(get("lower").state(), v1::RUNNING);
}

TEST_F(QueueTest, TheQueueIsListedInOrder) {
  config_.cpu_slots = 1;
  restart();
  submit_with("running", 9);
  wait_for("running", v1::RUNNING);
  submit_with("second", 0);
  submit_with("first", 3);
  ASSERT_TRUE(eventually([&] { return queue().jobs_size() == 2; }));
  ASSERT_TRUE(eventually([&] { return !queue().jobs(1).message().empty(); }));
  const v1::ListQueueResponse all = queue();
  EXPECT_EQ(all.waiting(), 2);
  EXPECT_EQ(all.jobs(0).name(), "projects/default/jobs/first");
  EXPECT_EQ(all.jobs(0).position(), 1);
  EXPECT_EQ(all.jobs(0).priority(), 3);
  EXPECT_NE(all.jobs(1).message().find("behind first, of higher priority"), std::string::npos)
      << all.jobs(1).message();
  const v1::ListQueueResponse one = queue("second");
  ASSERT_EQ(one.jobs_size(), 1);
  EXPECT_EQ(one.jobs(0).position(), 2);
  EXPECT_EQ(queue("running").jobs_size(), 0) << "it does not wait";
  v1::ListQueueRequest bad;
  bad.set_page_size(-1);
  v1::ListQueueResponse response;
  EXPECT_EQ(reason_of(jobs_->ListQueue(context().get(), bad, &response)), "PAGE_SIZE_NEGATIVE");
}

TEST_F(QueueTest, AJobThatWaitsForAnotherSaysSo) {
  submit_with("before", 0);
  wait_for("before", v1::RUNNING);
  v1::SubmitJobRequest request = job_request("behind", "");
  request.mutable_spec()->add_after()->set_job("before");
  v1::Job job;
  ASSERT_TRUE(jobs_->SubmitJob(context().get(), request, &job).ok());
  const v1::ListQueueResponse one = queue("behind");
  ASSERT_EQ(one.jobs_size(), 1);
  EXPECT_EQ(one.jobs(0).position(), 0) << "it is not in the queue yet";
  EXPECT_EQ(one.jobs(0).reason(), "WAITING_FOR_JOB");
  EXPECT_NE(one.jobs(0).message().find("before"), std::string::npos) << one.jobs(0).message();
}

TEST_F(QueueTest, AnExclusiveJobHasTheDeviceAlone) {
  submit_with("shares", 0);
  wait_for("shares", v1::RUNNING);
  submit_with("alone", 0, /*exclusive=*/true);
  ASSERT_TRUE(eventually([&] { return get("alone").reason() == "WAITING_FOR_DEVICE"; }));
  EXPECT_NE(get("alone").message().find("a device of its own"), std::string::npos)
      << get("alone").message();
  v1::Job job;
  ASSERT_TRUE(cancel("shares", &job).ok());
  wait_for("alone", v1::RUNNING);
  v1::ListDevicesResponse devices;
  ASSERT_TRUE(system_->ListDevices(context().get(), {}, &devices).ok());
  ASSERT_EQ(devices.devices(0).uses_size(), 1);
  EXPECT_EQ(devices.devices(0).uses(0).job(), "projects/default/jobs/alone");
  EXPECT_GT(devices.devices(0).uses(0).planned_bytes(), 0);
  EXPECT_EQ(devices.devices(0).uses(0).threads(), 1);
}

}  // namespace
}  // namespace trainyard::server
