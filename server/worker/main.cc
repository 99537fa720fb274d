// server/worker/main.cc: trainyard-worker, which runs one task and exits. trainyardd starts one
// process per task, or a cluster's scheduler starts them on its behalf (remote_run.h). A worker
// gets its task's ID on the command line and a secret on standard input. It attaches to the
// daemon's worker socket, or to its port for remote workers.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stop_token>
#include <string>
#include <thread>

#include "server/protocol/versions.h"
#include "server/worker/node_cache.h"
#include "server/worker/remote_run.h"
#include "server/worker/report_stream.h"
#include "server/worker/sandbox_message.h"
#include "server/worker/worker.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard {
namespace {

constexpr std::chrono::seconds kAttachTimeout{20};

// Turns SIGTERM and SIGINT into a stop request. All threads block these signals, and one thread
// receives them.
class SignalThread {
 public:
  explicit SignalThread(std::stop_source& stop) {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGUSR1);  // wakes the thread when the worker ends normally
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    thread_ = std::thread([this, &stop] {
      int signal = 0;
      while (sigwait(&set_, &signal) == 0 && signal != SIGUSR1) stop.request_stop();
    });
  }
  ~SignalThread() {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }

 private:
  sigset_t set_{};
  std::thread thread_;
};

/// Reads the first line of standard input; empty if there is none.
std::string read_secret() {
  std::string secret;
  if (!std::getline(std::cin, secret) || secret.empty()) {
    std::fprintf(
        stderr,
        "trainyard-worker: no secret on standard input; only trainyardd starts this program\n");
    return "";
  }
  return secret;
}

/// Reads the rest of standard input, at most 64 KiB: a certificate in PEM, or the sandbox.
std::string read_rest() {
  std::string text(64 << 10, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::cin.gcount()));
  return text;
}

/// Logs the error of a part of the sandbox, without which the task must not run.
int no_sandbox(const std::string& task, const Error& error) {
  std::fprintf(stderr, "trainyard-worker: task=%s event=sandbox_failed message=\"%s\"\n",
               task.c_str(), error.message.c_str());
  return 1;
}

int run_worker(const std::string& socket, const std::string& task, const std::string& nonce,
               const server::Sandbox& sandbox, std::stop_source& stop) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                   8 << 20);  // a predict request and its envelope
  // The back-off is at most 1 s, so that the worker reconnects soon after the daemon has restarted.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  const auto channel =
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
  const auto stub = v1::WorkerService::NewStub(channel);

  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAttachTimeout);
  context.set_wait_for_ready(true);
  v1::AttachRequest request;
  request.set_task(task);
  request.set_nonce(nonce);
  request.set_version(TRAINYARD_VERSION);
  request.set_pid(static_cast<int32_t>(getpid()));
  request.set_protocol_min(kProtocols.oldest);
  request.set_protocol_max(kProtocols.newest);
  v1::Assignment assignment;
  if (const grpc::Status s = stub->Attach(&context, request, &assignment); !s.ok()) {
    std::fprintf(stderr, "trainyard-worker: task=%s event=attach_failed message=\"%s\"\n",
                 task.c_str(), s.error_message().c_str());
    return 1;
  }

  ReportStream stream(*stub, ReportStream::options_of(assignment, task, nonce),
                      [&stop](const std::string&) { stop.request_stop(); });
  // The connection exists, and the first untrusted byte is read below.
  if (const Status s = filter_system_calls(sandbox, server::probe_sandbox_host()); !s.ok()) {
    return no_sandbox(task, s.error());
  }
  v1::WorkerReport report;
  *report.mutable_outcome() = run_assignment(assignment, stream, stop.get_token());
  stream.send(std::move(report));
  return stream.drain() ? 0 : 1;
}

/// Returns the end time of the Slurm job in seconds since 1970; 0 if it is not known.
int64_t slurm_end_time_s() {
  const char* const text = std::getenv("SLURM_JOB_END_TIME");
  int64_t seconds = 0;
  if (text == nullptr) return 0;
  const std::string_view digits = text;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  return error == std::errc() && end == digits.data() + digits.size() && seconds > 0 ? seconds : 0;
}

