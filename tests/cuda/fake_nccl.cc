// NCCL between emulated devices, in place of src/runtime/cuda/nccl.cc. A collective waits in its
// stream for the other ranks, as the real one does on the GPU; only an abort of its own rank ends
// the wait. Ranks of several processes (or of threads that act as processes) share only the id,
// which is the address of the process that drew it; a thread there sends each rank's data to all
// ranks. For these ranks the backend creates non-blocking communicators: they start or submit only
// after their state was queried a few times, and refuse calls before that. As in NCCL, the other
// ranks do not notice when one ends, and destroying or aborting a communicator waits, without a
// limit, until no recording with its collectives exists any more.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/handle.h"
#include "src/runtime/cuda/nccl.h"
#include "tests/cuda/fake_cuda.h"

namespace {

constexpr int kPolls = 3;  // state queries until a non-blocking operation is done

enum class Kind : uint8_t { kAllReduce, kReduce, kReduceScatter, kBroadcast, kAllGather };

struct Call {
  Kind kind = Kind::kAllReduce;
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;  // in the unit of the NCCL function
  ncclDataType_t type = ncclFloat32;
  size_t root = 0;

  bool is_like(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && root == other.root;
  }
};
struct Group {
  explicit Group(size_t ranks) : calls(ranks) {}
  std::mutex mutex;
  std::condition_variable changed;
  size_t arrived = 0;
  int64_t generations = 0;
  std::vector<Call> calls;  // by rank
};

/// A rank's state, shared with its submitted works.
struct Rank {
  std::shared_ptr<Group> group;  // the rank's own group, if there are several processes
  size_t rank = 0;
  int device = 0;
  trainyard::UniqueFd wire = {};  // the connection to the hub, in that case
  // Protected by the group's mutex:
  bool aborted = false;
  int64_t recorded = 0;  // calls in recordings that exist
};
struct Submission {
  Call call;
  cudaStream_t stream = nullptr;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Rank> rank;
  bool blocks = true;
  // The next members are used if it is non-blocking:
  std::mutex mutex = {};
  bool started = true;
  int polls_left = 0;  // state queries left until the last operation is done
  ncclResult_t failed = ncclSuccess;
  std::vector<Submission> waiting = {};
  std::thread::id caller = {};  // the thread that owns the stream, for the emulator
};

namespace {

std::atomic<int> async_error = 0;
std::atomic<int64_t> open_comms = 0;
// TRAINYARD_FAKE_CUDA_FAULT=link=N, for tests of whole programs: break_link_after(N).
std::atomic<int64_t> exchanges_before_break = [] {
  const char* text = std::getenv("TRAINYARD_FAKE_CUDA_FAULT");
  return text != nullptr && std::strncmp(text, "link=", 5) == 0 ? std::atoll(text + 5) : -1;
}();

std::mutex start_mutex;
std::map<int, int> start_errors;  // by rank
std::atomic<int> ids_drawn = 0;

struct Pending {
  ncclComm_t comm;
  Submission submission;
};
thread_local bool in_group = false;
thread_local std::vector<Pending> pending;

/// The mean of element `i` over all ranks.
template <typename T>
T mean_of(const Group& group, size_t i) {
  const T share = T(1) / static_cast<T>(group.calls.size());
  T sum = 0;
  for (const Call& call : group.calls) sum += static_cast<const T*>(call.from)[i] * share;
  return sum;
}

/// Performs one collective for all ranks.
template <typename T>
void exchange_all(const Group& group) {
  const Call& first = group.calls.front();
  const size_t count = first.count, ranks = group.calls.size();
  const auto to = [&](size_t rank) { return static_cast<T*>(group.calls[rank].to); };
  const auto from = [&](size_t rank) { return static_cast<const T*>(group.calls[rank].from); };
  for (size_t r = 0; r < ranks; ++r) {
    if (to(r) == nullptr) continue;  // another process's rank
    switch (first.kind) {
      case Kind::kAllReduce:
        break;  // done below, since it is in place
      case Kind::kReduce:
        if (r == first.root) {
          for (size_t i = 0; i < count; ++i) to(r)[i] = mean_of<T>(group, i);
        }
        break;
      case Kind::kReduceScatter:
        for (size_t i = 0; i < count; ++i) to(r)[i] = mean_of<T>(group, r * count + i);
        break;
      case Kind::kBroadcast:
        if (to(r) != from(first.root)) std::copy_n(from(first.root), count, to(r));
        break;
      case Kind::kAllGather:
        for (size_t q = 0; q < ranks; ++q) {
          if (to(r) + q * count != from(q)) std::copy_n(from(q), count, to(r) + q * count);
        }
        break;
    }
  }
  for (size_t i = 0; first.kind == Kind::kAllReduce && i < count; ++i) {
    const T mean = mean_of<T>(group, i);
    for (size_t r = 0; r < ranks; ++r) {
      if (to(r) != nullptr) to(r)[i] = mean;
    }
  }
}

/// Performs the collective of all ranks' calls; the caller has locked the group's mutex.
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
      exchange_all<uint16_t>(group);  // broadcast and all-gather only, see add()
      break;
    default:
      exchange_all<float>(group);
  }
}

