#include "server/daemon/daemon.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "server/backup/staged_backup.h"
#include "server/check/state_check.h"
#include "server/config/log.h"
#include "server/config/private_files.h"
#include "server/daemon/cluster_placements.h"
#include "server/dispatch/dispatcher.h"
#include "server/files/removals.h"
#include "server/files/worker_files.h"
#include "server/handlers/access.h"
#include "server/handlers/call_frame.h"
#include "server/handlers/public_services.h"
#include "server/handlers/system_handlers.h"
#include "server/handlers/watch.h"
#include "server/handlers/worker_service.h"
#include "server/housekeeping/housekeeping.h"
#include "server/inventory/checked_inventory.h"
#include "server/inventory/drained_inventory.h"
#include "server/people/people.h"
#include "server/processes/process.h"
#include "server/processes/scratch.h"
#include "server/rpc/listener.h"
#include "server/rpc/tls_files.h"
#include "server/sandbox/sandbox.h"
#include "server/store/migrations.h"
#include "server/store/schema_copy.h"
#include "src/base/mutex.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/runtime/visible_gpus.h"

namespace trainyard::server {
namespace {

constexpr int kCheckThreadsMax = 4;  // the networks of a device check are small
constexpr int kExecutorThreads = 8;  // this many changes, other than submits, can share a commit
constexpr size_t kExecutorQueueMax = 1024;
// The largest specs take some 50 MiB each while they are read and planned: eight threads took more
// than 500 MiB when 16 clients sent such specs at once.
constexpr int kPlanningThreads = 2;
constexpr int kArrayThreads = 2;  // arrays that are planned concurrently
constexpr size_t kArrayQueueMax = 64;
constexpr int kTransferThreads = 8;  // files that are written or read concurrently
constexpr int kRemoteThreads = 4;    // the same, for remote workers
constexpr std::chrono::milliseconds kShutdownGrace{500};
constexpr const char* kWorkersIdentity = "workers.pem";  // next to the front end's sockets

Status check_worker_program(const std::filesystem::path& worker) {
  if (::access(worker.c_str(), X_OK) == 0) return {};
  return make_error(ErrorCode::kFailedPrecondition, "WORKER_MISSING",
                    "worker: " + worker.string() +
                        " is not an executable program; set `worker` to trainyard-worker");
}

/// Returns GPUs as the driver lists them, without checking that they compute correctly.
std::unique_ptr<Inventory> local_inventory(const Config& config) {
  InventoryOptions options;
  options.cpu_slots = config.cpu_slots;
  options.gpu_slots = config.gpu_slots;
  // An installation, and the build tree, have bin/ next to lib/trainyard/.
  options.cuda_module =
      config.worker.parent_path().parent_path() / "lib/trainyard/libtrainyard_cuda.so";
  options.visible_gpus = visible_gpus_setting();
  return make_local_inventory(std::move(options));
}

SupervisorOptions supervisor_options(const Config& config, const StatePaths& paths,
                                     const DaemonParts& parts) {
  SupervisorOptions options;
  options.worker = config.worker;
  options.socket = paths.worker_socket();
  options.log_dir = paths.logs();
  options.heartbeat_ms = parts.worker_heartbeat_ms;
  options.kill_grace_ms = parts.worker_kill_grace_ms;
  options.adopt_orphans = parts.adopt_orphans;
  options.silence_ms = int64_t{config.heartbeat_timeout_seconds} * 1000;
  options.stall_ms = parts.worker_stall_ms > 0 ? parts.worker_stall_ms
                                               : int64_t{config.stall_timeout_seconds} * 1000;
  options.stop_grace_ms = int64_t{config.cancel_grace_seconds} * 1000;
  options.unattended_ms = int64_t{config.unattended_seconds} * 1000;
  options.sandbox = config.sandbox;
  if (const std::vector<std::string> missing = missing_restrictions(probe_sandbox_host());
      !missing.empty()) {
    options.sandbox_missing = missing.front();
  }
  return options;
}

Policy policy_of(const Config& config) {
  Policy policy;
  if (config.preemption) policy.preemption = Preemption::kPriority;
  policy.preempt_after_us = int64_t{config.preempt_after_seconds} * 1'000'000;
  policy.reserved_idle_max_us = int64_t{config.reserved_idle_seconds_max} * 1'000'000;
  policy.half_life_us = int64_t{config.fair_share_half_life_hours} * 3600 * 1'000'000;
  return policy;
}

WarmOptions warm_options(const Config& config, const StatePaths& paths) {
  return {.paths = paths,
          .threads = config.threads_per_job,
          .workers_max = config.warm_workers_max,
          .bytes_max = config.warm_memory_bytes_max,
          .idle_max_ms = int64_t{config.warm_idle_seconds} * 1000};
}

/// Identifies the worker's build, for which measured rates are valid, by the file's size and time.
std::string build_of(const std::filesystem::path& worker) {
  std::error_code ec;
  const auto size = std::filesystem::file_size(worker, ec);
  const auto time = std::filesystem::last_write_time(worker, ec).time_since_epoch().count();
  return "worker " + std::to_string(size) + "-" + std::to_string(time);
}

/// Returns the prices of the kinds of devices that have one.
DevicePrices prices_of(const Config& config) {
  DevicePrices prices{{"cpu", config.cpu_price_per_hour}, {"gpu", config.gpu_price_per_hour}};
  for (const ClusterConfig& cluster : config.clusters) {
    prices[std::string(kClusterPrefix) + cluster.name] = cluster.price_per_hour;
  }
  return prices;
}

ForecasterOptions forecaster_options(const Config& config) {
  return {.threads_per_job = config.threads_per_job,
          .cpu_price_per_hour = config.cpu_price_per_hour,
          .gpu_price_per_hour = config.gpu_price_per_hour,
          .idle_us = int64_t{config.measure_after_seconds} * 1'000'000,
          .build = build_of(config.worker)};
}

}  // namespace

/// The members are in the order in which they start; they stop in the reverse order.
struct Daemon::Impl {
  Impl(Config c, DaemonParts& parts, std::unique_ptr<Store> s)
      : config(std::move(c)),
        paths(config.state_dir),
        inventory(
            std::make_unique<CheckedInventory>(with_drains(parts, &drained_devices), *parts.clock)),
        store(std::move(s)),
        people(*store, *parts.clock, *project_role_named(config.socket_role)),
        hub(*store),
        cluster_rates(std::make_shared<ClusterRates>(*store, config.clusters, parts.cluster_rates,
                                                     *parts.clock)),
        disk(paths.root(), config.disk_free_bytes_min, parts.free_bytes),
        executor(kExecutorThreads, kExecutorQueueMax),
        planning(kPlanningThreads, kExecutorQueueMax),
        arrays(kArrayThreads, kArrayQueueMax),
        transfers(kTransferThreads, kExecutorQueueMax),
        remote_io(serves_remote_workers(config) ? kRemoteThreads : 0, kExecutorQueueMax),
        supervisor(supervisor_options(config, paths, parts), *parts.clock),
        worker_files(supervisor, *parts.files, disk),
        dispatcher(*store, supervisor, *inventory, *parts.files, dispatcher_options(), *parts.clock,
                   cluster_setup(parts)),
        ingest(*store, supervisor, *parts.files, paths, config.ingest_roots, *parts.clock,
               parts.ingest_unattended_ms),
        predict(supervisor, warm_options(config, paths), config.predicts_max,
                int64_t{config.predict_timeout_seconds} * 1000, *parts.clock),
        one_shot_tasks(supervisor, paths, config.ingest_roots),
        forecaster(*store, *inventory, forecaster_options(config), *parts.clock),
        access(people, *store),
        frame{executor, planning, arrays, transfers, people, access},
        jumps(*parts.files, paths.root() / "clock", *parts.clock),
        housekeeping_parts{config, paths, *parts.clock,   *parts.files,
                           *store, jumps, frame.draining, backing_up},
        housekeeping(housekeeping_parts) {
    frame.audit = &store->audit();
    people.observe([this] { frame.streams.check_all(); });
  }

