// Tests of packing by bytes, reservations and jobs that slip in before them, preemption, shares and
// forecasts: one rule per test, on hand-written scenes.
#include <gtest/gtest.h>

#include "server/scheduler/projection.h"
#include "server/scheduler/queue_view.h"
#include "server/store/owner_uses.h"
#include "tests/server/sched_support.h"

namespace trainyard::server {
namespace {

Device cpu(int32_t cores = 4, int64_t memory = 8 * kGiB) {
  Device d;
  d.name = "devices/cpu";
  d.slots = 64;
  d.cores = cores;
  d.memory_bytes = memory;
  return d;
}
Device gpu(int index, int64_t memory = 80 * kGiB, int32_t slots = 8) {
  Device d;
  d.name = "devices/gpu-" + std::to_string(index);
  d.kind = DeviceKind::kGpu;
  d.model = "A";
  d.slots = slots;
  d.memory_bytes = memory;
  d.overhead_bytes = kGiB;
  return d;
}
WaitingJob job(const std::string& uid, int64_t order, DeviceWish wish, int64_t bytes,
               int64_t minutes = 0) {
  WaitingJob j;
  j.uid = j.name = uid;
  j.order = order;
  j.asked.wish = wish;
  const int64_t us = minutes * kMinuteUs;
  j.on_cpu = j.on_gpu = {bytes, {us / 2, us, us * 2}};
  return j;
}
WaitingJob gpu_job(const std::string& uid, int64_t order, int64_t bytes, int64_t minutes = 0) {
  return job(uid, order, DeviceWish::kGpu, bytes, minutes);
}
WaitingJob cpu_job(const std::string& uid, int64_t order, int32_t threads, int64_t bytes = kGiB) {
  WaitingJob j = job(uid, order, DeviceWish::kCpu, bytes);
  j.asked.threads = threads;
  return j;
}
PlacedJob on(const std::string& uid, std::vector<std::string> devices, int64_t bytes,
             int64_t end_minutes = 0) {
  PlacedJob p;
  p.uid = p.name = uid;
  p.devices = std::move(devices);
  p.bytes = bytes;
  p.running = true;
  const int64_t us = end_minutes * kMinuteUs;
  if (us > 0) p.end = {us / 2, us, us};
  return p;
}
Strings started(const Decided& d) {
  Strings texts;
  for (const StartDecision& s : d.starts) {
    std::string text = s.uid;
    for (const std::string& device : s.devices) text += "@" + device.substr(8);
    texts.push_back(text);
  }
  return texts;
}
bool has(const JobWait& wait, const std::string& text) {
  return wait.message.find(text) != std::string::npos;
}

// ---- Packing -------------------------------------------------------------------------------

TEST(SchedPacking, JobsShareAGpuAsLongAsTheirBytesFit) {
  Scene s;
  s.inventory.devices = {gpu(0)};
  s.waiting = {gpu_job("a", 1, 30 * kGiB), gpu_job("b", 2, 40 * kGiB), gpu_job("c", 3, 8 * kGiB)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started(d), (Strings{"a@gpu-0", "b@gpu-0"})) << "72 of 80 GiB with their processes";
  EXPECT_EQ(d.wait("c").reason, "WAITING_FOR_DEVICE");
  EXPECT_TRUE(has(d.wait("c"), "gpu-0 has room for 7 GiB of the 8 GiB that it needs, 1 GiB short"))
      << d.wait("c").message;
  EXPECT_TRUE(has(d.wait("c"), "held by a")) << d.wait("c").message;
}

TEST(SchedPacking, AnIdleGpuComesFirstThenTheTightest) {
  Scene s;
  s.inventory.devices = {gpu(0), gpu(1), gpu(2)};
  s.placed = {on("x", {"devices/gpu-0"}, 10 * kGiB), on("y", {"devices/gpu-1"}, 40 * kGiB)};
  s.waiting = {gpu_job("a", 1, 5 * kGiB), gpu_job("b", 2, 5 * kGiB)};
  EXPECT_EQ(started(decide(s, 0)), (Strings{"a@gpu-2", "b@gpu-1"}));
}

TEST(SchedPacking, SlotsLimitTheNumberOfJobs) {
  Scene s;
  s.inventory.devices = {gpu(0, 80 * kGiB, 2)};
  s.waiting = {gpu_job("a", 1, kGiB), gpu_job("b", 2, kGiB), gpu_job("c", 3, kGiB)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(d.starts.size(), 2u);
  EXPECT_TRUE(has(d.wait("c"), "each of the 2 slots of gpu-0 is taken")) << d.wait("c").message;
}

TEST(SchedPacking, OnTheCpuThreadsAreAtMostTheCores) {
  Scene s;
  s.inventory.devices = {cpu(2)};
  s.waiting = {cpu_job("a", 1, 1), cpu_job("b", 2, 1), cpu_job("c", 3, 1)};
  Decided d = decide(s, 0);
  EXPECT_EQ(started(d), (Strings{"a@cpu", "b@cpu"}));
  EXPECT_TRUE(has(d.wait("c"), "it needs 1 of 2 cores, of which 0 are free"))
      << d.wait("c").message;
  s.waiting = {cpu_job("wide", 1, 8), cpu_job("b", 2, 1)};
  d = decide(s, 0);
  EXPECT_EQ(started(d), (Strings{"wide@cpu"})) << "more threads than cores: it has them all";
}

TEST(SchedPacking, TheMemoryOfTheCpuIsConsidered) {
  Scene s;
  s.inventory.devices = {cpu(8, 8 * kGiB)};
  s.waiting = {cpu_job("a", 1, 1, 5 * kGiB), cpu_job("b", 2, 1, 4 * kGiB)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started(d), (Strings{"a@cpu"}));
  EXPECT_TRUE(has(d.wait("b"), "1 GiB short")) << d.wait("b").message;
}

WaitingJob mapping_job(const std::string& uid, int64_t order, const std::string& parts,
                       int64_t bytes = kGiB) {
  WaitingJob j = cpu_job(uid, order, 1, bytes);
  j.asked.mapped = {parts, 5 * kGiB};
  return j;
}
PlacedJob mapping(const std::string& uid, const std::string& parts, int64_t end_minutes) {
  PlacedJob p = on(uid, {"devices/cpu"}, kGiB, end_minutes);
  p.mapped = {parts, 5 * kGiB};
  return p;
}

// A base of 5 GiB and jobs of 1 GiB on a machine of 8 GiB.
TEST(SchedPacking, AMappedFileCountsOnce) {
  Scene s;
  s.inventory.devices = {cpu(8)};
  s.waiting = {mapping_job("a", 1, "base"), mapping_job("b", 2, "base"),
               mapping_job("c", 3, "base"), mapping_job("d", 4, "base")};
  Decided d = decide(s, 0);
  EXPECT_EQ(started(d), (Strings{"a@cpu", "b@cpu", "c@cpu"}));
  EXPECT_TRUE(has(d.wait("d"), "the 1 GiB that it needs, 1 GiB short")) << d.wait("d").message;
  s.placed = {mapping("x", "base", 0)};
  EXPECT_EQ(started(decide(s, 0)), (Strings{"a@cpu", "b@cpu"}));
  s.waiting = {mapping_job("other", 1, "another base")};
  d = decide(s, 0);
  EXPECT_EQ(d.starts.size(), 0u);
  EXPECT_TRUE(has(d.wait("other"), "room for 2 GiB of the 6 GiB")) << d.wait("other").message;
  // A job of the same size that maps nothing is not held back by one that does not fit.
  s.waiting.push_back(cpu_job("plain", 2, 1));
  s.placed.back().end = {1, 2, 3};
  EXPECT_EQ(started(decide(s, 0)).size(), 1u);
  s.waiting = {mapping_job("large", 1, "base", 4 * kGiB)};
  d = decide(s, 0);
  EXPECT_EQ(d.starts.size(), 0u) << "alone it needs 9 GiB";
  EXPECT_EQ(d.wait("large").reason, "NO_DEVICE") << d.text();
}

TEST(SchedPacking, AJobsPlanSaysWhatItMapsOnTheCpu) {
  v1::RunPlan plan;
  v1::MemoryPlan& memory = *plan.mutable_memory();
  memory.set_parameter_bytes(10);
  memory.set_host_bytes(5);
  memory.set_dataset_bytes(3);
  memory.set_mapped_bytes(100);
  memory.set_mapped_parts("base");
  JobBrief brief;
  set_needs(plan, {}, 0, brief);
  const WaitingJob waiting = waiting_job(brief).value();
  EXPECT_EQ(waiting.on_cpu.bytes, 15);
  EXPECT_EQ(waiting.bytes_alone(DeviceKind::kCpu), 115);
  EXPECT_EQ(waiting.bytes_alone(DeviceKind::kGpu), 213) << "a copy, as numbers of 32 bits";
  brief.state = JobState::kRunning;
  brief.devices = {"devices/cpu"};
  EXPECT_EQ(placed_job(brief)->mapped, (MappedFileBrief{"base", 100}));
  brief.devices = {"devices/gpu-0"};
  EXPECT_EQ(placed_job(brief)->mapped, MappedFileBrief());
}

TEST(SchedPacking, AMappedFileStaysUntilTheLastJobThatMapsItEnds) {
  Scene s;
  s.inventory.devices = {cpu(8)};
  s.placed = {mapping("short", "base", 10), mapping("long", "base", 60)};
  s.waiting = {mapping_job("other", 1, "another base")};
  Queue queue;
  Fleet fleet;
  fill(s, queue, fleet);
  const Ask other{kGiB, 1, false, {"another base", 5 * kGiB}};
  const Ask same{kGiB, 1, false, {"base", 5 * kGiB}};
  const Ask more{2 * kGiB, 1, false, {"base", 5 * kGiB}};
  EXPECT_EQ(fleet.fit_time(0, other, 0), 60 * kMinuteUs);
  EXPECT_EQ(fleet.fit_time(0, same, 0), 0);
  EXPECT_EQ(fleet.fit_time(0, more, 0), 10 * kMinuteUs);
  const Decided d = decide(s, 0);
  ASSERT_EQ(d.reservations.size(), 1u);
  EXPECT_EQ(d.reservations[0].time_us, 60 * kMinuteUs);
  fleet.remove("short");
  EXPECT_EQ(fleet.node(0).room_bytes, 2 * kGiB);
  fleet.remove("long");
  EXPECT_EQ(fleet.node(0).room_bytes, 8 * kGiB);
}

TEST(SchedPacking, AnExclusiveJobSharesWithNone) {
  Scene s;
  s.inventory.devices = {gpu(0), gpu(1)};
  s.placed = {on("x", {"devices/gpu-0"}, kGiB)};
  s.waiting = {gpu_job("alone", 1, kGiB), gpu_job("next", 2, kGiB)};
  s.waiting[0].asked.exclusive = true;
  EXPECT_EQ(started(decide(s, 0)), (Strings{"alone@gpu-1", "next@gpu-0"}));
  s.placed.push_back(on("y", {"devices/gpu-1"}, kGiB, 5));
  const Decided d = decide(s, 0);
  EXPECT_TRUE(has(d.wait("alone"), "it needs a device of its own")) << d.text();
  s.placed[1].exclusive = true;
  s.waiting = {gpu_job("a", 1, kGiB)};
  EXPECT_EQ(started(decide(s, 0)), (Strings{"a@gpu-0"}));
}

TEST(SchedPacking, MemoryOfOtherProcessesIsNotAvailable) {
  Scene s;
  s.inventory.devices = {gpu(0)};
  s.inventory.devices[0].others_bytes = 50 * kGiB;
  s.waiting = {gpu_job("large", 1, 40 * kGiB), gpu_job("small", 2, 10 * kGiB)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started(d), (Strings{"small@gpu-0"}))
      << "nothing is kept for what others make impossible";
  EXPECT_EQ(d.wait("large").reason, "WAITING_FOR_MEMORY");
  EXPECT_TRUE(has(d.wait("large"), "processes other than this server's jobs use 50 GiB"))
      << d.wait("large").message;
  s.inventory.devices[0].others_bytes = 0;
  s.waiting = {gpu_job("huge", 1, 100 * kGiB)};
  EXPECT_EQ(decide(s, 0).wait("huge").reason, "NO_DEVICE");
}

// No device has room for this job now, so its line of the queue is skipped. The job must still get
// a reason, and its line must be checked again as soon as the memory is free.
TEST(SchedPacking, MemoryFreedByOthersIsUsedInTheNextPass) {
  Scene s;
  s.inventory.devices = {gpu(0)};
  s.inventory.devices[0].others_bytes = 70 * kGiB;
  s.waiting = {gpu_job("large", 1, 40 * kGiB)};
  Queue queue;
  Fleet fleet;
  fill(s, queue, fleet);
  EXPECT_EQ(decide(queue, fleet, s, 0).wait("large").reason, "WAITING_FOR_MEMORY");
  s.inventory.devices[0].others_bytes = 0;
  fleet.set_devices(s.inventory);
  EXPECT_EQ(started(decide(queue, fleet, s, 1)), (Strings{"large@gpu-0"}));
}

TEST(SchedPacking, MemoryIsWaitedForOnADeviceThatIsLargeEnough) {
  Scene s;
  s.inventory.devices = {gpu(0), gpu(1, 24 * kGiB)};
  s.inventory.devices[0].others_bytes = 70 * kGiB;
  s.inventory.devices[1].model = "B";
  s.waiting = {gpu_job("a", 1, 40 * kGiB)};
  const Decided d = decide(s, 0);  // gpu-1 lacks fewer bytes, but is too small
  EXPECT_EQ(d.wait("a").reason, "WAITING_FOR_MEMORY") << d.wait("a").message;
  EXPECT_TRUE(has(d.wait("a"), "31 GiB more than gpu-0 has for it")) << d.wait("a").message;
}

TEST(SchedPacking, MemoryOfOtherProcessesMayLeaveTooFewDevices) {
  Scene s;
  s.inventory.devices = {gpu(0), gpu(1), gpu(2)};
  s.inventory.devices[1].others_bytes = 60 * kGiB;
  s.inventory.devices[2].others_bytes = 70 * kGiB;
  s.waiting = {gpu_job("pair", 1, 40 * kGiB), gpu_job("next", 2, 40 * kGiB)};
  s.waiting[0].asked.gpus = 2;
  Decided d = decide(s, 0);
  EXPECT_EQ(started(d), (Strings{"next@gpu-0"})) << "nothing is kept for the pair";
  EXPECT_EQ(d.wait("pair").reason, "WAITING_FOR_MEMORY") << d.wait("pair").message;
  EXPECT_TRUE(has(d.wait("pair"), "41 GiB of memory on each of 2 GPUs, 21 GiB more than gpu-1 has"))
      << d.wait("pair").message;
  s.waiting.pop_back();  // the pair is alone now, and its line is checked first
  s.placed = {on("x", {"devices/gpu-0"}, 70 * kGiB)};
  d = decide(s, 0);
  EXPECT_EQ(d.wait("pair").reason, "WAITING_FOR_MEMORY") << d.wait("pair").message;
  for (Device& device : s.inventory.devices) device.others_bytes = 0;
  s.inventory.devices[1].memory_bytes = s.inventory.devices[2].memory_bytes = 24 * kGiB;
  EXPECT_EQ(decide(s, 0).wait("pair").reason, "NO_DEVICE");
}

// ---- Reservations --------------------------------------------------------------------------

TEST(SchedBackfill, OnlyJobsThatEndBeforeTheReservedStartAreBackfilled) {
  Scene s;
  s.inventory.devices = {gpu(0), gpu(1)};
  s.placed = {on("x", {"devices/gpu-0"}, 70 * kGiB, 60)};
  s.waiting = {gpu_job("pair", 1, 70 * kGiB), gpu_job("long", 2, 10 * kGiB, 45),
               gpu_job("unknown", 3, 10 * kGiB), gpu_job("short", 4, 10 * kGiB, 20)};
  s.waiting[0].asked.gpus = 2;
  const Decided d = decide(s, 0);
  // The upper forecast of "long" is 90 minutes, and next to the pair 8 GiB remain free.
  EXPECT_EQ(started(d), (Strings{"short@gpu-1"})) << d.text();
  EXPECT_TRUE(has(d.wait("long"), "this job would not have ended by then"))
      << d.wait("long").message;
  EXPECT_TRUE(has(d.wait("pair"), "It is the next to start there, by forecast within 60 min"))
      << d.wait("pair").message;
  EXPECT_FALSE(has(d.wait("pair"), "higher priority"));
}

// The messages and `queue` show times of one computation, also long after the pass that decided.
TEST(SchedBackfill, ReasonsHaveTheTimesOfThePresentProjection) {
  Scene s;
  s.inventory.devices = {gpu(0)};
  s.placed = {on("x", {"devices/gpu-0"}, 70 * kGiB, 60)};
  s.waiting = {gpu_job("next", 1, 70 * kGiB, 10), gpu_job("later", 2, 70 * kGiB, 10)};
  Queue queue;
  Fleet fleet;
  const Shares shares;
  fill(s, queue, fleet);
  WaitReasons waits = decide(queue, fleet, shares, s.policy, 0).waits;
  s.placed[0].end = {20 * kMinuteUs, 25 * kMinuteUs, 30 * kMinuteUs};  // it is faster
  fleet.place(s.placed[0]);
  const int64_t now_us = 18 * kMinuteUs;
  waits.take_projection(queue, fleet, shares, now_us);
  const auto message = [&](const char* uid) {
    return waits.find(queue, fleet, s.policy, uid, now_us)->message;
  };
  const QueueView view = view_queue(queue, fleet, shares, waits, s.policy, now_us, 10, "");
  EXPECT_EQ(view.jobs[0].start.high_us, 30 * kMinuteUs);
  EXPECT_NE(message("next").find("by forecast within 12 min"), std::string::npos)
      << message("next");
  EXPECT_NE(message("next").find("held by x (for up to 12 min)"), std::string::npos)
      << message("next");
  EXPECT_NE(message("later").find("expected to start within 12 min"), std::string::npos)
      << message("later");
}

TEST(SchedBackfill, MemoryThatAReservationDoesNotNeedIsFree) {
  Scene s;
  s.inventory.devices = {gpu(0)};
  s.placed = {on("x", {"devices/gpu-0"}, 50 * kGiB, 60)};
  s.waiting = {gpu_job("first", 1, 60 * kGiB), gpu_job("beside", 2, 15 * kGiB),
               gpu_job("too-much", 3, 10 * kGiB)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started(d), (Strings{"beside@gpu-0"}));
  EXPECT_TRUE(has(d.wait("too-much"), "reserved for first")) << d.wait("too-much").message;
  EXPECT_TRUE(has(d.wait("too-much"), "without a forecast or a time limit may not start before"));
}

// A time limit serves as an upper forecast. If both exist, the lower one counts.
TEST(SchedBackfill, WithoutAForecastTheTimeLimitBoundsAJob) {
  Scene s;
  s.inventory.devices = {gpu(0), gpu(1)};
  s.placed = {on("x", {"devices/gpu-0"}, 70 * kGiB)};
  s.placed[0].end_max_us = 60 * kMinuteUs;
  s.waiting = {gpu_job("pair", 1, 70 * kGiB), gpu_job("unknown", 2, 10 * kGiB),
               gpu_job("limited", 3, 10 * kGiB)};
  s.waiting[0].asked.gpus = 2;
  s.waiting[2].rest_max_us = 59 * kMinuteUs;
  Decided d = decide(s, 0);
  EXPECT_EQ(started(d), (Strings{"limited@gpu-1"})) << d.text();
  EXPECT_TRUE(has(d.wait("pair"), "by forecast within 60 min")) << d.wait("pair").message;
  s.waiting[2].rest_max_us = 61 * kMinuteUs;
  d = decide(s, 0);
  EXPECT_TRUE(d.starts.empty()) << d.text();
  EXPECT_TRUE(has(d.wait("limited"), "this job would not have ended by then")) << d.text();
  s.placed[0].end = {kMinuteUs, 2 * kMinuteUs, 200 * kMinuteUs};  // reported by its worker
  EXPECT_TRUE(has(decide(s, 0).wait("pair"), "by forecast within 60 min"));
}

// Each model of GPU is reserved for the first job that fits on it, however many jobs that need
// another model are ahead.
TEST(SchedBackfill, EachModelOfGpuIsReservedForItsOwnFirst) {
  Scene s;
  s.inventory.devices = {gpu(0), gpu(1, 24 * kGiB)};
  s.inventory.devices[1].model = "B";
  s.placed = {on("x", {"devices/gpu-0"}, 70 * kGiB, 30), on("y", {"devices/gpu-1"}, 4 * kGiB, 30),
              on("z", {"devices/gpu-1"}, 10 * kGiB, 30)};
  s.waiting = {gpu_job("large", 1, 78 * kGiB), gpu_job("larger", 2, 60 * kGiB),
               gpu_job("medium", 3, 20 * kGiB), gpu_job("other", 4, 15 * kGiB),
               gpu_job("small", 5, 4 * kGiB)};
  s.waiting[0].priority = s.waiting[1].priority = 5;
  s.waiting[2].priority = 3;
  const Decided d = decide(s, 0);
  EXPECT_TRUE(d.starts.empty()) << d.text();
  ASSERT_EQ(d.reservations.size(), 2u);
  EXPECT_EQ(d.reservations[0].uid, "large");
  EXPECT_EQ(d.reservations[1].uid, "medium");
  EXPECT_TRUE(has(d.wait("small"), "reserved for medium")) << d.wait("small").message;
  // Either model has room for both jobs: the second job gets the model that the first one leaves
  // free.
  s.waiting = {gpu_job("one", 1, 20 * kGiB), gpu_job("two", 2, 15 * kGiB),
               gpu_job("small", 3, 4 * kGiB)};
  s.placed[0].end.high_us = 20 * kMinuteUs;
  const Decided both = decide(s, 0);
  ASSERT_EQ(both.reservations.size(), 2u);
  EXPECT_EQ(both.reservations[0].devices[0].device, 0);
  EXPECT_EQ(both.reservations[1].uid, "two");
  EXPECT_EQ(both.reservations[1].devices[0].device, 1);
}

// For a gang behind a job of unknown end, free devices are reserved only for a limited time. Then
// they are lent to a job whose run time is known, and reserved again.
TEST(SchedBackfill, AReservationWithUnknownStartIsLentAfterItsTime) {
  Scene s;
  s.inventory.devices = {gpu(0), gpu(1)};
  s.placed = {on("endless", {"devices/gpu-0"}, 70 * kGiB)};
  s.waiting = {gpu_job("pair", 1, 70 * kGiB), gpu_job("unknown", 2, 10 * kGiB),
               gpu_job("long", 3, 10 * kGiB, 300), gpu_job("short", 4, 70 * kGiB, 5)};
  s.waiting[0].asked.gpus = 2;
  s.waiting[0].wait_since_us = kMinuteUs;
  s.policy.reserved_idle_max_us = 10 * kMinuteUs;
  Decided d = decide(s, 11 * kMinuteUs - 1);
  EXPECT_TRUE(d.starts.empty()) << d.text();
  EXPECT_EQ(d.wake_time_us, 11 * kMinuteUs) << "then a pass runs, although nothing happened";
  EXPECT_TRUE(has(d.wait("pair"),
                  "at an unknown time. Devices that stay idle for it for 10 min are lent "
                  "to jobs with a known end"))
      << d.wait("pair").message;
  EXPECT_TRUE(has(d.wait("short"), "reserved for pair")) << d.wait("short").message;
  EXPECT_TRUE(has(d.wait("short"), "devices that stay idle for that job for 10 min are lent"));

  d = decide(s, 11 * kMinuteUs);
  EXPECT_EQ(started(d), (Strings{"long@gpu-1"})) << d.text();
  EXPECT_TRUE(
      has(d.wait("unknown"), "a job without a forecast or a time limit may not start before"))
      << d.wait("unknown").message;
  EXPECT_FALSE(d.wake_time_us) << "nothing is kept any more that could be lent";

  // The job that borrowed the device is over, so the device is reserved again.
  s.left_time_us["devices/gpu-1"] = 60 * kMinuteUs;
  s.waiting.erase(s.waiting.begin() + 2);
  EXPECT_TRUE(decide(s, 69 * kMinuteUs).starts.empty());
  EXPECT_EQ(started(decide(s, 70 * kMinuteUs)), (Strings{"short@gpu-1"}));

  // Once the reserved start is known, only jobs that end before it may still start.
  s.placed[0].end = {71 * kMinuteUs, 72 * kMinuteUs, 75 * kMinuteUs};
  EXPECT_TRUE(decide(s, 70 * kMinuteUs).starts.empty());
}

TEST(SchedBackfill, NothingIsBackfilledIfTheReservedStartIsUnknown) {
  Scene s;
  s.inventory.devices = {gpu(0)};
  s.placed = {on("x", {"devices/gpu-0"}, 50 * kGiB)};
  s.waiting = {gpu_job("first", 1, 60 * kGiB), gpu_job("short", 2, kGiB, 1)};
  const Decided d = decide(s, 0);
  EXPECT_TRUE(d.starts.empty());
  EXPECT_TRUE(has(d.wait("first"), "at an unknown time")) << d.wait("first").message;
  EXPECT_TRUE(has(d.wait("first"), "x (for an unknown time)")) << d.wait("first").message;
  EXPECT_TRUE(has(d.wait("short"), "are lent to others until")) << d.wait("short").message;
}

TEST(SchedBackfill, DevicesThatTheReservedJobCannotUseAreNotReserved) {
  Scene s;
  s.inventory.devices = {gpu(0), gpu(1)};
  s.inventory.devices[1].others_bytes = 60 * kGiB;
  s.placed = {on("x", {"devices/gpu-0"}, 70 * kGiB)};  // a job without a forecast or a time limit
  s.waiting = {gpu_job("large", 1, 60 * kGiB), gpu_job("small", 2, 10 * kGiB)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started(d), (Strings{"small@gpu-1"})) << d.text();
}

TEST(SchedBackfill, AWaitForOneKindOfDeviceDoesNotDelayAnother) {
  Scene s;
  s.inventory.devices = {cpu(), gpu(0)};
  s.placed = {on("x", {"devices/gpu-0"}, 70 * kGiB)};
  s.waiting = {gpu_job("first", 1, 60 * kGiB), cpu_job("c", 2, 1)};
  EXPECT_EQ(started(decide(s, 0)), (Strings{"c@cpu"}));
}

TEST(SchedBackfill, JobsAfterTheFirstOfAQueueAreConsidered) {
  Scene s;
  s.inventory.devices = {gpu(0, 80 * kGiB, 1)};
  s.placed = {on("x", {"devices/gpu-0"}, kGiB, 100)};
  s.inventory.devices.push_back(gpu(1, 80 * kGiB, 1));
  s.waiting = {gpu_job("pair", 1, kGiB)};
  s.waiting[0].asked.gpus = 2;
  s.waiting.push_back(gpu_job("slow", 2, kGiB, 80));
  s.waiting.push_back(gpu_job("fast", 3, kGiB, 40));  // the same line of the queue as "slow"
  EXPECT_EQ(started(decide(s, 0)), (Strings{"fast@gpu-1"}));
}

// ---- Preemption ----------------------------------------------------------------------------

class SchedPreemption : public ::testing::Test {
 protected:
  SchedPreemption() {
    s.inventory.devices = {gpu(0)};
    s.placed = {on("low", {"devices/gpu-0"}, 70 * kGiB, 1000)};
    s.waiting = {gpu_job("high", 1, 60 * kGiB)};
    s.waiting[0].priority = 5;
    s.policy.preemption = Preemption::kPriority;
    s.policy.preempt_after_us = 10 * kMinuteUs;
  }
  Strings stopped(int64_t now_us) const {
    Strings uids;
    for (const PreemptDecision& p : decide(s, now_us).preempts) uids.push_back(p.uid);
    return uids;
  }
  Scene s;
  int64_t later = 20 * kMinuteUs;
};

TEST_F(SchedPreemption, ByPolicyALowerPriorityMakesRoom) {
  const Decided d = decide(s, later);
  ASSERT_EQ(d.preempts.size(), 1u);
  EXPECT_EQ(d.preempts[0].uid, "low");
  EXPECT_EQ(d.preempts[0].for_name, "high");
  EXPECT_TRUE(d.starts.empty()) << "not before it has gone";
  EXPECT_TRUE(has(d.wait("high"), "low makes room for it")) << d.wait("high").message;
  s.policy.preemption = Preemption::kOff;
  const Decided off = decide(s, later);
  EXPECT_TRUE(off.preempts.empty());
  EXPECT_TRUE(has(off.wait("high"), "low has a lower priority")) << off.wait("high").message;
  EXPECT_TRUE(has(off.wait("high"), "preemption is off"));
}

TEST_F(SchedPreemption, NotForAnEqualPriorityNorTwice) {
  s.waiting[0].priority = 0;
  EXPECT_EQ(stopped(later), Strings{});
  s.waiting[0].priority = 5;
  s.placed[0].stopping = true;
  EXPECT_EQ(stopped(later), Strings{});
  EXPECT_TRUE(decide(s, later).starts.empty());
}

TEST_F(SchedPreemption, NotBeforeItHasRunForItsTimeNorShortlyBeforeItsEnd) {
  const Decided d = decide(s, 9 * kMinuteUs);
  EXPECT_TRUE(d.preempts.empty());
  EXPECT_EQ(d.wake_time_us, 10 * kMinuteUs) << "then it may";
  EXPECT_TRUE(has(d.wait("high"), "before it has run for 10 min")) << d.wait("high").message;
  EXPECT_EQ(stopped(10 * kMinuteUs), (Strings{"low"}));
  EXPECT_EQ(stopped(1000 * kMinuteUs - kMinuteUs / 2), Strings{});
  s.placed[0].running = false;  // the job is still starting
  EXPECT_EQ(stopped(later), Strings{});
}

TEST_F(SchedPreemption, TheLowestPriorityThenTheLeastLostWork) {
  s.inventory.devices = {gpu(0), gpu(1), gpu(2)};
  s.placed = {on("a", {"devices/gpu-0"}, 70 * kGiB), on("b", {"devices/gpu-1"}, 70 * kGiB),
              on("c", {"devices/gpu-2"}, 70 * kGiB)};
  s.placed[0].priority = 1;
  s.placed[2].saved_time_us = 19 * kMinuteUs;
  EXPECT_EQ(stopped(later), (Strings{"c"}));
  s.placed[2].priority = s.placed[1].priority = 2;
  EXPECT_EQ(stopped(later), (Strings{"a"}));
}

TEST_F(SchedPreemption, JobsThatAreStillStoppingAreNotPreemptedAgain) {
  s.inventory.devices = {gpu(0), gpu(1)};
  s.placed = {on("gang", {"devices/gpu-0", "devices/gpu-1"}, 60 * kGiB, 1000),
              on("beside", {"devices/gpu-0"}, 10 * kGiB, 1000)};
  s.waiting[0].asked.gpus = 2;
  const Decided d = decide(s, kMinuteUs);
  EXPECT_TRUE(has(d.wait("high"),
                  " gang, beside have a lower priority, but are not preempted before "
                  "they have run for 10 min, nor shortly before their end."))
      << d.wait("high").message;
}

TEST_F(SchedPreemption, NoMoreAreStoppedThanItNeeds) {
  s.placed = {on("small", {"devices/gpu-0"}, 5 * kGiB), on("large", {"devices/gpu-0"}, 50 * kGiB)};
  s.placed[0].saved_time_us = 15 * kMinuteUs;  // stopping it would lose less work
  EXPECT_EQ(stopped(later), (Strings{"large"}));
}

TEST_F(SchedPreemption, AJobThatWouldNotFitPreemptsNothing) {
  s.placed.push_back(on("equal", {"devices/gpu-0"}, 5 * kGiB));
  s.placed[1].priority = 5;
  s.waiting[0] = gpu_job("high", 1, 75 * kGiB);
  s.waiting[0].priority = 5;
  EXPECT_EQ(stopped(later), Strings{});
}

TEST_F(SchedPreemption, SeveralGpusAreFreedTogether) {
  s.inventory.devices = {gpu(0), gpu(1), gpu(2)};
  s.placed = {on("gang", {"devices/gpu-0", "devices/gpu-1"}, 70 * kGiB),
              on("keep", {"devices/gpu-2"}, 70 * kGiB)};
  s.placed[1].priority = 3;
  s.waiting[0].asked.gpus = 2;
  EXPECT_EQ(stopped(later), (Strings{"gang"})) << "once, though it is on both";
}

// ---- Shares and forecasts ------------------------------------------------------------------

TEST(SchedShares, AnOwnerWhoHasUsedLessGoesFirst) {
  constexpr int64_t kHourUs = 60 * kMinuteUs;
  const int64_t now = 100 * kHourUs;
  Shares shares(24 * kHourUs);
  shares.add("ann", 1, 90 * kHourUs, 94 * kHourUs, now);
  shares.add("bob", 1, 98 * kHourUs, 99 * kHourUs, now);
  EXPECT_GT(shares.usage("ann", now), shares.usage("bob", now));
  EXPECT_NEAR(shares.usage("bob", now), 3600, 200);
  EXPECT_NEAR(shares.usage("bob", now + 24 * kHourUs) / shares.usage("bob", now), 0.5, 1e-6);
  Scene s;
  s.shares = &shares;
  s.inventory.devices = {gpu(0, 80 * kGiB, 1)};
  s.waiting = {gpu_job("of-ann", 1, kGiB), gpu_job("of-bob", 2, kGiB)};
  s.waiting[0].owner = "ann";
  s.waiting[1].owner = "bob";
  const Decided d = decide(s, now);
  EXPECT_EQ(started(d), (Strings{"of-bob@gpu-0"}));
  s.waiting[0].priority = 1;
  EXPECT_EQ(started(decide(s, now)), (Strings{"of-ann@gpu-0"})) << "priority comes before shares";
}

TEST(SchedShares, StoredUsageDecaysAsIfTheDaemonHadRun) {
  constexpr int64_t kHourUs = 60 * kMinuteUs;
  const int64_t now = 100 * kHourUs;
  Shares seen(24 * kHourUs), kept(24 * kHourUs);
  seen.add("ann", 2, 50 * kHourUs, 60 * kHourUs, now);
  seen.add("ann", 1, 60 * kHourUs, 70 * kHourUs, now);
  const double used = use_after(0, 2, 10 * kHourUs, 24 * kHourUs);
  kept.add("ann", use_after(used, 1, 10 * kHourUs, 24 * kHourUs), 70 * kHourUs, now);
  EXPECT_NEAR(kept.usage("ann", now), seen.usage("ann", now), 1e-6);
  EXPECT_GT(kept.usage("ann", now), 1000);
}

TEST(SchedShares, SimultaneousStartsAreSharedBetweenOwners) {
  Shares shares(24 * 60 * kMinuteUs);
  Scene s;
  s.shares = &shares;
  s.inventory.devices = {gpu(0, 80 * kGiB, 4)};
  for (int i = 0; i < 4; ++i) {
    s.waiting.push_back(gpu_job("ann-" + std::to_string(i), i, kGiB));
    s.waiting.back().owner = "ann";
  }
  for (int i = 4; i < 8; ++i) {
    s.waiting.push_back(gpu_job("bob-" + std::to_string(i), i, kGiB));
    s.waiting.back().owner = "bob";
  }
  EXPECT_EQ(started(decide(s, 0)),
            (Strings{"ann-0@gpu-0", "bob-4@gpu-0", "ann-1@gpu-0", "bob-5@gpu-0"}));
}

TEST(SchedAuto, ChoosesTheKindOfDeviceOnWhichTheJobEndsFirst) {
  Scene s;
  s.inventory.devices = {cpu(), gpu(0, 80 * kGiB, 1)};
  s.waiting = {job("a", 1, DeviceWish::kAuto, kGiB, 60)};
  s.waiting[0].on_gpu.rest = {kMinuteUs, 2 * kMinuteUs, 3 * kMinuteUs};
  EXPECT_EQ(started(decide(s, 0)), (Strings{"a@gpu-0"}));
  s.placed = {on("x", {"devices/gpu-0"}, kGiB, 300)};
  Decided d = decide(s, 0);
  ASSERT_EQ(started(d), (Strings{"a@cpu"})) << "the GPU is busy for five hours";
  EXPECT_NE(d.starts[0].message.find("expected to end there in about 60 min"), std::string::npos)
      << d.starts[0].message;
  s.placed = {on("x", {"devices/gpu-0"}, kGiB, 30)};
  d = decide(s, 0);
  EXPECT_TRUE(d.starts.empty());
  EXPECT_TRUE(has(d.wait("a"), "on the CPU in about 60 min")) << d.wait("a").message;
  s.placed = {on("x", {"devices/gpu-0"}, kGiB)};
  EXPECT_TRUE(decide(s, 0).starts.empty()) << "unknown: the job waits for the GPU";
  s.waiting[0].asked.kind_before = DeviceKind::kGpu;
  s.placed = {on("x", {"devices/gpu-0"}, kGiB, 300)};
  EXPECT_TRUE(decide(s, 0).starts.empty()) << "other bits";
}

/// Returns a job that takes minutes on a GPU and an hour on the CPU.
WaitingJob either(const std::string& uid, int64_t order) {
  WaitingJob j = job(uid, order, DeviceWish::kAuto, kGiB, 60);
  j.on_gpu.rest = {kMinuteUs, 2 * kMinuteUs, 3 * kMinuteUs};
  return j;
}

// An idle GPU that is reserved for another job is not free, and a GPU with a free slot may lack
// memory.
TEST(SchedAuto, AReservedGpuIsNotFree) {
  Scene s;
  s.inventory.devices = {cpu(), gpu(0), gpu(1)};
  s.placed = {on("x", {"devices/gpu-0"}, 70 * kGiB, 30)};
  s.waiting = {gpu_job("pair", 1, 79 * kGiB, 300), either("a", 2)};
  s.waiting[0].asked.gpus = 2;
  s.waiting[1].on_gpu.rest.high_us = 40 * kMinuteUs;  // too long to slip in
  Decided d = decide(s, 0);
  ASSERT_EQ(started(d), (Strings{"a@cpu"})) << d.wait("a").message;
  // The wait: 30 minutes until x ends, then the pair's 300 minutes.
  EXPECT_NE(d.starts[0].message.find("including a wait of 5 h 30 min"), std::string::npos)
      << d.starts[0].message;
  s.waiting[0].on_gpu.rest = {kMinuteUs, 5 * kMinuteUs, 9 * kMinuteUs};
  d = decide(s, 0);
  EXPECT_TRUE(d.starts.empty()) << d.text();
  EXPECT_TRUE(has(d.wait("a"),
                  "A GPU: the job is expected to end there in about 37 min, including the wait"))
      << d.wait("a").message;
}

TEST(SchedAuto, JobsAheadCountThoughAGpuHasFreeSlots) {
  Scene s;
  s.inventory.devices = {cpu(), gpu(0)};
  s.placed = {on("x", {"devices/gpu-0"}, 70 * kGiB, 10)};
  s.waiting = {either("a", 100)};
  s.waiting[0].on_gpu.bytes = 20 * kGiB;
  EXPECT_TRUE(decide(s, 0).starts.empty()) << "in ten minutes";
  for (int i = 0; i < 9; ++i) {
    s.waiting.push_back(gpu_job("ahead-" + std::to_string(i), i, 60 * kGiB, 20));
  }
  const Decided d = decide(s, 0);
  ASSERT_EQ(started(d), (Strings{"a@cpu"})) << d.wait("a").message;
  // The GPU is reserved for the first of the jobs before this one. The wait consists of 10 minutes
  // for x and 20 minutes for each of nine jobs.
  EXPECT_NE(d.starts[0].message.find("including a wait of 3 h 10 min"), std::string::npos)
      << d.starts[0].message;
}

TEST(SchedAuto, AnyNumberIsComparedInOnePass) {
  Scene s;
  s.inventory.devices = {cpu(64, 800 * kGiB), gpu(0)};
  s.placed = {on("x", {"devices/gpu-0"}, 79 * kGiB, 600)};
  for (int i = 0; i < 40; ++i) s.waiting.push_back(either("a" + std::to_string(i), i));
  EXPECT_EQ(decide(s, 0).starts.size(), 40u) << "all on the CPU";
}

TEST(SchedAuto, WaitingTimesAreSummedOverLongQueues) {
  Queue queue;
  double sum = 0;
  for (int i = 0; i < 3000; ++i) {
    WaitingJob j = gpu_job("j" + std::to_string(i), i, kGiB, 1 + i % 7);
    j.priority = i % 3;
    if (i % 5 == 0) j.asked.wish = DeviceWish::kCpu;
    if (i % 4 == 0) j.asked.gpus = 2;
    queue.put(j);
    if (i % 10 == 3) {
      queue.remove(j.uid);
    } else if (j.priority == 2 || (j.priority == 1 && i < 2000)) {
      sum += Queue::gpu_us_of(j);
    }
  }
  WaitingJob last = gpu_job("last", 2000, kGiB);
  last.priority = 1;
  EXPECT_DOUBLE_EQ(queue.gpu_us_before(last), sum);
  queue.clear();
  EXPECT_EQ(queue.gpu_us_before(last), 0);
}

// ---- What is expected ----------------------------------------------------------------------

TEST(SchedProjection, JobsFollowOneAnotherByForecast) {
  Scene s;
  s.inventory.devices = {gpu(0, 80 * kGiB, 1)};
  s.placed = {on("x", {"devices/gpu-0"}, kGiB, 10)};
  s.waiting = {gpu_job("a", 1, kGiB, 20), gpu_job("b", 2, kGiB, 5), gpu_job("c", 3, kGiB)};
  Queue queue;
  Fleet fleet;
  fill(s, queue, fleet);
  const std::vector<Projected> p = project(queue, fleet, Shares(), 1000, 10);
  ASSERT_EQ(p.size(), 3u);
  EXPECT_EQ(p[0].uid, "a");
  EXPECT_EQ(p[0].start.likely_us, 10 * kMinuteUs);
  EXPECT_EQ(p[0].start.low_us, 5 * kMinuteUs);
  EXPECT_EQ(p[0].end.likely_us, 30 * kMinuteUs);
  EXPECT_EQ(p[0].end.high_us, 50 * kMinuteUs);
  EXPECT_EQ(p[1].start.likely_us, 30 * kMinuteUs);
  EXPECT_EQ(p[1].device, "devices/gpu-0");
  EXPECT_EQ(p[2].start.likely_us, 35 * kMinuteUs);
  EXPECT_FALSE(p[2].end.known()) << "it has no forecast";
  EXPECT_EQ(project(queue, fleet, Shares(), 1000, 2).size(), 2u);
  const std::vector<Projected> until = project(queue, fleet, Shares(), 1000, 10, "b");
  ASSERT_EQ(until.size(), 2u) << "none behind it";
  EXPECT_EQ(until[1].start.likely_us, p[1].start.likely_us);
}

TEST(SchedProjection, JobsThatMapTheSameFileRunTogether) {
  Scene s;
  s.inventory.devices = {cpu(8)};
  s.placed = {mapping("x", "base", 10), mapping("y", "base", 20)};
  s.waiting = {mapping_job("same", 1, "base"), mapping_job("larger", 2, "base", 2 * kGiB),
               mapping_job("other", 3, "another base")};
  Queue queue;
  Fleet fleet;
  fill(s, queue, fleet);
  const std::vector<Projected> p = project(queue, fleet, Shares(), 1000, 10);
  ASSERT_EQ(p.size(), 3u);
  EXPECT_EQ(p[0].start.likely_us, 1000);
  EXPECT_EQ(p[1].start.likely_us, 20 * kMinuteUs) << "7 of 8 GiB until both have ended";
  EXPECT_FALSE(p[2].start.known()) << "the jobs before it have no forecast";
}

TEST(SchedProjection, AnAutoJobUsesTheDeviceThatIsFreeFirst) {
  Scene s;
  s.inventory.devices = {cpu(1), gpu(0, 80 * kGiB, 1)};
  s.placed = {on("on-gpu", {"devices/gpu-0"}, kGiB, 100), on("on-cpu", {"devices/cpu"}, kGiB, 10)};
  s.waiting = {either("a", 1)};
  const auto device = [&] {
    Queue queue;
    Fleet fleet;
    fill(s, queue, fleet);
    return project(queue, fleet, Shares(), 1000, 10).at(0).device;
  };
  EXPECT_EQ(device(), "devices/cpu") << "in ten minutes, for an hour";
  s.placed[0].end = {5 * kMinuteUs, 5 * kMinuteUs, 5 * kMinuteUs};
  s.waiting[0].on_gpu.rest = {90 * kMinuteUs, 90 * kMinuteUs, 90 * kMinuteUs};
  EXPECT_EQ(device(), "devices/gpu-0") << "it does not wait for the CPU beside a free GPU";
}

}  // namespace
}  // namespace trainyard::server
