// What gRPC itself costs on this machine: a server that does nothing with what it gets and a
// client, two processes on a Unix socket, as the daemon and its clients are.
//
//   rpc_floor_bench unary [CALLERS] [SECONDS]          small calls, answered at once
//   rpc_floor_bench stream [MIB] [FRAME_KIB] [READ_KIB]  messages of 1 MiB from bytes to bytes; the
//                                                      largest frame and read, 0: the library's own
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "src/base/check.h"
#include "trainyard/v1/dataset_service.grpc.pb.h"

namespace {

using Clock = std::chrono::steady_clock;
using grpc::ByteBuffer;
using v1 = trainyard::v1::DatasetService;
constexpr size_t kMessageBytes = size_t{1} << 20;
constexpr size_t kSmallBytes = 300;  // about a submit and its answer

/// Takes a stream's messages and drops them.
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

double cpu_seconds(int who) {
  rusage used{};
  ::getrusage(who, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/// Serves until its standard input ends.
void serve(const std::string& address, int frame_kib, int read_kib, int stop) {
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(4 << 20);
  if (frame_kib > 0) builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, frame_kib << 10);
  if (read_kib > 0)
    builder.AddChannelArgument("grpc.experimental.tcp_read_chunk_size", read_kib << 10);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  Echo service;
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  TRAINYARD_CHECK(server != nullptr, "cannot serve on " + address);
  char byte = 0;
  (void)!::read(stop, &byte, 1);
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

/// One stream of messages whose bytes nobody copies before the library does.
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
  ByteBuffer answer;  // unread, it would hold the status back
  call->Read(&answer, nullptr);
  wait();
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  TRAINYARD_CHECK(status.ok(), status.error_message());
  queue.Shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  if (what != "unary" && what != "stream") {
    std::fprintf(stderr,
                 "usage: rpc_floor_bench unary [CALLERS] [SECONDS]\n"
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
          stop[0]);
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
    } else {
      units = number(2, 512);
      stream(channel, units);
    }
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    client_cpu = cpu_seconds(RUSAGE_SELF) - cpu;
  }
  ::close(stop[1]);
  ::waitpid(server, nullptr, 0);
  const double server_cpu = cpu_seconds(RUSAGE_CHILDREN);  // its start too, some 20 ms
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
