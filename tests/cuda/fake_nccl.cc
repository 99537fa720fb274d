// NCCL between emulated devices, in place of src/runtime/cuda/nccl.cc. An all-reduce waits, in its
// stream, for the other ranks, as the real one does on the GPUs.
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "src/runtime/cuda/nccl.h"
#include "tests/cuda/fake_cuda.h"

namespace {

struct Call {
  void* data = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
};
struct Group {
  std::mutex mutex;
  std::condition_variable changed;
  size_t arrived = 0;
  int64_t meetings = 0;
  bool aborted = false;
  std::vector<Call> calls;  // by rank
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  size_t rank;
  int device;
};

namespace {

std::atomic<int> async_error = 0;

struct Pending {
  ncclComm_t comm;
  Call call;
  cudaStream_t stream;
};
thread_local bool in_group = false;
thread_local std::vector<Pending> pending;

/// False: given up.
bool meet(Group& group) {
  std::unique_lock lock(group.mutex);
  const int64_t meeting = group.meetings;
  if (!group.aborted && ++group.arrived == group.calls.size()) {
    group.arrived = 0;
    ++group.meetings;
    group.changed.notify_all();
    return true;
  }
  group.changed.wait(lock, [&] { return group.aborted || group.meetings != meeting; });
  return group.meetings != meeting;
}

template <typename T>
void reduce(const Group& group) {
  const T share = T(1) / static_cast<T>(group.calls.size());
  for (size_t i = 0; i < group.calls[0].count; ++i) {
    T sum = 0;
    for (const Call& call : group.calls) sum += static_cast<T*>(call.data)[i] * share;
    for (const Call& call : group.calls) static_cast<T*>(call.data)[i] = sum;
  }
}

void exchange(const ncclComm& comm, const Call& call) {
  Group& group = *comm.group;
  group.calls[comm.rank] = call;
  if (!meet(group)) return;
  if (comm.rank == 0) {
    for (const Call& other : group.calls) {
      if (other.count == call.count && other.type == call.type) continue;
      const std::scoped_lock lock(group.mutex);
      if (group.aborted) return;  // the other has gone on without this one
      std::abort();
    }
    call.type == ncclFloat64 ? reduce<double>(group) : reduce<float>(group);
  }
  (void)meet(group);
}

ncclResult_t get_version(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t comm_init_all(ncclComm_t* comms, int count, const int* devices) {
  const auto group = std::make_shared<Group>();
  group->calls.resize(static_cast<size_t>(count));
  for (int r = 0; r < count; ++r) {
    for (int other = 0; other < r; ++other) {
      if (devices[other] == devices[r]) return ncclInvalidUsage;
    }
    comms[r] = new ncclComm{group, static_cast<size_t>(r), devices[r]};
  }
  return ncclSuccess;
}
ncclResult_t comm_destroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t comm_abort(ncclComm_t comm) {
  const std::scoped_lock lock(comm->group->mutex);
  comm->group->aborted = true;
  comm->group->changed.notify_all();
  return ncclSuccess;  // works under way keep it
}
ncclResult_t comm_get_async_error(ncclComm_t, ncclResult_t* error) {
  *error = static_cast<ncclResult_t>(async_error.load());
  return ncclSuccess;
}
const char* get_error_string(ncclResult_t) { return "an error of NCCL"; }
const char* get_last_error(ncclComm_t) { return ""; }

ncclResult_t group_start() {
  in_group = true;
  return ncclSuccess;
}
ncclResult_t group_end() {
  in_group = false;
  for (const Pending& p : std::exchange(pending, {})) {
    if (trainyard::testing::device_of(p.stream) != p.comm->device) return ncclInvalidArgument;
    trainyard::testing::submit_to_stream(p.stream, trainyard::testing::WorkKind::kExchange,
                                         [p] { exchange(*p.comm, p.call); });
  }
  return ncclSuccess;
}
ncclResult_t all_reduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const bool known = type == ncclFloat32 || type == ncclFloat64;
  if (!in_group || from != to || op != ncclAvg || !known) return ncclInvalidArgument;
  pending.push_back({comm, {to, count, type}, stream});
  return ncclSuccess;
}

}  // namespace

namespace trainyard::testing {
void set_nccl_async_error(int error) { async_error = error; }
}  // namespace trainyard::testing

namespace trainyard::cuda {

Result<const Nccl*> open_nccl() {
  static const Nccl nccl{
      get_version,      comm_init_all,  comm_destroy, comm_abort, comm_get_async_error,
      get_error_string, get_last_error, group_start,  group_end,  all_reduce};
  return &nccl;
}

}  // namespace trainyard::cuda
