// server/service/job_handlers.h: JobService without its transport. Thread-safe; each call may wait
// for a commit.
#pragma once

#include <memory>
#include <stop_token>

#include "server/service/context.h"
#include "server/store/done.h"
#include "src/base/result.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

class JobHandlers {
 public:
  explicit JobHandlers(ServiceContext& service);
  ~JobHandlers();
  /// These two plan, which may take seconds: CANCELLED/STOPPED soon after `stop` is requested.
  Result<v1::Job> submit(const v1::SubmitJobRequest& request, const std::stop_token& stop);
  void plan(const v1::PlanJobRequest& request, Done<v1::JobPlan> done, const std::stop_token& stop);
  Result<v1::Job> get(const v1::GetJobRequest& request) const;
  Result<v1::ListJobsResponse> list(const v1::ListJobsRequest& request) const;
  Result<v1::Job> cancel(const v1::CancelJobRequest& request);
  Result<v1::Job> set_priority(const v1::SetJobPriorityRequest& request);
  Status remove(const v1::DeleteJobRequest& request);

 private:
  ServiceContext& service_;
  std::unique_ptr<class JobPlanner> planner_;
};

}  // namespace trainyard::server
