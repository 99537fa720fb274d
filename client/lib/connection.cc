#include "client/lib/connection.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "client/lib/socket_access.h"
#include "client/lib/spec_file.h"
#include "src/base/files.h"
#include "src/base/handle.h"
#include "src/base/text.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTokenBytesMax = 4096;
constexpr double kTimeoutSecondsMax = 3600;

Error config_error(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID", std::move(message));
}

fs::path find_config(const ConnectionFlags& flags, const Environment& env, bool* required) {
  *required = true;
  if (!flags.config_file.empty()) return flags.config_file;
  if (const std::string named = env("TRAINYARD_CONFIG"); !named.empty()) return named;
  *required = false;
  fs::path home = env("XDG_CONFIG_HOME");
  if (home.empty() && !env("HOME").empty()) home = fs::path(env("HOME")) / ".config";
  std::error_code ignored;
  if (!home.empty() && fs::exists(home / "trainyard/config.yaml", ignored)) {
    return home / "trainyard/config.yaml";
  }
  if (fs::exists("/etc/trainyard/client.yaml", ignored)) return "/etc/trainyard/client.yaml";
  return {};
}

Status read_context(const spec::Document& document, const spec::Value& fields,
                    const fs::path& folder, Connection& connection) {
  for (const spec::Entry& entry : fields.entries) {
    const std::string at = document.describe(entry.key_at) + ": ";
    const spec::Value& value = entry.value;
    if (value.kind != spec::Value::Kind::kScalar) {
      return config_error(at + entry.key + ": expected one value");
    }
    if (entry.key == "server") {
      connection.server = value.text;
    } else if (entry.key == "ca_file") {
      connection.ca_file = folder / value.text;  // operator/ keeps an absolute path unchanged
    } else if (entry.key == "token_file") {
      connection.token_file = folder / value.text;
    } else if (entry.key == "plaintext" && (value.text == "true" || value.text == "false")) {
      connection.plaintext = value.text == "true";
    } else {
      return config_error(at + "unknown key or bad value: " + quoted_value(entry.key) +
                          ", expected server, ca_file, token_file or plaintext (true or false)");
    }
  }
  return {};
}

/// Applies the chosen context of the configuration file, if there is one.
Status apply_config(const ConnectionFlags& flags, const Environment& env, Connection& connection) {
  bool required = false;
  const fs::path path = find_config(flags, env, &required);
  std::string context = flags.context.empty() ? env("TRAINYARD_CONTEXT") : flags.context;
  if (path.empty()) {
    if (context.empty()) return {};
    return config_error("context " + quoted_value(context) +
                        ": there is no configuration file (~/.config/trainyard/config.yaml)");
  }
  ASSIGN_OR_RETURN(const spec::Document document, read_document_file(path));
  for (const spec::Entry& entry : document.root().entries) {
    if (entry.key == "context" && entry.value.kind == spec::Value::Kind::kScalar) {
      if (context.empty()) context = entry.value.text;
    } else if (entry.key != "contexts" || entry.value.kind != spec::Value::Kind::kMap) {
      return config_error(document.describe(entry.key_at) +
                          ": unknown key or bad value: " + quoted_value(entry.key) +
                          ", expected context (a name) and contexts (a map)");
    }
  }
  if (context.empty()) return {};
  const spec::Entry* contexts = document.root().find("contexts");
  const spec::Entry* chosen = contexts ? contexts->value.find(context) : nullptr;
  if (chosen == nullptr || chosen->value.kind != spec::Value::Kind::kMap) {
    std::string known;
    if (contexts) {
      for (const spec::Entry& entry : contexts->value.entries)
        known += (known.empty() ? "" : ", ") + entry.key;
    }
    return config_error("context " + quoted_value(context) + " is not in " + path.string() +
                        (known.empty() ? ", which has no contexts" : ", which has " + known));
  }
  return read_context(document, chosen->value, path.parent_path(), connection);
}

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
  Connection connection;
  if (Status config = apply_config(flags, env, connection); !config.ok())
    return std::move(config).error();
  if (const std::string server = env("TRAINYARD_SERVER"); !server.empty())
    connection.server = server;
  if (!flags.server.empty()) connection.server = flags.server;
  if (!flags.ca_file.empty()) connection.ca_file = flags.ca_file;
  if (!flags.token_file.empty()) connection.token_file = flags.token_file;
  if (flags.plaintext) connection.plaintext = true;
  if (flags.timeout_s != 0) {
    if (!(flags.timeout_s > 0 && flags.timeout_s <= kTimeoutSecondsMax)) {
      return config_error("--timeout: expected seconds above 0 and up to 3600");
    }
    connection.timeout_ms = static_cast<int64_t>(std::ceil(flags.timeout_s * 1000));
  }
  if (connection.server.empty()) {
    const std::vector<fs::path> sockets = default_sockets(env);
    // The default, for the error message if no socket exists, is where this user's daemon would
    // listen: above the two of the machine.
    fs::path chosen = sockets.size() > 2 ? sockets[sockets.size() - 3] : sockets.back();
    connection.is_default = true;
    for (auto socket = sockets.rbegin(); socket != sockets.rend(); ++socket) {
      if (socket_exists(*socket)) chosen = *socket;
    }
    connection.server = "unix:" + chosen.string();
  }
  if (Status checked = check_server(connection); !checked.ok()) return std::move(checked).error();
  return connection;
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
  for (const char c : token) {
    if (c <= 0x20 || c > 0x7e) token.clear();
  }
  if (token.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "TOKEN_FILE_INVALID",
                      "token file " + path.string() +
                          " contains no token: expected one line of printable "
                          "characters");
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
