// trainyard-worker: started by trainyardd, one process per task. It gets its task's ID on the
// command line and a secret nonce on standard input, attaches over the daemon's worker socket,
// computes, reports and exits.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <stop_token>
#include <string>
#include <thread>

#include "server/protocol/versions.h"
#include "server/worker/report_stream.h"
#include "server/worker/worker.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard {
namespace {

constexpr std::chrono::seconds kAttachTimeout{20};

// SIGTERM and SIGINT become a stop request. They are blocked in every thread and received by one.
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

int run_worker(const std::string& socket, const std::string& task) {
  std::string nonce;
  if (!std::getline(std::cin, nonce) || nonce.empty()) {
    std::fprintf(
        stderr,
        "trainyard-worker: no nonce on standard input; only trainyardd starts this program\n");
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);  // the daemon, which reads what we print, may be gone
  std::stop_source stop;
  SignalThread signals(
      stop);  // before gRPC starts threads, so that all of them have the signals blocked

  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                   8 << 20);  // a predict request and its envelope
  // A daemon that comes back is found within a second, however long it was away.
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
  v1::WorkerReport report;
  *report.mutable_outcome() = run_assignment(assignment, stream, stop.get_token());
  stream.send(std::move(report));
  return stream.drain() ? 0 : 1;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  CLI::App app{"Runs one task for trainyardd; not meant to be started by hand."};
  std::string socket;
  std::string task;
  app.add_option("--socket", socket, "the daemon's worker socket")->required();
  app.add_option("--task", task, "the task's ID")->required();
  app.set_version_flag("--version", TRAINYARD_VERSION);
  CLI11_PARSE(app, argc, argv);
  return trainyard::run_worker(socket, task);
}
