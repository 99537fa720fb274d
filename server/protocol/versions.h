// server/protocol/versions.h: the versions of the protocol between daemon and worker
// (proto/trainyard/v1/worker_service.proto) that this build speaks, on either side.
//
// A worker tells its range when it attaches, and the daemon chooses the newest version that both
// speak; a later daemon that adopts the worker must speak that version too. Keep the oldest until
// nobody can have a job running that an earlier release started.
//
//   1  as it was when both had to be one build: a daemon that speaks only this refuses fields that
//      it does not know, and thus later workers
//   2  a training worker keeps its reports on disk until they are acknowledged
//      (TrainTask.spool_path) and goes on without its daemon (Assignment.unattended_ms); a worker
//      keeps a model for many calls (ServeTask)
//   3  a worker on another host (docs/decisions/0102): it enrols (Enrol), its assignment names no
//      paths of the daemon's, and files travel (ListFiles, PullFile, PushFiles)
//   4  several workers of one attempt (docs/decisions/0105): they say their rank
//   (EnrolRequest.rank),
//      are told how many they are (TrainTask.nodes), and Meet
//   5  a worker on another host says where it ran (Outcome.node), and measures that when its job is
//      over (WorkerCommand.calibrate, SendRates)
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/v1/worker_service.pb.h"

namespace trainyard {

struct ProtocolRange {
  int32_t oldest = 0;
  int32_t newest = 0;

  bool contains(int32_t version) const { return oldest <= version && version <= newest; }
  std::string text() const {
    return std::to_string(oldest) +
           (oldest == newest ? std::string() : " to " + std::to_string(newest));
  }
};

inline constexpr ProtocolRange kProtocols{1, 5};
/// The first version in which a worker may be on another host.
inline constexpr int32_t kProtocolElsewhere = 3;
/// The first version in which an attempt may have several.
inline constexpr int32_t kProtocolNodes = 4;

/// The first version in which a worker on another host may be asked what its node can do.
inline constexpr int32_t kProtocolRates = 5;

/// What a message without the field means.
inline int32_t protocol_or_first(int32_t version) { return version == 0 ? 1 : version; }

inline ProtocolRange protocols_of(const v1::AttachRequest& request) {
  return {protocol_or_first(request.protocol_min()), protocol_or_first(request.protocol_max())};
}

/// The newest version of both; nothing if they have none in common.
inline std::optional<int32_t> agree(const ProtocolRange& a, const ProtocolRange& b) {
  const int32_t newest = std::min(a.newest, b.newest);
  if (newest < std::max(a.oldest, b.oldest)) return std::nullopt;
  return newest;
}

}  // namespace trainyard
