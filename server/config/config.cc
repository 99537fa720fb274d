#include "server/config/config.h"

#include <arpa/inet.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>

#include "server/config/values.h"
#include "src/base/duration.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

Setting path_setting(std::string name, std::string help, std::filesystem::path Config::*member) {
  auto assign = [name, member](Config& c, std::string_view text) -> Status {
    if (text.empty()) return refuse(name, text, "a path");
    c.*member = std::filesystem::absolute(std::filesystem::path(text)).lexically_normal();
    return {};
  };
  return {name, std::move(help), false, assign};
}

Setting group_setting(std::string name, std::string help, std::string Config::*member) {
  auto assign = [name, member](Config& c, std::string_view text) -> Status {
    if (text.empty()) return refuse(name, text, "the name of a group");
    c.*member = text;
    return {};
  };
  return {name, std::move(help), false, assign};
}

Status assign_socket_role(Config& c, std::string_view text) {
  if (text != "none" && text != "viewer" && text != "member" && text != "maintainer") {
    return refuse("socket_role", text, "none, viewer, member or maintainer");
  }
  c.socket_role = text;
  return {};
}

Setting int_setting(std::string name, std::string help, int Config::*member, int min, int max) {
  auto assign = [name, member, min, max](Config& c, std::string_view text) -> Status {
    ASSIGN_OR_RETURN(const int64_t value, read_number(name, text, min, max));
    c.*member = static_cast<int>(value);
    return {};
  };
  return {name, std::move(help), false, assign};
}

/// Returns the shortest text that parses to the same number.
std::string shortest(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

Setting price_setting(const char* name, const char* help, double Config::*member) {
  auto assign = [name, member](Config& c, std::string_view text) -> Status {
    ASSIGN_OR_RETURN(c.*member, read_price(name, text));
    return {};
  };
  return {name, help, false, assign};
}

const char* sandbox_text(SandboxMode mode) {
  return mode == SandboxMode::kAuto ? "auto" : mode == SandboxMode::kRequired ? "required" : "off";
}

Status assign_ingest_root(Config& c, std::string_view text) {
  std::error_code ec;
  const std::filesystem::path root = std::filesystem::path(text).lexically_normal();
  if (!root.is_absolute() || !std::filesystem::is_directory(root, ec)) {
    return refuse("ingest_root", text, "the absolute path of a folder");
  }
  c.ingest_roots.push_back(root);
  return {};
}

Status assign_listen(Config& c, std::string_view text) {
  if (Result<HostPort> parsed = parse_host_port(text); !parsed.ok()) return parsed.error();
  c.listen = text;
  return {};
}

Setting address_setting(std::string name, std::string help, std::string Config::*member) {
  auto assign = [name, member](Config& c, std::string_view text) -> Status {
    if (!parse_host_port(text).ok()) {
      return refuse(name, text, "host:port, as in 192.0.2.1:7451 or [2001:db8::1]:7451");
    }
    c.*member = text;
    return {};
  };
  return {name, std::move(help), false, assign};
}

Status assign_insecure_listen(Config& c, std::string_view text) {
  if (text != "true" && text != "false") return refuse("insecure_listen", text, "true or false");
  c.insecure_listen = text == "true";
  return {};
}

Status assign_time_algorithms(Config& c, std::string_view text) {
  if (text != "true" && text != "false") return refuse("time_algorithms", text, "true or false");
  c.time_algorithms = text == "true";
  return {};
}

Status assign_sandbox(Config& c, std::string_view text) {
  for (const SandboxMode mode : {SandboxMode::kAuto, SandboxMode::kRequired, SandboxMode::kOff}) {
    if (text != sandbox_text(mode)) continue;
    c.sandbox = mode;
    return {};
  }
  return refuse("sandbox", text, "auto, required or off");
}

Status assign_preemption(Config& c, std::string_view text) {
  if (text != "off" && text != "priority") return refuse("preemption", text, "off or priority");
  c.preemption = text == "priority";
  return {};
}

Status assign_cluster(Config& c, std::string_view text) {
  const std::filesystem::path file(text);
  if (!file.is_absolute())
    return refuse("cluster", text, "the absolute path of a file that describes a cluster");
  ASSIGN_OR_RETURN(ClusterConfig cluster, load_cluster(file));
  if (std::ranges::find(c.clusters, cluster.name, &ClusterConfig::name) != c.clusters.end()) {
    return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID",
                      "cluster: " + file.string() + ": another cluster already has the name " +
                          quoted_value(cluster.name));
  }
  c.clusters.push_back(std::move(cluster));
  return {};
}

