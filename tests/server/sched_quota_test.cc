// Tests of quotas in decide(): which jobs they hold back, that others pass, and what is said.
#include <gtest/gtest.h>

#include "server/scheduler/cluster.h"
#include "server/scheduler/projection.h"
#include "tests/server/sched_support.h"

namespace trainyard::server {
namespace {

constexpr int64_t kHour = kQuotaHourUs;

WaitingJob job_of(const std::string& uid, int64_t order, const std::string& owner,
                  const std::string& project = "default") {
  WaitingJob job;
  job.uid = job.name = uid;
  job.order = order;
  job.owner = owner;
  job.project = project;
  job.asked.wish = DeviceWish::kGpu;
  return job;
}
WaitingJob with_forecast(WaitingJob job, int64_t us) {
  job.on_gpu.rest = {us, us, us};
  return job;
}

class SchedQuota : public ::testing::Test {
 protected:
  SchedQuota() {
    Devices devices;
    for (int i = 0; i < 4; ++i) {
      Device gpu;
      gpu.name = "devices/gpu-" + std::to_string(i);
      gpu.kind = DeviceKind::kGpu;
      gpu.slots = 1;
      devices.devices.push_back(gpu);
    }
    fleet.set_devices(std::move(devices));
  }
  Decisions pass(std::vector<DeviceQuota> quotas, int64_t now_us = 0) {
    return decide(queue, fleet, Shares(), policy, now_us, Quotas(std::move(quotas)));
  }
  static Strings started(const Decisions& decisions) {
    Strings uids;
    for (const StartDecision& start : decisions.starts) uids.push_back(start.uid);
    return uids;
  }
  WaitReason why(const Decisions& decisions, const std::string& uid, int64_t now_us = 0) {
    return decisions.waits.find(queue, fleet, policy, uid, now_us).value_or(WaitReason{});
  }

