// NCCL between emulated devices, in place of src/runtime/cuda/nccl.cc. A collective waits, in its
// stream, for the other ranks, as the real one does on the GPUs.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/runtime/cuda/nccl.h"
#include "tests/cuda/fake_cuda.h"

namespace {

enum class Kind : uint8_t { kAllReduce, kReduce, kReduceScatter, kBroadcast, kAllGather };

struct Call {
  Kind kind = Kind::kAllReduce;
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;  // as the function takes it
  ncclDataType_t type = ncclFloat32;
  size_t root = 0;

  bool is_like(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && root == other.root;
  }
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

/// Element `i` of what all ranks send.
template <typename T>
T mean_of(const Group& group, size_t i) {
  const T share = T(1) / static_cast<T>(group.calls.size());
  T sum = 0;
  for (const Call& call : group.calls) sum += static_cast<const T*>(call.from)[i] * share;
  return sum;
}

/// What one call of all ranks does, all at once.
template <typename T>
void exchange_all(const Group& group) {
  const Call& first = group.calls.front();
  const size_t count = first.count, ranks = group.calls.size();
  const auto to = [&](size_t rank) { return static_cast<T*>(group.calls[rank].to); };
  const auto from = [&](size_t rank) { return static_cast<const T*>(group.calls[rank].from); };
  switch (first.kind) {
    case Kind::kAllReduce:
      for (size_t i = 0; i < count; ++i) {
        const T mean = mean_of<T>(group, i);
        for (size_t r = 0; r < ranks; ++r) to(r)[i] = mean;
      }
      break;
    case Kind::kReduce:
      for (size_t i = 0; i < count; ++i) to(first.root)[i] = mean_of<T>(group, i);
      break;
    case Kind::kReduceScatter:
      for (size_t i = 0; i < ranks * count; ++i) to(i / count)[i % count] = mean_of<T>(group, i);
      break;
    case Kind::kBroadcast:
      for (size_t r = 0; r < ranks; ++r) {
        if (to(r) != from(first.root)) std::copy_n(from(first.root), count, to(r));
      }
      break;
    case Kind::kAllGather:
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t q = 0; q < ranks; ++q) {
          if (to(r) + q * count != from(q)) std::copy_n(from(q), count, to(r) + q * count);
        }
      }
      break;
  }
}

void exchange(const ncclComm& comm, const Call& call) {
  Group& group = *comm.group;
  group.calls[comm.rank] = call;
  if (!meet(group)) return;
  if (comm.rank == 0) {
    for (const Call& other : group.calls) {
      if (other.is_like(call)) continue;
      const std::scoped_lock lock(group.mutex);
      if (group.aborted) return;  // the other has gone on without this one
      std::abort();
    }
    switch (call.type) {
      case ncclFloat64:
        exchange_all<double>(group);
        break;
      case ncclFloat16:
        exchange_all<uint16_t>(group);  // moved alone, see add()
        break;
      default:
        exchange_all<float>(group);
    }
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
size_t size_of(ncclDataType_t type) {
  return type == ncclFloat64 ? sizeof(double) : type == ncclFloat16 ? 2 : sizeof(float);
}
ncclResult_t add(const Call& call, ncclComm_t comm, cudaStream_t stream, ncclRedOp_t op = ncclAvg) {
  const bool moves = call.kind == Kind::kBroadcast || call.kind == Kind::kAllGather;
  const bool known =
      call.type == ncclFloat32 || call.type == ncclFloat64 || (call.type == ncclFloat16 && moves);
  const bool has_root = call.root < comm->group->calls.size();
  if (!in_group || op != ncclAvg || !known || !has_root || call.count == 0 ||
      call.from == nullptr || call.to == nullptr) {
    return ncclInvalidArgument;
  }
  pending.push_back({comm, call, stream});
  return ncclSuccess;
}
/// Whether the two begin within `elements` of each other, so that one would be written while it is
/// read.
bool overlap(const void* a, const void* b, size_t elements, ncclDataType_t type) {
  const size_t bytes = elements * size_of(type);
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + bytes && y < x + bytes;
}

ncclResult_t all_reduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (from != to) return ncclInvalidArgument;
  return add({Kind::kAllReduce, from, to, count, type, 0}, comm, stream, op);
}
ncclResult_t reduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                    int root, ncclComm_t comm, cudaStream_t stream) {
  if (from != to && overlap(from, to, count, type)) return ncclInvalidArgument;
  return add({Kind::kReduce, from, to, count, type, static_cast<size_t>(root)}, comm, stream, op);
}
ncclResult_t reduce_scatter(const void* from, void* to, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (overlap(from, to, count * comm->group->calls.size(), type)) return ncclInvalidArgument;
  return add({Kind::kReduceScatter, from, to, count, type, 0}, comm, stream, op);
}
ncclResult_t broadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  if (from != to && overlap(from, to, count, type)) return ncclInvalidArgument;
  return add({Kind::kBroadcast, from, to, count, type, static_cast<size_t>(root)}, comm, stream);
}
ncclResult_t all_gather(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream) {
  // In place it begins with this rank's part of what it ends with.
  const size_t size = size_of(type);
  if (from != static_cast<std::byte*>(to) + comm->rank * count * size) return ncclInvalidArgument;
  return add({Kind::kAllGather, from, to, count, type, 0}, comm, stream);
}

}  // namespace

namespace trainyard::testing {
void set_nccl_async_error(int error) { async_error = error; }
}  // namespace trainyard::testing

namespace trainyard::cuda {

Result<const Nccl*> open_nccl() {
  static const Nccl nccl{
      get_version,      comm_init_all,  comm_destroy, comm_abort, comm_get_async_error,
      get_error_string, get_last_error, group_start,  group_end,  all_reduce,
      reduce,           reduce_scatter, broadcast,    all_gather};
  return &nccl;
}

}  // namespace trainyard::cuda
