// NCCL between emulated devices, in place of src/runtime/cuda/nccl.cc. A collective waits, in its
// stream, for the other ranks, as the real one does on the GPUs; only its own rank's abort ends
// that. Ranks of several processes are those of several threads of a test, which have their id
// alone in common: communicators that do not block, as the backend makes them there, have started
// or submitted their calls after they were looked at a few times, and refuse calls before.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/runtime/cuda/nccl.h"
#include "tests/cuda/fake_cuda.h"

namespace {

constexpr int kLooks = 3;  // until what does not block is done

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
  explicit Group(size_t ranks) : calls(ranks), joined(ranks) {}
  std::mutex mutex;
  std::condition_variable changed;
  size_t arrived = 0;
  int64_t meetings = 0;
  std::vector<Call> calls;   // by rank
  std::vector<bool> joined;  // those that have started, of several processes
};

/// What works under way keep.
struct Rank {
  std::shared_ptr<Group> group;
  size_t rank = 0;
  int device = 0;
  bool aborted = false;  // with the group's mutex
};
struct Submission {
  Call call;
  cudaStream_t stream = nullptr;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Rank> rank;
  bool blocks = true;
  // Of one that does not block:
  std::mutex mutex = {};
  int looks = 0;  // that are left until it has done what it was told
  ncclResult_t failed = ncclSuccess;
  std::vector<Submission> waiting = {};
  std::thread::id caller = {};  // whose stream it is, for the emulator
};

