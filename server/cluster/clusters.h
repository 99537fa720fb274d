// server/cluster/clusters.h: submits attempts to clusters, monitors them and withdraws them.
//
// A cluster's responses are slow, may be wrong and may be missing, so they decide only one thing:
// that an attempt has certainly ended and the next may begin. The success of an attempt is reported
// by its own worker (Supervisor). Each cluster has one thread that waits for its commands; no other
// thread does.
//
//   intent stored -> submit -> waiting -> granted -> worker enrols ... outcome -> forgotten
//                  \-> unknown: found by its name, or submitted again under the same name
//
// Submitting an attempt twice does no harm: of all jobs with one name only one runs at a time, and
// the first worker uses up the secret.
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
  std::string uid;  // the uid of the job
  int32_t attempt = 0;
  std::string job;  // the job's name, for people
  std::string project, owner;
  int32_t priority = 0;
  AttemptIntent intent;
  std::string handle;      // the cluster's ID, if an earlier daemon stored it
  bool may_exist = false;  // an earlier daemon may have submitted it
  // The job's forecast from this attempt's start on, if one attempt suffices; else unknown.
  DeviceBrief rest;
  /// Called on the cluster's thread with the cluster's ID of the attempt, which is then to be
  /// stored.
  std::function<void(std::string handle)> found = [](const std::string&) {};
};

/// The known state of an attempt, for people.
struct ClusterSight {
  std::string uid, job, project, owner;
  int32_t priority = 0;
  std::string handle;
  bool granted = false;  // it has nodes, or its worker has attached
  std::string nodes;
  // Why it waits: the cluster's text, or ours if the cluster does not respond.
  std::string reason;
  int64_t start_estimate_us = 0;  // 0: not known
  DeviceBrief rest;               // as ClusterAttempt::rest
};

/// The cluster refuses all jobs with the settings in its configuration file.
struct ClusterRefusal {
  std::string text;     // the cluster's words
  int64_t left_us = 0;  // until another job is tried; 0: now
};

/// Thread-safe.
class Clusters {
 public:
  struct Cluster {
    ClusterConfig config;
    std::unique_ptr<Placement> placement;
  };
  /// `changed` is called on a cluster's thread when another job may be submitted to that cluster.
  Clusters(Supervisor& supervisor, const Clock& clock, std::vector<Cluster> clusters,
           std::function<void()> changed);
  /// Leaves running attempts to the next daemon.
  ~Clusters();

  void start();
  void stop();
  /// Does the work of all clusters' threads on the calling thread, for a simulation that never
  /// calls start(). Returns when the next work is due, in microseconds of the steady clock.
  std::optional<int64_t> turn();

  /// Submits an attempt, or resumes monitoring it. The supervisor must know its task.
  void submit(const std::string& cluster, ClusterAttempt attempt);
  /// Requests the attempt's end from the cluster, repeatedly until it has ended.
  void withdraw(const std::string& cluster, const std::string& uid, int32_t attempt);
  /// The caller calls this after it has stored the attempt's outcome. An attempt that then does not
  /// end by itself is withdrawn from the cluster.
  void forget(const std::string& cluster, const std::string& uid, int32_t attempt);

  /// Returns the number of attempts that wait in the cluster's queue or are being submitted.
  int32_t waiting(const std::string& cluster) const;
  std::vector<ClusterSight> sights(const std::string& cluster) const;
  std::optional<ClusterSight> find(const std::string& uid) const;
  /// Returns the text of the check at the daemon's start; empty: not checked yet.
  std::string note(const std::string& cluster) const;
  /// While there is a refusal, jobs stay in the daemon's queue, because the cluster would refuse
  /// one after the other. The refusal ends when the cluster accepts a job.
  std::optional<ClusterRefusal> refusal(const std::string& cluster) const;

 private:
  struct Runner;
  std::vector<std::unique_ptr<Runner>> runners_;
};

}  // namespace trainyard::server