  std::unique_ptr<Inventory> with_drains(DaemonParts& parts, DrainedInventory** out) const {
    auto inner = std::make_unique<DrainedInventory>(parts.inventory ? std::move(parts.inventory)
                                                                    : local_inventory(config));
    *out = inner.get();
    return inner;
  }
  DispatcherOptions dispatcher_options() const {
    DispatcherOptions options{paths, config.threads_per_job, config.time_algorithms,
                              policy_of(config)};
    options.project_devices = [this] {
      const auto lists = people.project_devices();
      return ProjectDevices(lists.begin(), lists.end());
    };
    return options;
  }
  ClusterSetup cluster_setup(const DaemonParts& parts) {
    ClusterSetup setup;
    setup.clusters = make_clusters(config.clusters, parts.make_placement);
    setup.instance = [this] { return sha256_hex(worker_endpoint->certificate_pem()).substr(0, 8); };
    setup.attach = [this] { return worker_endpoint->attach_address(); };
    setup.certificate_pem = [this] { return worker_endpoint->certificate_pem(); };
    setup.rates = cluster_rates;
    setup.secret = [this](const std::string& task) {
      return worker_endpoint->enrolment_secret(task);
    };
    return setup;
  }
  Status open(const DaemonParts& parts);
  /// Reads the file of tokens and the certificate, and warns of settings that are not safe.
  Status read_credentials();
  Status open_worker_listeners();
  /// Passes the drained devices in the store to the inventory.
  Status read_drains();
  void report_sandbox();
  void read_secrets();
  void stop(bool leave_training);
  void warn(const std::string& event, const std::string& message) {
    spdlog::warn("event={} {}", event, kv("message", message));
    warnings.push_back(message);
  }

