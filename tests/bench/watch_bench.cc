// Runs watchers of one job in a running daemon; watch_bench.py starts the daemon and measures its
// cost.
//   watch_bench SERVER JOB [watchers=1000] [connections=1000] [seconds=5] [pause_ms=0] [storm_ms=0]
//               [linger=0] [packed=0]
// Reads raw bytes on one thread, since it shares the machine with the measured daemon. It parses
// only an event's number, which must follow the one before, and its time. With pause_ms a watcher
// waits that long before each read; with storm_ms all watchers disconnect at that interval and
// reconnect after the last number they saw. Prints "ready" when every watcher was answered, and
// "done" and a JSON object when the time is over; with `linger` it then keeps the streams open
// until its input ends.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "tests/bench/process_facts.h"
#include "trainyard/v1/job_service.pb.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
namespace v1 = trainyard::v1;

struct Options {
  std::string server, job;
  int watchers = 1000, connections = 1000, seconds = 5, pause_ms = 0, storm_ms = 0;
  bool linger = false, packed = false;
};

/// The few parts of the wire format that the benchmark parses.
struct Wire {
  const uint8_t* at;
  const uint8_t* end;

  bool more() const { return at < end; }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; at < end; shift += 7) {
      const uint8_t byte = *at++;
      value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  Wire part() {
    const auto size = static_cast<ptrdiff_t>(varint());
    const Wire part{at, at + std::min(size, end - at)};
    at = part.end;
    return part;
  }
};

