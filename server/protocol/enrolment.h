// server/protocol/enrolment.h: values that the daemon and a remote worker both compute when the
// worker enrols (docs/decisions/remote-workers.md).
//
//   secret      HMAC-SHA256(the daemon's key, task id): passed to the worker once, with the attempt
//   credential  HMAC-SHA256(secret, key that the worker drew): the nonce of every later call; the
//               daemon stores only its digest, the worker keeps it only in memory
// All are 64 hexadecimal digits.
#pragma once

#include <string>
#include <string_view>

#include "src/base/hmac.h"

namespace trainyard {

/// The host name in the certificate of the workers' port, whatever the daemon's host is called.
inline constexpr const char* kWorkersName = "trainyard-workers";

inline std::string enrolment_credential(std::string_view secret, std::string_view key) {
  return hmac_sha256_hex(secret, key);
}

/// Metadata of every call of a remote worker except Enrol: its task's ID and its credential. The
/// daemon refuses a call without them before it parses the call's message.
inline constexpr const char* kTaskMetadata = "trainyard-task";
inline constexpr const char* kCredentialMetadata = "trainyard-credential";

/// Metadata key of an outcome STOPPED: present if the worker stopped without being requested to and
/// the job continues in another attempt. The value is the reason.
inline constexpr const char* kContinueKey = "continue";
inline constexpr const char* kContinueTimeLimit = "time_limit";

/// Reason of an outcome REFUSED: the worker of another node of the attempt has ended.
inline constexpr const char* kRankLost = "RANK_LOST";
/// Returns whether `reason` is kRankLost or says why the nodes' workers could not connect:
/// PEERS_MISSING, PEER_KEY_REJECTED, RANKS_DIFFER, ...
inline bool is_of_ranks(std::string_view reason) {
  return reason.starts_with("PEER") || reason.starts_with("RANK");
}

}  // namespace trainyard
