#include "server/worker/remote_run.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "proto/convert/run.h"
#include "server/protocol/enrolment.h"
#include "server/protocol/time_limit.h"
#include "server/protocol/versions.h"
#include "server/worker/node_cache.h"
#include "server/worker/node_measure.h"
#include "server/worker/outcome.h"
#include "server/worker/remote_files.h"
#include "server/worker/rendezvous.h"
#include "server/worker/report_stream.h"
#include "server/worker/uplink.h"
#include "server/worker/worker.h"
#include "src/base/files.h"
#include "src/base/hmac.h"
#include "src/base/mutex.h"
#include "src/base/wait_for_stop.h"
#include "src/checkpoint/checkpoint.h"
#include "src/runtime/join.h"
#include "src/runtime/visible_gpus.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using Steady = std::chrono::steady_clock;

constexpr int64_t kPemBytesMax = 64 << 10;
constexpr size_t kKeyBytes = 32;
constexpr std::chrono::seconds kCallTimeout{20};
constexpr std::chrono::milliseconds kRetryPause{500};
constexpr std::chrono::milliseconds kPollPause{250};
constexpr int64_t kOthersClocksS = 5;

/// Proves to the daemon which worker calls. It is empty until the worker has enrolled.
class CallCredential {
 public:
  void set(std::string task, std::string credential) {
    const MutexLock lock(mu_);
    task_ = std::move(task);
    credential_ = std::move(credential);
  }
  void add_to(std::multimap<grpc::string, grpc::string>& metadata) {
    const MutexLock lock(mu_);
    if (credential_.empty()) return;
    metadata.emplace(kTaskMetadata, task_);
    metadata.emplace(kCredentialMetadata, credential_);
  }

 private:
  Mutex mu_;
  std::string task_ TRAINYARD_GUARDED_BY(mu_);
  std::string credential_ TRAINYARD_GUARDED_BY(mu_);
};

/// Adds the credential to the metadata of every call of a channel.
class CredentialMetadata final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit CredentialMetadata(std::shared_ptr<CallCredential> credential)
      : credential_(std::move(credential)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    credential_->add_to(*metadata);
    return grpc::Status::OK;
  }

 private:
  const std::shared_ptr<CallCredential> credential_;
};

/// Opens a channel that trusts only `certificate`, under the name kWorkersName, which need not be
/// the host's name.
std::shared_ptr<grpc::Channel> open_channel(const std::string& address,
                                            const std::string& certificate,
                                            std::shared_ptr<CallCredential> credential) {
  grpc::SslCredentialsOptions trusted;
  trusted.pem_root_certs = certificate;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kWorkersName);
  arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, 8 << 20);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5'000);
  // Keepalives detect a silently broken connection.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(
      address,
      grpc::CompositeChannelCredentials(
          grpc::SslCredentials(trusted),
          grpc::MetadataCredentialsFromPlugin(
              std::make_unique<CredentialMetadata>(std::move(credential)))),
      arguments);
}

/// A thread that keeps gRPC connecting. gRPC continues a connection attempt only while a thread
/// waits for it, and a TLS handshake takes several rounds. Without this thread, calls that fail
/// immediately would never complete a connection.
class ChannelPoll {
 public:
  explicit ChannelPoll(const std::shared_ptr<grpc::Channel>& channel)
      : thread_([channel](const std::stop_token& over) {
          while (!over.stop_requested()) {
            const auto end = std::chrono::system_clock::now() + kPollPause;
            (void)channel->WaitForStateChange(channel->GetState(/*try_to_connect=*/true), end);
          }
        }) {}

 private:
  std::jthread thread_;
};

