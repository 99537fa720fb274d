#include "server/rpc/listener.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "server/rpc/auth.h"
#include "server/rpc/front.h"
#include "server/rpc/reflection.h"
#include "server/rpc/stream_limits.h"
#include "src/base/handle.h"

namespace trainyard::server {
namespace {

constexpr int kWorkerMessageBytesMax = 8 << 20;  // a predict request or response and its envelope
constexpr int kMetadataBytesMax = 8 << 10;
constexpr int kWorkerStreamsPerConnectionMax = 128;
// gRPC silently queues calls beyond this limit, so it is higher than the limit on watch streams,
// which returns an error.
constexpr int kStreamsPerConnectionMax = kWatchStreamsPerConnectionMax + 256;
/// Acceptors of the Unix socket, one each for the first users. One more is for all others, who need
/// a token, because the calls of one acceptor's connections cannot be told apart.
constexpr int kUserAcceptors = 64;

Error listen_error(const std::string& where, const std::string& why, bool in_use) {
  return make_error(ErrorCode::kFailedPrecondition, in_use ? "ADDRESS_IN_USE" : "LISTEN_FAILED",
                    "cannot listen on " + where + ": " + why);
}

/// Refuses a socket on which another process serves, and a file that is not a socket, because
/// Acceptor::listen_unix() deletes any existing file.
Status check_socket_free(const std::filesystem::path& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return {};
  if (!S_ISSOCK(st.st_mode)) {
    return listen_error(path.string(), "a file that is not a socket exists there", false);
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return listen_error(path.string(), "another process is serving on this socket", true);
  }
  return {};
}

struct Bounds {
  ConnectionBounds unix_socket, tcp, front, workers, remote_workers, front_workers;
};
/// Divides the descriptors that the process may open. A quarter (at least 256) is reserved for
/// workers on this host, the store and files. A cluster's jobs have a connection for each worker
/// that runs, so the remote workers' port gets a quarter of the rest, and an eighth if all its
/// clients have the same address. All connections of a front end come from one user.
Bounds connection_bounds(int64_t descriptors) {
  const auto kept = static_cast<int>(std::max<int64_t>(256, descriptors / 4));
  const int open = std::max(64, static_cast<int>(descriptors) - kept);
  const ConnectionBounds quarter{open / 4, open / 4};
  return {.unix_socket = quarter,
          .tcp = {open / 4, open / 4},
          .front = quarter,
          .workers = {kept / 2, kept / 2},
          .remote_workers = {open / 4, open / 8},
          .front_workers = quarter};
}

void set_limits(grpc::ServerBuilder& builder, int message_bytes_max, int streams_max,
                size_t transport_bytes_max) {
  builder.SetMaxReceiveMessageSize(message_bytes_max);
  // Compression is disabled, because the size limit applies only after decompression: 0.5 MB of
  // gzip took 530 MiB.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, streams_max);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  grpc::ResourceQuota quota("trainyardd");
  quota.Resize(transport_bytes_max);
  builder.SetResourceQuota(quota);
}

/// Either side detects a silently broken connection within 30 s.
void set_remote_connection_rules(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 15'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 15'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

void set_public_connection_rules(grpc::ServerBuilder& builder) {
  // A client with an open stream sends a ping once a minute; one every 30 s is allowed.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 2 * 3600 * 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open_public(const Config& config, const People& people,
                                                        const std::vector<grpc::Service*>& services,
                                                        const std::vector<std::string>& names,
                                                        const ConnectionRules& rules) {
  if (Status s = check_socket_free(config.socket); !s.ok()) return s.error();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  set_limits(builder, kMessageBytesMax, kStreamsPerConnectionMax, rules.transport_bytes_max);
  set_public_connection_rules(builder);
  const Bounds bounds = connection_bounds(raise_descriptor_limit());
  std::unique_ptr<Listener> listener(new Listener());
  listener->names_ = names;
  ASSIGN_OR_RETURN(const std::optional<gid_t> group, find_socket_group(config));
  if (Status s = listener->open_unix(config.socket, bounds.unix_socket,
                                     listener->add_user_acceptors(builder), group);
      !s.ok()) {
    return s.error();
  }
  if (!config.front_socket.empty()) {
    if (Status s = check_socket_free(config.front_socket); !s.ok()) return s.error();
    ASSIGN_OR_RETURN(const std::optional<gid_t> front_group, find_front_group(config));
    if (Status s = listener->open_unix(
            config.front_socket, bounds.front,
            listener->add_acceptor(builder, front_credentials(token_gate(people))), front_group);
        !s.ok()) {
      return s.error();
    }
  }
  if (!config.listen.empty()) {
    ASSIGN_OR_RETURN(const HostPort address, parse_host_port(config.listen));
    ASSIGN_OR_RETURN(std::shared_ptr<grpc::ServerCredentials> credentials,
                     tcp_credentials(config, people));
    ASSIGN_OR_RETURN(listener->port_, listener->acceptor_.listen_tcp(
                                          address, bounds.tcp,
                                          listener->add_acceptor(builder, std::move(credentials))));
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::vector<std::string> offered = names;
  offered.emplace_back("grpc.health.v1.Health");
  listener->reflection_ = make_reflection_service(std::move(offered));
  builder.RegisterService(listener->reflection_.get());
  if (!listener->start(builder)) {
    return listen_error(config.socket.string(), "the TLS files are not valid", false);
  }
  listener->set_serving(true);
  return listener;
}

Result<std::unique_ptr<Listener>> Listener::open_private(const std::filesystem::path& socket,
                                                         grpc::Service* service) {
  if (Status s = check_socket_free(socket); !s.ok()) return s.error();
  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  set_limits(builder, kWorkerMessageBytesMax, kWorkerStreamsPerConnectionMax,
             ConnectionRules().transport_bytes_max);
  std::unique_ptr<Listener> listener(new Listener());
  const ConnectionBounds bounds = connection_bounds(raise_descriptor_limit()).workers;
  if (Status s = listener->open_unix(
          socket, bounds, listener->add_acceptor(builder, grpc::InsecureServerCredentials()));
      !s.ok()) {
    return s.error();
  }
  builder.RegisterService(service);
  if (!listener->start(builder)) {
    return listen_error(socket.string(), "the workers' server did not start", false);
  }
  return listener;
}

Result<std::unique_ptr<Listener>> Listener::open_workers(const std::string& address,
                                                         const std::string& key,
                                                         const std::string& certificate,
                                                         grpc::Service* service) {
  ASSIGN_OR_RETURN(const HostPort parsed, parse_host_port(address));
  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  set_limits(builder, kWorkerMessageBytesMax, kWorkerStreamsPerConnectionMax,
             ConnectionRules().transport_bytes_max);
  set_remote_connection_rules(builder);
  std::unique_ptr<Listener> listener(new Listener());
  const ConnectionBounds bounds = connection_bounds(raise_descriptor_limit()).remote_workers;
  ASSIGN_OR_RETURN(
      listener->port_,
      listener->acceptor_.listen_tcp(
          parsed, bounds, listener->add_acceptor(builder, workers_credentials(key, certificate))));
  builder.RegisterService(service);
  if (!listener->start(builder)) {
    return listen_error(address, "the workers' server did not start", false);
  }
  return listener;
}

Result<std::unique_ptr<Listener>> Listener::open_front_workers(const std::filesystem::path& socket,
                                                               std::optional<gid_t> group,
                                                               grpc::Service* service) {
  if (Status s = check_socket_free(socket); !s.ok()) return s.error();
  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  set_limits(builder, kWorkerMessageBytesMax, kStreamsPerConnectionMax,
             ConnectionRules().transport_bytes_max);
  std::unique_ptr<Listener> listener(new Listener());
  const ConnectionBounds bounds = connection_bounds(raise_descriptor_limit()).front_workers;
  if (Status s = listener->open_unix(
          socket, bounds, listener->add_acceptor(builder, front_workers_credentials()), group);
      !s.ok()) {
    return s.error();
  }
  builder.RegisterService(service);
  if (!listener->start(builder)) {
    return listen_error(socket.string(), "the workers' server did not start", false);
  }
  return listener;
}

Status Listener::open_unix(const std::filesystem::path& path, ConnectionBounds bounds,
                           Acceptor::PassOn pass_on, std::optional<gid_t> group) {
  if (Status s = acceptor_.listen_unix(path, bounds, std::move(pass_on), group); !s.ok()) return s;
  unix_sockets_.push_back(path);
  return {};
}

Acceptor::PassOn Listener::add_user_acceptors(grpc::ServerBuilder& builder) {
  struct UserAcceptor {
    std::shared_ptr<SocketUser> user;  // to whom the acceptor was assigned
    Acceptor::PassOn pass_on;
  };
  std::vector<UserAcceptor> acceptors;
  for (int i = 0; i < kUserAcceptors; ++i) {
    auto user = std::make_shared<SocketUser>();
    Acceptor::PassOn pass_on = add_acceptor(builder, user_credentials(user));
    acceptors.push_back({std::move(user), std::move(pass_on)});
  }
  // Only the acceptor's thread calls this. It sets a user before it passes on the user's first
  // connection.
  return [acceptors = std::move(acceptors), others = add_acceptor(builder, nameless_credentials()),
          users = std::map<uid_t, size_t>()](int fd) mutable {
    const std::optional<uid_t> uid = Acceptor::user_of(fd);
    if (!uid) return others(fd);
    const auto [known, is_new] = users.try_emplace(*uid, users.size());
    if (known->second >= acceptors.size()) {
      users.erase(known);
      return others(fd);
    }
    const UserAcceptor& acceptor = acceptors[known->second];
    if (is_new) *acceptor.user = socket_user(*uid);
    acceptor.pass_on(fd);
  };
}

Acceptor::PassOn Listener::add_acceptor(grpc::ServerBuilder& builder,
                                        std::shared_ptr<grpc::ServerCredentials> credentials) {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  external_acceptors_.push_back(
      builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, std::move(credentials)));
  return [acceptor = external_acceptors_.back().get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  };
}

bool Listener::start(grpc::ServerBuilder& builder) {
  server_ = builder.BuildAndStart();
  if (server_) acceptor_.start();
  return server_ != nullptr;
}

Listener::Listener() = default;
Listener::~Listener() { shutdown(std::chrono::milliseconds(0)); }

void Listener::set_serving(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(serving);  // changes "" and every name that was set before
  for (const std::string& name : names_) health->SetServingStatus(name, serving);
}

void Listener::shutdown(std::chrono::milliseconds grace) {
  if (!server_) return;
  acceptor_.stop();
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  server_->Wait();
  server_.reset();
  std::error_code ec;
  for (const std::filesystem::path& path : unix_sockets_) std::filesystem::remove(path, ec);
}

}  // namespace trainyard::server
