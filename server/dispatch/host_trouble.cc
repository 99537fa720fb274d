#include "server/dispatch/train_task.h"
#include "server/scheduler/retry.h"
#include "src/runtime/cuda_error.h"

namespace trainyard::server {

int64_t HostTrouble::pause_us(const std::string& job_uid) {
  const MutexLock lock(mu_);
  refusals_.erase(job_uid);
  return pause_after_host_trouble(++times_[job_uid]);
}

int32_t HostTrouble::refused(const std::string& job_uid) {
  const MutexLock lock(mu_);
  return ++refusals_[job_uid];
}

void HostTrouble::over(const std::string& job_uid) {
  const MutexLock lock(mu_);
  times_.erase(job_uid);
  refusals_.erase(job_uid);
}

bool TrainTask::doubts_device() const {
  const MutexLock lock(mu_);
  return device_fault_ || device_busy_ || (host_trouble_ && host_trouble_->reason == kHostFault);
}

}  // namespace trainyard::server