size_t size_of_element(ncclDataType_t type) {
  return type == ncclFloat64 ? sizeof(double) : type == ncclFloat16 ? 2 : sizeof(float);
}

// ---- Ranks of several processes ------------------------------------------------------------

struct Hello {
  int32_t ranks, rank;
};
/// The header of a call that a rank sends, followed by its data.
struct Header {
  Kind kind;
  ncclDataType_t type;
  uint64_t count, root, bytes;  // `bytes` of data follow
};

bool send_all(int fd, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}
bool receive_all(int fd, void* data, size_t bytes) {
  return bytes == 0 || ::recv(fd, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

/// The socket address of an id, in the abstract namespace.
sockaddr_un address_of(const std::string& id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::ranges::copy(id, address.sun_path + 1);
  return address;
}

/// Sends each rank's data to all ranks, call by call, until one disconnects; the others are not
/// notified.
void serve_calls(const std::vector<trainyard::UniqueFd>& ranks) {
  for (const auto& rank : ranks) {
    if (!send_all(rank.get(), "!", 1)) return;
  }
  std::vector<char> all;
  while (true) {
    all.clear();
    Header first{};
    for (const auto& rank : ranks) {
      Header header{};
      if (!receive_all(rank.get(), &header, sizeof header)) return;
      if (&rank == &ranks.front()) first = header;
      if (header.kind != first.kind || header.type != first.type || header.count != first.count ||
          header.root != first.root || header.bytes != first.bytes) {
        std::abort();
      }
      all.resize(all.size() + header.bytes);
      if (!receive_all(rank.get(), all.data() + all.size() - header.bytes, header.bytes)) return;
    }
    for (const auto& rank : ranks) {
      if (!send_all(rank.get(), all.data(), all.size())) return;
    }
  }
}

/// Accepts each rank once, then nobody: an id is good for one start.
void serve_hub(trainyard::UniqueFd listener) {
  std::vector<trainyard::UniqueFd> ranks;
  int32_t joined = 0;
  while (ranks.empty() || joined < std::ssize(ranks)) {
    trainyard::UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello{};
    if (!fd) return;
    if (!receive_all(fd.get(), &hello, sizeof hello)) continue;
    if (ranks.empty()) ranks.resize(static_cast<size_t>(hello.ranks));
    if (hello.ranks != std::ssize(ranks) || hello.rank >= hello.ranks) continue;
    trainyard::UniqueFd& place = ranks[static_cast<size_t>(hello.rank)];
    if (place) continue;
    place = std::move(fd);
    ++joined;
  }
  listener.reset();
  serve_calls(ranks);
  char dropped[256];
  for (const auto& rank : ranks) {  // each rank waits until it is aborted
    while (::recv(rank.get(), dropped, sizeof dropped, 0) > 0) {
    }
  }
}

/// Returns false if another rank has disconnected.
bool exchange_by_hub(const Rank& rank, const Call& call) {
  const size_t ranks = rank.group->calls.size();
  const size_t elements = call.kind == Kind::kReduceScatter ? ranks * call.count : call.count;
  const size_t bytes = elements * size_of_element(call.type);
  const Header header{call.kind, call.type, call.count, call.root, bytes};
  std::vector<char> all(ranks * bytes);
  const int fd = rank.wire.get();
  if (!send_all(fd, &header, sizeof header) || !send_all(fd, call.from, bytes) ||
      !receive_all(fd, all.data(), all.size())) {
    return false;
  }
  Group arrived(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    arrived.calls[r] = call;
    arrived.calls[r].from = all.data() + r * bytes;
    if (r != rank.rank) arrived.calls[r].to = nullptr;
  }
  exchange_calls(arrived);
  return true;
}

/// Counts an exchange. Returns whether the link is broken.
bool breaks_link() {
  int64_t left = exchanges_before_break;
  while (left > 0 && !exchanges_before_break.compare_exchange_weak(left, left - 1)) {
  }
  if (left == 1) async_error = ncclRemoteError;
  return left == 0 || left == 1;
}

void exchange(const Rank& rank, const Call& call) {
  Group& group = *rank.group;
  std::unique_lock lock(group.mutex);
  if (breaks_link()) group.changed.wait(lock, [&] { return rank.aborted; });
  if (rank.aborted) return;
  if (rank.wire) {
    lock.unlock();
    const bool exchanged = exchange_by_hub(rank, call);
    lock.lock();
    if (!exchanged) group.changed.wait(lock, [&] { return rank.aborted; });
    return;
  }
  group.calls[rank.rank] = call;
  const int64_t generation = group.generations;
  if (++group.arrived == group.calls.size()) {
    exchange_calls(group);
    group.arrived = 0;
    ++group.generations;
    group.changed.notify_all();
    return;
  }
  group.changed.wait(lock, [&] { return rank.aborted || group.generations != generation; });
  if (group.generations == generation) --group.arrived;
}

/// Returns an object that counts as a recorded call of the rank as long as it exists.
std::shared_ptr<const void> recorded_call(const std::shared_ptr<Rank>& rank) {
  const std::scoped_lock lock(rank->group->mutex);
  ++rank->recorded;
  return {rank.get(), [rank](const void*) {
            const std::scoped_lock ends(rank->group->mutex);
            --rank->recorded;
            rank->group->changed.notify_all();
          }};
}

void submit_call(const std::shared_ptr<Rank>& rank, const Submission& submission) {
  if (trainyard::testing::is_recorded(submission.stream)) {
    trainyard::testing::keep_with_recording(submission.stream, recorded_call(rank));
  }
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
  *id = {};
  std::snprintf(id->internal, 100, "trainyard-nccl-%d-%d", static_cast<int>(::getpid()),
                ++ids_drawn);
  const sockaddr_un address = address_of(id->internal);
  trainyard::UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 64) != 0) {
    return ncclSystemError;
  }
  std::thread(serve_hub, std::move(listener)).detach();
  return ncclSuccess;
}