/// Repeats the call until the daemon has responded or `timeout` is over.
Status call_with_retries(std::chrono::seconds timeout, const std::stop_token& stop,
                         const std::function<grpc::Status(grpc::ClientContext&)>& call) {
  const Steady::time_point end = Steady::now() + timeout;
  for (;;) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    const grpc::Status status = call(context);
    if (status.ok()) return {};
    Error error = error_of(status);
    const bool may_pass = error.code == ErrorCode::kUnavailable || status.error_details().empty();
    if (!may_pass || error.reason == "VERSION_SKEW" || Steady::now() > end) return error;
    wait_for_stop(stop, kRetryPause);
    if (stop.stop_requested()) {
      return make_error(ErrorCode::kCancelled, "STOPPED", "stopped before it had connected");
    }
  }
}

/// A thread that stops the worker shortly before the host's time limit, and ends the process when
/// the daemon has fenced it.
class Watch {
 public:
  Watch(int64_t end_time_s, std::stop_source& stop, ReportStream& stream, Uplink& uplink,
        WorkFolder& work)
      : end_time_s_(end_time_s),
        uplink_(uplink),
        thread_([=, &stop, &stream, &uplink, &work, this](const std::stop_token& over) {
          while (!over.stop_requested()) {
            if (stream.fenced()) {  // another attempt may run, so this one's work is discarded
              std::fprintf(stderr, "trainyard-worker: event=attempt_fenced\n");
              work.remove();
              std::_Exit(1);
            }
            if (stream.out_of_reach()) uplink.abandon();
            if (end_time_s > 0 && !stop.stop_requested() &&
                std::time(nullptr) >= stop_time_s(begin_s_, end_time_s, uplink.last_push())) {
              time_limit_ = true;
              stop.request_stop();
            }
            wait_for_stop(over, kPollPause);
          }
        }) {}
  /// Returns whether the worker stops because its time is nearly over. With `others`, also if the
  /// time of another node is, which has the same limit and may have noticed it a moment earlier.
  bool time_limit(bool others) const {
    const auto near = [this] {
      return end_time_s_ > 0 && std::time(nullptr) + kOthersClocksS >=
                                    stop_time_s(begin_s_, end_time_s_, uplink_.last_push());
    };
    return time_limit_ || (others && near());
  }

 private:
  const int64_t end_time_s_;
  const int64_t begin_s_ = std::time(nullptr);
  const Uplink& uplink_;
  std::atomic<bool> time_limit_{false};
  std::jthread thread_;
};

/// Turns failed transfers of files into UNAVAILABLE/STORAGE_ERROR, since the job is not their
/// cause.
Error as_host_trouble(Error error) {
  if (error.reason == "CONNECTION_LOST" || error.reason == "SERVER_BUSY" ||
      error.reason == "CONTENT_HASH_MISMATCH" || error.reason == "FILE_NAME_INVALID") {
    error.code = ErrorCode::kUnavailable;
    error.reason = "STORAGE_ERROR";
  }
  return error;
}

class RemoteRun {
 public:
  RemoteRun(const RemoteOptions& options, std::stop_source& stop, std::string nonce,
            v1::WorkerService::Stub& stub, Steady::time_point begin)
      : options_(options),
        start_(Steady::now() - begin),
        stop_(stop),
        nonce_(std::move(nonce)),
        stub_(stub),
        cache_(options.cache, options.cache_bytes) {}