  const Config config;
  const StatePaths paths;
  DrainedInventory* drained_devices = nullptr;  // owned by `inventory`
  std::unique_ptr<CheckedInventory> inventory;
  std::unique_ptr<Store> store;
  People people;
  EventHub hub;
  const std::shared_ptr<ClusterRates> cluster_rates;
  DiskWatch disk;
  Executor executor;
  Executor planning;
  Executor arrays;
  Executor transfers;
  Executor remote_io;  // files of remote workers, so that a slow link delays nobody on this host
  Supervisor supervisor;
  WorkerFiles worker_files;
  Dispatcher dispatcher;
  IngestRunner ingest;
  PredictRunner predict;
  OneShotTasks one_shot_tasks;
  Forecaster forecaster;
  const Access access;
  CallFrame frame;
  std::atomic<bool> backing_up{false};
  std::vector<std::string> warnings;  // for ServerInfo
  ClockJumps jumps;
  const HousekeepingParts housekeeping_parts;
  Housekeeping housekeeping;
  std::unique_ptr<PublicServices> services;
  std::unique_ptr<WorkerEndpoint> worker_endpoint;
  std::unique_ptr<grpc::Service> worker_service;
  std::unique_ptr<grpc::Service> remote_service;
  std::unique_ptr<Listener> private_listener;
  std::unique_ptr<Listener> workers_listener;
  std::unique_ptr<Listener> public_listener;
  std::atomic<bool> store_failed{false};
  Mutex drains_mu;  // serializes read_drains(), so that the last call sets the newest list
  bool drained = false;
};

Status Daemon::Impl::read_drains() {
  const MutexLock lock(drains_mu);
  ASSIGN_OR_RETURN(const std::vector<DeviceDrain> stored, store->drains().list());
  std::vector<Drain> drains;
  for (const DeviceDrain& drain : stored) {
    drains.push_back({drain.device, drain_text(drain, /*with_owner=*/false), drain.vacate});
  }
  drained_devices->set(std::move(drains));
  return {};
}

void Daemon::Impl::report_sandbox() {
  const SandboxHost host = probe_sandbox_host();
  const std::string parts = config.sandbox == SandboxMode::kOff ? "off" : describe(host);
  spdlog::info("event=sandbox {}", kv("parts", parts));
  if (config.sandbox == SandboxMode::kOff) {
    return warn("sandbox_off", "workers run without a sandbox (the setting sandbox is off)");
  }
  for (const std::string& missing : missing_restrictions(host)) warn("sandbox_incomplete", missing);
}

Status Daemon::Impl::open(const DaemonParts& parts) {
  if (Status s = paths.create(*parts.files); !s.ok()) return s;
  if (Status s = empty_folder(*parts.files, paths.scratches()); !s.ok()) return s;
  if (Status s = people.reload(); !s.ok()) return s;
  if (Status s = read_credentials(); !s.ok()) return s;
  report_sandbox();
  StagedBackup::remove_leftovers(paths);
  if (Status s = read_drains(); !s.ok()) return s;
  if (Status s = forecaster.open(); !s.ok()) return s;
  if (Status s = cluster_rates->open(); !s.ok()) return s;
  if (serves_remote_workers(config)) {
    ASSIGN_OR_RETURN(worker_endpoint, WorkerEndpoint::open(config.state_dir, config.workers_listen,
                                                           config.workers_advertise));
  }
  if (Status s = dispatcher.recover(); !s.ok()) return s;
  finish_removals(*store, *parts.files, paths);
  if (Status s = open_worker_listeners(); !s.ok()) return s;
  const auto drains_changed = [this]() -> Status {
    if (Status s = read_drains(); !s.ok()) return s;
    dispatcher.devices_changed();
    return {};
  };
  const auto check_devices = [this](const std::vector<std::string>& list) {
    std::vector<std::string> known;
    for (const Device& device : inventory->read().devices) known.push_back(device.name);
    for (const ClusterConfig& cluster : config.clusters) {
      known.push_back(std::string(kClusterPrefix) + cluster.name);
    }
    return check_list(list, known);
  };
  services = std::make_unique<PublicServices>(ServiceParts{frame,
                                                           housekeeping_parts,
                                                           backing_up,
                                                           hub,
                                                           *inventory,
                                                           dispatcher,
                                                           ingest,
                                                           predict,
                                                           one_shot_tasks,
                                                           forecaster,
                                                           *cluster_rates,
                                                           disk,
                                                           warnings,
                                                           drains_changed,
                                                           [this] { dispatcher.devices_changed(); },
                                                           check_devices,
                                                           [this] { dispatcher.devices_changed(); },
                                                           parts.clock->wall_us(),
                                                           parts.backup_stall_ms,
                                                           parts.watch_heartbeat_ms});
  if (Status s = ingest.recover(); !s.ok()) return s;
  ASSIGN_OR_RETURN(public_listener, Listener::open_public(config, people, services->all(),
                                                          services->names(), parts.connections));
  frame.store_failed = [this] {
    if (store_failed.exchange(true)) return;
    spdlog::error("event=store_failed {}", kv("remedy", "check the disk, restart the daemon"));
    public_listener->set_serving(false);
  };
  inventory->start(
      [this](const Device& device, CheckedInventory::Done done) {
        one_shot_tasks.check_device(device, std::min(config.threads_per_job, kCheckThreadsMax),
                                    std::move(done));
      },
      [this] { dispatcher.devices_changed(); });
  dispatcher.start();
  forecaster.start([this](const Device& device, int32_t threads, v1::Recipe::Precision precision,
                          Done<std::string> done) {
    one_shot_tasks.calibrate(device, threads, precision, std::move(done));
  });
  housekeeping.start(parts.housekeeping_pause_ms);
  disk.start(std::chrono::milliseconds(parts.disk_watch_pause_ms));
  return {};
}

Status Daemon::Impl::read_credentials() {
  if (!config.token_file.empty()) {
    ASSIGN_OR_RETURN(const Tokens tokens, Tokens::load(config.token_file));
    people.set_file_tokens(tokens);
    if (const std::string text = tokens.warning(); !text.empty()) warn("token_without_name", text);
  }
  if (const std::optional<std::string> warning = sqlite_warning())
    warn("sqlite_version_unsafe", *warning);
  if (config.insecure_listen && !config.listen.empty()) {
    warn("listener_insecure", "listen " + config.listen + " is served without " +
                                  (config.tls_certificate.empty() ? "TLS and without " : "") +
                                  "a front end that limits strangers (insecure_listen is set)");
  }
  if (!config.tls_certificate.empty()) {
    ASSIGN_OR_RETURN(const TlsFiles tls, read_tls_files(config));
    if (tls.warning) warn("certificate_not_valid", *tls.warning);
  }
  return {};
}

Status Daemon::Impl::open_worker_listeners() {
  worker_service = make_worker_service(supervisor, executor);
  ASSIGN_OR_RETURN(private_listener,
                   Listener::open_private(paths.worker_socket(), worker_service.get()));
  if (!worker_endpoint) return {};
  remote_service = make_remote_service(supervisor, executor, worker_files, remote_io);
  if (const std::filesystem::path socket = workers_front_socket(config); !socket.empty()) {
    ASSIGN_OR_RETURN(const std::optional<gid_t> group, find_front_group(config));
    const std::filesystem::path identity = socket.parent_path() / kWorkersIdentity;
    if (Status s = worker_endpoint->write_identity(identity, group); !s.ok()) return s;
    ASSIGN_OR_RETURN(workers_listener,
                     Listener::open_front_workers(socket, group, remote_service.get()));
  } else {
    ASSIGN_OR_RETURN(
        workers_listener,
        Listener::open_workers(config.workers_listen, worker_endpoint->key_pem(),
                               worker_endpoint->certificate_pem(), remote_service.get()));
    worker_endpoint->set_port(workers_listener->port());
  }
  spdlog::info("event=worker_endpoint_opened {} {} {}", kv("listen", config.workers_listen),
               kv("front_socket", workers_front_socket(config).string()),
               kv("attach", worker_endpoint->attach_address()));
  return {};
}

Result<std::unique_ptr<Daemon>> Daemon::start(Config config, DaemonParts parts) {
  if (Status s = check_worker_program(config.worker); !s.ok()) return s.error();
  if (Status s = check_clusters(config.clusters); !s.ok()) return s.error();
  if (Status s = check_private_files(config); !s.ok()) return s.error();
  StoreOptions options;
  options.state_dir = config.state_dir;
  options.queued_jobs_max = config.queued_jobs_max;
  options.prices = prices_of(config);
  options.free_bytes = parts.free_bytes;
  options.copied = [](const SchemaCopy& copy) {
    spdlog::info("event=store_copied {} schema={} next_schema={} bytes={}",
                 kv("name", copy.path.filename().string()), copy.schema, newest_schema_version(),
                 bytes_below(copy.path));
  };
  options.disk_full = [](bool full) {
    if (full) {
      spdlog::error("event=disk_full {}",
                    kv("remedy", "free space: metrics and checkpoints are not stored"));
    } else {
      spdlog::info("event=disk_full_over");
    }
  };
  ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Store::open(std::move(options), *parts.clock));
  std::unique_ptr<Daemon> daemon(
      new Daemon(std::make_unique<Impl>(std::move(config), parts, std::move(store))));
  if (Status s = daemon->impl_->open(parts); !s.ok()) {
    daemon->impl_->drained = true;  // nothing was served yet
    daemon->impl_->supervisor.release();
    return s.error();
  }
  const Config& c = daemon->impl_->config;
  spdlog::info("event=daemon_started version={} {} {} {} port={}", TRAINYARD_VERSION,
               kv("socket", c.socket.string()), kv("front_socket", c.front_socket.string()),
               kv("listen", c.listen), daemon->impl_->public_listener->port());
  return daemon;
}

