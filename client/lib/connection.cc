#include "client/lib/connection.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "client/lib/contexts.h"
#include "client/lib/socket_access.h"
#include "src/base/files.h"
#include "src/base/handle.h"
#include "src/base/resource_id.h"
#include "src/base/text.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTokenBytesMax = 4096;
constexpr double kTimeoutSecondsMax = 3600;
constexpr std::string_view kProjectsPrefix = "projects/";
constexpr std::string_view kContextSource = "context ";

// Where the systemd unit's daemon listens, and where one that root starts by hand does.
constexpr const char* kServiceSocket = "/run/trainyard/trainyard.sock";
constexpr const char* kRootSocket = "/var/lib/trainyard/trainyard.sock";

bool socket_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::is_socket(path, ignored);
}

/// Returns the end of the message that no server runs: there may be one that this user cannot see.
std::string unseen_server(const Connection& connection) {
  struct stat info {};
  if (!connection.is_default || ::stat(kRootSocket, &info) == 0 || errno != EACCES) return "";
  return ", nor " + std::string(kServiceSocket) + ", where a server that others may use listens; " +
         fs::path(kRootSocket).parent_path().string() + " is closed to you";
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

Status check_server(Connection& connection) {
  if (connection.server.starts_with('/')) connection.server = "unix:" + connection.server;
  if (connection.server.starts_with("unix://")) connection.server.erase(5, 2);
  const auto refuse = [&](const char* expected) {
    return config_error("server " + quoted_value(connection.server) + ": expected " + expected);
  };
  if (connection.is_unix()) {
    const std::string path = connection.server.substr(5);
    if (path.empty()) return refuse("unix:/path/to/trainyard.sock");
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      return refuse("a socket path of at most 107 bytes, the limit of Linux");
    }
    return {};
  }
  if (connection.server.find("://") != std::string::npos) {
    return refuse("host:port without a scheme; TLS is used unless --plaintext is given");
  }
  const size_t colon = connection.server.rfind(':');
  int port = 0;
  const char* end = connection.server.data() + connection.server.size();
  if (colon == std::string::npos || colon == 0 ||
      std::from_chars(connection.server.data() + colon + 1, end, port).ptr != end || port < 1 ||
      port > 65535) {
    return refuse("unix:/path or host:port");
  }
  if (is_loopback(std::string_view(connection.server).substr(0, colon)) &&
      connection.ca_file.empty()) {
    connection.plaintext = true;
  }
  return {};
}

/// The places where a value may be set, in their order.
class Sources {
 public:
  /// `named`: an option names the context, which then goes before the environment.
  Sources(const Context* context, bool named, const Environment& env)
      : context_(context), named_(named), env_(env) {}

  struct Option {
    const char* name;
    const std::string& value;
  };
  /// Returns the first value that is set, and where it is set in `from`; empty: none is. An empty
  /// `variable` stands for a value that the environment cannot set.
  std::string choose(const Option& option, const char* variable, std::string Context::*field,
                     std::string& from) const {
    const std::string of_context = context_ != nullptr ? context_->*field : "";
    const std::string of_env = *variable != '\0' ? env_(variable) : "";
    from = option.name;
    if (!option.value.empty()) return option.value;
    if (named_ && !of_context.empty())
      return take(of_context, std::string(kContextSource) + context_->name, from);
    if (!of_env.empty()) return take(of_env, variable, from);
    if (!of_context.empty())
      return take(of_context, std::string(kContextSource) + context_->name, from);
    return take("", "", from);
  }
  /// Forgets the context unless `server` is its server.
  void keep_only_for(const std::string& server) {
    if (context_ != nullptr && context_->server != server) context_ = nullptr;
  }
  bool plaintext() const { return context_ != nullptr && context_->plaintext; }
  std::string context() const { return context_ != nullptr ? context_->name : ""; }
  /// Returns whether a source, as choose() names it, goes before the environment.
  bool is_before_environment(std::string_view from) const {
    return from.starts_with("--") || (named_ && from.starts_with(kContextSource));
  }

 private:
  static std::string take(std::string value, std::string source, std::string& from) {
    from = std::move(source);
    return value;
  }
  const Context* context_;
  bool named_;
  const Environment& env_;
};

Status choose_token(const ConnectionFlags& flags, const Environment& env, const Sources& sources,
                    Connection& connection) {
  connection.token_file = sources.choose({"--token-file", flags.token_file}, "TRAINYARD_TOKEN_FILE",
                                         &Context::token_file, connection.from.token);
  const std::string text = env("TRAINYARD_TOKEN");
  if (text.empty() || sources.is_before_environment(connection.from.token)) return {};
  connection.token = text;
  connection.token_file.clear();
  connection.from.token = "TRAINYARD_TOKEN";
  return check_token(text, "TRAINYARD_TOKEN");
}

