// src/runtime/peer_link.h: a connection between two processes that train one job together, with TLS
// 1.3 over TCP.
//
// All processes of an attempt know one key. Each pair derives its own key from it, which TLS uses
// as a pre-shared key (RFC 8446, 2.2) together with a Diffie-Hellman exchange. There are no
// certificates; both ends prove that they know the key and which process they are. A recorded
// connection cannot be decrypted by someone who learns the key later.
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

/// The address of another process: a numeric IPv4 or IPv6 address and a port.
struct PeerEndpoint {
  std::string address;
  int port = 0;
};

/// Identifies this process among those of an attempt.
struct PeerIdentity {
  int64_t index = 0;
  int64_t count = 1;
  std::string key;  // at least kPeerKeyBytes random bytes, new for each attempt
};
inline constexpr size_t kPeerKeyBytes = 32;

class PeerLink {
 public:
  /// Starts to connect to process `peer`. PEER_ENDPOINT_INVALID if the address is invalid.
  static Result<std::unique_ptr<PeerLink>> begin_connect(const PeerIdentity& me, int64_t peer,
                                                         const PeerEndpoint& endpoint);
  /// Wraps a socket that another process has connected.
  static std::unique_ptr<PeerLink> accepted(const PeerIdentity& me, UniqueFd socket);
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  enum class Progress : uint8_t { kDone, kWaits, kFailed };
  /// Continues connecting and the handshake. After kDone the identity of peer() is proven.
  Progress shake_hands();
  /// Returns, for a failed link, whether nothing listens at the address (yet).
  bool connection_refused() const { return connection_refused_; }
  /// Returns, for a failed link, whether the other end rejected this end's proof.
  bool was_refused() const { return was_refused_; }
  int64_t peer() const { return peer_; }
  const std::string& address() const { return address_; }

  /// Starts a transfer: `out` is sent, `in` is received. continue_transfer() moves as much as
  /// possible without blocking; kDone if both are complete. The memory of the spans must stay valid
  /// until then.
  void begin_transfer(std::span<const std::span<const std::byte>> out,
                      std::span<const std::span<std::byte>> in);
  Progress continue_transfer();
  bool receives() const { return in_left_ > 0; }
  int64_t received_bytes() const { return in_total_ - in_left_; }  // in this transfer
  int64_t moved_bytes() const { return moved_; }  // since the link was created, both directions

  int fd() const { return fd_; }
  short events() const { return events_; }  // events for poll() that the link waits for
  /// Returns, for a failed link, whether the other process closed it in an orderly way.
  bool ended_orderly() const { return ended_orderly_; }
  /// Reads and discards received data; true once the end of the connection was reached.
  bool drain_to_end();
  /// Sends a TLS close notification if that is possible without blocking.
  void close_orderly() noexcept;
  /// May be called from any thread: wakes threads that wait for the link, which is unusable
  /// afterwards.
  void shut_down() noexcept;

 private:
  PeerLink(const PeerIdentity& me, int64_t peer, UniqueFd socket, bool connects);
  struct Callbacks;  // callbacks for OpenSSL
  /// Evaluates the error of an OpenSSL call that returned <= 0.
  Progress waits_or_failed(int result);
  Progress send();
  Progress receive();
  void fill_out_buffer();

  const PeerIdentity& me_;
  int64_t peer_;  // -1 until the connecting process has identified itself
  std::string address_, identity_;
  UniqueFd socket_;
  int fd_ = -1;  // equal to socket_.get(); the BIO refers to this member
  Handle<SSL_CTX, SSL_CTX_free> context_;
  Handle<SSL, SSL_free> ssl_;
  const bool connects_;
  bool connected_ = false, connection_refused_ = false, was_refused_ = false,
       ended_orderly_ = false, failed_ = false;
  short events_ = 0;
  int64_t moved_ = 0;

  // Collects small tensors so that they are sent together.
  std::vector<std::byte> out_buffer_;
  size_t out_from_ = 0, out_filled_ = 0;  // positions in the buffer
  std::vector<std::span<const std::byte>> out_;
  std::vector<std::span<std::byte>> in_;
  size_t out_next_ = 0, in_next_ = 0, out_at_ = 0, in_at_ = 0;
  int64_t out_left_ = 0, in_left_ = 0, in_total_ = 0;
};

}  // namespace trainyard