std::optional<int64_t> parse_kept_seconds(std::string_view text) {
  const std::optional<int64_t> seconds = parse_duration(text);
  if (!seconds || *seconds < kKeptSecondsMin || *seconds > kKeptSecondsMax) return std::nullopt;
  return seconds;
}

/// Accepts "all", "1000", "90d", "1000,90d".
Status assign_keep_jobs(Config& c, std::string_view text) {
  const Error refused =
      refuse("keep_jobs", text,
             "all, a number of jobs such as 1000, a time from 1h to 3650d such as 90d, or both: "
             "1000,90d");
  if (text == "all") {
    c.keep_jobs.reset();
    return {};
  }
  KeptJobs kept;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    if (const std::optional<int64_t> count = parse_integer(part)) {
      if (kept.newest || *count < 0 || *count > kKeptNewestMax) return refused;
      kept.newest = count;
    } else {
      if (kept.younger_than_seconds) return refused;
      kept.younger_than_seconds = parse_kept_seconds(part);
      if (!kept.younger_than_seconds) return refused;
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  c.keep_jobs = kept;
  return {};
}

/// Returns a setting that accepts "all" and times such as "90d".
Setting kept_time_setting(const char* name, const char* help,
                          std::optional<int64_t> Config::*seconds) {
  return {name, help, false, [name, seconds](Config& c, std::string_view text) -> Status {
            c.*seconds = parse_kept_seconds(text);
            if (c.*seconds || text == "all") return {};
            return refuse(name, text, "all, or a time from 1h to 3650d such as 90d");
          }};
}

std::string kept_time_text(std::optional<int64_t> seconds) {
  return seconds ? duration_text(*seconds) : "all";
}

std::string keep_jobs_text(const Config& c) {
  if (!c.keep_jobs) return "all";
  std::string text;
  if (c.keep_jobs->newest) text = std::to_string(*c.keep_jobs->newest);
  if (c.keep_jobs->younger_than_seconds) {
    text += (text.empty() ? "" : ",") + duration_text(*c.keep_jobs->younger_than_seconds);
  }
  return text;
}

Status assign_log_format(Config& c, std::string_view text) {
  if (text != "text" && text != "json") return refuse("log_format", text, "text or json");
  c.log_format = text == "json" ? LogFormat::kJson : LogFormat::kText;
  return {};
}

Status assign_log_level(Config& c, std::string_view text) {
  if (text != "debug" && text != "info" && text != "warn" && text != "error") {
    return refuse("log_level", text, "debug, info, warn or error");
  }
  c.log_level = text;
  return {};
}

Setting bytes_setting(const char* name, const char* help, int64_t Config::*field, int64_t min = 1) {
  return {name, help, false, [name, field, min](Config& c, std::string_view text) -> Status {
            ASSIGN_OR_RETURN(c.*field, read_bytes(name, text, min));
            return {};
          }};
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> table = {
      path_setting("state_dir", "Folder for all stored data, on a local disk", &Config::state_dir),
      path_setting("socket", "Unix socket; default STATE_DIR/trainyard.sock", &Config::socket),
      group_setting("socket_group",
                    "Group whose members may use the socket; default: none, only the daemon's user",
                    &Config::socket_group),
      {"socket_role",
       "Role in the project default of the host's users who have no other role there: none, "
       "viewer, "
       "member or maintainer; default: member",
       false, assign_socket_role},
      path_setting(
          "front_socket",
          "Unix socket for a front end that serves on the network, in a folder of its own; "
          "its calls need a token",
          &Config::front_socket),
      group_setting("front_group",
                    "Group of the front end, whose members may use front_socket; default: none, "
                    "only the daemon's user",
                    &Config::front_group),
      {"listen", "Serve on TCP too: host:port of this machine's loopback; every call needs a token",
       false, assign_listen},
      path_setting("tls_certificate", "Certificate chain (PEM) for the TCP listener",
                   &Config::tls_certificate),
      path_setting("tls_key", "Private key (PEM) for the TCP listener", &Config::tls_key),
      path_setting(
          "token_file",
          "File (mode 0600) with bearer tokens that clients on TCP and of the front end may send",
          &Config::token_file),
      address_setting(
          "workers_listen",
          "Serve workers on other hosts without a front end, over TLS with the daemon's own "
          "certificate: host:port",
          &Config::workers_listen),
      address_setting("workers_advertise",
                      "The address for those workers: host:port of the front end or of the "
                      "daemon; default workers_listen",
                      &Config::workers_advertise),
      {"insecure_listen",
       "Let `listen` be an address beyond loopback, for a front end of your own or a network where "
       "everyone is trusted",
       true, assign_insecure_listen},
      int_setting("cpu_slots",
                  "Maximum number of jobs on the CPU, if cores and memory suffice; 0: one per core",
                  &Config::cpu_slots, 0, 64),
      int_setting("gpu_slots",
                  "Maximum number of jobs on each GPU, if its memory suffices; 0: up to 8",
                  &Config::gpu_slots, 0, 64),
      int_setting("threads_per_job",
                  "CPU threads of a job that does not set them; 0: cores / cpu_slots, or all cores",
                  &Config::threads_per_job, 0, 256),
      {"preemption", "Whether jobs of higher priority preempt running jobs: off or priority", false,
       assign_preemption},
      int_setting("preempt_after_seconds",
                  "Minimum time that a job runs before another job preempts it",
                  &Config::preempt_after_seconds, 0, 604'800),
      int_setting("reserved_idle_seconds_max",
                  "Maximum time that devices stay idle for a job whose start time is unknown",
                  &Config::reserved_idle_seconds_max, 0, 604'800),
      int_setting("fair_share_half_life_hours",
                  "Time after which an owner's use of devices counts half; 0: only priority and "
                  "order of submission count",
                  &Config::fair_share_half_life_hours, 0, 8760),
      {"time_algorithms",
       "Time the GPU libraries' algorithms once and keep the fastest: true or false", false,
       assign_time_algorithms},
      price_setting("cpu_price_per_hour", "Price of an hour of the CPU, for forecasts; 0: none",
                    &Config::cpu_price_per_hour),
      price_setting("gpu_price_per_hour", "Price of an hour of one GPU, for forecasts; 0: none",
                    &Config::gpu_price_per_hour),
      int_setting("measure_after_seconds",
                  "Time without jobs before device speeds are measured for forecasts; -1: never",
                  &Config::measure_after_seconds, -1, 86'400),
      bytes_setting(
          "cpu_memory_bytes_max",
          "Memory that the plan of a job on the CPU may use; default: all of the machine's",
          &Config::cpu_memory_bytes_max),
      {"log_level", "debug, info, warn or error", false, assign_log_level},
      {"log_format", "text, or json: one object for each line", false, assign_log_format},
      path_setting("worker", "Worker program; default trainyard-worker in the folder of trainyardd",
                   &Config::worker),
      {"sandbox",
       "Restrict what workers may read, write and call: auto (as far as this host can), required "
       "(refuse tasks otherwise) or off",
       false, assign_sandbox},
      bytes_setting("upload_bytes_max", "Largest file that may be uploaded",
                    &Config::upload_bytes_max),
      bytes_setting("disk_free_bytes_min",
                    "Free space of the state folder's disk below which uploads, datasets, models "
                    "and jobs are refused; 0: never",
                    &Config::disk_free_bytes_min, 0),
      {"ingest_root", "Folder whose files datasets may use without an upload; repeatable", false,
       assign_ingest_root, true},
      int_setting("queued_jobs_max", "Maximum number of queued jobs", &Config::queued_jobs_max, 1,
                  1000000),
      int_setting("watch_streams_max", "Maximum number of open watch streams",
                  &Config::watch_streams_max, 1, 100000),
      int_setting("predicts_max", "Maximum number of workers that compute predictions",
                  &Config::predicts_max, 1, 64),
      int_setting("warm_workers_max",
                  "Maximum number of workers that keep their model loaded between calls; 0: none",
                  &Config::warm_workers_max, 0, 256),
      bytes_setting("warm_memory_bytes_max", "Maximum memory of all those workers",
                    &Config::warm_memory_bytes_max),
      int_setting("warm_idle_seconds", "Time without a call after which such a worker exits",
                  &Config::warm_idle_seconds, 1, 604'800),
      int_setting("drain_seconds", "Time for jobs to checkpoint when the daemon stops",
                  &Config::drain_seconds, 1, 3600),
      int_setting("cancel_grace_seconds", "Time between asking a worker to stop and SIGKILL",
                  &Config::cancel_grace_seconds, 1, 3600),
      int_setting("heartbeat_timeout_seconds", "Silence after which a worker is killed",
                  &Config::heartbeat_timeout_seconds, 2, 3600),
      int_setting("stall_timeout_seconds",
                  "Minimum time without a step after which a training worker is killed; 0: never",
                  &Config::stall_timeout_seconds, 0, 604'800),
      int_setting("predict_timeout_seconds", "Maximum time of one prediction",
                  &Config::predict_timeout_seconds, 1, 3600),
      int_setting("unattended_seconds",
                  "How long a training worker continues without a daemon; 0: ends with its daemon",
                  &Config::unattended_seconds, 0, 2'592'000),
      {"cluster", "File that describes a cluster that runs jobs (docs/cluster.md); repeatable",
       false, assign_cluster, true},
      {"keep_jobs",
       "Finished jobs to keep: all, the newest 1000 (1000), those of 90 days (90d), or both "
       "(1000,90d)",
       false, assign_keep_jobs},
      kept_time_setting("keep_events",
                        "How long finished jobs keep their log lines and past metrics: all, or a "
                        "time such as 90d",
                        &Config::keep_events_seconds),
      kept_time_setting("keep_audit",
                        "How long entries of the audit stay: all, or a time such as 400d",
                        &Config::keep_audit_seconds),
  };
  return table;
}

Status apply_setting(std::string_view name, std::string_view text, Config& config) {
  for (const Setting& s : settings()) {
    if (s.name == name) return s.assign(config, text);
  }
  std::vector<std::string> names;
  for (const Setting& s : settings()) names.push_back(s.name);
  const std::optional<std::string> near = nearest_name(name, names);
  return make_error(
      ErrorCode::kInvalidArgument, "CONFIG_INVALID",
      "unknown key " + quoted_value(name) + (near ? ", did you mean '" + *near + "'?" : ""));
}

Status apply_config_text(std::string_view text, const std::string& origin, Config& config) {
  const auto repeats = [](const std::string& key) {
    return std::ranges::any_of(settings(),
                               [&](const Setting& s) { return s.name == key && s.repeats; });
  };
  return read_settings(text, origin, repeats,
                       [&](const std::string& key, const std::string& value) {
                         return apply_setting(key, value, config);
                       });
}

bool HostPort::loopback() const {
  if (host == "localhost" || host == "::1") return true;
  in_addr v4{};
  return ::inet_pton(AF_INET, host.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

Result<HostPort> parse_host_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return refuse("listen", text, "host:port, as in 127.0.0.1:7450 or [::1]:7450");
  }
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse("listen", text, "an IPv6 address in brackets, as in [::1]:7450");
  }
  const std::optional<int64_t> port = parse_integer(text.substr(colon + 1));
  if (host.empty() || !port || *port < 0 || *port > 65535) {
    return refuse("listen", text, "host:port with a port up to 65535 (0: any free one)");
  }
  return HostPort{std::string(host), static_cast<int>(*port)};
}

std::string describe_config(const Config& c) {
  const auto line = [](const char* name, const std::string& value) {
    return value.empty() ? std::string() : std::string(name) + ": " + value + "\n";
  };
  std::string roots;
  for (const std::filesystem::path& root : c.ingest_roots) {
    roots += (roots.empty() ? "" : ", ") + YAML::Dump(YAML::Node(root.string()));
  }
  std::string clusters;
  for (const ClusterConfig& cluster : c.clusters)
    clusters += (clusters.empty() ? "" : ", ") + YAML::Dump(YAML::Node(cluster.file.string()));
  return line("state_dir", c.state_dir) + line("socket", c.socket) +
         line("socket_group", c.socket_group) + line("socket_role", c.socket_role) +
         line("front_socket", c.front_socket) + line("front_group", c.front_group) +
         line("listen", c.listen) + line("tls_certificate", c.tls_certificate) +
         line("tls_key", c.tls_key) + line("token_file", c.token_file) +
         line("workers_listen", c.workers_listen) + line("workers_advertise", c.workers_advertise) +
         line("insecure_listen", c.insecure_listen ? "true" : "false") +
         line("cpu_slots", std::to_string(c.cpu_slots)) +
         line("gpu_slots", std::to_string(c.gpu_slots)) +
         line("threads_per_job", std::to_string(c.threads_per_job)) +
         line("preemption", c.preemption ? "priority" : "off") +
         line("preempt_after_seconds", std::to_string(c.preempt_after_seconds)) +
         line("reserved_idle_seconds_max", std::to_string(c.reserved_idle_seconds_max)) +
         line("fair_share_half_life_hours", std::to_string(c.fair_share_half_life_hours)) +
         line("time_algorithms", c.time_algorithms ? "true" : "false") +
         line("cpu_price_per_hour", shortest(c.cpu_price_per_hour)) +
         line("gpu_price_per_hour", shortest(c.gpu_price_per_hour)) +
         line("measure_after_seconds", std::to_string(c.measure_after_seconds)) +
         line("cpu_memory_bytes_max",
              c.cpu_memory_bytes_max > 0 ? std::to_string(c.cpu_memory_bytes_max) : "") +
         line("log_level", c.log_level) +
         line("log_format", c.log_format == LogFormat::kJson ? "json" : "text") +
         line("worker", c.worker) + line("sandbox", sandbox_text(c.sandbox)) +
         line("upload_bytes_max", std::to_string(c.upload_bytes_max)) +
         line("disk_free_bytes_min", std::to_string(c.disk_free_bytes_min)) +
         line("ingest_root", roots.empty() ? "" : "[" + roots + "]") +
         line("queued_jobs_max", std::to_string(c.queued_jobs_max)) +
         line("watch_streams_max", std::to_string(c.watch_streams_max)) +
         line("predicts_max", std::to_string(c.predicts_max)) +
         line("warm_workers_max", std::to_string(c.warm_workers_max)) +
         line("warm_memory_bytes_max", std::to_string(c.warm_memory_bytes_max)) +
         line("warm_idle_seconds", std::to_string(c.warm_idle_seconds)) +
         line("drain_seconds", std::to_string(c.drain_seconds)) +
         line("cancel_grace_seconds", std::to_string(c.cancel_grace_seconds)) +
         line("heartbeat_timeout_seconds", std::to_string(c.heartbeat_timeout_seconds)) +
         line("stall_timeout_seconds", std::to_string(c.stall_timeout_seconds)) +
         line("predict_timeout_seconds", std::to_string(c.predict_timeout_seconds)) +
         line("unattended_seconds", std::to_string(c.unattended_seconds)) +
         line("cluster", clusters.empty() ? "" : "[" + clusters + "]") +
         line("keep_jobs", keep_jobs_text(c)) +
         line("keep_events", kept_time_text(c.keep_events_seconds)) +
         line("keep_audit", kept_time_text(c.keep_audit_seconds));
}

}  // namespace trainyard::server
