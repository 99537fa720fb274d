#include "server/worker/rendezvous.h"

#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/convert/run.h"
#include "server/worker/remote_files.h"
#include "src/base/handle.h"
#include "src/base/text.h"
#include "src/base/wait_for_stop.h"

namespace trainyard {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::seconds kRendezvousTimeout{20};
constexpr std::chrono::milliseconds kAskAgain{300};

/// Sends one request. While the daemon cannot be reached, returns a response that is not ready, as
/// the daemon does until all workers have registered.
Result<v1::RendezvousResponse> ask(v1::WorkerService::Stub& stub,
                                   const v1::RendezvousRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kRendezvousTimeout);
  v1::RendezvousResponse response;
  const grpc::Status status = stub.Rendezvous(&context, request, &response);
  if (status.ok()) return response;
  Error error = error_of(status);
  const bool may_pass = error.code == ErrorCode::kUnavailable || status.error_details().empty();
  if (may_pass) return v1::RendezvousResponse();
  return error;
}

}  // namespace

Result<std::string> address_towards(const std::string& attach) {
  const auto refuse = [&](const std::string& what) {
    return make_error(ErrorCode::kUnavailable, "PEER_LISTENER_FAILED",
                      "no address of this host can reach " + quoted_value(attach) + ": " + what);
  };
  const size_t colon = attach.rfind(':');
  if (colon == attach.npos) return refuse("expected host:port");
  std::string host = attach.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), attach.c_str() + colon + 1, &hints, &found);
      code != 0) {
    return refuse(::gai_strerror(code));
  }
  const Handle<addrinfo, ::freeaddrinfo> all(found);
  std::string why;
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
    // connect() on a datagram socket sends nothing; the kernel only chooses the route.
    const UniqueFd fd(::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t size = sizeof local;
    std::array<char, NI_MAXHOST> text{};
    if (fd && ::connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&local), size, text.data(), text.size(), nullptr,
                      0, NI_NUMERICHOST) == 0) {
      return std::string(text.data());
    }
    why = std::strerror(errno);
  }
  return refuse(why);
}

Result<std::shared_ptr<Peers>> connect_ranks(v1::WorkerService::Stub& stub,
                                             const RendezvousOptions& rendezvous,
                                             std::chrono::milliseconds limit,
                                             const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const std::string address, address_towards(rendezvous.options.attach));
  ASSIGN_OR_RETURN(PeerListener listener, PeerListener::open(address));
  v1::RendezvousRequest request;
  request.set_task(rendezvous.options.task);
  request.set_nonce(rendezvous.nonce);
  request.mutable_endpoint()->set_address(listener.endpoint().address);
  request.mutable_endpoint()->set_port(listener.endpoint().port);
  const Steady::time_point end = Steady::now() + limit;
  v1::RendezvousResponse response;
  while (!response.ready()) {
    ASSIGN_OR_RETURN(response, ask(stub, request));
    if (response.ready()) break;
    if (Steady::now() >= end) {
      return make_error(ErrorCode::kDeadlineExceeded, "PEERS_MISSING",
                        "the workers of the other nodes did not all connect within " +
                            std::to_string(limit.count() / 1000) + " s");
    }
    wait_for_stop(stop, kAskAgain);
    if (stop.stop_requested()) {
      return make_error(ErrorCode::kCancelled, "STOPPED", "stopped before all ranks had connected");
    }
  }
  std::vector<PeerEndpoint> all;
  for (const v1::Endpoint& e : response.endpoints()) all.push_back({e.address(), e.port()});
  return Peers::connect(std::move(listener),
                        {rendezvous.options.rank, rendezvous.nodes, response.key()}, all,
                        {.ranks_each = rendezvous.ranks_each}, stop);
}

}  // namespace trainyard