namespace {

std::atomic<int> async_error = 0;
std::atomic<int64_t> open_comms = 0;

std::mutex registry_mutex;
std::map<std::string, std::shared_ptr<Group>> drawn_groups;  // by id; nullptr: not begun
std::map<int, int> start_errors;                             // by rank
int ids_drawn = 0;

struct Pending {
  ncclComm_t comm;
  Submission submission;
};
thread_local bool in_group = false;
thread_local std::vector<Pending> pending;

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

/// Of all ranks' calls, with the group's mutex.
void exchange_calls(const Group& group) {
  const Call& call = group.calls.front();
  for (const Call& other : group.calls) {
    if (!other.is_like(call)) std::abort();
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

void exchange(const Rank& rank, const Call& call) {
  Group& group = *rank.group;
  std::unique_lock lock(group.mutex);
  if (rank.aborted) return;
  group.calls[rank.rank] = call;
  const int64_t meeting = group.meetings;
  if (++group.arrived == group.calls.size()) {
    exchange_calls(group);
    group.arrived = 0;
    ++group.meetings;
    group.changed.notify_all();
    return;
  }
  group.changed.wait(lock, [&] { return rank.aborted || group.meetings != meeting; });
  if (group.meetings == meeting) --group.arrived;
}

void submit(const std::shared_ptr<Rank>& rank, const Submission& submission) {
  trainyard::testing::submit_to_stream(submission.stream, trainyard::testing::WorkKind::kExchange,
                                       [rank, call = submission.call] { exchange(*rank, call); });
}

ncclResult_t get_version(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t comm_init_all(ncclComm_t* comms, int count, const int* devices) {
  const auto group = std::make_shared<Group>(static_cast<size_t>(count));
  for (int r = 0; r < count; ++r) {
    for (int other = 0; other < r; ++other) {
      if (devices[other] == devices[r]) return ncclInvalidUsage;
    }
    comms[r] =
        new ncclComm{std::make_shared<Rank>(Rank{group, static_cast<size_t>(r), devices[r]})};
    ++open_comms;
  }
  return ncclSuccess;
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  const std::scoped_lock lock(registry_mutex);
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "id %d", ++ids_drawn);
  drawn_groups[std::string(id->internal, sizeof id->internal)] = nullptr;
  return ncclSuccess;
}
ncclResult_t comm_init_rank_config(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                   ncclConfig_t* config) {
  // One that blocks would wait here for this thread's other devices.
  if (!in_group || config->blocking != 0 || config->magic != 0xcafebeef) return ncclInvalidUsage;
  if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclInvalidUsage;
  const std::scoped_lock lock(registry_mutex);
  const auto found = drawn_groups.find(std::string(id.internal, sizeof id.internal));
  if (found == drawn_groups.end()) return ncclInvalidArgument;
  std::shared_ptr<Group>& group = found->second;
  if (group == nullptr) group = std::make_shared<Group>(static_cast<size_t>(ranks));
  const std::scoped_lock with_group(group->mutex);
  if (std::ssize(group->calls) != ranks || group->joined[static_cast<size_t>(rank)]) {
    return ncclInvalidArgument;  // an id is good for one start
  }
  *comm = new ncclComm{std::make_shared<Rank>(Rank{group, static_cast<size_t>(rank), device})};
  (*comm)->blocks = false;
  (*comm)->looks = kLooks;
  ++open_comms;
  const auto error = start_errors.find(rank);
  if (error == start_errors.end()) {
    group->joined[static_cast<size_t>(rank)] = true;
  } else {
    (*comm)->failed = static_cast<ncclResult_t>(error->second);
  }
  return ncclSuccess;
}

ncclResult_t comm_destroy(ncclComm_t comm) {
  --open_comms;
  delete comm;
  return ncclSuccess;
}
ncclResult_t comm_abort(ncclComm_t comm) {
  {
    const std::scoped_lock lock(comm->rank->group->mutex);
    comm->rank->aborted = true;
    comm->rank->group->changed.notify_all();
  }
  --open_comms;
  // Threads of this process may be in calls of one that blocks.
  if (!comm->blocks) delete comm;
  return ncclSuccess;
}

ncclResult_t state_of(ncclComm& comm) {
  const std::scoped_lock lock(comm.mutex);
  if (comm.failed != ncclSuccess) return comm.failed;
  {
    const Group& group = *comm.rank->group;
    const std::scoped_lock with_group(comm.rank->group->mutex);
    if (std::ranges::count(group.joined, true) != std::ssize(group.joined)) return ncclInProgress;
  }
  if (comm.looks == 0) return ncclSuccess;
  if (!comm.waiting.empty() && std::this_thread::get_id() != comm.caller) return ncclInProgress;
  if (--comm.looks > 0) return ncclInProgress;
  for (const Submission& s : std::exchange(comm.waiting, {})) submit(comm.rank, s);
  return ncclSuccess;
}
ncclResult_t comm_get_async_error(ncclComm_t comm, ncclResult_t* error) {
  *error = static_cast<ncclResult_t>(async_error.load());
  if (*error == ncclSuccess && !comm->blocks) *error = state_of(*comm);
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
  ncclResult_t result = ncclSuccess;
  for (const Pending& p : std::exchange(pending, {})) {
    const Submission& s = p.submission;
    if (trainyard::testing::device_of(s.stream) != p.comm->rank->device) return ncclInvalidArgument;
    if (p.comm->blocks) {
      submit(p.comm->rank, s);
      continue;
    }
    const std::scoped_lock lock(p.comm->mutex);
    p.comm->waiting.push_back(s);
    p.comm->looks = kLooks;
    p.comm->caller = std::this_thread::get_id();
    result = ncclInProgress;
  }
  return result;
}
size_t size_of(ncclDataType_t type) {
  return type == ncclFloat64 ? sizeof(double) : type == ncclFloat16 ? 2 : sizeof(float);
}
ncclResult_t add(const Call& call, ncclComm_t comm, cudaStream_t stream, ncclRedOp_t op = ncclAvg) {
  const bool moves = call.kind == Kind::kBroadcast || call.kind == Kind::kAllGather;
  const bool known =
      call.type == ncclFloat32 || call.type == ncclFloat64 || (call.type == ncclFloat16 && moves);
  const bool has_root = call.root < comm->rank->group->calls.size();
  {
    const std::scoped_lock lock(comm->mutex);  // before what came before has been submitted
    if (!comm->blocks && (comm->looks > 0 || comm->failed != ncclSuccess)) {
      return ncclInvalidArgument;
    }
  }
  if (!in_group || op != ncclAvg || !known || !has_root || call.count == 0 ||
      call.from == nullptr || call.to == nullptr) {
    return ncclInvalidArgument;
  }
  pending.push_back({comm, {call, stream}});
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
  if (overlap(from, to, count * comm->rank->group->calls.size(), type)) return ncclInvalidArgument;
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
  if (from != static_cast<std::byte*>(to) + comm->rank->rank * count * size)
    return ncclInvalidArgument;
  return add({Kind::kAllGather, from, to, count, type, 0}, comm, stream);
}

}  // namespace

namespace trainyard::testing {
void set_nccl_async_error(int error) { async_error = error; }
void set_nccl_start(int rank, int error) {
  const std::scoped_lock lock(registry_mutex);
  if (error == ncclSuccess) {
    start_errors.erase(rank);
  } else {
    start_errors[rank] = error;
  }
}
int64_t open_nccl_comms() { return open_comms; }
}  // namespace trainyard::testing

namespace trainyard::cuda {

Result<const Nccl*> open_nccl() {
  static const Nccl nccl{
      get_version, comm_init_all,        get_unique_id,    comm_init_rank_config, comm_destroy,
      comm_abort,  comm_get_async_error, get_error_string, get_last_error,        group_start,
      group_end,   all_reduce,           reduce,           reduce_scatter,        broadcast,
      all_gather};
  return &nccl;
}

}  // namespace trainyard::cuda
