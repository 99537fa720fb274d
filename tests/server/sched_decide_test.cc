// Tests of decide(), one rule per test, on hand-written snapshots.
#include <gtest/gtest.h>

#include "src/planning/device_choice.h"
#include "tests/server/sched_support.h"

namespace trainyard::server {
namespace {

// Devices and jobs in these tests have no memory and no forecasts, so that only slots count.
Device bare_cpu(int32_t slots = 1) {
  Device d;
  d.name = "devices/cpu";
  d.slots = slots;
  return d;
}
Device bare_gpu(int index, bool schedulable = true) {
  Device d;
  d.name = "devices/gpu-" + std::to_string(index);
  d.kind = DeviceKind::kGpu;
  d.schedulable = schedulable;
  return d;
}
WaitingJob bare_job(std::string uid, int64_t order, int32_t priority = 0,
                    DeviceWish wish = DeviceWish::kAuto) {
  WaitingJob j;
  j.name = uid;
  j.uid = std::move(uid);
  j.order = order;
  j.priority = priority;
  j.asked.wish = wish;
  return j;
}
WaitingJob bare_gpu_job(std::string uid, int64_t order, int32_t gpus, int32_t priority = 0) {
  WaitingJob j = bare_job(std::move(uid), order, priority, DeviceWish::kGpu);
  j.asked.gpus = gpus;
  return j;
}
/// Returns the started jobs with the full names of their devices.
Strings started_by_name(const Decided& d) {
  Strings uids;
  for (const StartDecision& s : d.starts) {
    std::string text = s.uid;
    for (const std::string& device : s.devices) text += "@" + device;
    uids.push_back(text);
  }
  return uids;
}

TEST(SchedDecide, PriorityFirstThenOrderOfSubmission) {
  Scene s;
  s.inventory.devices = {bare_cpu(3)};
  s.waiting = {bare_job("d", 4), bare_job("b", 2, 5), bare_job("a", 1), bare_job("c", 3, 5)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started_by_name(d), (Strings{"b@devices/cpu", "c@devices/cpu", "a@devices/cpu"}));
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].uid, "d");
  EXPECT_EQ(d.waits[0].reason, "WAITING_FOR_DEVICE");
  EXPECT_FALSE(d.waits[0].message.empty());
}

TEST(SchedDecide, SlotsInUseAreNotFree) {
  Scene s;
  s.inventory.devices = {bare_cpu(2)};
  s.placed = {{"x", {"devices/cpu"}, "x"}};
  s.waiting = {bare_job("a", 1), bare_job("b", 2)};
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"a@devices/cpu"}));
  s.inventory.devices[0].slots = 1;  // a new configuration reduced the slots while a job runs
  s.placed.push_back({"y", {"devices/cpu"}, "y"});
  EXPECT_TRUE(decide(s, 0).starts.empty());
}

TEST(SchedDecide, AutoRunsOnTheCpuWithAReasonIfThereIsNoGpu) {
  Scene s;
  s.inventory.devices = {bare_cpu()};
  s.inventory.note = "No GPU: libnvidia-ml.so.1 was not found.";
  s.waiting = {bare_job("a", 1)};
  const Decided d = decide(s, 0);
  ASSERT_EQ(started_by_name(d), (Strings{"a@devices/cpu"}));
  EXPECT_EQ(d.starts[0].reason, "CPU_FALLBACK");
  EXPECT_EQ(d.starts[0].message, "Runs on the CPU: no GPU can be used now.");
}

TEST(SchedDecide, AutoUsesAGpuAndWaitsForABusyOne) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_gpu(0), bare_gpu(1)};
  s.waiting = {bare_job("a", 1), bare_job("b", 2), bare_job("c", 3),
               bare_job("d", 4, 0, DeviceWish::kCpu)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started_by_name(d), (Strings{"a@devices/gpu-0", "b@devices/gpu-1", "d@devices/cpu"}));
  EXPECT_EQ(d.waits[0].reason, "WAITING_FOR_DEVICE");
}

TEST(SchedDecide, AutoWaitsForAGpuThatIsBeingChecked) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_gpu(0, false)};
  s.inventory.devices[1].checking = true;
  s.waiting = {bare_job("a", 1), bare_job("b", 2, 0, DeviceWish::kCpu)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started_by_name(d), (Strings{"b@devices/cpu"}));
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].reason, "WAITING_FOR_DEVICE");
  EXPECT_NE(d.waits[0].message.find("being checked"), std::string::npos) << d.waits[0].message;
  EXPECT_TRUE(check_satisfiable(DeviceWish::kGpu, 1, s.inventory).ok());
}

