// Tests of decide_cluster(), which chooses the jobs that are submitted to a cluster.
#include <gtest/gtest.h>

#include "server/scheduler/cluster.h"

namespace trainyard::server {
namespace {

WaitingJob cluster_job(std::string uid, int64_t order, int32_t priority = 0,
                       std::string owner = "") {
  WaitingJob j;
  j.name = uid;
  j.uid = std::move(uid);
  j.order = order;
  j.priority = priority;
  j.owner = std::move(owner);
  j.cluster = "slurm";
  return j;
}

std::string submitted(const Decisions& d) {
  std::string text;
  for (const StartDecision& s : d.starts) text += s.uid + "@" + s.devices.at(0) + " ";
  return text;
}

TEST(SchedCluster, SubmitsAtMostWaitingMaxJobs) {
  Queue queue;
  for (int i = 1; i <= 5; ++i) queue.put(cluster_job("j" + std::to_string(i), i, i == 4 ? 7 : 0));
  const Shares none;
  EXPECT_EQ(submitted(decide_cluster(queue, {"slurm", 2, 0}, none, 0)),
            "j4@clusters/slurm j1@clusters/slurm ");
  EXPECT_EQ(submitted(decide_cluster(queue, {"slurm", 2, 1}, none, 0)), "j4@clusters/slurm ");
  EXPECT_EQ(submitted(decide_cluster(queue, {"slurm", 2, 2}, none, 0)), "");
  EXPECT_EQ(submitted(decide_cluster(queue, {"slurm", 2, 5}, none, 0)), "");
  EXPECT_EQ(submitted(decide_cluster(queue, {"slurm", 2, 0, true}, none, 0)), "");
}

TEST(SchedCluster, TheOwnerWithLessUseComesFirst) {
  Queue queue;
  queue.put(cluster_job("a1", 1, 0, "anna"));
  queue.put(cluster_job("a2", 2, 0, "anna"));
  queue.put(cluster_job("b1", 3, 0, "ben"));
  queue.put(cluster_job("a3", 4, 1, "anna"));
  Shares shares(3'600'000'000);
  shares.change("anna", 2, 0);
  // Priority comes first; then ben, who has used nothing; equal jobs keep their order.
  EXPECT_EQ(submitted(decide_cluster(queue, {"slurm", 3, 0}, shares, 1)),
            "a3@clusters/slurm b1@clusters/slurm a1@clusters/slurm ");
}

TEST(SchedCluster, ARefusedClusterIsTriedWithOneJobAtATime) {
  Queue queue;
  for (int i = 1; i <= 5; ++i) queue.put(cluster_job("j" + std::to_string(i), i));
  const Shares none;
  ClusterState cluster{"slurm", 4, 0};
  cluster.refused = "no such partition";
  cluster.next_trial_in_us = 7'000'000;
  const Decisions shut = decide_cluster(queue, cluster, none, 1'000'000);
  EXPECT_EQ(submitted(shut), "");
  EXPECT_EQ(shut.wake_time_us, 8'000'000);
  const WaitReason why = cluster_reason(*queue.find("j1"), &cluster, 0, 1'000'000).value();
  EXPECT_EQ(why.reason, "CLUSTER_REFUSED");
  EXPECT_NE(why.message.find("accepts no jobs at the moment: no such partition"),
            std::string::npos);
  EXPECT_NE(why.message.find("the server tries one job in 7 s"), std::string::npos) << why.message;
  cluster.next_trial_in_us = 0;
  EXPECT_EQ(submitted(decide_cluster(queue, cluster, none, 8'000'000)), "j1@clusters/slurm ");
  cluster.waiting = 2;  // jobs submitted to the cluster earlier
  EXPECT_EQ(submitted(decide_cluster(queue, cluster, none, 8'000'000)), "j1@clusters/slurm ");
  cluster.waiting = 4;
  EXPECT_EQ(submitted(decide_cluster(queue, cluster, none, 8'000'000)), "");
}

TEST(SchedCluster, AJobInBackoffIsPassedOverAndSetsTheNextWakeTime) {
  Queue queue;
  WaitingJob resting = cluster_job("rests", 1, 9);
  resting.retry_time_us = 5'000'000;
  resting.workers_lost = 1;
  queue.put(resting);
  queue.put(cluster_job("next", 2));
  const Shares none;
  const Decisions d = decide_cluster(queue, {"slurm", 1, 0}, none, 1'000'000);
  EXPECT_EQ(submitted(d), "next@clusters/slurm ");
  EXPECT_EQ(d.wake_time_us, 5'000'000);
  EXPECT_EQ(submitted(decide_cluster(queue, {"slurm", 1, 0}, none, 5'000'000)),
            "rests@clusters/slurm ");
}

TEST(SchedCluster, EveryWaitingJobCanSayWhy) {
  const ClusterState cluster{"slurm", 4, 3};
  const WaitingJob waits = cluster_job("w", 1);
  EXPECT_EQ(cluster_reason(waits, nullptr, 0, 0)->reason, "CLUSTER_NOT_FOUND");
  EXPECT_NE(cluster_reason(waits, nullptr, 0, 0)->message.find("the cluster slurm"),
            std::string::npos);
  const auto why = cluster_reason(waits, &cluster, 1, 0);
  EXPECT_EQ(why->reason, "WAITING_FOR_CLUSTER");
  EXPECT_EQ(why->message,
            "Waits to be submitted to the cluster slurm, whose queue has 3 of at most 4 jobs of "
            "this server; 1 job is ahead of it.");
  EXPECT_NE(cluster_reason(waits, &cluster, std::nullopt, 0)->message.find("more than 2000 jobs"),
            std::string::npos);
  ClusterState draining = cluster;
  draining.draining = true;
  EXPECT_EQ(cluster_reason(waits, &draining, 0, 0)->reason, "SERVER_DRAINING");
  WaitingJob rests = cluster_job("r", 2);
  rests.retry_time_us = 10;
  // The store has a more specific reason.
  EXPECT_EQ(cluster_reason(rests, &cluster, 0, 0), std::nullopt);
  rests.workers_lost = 2;
  EXPECT_EQ(cluster_reason(rests, &cluster, 0, 0)->reason, "RETRY_BACKOFF");
}

TEST(SchedCluster, ReportsAJobsPositionInTheOrderOfSubmission) {
  Queue queue;
  for (int i = 1; i <= 2'100; ++i)
    queue.put(cluster_job("j" + std::to_string(i), i, i == 7 ? 5 : 0));
  const Shares none;
  const auto place = [&](const char* uid) {
    return cluster_position(queue, *queue.find(uid), none, 0);
  };
  EXPECT_EQ(place("j7"), 0);
  EXPECT_EQ(place("j1"), 1);
  EXPECT_EQ(place("j6"), 6);
  EXPECT_EQ(place("j8"), 7);
  EXPECT_EQ(place("j2000"), 1'999);
  EXPECT_EQ(place("j2001"), std::nullopt);
  const std::vector<const WaitingJob*> order = cluster_order(queue, none, 0, 10);
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(place(order[i]->uid.c_str()), static_cast<int64_t>(i));
  }
}

TEST(SchedCluster, NamesClusters) {
  EXPECT_EQ(cluster_of({"clusters/a"}), "a");
  EXPECT_EQ(cluster_of({"devices/cpu"}), "");
  EXPECT_EQ(cluster_of({}), "");
}

// An attempt in a cluster does not use the server's own devices.
TEST(SchedCluster, ItsJobsAreNotScheduledOnLocalDevices) {
  JobBrief brief;
  brief.uid = "u";
  brief.state = JobState::kRunning;
  brief.devices = {"clusters/slurm"};
  brief.resources.set_cluster("slurm");
  const std::optional<PlacedJob> placed = placed_job(brief);
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->devices, std::vector<std::string>{"clusters/slurm"});
  brief.state = JobState::kQueued;
  const std::optional<WaitingJob> waiting = waiting_job(brief);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->cluster, "slurm");
  EXPECT_FALSE(waiting->asked.kind_before);
}

}  // namespace
}  // namespace trainyard::server
