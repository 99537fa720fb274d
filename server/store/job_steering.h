// server/store/job_steering.h: users' requests to a job, applied inside a command of the writer,
// for single jobs and for members of arrays. A request that is already fulfilled changes nothing.
#pragma once

#include "server/store/job.h"
#include "server/store/writer.h"

namespace trainyard::server {

Status cancel_job(WriteContext& context, Job& job);
/// Error: FAILED_PRECONDITION/JOB_STATE_CONFLICT if the job has ended or is being cancelled.
Status pause_job(WriteContext& context, Job& job);
/// Error: FAILED_PRECONDITION/JOB_STATE_CONFLICT if the job has ended.
Status resume_job(WriteContext& context, Job& job);
/// Error: FAILED_PRECONDITION/JOB_STATE_CONFLICT until the job has ended and its dependents are
/// settled.
Status remove_job(WriteContext& context, const Job& job);

}  // namespace trainyard::server
