// server/service/job_handlers.h: JobService without its transport. Thread-safe; each call may wait
// for a commit.
#pragma once

#include <memory>

#include "server/service/context.h"
#include "server/store/done.h"
#include "src/base/result.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

class JobHandlers {
 public:
  explicit JobHandlers(ServiceContext& service);
  ~JobHandlers();
  Result<v1::Job> submit(const v1::SubmitJobRequest& request);
  void plan(const v1::PlanJobRequest& request, Done<v1::JobPlan> done);
  Result<v1::Job> get(const v1::GetJobRequest& request) const;
  Result<v1::ListJobsResponse> list(const v1::ListJobsRequest& request) const;
  Result<v1::Job> cancel(const v1::CancelJobRequest& request);
  Status remove(const v1::DeleteJobRequest& request);

 private:
  ServiceContext& service_;
  std::unique_ptr<class JobPlanner> planner_;
};

}  // namespace trainyard::server