TEST(SchedDecide, AutoWaitsForAGpuUsedByAnotherProcess) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_gpu(0, false)};
  s.inventory.devices[1].busy = true;
  s.inventory.note = "No usable GPU now: another process has it.";
  s.waiting = {bare_job("a", 1)};
  const Decided d = decide(s, 0);
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].reason, "WAITING_FOR_DEVICE");
  EXPECT_EQ(d.waits[0].message, "Waits for a GPU: " + s.inventory.note);
  EXPECT_TRUE(check_satisfiable(DeviceWish::kGpu, 1, s.inventory).ok());
}

// A CUDA process can use only one instance of a divided GPU.
TEST(SchedDecide, InstancesAreNotGivenToOneJobTogether) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_gpu(0), bare_gpu(1)};
  s.inventory.devices[1].is_instance = s.inventory.devices[2].is_instance = true;
  s.waiting = {bare_gpu_job("pair", 1, 2), bare_gpu_job("one", 2, 1), bare_gpu_job("two", 3, 1)};
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"one@devices/gpu-0", "two@devices/gpu-1"}));
  EXPECT_FALSE(check_satisfiable(DeviceWish::kGpu, 2, s.inventory).ok());
}

/// A job whose precision is bf16.
WaitingJob bare_bf16_job(std::string uid, int64_t order, DeviceWish wish) {
  WaitingJob j = bare_job(std::move(uid), order, 0, wish);
  j.asked.bf16 = true;
  return j;
}
Device bare_t4(int index) {
  Device d = bare_gpu(index);
  d.model = "Tesla T4";
  d.capability = 75;
  return d;
}

TEST(SchedDecide, OnlyAGpuWithBfloat16RunsAJobThatNeedsIt) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_t4(0), bare_gpu(1)};
  s.inventory.devices[2].capability = 80;
  s.waiting = {bare_bf16_job("first", 1, DeviceWish::kGpu),
               bare_bf16_job("second", 2, DeviceWish::kGpu),
               bare_job("third", 3, 0, DeviceWish::kGpu)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started_by_name(d), (Strings{"first@devices/gpu-1", "third@devices/gpu-0"}));
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].uid, "second");
  EXPECT_EQ(d.waits[0].reason, "WAITING_FOR_DEVICE");
}

TEST(SchedDecide, AutoWithBf16RunsOnTheCpuWhereNoGpuHasIt) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_t4(0)};
  s.waiting = {bare_bf16_job("a", 1, DeviceWish::kAuto)};
  const Decided d = decide(s, 0);
  ASSERT_EQ(started_by_name(d), (Strings{"a@devices/cpu"}));
  EXPECT_EQ(d.starts[0].message, "Runs on the CPU: no GPU with bfloat16 can be used now.");
}

// The GPU that the job was submitted for has been exchanged.
TEST(SchedDecide, AJobSaysThatItWaitsForAGpuWithBfloat16) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_t4(0)};
  s.waiting = {bare_bf16_job("a", 1, DeviceWish::kGpu)};
  const Decided d = decide(s, 0);
  EXPECT_TRUE(d.starts.empty());
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].reason, "NO_DEVICE");
  EXPECT_EQ(d.waits[0].message,
            "Waits for a GPU: none is usable now. recipe.precision: bf16 needs one of compute "
            "capability 8.0 or later.");
}

TEST(SchedDecide, GpuThatCannotBeUsedIsNotWaitedForByAuto) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_gpu(0, /*schedulable=*/false)};
  s.waiting = {bare_job("a", 1, 0, DeviceWish::kGpu), bare_job("b", 2)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started_by_name(d), (Strings{"b@devices/cpu"}));
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].reason, "NO_DEVICE");
}

TEST(SchedDecide, NextAttemptKeepsToTheKindOfDevice) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_gpu(0)};
  s.waiting = {bare_job("a", 1)};
  s.waiting[0].asked.kind_before = DeviceKind::kCpu;
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"a@devices/cpu"}));
  s.waiting[0].asked.kind_before = DeviceKind::kGpu;
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"a@devices/gpu-0"}));
  s.inventory.devices[1].schedulable = false;  // F28: the GPU is permanently lost
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"a@devices/cpu"}));
}

