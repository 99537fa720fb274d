// src/runtime/peer_link.h: a connection between two processes that train one job together, by TLS
// 1.3 over TCP.
//
// All processes of an attempt know one key. Each pair of them derives its own from it, and TLS
// takes that as a pre-shared key (RFC 8446, 2.2) with a Diffie-Hellman exchange on top: no
// certificates, both ends prove the key and which process they are, and an earlier recording cannot
// be read by whoever learns the key later.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard {

/// Where another process can be reached: a numeric address, IPv4 or IPv6.
struct PeerEndpoint {
  std::string address;
  int port = 0;
};

/// Which of an attempt's processes this one is.
struct PeerIdentity {
  int64_t index = 0;
  int64_t count = 1;
  std::string key;  // at least kPeerKeyBytes, drawn for this attempt
};
inline constexpr size_t kPeerKeyBytes = 32;

class PeerLink {
 public:
  /// A socket that is being connected to process `peer`. The address has been checked.
  static Result<std::unique_ptr<PeerLink>> begin_connect(const PeerIdentity& me, int64_t peer,
                                                         const PeerEndpoint& endpoint);
  /// A socket that somebody has connected.
  static std::unique_ptr<PeerLink> accepted(const PeerIdentity& me, UniqueFd socket);
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  enum class Progress : uint8_t { kDone, kWaits, kFailed };
  /// Goes on with connecting and the handshake. Done: peer() is who it says it is.
  Progress shake_hands();
  /// Of a failed one: whether there is nobody at the address (yet).
  bool found_nobody() const { return found_nobody_; }
  /// Of a failed one: whether the other end said no to what this one proved.
  bool was_refused() const { return was_refused_; }
  int64_t peer() const { return peer_; }
  const std::string& address() const { return address_; }

  /// From here on: what goes to the other end, and what is expected from it. `continue_transfer()`
  /// moves what can be moved just now, until both are done. The spans' memory stays until then.
  void begin_transfer(std::span<const std::span<const std::byte>> out,
                      std::span<const std::span<std::byte>> in);
  Progress continue_transfer();
  bool receives() const { return in_left_ > 0; }
  int64_t received_bytes() const { return in_total_ - in_left_; }  // of this transfer
  int64_t moved_bytes() const { return moved_; }                   // since it was made, both ways

  int fd() const { return fd_; }
  short events() const { return events_; }  // of poll(): what it waits for
  /// Of a failed one: the other process closed it as one does that ends by itself.
  bool ended_orderly() const { return ended_orderly_; }
  /// Reads and drops what is there: true once the end was seen.
  bool drain_to_end();
  /// Says goodbye, as far as that is possible at once.
  void close_orderly() noexcept;
  /// From any thread: whoever waits for the link is woken, and it is of no use any more.
  void shut_down() noexcept;

 private:
  PeerLink(const PeerIdentity& me, int64_t peer, UniqueFd socket, bool connects);
  struct Callbacks;  // of OpenSSL
  /// After an OpenSSL call that returned <= 0.
  Progress waits_or_failed(int result);
  Progress send();
  Progress receive();
  void fill_out_buffer();

  const PeerIdentity& me_;
  int64_t peer_;  // -1 until whoever connected has said who it is
  std::string address_, identity_;
  UniqueFd socket_;
  int fd_ = -1;  // the same; OpenSSL's calls find it here
  Handle<SSL_CTX, SSL_CTX_free> context_;
  Handle<SSL, SSL_free> ssl_;
  const bool connects_;
  bool connected_ = false, found_nobody_ = false, was_refused_ = false, ended_orderly_ = false,
       failed_ = false;
  short events_ = 0;
  int64_t moved_ = 0;

  // Small tensors travel together: what is sent is put together here first.
  std::vector<std::byte> out_buffer_;
  size_t out_from_ = 0, out_filled_ = 0;  // of the buffer
  std::vector<std::span<const std::byte>> out_;
  std::vector<std::span<std::byte>> in_;
  size_t out_next_ = 0, in_next_ = 0, out_at_ = 0, in_at_ = 0;
  int64_t out_left_ = 0, in_left_ = 0, in_total_ = 0;
};

}  // namespace trainyard