void Daemon::read_secrets() { impl_->read_secrets(); }

void Daemon::Impl::read_secrets() {
  if (!config.token_file.empty()) {
    Result<Tokens> tokens = Tokens::load(config.token_file);
    if (tokens.ok()) {
      people.set_file_tokens(std::move(tokens).value());
      spdlog::info("event=token_file_read {}", kv("path", config.token_file.string()));
    } else {
      spdlog::error("event=token_file_refused {}",
                    kv("message", tokens.error().message + "; the earlier tokens stay valid"));
    }
  }
  if (config.tls_certificate.empty()) return;
  const Result<TlsFiles> tls = read_tls_files(config);
  if (tls.ok()) {
    spdlog::info("event=certificate_read {}", kv("certificate", tls->summary));
  } else {
    spdlog::error("event=certificate_refused {}", kv("message", tls.error().message));
  }
}

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Daemon::~Daemon() {
  drain();
  // Workers that still run have used up their time or were never started.
  impl_->supervisor.kill_all();
  impl_->supervisor.wait_idle(5000);
}

int Daemon::port() const { return impl_->public_listener ? impl_->public_listener->port() : 0; }

const WorkerEndpoint* Daemon::worker_endpoint() const { return impl_->worker_endpoint.get(); }

void Daemon::kill_workers() {
  impl_->supervisor.kill_all();
  impl_->supervisor.wait_idle(2000);
}

