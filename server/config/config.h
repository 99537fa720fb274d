// server/config/config.h: the daemon's settings: one YAML file, then flags, which take precedence.
//
// Both come from one table (settings() in config.cc), so that a key of the file and its flag have
// one name (`state_dir`, `--state-dir`), one parser and one help text. Unknown keys, duplicate keys
// and values out of range are refused with file and line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/cluster.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Jobs on one GPU, where memory has room for more: each computes in turn, and the more there are
/// the less each gets of it.
inline constexpr int kGpuSlots = 8;

// Bounds of keep_jobs and keep_events.
inline constexpr int64_t kKeptNewestMax = 1'000'000'000;
inline constexpr int64_t kKeptSecondsMin = 3600;  // who waits for a job's end sees it
inline constexpr int64_t kKeptSecondsMax = int64_t{3650} * 24 * 3600;

/// Which finished jobs stay: a job stays that one of the two keeps.
struct KeptJobs {
  std::optional<int64_t> newest;                // so many that ended last
  std::optional<int64_t> younger_than_seconds;  // those that ended since
};

struct Config {
  std::filesystem::path state_dir;
  std::filesystem::path socket;  // default <state_dir>/trainyard.sock
  std::string listen;            // host:port; empty: no TCP
  std::filesystem::path tls_certificate;
  std::filesystem::path tls_key;
  std::filesystem::path token_file;
  bool insecure = false;
  std::string workers_listen;     // host:port for workers from elsewhere; empty: none come
  std::string workers_advertise;  // host:port by which they reach it; empty: workers_listen
  int cpu_slots = 0;              // jobs at a time on the CPU, at most; 0: as many as cores
  int gpu_slots = 0;              // jobs at a time on each GPU, at most; 0: kGpuSlots
  // CPU threads of one job; 0: the cores divided by cpu_slots if that is set, else all of them
  int threads_per_job = 0;
  bool preemption = false;          // by priority
  int preempt_after_seconds = 600;  // that a job has run at least before it is stopped for another
  // What is reserved for a job of unknown start stands free for it at most so long.
  int reserved_idle_seconds_max = 600;
  int fair_share_half_life_hours = 0;  // of what owners have used; 0: their shares do not matter
  bool time_algorithms =
      true;  // of GPU libraries, once for each problem; false: the first proposed
  double cpu_price_per_hour = 0;  // for forecasts, of the CPU and of one GPU, in one currency;
  double gpu_price_per_hour = 0;  // 0: none is set
  // Without a job, before rates of devices are measured; -1: they never are, and nothing is
  // forecast.
  int measure_after_seconds = 10;
  int64_t cpu_memory_bytes_max = 0;  // of one job on the CPU; 0: the machine's memory
  std::string log_level = "info";
  std::filesystem::path worker;  // default: trainyard-worker beside trainyardd
  int64_t upload_bytes_max = int64_t{64} << 30;
  int64_t disk_free_bytes_min = int64_t{1} << 30;   // below it nothing new is accepted; 0: no bound
  std::vector<std::filesystem::path> ingest_roots;  // whose files datasets may use
  int queued_jobs_max = 100'000;
  int watch_streams_max = 4096;
  int predicts_max = 2;      // models that predict at a time
  int warm_workers_max = 8;  // workers that keep their model between calls; 0: none
  int64_t warm_memory_bytes_max = int64_t{2} << 30;  // of those together
  int warm_idle_seconds = 300;                       // after which one ends
  int drain_seconds = 60;
  int cancel_grace_seconds = 30;  // from asking a worker to stop to SIGKILL
  int heartbeat_timeout_seconds = 30;
  int stall_timeout_seconds = 600;  // without progress, at least; 0: for ever
  int predict_timeout_seconds = 60;
  // How long a training worker goes on without a daemon; 0: it ends with its daemon.
  int unattended_seconds = 86'400;
  std::vector<ClusterConfig> clusters;         // clusters that take jobs
  std::optional<KeptJobs> keep_jobs;           // nothing: all
  std::optional<int64_t> keep_events_seconds;  // of finished jobs; nothing: for ever
};

/// One setting: how it is written and how its text becomes a value.
struct Setting {
  std::string name;  // as in the file; the flag is the same with dashes
  std::string help;
  bool is_switch = false;  // the flag takes no value
  std::function<Status(Config&, std::string_view text)> assign;
  bool repeats = false;  // each text adds a value: the flag several times, a list in the file
};
const std::vector<Setting>& settings();

/// Applies a configuration file's text. `origin` names it in messages. Refusals: CONFIG_INVALID.
Status apply_config_text(std::string_view text, const std::string& origin, Config& config);
/// Applies one flag.
Status apply_setting(std::string_view name, std::string_view text, Config& config);

/// Fills settings that depend on others and checks combinations: TLS certificate and key, a
/// listener that needs TLS and a token, a socket path that is too long. `program` is argv[0]'s real
/// path.
Status complete_config(const std::filesystem::path& program, Config& config);

struct HostPort {
  std::string host;  // without brackets
  int port = 0;
  bool loopback() const;
};
/// "127.0.0.1:7000", "[::1]:7000", "localhost:7000".
Result<HostPort> parse_host_port(std::string_view text);

/// The settings as a file would hold them, one line each: `--print-config`.
std::string describe_config(const Config& config);

}  // namespace trainyard::server
