// server/store/job_steering.h: what people ask of a job, in a command of the writer: for one job,
// and for the members of an array. Each changes nothing that is as asked already.
#pragma once

#include "server/store/job.h"
#include "server/store/writer.h"

namespace trainyard::server {

Status cancel_job(WriteContext& context, Job& job);
/// FAILED_PRECONDITION/JOB_STATE_CONFLICT once it has ended or is being cancelled.
Status pause_job(WriteContext& context, Job& job);
/// FAILED_PRECONDITION/JOB_STATE_CONFLICT once it has ended.
Status resume_job(WriteContext& context, Job& job);
/// FAILED_PRECONDITION/JOB_STATE_CONFLICT until it has ended and those that waited know.
Status remove_job(WriteContext& context, const Job& job);

}  // namespace trainyard::server
