#include "server/service/listener.h"

#include <arpa/inet.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "server/service/auth.h"
#include "src/base/handle.h"

namespace trainyard::server {
namespace {

constexpr int kWorkerMessageBytesMax = 8 << 20;  // a predict request or answer and its envelope
constexpr int kMetadataBytesMax = 8 << 10;
constexpr int kStreamsPerConnectionMax = 128;
constexpr size_t kTransportBytesMax = size_t{256} << 20;

Error listen_error(const std::string& where, const std::string& why, bool in_use) {
  return make_error(ErrorCode::kFailedPrecondition, in_use ? "ADDRESS_IN_USE" : "LISTEN_FAILED",
                    "cannot listen on " + where + ": " + why);
}

/// The library takes over a socket file that is there, also one that another process serves.
Status check_socket_free(const std::filesystem::path& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return {};
  if (!S_ISSOCK(st.st_mode)) {
    return listen_error(path.string(), "a file that is no socket is there", false);
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return listen_error(path.string(), "another process serves on this socket", true);
  }
  return {};
}

/// Binds for a moment, because the library tells that it failed but not why.
Status check_port_free(const HostPort& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string where = address.host + ":" + std::to_string(address.port);
  if (const int err =
          ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
      err != 0) {
    return listen_error(where, ::gai_strerror(err), false);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const UniqueFd probe(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  (void)::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(probe.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(probe.get(), 1) != 0) {
    const int err = errno;
    return listen_error(where, std::strerror(err), err == EADDRINUSE);
  }
  return {};
}

void set_limits(grpc::ServerBuilder& builder, int message_bytes_max) {
  builder.SetMaxReceiveMessageSize(message_bytes_max);
  // The size limit acts only after inflating: 0.5 MB of gzip took 530 MiB. So no compression.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second daemon must fail
  grpc::ResourceQuota quota("trainyardd");
  quota.Resize(kTransportBytesMax);
  builder.SetResourceQuota(quota);
}

void set_public_connection_rules(grpc::ServerBuilder& builder) {
  // A client that streams pings once a minute; every 30 s is allowed.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 2 * 3600 * 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  // New certificates and tokens take effect within the hour; streams resume where they were.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, 3600 * 1000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, 300 * 1000);
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open_public(const Config& config, const Token* token,
                                                        const std::vector<grpc::Service*>& services,
                                                        const std::vector<std::string>& names) {
  if (Status s = check_socket_free(config.socket); !s.ok()) return s.error();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  set_limits(builder, kMessageBytesMax);
  set_public_connection_rules(builder);
  builder.AddListeningPort("unix:" + config.socket.string(), grpc::InsecureServerCredentials());
  int port = 0;
  if (!config.listen.empty()) {
    ASSIGN_OR_RETURN(const HostPort address, parse_host_port(config.listen));
    if (Status s = check_port_free(address); !s.ok()) return s.error();
    ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials,
                     tcp_credentials(config, token));
    builder.AddListeningPort(config.listen, credentials, &port);
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<Listener> listener(new Listener());
  listener->server_ = builder.BuildAndStart();
  if (!listener->server_) {
    return listen_error(config.listen.empty() ? config.socket.string()
                                              : config.socket.string() + " and " + config.listen,
                        "the socket could not be opened, or the TLS files are not valid", false);
  }
  (void)::chmod(config.socket.c_str(), 0600);  // the process's umask made it so from the start
  listener->socket_ = config.socket;
  listener->port_ = port;
  listener->names_ = names;
  listener->set_serving(true);
  return listener;
}

Result<std::unique_ptr<Listener>> Listener::open_private(const std::filesystem::path& socket,
                                                         grpc::Service* service) {
  if (Status s = check_socket_free(socket); !s.ok()) return s.error();
  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  set_limits(builder, kWorkerMessageBytesMax);
  builder.AddListeningPort("unix:" + socket.string(), grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  std::unique_ptr<Listener> listener(new Listener());
  listener->server_ = builder.BuildAndStart();
  if (!listener->server_) {
    return listen_error(socket.string(), "the workers' socket could not be opened", false);
  }
  (void)::chmod(socket.c_str(), 0600);
  listener->socket_ = socket;
  return listener;
}

Listener::~Listener() { shutdown(std::chrono::milliseconds(0)); }

void Listener::set_serving(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(serving);  // "" and every name that was set before
  for (const std::string& name : names_) health->SetServingStatus(name, serving);
}

void Listener::shutdown(std::chrono::milliseconds grace) {
  if (!server_) return;
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  server_->Wait();
  server_.reset();
  std::error_code ec;
  std::filesystem::remove(socket_, ec);
}

}  // namespace trainyard::server