ncclResult_t comm_init_rank_config(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                   ncclConfig_t* config) {
  // A blocking communicator would wait here for this thread's other devices.
  if (!in_group || config->blocking != 0 || config->magic != 0xcafebeef) return ncclInvalidUsage;
  if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclInvalidUsage;
  int error = ncclSuccess;
  {
    const std::scoped_lock lock(start_mutex);
    const auto found = start_errors.find(rank);
    if (found != start_errors.end()) error = found->second;
  }
  auto made = std::make_unique<ncclComm>();
  made->rank = std::make_shared<Rank>();
  made->rank->group = std::make_shared<Group>(static_cast<size_t>(ranks));
  made->rank->rank = static_cast<size_t>(rank);
  made->rank->device = device;
  made->blocks = false;
  made->started = false;
  made->polls_left = kPolls;
  made->failed = static_cast<ncclResult_t>(error);
  if (error == ncclSuccess) {
    trainyard::UniqueFd& wire = made->rank->wire;
    wire.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = address_of(id.internal);
    const Hello hello{ranks, rank};
    if (!wire ||
        ::connect(wire.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        !send_all(wire.get(), &hello, sizeof hello)) {
      return ncclSystemError;
    }
  }
  *comm = made.release();
  ++open_comms;
  return ncclSuccess;
}

/// Waits for the recordings with the communicator's calls, and frees it.
void end_comm(ncclComm_t comm) {
  {
    const std::shared_ptr<Rank> rank = comm->rank;
    std::unique_lock lock(rank->group->mutex);
    rank->group->changed.wait(lock, [&] { return rank->recorded == 0; });
  }
  delete comm;
  --open_comms;
}
ncclResult_t comm_destroy(ncclComm_t comm) {
  end_comm(comm);
  return ncclSuccess;
}
ncclResult_t comm_abort(ncclComm_t comm) {
  {
    const std::scoped_lock lock(comm->rank->group->mutex);
    comm->rank->aborted = true;
    comm->rank->group->changed.notify_all();
  }
  if (comm->rank->wire) (void)::shutdown(comm->rank->wire.get(), SHUT_RDWR);
  end_comm(comm);
  return ncclSuccess;
}

ncclResult_t state_of(ncclComm& comm) {
  const std::scoped_lock lock(comm.mutex);
  if (comm.failed != ncclSuccess) return comm.failed;
  char sign = 0;
  if (!comm.started) {
    comm.started = ::recv(comm.rank->wire.get(), &sign, 1, MSG_DONTWAIT) == 1;
    if (!comm.started) return ncclInProgress;
  }
  if (comm.polls_left == 0) return ncclSuccess;
  if (!comm.waiting.empty() && std::this_thread::get_id() != comm.caller) return ncclInProgress;
  if (--comm.polls_left > 0) return ncclInProgress;
  for (const Submission& s : std::exchange(comm.waiting, {})) submit_call(comm.rank, s);
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
      submit_call(p.comm->rank, s);
      continue;
    }
    const std::scoped_lock lock(p.comm->mutex);
    p.comm->waiting.push_back(s);
    p.comm->polls_left = kPolls;
    p.comm->caller = std::this_thread::get_id();
    result = ncclInProgress;
  }
  return result;
}
ncclResult_t add(const Call& call, ncclComm_t comm, cudaStream_t stream, ncclRedOp_t op = ncclAvg) {
  const bool moves = call.kind == Kind::kBroadcast || call.kind == Kind::kAllGather;
  const bool known =
      call.type == ncclFloat32 || call.type == ncclFloat64 || (call.type == ncclFloat16 && moves);
  const bool has_root = call.root < comm->rank->group->calls.size();
  {
    const std::scoped_lock lock(comm->mutex);  // refuses while an earlier call is submitted
    if (!comm->blocks && (comm->polls_left > 0 || comm->failed != ncclSuccess)) {
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
/// Whether the two ranges overlap, so that one would be written while the other is read.
bool overlap(const void* a, const void* b, size_t elements, ncclDataType_t type) {
  const size_t bytes = elements * size_of_element(type);
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
  // NCCL's in-place form: `from` must be this rank's part of `to`.
  const size_t size = size_of_element(type);
  if (from != static_cast<std::byte*>(to) + comm->rank->rank * count * size)
    return ncclInvalidArgument;
  return add({Kind::kAllGather, from, to, count, type, 0}, comm, stream);
}

}  // namespace

namespace trainyard::testing {
void set_nccl_async_error(int error) { async_error = error; }
void break_link_after(int64_t exchanges) {
  async_error = ncclSuccess;
  exchanges_before_break = exchanges;
}
void set_nccl_start(int rank, int error) {
  const std::scoped_lock lock(start_mutex);
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
