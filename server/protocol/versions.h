// server/protocol/versions.h: the versions of the protocol between daemon and worker
// (proto/trainyard/v1/worker_service.proto) that this build speaks, on either side.
//
// A worker reports its range when it attaches, and the daemon chooses the newest version that both
// speak; a later daemon that adopts the worker must speak that version too. Keep the oldest until
// nobody can have a job running that an earlier release started.
//
//   1  the first release
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

inline constexpr ProtocolRange kProtocols{1, 1};

/// Returns the range in an AttachRequest or EnrolRequest.
template <typename Request>
ProtocolRange protocols_of(const Request& request) {
  return {request.protocol_min(), request.protocol_max()};
}

/// Returns the newest version that both ranges contain; nothing if there is none.
inline std::optional<int32_t> agree(const ProtocolRange& a, const ProtocolRange& b) {
  const int32_t newest = std::min(a.newest, b.newest);
  if (newest < std::max(a.oldest, b.oldest)) return std::nullopt;
  return newest;
}

}  // namespace trainyard
