#include "server/rpc/admitted_peers.h"

#include <charconv>
#include <string_view>

namespace trainyard::server {
namespace {

/// Returns "[::1]:7450" for gRPC's "ipv6:%5B::1%5D:7450".
std::string plain_peer(std::string_view uri) {
  const size_t scheme = uri.find(':');
  if (scheme == std::string_view::npos) return "";
  uri.remove_prefix(scheme + 1);
  std::string out;
  for (size_t i = 0; i < uri.size(); ++i) {
    unsigned byte = 0;
    const std::string_view digits = uri.substr(i + 1, 2);
    if (uri[i] == '%' && digits.size() == 2 &&
        std::from_chars(digits.data(), digits.data() + 2, byte, 16).ptr == digits.data() + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += uri[i];
    }
  }
  return out;
}

}  // namespace

void AdmittedPeers::add(const std::string& peer) {
  const MutexLock lock(mu_);
  peers_[peer] = false;
}

void AdmittedPeers::remove(const std::string& peer) {
  const MutexLock lock(mu_);
  peers_.erase(peer);
}

void AdmittedPeers::admit(const std::string& peer) {
  if (peer.starts_with("unix:")) return;
  const std::string plain = plain_peer(peer);
  const MutexLock lock(mu_);
  if (const auto it = peers_.find(plain); it != peers_.end()) it->second = true;
}

bool AdmittedPeers::is_admitted(const std::string& peer) const {
  const MutexLock lock(mu_);
  const auto it = peers_.find(peer);
  return it != peers_.end() && it->second;
}

AdmittedPeers& admitted_peers() {
  static AdmittedPeers peers;
  return peers;
}

}  // namespace trainyard::server