TEST(SchedDecide, F31BackoffAfterALossDelaysNoOtherJobAndWakes) {
  Scene s;
  s.inventory.devices = {bare_cpu()};
  s.waiting = {bare_job("poison", 1, 100), bare_job("next", 2)};
  s.waiting[0].retry_time_us = 1000;
  s.waiting[0].workers_lost = 1;
  const Decided d = decide(s, 999);
  EXPECT_EQ(started_by_name(d), (Strings{"next@devices/cpu"}));
  EXPECT_EQ(d.waits[0].reason, "RETRY_BACKOFF");
  EXPECT_EQ(d.wake_time_us, 1000);
  EXPECT_EQ(started_by_name(decide(s, 1000)), (Strings{"poison@devices/cpu"}));
  s.waiting[1].retry_time_us = 500;
  EXPECT_EQ(decide(s, 0).wake_time_us, 500) << "the pause that ends first";
}

TEST(SchedDecide, F27PauseEndsWhenTheClockJumpsBackAnHour) {
  Scene s;
  s.inventory.devices = {bare_cpu()};
  s.waiting = {bare_job("a", 1)};
  const int64_t hour_us = int64_t{3600} * 1'000'000;
  s.waiting[0].retry_time_us = hour_us + 1000;
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"a@devices/cpu"}));
}

TEST(SchedDecide, NothingStartsWhileDraining) {
  Scene s;
  s.inventory.devices = {bare_cpu()};
  s.policy.draining = true;
  s.waiting = {bare_job("a", 1)};
  const Decided d = decide(s, 0);
  EXPECT_TRUE(d.starts.empty());
  EXPECT_EQ(d.waits[0].reason, "SERVER_DRAINING");
}

Device gpu_of(int index, const std::string& model) {
  Device d = bare_gpu(index);
  d.model = model;
  return d;
}

TEST(SchedDecide, SeveralGpusAreAssignedTogetherOrNotAtAll) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_gpu(0), bare_gpu(1), bare_gpu(2), bare_gpu(3)};
  s.waiting = {bare_gpu_job("pair", 1, 2), bare_gpu_job("three", 2, 3)};
  Decided d = decide(s, 0);
  EXPECT_EQ(started_by_name(d), (Strings{"pair@devices/gpu-0@devices/gpu-1"}));
  EXPECT_EQ(d.starts[0].message, "The job requested 2 GPUs of one model.");
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].reason, "WAITING_FOR_DEVICE");
  EXPECT_NE(d.waits[0].message.find("3 GPUs of one model"), std::string::npos);
  s.placed = {{"x", {"devices/gpu-1", "devices/gpu-2"}, "x"}};
  s.waiting = {bare_gpu_job("pair", 1, 2)};
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"pair@devices/gpu-0@devices/gpu-3"}));
}

TEST(SchedDecide, SeveralGpusAreOfOneModel) {
  Scene s;
  s.inventory.devices = {bare_cpu(), gpu_of(0, "A"), gpu_of(1, "B"), gpu_of(2, "A"),
                         gpu_of(3, "B")};
  s.placed = {{"x", {"devices/gpu-0"}, "x"}};
  s.waiting = {bare_gpu_job("pair", 1, 2)};
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"pair@devices/gpu-1@devices/gpu-3"}));
  s.placed.push_back({"y", {"devices/gpu-3"}, "y"});
  const Decided d = decide(s, 0);
  EXPECT_TRUE(d.starts.empty()) << "one of each is free";
}

TEST(SchedDecide, AJobOfSeveralGpusIsNotStarvedByLaterJobs) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_gpu(0), bare_gpu(1)};
  s.placed = {{"x", {"devices/gpu-0"}, "x"}};
  s.waiting = {bare_gpu_job("pair", 2, 2), bare_job("later", 3), bare_gpu_job("equal", 4, 1),
               bare_job("on-cpu", 5, 0, DeviceWish::kCpu)};
  Decided d = decide(s, 0);
  EXPECT_EQ(started_by_name(d), (Strings{"on-cpu@devices/cpu"})) << "gpu-1 is kept";
  ASSERT_EQ(d.waits.size(), 3u);
  EXPECT_NE(d.waits[1].message.find("reserved for pair"), std::string::npos) << d.waits[1].message;
  s.waiting.push_back(bare_gpu_job("urgent", 6, 1, /*priority=*/5));
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"urgent@devices/gpu-1", "on-cpu@devices/cpu"}));
  s.placed.clear();
  s.waiting.pop_back();
  d = decide(s, 0);
  EXPECT_EQ(started_by_name(d),
            (Strings{"pair@devices/gpu-0@devices/gpu-1", "on-cpu@devices/cpu"}));
}

