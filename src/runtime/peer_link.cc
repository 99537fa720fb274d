#include "src/runtime/peer_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "src/base/check.h"
#include "src/base/hmac.h"

namespace trainyard {
namespace {

constexpr size_t kOutBufferBytes = 64 << 10;
constexpr std::string_view kIdentityPrefix = "trainyard-peer ";

// Limits for noticing that a host has vanished without closing the connection, with and without
// unacknowledged data.
constexpr int kIdleBeforeProbe_s = 10, kProbeInterval_s = 5, kProbes = 6;
constexpr unsigned kUnacknowledged_ms = 40'000;

/// Returns the identity that the connecting end sends: its own process and the one that it means to
/// reach.
std::string identity_of(int64_t from, int64_t to) {
  return std::string(kIdentityPrefix) + std::to_string(from) + " " + std::to_string(to);
}

/// Returns `from` of an identity whose `to` is this process, or -1.
int64_t parse_identity(std::string_view identity, const PeerIdentity& me) {
  if (!identity.starts_with(kIdentityPrefix)) return -1;
  int64_t from = -1;
  const std::string_view rest = identity.substr(kIdentityPrefix.size());
  (void)std::from_chars(rest.data(), rest.data() + rest.size(), from);
  const bool is_one =
      from > me.index && from < me.count;  // the process with the larger index connects
  return is_one && identity == identity_of(from, me.index) ? from : -1;
}

SSL_SESSION* make_session(SSL* ssl, const PeerIdentity& me, std::string_view identity) {
  static constexpr std::array<unsigned char, 2> kAes128GcmSha256{0x13, 0x01};
  const std::string digits = hmac_sha256_hex(me.key, identity);
  std::array<unsigned char, 32> secret{};
  for (size_t i = 0; i < secret.size(); ++i) {
    (void)std::from_chars(&digits[2 * i], &digits[2 * i] + 2, secret.at(i), 16);
  }
  Handle<SSL_SESSION, SSL_SESSION_free> session(SSL_SESSION_new());
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kAes128GcmSha256.data());
  const bool made = session != nullptr && cipher != nullptr &&
                    SSL_SESSION_set1_master_key(session.get(), secret.data(), secret.size()) == 1 &&
                    SSL_SESSION_set_cipher(session.get(), cipher) == 1 &&
                    SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1;
  return made ? session.release() : nullptr;
}

void configure(int fd) {
  const auto set = [fd](int level, int option, auto value) {
    (void)::setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleBeforeProbe_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeInterval_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledged_ms);
}

// Replaces OpenSSL's own socket BIO, which writes with write(): after the peer has ended, that
// would raise SIGPIPE.
int bio_fd(BIO* bio) { return *static_cast<int*>(BIO_get_data(bio)); }

int write_bio(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(bio_fd(bio), data, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int read_bio(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = ::recv(bio_fd(bio), data, static_cast<size_t>(size), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long control_bio(BIO* /*bio*/, int command, long /*number*/, void* /*data*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* socket_method() {
  static const Handle<BIO_METHOD, BIO_meth_free> method = [] {
    Handle<BIO_METHOD, BIO_meth_free> made(
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "trainyard socket"));
    TRAINYARD_CHECK(made != nullptr, "OpenSSL has no memory for a BIO");
    (void)BIO_meth_set_write(made.get(), write_bio);
    (void)BIO_meth_set_read(made.get(), read_bio);
    (void)BIO_meth_set_ctrl(made.get(), control_bio);
    return made;
  }();
  return method.get();
}

std::string address_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text.data(), text.size(), nullptr,
                    0, NI_NUMERICHOST) != 0) {
    return "an unknown address";
  }
  return text.data();
}

}  // namespace

struct PeerLink::Callbacks {
  static PeerLink& of(SSL* ssl) { return *static_cast<PeerLink*>(SSL_get_app_data(ssl)); }

  static int offer(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** identity, size_t* size,
                   SSL_SESSION** session) {
    PeerLink& link = of(ssl);
    link.identity_ = identity_of(link.me_.index, link.peer_);
    *session = make_session(ssl, link.me_, link.identity_);
    *identity = reinterpret_cast<const unsigned char*>(link.identity_.data());
    *size = link.identity_.size();
    return *session != nullptr ? 1 : 0;
  }

  /// Without a session the handshake fails, since there is no certificate either.
  static int find(SSL* ssl, const unsigned char* identity, size_t size, SSL_SESSION** session) {
    PeerLink& link = of(ssl);
    *session = nullptr;
    const std::string_view text(reinterpret_cast<const char*>(identity), size);
    const int64_t from = parse_identity(text, link.me_);
    if (from < 0) return 1;
    *session = make_session(ssl, link.me_, text);
    if (*session == nullptr) return 0;
    link.peer_ = from;  // a successful handshake proves the identity
    return 1;
  }
};

PeerLink::PeerLink(const PeerIdentity& me, int64_t peer, UniqueFd socket, bool connects)
    : me_(me), peer_(peer), socket_(std::move(socket)), connects_(connects) {
  configure(socket_.get());
  context_.reset(SSL_CTX_new(TLS_method()));
  TRAINYARD_CHECK(context_ != nullptr, "OpenSSL has no memory for a connection");
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context_.get(), "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_session_cache_mode(context_.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context_.get(), 0);
  SSL_CTX_set_mode(context_.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_psk_use_session_callback(context_.get(), Callbacks::offer);
  SSL_CTX_set_psk_find_session_callback(context_.get(), Callbacks::find);
  ssl_.reset(SSL_new(context_.get()));
  BIO* const bio = BIO_new(socket_method());
  TRAINYARD_CHECK(ssl_ != nullptr && bio != nullptr, "OpenSSL has no memory for a connection");
  fd_ = socket_.get();
  BIO_set_data(bio, &fd_);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  if (connects_) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
    connected_ = true;
    address_ = address_of(fd_);
    events_ = POLLIN;
  }
}

PeerLink::~PeerLink() = default;

Result<std::unique_ptr<PeerLink>> PeerLink::begin_connect(const PeerIdentity& me, int64_t peer,
                                                          const PeerEndpoint& endpoint) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const bool valid = endpoint.port > 0 && endpoint.port < 65536 &&
                     ::getaddrinfo(endpoint.address.c_str(), std::to_string(endpoint.port).c_str(),
                                   &hints, &found) == 0;
  const Handle<addrinfo, ::freeaddrinfo> address(found);
  if (!valid || address == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "PEER_ENDPOINT_INVALID",
                      "endpoints[" + std::to_string(peer) + "]: " + endpoint.address + " port " +
                          std::to_string(endpoint.port) +
                          " is not a numeric address with a port from 1 to 65535");
  }
  UniqueFd socket(
      ::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket) {
    return make_error(ErrorCode::kUnavailable, "PEER_SOCKET_FAILED",
                      std::string("no socket for another process: ") + std::strerror(errno));
  }
  const int result = ::connect(socket.get(), address->ai_addr, address->ai_addrlen);
  const bool nobody = result != 0 && errno != EINPROGRESS;
  std::unique_ptr<PeerLink> link(new PeerLink(me, peer, std::move(socket), /*connects=*/true));
  link->address_ = endpoint.address;
  link->connection_refused_ = nobody;
  link->failed_ = nobody;
  link->events_ = POLLOUT;
  return link;
}

std::unique_ptr<PeerLink> PeerLink::accepted(const PeerIdentity& me, UniqueFd socket) {
  return std::unique_ptr<PeerLink>(new PeerLink(me, -1, std::move(socket), /*connects=*/false));
}

PeerLink::Progress PeerLink::shake_hands() {
  if (failed_) return Progress::kFailed;
  if (!connected_) {
    pollfd state{fd_, POLLOUT, 0};
    if (::poll(&state, 1, 0) == 0) return Progress::kWaits;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
      connection_refused_ = failed_ = true;
      return Progress::kFailed;
    }
    connected_ = true;
  }
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) return peer_ >= 0 ? Progress::kDone : Progress::kFailed;
  return waits_or_failed(result);
}

PeerLink::Progress PeerLink::waits_or_failed(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      events_ = static_cast<short>(events_ | POLLIN);
      if (!SSL_is_init_finished(ssl_.get())) events_ = POLLIN;
      return Progress::kWaits;
    case SSL_ERROR_WANT_WRITE:
      events_ = static_cast<short>(events_ | POLLOUT);
      if (!SSL_is_init_finished(ssl_.get())) events_ = POLLOUT;
      return Progress::kWaits;
    case SSL_ERROR_ZERO_RETURN:
      ended_orderly_ = true;
      break;
    default:
      was_refused_ =
          ERR_GET_REASON(ERR_peek_error()) >= SSL_AD_REASON_OFFSET;  // the peer sent a TLS alert
      break;
  }
  failed_ = true;
  return Progress::kFailed;
}

