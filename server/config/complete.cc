#include <grp.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "server/config/config.h"
#include "src/base/text.h"

namespace trainyard::server {

bool serves_remote_workers(const Config& config) {
  return !config.workers_listen.empty() || !config.workers_advertise.empty();
}

std::filesystem::path workers_front_socket(const Config& config) {
  if (config.front_socket.empty() || config.workers_advertise.empty() ||
      !config.workers_listen.empty()) {
    return {};
  }
  return config.front_socket.parent_path() / "workers.sock";
}

namespace {

std::filesystem::path default_state_dir() {
  if (::geteuid() == 0) return "/var/lib/trainyard";
  if (const char* xdg = std::getenv("XDG_STATE_HOME"); xdg != nullptr && *xdg == '/') {
    return std::filesystem::path(xdg) / "trainyard";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return std::filesystem::path(home) / ".local/state/trainyard";
  }
  return "/var/lib/trainyard";
}

Error conflict(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID", std::move(message));
}

/// Refuses a front_socket in a folder with other files: a container's front end gets the folder,
/// and with it everything in it.
Status check_front(const Config& config) {
  if (config.front_socket.empty()) {
    if (config.front_group.empty()) return {};
    return conflict("front_group needs front_socket, which its members may use");
  }
  const std::filesystem::path folder = config.front_socket.parent_path();
  if (folder == config.socket.parent_path() || folder == config.state_dir) {
    return conflict("front_socket: " + config.front_socket.string() +
                    " is in a folder with other files, expected a folder of its own, such as "
                    "/run/trainyard-front");
  }
  return {};
}

Status check_workers(const Config& config) {
  if (!config.clusters.empty()) {
    const bool listens = !config.workers_listen.empty();
    const Result<HostPort> workers =
        parse_host_port(listens ? config.workers_listen : config.workers_advertise);
    if (!workers.ok() || workers->port == 0) {
      return conflict(
          "cluster: needs workers_listen with a port, such as 0.0.0.0:7451, or front_socket and "
          "workers_advertise, so that the cluster's workers reach the daemon, also after a "
          "restart");
    }
  }
  if (config.workers_listen.empty()) {
    if (config.workers_advertise.empty() || !config.front_socket.empty()) return {};
    return conflict(
        "workers_advertise needs workers_listen, for which it is another address, or front_socket, "
        "through which workers come");
  }
  if (!config.workers_advertise.empty()) return {};
  ASSIGN_OR_RETURN(const HostPort workers, parse_host_port(config.workers_listen));
  if (workers.host == "0.0.0.0" || workers.host == "::") {
    return conflict("workers_listen: " + config.workers_listen +
                    " is not an address that workers can reach; set workers_advertise to a "
                    "host:port that they can");
  }
  return {};
}

Status check_listen(const Config& config) {
  const bool tls = !config.tls_certificate.empty();
  if (tls != !config.tls_key.empty()) {
    return conflict("tls_certificate and tls_key belong together; only one is set");
  }
  if (config.listen.empty()) {
    if (tls) return conflict("tls_certificate needs `listen`: only TCP uses it");
    if (!config.token_file.empty() && config.front_socket.empty()) {
      return conflict("token_file needs `listen` or front_socket: only their calls have a token");
    }
    return {};
  }
  ASSIGN_OR_RETURN(const HostPort address, parse_host_port(config.listen));
  if (address.loopback() || config.insecure_listen) return {};
  return conflict("listen: " + config.listen +
                  " is not a loopback address: set front_socket and serve the network through a "
                  "front end (docs/operations.md), or set insecure_listen if you have a front end "
                  "of your own or everyone on that network is trusted");
}

}  // namespace

Status complete_config(const std::filesystem::path& program, Config& config) {
  if (config.state_dir.empty()) config.state_dir = default_state_dir();
  if (config.socket.empty()) config.socket = config.state_dir / "trainyard.sock";
  for (const std::filesystem::path& path : {config.socket, config.state_dir / "worker.sock",
                                            config.front_socket, workers_front_socket(config)}) {
    if (path.string().size() >= sizeof(sockaddr_un::sun_path)) {
      return conflict("socket: " + path.string() + " has more than " +
                      std::to_string(sizeof(sockaddr_un::sun_path) - 1) +
                      " bytes, the longest path of a Unix socket; choose a shorter folder");
    }
  }
  if (config.worker.empty()) config.worker = program.parent_path() / "trainyard-worker";
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (config.threads_per_job == 0) {
    config.threads_per_job = std::max(1, cores / std::max(1, config.cpu_slots));
  }
  if (config.cpu_slots == 0) config.cpu_slots = cores;
  if (config.gpu_slots == 0) config.gpu_slots = kGpuSlots;
  if (Status s = check_front(config); !s.ok()) return s;
  if (Status s = check_workers(config); !s.ok()) return s;
  return check_listen(config);
}

namespace {

Result<std::optional<gid_t>> find_group(const char* setting, const std::string& name) {
  if (name.empty()) return std::optional<gid_t>();
  std::vector<char> buffer(1 << 20);  // room for the names of all members
  group entry{};
  group* found = nullptr;
  (void)::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) {
    return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID",
                      std::string(setting) + ": this machine has no group " + quoted_value(name) +
                          "; 'addgroup --system NAME' creates one");
  }
  return std::optional<gid_t>(found->gr_gid);
}

}  // namespace

Result<std::optional<gid_t>> find_socket_group(const Config& config) {
  return find_group("socket_group", config.socket_group);
}

Result<std::optional<gid_t>> find_front_group(const Config& config) {
  return find_group("front_group", config.front_group);
}

}  // namespace trainyard::server