  int run(v1::Assignment assignment) {
    // Several nodes may be the same host, so each worker has its own folder.
    const std::string of_rank = options_.rank > 0 ? "-rank-" + std::to_string(options_.rank) : "";
    Result<WorkFolder> work = cache_.make_work(options_.task + of_rank);
    if (!work.ok()) {
      std::fprintf(stderr, "trainyard-worker: event=work_folder_not_created message=\"%s\"\n",
                   work.error().message.c_str());
      return 1;
    }
    work_ = std::move(work).value();
    v1::TrainTask& task = *assignment.mutable_train();
    place(task);
    ReportStream::Options reports = ReportStream::options_of(assignment, options_.task, nonce_);
    reports.muted = options_.rank > 0;
    reports.away_after = reports.unattended;  // no other process reads this spool
    ReportStream stream(stub_, std::move(reports),
                        [this](const std::string&) { stop_.request_stop(); });
    const RemoteFiles remote(stub_, options_.task, nonce_,
                             std::chrono::milliseconds(assignment.unattended_ms()));
    const v1::Recipe& recipe = task.spec().recipe();
    Uplink uplink(remote, stream,
                  recipe.keep_checkpoints_every_steps() > 0 || recipe.keep_best_checkpoint());
    const Watch watch(options_.end_time_s, stop_, stream, uplink, work_);
    v1::WorkerReport report;
    v1::Outcome& outcome = *report.mutable_outcome();
    Status ready = prepare(task, remote, stream);
    std::shared_ptr<Peers> peers;
    // If rank 0 fails to prepare, it reports that immediately. It learns of failures on other nodes
    // at the rendezvous.
    if (task.nodes() > 1 && (ready.ok() || options_.rank > 0)) {
      ready = connect_peers(assignment, std::move(ready), peers);
    }
    std::optional<NodeMeasure> node;
    if (ready.ok() && options_.rank == 0) {
      node.emplace(stub_, stream,
                   NodeMeasureOptions{options_.task, nonce_, devices_of(task), begin_s_,
                                      options_.end_time_s, start_});
    }
    outcome = ready.ok() ? run_assignment(assignment, stream, stop_.get_token(),
                                          options_.rank > 0 ? nullptr : &uplink, peers)
                         : to_outcome(as_host_trouble(ready.error()));
    if (options_.rank > 0) return end_of_other_rank(outcome, peers != nullptr);
    uplink.drain();
    if (outcome.kind() == v1::Outcome::STOPPED && watch.time_limit(task.nodes() > 1)) {
      (*outcome.mutable_metadata())[kContinueKey] = kContinueTimeLimit;
    }
    if (node && outcome.kind() == v1::Outcome::SUCCEEDED) {
      *outcome.mutable_node() = node->facts();
    }
    stream.send(std::move(report));
    const bool reported = stream.drain() && !stream.out_of_reach();
    if (reported && node) node->run(stop_.get_token());
    return reported ? 0 : 1;
  }

 private:
  /// Connects to the other nodes. OK if all of them are ready to train, else an error, which is the
  /// same on all nodes. Never throws.
  Status connect_peers(const v1::Assignment& assignment, Status ready,
                       std::shared_ptr<Peers>& peers) {
    const v1::TrainTask& task = assignment.train();
    auto met = connect_ranks(
        stub_, {options_, nonce_, task.nodes(), std::max<int64_t>(1, task.devices_size())},
        std::chrono::milliseconds(assignment.unattended_ms()), stop_.get_token());
    if (!met.ok()) return ready.ok() ? Status(std::move(met).error()) : ready;
    peers = std::move(met).value();
    try {
      return agree(*peers, ready.ok() ? ready : Status(as_host_trouble(ready.error())));
    } catch (const RankLost& e) {
      return make_error(ErrorCode::kUnavailable, kRankLost, e.what());
    } catch (const std::exception& e) {
      return make_error(ErrorCode::kUnavailable, "RANK_FAULT", e.what());
    }
  }

  /// Returns the exit status of a worker other than that of rank 0, which alone reports the
  /// outcome. After the rendezvous rank 0 notices by itself that another worker ends. Before, a
  /// status other than 0 makes the scheduler end the other workers.
  int end_of_other_rank(const v1::Outcome& outcome, bool met) const {
    if (outcome.kind() != v1::Outcome::SUCCEEDED) {
      std::fprintf(stderr,
                   "trainyard-worker: task=%s rank=%lld event=worker_ended reason=%s "
                   "message=\"%s\"\n",
                   options_.task.c_str(), static_cast<long long>(options_.rank),
                   outcome.reason().c_str(), outcome.message().c_str());
    }
    return met ? 0 : 1;
  }

