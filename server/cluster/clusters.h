// server/cluster/clusters.h: attempts that clusters run: handed over, followed, taken back.
//
// What a cluster says is slow, can be wrong and can be missing, so it decides nothing but one
// thing: that an attempt is over for certain, after which the next may begin. How an attempt ended
// well its own worker tells (Supervisor). One thread for each waits for the cluster's
// commands; nobody else does.
//
//   intent stored -> submit -> waiting -> granted -> worker enrols ... outcome -> forgotten
//                 \-> unknown: found by its name, or submitted again under the same one
//
// A submission that is lost twice over does no harm: of one name only one runs at a time, and the
// secret of the first that comes is spent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/cluster/placement.h"
#include "server/config/cluster.h"
#include "server/processes/supervisor.h"
#include "server/store/job.h"
#include "src/base/clock.h"

namespace trainyard::server {

/// An attempt of a job that a cluster runs. The store has its row already.
struct ClusterAttempt {
  std::string uid;  // of the job
  int32_t attempt = 0;
  std::string job;  // its name, for people
  std::string owner;
  int32_t priority = 0;
  AttemptIntent intent;
  std::string handle;      // of an earlier daemon; empty: none is known
  bool may_exist = false;  // an earlier daemon may have submitted it
  DeviceBrief rest;        // by forecast from its start on, if that is one start; else unknown
  /// The cluster's name for it is known: to be stored. On that thread.
  std::function<void(std::string handle)> found = [](const std::string&) {};
};

/// What is known of an attempt, for people.
struct ClusterSight {
  std::string uid, job, owner;
  int32_t priority = 0;
  std::string handle;
  bool granted = false;  // it has its node, or its worker has come
  std::string nodes;
  std::string reason;             // the cluster's, or ours where the cluster does not answer
  int64_t start_estimate_us = 0;  // 0: not known
  DeviceBrief rest;               // as ClusterAttempt's
};

/// The cluster takes nothing with what its file says.
struct ClusterRefusal {
  std::string text;     // in its words
  int64_t left_us = 0;  // until a job is tried again; 0: now
};

/// Thread-safe.
class Clusters {
 public:
  struct Cluster {
    ClusterConfig config;
    std::unique_ptr<Placement> placement;
  };
  /// `changed` is called when a place in a cluster's queue may have become free. On a cluster's
  /// thread.
  Clusters(Supervisor& supervisor, const Clock& clock, std::vector<Cluster> clusters,
           std::function<void()> changed);
  /// Leaves what runs to the next daemon.
  ~Clusters();

  void start();
  void stop();
  /// Does on the calling thread what a cluster's own thread does when it is woken, for a simulation
  /// that never calls start(). Returns when something is next due, by the steady clock.
  std::optional<int64_t> turn();

  /// Submits it, or takes it up again. Its task is known to the supervisor.
  void hand_over(const std::string& cluster, ClusterAttempt attempt);
  /// Asks the cluster to end it, until it has.
  void withdraw(const std::string& cluster, const std::string& uid, int32_t attempt);
  /// Its outcome is stored: what is left of it in the cluster is nobody's any more.
  void forget(const std::string& cluster, const std::string& uid, int32_t attempt);

  /// Attempts that wait in the cluster's queue, or are on their way there.
  int32_t waiting(const std::string& cluster) const;
  std::vector<ClusterSight> sights(const std::string& cluster) const;
  std::optional<ClusterSight> find(const std::string& uid) const;
  /// What a look at the cluster found when the daemon started; empty: not looked yet.
  std::string note(const std::string& cluster) const;
  /// Jobs are kept here while there is one: else each would be refused, one after another, again
  /// and again. It is over when a job was taken.
  std::optional<ClusterRefusal> refusal(const std::string& cluster) const;

 private:
  struct Runner;
  std::vector<std::unique_ptr<Runner>> runners_;
};

}  // namespace trainyard::server