/// Returns the index of this process among the tasks of its Slurm job step; 0 if it is not known.
int64_t slurm_rank() {
  const char* const text = std::getenv("SLURM_PROCID");
  int64_t rank = 0;
  if (text == nullptr) return 0;
  const std::string_view digits = text;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  return error == std::errc() && end == digits.data() + digits.size() && rank >= 0 ? rank : 0;
}

/// Puts this process, which has no other thread yet, into the sandbox that the daemon describes.
Result<server::Sandbox> enter_sandbox(const std::string& socket) {
  ASSIGN_OR_RETURN(server::Sandbox sandbox, read_sandbox(read_rest()));
  sandbox.socket = socket;
  if (Status s = restrict_process(sandbox, server::probe_sandbox_host()); !s.ok()) return s.error();
  return sandbox;
}

int start(const std::string& socket, RemoteOptions& remote) {
  if (socket.empty() == remote.attach.empty()) {
    std::fprintf(stderr, "trainyard-worker: expected either --socket or --attach\n");
    return 2;
  }
  if (!remote.attach.empty() && (remote.certificate.empty() || remote.cache.empty())) {
    std::fprintf(stderr, "trainyard-worker: --attach needs --certificate and --cache\n");
    return 2;
  }
  if (!is_plain_name(remote.task)) {
    std::fprintf(stderr, "trainyard-worker: --task: expected letters, digits, '-' and '_'\n");
    return 2;
  }
  const std::string secret = read_secret();
  if (secret.empty()) return 2;
  if (remote.certificate == "-") remote.certificate_pem = read_rest();
  server::Sandbox sandbox;  // a remote worker has none: its cluster limits it
  if (!socket.empty()) {
    Result<server::Sandbox> described = enter_sandbox(socket);
    if (!described.ok()) return no_sandbox(remote.task, described.error());
    sandbox = std::move(described).value();
  }
  ::signal(SIGPIPE, SIG_IGN);  // the daemon, which reads this process's output, may have ended
  std::stop_source stop;
  SignalThread signals(
      stop);  // before gRPC starts threads, so that all of them have the signals blocked
  if (!socket.empty()) return run_worker(socket, remote.task, secret, sandbox, stop);
  if (remote.end_time_s == 0) remote.end_time_s = slurm_end_time_s();
  if (remote.rank < 0) remote.rank = slurm_rank();
  return run_remote(remote, secret, stop);
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  CLI::App app{"Runs one task for trainyardd; not meant to be started by hand."};
  std::string socket;
  trainyard::RemoteOptions remote;
  remote.rank = -1;
  int64_t attach_timeout_s = remote.attach_timeout.count();
  app.add_option("--socket", socket, "the daemon's worker socket, on the daemon's host");
  app.add_option("--attach", remote.attach, "host:port of the daemon, on another host");
  app.add_option("--certificate", remote.certificate,
                 "with --attach: file with the daemon's certificate (PEM); - reads it from "
                 "standard input, after the secret");
  app.add_option("--cache", remote.cache, "with --attach: folder for datasets and work files");
  app.add_option("--cache-bytes", remote.cache_bytes,
                 "with --attach: size of the cache above which unused datasets are removed")
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--end-time", remote.end_time_s,
         "with --attach: time at which this process is killed, in seconds since 1970; default "
         "SLURM_JOB_END_TIME")
      ->check(CLI::PositiveNumber);
  app.add_option("--attach-timeout", attach_timeout_s,
                 "with --attach: seconds to wait for a daemon that cannot be reached")
      ->check(CLI::PositiveNumber);
  app.add_option("--rank", remote.rank,
                 "with --attach: rank of this worker in the attempt; default SLURM_PROCID, or 0")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--task", remote.task, "the task's ID")->required();
  app.set_version_flag("--version", TRAINYARD_VERSION);
  CLI11_PARSE(app, argc, argv);
  remote.attach_timeout = std::chrono::seconds(attach_timeout_s);
  return trainyard::start(socket, remote);
}
