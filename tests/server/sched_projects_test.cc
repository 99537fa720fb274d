// Tests of projects in the scheduler: which devices their jobs may use, and which other jobs the
// messages for their members name.
#include <gtest/gtest.h>

#include "server/scheduler/cluster.h"
#include "server/scheduler/project_devices.h"
#include "server/scheduler/projection.h"
#include "server/scheduler/queue_view.h"
#include "tests/server/sched_support.h"

namespace trainyard::server {
namespace {

Device device(const std::string& name, int32_t slots = 4) {
  Device d;
  d.name = "devices/" + name;
  d.kind = name == "cpu" ? DeviceKind::kCpu : DeviceKind::kGpu;
  d.model = name == "cpu" ? "" : "A";
  d.slots = slots;
  d.cores = name == "cpu" ? 8 : 0;
  d.memory_bytes = 80 * kGiB;
  d.overhead_bytes = kGiB;
  return d;
}
WaitingJob waiting(const std::string& project, const std::string& name, int64_t order,
                   DeviceWish wish = DeviceWish::kGpu, int64_t minutes = 10) {
  WaitingJob job;
  job.uid = project + "/" + name;
  job.name = name;
  job.project = project;
  job.order = order;
  job.asked.wish = wish;
  const int64_t us = minutes * kMinuteUs;
  job.on_cpu = job.on_gpu = {50 * kGiB, {us, us, us}};
  return job;
}
PlacedJob placed(const std::string& project, const std::string& name, Strings devices,
                 int64_t minutes = 30) {
  PlacedJob job;
  job.uid = project + "/" + name;
  job.name = name;
  job.project = project;
  job.devices = std::move(devices);
  job.bytes = 50 * kGiB;
  job.running = true;
  const int64_t us = minutes * kMinuteUs;
  job.end = {us, us, us};
  return job;
}
Strings started_jobs(const Decided& d) {
  Strings texts;
  for (const StartDecision& s : d.starts) {
    std::string text = s.uid;
    for (const std::string& name : s.devices) text += "@" + name.substr(8);
    texts.push_back(text);
  }
  return texts;
}

class SchedProjects : public ::testing::Test {
 protected:
  SchedProjects() {
    s.inventory.devices = {device("cpu"), device("gpu-0"), device("gpu-1"), device("gpu-2")};
  }
  std::string message(const std::string& uid) const { return decide(s, 0).wait(uid).message; }
  Scene s;
};

TEST_F(SchedProjects, JobsUseOnlyTheDevicesOfTheirProject) {
  s.projects = {{"vision", {"devices/gpu-1", "devices/gpu-2"}}, {"small", {"devices/cpu"}}};
  s.waiting = {waiting("vision", "a", 1), waiting("vision", "b", 2), waiting("vision", "c", 3),
               waiting("small", "d", 4, DeviceWish::kAuto), waiting("free", "e", 5)};
  EXPECT_EQ(started_jobs(decide(s, 0)),
            (Strings{"vision/a@gpu-1", "vision/b@gpu-2", "small/d@cpu", "free/e@gpu-0"}));
}

TEST_F(SchedProjects, AllGpusMayBeAllowedWithoutTheirNames) {
  s.projects = {{"vision", {"gpu"}}};
  s.waiting = {waiting("vision", "a", 1, DeviceWish::kAuto),
               waiting("vision", "b", 2, DeviceWish::kCpu)};
  const Decided d = decide(s, 0);
  EXPECT_EQ(started_jobs(d), (Strings{"vision/a@gpu-0"}));
  EXPECT_EQ(d.wait("vision/b").reason, "NO_DEVICE");
  EXPECT_EQ(d.wait("vision/b").message,
            "Waits for the CPU: this server has none that the job's project may use. The project "
            "vision may use all GPUs.");
}

TEST_F(SchedProjects, AJobForAnyDeviceWaitsForAGpuIfItsProjectHasNoCpu) {
  s.projects = {{"vision", {"devices/gpu-0"}}};
  s.inventory.devices[1].schedulable = false;
  s.inventory.devices[1].reason = "It is hot.";
  s.waiting = {waiting("vision", "a", 1, DeviceWish::kAuto)};
  const Decided d = decide(s, 0);
  EXPECT_TRUE(d.starts.empty());
  EXPECT_EQ(d.wait("vision/a").message,
            "Waits for a GPU: none is usable now. gpu-0: It is hot. The project vision may use "
            "devices/gpu-0.");
}

// A list divides the GPUs of one model, but not for a job that may use all of them.
TEST_F(SchedProjects, AJobOfSeveralGpusSpansTheDevicesOfOtherProjects) {
  s.projects = {{"vision", {"devices/gpu-0"}}, {"speech", {"devices/gpu-1", "devices/gpu-2"}}};
  WaitingJob all = waiting("free", "all", 1);
  all.asked.gpus = 3;
  s.waiting = {all};
  EXPECT_EQ(started_jobs(decide(s, 0)), (Strings{"free/all@gpu-0@gpu-1@gpu-2"}));
  s.placed = {placed("vision", "x", {"devices/gpu-0"})};
  const Decided d = decide(s, 0);
  ASSERT_EQ(d.reservations.size(), 1u);
  EXPECT_EQ(d.reservations[0].time_us, 30 * kMinuteUs);
  EXPECT_EQ(d.reservations[0].devices.size(), 3u);
  WaitingJob two = waiting("vision", "two", 1);
  two.asked.gpus = 2;
  s.placed.clear();
  s.waiting = {two};
  EXPECT_EQ(decide(s, 0).wait("vision/two").reason, "NO_DEVICE");
}

// The first job of each project that finds no room gets a reservation, also if an earlier job of
// another project waits for other devices of the same model. Otherwise short jobs could overtake it
// for ever.
TEST_F(SchedProjects, ProjectsWithDevicesOfTheirOwnReserveThemIndependently) {
  s.projects = {{"vision", {"devices/gpu-0"}}, {"speech", {"devices/gpu-1"}}};
  s.inventory.devices.pop_back();
  s.placed = {placed("vision", "x", {"devices/gpu-0"}, 20),
              placed("speech", "y", {"devices/gpu-1"})};
  WaitingJob small = waiting("speech", "small", 3, DeviceWish::kGpu, 60);
  small.on_gpu.bytes = 20 * kGiB;
  s.waiting = {waiting("vision", "a", 1), waiting("speech", "b", 2), small};
  s.waiting[1].on_gpu.bytes = 75 * kGiB;
  const Decided d = decide(s, 0);
  EXPECT_EQ(started_jobs(d), Strings{});
  ASSERT_EQ(d.reservations.size(), 2u);
  EXPECT_EQ(d.reservations[0].time_us, 20 * kMinuteUs);
  EXPECT_EQ(d.reservations[1].time_us, 30 * kMinuteUs);
  EXPECT_EQ(d.wait("speech/small").message,
            "There is room for it on a GPU, but it is reserved for b, submitted earlier, which is "
            "expected to start within 30 min; this job would not have ended by then. The project "
            "speech may use devices/gpu-1; it is in use.");
}

TEST_F(SchedProjects, AChangedListIsUsedByTheNextPassAndStopsNoJob) {
  s.placed = {placed("vision", "x", {"devices/gpu-0"})};
  s.waiting = {waiting("vision", "a", 1)};
  Queue queue;
  Fleet fleet;
  fill(s, queue, fleet);
  EXPECT_EQ(started_jobs(decide(queue, fleet, s, 0)), (Strings{"vision/a@gpu-1"}));
  fleet.set_project_devices({{"vision", {"devices/gpu-2"}}});
  EXPECT_EQ(started_jobs(decide(queue, fleet, s, 0)), (Strings{"vision/a@gpu-2"}));
  ASSERT_NE(fleet.find("vision/x"), nullptr);
  EXPECT_EQ(fleet.jobs_on("devices/gpu-0").size(), 1u);
  fleet.set_project_devices({});
  EXPECT_EQ(started_jobs(decide(queue, fleet, s, 0)), (Strings{"vision/a@gpu-1"}));
}

TEST_F(SchedProjects, TheProjectionKeepsToTheDevicesOfTheProject) {
  s.projects = {{"vision", {"devices/gpu-2"}}};
  s.placed = {placed("free", "x", {"devices/gpu-2"}, 40)};
  s.waiting = {waiting("vision", "a", 1), waiting("free", "b", 2)};
  Queue queue;
  Fleet fleet;
  fill(s, queue, fleet);
  const auto projected = project(queue, fleet, Shares(), 0, 10);
  ASSERT_EQ(projected.size(), 2u);
  EXPECT_EQ(projected[0].device, "devices/gpu-2");
  EXPECT_EQ(projected[0].start.likely_us, 40 * kMinuteUs);
  EXPECT_EQ(projected[1].device, "devices/gpu-0");
}

TEST_F(SchedProjects, TheReasonSaysWhichDevicesTheProjectMayUse) {
  s.projects = {{"vision", {"devices/gpu-0", "devices/gpu-1"}}};
  s.placed = {placed("vision", "x", {"devices/gpu-0"}), placed("speech", "x", {"devices/gpu-1"})};
  s.waiting = {waiting("vision", "a", 1)};
  EXPECT_EQ(message("vision/a"),
            "Waits for a GPU: gpu-0 has room for 28 GiB of the 50 GiB that it needs, 22 GiB short, "
            "held by x (for up to 30 min). It is the next to start there, by forecast within 30 "
            "min. The project vision may use devices/gpu-0 and devices/gpu-1; both are in use.");
}

// Two projects have jobs of the same ID: a message must not suggest that its own project's is
// meant.
TEST_F(SchedProjects, MessagesNameOnlyJobsOfTheReadersProject) {
  s.inventory.devices = {device("gpu-0")};
  s.placed = {placed("speech", "secret", {"devices/gpu-0"}, 30)};
  s.waiting = {waiting("speech", "hidden", 1), waiting("vision", "a", 2),
               waiting("speech", "b", 3)};
  EXPECT_EQ(message("vision/a"),
            "Waits for a GPU behind a job of another project, submitted earlier, which is expected "
            "to start within 30 min.");
  EXPECT_EQ(
      message("speech/b"),
      "Waits for a GPU behind hidden, submitted earlier, which is expected to start within 30 "
      "min.");
  s.waiting = {waiting("vision", "a", 2)};
  EXPECT_EQ(
      message("vision/a"),
      "Waits for a GPU: gpu-0 has room for 28 GiB of the 50 GiB that it needs, 22 GiB short, "
      "held by a job of another project (for up to 30 min). It is the next to start there, by "
      "forecast within 30 min.");
}

TEST_F(SchedProjects, PreemptionNamesOnlyJobsOfTheReadersProject) {
  s.inventory.devices = {device("gpu-0")};
  s.placed = {placed("speech", "x", {"devices/gpu-0"}, 90),
              placed("vision", "y", {"devices/gpu-0"}, 90),
              placed("speech", "z", {"devices/gpu-0"}, 90)};
  for (PlacedJob& job : s.placed) job.bytes = 20 * kGiB;
  s.waiting = {waiting("vision", "a", 1)};
  s.waiting[0].priority = 5;
  s.waiting[0].on_gpu.bytes = 78 * kGiB;
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  std::string text = message("vision/a");
  EXPECT_TRUE(has(text,
                  " y and 2 jobs of other projects have a lower priority, but this server does "
                  "not preempt jobs"))
      << text;
  s.policy.preemption = Preemption::kPriority;
  const Decided d = decide(s, 20 * kMinuteUs);
  ASSERT_EQ(d.preempts.size(), 3u);
  for (const PreemptDecision& p : d.preempts) {
    EXPECT_EQ(p.for_uid, "vision/a");
    EXPECT_EQ(p.for_name, p.uid == "vision/y" ? "a" : "") << p.uid;
  }
  text = d.wait("vision/a").message;
  EXPECT_TRUE(has(text, " y and 2 jobs of other projects make room for it.")) << text;
  s.placed = {placed("speech", "x", {"devices/gpu-0"}, 90)};
  text = decide(s, 20 * kMinuteUs).wait("vision/a").message;
  EXPECT_TRUE(has(text, " A job of another project makes room for it.")) << text;
}

TEST_F(SchedProjects, JobsOfOneOwnerInTwoProjectsAreInDifferentLines) {
  s.projects = {{"vision", {"devices/gpu-0"}}};
  s.waiting = {waiting("vision", "a", 1), waiting("vision", "a2", 2), waiting("speech", "a", 3)};
  for (WaitingJob& job : s.waiting) job.owner = "ann";
  const Decided d = decide(s, 0);
  EXPECT_EQ(started_jobs(d), (Strings{"vision/a@gpu-0", "speech/a@gpu-1"}));
}

TEST(SchedProjectDevices, AClusterTakesOnlyJobsOfProjectsThatMayUseIt) {
  Queue queue;
  for (const char* project : {"vision", "speech"}) {
    WaitingJob job = waiting(project, "a", std::string(project) == "vision" ? 1 : 2);
    job.cluster = "slurm";
    queue.put(job);
  }
  ClusterState cluster{"slurm", 4, 0};
  cluster.project_devices = {{"vision", {"devices/gpu-0"}}, {"speech", {"gpu", "clusters/slurm"}}};
  const Decisions d = decide_cluster(queue, cluster, Shares(), 0);
  ASSERT_EQ(d.starts.size(), 1u);
  EXPECT_EQ(d.starts[0].uid, "speech/a");
  const auto why = cluster_reason(*queue.find("vision/a"), &cluster, 0, 0);
  ASSERT_TRUE(why);
  EXPECT_EQ(why->reason, "NO_DEVICE");
  EXPECT_EQ(why->message,
            "Waits for the cluster slurm, which the job's project may not use now. The project "
            "vision may use devices/gpu-0.");
}

TEST(SchedProjectDevices, AListHasNamesThatExistOnce) {
  const Strings known = {"devices/cpu", "devices/gpu-0", "clusters/slurm"};
  EXPECT_TRUE(check_list({}, known).ok());
  EXPECT_TRUE(check_list({"gpu", "devices/cpu", "clusters/slurm"}, known).ok());
  const Status unknown = check_list({"devices/cpu", "gpu-0"}, known);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().reason, "DEVICE_NOT_FOUND");
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(unknown.error().message,
            "devices[1]: there is no device 'gpu-0', expected gpu for all GPUs, or one of "
            "devices/cpu, devices/gpu-0, clusters/slurm");
  EXPECT_EQ(check_list({"gpu", "gpu"}, known).error().reason, "FIELD_CONFLICT");
}

TEST(SchedProjectDevices, JobsThatCouldNeverRunThereAreRefused) {
  Devices devices;
  devices.devices = {device("cpu"), device("gpu-0"), device("gpu-1")};
  const auto refusal = [&](const Strings& list, v1::Resources::Device wish, int gpus = 0,
                           const std::string& cluster = "") {
    v1::Resources asked;
    asked.set_device(wish);
    if (gpus > 0) asked.set_gpus(gpus);
    asked.set_cluster(cluster);
    const Status s = check_project_devices("vision", list, asked, devices);
    if (s.ok()) return std::string();
    EXPECT_EQ(s.error().reason, "RESOURCES_IMPOSSIBLE");
    return s.error().message;
  };
  constexpr auto kAuto = v1::Resources::AUTO, kCpu = v1::Resources::CPU, kGpu = v1::Resources::GPU;
  EXPECT_EQ(refusal({"devices/gpu-0"}, kAuto), "");
  EXPECT_EQ(refusal({"devices/gpu-0"}, kGpu), "");
  EXPECT_EQ(refusal({"gpu"}, kGpu, 2), "");
  EXPECT_EQ(refusal({"clusters/slurm"}, kGpu, 8, "slurm"), "");
  EXPECT_EQ(refusal({"devices/gpu-0"}, kGpu, 2),
            "spec.resources.gpus: 2 is not available to the project vision, which may use only "
            "devices/gpu-0; expected 1..1, or ask an operator to change the project's devices");
  EXPECT_EQ(
      refusal({"devices/cpu"}, kGpu),
      "spec.resources.device: gpu is not available to the project vision, which may use only "
      "devices/cpu; expected auto or cpu, or ask an operator to change the project's devices");
  EXPECT_EQ(refusal({"gpu"}, kCpu),
            "spec.resources.device: cpu is not available to the project vision, which may use only "
            "all GPUs; expected auto or gpu, or ask an operator to change the project's devices");
  EXPECT_EQ(
      refusal({"clusters/slurm"}, kAuto),
      "spec.resources.device: a device of this server is not available to the project vision, "
      "which may use only clusters/slurm; name a cluster, or ask an operator to change the "
      "project's devices");
  EXPECT_EQ(refusal({"gpu"}, kAuto, 0, "slurm"),
            "spec.resources.cluster: 'slurm' is not available to the project vision, which may use "
            "only all GPUs; leave it out or name another cluster, or ask an operator to change the "
            "project's devices");
}

}  // namespace
}  // namespace trainyard::server