  /// Replaces the assignment's paths by paths on this host. Optional paths that are empty stay
  /// empty.
  void place(v1::TrainTask& task) const {
    const fs::path& work = work_.path();
    task.set_checkpoint_dir((work / "checkpoints").string());
    task.set_model_dir((work / "model").string());
    task.set_spool_path((work / "reports").string());
    if (!task.initial_weights_path().empty()) {
      task.set_initial_weights_path((work / "initial").string());
    }
    if (!task.algorithms_dir().empty()) task.set_algorithms_dir(cache_.algorithms().string());
  }

  /// Names the attempt's GPUs. The daemon decides how many there are; the host decides which ones,
  /// by making them visible to this process.
  static Status place_devices(v1::TrainTask& task) {
    int gpus = 0;
    for (std::string& name : *task.mutable_devices()) {
      if (!parse_gpu_name(name)) continue;
      ASSIGN_OR_RETURN(name, nth_visible_gpu(gpus++));
    }
    if (task.devices_size() > 0) {
      task.set_device(task.devices(0));
    } else if (parse_gpu_name(task.device())) {
      ASSIGN_OR_RETURN(*task.mutable_device(), nth_visible_gpu(0));
    }
    return {};
  }

  Status prepare(v1::TrainTask& task, const RemoteFiles& remote, ReportStream& stream) {
    const std::stop_token stop = stop_.get_token();
    if (Status s = place_devices(task); !s.ok()) return s;
    for (const fs::path& folder : {fs::path(task.checkpoint_dir()), cache_.algorithms()}) {
      if (Status s = local_files().create_directories(folder); !s.ok()) return s;
    }
    const NodeCache::Pull pull = [&](const fs::path& folder, const NodeCache::MakeRoom& room) {
      return pull_all(remote, v1::FILE_SET_DATASET, folder, &room);
    };
    ASSIGN_OR_RETURN(dataset_, cache_.lock_dataset(task.dataset_digest(), pull, stop));
    task.set_dataset_dir(dataset_.folder.string());
    ASSIGN_OR_RETURN(const bool resumes, pull_checkpoint(task.checkpoint_dir(), remote, stream));
    if (resumes || task.initial_weights_path().empty()) return {};
    return pull_all(remote, v1::FILE_SET_INITIAL, work_.path(), nullptr);
  }

  Status pull_all(const RemoteFiles& remote, v1::FileSet set, const fs::path& folder,
                  const NodeCache::MakeRoom* make_room) const {
    ASSIGN_OR_RETURN(const v1::ListFilesResponse listed, remote.list(set, stop_.get_token()));
    int64_t bytes = 0;
    for (const v1::RemoteFile& file : listed.files()) bytes += file.size_bytes();
    if (make_room != nullptr) (*make_room)(bytes);
    for (const v1::RemoteFile& file : listed.files()) {
      if (Status s = remote.pull(set, 0, file, folder, stop_.get_token()); !s.ok()) return s;
    }
    return {};
  }

  /// Pulls and installs the checkpoint to resume from. False if there is none.
  Result<bool> pull_checkpoint(const fs::path& folder, const RemoteFiles& remote,
                               ReportStream& stream) const {
    const std::stop_token stop = stop_.get_token();
    for (int tries = 0;; ++tries) {
      ASSIGN_OR_RETURN(const v1::ListFilesResponse listed, remote.list(v1::FILE_SET_RESUME, stop));
      if (tries == 0) report_damaged(listed, stream);
      if (listed.files().empty()) return false;
      const fs::path part = temporary_checkpoint(folder, listed.step());
      for (const v1::RemoteFile& file : listed.files()) {
        if (Status s = remote.pull(v1::FILE_SET_RESUME, listed.step(), file, part, stop); !s.ok()) {
          return std::move(s).error();
        }
      }
      Status whole = verify_checkpoint({part, listed.step(), false});
      if (whole.ok()) whole = install_checkpoint(local_files(), part, folder, listed.step());
      if (whole.ok()) return true;
      // A checkpoint that arrives damaged twice is an error, because without it the job would start
      // again from its first step.
      if (tries > 0) return std::move(whole).error();
      if (Status s = local_files().remove_all(part); !s.ok()) return std::move(s).error();
    }
  }

