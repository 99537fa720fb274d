// server/rpc/admitted_peers.h: which TCP connections have made a call that was admitted. When the
// limits on connections are reached, those that have not are closed first (acceptor.h).
#pragma once

#include <map>
#include <string>

#include "src/base/mutex.h"

namespace trainyard::server {

/// Thread-safe. Peers are written as "address:port", IPv6 addresses in brackets.
class AdmittedPeers {
 public:
  /// Notes a new connection, which has made no call yet.
  void add(const std::string& peer);
  void remove(const std::string& peer);
  /// Notes an admitted call. `peer` is ServerContext::peer(); peers that were not added are
  /// ignored, so that the memory is that of the open connections.
  void admit(const std::string& peer);
  bool is_admitted(const std::string& peer) const;

 private:
  mutable Mutex mu_;
  std::map<std::string, bool> peers_ TRAINYARD_GUARDED_BY(mu_);
};

/// The peers of all listeners of this process.
AdmittedPeers& admitted_peers();

}  // namespace trainyard::server