void PeerLink::begin_transfer(std::span<const std::span<const std::byte>> out,
                              std::span<const std::span<std::byte>> in) {
  TRAINYARD_CHECK(out_left_ == 0 && in_left_ == 0, "a transfer is under way");
  if (out_buffer_.empty()) out_buffer_.resize(kOutBufferBytes);
  out_.assign(out.begin(), out.end());
  in_.assign(in.begin(), in.end());
  out_next_ = in_next_ = out_at_ = in_at_ = out_from_ = out_filled_ = 0;
  for (const auto& part : out_) out_left_ += std::ssize(part);
  for (const auto& part : in_) in_left_ += std::ssize(part);
  in_total_ = in_left_;
}

PeerLink::Progress PeerLink::continue_transfer() {
  if (failed_) return Progress::kFailed;
  events_ = 0;
  const Progress sent = send();
  if (sent == Progress::kFailed) return sent;
  const Progress received = receive();
  if (received == Progress::kFailed) return received;
  return sent == Progress::kDone && received == Progress::kDone ? Progress::kDone
                                                                : Progress::kWaits;
}

void PeerLink::fill_out_buffer() {
  out_from_ = out_filled_ = 0;
  while (out_next_ < out_.size() && out_filled_ < out_buffer_.size()) {
    const auto part = out_[out_next_].subspan(out_at_);
    const size_t size = std::min(part.size(), out_buffer_.size() - out_filled_);
    if (size > 0) std::memcpy(out_buffer_.data() + out_filled_, part.data(), size);
    out_filled_ += size;
    out_at_ += size;
    if (out_at_ == out_[out_next_].size()) {
      ++out_next_;
      out_at_ = 0;
    }
  }
}

