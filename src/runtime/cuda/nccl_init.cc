#include "src/runtime/cuda/nccl_init.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "src/base/check.h"

namespace trainyard::cuda {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInitPollPeriod{5};

bool is_bad(ncclResult_t status) { return status != ncclSuccess && status != ncclInProgress; }

/// Communicators that are being initialized; the destructor aborts them unless take() was called,
/// and waits a few seconds at most for that.
class CommunicatorInit {
 public:
  CommunicatorInit(const Nccl& nccl, std::span<const Device* const> devices,
                   const ProcessGroup& group)
      : nccl_(nccl), devices_(devices), group_(group), comms_(devices.size()) {}
  ~CommunicatorInit() {
    const auto connections = take();
    for (const auto& connection : connections) connection->abort();
  }
  CommunicatorInit(const CommunicatorInit&) = delete;
  CommunicatorInit& operator=(const CommunicatorInit&) = delete;

  Status begin() {
    ncclUniqueId id{};
    TRAINYARD_CHECK(group_.id.size() == sizeof id,
                    "an id of " + std::to_string(group_.id.size()) + " bytes");
    std::memcpy(&id, group_.id.data(), sizeof id);
    ncclResult_t first_bad = nccl_.group_start();
    for (size_t i = 0; i < devices_.size(); ++i) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      devices_[i]->make_current();
      const ncclResult_t status = nccl_.comm_init_rank_config(
          &comms_[i], static_cast<int>(group_.ranks), id, static_cast<int>(rank_of(i)), &config);
      if (!is_bad(first_bad)) first_bad = status;
    }
    const ncclResult_t ended = nccl_.group_end();
    if (!is_bad(first_bad)) first_bad = ended;
    if (is_bad(first_bad)) return refuse(0, first_bad);
    for (size_t i = 0; i < comms_.size(); ++i) {
      if (comms_[i] == nullptr) return refuse(i, ncclInternalError);
    }
    return {};
  }

  Status wait() {
    const Steady::time_point end = Steady::now() + group_.limit;
    for (size_t i = 0; i < comms_.size();) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = nccl_.comm_get_async_error(comms_[i], &state);
      if (is_bad(asked)) return refuse(i, asked);
      if (is_bad(state)) return refuse(i, state);
      if (state == ncclSuccess) {
        ++i;
        continue;
      }
      if (group_.stop.stop_requested()) {
        return make_error(ErrorCode::kCancelled, "STOPPED",
                          "stopped before the GPUs of all nodes were connected");
      }
      if (Steady::now() >= end) return too_late(i);
      std::this_thread::sleep_for(kInitPollPeriod);
    }
    return {};
  }

  std::vector<std::unique_ptr<NcclConnection>> take() {
    std::vector<std::unique_ptr<NcclConnection>> connections;
    for (const ncclComm_t comm : std::exchange(comms_, {})) {
      if (comm == nullptr) continue;
      connections.push_back(std::make_unique<NcclConnection>(nccl_, comm, /*blocks=*/false));
    }
    return connections;
  }

 private:
  int64_t rank_of(size_t i) const { return group_.first_rank + static_cast<int64_t>(i); }
  std::string who(size_t i) const {
    return "NCCL " + version_of(nccl_) + " on GPU " + std::to_string(devices_[i]->ordinal()) +
           " (rank " + std::to_string(rank_of(i)) + " of " + std::to_string(group_.ranks) + ")";
  }
  /// The process of the other rank reports the cause of a remote error.
  Error refuse(size_t i, ncclResult_t status) const {
    return make_error(
        status == ncclRemoteError ? ErrorCode::kAborted : ErrorCode::kUnavailable,
        "RANKS_UNCONNECTED",
        who(i) + " did not connect with the others: " + describe(nccl_, comms_[i], status));
  }
  Error too_late(size_t i) const {
    return make_error(ErrorCode::kDeadlineExceeded, "RANKS_MISSING",
                      who(i) + " has waited " + std::to_string(group_.limit.count() / 1000) +
                          " s for the others: a GPU of another node does not start, or NCCL's "
                          "connections fail; the nodes must reach all of each other's ports at " +
                          group_.address);
  }

  const Nccl& nccl_;
  const std::span<const Device* const> devices_;
  const ProcessGroup& group_;
  std::vector<ncclComm_t> comms_;
};

}  // namespace

std::string describe(const Nccl& nccl, ncclComm_t comm, ncclResult_t status) {
  std::string words = nccl.get_error_string(status);
  if (const char* detail = nccl.get_last_error(comm); detail != nullptr && *detail != '\0') {
    words += ": " + std::string(detail);
  }
  return words + " (NCCL error " + std::to_string(status) + ")";
}

std::string version_of(const Nccl& nccl) {
  int version = 0;
  if (nccl.get_version(&version) != ncclSuccess) return "of an unknown version";
  return std::to_string(version / 10'000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Result<std::string> draw_group_id(const Nccl& nccl) {
  ncclUniqueId id{};
  if (const ncclResult_t status = nccl.get_unique_id(&id); status != ncclSuccess) {
    return make_error(ErrorCode::kUnavailable, "RANKS_UNCONNECTED",
                      "NCCL " + version_of(nccl) +
                          " cannot be reached by other nodes: " + describe(nccl, nullptr, status));
  }
  return std::string(id.internal, sizeof id.internal);
}

Result<std::vector<std::unique_ptr<NcclConnection>>> init_among_processes(
    const Nccl& nccl, std::span<const Device* const> devices, const ProcessGroup& group) {
  CommunicatorInit init(nccl, devices, group);
  if (Status s = init.begin(); !s.ok()) return std::move(s).error();
  if (Status s = init.wait(); !s.ok()) return std::move(s).error();
  return init.take();
}

}  // namespace trainyard::cuda