  Queue queue;
  Fleet fleet;
  Policy policy;
};

TEST_F(SchedQuota, DevicesOfAProjectHoldBackItsJobsAndNoOthers) {
  queue.put(job_of("a-1", 1, "ada", "vision"));
  queue.put(job_of("b-1", 2, "bob", "vision"));
  queue.put(job_of("a-2", 3, "ada", "vision"));
  queue.put(job_of("c-1", 4, "cleo", "speech"));
  const Decisions d = pass({{QuotaKind::kDevices, {"vision", ""}, 3, 1, {{2 * kHour, 1}}}});
  EXPECT_EQ(started(d), (Strings{"a-1", "b-1", "c-1"})) << "two of the three devices were free";
  const WaitReason held = why(d, "a-2");
  EXPECT_EQ(held.reason, "QUOTA_DEVICES");
  EXPECT_EQ(held.message,
            "Waits for the quota devices of projects/vision, which is 3 devices at once: 3 devices "
            "are in use, and the job needs 1. By forecast enough are free in 2 h.");
  EXPECT_TRUE(d.waits.reservations.empty()) << "no device is kept free for it";
}

TEST_F(SchedQuota, AJobNeedsAllItsDevicesWithinTheQuota) {
  WaitingJob pair = job_of("pair", 1, "ada");
  pair.asked.gpus = pair.device_count = 2;
  queue.put(pair);
  queue.put(job_of("one", 2, "ada"));
  const Decisions d = pass({{QuotaKind::kDevices, {"", "ada"}, 3, 2, {}}});
  EXPECT_EQ(started(d), (Strings{"one"})) << "a smaller job passes";
  EXPECT_EQ(why(d, "pair").message,
            "Waits for the quota devices of ada, which is 3 devices at once: 3 devices are in use, "
            "and the job needs 2.");
  const Decisions never = pass({{QuotaKind::kDevices, {"", "ada"}, 1, 0, {}}});
  EXPECT_EQ(started(never), (Strings{"one"}));
  EXPECT_NE(why(never, "pair").message.find("cannot start unless the quota is raised"),
            std::string::npos);
}

TEST_F(SchedQuota, AHeldJobPreemptsNobodyAndReservesNothing) {
  policy.preemption = Preemption::kPriority;
  policy.preempt_after_us = 0;
  for (int i = 0; i < 4; ++i) {
    PlacedJob job;
    job.uid = job.name = "low-" + std::to_string(i);
    job.devices = {"devices/gpu-" + std::to_string(i)};
    job.running = true;
    fleet.place(job);
  }
  WaitingJob high = job_of("high", 1, "ada");
  high.priority = 9;
  queue.put(high);
  const Decisions held = pass({{QuotaKind::kDevices, {"", "ada"}, 1, 1, {}}}, kHour);
  EXPECT_TRUE(held.preempts.empty());
  EXPECT_TRUE(held.waits.reservations.empty());
  const Decisions free = pass({{QuotaKind::kDevices, {"", "ada"}, 1, 0, {}}}, kHour);
  EXPECT_EQ(free.preempts.size(), 1u) << "without the quota it does";
}

TEST_F(SchedQuota, DeviceHoursLetShortJobsPassAndSayWhenTheRestIsFree) {
  queue.put(with_forecast(job_of("long", 1, "ada"), 5 * kHour));
  queue.put(with_forecast(job_of("short", 2, "ada"), kHour));
  const int64_t first = int64_t{20'001} * kQuotaDayUs, second = first + kQuotaDayUs;
  const DeviceQuota quota{QuotaKind::kDeviceHours,
                          {"", "ada"},
                          100 * kHour,
                          98 * kHour,
                          {{first, kHour}, {second, 50 * kHour}}};
  const int64_t now_us = first - kHour;
  const Decisions d = pass({quota}, now_us);
  EXPECT_EQ(started(d), (Strings{"short"}));
  EXPECT_EQ(d.wake_time_us, second) << "a pass then, even if nothing happens";
  const WaitReason held = why(d, "long", now_us);
  EXPECT_EQ(held.reason, "QUOTA_DEVICE_HOURS");
  EXPECT_EQ(held.message,
            "Waits for the quota device_hours of ada, which is 100 device-hours in 30 days: 99 "
            "device-hours are used or reserved, and the job needs about 5 device-hours. Enough of "
            "them are older than that at 2024-10-06 00:00 UTC.");
}

TEST_F(SchedQuota, AJobOfUnknownLengthStartsWhileHoursAreLeft) {
  queue.put(job_of("unknown", 1, "ada"));
  EXPECT_EQ(started(pass({{QuotaKind::kDeviceHours, {"", "ada"}, kHour, kHour - 1, {}}})),
            (Strings{"unknown"}));
  const Decisions none = pass({{QuotaKind::kDeviceHours, {"", "ada"}, kHour, kHour, {}}});
  EXPECT_TRUE(none.starts.empty());
  EXPECT_EQ(why(none, "unknown").reason, "QUOTA_DEVICE_HOURS");
}

TEST_F(SchedQuota, APassChargesWhatItStarts) {
  for (int i = 0; i < 4; ++i) {
    queue.put(with_forecast(job_of("j-" + std::to_string(i), i, "ada"), 2 * kHour));
  }
  const Decisions d = pass({{QuotaKind::kDeviceHours, {"default", ""}, 5 * kHour, 0, {}}});
  EXPECT_EQ(d.starts.size(), 2u) << "the third would need the sixth hour";
}

TEST_F(SchedQuota, AHeldJobHasNoProjectedStartAndDelaysNoOne) {
  queue.put(with_forecast(job_of("held", 1, "ada"), kHour));
  queue.put(with_forecast(job_of("free", 2, "bob"), kHour));
  const Quotas quotas({{QuotaKind::kDevices, {"", "ada"}, 0, 0, {}}});
  const std::vector<Projected> p = project(queue, fleet, Shares(), 1000, 10, {}, quotas);
  ASSERT_EQ(p.size(), 2u);
  EXPECT_EQ(p[0].uid, "held");
  EXPECT_FALSE(p[0].start.known());
  EXPECT_EQ(p[1].start.likely_us, 1000);
}

TEST_F(SchedQuota, AClusterGetsNoJobBeyondTheQuota) {
  for (int i = 0; i < 4; ++i) {
    WaitingJob job = job_of("j-" + std::to_string(i), i, i % 2 == 0 ? "ada" : "bob");
    job.cluster = "slurm";
    job.device_count = 4;
    queue.put(job);
  }
  const Decisions d = decide_cluster(queue, {"slurm", 10}, Shares(), 0,
                                     Quotas({{QuotaKind::kDevices, {"", "ada"}, 4, 0, {}}}));
  EXPECT_EQ(started(d), (Strings{"j-0", "j-1", "j-3"}));
}

}  // namespace
}  // namespace trainyard::server
