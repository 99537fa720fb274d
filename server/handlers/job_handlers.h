// server/handlers/job_handlers.h: JobService without its transport. Thread-safe. A submit is
// answered by the store; each other call may wait for a commit.
#pragma once

#include <atomic>
#include <memory>
#include <stop_token>
#include <string>

#include "server/config/paths.h"
#include "server/dispatch/dispatcher.h"
#include "server/files/disk_watch.h"
#include "server/handlers/unary.h"
#include "server/planning/job_planner.h"
#include "server/store/array.h"
#include "server/store/done.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/result.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

struct Job;
struct PlannedJob;

class JobHandlers {
 public:
  /// The daemon's parts that these handlers use. They must outlive the handlers.
  struct Parts {
    const StatePaths& paths;
    const Clock& clock;
    Files& files;
    Store& store;
    const Dispatcher& dispatcher;
    JobPlanner& planner;
    DiskWatch& disk;
    const std::atomic<bool>& draining;
  };
  explicit JobHandlers(const Parts& parts) : parts_(parts) {}
  /// These two plan, which may take seconds.
  void submit(const v1::SubmitJobRequest& request, const CallInfo& call, Done<v1::Job> done);
  void plan(const v1::PlanJobRequest& request, const CallInfo& call, Done<v1::JobPlan> done);
  /// Submits a spec that was just accepted, without planning or waiting. False: it is left to
  /// submit().
  bool submit_known(const v1::SubmitJobRequest& request, const CallInfo& call,
                    const Done<v1::Job>& done);
  Result<v1::Job> get(const v1::GetJobRequest& request) const;
  Result<v1::ListJobsResponse> list(const v1::ListJobsRequest& request, const CallInfo& call) const;
  Result<v1::ListQueueResponse> list_queue(const v1::ListQueueRequest& request) const;
  Result<v1::Job> cancel(const v1::CancelJobRequest& request);
  Result<v1::Job> pause(const v1::PauseJobRequest& request);
  Result<v1::Job> resume(const v1::ResumeJobRequest& request);
  Result<v1::Job> set_priority(const v1::SetJobPriorityRequest& request);
  Status remove(const v1::DeleteJobRequest& request);

  // In job_arrays.cc. The first plans, for up to half a minute, as submit() does.
  void submit_array(const v1::SubmitArrayRequest& request, const CallInfo& call,
                    Done<v1::JobArray> done);
  Result<v1::JobArray> get_array(const v1::GetArrayRequest& request) const;
  Result<v1::ListArraysResponse> list_arrays(const v1::ListArraysRequest& request) const;
  void cancel_array(const v1::CancelArrayRequest& request, Done<v1::JobArray> done);
  void pause_array(const v1::PauseArrayRequest& request, Done<v1::JobArray> done);
  void resume_array(const v1::ResumeArrayRequest& request, Done<v1::JobArray> done);
  Status remove_array(const v1::DeleteArrayRequest& request);

  // In job_forks.cc: jobs made of other jobs. The first two plan, as submit() does.
  Result<v1::Job> retry(const v1::RetryJobRequest& request, const CallInfo& call);
  Result<v1::Job> fork(const v1::ForkJobRequest& request, const CallInfo& call);
  Result<v1::ListCheckpointsResponse> list_checkpoints(
      const v1::ListCheckpointsRequest& request) const;

 private:
  struct Offspring;
  struct Beginning;
  Status check_submit(const v1::SubmitJobRequest& request) const;
  void store(const v1::SubmitJobRequest& request, const std::string& caller, PlannedJob planned,
             Done<v1::Job> done);
  void steer_array(const std::string& name, Steering steering, Done<v1::JobArray> done);
  Result<v1::Job> make(const Offspring& asked, const std::stop_token& stop);
  Result<Beginning> begin(const Offspring& asked, const Job& parent, const PlannedJob& planned);

  const Parts parts_;
};

}  // namespace trainyard::server