Status choose_project(const ConnectionFlags& flags, const Sources& sources,
                      Connection& connection) {
  std::string project = sources.choose({"--project", flags.project}, "TRAINYARD_PROJECT",
                                       &Context::project, connection.from.project);
  if (project.empty()) {
    connection.from.project = kFromDefault;
    return {};
  }
  if (project.starts_with(kProjectsPrefix)) project.erase(0, kProjectsPrefix.size());
  if (!is_resource_id(project)) {
    return config_error(connection.from.project + ": project " + quoted_value(project) +
                        ", expected " + resource_id_rule());
  }
  connection.project = project;
  return {};
}

void choose_default_server(const Environment& env, Connection& connection) {
  const std::vector<fs::path> sockets = default_sockets(env);
  // The default, for the error message if no socket exists, is where this user's daemon would
  // listen: above the two of the machine.
  fs::path chosen = sockets.size() > 2 ? sockets[sockets.size() - 3] : sockets.back();
  for (auto socket = sockets.rbegin(); socket != sockets.rend(); ++socket) {
    if (socket_exists(*socket)) chosen = *socket;
  }
  connection.is_default = true;
  connection.server = "unix:" + chosen.string();
  connection.from.server = kFromDefault;
}

}  // namespace

std::vector<fs::path> default_sockets(const Environment& env) {
  std::vector<fs::path> sockets;
  if (::geteuid() != 0) {
    if (const std::string run = env("XDG_RUNTIME_DIR"); !run.empty()) {
      sockets.push_back(fs::path(run) / "trainyard/trainyard.sock");
    }
    if (const std::string state = env("XDG_STATE_HOME"); state.starts_with('/')) {
      sockets.push_back(fs::path(state) / "trainyard/trainyard.sock");
    } else if (const std::string home = env("HOME"); home.starts_with('/')) {
      sockets.push_back(fs::path(home) / ".local/state/trainyard/trainyard.sock");
    }
  }
  sockets.emplace_back(kServiceSocket);
  sockets.emplace_back(kRootSocket);
  return sockets;
}

Result<Connection> resolve_connection(const ConnectionFlags& flags, const Environment& env) {
  ASSIGN_OR_RETURN(const Contexts contexts, read_contexts(flags, env));
  ASSIGN_OR_RETURN(const Context* chosen, choose_context(contexts, flags, env));
  return resolve_in_context(chosen, flags, env);
}

Result<Connection> resolve_in_context(const Context* context, const ConnectionFlags& flags,
                                      const Environment& env) {
  Connection connection;
  Sources sources(context, !flags.context.empty(), env);
  connection.server = sources.choose({"--server", flags.server}, "TRAINYARD_SERVER",
                                     &Context::server, connection.from.server);
  if (!connection.server.empty()) sources.keep_only_for(connection.server);
  connection.context = sources.context();
  if (Status token = choose_token(flags, env, sources, connection); !token.ok()) {
    return std::move(token).error();
  }
  connection.ca_file =
      sources.choose({"--ca-file", flags.ca_file}, "", &Context::ca_file, connection.from.ca_file);
  if (Status project = choose_project(flags, sources, connection); !project.ok()) {
    return std::move(project).error();
  }
  connection.plaintext = flags.plaintext || sources.plaintext();
  if (flags.timeout_s != 0) {
    if (!(flags.timeout_s > 0 && flags.timeout_s <= kTimeoutSecondsMax)) {
      return config_error("--timeout: expected seconds above 0 and up to 3600");
    }
    connection.timeout_ms = static_cast<int64_t>(std::ceil(flags.timeout_s * 1000));
  }
  if (connection.server.empty()) choose_default_server(env, connection);
  if (Status checked = check_server(connection); !checked.ok()) return std::move(checked).error();
  return connection;
}

Status check_token(std::string_view token, const std::string& what) {
  const bool printable =
      std::ranges::all_of(token, [](const char c) { return c > 0x20 && c <= 0x7e; });
  if (!token.empty() && printable) return {};
  return make_error(ErrorCode::kInvalidArgument, "TOKEN_FILE_INVALID",
                    what + " contains no token: expected one line of printable characters");
}

Result<std::string> read_token(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && (info.st_mode & 077) != 0) {
    return make_error(ErrorCode::kPermissionDenied, "TOKEN_FILE_INVALID",
                      "token file " + path.string() +
                          " is readable by other users; run: chmod 600 " + path.string());
  }
  ASSIGN_OR_RETURN(std::string token, read_file(path, kTokenBytesMax));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' ')) {
    token.pop_back();
  }
  if (Status checked = check_token(token, "token file " + path.string()); !checked.ok()) {
    return std::move(checked).error();
  }
  return token;
}

Status probe_server(const Connection& connection) {
  if (!connection.is_unix()) return {};
  const std::string path = connection.server.substr(5);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return {};
  switch (errno) {
    case EACCES:
    case EPERM:
      return refuse_socket(find_socket_access(path));
    case ENOENT:
      return make_error(
          ErrorCode::kUnavailable, "SERVER_NOT_RUNNING",
          "no server is running: there is no socket " + path + unseen_server(connection));
    case EAGAIN:
      return {};  // the server's queue of connections is full, so it is running
    default:
      return make_error(ErrorCode::kUnavailable, "SERVER_NOT_RUNNING",
                        "no server is running: nothing listens on " + path);
  }
}

}  // namespace trainyard::client
