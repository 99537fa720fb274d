// server/config/config.h: the daemon's settings: one YAML file, then flags, which take precedence.
//
// The keys of the file and the flags come from one table (settings() in config.cc), so that a key
// of the file and its flag have one name (`state_dir`, `--state-dir`), one parser and one help
// text. Unknown keys, duplicate keys and values out of range are refused with file and line.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/cluster.h"
#include "server/config/log.h"
#include "src/base/result.h"

namespace trainyard::server {

/// The largest number of jobs on one GPU, even if its memory has room for more. Jobs share a GPU's
/// time, so each gets less the more there are.
inline constexpr int kGpuSlots = 8;

// Bounds of keep_jobs, keep_events and keep_audit.
inline constexpr int64_t kKeptNewestMax = 1'000'000'000;
// Long enough for clients that wait for a job's end to see it.
inline constexpr int64_t kKeptSecondsMin = 3600;
inline constexpr int64_t kKeptSecondsMax = int64_t{3650} * 24 * 3600;

/// The finished jobs to keep: a job is kept if at least one of the two rules keeps it.
struct KeptJobs {
  std::optional<int64_t> newest;                // keep this many of the jobs that ended last
  std::optional<int64_t> younger_than_seconds;  // keep jobs that ended within this time
};

/// What happens if this host lacks a part of the workers' sandbox (server/sandbox): kAuto uses the
/// other parts and warns, kRequired refuses tasks, also those on GPUs, which have no sandbox.
enum class SandboxMode : uint8_t { kAuto, kRequired, kOff };

struct Config {
  std::filesystem::path state_dir;
  std::filesystem::path socket;  // default <state_dir>/trainyard.sock
  std::string socket_group;      // its members may use the socket; empty: only the daemon's user
  // Role in the project "default" of those to whom the store gives none there: none, viewer, member
  // or maintainer.
  std::string socket_role = "member";
  // The Unix socket of the front end, in a folder of its own; empty: there is no front end.
  std::filesystem::path front_socket;
  std::string front_group;  // its members may use front_socket; empty: only the daemon's user
  std::string listen;       // host:port; empty: no TCP
  std::filesystem::path tls_certificate;
  std::filesystem::path tls_key;
  std::filesystem::path token_file;
  bool insecure_listen = false;  // `listen` may be an address beyond loopback
  std::string workers_listen;    // host:port for remote workers; empty: no port of the daemon's own
  // host:port at which they reach the daemon or its front end; empty: workers_listen
  std::string workers_advertise;
  int cpu_slots = 0;  // the largest number of jobs at a time on the CPU; 0: number of cores
  int gpu_slots = 0;  // the largest number of jobs at a time on each GPU; 0: kGpuSlots
  // CPU threads of one job; 0: the number of cores divided by cpu_slots, or all cores if that is 0.
  int threads_per_job = 0;
  bool preemption = false;          // true: jobs of higher priority preempt others
  int preempt_after_seconds = 600;  // a job is not preempted before it has run for this time
  // The longest time for which a reserved device may stay idle if the reservation's start is
  // unknown.
  int reserved_idle_seconds_max = 600;
  int fair_share_half_life_hours = 0;  // half-life of owners' use of devices; 0: no fair share
  // Whether to time the algorithms of the GPU libraries once for each problem; false: use the first
  // one that the library proposes.
  bool time_algorithms = true;
  // Prices for forecasts, of the CPU and of one GPU, in the same currency; 0: unknown.
  double cpu_price_per_hour = 0;
  double gpu_price_per_hour = 0;
  // Idle time before the rates of devices are measured; -1: never, and then nothing is forecast.
  int measure_after_seconds = 10;
  int64_t cpu_memory_bytes_max = 0;  // limit of one job on the CPU; 0: the machine's memory
  std::string log_level = "info";
  LogFormat log_format = LogFormat::kText;
  std::filesystem::path worker;  // default: trainyard-worker in the folder of trainyardd
  SandboxMode sandbox = SandboxMode::kAuto;
  int64_t upload_bytes_max = int64_t{64} << 30;
  // Below this, nothing new is accepted; 0: no bound.
  int64_t disk_free_bytes_min = int64_t{1} << 30;
  std::vector<std::filesystem::path> ingest_roots;  // folders whose files datasets may use
  int queued_jobs_max = 100'000;
  int watch_streams_max = 4096;
  int predicts_max = 2;  // the largest number of models that predict at a time
  // The largest number of workers that keep their model loaded between calls; 0: none.
  int warm_workers_max = 8;
  int64_t warm_memory_bytes_max = int64_t{2} << 30;  // limit of these workers together
  int warm_idle_seconds = 300;                       // idle time after which such a worker ends
  int drain_seconds = 60;
  int cancel_grace_seconds = 30;  // from the request to stop a worker to SIGKILL
  int heartbeat_timeout_seconds = 30;
  // Shortest time without progress after which a worker is ended; 0: never.
  int stall_timeout_seconds = 600;
  int predict_timeout_seconds = 60;
  // How long a training worker continues without a daemon; 0: it ends with its daemon.
  int unattended_seconds = 86'400;
  std::vector<ClusterConfig> clusters;         // clusters that run jobs
  std::optional<KeptJobs> keep_jobs;           // nothing: keep all
  std::optional<int64_t> keep_events_seconds;  // for finished jobs; nothing: keep them forever
  std::optional<int64_t> keep_audit_seconds = int64_t{400} * 24 * 3600;  // nothing: keep all
};

/// One setting: its name and help text, and the function that parses it.
struct Setting {
  std::string name;  // the key in the file; the flag has dashes instead of underscores
  std::string help;
  bool is_switch = false;  // true: the flag takes no value
  std::function<Status(Config&, std::string_view text)> assign;
  // true: it has several values, given as a repeated flag or as a list in the file
  bool repeats = false;
};
const std::vector<Setting>& settings();

/// Applies a configuration file's text. `origin` names the file in messages. Error: CONFIG_INVALID.
Status apply_config_text(std::string_view text, const std::string& origin, Config& config);
/// Applies one flag. Error: CONFIG_INVALID.
Status apply_setting(std::string_view name, std::string_view text, Config& config);

/// Returns whether workers on other hosts are served, at a port of the daemon or through its front
/// end.
bool serves_remote_workers(const Config& config);
/// Returns the Unix socket at which the front end serves remote workers: workers.sock next to
/// front_socket. Empty if they do not come through a front end.
std::filesystem::path workers_front_socket(const Config& config);

/// Sets defaults that depend on other settings and checks combinations: TLS certificate and key, an
/// address beyond loopback, the folder of front_socket, a socket path that is too long. `program`
/// is the real path of argv[0].
Status complete_config(const std::filesystem::path& program, Config& config);

struct HostPort {
  std::string host;  // without brackets
  int port = 0;
  bool loopback() const;
};
/// Parses "127.0.0.1:7000", "[::1]:7000" or "localhost:7000".
Result<HostPort> parse_host_port(std::string_view text);

/// These two return the ID of socket_group and of front_group, or nothing if it is not set.
/// CONFIG_INVALID if this machine has no such group. Not part of complete_config(), so that
/// `--print-config` works on any machine.
Result<std::optional<gid_t>> find_socket_group(const Config& config);
Result<std::optional<gid_t>> find_front_group(const Config& config);

/// Returns the settings in the form of a configuration file, one line each, for `--print-config`.
std::string describe_config(const Config& config);

}  // namespace trainyard::server