void Daemon::drain() { impl_->stop(/*leave_training=*/false); }

void Daemon::leave() { impl_->stop(/*leave_training=*/true); }

void Daemon::Impl::stop(bool leave_training) {
  if (std::exchange(drained, true)) return;
  const int64_t drain_ms = int64_t{config.drain_seconds} * 1000;
  // Workers get most of the time for their checkpoints; the rest is for the end of this process.
  const int64_t grace_ms = drain_ms - std::min<int64_t>(2000, drain_ms / 5);
  spdlog::info("event={} workers={} grace_ms={}",
               leave_training ? "daemon_stop_started" : "daemon_drain_started",
               supervisor.task_count(), grace_ms);
  public_listener->set_serving(false);
  frame.draining = true;
  frame.drain_stop.request_stop();
  services->watch_streams().drain();
  predict.drain();
  housekeeping.stop();
  inventory->stop();
  one_shot_tasks.drain();
  forecaster.stop();
  ingest.drain();
  if (leave_training) {
    dispatcher.halt();
  } else {
    dispatcher.drain(grace_ms);
    supervisor.stop_all("drain", grace_ms);
    if (!supervisor.wait_idle(grace_ms + 500)) supervisor.kill_all();
    supervisor.wait_idle(1000);
  }
  public_listener->shutdown(kShutdownGrace);
  private_listener->shutdown(kShutdownGrace);
  if (workers_listener) workers_listener->shutdown(kShutdownGrace);
  planning.stop();
  arrays.stop();
  transfers.stop();
  remote_io.stop();
  executor.stop();
  // Release the workers only after their connections are closed: otherwise a worker could be told
  // that it is unknown here.
  if (leave_training) supervisor.release();
  spdlog::info("event=daemon_stopped");
}