TEST(SchedDecide, OnlyGpusThatCouldFormTheGroupAreReserved) {
  Scene s;
  s.inventory.devices = {bare_cpu(), gpu_of(0, "A"), gpu_of(1, "A"), gpu_of(2, "B")};
  s.placed = {{"x", {"devices/gpu-0"}, "x"}};
  s.waiting = {bare_gpu_job("pair", 1, 2), bare_gpu_job("one", 2, 1), bare_gpu_job("two", 3, 1)};
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"one@devices/gpu-2"}));
  s.inventory.devices[2].schedulable = false;  // unhealthy, so no pair is possible
  s.placed.clear();
  const Decided d = decide(s, 0);
  EXPECT_EQ(started_by_name(d), (Strings{"one@devices/gpu-0", "two@devices/gpu-2"}));
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].reason, "NO_DEVICE");
  EXPECT_EQ(d.waits[0].message, "Waits for 2 GPUs of one model: fewer are usable now.");
}

TEST(SchedDecide, GpusThatAreBeingCheckedAreWaitedForTogether) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_gpu(0), bare_gpu(1, false)};
  s.inventory.devices[2].checking = true;
  s.waiting = {bare_gpu_job("pair", 1, 2), bare_gpu_job("one", 2, 1)};
  const Decided d = decide(s, 0);
  EXPECT_TRUE(d.starts.empty()) << "after a start they are checked one by one";
  EXPECT_NE(d.waits[0].message.find("being checked"), std::string::npos) << d.waits[0].message;
}

TEST(SchedDecide, AJobInBackoffReservesNoGpus) {
  Scene s;
  s.inventory.devices = {bare_cpu(), bare_gpu(0), bare_gpu(1)};
  s.waiting = {bare_gpu_job("pair", 1, 2), bare_gpu_job("one", 2, 1)};
  s.waiting[0].retry_time_us = 1000;
  EXPECT_EQ(started_by_name(decide(s, 0)), (Strings{"one@devices/gpu-0"}));
}

TEST(SchedSatisfiable, AllGpusOfAJobMustBeOfOneModel) {
  Devices devices;
  devices.devices = {bare_cpu(), gpu_of(0, "A"), gpu_of(1, "B"), gpu_of(2, "A")};
  EXPECT_TRUE(check_satisfiable(DeviceWish::kGpu, 2, devices).ok());
  const Status refused = check_satisfiable(DeviceWish::kGpu, 3, devices);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "RESOURCES_IMPOSSIBLE");
  EXPECT_EQ(refused.error().violations[0].field, "spec.resources.gpus");
  EXPECT_NE(refused.error().message.find("expected 1..2"), std::string::npos);
  EXPECT_EQ(refused.error().metadata.at("gpu_max"), "2");
}

TEST(SchedSatisfiable, AGpuJobIsImpossibleIfNoGpuIsUsable) {
  Devices devices;
  devices.devices = {bare_cpu()};
  devices.note = "No GPU: install the driver.";
  EXPECT_TRUE(check_satisfiable(DeviceWish::kAuto, 1, devices).ok());
  EXPECT_TRUE(check_satisfiable(DeviceWish::kCpu, 1, devices).ok());
  const Status refused = check_satisfiable(DeviceWish::kGpu, 1, devices);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "RESOURCES_IMPOSSIBLE");
  EXPECT_NE(refused.error().message.find("install the driver"), std::string::npos);
  devices.devices.push_back(bare_gpu(0, false));  // the CUDA module is missing
  EXPECT_FALSE(check_satisfiable(DeviceWish::kGpu, 1, devices).ok());
  devices.devices[1].health = DeviceHealth::kUnknown;  // unhealthy now, but may recover
  EXPECT_TRUE(check_satisfiable(DeviceWish::kGpu, 1, devices).ok());
}