PeerLink::Progress PeerLink::send() {
  while (out_left_ > 0) {
    if (out_from_ == out_filled_) fill_out_buffer();
    ERR_clear_error();
    const int sent = SSL_write(ssl_.get(), out_buffer_.data() + out_from_,
                               static_cast<int>(out_filled_ - out_from_));
    if (sent <= 0) return waits_or_failed(sent);
    out_from_ += static_cast<size_t>(sent);
    out_left_ -= sent;
    moved_ += sent;
  }
  return Progress::kDone;
}

PeerLink::Progress PeerLink::receive() {
  while (in_left_ > 0) {
    const auto part = in_[in_next_].subspan(in_at_);
    if (part.empty()) {
      ++in_next_;
      in_at_ = 0;
      continue;
    }
    ERR_clear_error();
    const int got =
        SSL_read(ssl_.get(), part.data(), static_cast<int>(std::min(part.size(), size_t{1} << 30)));
    if (got <= 0) return waits_or_failed(got);
    in_at_ += static_cast<size_t>(got);
    in_left_ -= got;
    moved_ += got;
  }
  return Progress::kDone;
}

bool PeerLink::drain_to_end() {
  std::array<std::byte, 4096> dropped{};
  while (!failed_) {
    ERR_clear_error();
    const int got = SSL_read(ssl_.get(), dropped.data(), dropped.size());
    if (got <= 0 && waits_or_failed(got) == Progress::kWaits) return false;
  }
  return true;
}

void PeerLink::close_orderly() noexcept {
  if (!failed_ && SSL_is_init_finished(ssl_.get())) (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

void PeerLink::shut_down() noexcept { (void)::shutdown(fd_, SHUT_RDWR); }

}  // namespace trainyard