namespace {

/// Reports which parts of the workers' sandbox this host has.
void check_sandbox(const Config& config, const std::function<void(const std::string&)>& line) {
  if (config.sandbox == SandboxMode::kOff) return line("sandbox  off");
  const SandboxHost host = probe_sandbox_host();
  line("sandbox  ok  " + describe(host) + "; tasks on GPUs have none");
  for (const std::string& missing : missing_restrictions(host))
    line("sandbox  warning  " + missing);
}

/// Checks the files and the group that the listeners need.
Status check_listeners(const Config& config, const std::function<void(const std::string&)>& line) {
  ASSIGN_OR_RETURN(const std::optional<gid_t> group, find_socket_group(config));
  if (group) line("socket   ok  for the group " + config.socket_group);
  if (!config.front_socket.empty()) {
    ASSIGN_OR_RETURN(const std::optional<gid_t> front_group, find_front_group(config));
    line("front    ok  " + config.front_socket.string() +
         (front_group ? " for the group " + config.front_group : ""));
  }
  if (!config.tls_certificate.empty()) {
    ASSIGN_OR_RETURN(const TlsFiles tls, read_tls_files(config));
    line("tls      ok  " + tls.summary);
    if (tls.warning) line("tls      warning  " + *tls.warning);
  }
  if (Status s = check_clusters(config.clusters); !s.ok()) return s;
  if (!serves_remote_workers(config)) return {};
  if (Status s = WorkerEndpoint::check(config.state_dir); !s.ok()) return s;
  line("workers  ok  " + (config.workers_listen.empty() ? workers_front_socket(config).string()
                                                        : config.workers_listen));
  return {};
}

}  // namespace

Result<bool> check_installation(const Config& config,
                                const std::function<void(const std::string&)>& line,
                                const std::function<void(const std::string&)>& progress) {
  line("config   ok");
  if (Status s = check_worker_program(config.worker); !s.ok()) return s.error();
  line("worker   ok  " + config.worker.string());
  check_sandbox(config, line);
  if (Status s = check_private_files(config); !s.ok()) return s.error();
  if (!config.token_file.empty()) {
    ASSIGN_OR_RETURN(const Tokens tokens, Tokens::load(config.token_file));
    line("token    ok");
  }
  if (Status s = check_listeners(config, line); !s.ok()) return s.error();
  ASSIGN_OR_RETURN(const StateCheck state, check_state(config.state_dir, line, progress));
  if (const std::optional<std::string> warning = sqlite_warning()) {
    line("store    warning  " + *warning);
  }
  DiskWatch disk(config.state_dir, config.disk_free_bytes_min, &free_bytes_of);
  if (const std::optional<std::string> low = disk.warning()) line("disk     warning  " + *low);
  const Devices devices = local_inventory(config)->read();
  for (const Device& device : devices.devices) {
    line("device   " + std::string(device.schedulable ? "ok  " : "unusable  ") + device.name +
         "  " + device.model + ", " + human_bytes(device.memory_bytes) +
         (device.reason.empty() ? "" : "  (" + device.reason + ")"));
  }
  if (!devices.note.empty()) line("device   note  " + devices.note);
  return state.damaged == 0;
}

Result<std::string> undo_upgrade_of(const Config& config) {
  const auto is_alive = [](int32_t pid, int64_t process_start) {
    return process_start != 0 && process_start_time(pid) == process_start;
  };
  ASSIGN_OR_RETURN(const UndoneUpgrade undone, undo_upgrade(config.state_dir, is_alive));
  const std::string before = std::to_string(undone.schema);
  return "The store of schema " + before +
         " is restored, without the data stored after the upgrade; now start the trainyardd of "
         "schema " +
         before + ". The store of schema " + std::to_string(undone.upgraded.schema) +
         " is kept as " + undone.upgraded.path.filename().string() +
         ": the same command restores it, and the next upgrade replaces it.";
}

}  // namespace trainyard::server
