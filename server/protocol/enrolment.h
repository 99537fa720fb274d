// server/protocol/enrolment.h: what daemon and worker compute alike when a worker from elsewhere
// enrols (docs/decisions/0102).
//
//   secret      HMAC-SHA256(the daemon's key, task id): handed out once, with the attempt
//   credential  HMAC-SHA256(secret, key that the worker drew): the nonce of every later call; the
//               daemon keeps its digest, the worker has it in memory alone
// All are 64 hexadecimal digits.
#pragma once

#include <string>
#include <string_view>

#include "src/base/hmac.h"

namespace trainyard {

/// The name in the certificate of the workers' port, wherever the daemon runs.
inline constexpr const char* kWorkersName = "trainyard-workers";

inline std::string enrolment_credential(std::string_view secret, std::string_view key) {
  return hmac_sha256_hex(secret, key);
}

/// Of an outcome STOPPED: why the attempt ended although nobody asked for it, and that it goes on.
inline constexpr const char* kContinueKey = "continue";
inline constexpr const char* kContinueTimeLimit = "time_limit";

/// Of an outcome REFUSED: the worker of another node of the attempt has gone.
inline constexpr const char* kRankLost = "RANK_LOST";
/// The same, and what keeps them from meeting: PEERS_MISSING, PEER_KEY, RANKS_DIFFER, ...
inline bool is_of_ranks(std::string_view reason) {
  return reason.starts_with("PEER") || reason.starts_with("RANK");
}

}  // namespace trainyard
