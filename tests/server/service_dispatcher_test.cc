// Tests of the real dispatcher, store and supervisor in hand-written scenarios with scripted
// devices and pretended workers. The tests read the course of events from the store and check it
// against the rules. service_trace_test.cc runs the simulation's traces.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/server/dispatcher_support.h"

namespace trainyard::server {
namespace {

// No event announces the end of another process, so the dispatcher must find out by itself.
TEST_F(ServiceDispatcher, AJobStartsOnceAnotherProcessHasFreedItsMemory) {
  start({gpu(0, 80)});
  devices_->set_others("devices/gpu-0", 60 * kGiB);
  ScriptedJob ask;
  ask.id = "beside-others";
  ask.bytes = 50 * kGiB;
  ask.ms = 10;
  submit(ask);
  ASSERT_TRUE(eventually([&] {
    return dispatcher_->explained(get(ask.id)).reason == "WAITING_FOR_MEMORY";
  })) << describe();
  devices_->set_others("devices/gpu-0", 0);
  wait_until_idle();
  EXPECT_EQ(get(ask.id).state, JobState::kSucceeded);
}

TEST_F(ServiceDispatcher, ARunningJobIsExpectedToEndByItsOwnSteps) {
  start({gpu(0, 80)});
  ScriptedJob ask;
  ask.id = "slower";
  ask.bytes = 20 * kGiB;
  ask.ms = 2000;
  ask.forecast_s = 1;
  submit(ask);
  ASSERT_TRUE(eventually([&] { return get(ask.id).state == JobState::kRunning; })) << describe();
  const auto end_us = [&] {
    const std::vector<DeviceView> views = dispatcher_->devices(devices_->read().devices);
    return views.empty() || views[0].jobs.empty() ? 0 : views[0].jobs[0].end.likely_us;
  };
  const int64_t before_us = end_us();
  workers_->report_step_seconds(1);  // each of its 2000 steps takes 1 s, and none is done
  ASSERT_TRUE(eventually([&] { return end_us() > before_us + 1'000'000'000; }));
  EXPECT_EQ(dispatcher_->devices(devices_->read().devices)[0].others_bytes, 0)
      << "its plan counts, not others";
  wait_until_idle();
}

TEST_F(ServiceDispatcher, JobsThatShareADeviceAreStored) {
  start({gpu(0, 80), gpu(1, 80)});
  ScriptedJob alone;
  alone.id = "alone";
  alone.bytes = 70 * kGiB;
  alone.ms = 600;
  submit(alone);
  ASSERT_TRUE(eventually([&] { return get("alone").state == JobState::kRunning; }));
  for (const char* id : {"one", "two"}) {
    ScriptedJob ask;
    ask.id = id;
    ask.bytes = 20 * kGiB;
    ask.ms = 600;
    submit(ask);
  }
  ASSERT_TRUE(eventually([&] { return dispatcher_->jobs_sharing_devices(get("one").uid) == 1; }));
  EXPECT_EQ(dispatcher_->jobs_sharing_devices(get("alone").uid), 0);
  wait_until_idle();
  EXPECT_EQ(dispatcher_->jobs_sharing_devices(get("one").uid), 0);
  const auto shared = [&](const std::string& id) {
    return store_->jobs().find_attempt(get(id).uid, 1).value().shared;
  };
  EXPECT_TRUE(shared("one"));
  EXPECT_TRUE(shared("two"));
  EXPECT_FALSE(shared("alone"));
}

TEST_F(ServiceDispatcher, RandomJobsArePackedAndNoneRunsOutOfMemory) {
  std::vector<Device> devices = {cpu(), gpu(0, 80), gpu(1, 80), gpu(2, 24, "L4")};
  start(devices);
  devices_->set_others("devices/gpu-1", 30 * kGiB);
  std::mt19937 random(11);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 80; ++i) {
    ScriptedJob ask;
    ask.id = "job-" + std::to_string(i);
    ask.device = static_cast<v1::Resources::Device>(1 + pick(3));
    ask.bytes = (1 + pick(ask.device == v1::Resources::GPU ? 45 : 12)) * kGiB;
    if (ask.device == v1::Resources::GPU && pick(5) == 0) ask.gpus = 2;
    ask.threads = 1 + pick(4);
    ask.ms = 5 + pick(80);
    ask.priority = pick(3);
    ask.exclusive = pick(10) == 0;
    ask.crash = pick(8) == 0;
    submit(ask);
    if (i == 40) devices_->set_others("devices/gpu-1", 0);
  }
  // Larger than the free memory of all GPUs but one, and larger than the small GPU.
  ScriptedJob large;
  large.id = "large";
  large.bytes = 70 * kGiB;
  submit(large);
  wait_until_idle();
  const std::vector<Moment> moments = read_moments();
  check(moments);
  size_t together = 0;
  std::map<std::string, std::set<std::string>> on;
  for (const Moment& m : moments) {
    for (auto& [device, jobs] : on) jobs.erase(m.id);
    if (m.state != v1::STARTING && m.state != v1::RUNNING) continue;
    for (const std::string& device : get(m.id).devices) {
      if (device != "devices/cpu")
        together = std::max(together, (on[device].insert(m.id), on[device].size()));
    }
  }
  EXPECT_GT(together, 1u) << "none shared a GPU";
}

// Memory that is promised to a worker is not free, even if the device still reports it as free.
TEST_F(ServiceDispatcher, JobsThatStartTogetherDoNotGetTheSameMemory) {
  start({cpu(), gpu(0, 80)});
  devices_->set_others("devices/gpu-0", 10 * kGiB);
  for (int i = 0; i < 12; ++i) {
    ScriptedJob ask;
    ask.id = "job-" + std::to_string(i);
    ask.bytes = 30 * kGiB;  // with 10 GiB used by other processes, two jobs fit
    ask.ms = 30;
    submit(ask);
  }
  wait_until_idle();
  check(read_moments());
}

TEST_F(ServiceDispatcher, APreemptedJobResumesAndEnds) {
  Policy policy;
  policy.preemption = Preemption::kPriority;
  policy.preempt_after_us = 200'000;
  start({cpu(), gpu(0, 80), gpu(1, 80)}, policy);
  for (const char* id : {"low-0", "low-1"}) {
    ScriptedJob low;
    low.id = id;
    low.bytes = 60 * kGiB;
    low.ms = 1500;
    low.forecast_s = 3600;  // long enough that preempting it is worthwhile
    submit(low);
  }
  ASSERT_TRUE(eventually([&] { return store_->jobs().count().value().running == 2; }));
  ScriptedJob high;
  high.id = "high";
  high.gpus = 2;
  high.bytes = 60 * kGiB;
  high.priority = 5;
  submit(high);
  wait_until_idle();
  const std::vector<Moment> moments = read_moments();
  check(moments);
  EXPECT_EQ(workers_->stopped(), 2);
  for (const char* id : {"low-0", "low-1"}) {
    std::vector<v1::JobState> states;
    for (const Moment& m : moments) {
      if (m.id == id) states.push_back(m.state);
    }
    using enum v1::JobState;
    EXPECT_EQ(states, (std::vector<v1::JobState>{v1::QUEUED, v1::STARTING, v1::RUNNING, v1::QUEUED,
                                                 v1::STARTING, v1::RUNNING, v1::SUCCEEDED}));
  }
  EXPECT_TRUE(overtakers(moments, "high").empty());
}

// Small jobs that would not end before the reserved start of the large job stay behind it, however
// many there are.
TEST_F(ServiceDispatcher, AJobThatNeedsEveryGpuIsNotOvertaken) {
  start({cpu(), gpu(0, 80), gpu(1, 80)});
  const auto small = [&](int i) {
    ScriptedJob ask;
    ask.id = "small-" + std::to_string(i);
    ask.bytes = 20 * kGiB;
    ask.ms = 150;
    ask.forecast_s = 3600;  // longer than the time until any reserved start
    submit(ask);
  };
  for (int i = 0; i < 6; ++i) small(i);
  ASSERT_TRUE(eventually([&] { return store_->jobs().count().value().running > 0; }));
  ScriptedJob whole;
  whole.id = "whole";
  whole.gpus = 2;
  whole.bytes = 70 * kGiB;
  submit(whole);
  for (int i = 6; i < 20; ++i) small(i);
  wait_until_idle();
  const std::vector<Moment> moments = read_moments();
  check(moments);
  for (const std::string& id : overtakers(moments, "whole")) {
    EXPECT_LT(std::stoi(id.substr(6)), 6) << id << " came later and started first";
  }
}

TEST_F(ServiceDispatcher, AnAttemptOfARemovedClusterIsRequeuedAtTheNextStart) {
  start({gpu(0, 80)});
  NewJob asked = new_job("away");
  asked.spec.mutable_dataset()->set_name("projects/default/datasets/digits@1");
  asked.spec.mutable_resources()->set_cluster("gone");
  const Job job = store_->jobs().submit(std::move(asked)).value();
  const std::string place = std::string(kClusterPrefix) + "gone";
  ASSERT_TRUE(store_->jobs().start_attempt(job.uid, {place}, "", "SUBMITTED_TO_CLUSTER", "").ok());
  dispatcher_->halt();  // leaves the attempt as the next daemon finds it
  ASSERT_TRUE(dispatcher_->recover().ok());
  EXPECT_TRUE(eventually([&] { return get("away").state == JobState::kQueued; }));
  EXPECT_NE(get("away").message.find("no longer has the cluster gone"), std::string::npos)
      << get("away").message;
}

TEST_F(ServiceDispatcher, JobsWaitForAQuotaOfDevicesAndStartWhenItHasRoom) {
  ASSERT_TRUE(store_->quotas().set({QuotaKind::kDevices, {"default", ""}, 1}).ok());
  start({gpu(0, 80), gpu(1, 80)});
  submit({.id = "first", .ms = 500});
  ASSERT_TRUE(eventually([&] { return get("first").state == JobState::kRunning; }));
  submit({.id = "second"});
  EXPECT_TRUE(eventually([&] {
    return dispatcher_->explained(get("second")).reason == "QUOTA_DEVICES";
  })) << describe();
  wait_until_idle();
  const std::vector<Moment> moments = read_moments();
  check(moments);
  std::vector<std::string> order;
  for (const Moment& m : moments) {
    if (m.state == v1::STARTING || m.state == v1::SUCCEEDED) order.push_back(m.id);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"first", "first", "second", "second"}));
}

TEST_F(ServiceDispatcher, TheEnergyOfAJobIsReadFromItsDevicesCounters) {
  Device metered = gpu(0, 80);
  metered.slots = 1;
  metered.energy_joules = 1234.5;
  Device other = cpu();
  start({other, metered});
  submit({.id = "on-gpu"});
  submit({.id = "on-cpu", .device = v1::Resources::CPU});
  wait_until_idle();
  const int64_t today = system_clock().wall_us() / kQuotaDayUs;
  const auto uses = [&] {
    return store_->quotas().device_uses(today - 1, today + 1, system_clock().wall_us()).value();
  };
  const auto total = [&](const std::string& kind, int64_t DeviceUse::*field) {
    int64_t sum = 0;
    for (const DeviceUse& use : uses()) sum += use.device_kind == kind ? use.*field : 0;
    return sum;
  };
  EXPECT_TRUE(eventually(
      [&] { return total("gpu", &DeviceUse::metered_us) == total("gpu", &DeviceUse::device_us); }));
  EXPECT_GT(total("gpu", &DeviceUse::device_us), 0);
  EXPECT_GT(total("cpu", &DeviceUse::device_us), 0);
  EXPECT_EQ(total("cpu", &DeviceUse::metered_us), 0) << "the CPU has no counter";
}

TEST_F(ServiceDispatcher, UsageBeforeTheStartCounts) {
  Policy policy;
  policy.half_life_us = int64_t{24 * 3600} * 1'000'000;
  ASSERT_TRUE(store_->jobs().keep_uses(policy.half_life_us).ok());
  {
    Connection db(root_.path() / "trainyard.db", Connection::Mode::kReadWrite, 10'000);
    Query used(db, "INSERT INTO owner_uses (owner, used, as_of_us) VALUES ('uid:4', 1e5, ?)");
    used.bind(system_clock().wall_us()).run();  // use by jobs that have been deleted
  }
  Device one = gpu(0, 80);
  one.slots = 1;
  start({cpu(), one}, policy);
  submit({.id = "blocks-both", .ms = 500});
  ASSERT_TRUE(eventually([&] { return get("blocks-both").state == JobState::kRunning; }));
  submit({.id = "long"});
  submit({.id = "other"});
  wait_until_idle();
  const std::vector<Moment> moments = read_moments();
  check(moments);
  EXPECT_EQ(overtakers(moments, "long"), std::vector<std::string>{"other"});
}

}  // namespace
}  // namespace trainyard::server