  static void report_damaged(const v1::ListFilesResponse& listed, ReportStream& stream) {
    for (const std::string& name : listed.damaged()) {
      v1::WorkerReport report;
      report.mutable_log()->set_level(v1::LogLine::INFO);
      report.mutable_log()->set_text("checkpoint " + name + " is damaged and was skipped");
      stream.send(std::move(report));
    }
  }

  /// Returns the names of the job's devices on this host.
  static std::vector<std::string> devices_of(const v1::TrainTask& task) {
    if (task.devices().empty()) return {task.device()};
    return {task.devices().begin(), task.devices().end()};
  }

  const RemoteOptions& options_;
  const std::chrono::duration<double> start_;  // from the start of the process to its assignment
  const int64_t begin_s_ = std::time(nullptr);
  std::stop_source& stop_;
  const std::string nonce_;
  v1::WorkerService::Stub& stub_;
  const NodeCache cache_;
  WorkFolder work_;
  CachedDataset dataset_;
};

int failed(const RemoteOptions& options, const char* event, const Error& error) {
  std::fprintf(stderr, "trainyard-worker: task=%s event=%s reason=%s message=\"%s\"\n",
               options.task.c_str(), event, error.reason.c_str(), error.message.c_str());
  return 1;
}

}  // namespace

int64_t stop_time_s(int64_t begin_s, int64_t end_time_s, std::chrono::milliseconds last_push) {
  return end_time_s - stop_before_s(end_time_s - begin_s) -
         std::chrono::duration_cast<std::chrono::seconds>(last_push).count();
}

int run_remote(const RemoteOptions& options, const std::string& secret, std::stop_source& stop) {
  const Steady::time_point begin = Steady::now();
  const Result<std::string> certificate = options.certificate_pem.empty()
                                              ? read_file(options.certificate, kPemBytesMax)
                                              : Result<std::string>(options.certificate_pem);
  if (!certificate.ok()) return failed(options, "certificate_not_read", certificate.error());
  const auto credential = std::make_shared<CallCredential>();
  const auto channel = open_channel(options.attach, *certificate, credential);
  const ChannelPoll poll(channel);
  const auto stub = v1::WorkerService::NewStub(channel);

  v1::EnrolRequest enrol;
  enrol.set_task(options.task);
  enrol.set_secret(secret);
  enrol.set_key(random_hex(kKeyBytes));
  enrol.set_version(TRAINYARD_VERSION);
  enrol.set_protocol_min(kProtocols.oldest);
  enrol.set_protocol_max(kProtocols.newest);
  enrol.set_rank(static_cast<int32_t>(options.rank));
  Status s = call_with_retries(options.attach_timeout, stop.get_token(), [&](auto& context) {
    v1::EnrolResponse response;
    return stub->Enrol(&context, enrol, &response);
  });
  if (!s.ok()) return failed(options, "enrol_failed", s.error());
  std::string nonce = enrolment_credential(secret, enrol.key());
  credential->set(options.task, nonce);

  v1::AttachRequest attach;
  attach.set_task(options.task);
  attach.set_nonce(nonce);
  attach.set_version(TRAINYARD_VERSION);
  attach.set_pid(static_cast<int32_t>(::getpid()));
  attach.set_protocol_min(kProtocols.oldest);
  attach.set_protocol_max(kProtocols.newest);
  v1::Assignment assignment;
  s = call_with_retries(options.attach_timeout, stop.get_token(),
                        [&](auto& context) { return stub->Attach(&context, attach, &assignment); });
  if (!s.ok()) return failed(options, "attach_failed", s.error());
  if (!assignment.has_train()) {
    return failed(
        options, "attach_failed",
        make_error(ErrorCode::kFailedPrecondition, "WORKER_PROTOCOL_ERROR",
                   "the assignment is not a training task; remote workers run nothing else"));
  }
  RemoteRun run(options, stop, std::move(nonce), *stub, begin);
  return run.run(std::move(assignment));
}

}  // namespace trainyard
