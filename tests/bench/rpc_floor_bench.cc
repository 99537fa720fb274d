// Measures gRPC's own cost on this machine: a server that does nothing with its messages and a
// client, two processes on a Unix socket, like the daemon and its clients.
//
//   rpc_floor_bench unary [CALLERS] [SECONDS]          small calls, answered immediately
//   rpc_floor_bench fan [STREAMS] [CONNECTIONS] [BYTES] [SECONDS]
//                                                      a message to each stream every 200 ms, the
//                                                      same bytes for all, as the watchers of one
//                                                      job get them
//   rpc_floor_bench stream [MIB] [FRAME_KIB] [READ_KIB]
//                                                      messages of 1 MiB of raw bytes; the largest
//                                                      frame and read, 0: the library's default
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "trainyard/v1/dataset_service.grpc.pb.h"
#include "trainyard/v1/job_service.grpc.pb.h"

namespace {

using Clock = std::chrono::steady_clock;
using grpc::ByteBuffer;
using v1 = trainyard::v1::DatasetService;
constexpr size_t kMessageBytes = size_t{1} << 20;
constexpr size_t kSmallBytes = 300;  // about the size of a submit and its answer
constexpr int kFanIntervalMs = 200;

/// Reads a stream's messages and discards them.
class Reader final : public grpc::ServerReadReactor<ByteBuffer> {
 public:
  Reader() { StartRead(&in_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    in_.Clear();
    StartRead(&in_);
  }
  void OnDone() override { delete this; }

 private:
  ByteBuffer in_;
};

class Echo final : public v1::WithRawCallbackMethod_UploadFile<
                       v1::WithRawCallbackMethod_GetUpload<v1::Service>> {
 public:
  grpc::ServerReadReactor<ByteBuffer>* UploadFile(grpc::CallbackServerContext*,
                                                  ByteBuffer* out) override {
    const grpc::Slice nothing;
    *out = ByteBuffer(&nothing, 1);
    return new Reader;  // deletes itself
  }
  grpc::ServerUnaryReactor* GetUpload(grpc::CallbackServerContext* context, const ByteBuffer* in,
                                      ByteBuffer* out) override {
    *out = *in;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

/// Returns the CPU seconds of another running process.
double cpu_seconds_of(pid_t pid) {
  clockid_t clock = 0;
  timespec used{};
  TRAINYARD_CHECK(::clock_getcpuclockid(pid, &clock) == 0, "no such process");
  ::clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

double cpu_seconds(int who) {
  rusage used{};
  ::getrusage(who, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/// Writes the same message to all its streams at the same time.
class Fan final : public trainyard::v1::JobService::WithRawCallbackMethod_WatchJob<
                      trainyard::v1::JobService::Service> {
 public:
  explicit Fan(size_t bytes) : slice_(std::string(bytes, 'x')) {}

  grpc::ServerWriteReactor<ByteBuffer>* WatchJob(grpc::CallbackServerContext*,
                                                 const ByteBuffer*) override {
    auto* stream = new Stream;  // lives as long as the process
    const std::lock_guard lock(mu_);
    streams_.push_back(stream);
    return stream;
  }
  void write() {
    const std::lock_guard lock(mu_);
    for (Stream* stream : streams_) stream->write(slice_);
  }

 private:
  struct Stream final : grpc::ServerWriteReactor<ByteBuffer> {
    ByteBuffer out;
    std::atomic<bool> writing = false, ended = false;
    void write(const grpc::Slice& slice) {
      if (ended || writing.exchange(true)) return;
      out = ByteBuffer(&slice, 1);
      StartWrite(&out);
    }
    void OnWriteDone(bool ok) override {
      ended = !ok;
      writing = false;
      if (!ok) Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override {}
  };

  const grpc::Slice slice_;
  std::mutex mu_;
  std::vector<Stream*> streams_;
};

/// Serves until `stop` is closed.
void serve(const std::string& address, int frame_kib, int read_kib, int fan_bytes, int stop) {
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(4 << 20);
  if (frame_kib > 0) builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, frame_kib << 10);
  if (read_kib > 0)
    builder.AddChannelArgument("grpc.experimental.tcp_read_chunk_size", read_kib << 10);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  Echo service;
  builder.RegisterService(&service);
  Fan fan(static_cast<size_t>(fan_bytes));
  builder.RegisterService(&fan);
  const auto server = builder.BuildAndStart();
  TRAINYARD_CHECK(server != nullptr, "cannot serve on " + address);
  pollfd ends{stop, POLLIN, 0};
  while (::poll(&ends, 1, kFanIntervalMs) == 0) fan.write();
  if (fan_bytes > 0) std::_Exit(0);  // skips the shutdown, since streams are open
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
}

int64_t call(const std::shared_ptr<grpc::Channel>& channel, int callers, int seconds) {
  std::atomic<int64_t> calls{0};
  const auto stub = v1::NewStub(channel);
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  trainyard::v1::GetUploadRequest request;
  request.set_name(std::string(kSmallBytes, 'x'));
  std::vector<std::thread> threads;
  for (int c = 0; c < callers; ++c) {
    threads.emplace_back([&] {
      while (Clock::now() < end) {
        grpc::ClientContext context;
        trainyard::v1::Upload answer;
        TRAINYARD_CHECK(stub->GetUpload(&context, request, &answer).ok(), "a call failed");
        ++calls;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return calls;
}

/// Sends one stream of messages, without copying their bytes before the library does.
void stream(const std::shared_ptr<grpc::Channel>& channel, int64_t messages) {
  const std::string bytes(kMessageBytes, 'x');
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  const auto call = stub.PrepareCall(&context, "/trainyard.v1.DatasetService/UploadFile", &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    TRAINYARD_CHECK(queue.Next(&tag, &ok) && ok, "the stream broke");
  };
  call->StartCall(nullptr);
  wait();
  for (int64_t i = 0; i < messages; ++i) {
    const grpc::Slice slice(bytes.data(), bytes.size(), grpc::Slice::STATIC_SLICE);
    call->Write(ByteBuffer(&slice, 1), nullptr);
    wait();
  }
  call->WritesDone(nullptr);
  wait();
  ByteBuffer answer;  // must be read, or the status would not arrive
  call->Read(&answer, nullptr);
  wait();
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  TRAINYARD_CHECK(status.ok(), status.error_message());
  queue.Shutdown();
}

/// Reads all streams and prints the cost, measured once all of them are open.
void read_fan(const std::string& address, pid_t server, int streams, int connections, int seconds) {
  struct Reading {
    std::unique_ptr<grpc::GenericStub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
    ByteBuffer in;
    bool asked = false, reads = false;
  };
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int c = 0; c < connections; ++c) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("grpc.use_local_subchannel_pool", 1);  // a separate connection
    channels.push_back(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }
  auto& queue = *new grpc::CompletionQueue;  // never drained, since the process ends first
  auto& readings = *new std::deque<Reading>(static_cast<size_t>(streams));
  for (size_t i = 0; i < readings.size(); ++i) {
    Reading& r = readings[i];
    r.stub = std::make_unique<grpc::GenericStub>(channels[i % channels.size()]);
    r.call = r.stub->PrepareCall(&r.context, "/trainyard.v1.JobService/WatchJob", &queue);
    r.call->StartCall(&r);
  }
  int64_t messages = 0;
  int open = 0;
  const auto advance = [&](Reading& r, bool ok) {
    TRAINYARD_CHECK(ok, "a stream broke");
    if (!r.asked) {
      r.asked = true;
      const grpc::Slice nothing;
      return r.call->WriteLast(ByteBuffer(&nothing, 1), grpc::WriteOptions(), &r);
    }
    if (r.reads) ++messages;
    if (!std::exchange(r.reads, true)) ++open;
    r.call->Read(&r.in, &r);
  };
  const auto run_until = [&](std::chrono::system_clock::time_point end, int open_max) {
    void* tag = nullptr;
    bool ok = false;
    while (open < open_max && queue.AsyncNext(&tag, &ok, end) == grpc::CompletionQueue::GOT_EVENT) {
      advance(*static_cast<Reading*>(tag), ok);
    }
  };
  const auto now = [] { return std::chrono::system_clock::now(); };
  run_until(now() + std::chrono::seconds(60), streams);
  run_until(now() + std::chrono::seconds(1), INT_MAX);
  const double server_cpu = cpu_seconds_of(server), client_cpu = cpu_seconds(RUSAGE_SELF);
  messages = 0;
  run_until(now() + std::chrono::seconds(seconds), INT_MAX);
  const auto count = static_cast<double>(messages);
  std::printf("bare fan: %.0f messages/s, CPU of a message: server %.1f us, client %.1f us\n",
              count / seconds, 1e6 * (cpu_seconds_of(server) - server_cpu) / count,
              1e6 * (cpu_seconds(RUSAGE_SELF) - client_cpu) / count);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  if (what != "unary" && what != "stream" && what != "fan") {
    std::fprintf(stderr,
                 "usage: rpc_floor_bench unary [CALLERS] [SECONDS]\n"
                 "       rpc_floor_bench fan [STREAMS] [CONNECTIONS] [BYTES] [SECONDS]\n"
                 "       rpc_floor_bench stream [MIB] [FRAME_KIB] [READ_KIB]\n");
    return 2;
  }
  const std::string address = "unix:/tmp/rpc_floor_" + std::to_string(::getpid());
  int stop[2] = {};
  TRAINYARD_CHECK(::pipe(stop) == 0, "no pipe");
  const pid_t server = ::fork();  // before the library has threads
  if (server == 0) {
    ::close(stop[1]);
    serve(address, what == "stream" ? number(3, 0) : 0, what == "stream" ? number(4, 0) : 0,
          what == "fan" ? number(4, 200) : 0, stop[0]);
    return 0;
  }
  ::close(stop[0]);
  int64_t units = 0;
  double client_cpu = 0, seconds = 0;
  {
    const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    TRAINYARD_CHECK(
        channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10)),
        "no server");
    const double cpu = cpu_seconds(RUSAGE_SELF);
    const auto begin = Clock::now();
    if (what == "unary") {
      units = call(channel, number(2, 64), number(3, 4));
    } else if (what == "fan") {
      read_fan(address, server, number(2, 1000), number(3, number(2, 1000)), number(5, 10));
      std::fflush(stdout);
      ::close(stop[1]);
      ::waitpid(server, nullptr, 0);
      std::_Exit(0);  // streams are open
    } else {
      units = number(2, 512);
      stream(channel, units);
    }
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    client_cpu = cpu_seconds(RUSAGE_SELF) - cpu;
  }
  ::close(stop[1]);
  ::waitpid(server, nullptr, 0);
  const double server_cpu = cpu_seconds(RUSAGE_CHILDREN);  // includes its start, some 20 ms
  const auto count = static_cast<double>(units);
  if (what == "unary") {
    std::printf("bare unary: %.0f calls/s, CPU of a call: server %.0f us, client %.0f us\n",
                count / seconds, 1e6 * server_cpu / count, 1e6 * client_cpu / count);
  } else {
    std::printf("bare stream: %.0f MB/s, CPU of a GB: server %.2f s, client %.2f s\n",
                count * kMessageBytes / seconds / 1e6, 1e9 * server_cpu / count / kMessageBytes,
                1e9 * client_cpu / count / kMessageBytes);
  }
  return 0;
}