TEST(SchedWaitingJob, IsAQueuedJobThatIsNotCancelled) {
  JobBrief queued;
  queued.uid = "q";
  queued.order = 7;
  queued.priority = 3;
  queued.devices = {"devices/gpu-0", "devices/gpu-2"};
  queued.resources.set_device(v1::Resources::GPU);
  queued.resources.set_gpus(2);
  queued.workers_lost = 1;
  queued.retry_time_us = 5;
  queued.id = "digits-1";
  queued.on_gpu = {7 << 20, 30, 60, 90};
  const std::optional<WaitingJob> waiting = waiting_job(queued);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->uid, "q");
  EXPECT_EQ(waiting->order, 7);
  EXPECT_EQ(waiting->priority, 3);
  EXPECT_EQ(waiting->asked.wish, DeviceWish::kGpu);
  EXPECT_EQ(waiting->asked.gpus, 2);
  EXPECT_EQ(waiting->asked.kind_before, DeviceKind::kGpu);
  EXPECT_EQ(waiting->workers_lost, 1);
  EXPECT_EQ(waiting->retry_time_us, 5);
  EXPECT_EQ(waiting->name, "digits-1");
  EXPECT_EQ(waiting->on_gpu.bytes, 7 << 20);
  EXPECT_EQ(waiting->on_gpu.rest.low_us, 30'000'000);
  EXPECT_EQ(waiting->on_gpu.rest.high_us, 90'000'000);
  EXPECT_FALSE(waiting->on_cpu.rest.known());
  EXPECT_EQ(waiting->rest_max_us, kUnlimited);
  JobBrief limited = queued;  // 50 of 90 s are left
  limited.resources.set_time_limit_seconds(90);
  limited.run_time_us = 40'000'000;
  const std::optional<WaitingJob> short_one = waiting_job(limited);
  EXPECT_EQ(short_one->rest_max_us, 50'000'000);
  EXPECT_EQ(short_one->on_gpu.rest.low_us, 30'000'000);
  EXPECT_EQ(short_one->on_gpu.rest.likely_us, 50'000'000);
  EXPECT_EQ(short_one->on_gpu.rest.high_us, 50'000'000);
  EXPECT_EQ(short_one->upper_rest_us(DeviceKind::kCpu), 50'000'000) << "it has no forecast there";
  EXPECT_FALSE(placed_job(limited));
  limited.state = JobState::kRunning;
  limited.running_since_us = 1'000'000'000;
  limited.time_us = 1'010'000'000;
  EXPECT_EQ(placed_job(limited)->end_max_us, 1'050'000'000);
  JobBrief cancelled = queued;  // the job is about to end
  cancelled.cancel_requested = true;
  EXPECT_FALSE(waiting_job(cancelled));
  for (const JobState state : {JobState::kRunning, JobState::kPaused, JobState::kFailed}) {
    JobBrief other = queued;
    other.state = state;
    EXPECT_FALSE(waiting_job(other)) << name_of(state);
  }
}

TEST(SchedQueue, PutReplacesAndRemoveForgets) {
  Queue queue;
  EXPECT_TRUE(queue.empty());
  queue.put(bare_job("a", 1));
  queue.put(bare_gpu_job("b", 2, 2));
  EXPECT_EQ(queue.lines().size(), 2u) << "they ask for different things";
  EXPECT_NE(queue.line_of("a"), queue.line_of("b"));
  WaitingJob again = bare_gpu_job("a", 1, 2, 9);
  again.retry_time_us = 100;
  queue.put(again);
  ASSERT_EQ(queue.lines().size(), 1u);
  EXPECT_EQ((*queue.lines().begin()->second.jobs.begin())->uid, "a") << "the higher priority";
  EXPECT_EQ(queue.next_retry_us(0), 100);
  EXPECT_EQ(queue.next_retry_us(100), std::nullopt);
  queue.put(bare_gpu_job("a", 1, 2));
  EXPECT_EQ(queue.next_retry_us(0), std::nullopt) << "its pause is forgotten with it";
  WaitingJob timed = bare_gpu_job("c", 3, 2);
  timed.on_gpu.rest = {1, 2, 3};
  queue.put(timed);
  const WaitingJob behind = bare_gpu_job("d", 4, 1);
  EXPECT_EQ(queue.gpu_us_before(behind), 4) << "two GPUs for two microseconds";
  queue.remove("c");
  EXPECT_EQ(queue.gpu_us_before(behind), 0);
  queue.remove("nobody");
  queue.remove("a");
  queue.remove("b");
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.lines().empty());
}

}  // namespace
}  // namespace trainyard::server