struct Watcher {
  enum class Phase { kStarting, kAsking, kReading, kPausing, kFinishing };
  std::unique_ptr<grpc::GenericStub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  grpc::ByteBuffer buffer;
  grpc::Status status;
  Phase phase = Phase::kStarting;
  int64_t last = 0;
  bool answered = false;
  Clock::time_point asked;
};

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)) {}

  int run() {
    const int64_t newest = find_newest();
    if (newest < 0) return 1;
    watchers_.resize(static_cast<size_t>(options_.watchers));
    for (size_t i = 0; i < watchers_.size(); ++i) {
      Watcher& w = watchers_[i];
      w.stub = std::make_unique<grpc::GenericStub>(
          channel(static_cast<int>(i) % std::max(1, options_.connections)));
      w.last = newest;
      begin(w);
    }
    const auto patience = Clock::now() + std::chrono::seconds(60);
    while (answered_ < options_.watchers && Clock::now() < patience) poll();
    std::printf("ready\n");
    std::fflush(stdout);
    for (const auto until = Clock::now() + milliseconds(500); Clock::now() < until;) poll();
    events_ = messages_ = bytes_ = 0;
    lags_ms_.clear();
    answers_ms_.clear();
    const double cpu = trainyard::cpu_seconds();
    const auto begun = Clock::now();
    const auto until = begun + std::chrono::seconds(options_.seconds);
    auto storm = begun + milliseconds(options_.storm_ms);
    while (Clock::now() < until) {
      poll();
      if (options_.storm_ms == 0 || Clock::now() < storm) continue;
      for (Watcher& w : watchers_) w.context->TryCancel();
      storm += milliseconds(options_.storm_ms);
    }
    report(trainyard::cpu_seconds() - cpu,
           std::chrono::duration<double>(Clock::now() - begun).count());
    if (options_.linger) (void)std::getchar();
    std::_Exit(gaps_ + failures_ > 0 ? 1 : 0);  // ends like a client that is killed
  }

 private:
  std::shared_ptr<grpc::Channel> channel(int number) {
    const auto index = static_cast<size_t>(number);
    if (channels_.size() <= index) channels_.resize(index + 1);
    if (!channels_[index]) {
      grpc::ChannelArguments arguments;
      arguments.SetInt("grpc.use_local_subchannel_pool", 1);  // a separate connection
      arguments.SetMaxReceiveMessageSize(4 << 20);
      channels_[index] =
          grpc::CreateCustomChannel(options_.server, grpc::InsecureChannelCredentials(), arguments);
    }
    return channels_[index];
  }

  v1::WatchJobRequest request(int64_t after) const {
    v1::WatchJobRequest r;
    r.set_name("projects/default/jobs/" + options_.job);
    r.set_after(after);
    r.set_packed(options_.packed);
    return r;
  }

  void begin(Watcher& w) {
    w.stream.reset();  // destroyed first, since it refers to the context
    w.context = std::make_unique<grpc::ClientContext>();
    w.answered = false;
    w.phase = Watcher::Phase::kStarting;
    w.asked = Clock::now();
    w.stream = w.stub->PrepareCall(w.context.get(), "/trainyard.v1.JobService/WatchJob", &queue_);
    w.stream->StartCall(&w);
  }

  /// Returns the number of the job's newest event; -1 if the daemon does not answer.
  int64_t find_newest() {
    Watcher w;
    w.stub = std::make_unique<grpc::GenericStub>(channel(0));
    begin(w);
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
      if (w.phase == Watcher::Phase::kFinishing) {
        std::fprintf(stderr, "%s\n", w.status.error_message().c_str());
        return -1;
      }
      if (ok && w.phase == Watcher::Phase::kReading) break;
      advance(w, ok);
    }
    v1::WatchJobResponse response;
    grpc::Slice slice;
    (void)w.buffer.DumpToSingleSlice(&slice);
    const bool parsed = response.ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
    w.context->TryCancel();
    finish(w);
    queue_.Next(&tag, &ok);
    return parsed ? response.start().newest_seq() : -1;
  }

  void poll() {
    void* tag = nullptr;
    bool ok = false;
    const auto next = pausing_.empty() ? Clock::now() + milliseconds(20) : pausing_.top().first;
    const auto wait = std::min(next, Clock::now() + milliseconds(20)) - Clock::now();
    const auto deadline = std::chrono::system_clock::now() + std::max(wait, Clock::duration(0));
    if (queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
      advance(*static_cast<Watcher*>(tag), ok);
    }
    while (!pausing_.empty() && pausing_.top().first <= Clock::now()) {
      Watcher& w = *pausing_.top().second;
      pausing_.pop();
      read(w);
    }
  }

  void read(Watcher& w) {
    w.phase = Watcher::Phase::kReading;
    w.stream->Read(&w.buffer, &w);
  }

  void advance(Watcher& w, bool ok) {
    using enum Watcher::Phase;
    switch (w.phase) {
      case kStarting: {
        if (!ok) return finish(w);
        const std::string bytes = request(w.last).SerializeAsString();
        const grpc::Slice slice(bytes);
        w.phase = kAsking;
        w.stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), &w);
        return;
      }
      case kAsking:
        if (!ok) return finish(w);
        return read(w);
      case kReading: {
        if (!ok) return finish(w);
        take(w);
        if (options_.pause_ms == 0) return read(w);
        w.phase = kPausing;
        pausing_.emplace(Clock::now() + milliseconds(options_.pause_ms), &w);
        return;
      }
      case kPausing:
        return;
      case kFinishing:
        if (w.status.error_code() != grpc::StatusCode::CANCELLED) {
          if (failures_++ == 0) std::fprintf(stderr, "%s\n", w.status.error_message().c_str());
          return;
        }
        return begin(w);
    }
  }

  void finish(Watcher& w) {
    w.phase = Watcher::Phase::kFinishing;
    w.stream->Finish(&w.status, &w);
  }

  void take(Watcher& w) {
    ++messages_;
    grpc::Slice slice;
    if (!w.buffer.TrySingleSlice(&slice).ok()) (void)w.buffer.DumpToSingleSlice(&slice);
    bytes_ += static_cast<int64_t>(slice.size());
    const int64_t now_us = std::chrono::duration_cast<std::chrono::microseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
    Wire message{slice.begin(), slice.end()};
    while (message.more()) {
      const uint64_t field = message.varint() >> 3;
      Wire part = message.part();
      if (field == 1) {
        w.answered = true;
        ++answered_;
        answers_ms_.push_back(
            std::chrono::duration<double, std::milli>(Clock::now() - w.asked).count());
      } else if (field == 2) {
        take_event(w, part, now_us);
      }
    }
    w.buffer.Clear();
  }

  void take_event(Watcher& w, Wire event, int64_t now_us) {
    int64_t seq = 0, time_us = 0;
    while (event.more() && time_us == 0) {
      const uint64_t field = event.varint() >> 3;
      if (field == 1) {
        seq = static_cast<int64_t>(event.varint());
      } else if (field == 2) {
        Wire time = event.part();
        while (time.more()) {
          const bool seconds = time.varint() >> 3 == 1;
          time_us += static_cast<int64_t>(time.varint()) * (seconds ? 1'000'000 : 1) /
                     (seconds ? 1 : 1000);
        }
      } else {
        break;
      }
    }
    if (seq != w.last + 1 && gaps_++ == 0) {
      std::fprintf(stderr, "event %lld came after event %lld\n", static_cast<long long>(seq),
                   static_cast<long long>(w.last));
    }
    w.last = seq;
    ++events_;
    lags_ms_.push_back(static_cast<float>(now_us - time_us) / 1000);
  }

  template <typename T>
  static double quantile(std::vector<T>& values, double share) {
    if (values.empty()) return 0;
    const auto at = static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + at, values.end());
    return static_cast<double>(values[static_cast<size_t>(at)]);
  }

  void report(double cpu, double seconds) {
    std::printf(
        "done {\"seconds\": %.3f, \"events\": %lld, \"messages\": %lld, \"bytes\": %lld, "
        "\"client_cpu\": %.3f, \"lag_p50_ms\": %.1f, \"lag_p99_ms\": %.1f, \"lag_max_ms\": %.1f, "
        "\"answers\": %zu, \"answer_p50_ms\": %.1f, \"answer_p99_ms\": %.1f, \"answered\": %d, "
        "\"gaps\": %d, \"failures\": %d}\n",
        seconds, static_cast<long long>(events_), static_cast<long long>(messages_),
        static_cast<long long>(bytes_), cpu, quantile(lags_ms_, 0.5), quantile(lags_ms_, 0.99),
        quantile(lags_ms_, 1), answers_ms_.size(), quantile(answers_ms_, 0.5),
        quantile(answers_ms_, 0.99), answered_, gaps_, failures_);
    std::fflush(stdout);
  }

  const Options options_;
  grpc::CompletionQueue queue_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::deque<Watcher> watchers_;
  using Pause = std::pair<Clock::time_point, Watcher*>;
  std::priority_queue<Pause, std::vector<Pause>, std::greater<>> pausing_;
  int answered_ = 0, gaps_ = 0, failures_ = 0;
  int64_t events_ = 0, messages_ = 0, bytes_ = 0;
  std::vector<float> lags_ms_;
  std::vector<double> answers_ms_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: watch_bench SERVER JOB [watchers] [connections] [seconds] [pause_ms] "
                 "[storm_ms] [linger] [packed]\n");
    return 2;
  }
  const auto number = [&](int at, int otherwise) {
    return argc > at ? std::atoi(argv[at]) : otherwise;
  };
  Options options;
  options.server = argv[1];
  options.job = argv[2];
  options.watchers = number(3, options.watchers);
  options.connections = number(4, options.connections);
  options.seconds = number(5, options.seconds);
  options.pause_ms = number(6, 0);
  options.storm_ms = number(7, 0);
  options.linger = number(8, 0) != 0;
  options.packed = number(9, 0) != 0;
  return Bench(std::move(options)).run();
}
