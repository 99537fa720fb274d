// Tests of warm workers without gRPC, so that the thread sanitizer sees all code. A worker is a
// shell script that passes its nonce to the test, and the test makes the worker's calls.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "server/protocol/versions.h"
#include "server/serving/warm_workers.h"
#include "src/base/files.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

using Kind = WarmWorkers::Kind;

/// Receives the daemon's commands to a worker.
class Commands final : public CommandSink {
 public:
  void send(const v1::WorkerCommand& command) override {
    const std::lock_guard lock(mu_);
    commands_.push_back(command);
  }
  std::optional<v1::WorkerCommand> take() {
    const std::lock_guard lock(mu_);
    if (commands_.empty()) return std::nullopt;
    v1::WorkerCommand command = commands_.front();
    commands_.pop_front();
    return command;
  }
  v1::WorkerCommand next() {
    std::optional<v1::WorkerCommand> command;
    EXPECT_TRUE(eventually([&] { return (command = take()).has_value(); })) << "no command";
    return command.value_or(v1::WorkerCommand{});
  }

 private:
  std::mutex mu_;
  std::deque<v1::WorkerCommand> commands_;
};

/// The caller's side of a call.
class Caller {
 public:
  Done<v1::Outcome> done() {
    return [state = state_](Result<v1::Outcome> outcome) {
      const std::lock_guard lock(state->mu);
      EXPECT_FALSE(state->text) << "a call is answered once";
      state->text = outcome.ok() ? outcome->message() : outcome.error().reason;
    };
  }
  bool answered() const {
    const std::lock_guard lock(state_->mu);
    return state_->text.has_value();
  }
  /// Waits for the reply. Returns its text, or the reason of its refusal.
  std::string answer() const {
    EXPECT_TRUE(eventually([&] { return answered(); })) << "no answer";
    const std::lock_guard lock(state_->mu);
    return state_->text.value_or("none");
  }

 private:
  struct State {
    std::mutex mu;
    std::optional<std::string> text;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class ServiceWarmWorkers : public ::testing::Test {
 protected:
  /// A worker that has attached.
  struct Worker {
    std::string task;
    std::string model;
    v1::ServeCalls calls;  // the calls that it received last
    pid_t pid = 0;
    std::shared_ptr<Commands> commands = std::make_shared<Commands>();
  };

  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("warm" + std::to_string(::getpid()) + "-" + std::to_string(++count_));
    std::filesystem::create_directories(root_ / "nonces");
    SupervisorOptions options;
    options.worker = root_ / "worker";
    options.log_dir = root_;
    std::ofstream(options.worker) << "#!/bin/sh\nread nonce\necho $nonce $$ > " << root_.string()
                                  << "/tmp.$$\nmv " << root_.string() << "/tmp.$$ "
                                  << root_.string() << "/nonces/$4\nexec sleep 1000\n";
    ::chmod(options.worker.c_str(), 0700);
    supervisor_ = std::make_unique<Supervisor>(options);
    for (CallLimits& limits : limits_) {
      limits.running_max = 1;
      limits.model_calls_max = limits.calls_max = 8;
      limits.batch_calls_max = 4;
      limits.busy = make_error(ErrorCode::kResourceExhausted, "BUSY", "busy");
      limits.late = make_error(ErrorCode::kDeadlineExceeded, "LATE", "late");
    }
    limits_[1].batch_calls_max = 1;
    options_.loss_grace_ms = 300;
  }
  void TearDown() override {
    warm_.reset();
    supervisor_.reset();
    std::filesystem::remove_all(root_);
  }
  void start() { warm_ = std::make_unique<WarmWorkers>(*supervisor_, options_, limits_); }

  CallNumber call(const std::string& model, const std::string& text, Caller& caller,
                  Kind kind = Kind::kPredict) {
    v1::ServeCall message;
    if (kind == Kind::kGenerate) {
      message.mutable_generate()->set_prompt(text);
    } else {
      message.mutable_predict()->set_csv(text);
    }
    return warm_->submit(kind, {model, 10}, std::move(message), caller.done());
  }

  /// Waits for the next worker to start and attaches it.
  Worker next_worker() {
    Worker worker;
    EXPECT_TRUE(eventually([&] {
      for (const auto& entry : std::filesystem::directory_iterator(root_ / "nonces")) {
        worker.task = entry.path().filename();
        if (seen_.insert(worker.task).second) return true;
      }
      return false;
    })) << "no worker has started";
    std::ifstream file(root_ / "nonces" / worker.task);
    v1::AttachRequest request;
    std::string nonce;
    file >> nonce >> worker.pid;
    request.set_task(worker.task);
    request.set_nonce(nonce);
    request.set_version(TRAINYARD_VERSION);
    request.set_protocol_min(kProtocols.oldest);
    request.set_protocol_max(kProtocols.newest);
    const Result<v1::Assignment> assignment = supervisor_->attach(request);
    EXPECT_TRUE(assignment.ok()) << assignment.error().message;
    if (!assignment.ok()) return worker;
    worker.calls = assignment->serve().first();
    worker.model = std::filesystem::path(assignment->serve().model_dir()).filename();
    v1::WorkerReport first;
    first.set_task(worker.task);
    first.set_nonce(nonce);
    first.set_protocol(assignment->protocol());
    EXPECT_TRUE(supervisor_->connect(first, worker.commands).ok());
    return worker;
  }
  /// Returns the texts of the calls that the worker received last.
  static std::string texts(const Worker& worker) {
    std::string all;
    for (const v1::ServeCall& c : worker.calls.calls()) {
      all +=
          (all.empty() ? "" : " ") + (c.has_generate() ? c.generate().prompt() : c.predict().csv());
    }
    return all;
  }
  /// Replies to all calls of the worker, each with its own text.
  void answer(const Worker& worker, int64_t memory_bytes = 1) {
    v1::WorkerReport report;
    report.mutable_answers()->set_memory_bytes(memory_bytes);
    for (const v1::ServeCall& c : worker.calls.calls()) {
      v1::ServeAnswer& to = *report.mutable_answers()->add_answers();
      to.set_number(c.number());
      to.mutable_outcome()->set_kind(v1::Outcome::SUCCEEDED);
      to.mutable_outcome()->set_message(c.has_generate() ? c.generate().prompt()
                                                         : c.predict().csv());
    }
    supervisor_->report(worker.task, report, [](const Status&) {});
  }
  void take_calls(Worker& worker) { worker.calls = worker.commands->next().serve(); }
  /// Expects a stop command and ends the worker.
  void expect_stopped(Worker& worker) {
    EXPECT_TRUE(worker.commands->next().has_stop());
    ::kill(worker.pid, SIGKILL);
  }

  static inline int count_ = 0;
  std::filesystem::path root_;
  std::set<std::string> seen_;
  WarmOptions options_{.paths = StatePaths("/nowhere")};
  std::array<CallLimits, WarmWorkers::kKinds> limits_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<WarmWorkers> warm_;
};

TEST_F(ServiceWarmWorkers, CallsThatWaitForABatchFormTheNext) {
  start();
  Caller a, b, c, d, e, f;
  call("m", "a", a);
  Worker worker = next_worker();
  EXPECT_EQ(worker.model, "m");
  EXPECT_EQ(texts(worker), "a") << "the call for which it was started comes with its assignment";
  call("m", "b", b);
  call("m", "c", c);
  call("m", "d", d);
  call("m", "e", e);
  call("m", "f", f);
  EXPECT_FALSE(worker.commands->take()) << "one batch at a time";
  answer(worker);
  EXPECT_EQ(a.answer(), "a");
  take_calls(worker);
  EXPECT_EQ(texts(worker), "b c d e") << "a batch has its bound";
  answer(worker);
  EXPECT_EQ(b.answer() + c.answer() + d.answer() + e.answer(), "bcde");
  EXPECT_FALSE(f.answered());
  take_calls(worker);
  answer(worker);
  EXPECT_EQ(f.answer(), "f");
  EXPECT_EQ(supervisor_->task_count(), 1);
}

TEST_F(ServiceWarmWorkers, ACallOfAnyKindUsesTheIdleWorkerOfItsModel) {
  start();
  Caller a, b, c;
  call("m", "a", a);
  Worker worker = next_worker();
  answer(worker);
  EXPECT_EQ(a.answer(), "a");
  call("m", "b", b, Kind::kGenerate);
  take_calls(worker);
  EXPECT_EQ(texts(worker), "b");
  call("m", "c", c);  // a prediction does not wait for a text generation
  Worker second = next_worker();
  EXPECT_EQ(texts(second), "c");
  answer(second);
  answer(worker);
  EXPECT_EQ(c.answer() + b.answer(), "cb");
}

TEST_F(ServiceWarmWorkers, AFloodOfOneModelDoesNotKeepAnotherWaiting) {
  start();
  std::vector<Caller> flood(6);
  Caller other;
  call("m", "0", flood[0]);
  Worker m = next_worker();
  for (int i = 1; i < 6; ++i) call("m", std::to_string(i), flood[static_cast<size_t>(i)]);
  call("n", "x", other);
  answer(m);  // m's batch of calls 1 to 4 is ahead of n's call; 5 is left
  take_calls(m);
  EXPECT_EQ(texts(m), "1 2 3 4");
  answer(m);
  Worker n = next_worker();
  EXPECT_EQ(texts(n), "x");
  EXPECT_FALSE(m.commands->take()) << "one worker computes at a time";
  answer(n);
  EXPECT_EQ(other.answer(), "x");
  take_calls(m);
  EXPECT_EQ(texts(m), "5");
  answer(m);
  EXPECT_EQ(flood[5].answer(), "5");
}

TEST_F(ServiceWarmWorkers, WaitingIsBoundedForEachModelAndInAll) {
  limits_[0].model_calls_max = 3;
  limits_[0].calls_max = 5;
  start();
  std::vector<Caller> callers(9);
  call("m", "0", callers[0]);
  for (size_t i = 1; i <= 4; ++i) call("m", "m", callers[i]);
  EXPECT_EQ(callers[4].answer(), "BUSY") << "three of a model wait";
  for (size_t i = 5; i <= 7; ++i) call("n", "n", callers[i]);
  EXPECT_EQ(callers[7].answer(), "BUSY") << "five wait in all";
  call("o", "o", callers[8]);
  EXPECT_FALSE(callers[8].answered()) << "a model of which none waits is let in";
  EXPECT_FALSE(callers[3].answered());
}

TEST_F(ServiceWarmWorkers, WaitingBytesAreBounded) {
  limits_[0].model_bytes_max = 2000;
  start();
  Caller first, large, larger, small;
  call("m", "0", first);
  call("m", std::string(1500, 'x'), large);
  call("m", std::string(1500, 'x'), larger);
  EXPECT_EQ(larger.answer(), "BUSY");
  call("m", "1", small);
  EXPECT_FALSE(small.answered());
}

TEST_F(ServiceWarmWorkers, BytesInProgressDoNotCountAsWaiting) {
  limits_[0].bytes_max = 2000;
  start();
  Caller first, large, small, again;
  call("m", "0", first);
  Worker m = next_worker();
  call("m", std::string(1500, 'x'), large);
  call("n", "1", small);
  answer(m);
  take_calls(m);
  call("n", std::string(1500, 'y'), again);
  EXPECT_FALSE(again.answered()) << "of 3000 bytes, m's 1500 are taken";
  answer(m);
  Worker n = next_worker();
  answer(n);
  EXPECT_EQ(again.answer(), std::string(1500, 'y'));
}

TEST_F(ServiceWarmWorkers, ACallThatKillsWorkersHarmsNoOther) {
  start();
  Caller first, poison, good;
  call("m", "first", first);
  Worker worker = next_worker();
  call("m", "poison", poison);
  call("m", "good", good);
  answer(worker);
  take_calls(worker);
  EXPECT_EQ(texts(worker), "poison good");
  ::kill(worker.pid, SIGKILL);
  Worker second = next_worker();
  EXPECT_EQ(texts(second), "poison") << "each alone, in their order";
  ::kill(second.pid, SIGKILL);
  EXPECT_EQ(poison.answer(), "WORKER_LOST");
  Worker third = next_worker();
  EXPECT_EQ(texts(third), "good");
  answer(third);
  EXPECT_EQ(good.answer(), "good");
}

TEST_F(ServiceWarmWorkers, ACallSurvivesTheLossOfItsWorker) {
  start();
  Caller a, b;
  call("m", "a", a);
  Worker worker = next_worker();
  answer(worker);
  EXPECT_EQ(a.answer(), "a");
  ::kill(worker.pid, SIGKILL);  // the worker is idle
  ASSERT_TRUE(eventually([&] { return supervisor_->task_count() == 0; }));
  call("m", "b", b);
  worker = next_worker();
  ::kill(worker.pid, SIGKILL);  // the worker has a call
  worker = next_worker();
  EXPECT_EQ(texts(worker), "b");
  answer(worker);
  EXPECT_EQ(b.answer(), "b");
}

TEST_F(ServiceWarmWorkers, AGenerationThatHasBegunIsNotRestarted) {
  start();
  Caller a;
  call("m", "a", a, Kind::kGenerate);
  const Worker worker = next_worker();
  v1::WorkerReport piece;
  piece.mutable_generated()->set_text("x");
  supervisor_->report(worker.task, piece, [](const Status&) {});
  ::kill(worker.pid, SIGKILL);
  EXPECT_EQ(a.answer(), "WORKER_LOST");
}

TEST_F(ServiceWarmWorkers, ACallPastItsDeadlineEndsItsWorkerAndHarmsNoOther) {
  limits_[0].time_max_ms = 2000;
  start();
  Caller first, slow, good;
  call("m", "first", first);
  Worker worker = next_worker();
  call("m", "slow", slow);
  call("m", "good", good);
  answer(worker);
  take_calls(worker);
  EXPECT_EQ(texts(worker), "slow good");
  Worker second = next_worker();
  EXPECT_EQ(texts(second), "slow");
  EXPECT_EQ(slow.answer(), "LATE");
  Worker third = next_worker();
  EXPECT_EQ(texts(third), "good");
  answer(third);
  EXPECT_EQ(good.answer(), "good");
  EXPECT_TRUE(eventually([&] { return supervisor_->task_count() == 1; }))
      << "the late ones are gone";
}

TEST_F(ServiceWarmWorkers, NoCallWaitsForEver) {
  limits_[0].time_max_ms = 300;
  options_.loss_grace_ms = 6000;  // SIGTERM is sent after a third of this
  start();
  Caller first, waiting;
  call("m", "first", first);
  const Worker worker = next_worker();
  EXPECT_EQ(first.answer(), "LATE");
  call("n", "waiting", waiting);  // the only place is taken until the late worker has ended
  EXPECT_EQ(waiting.answer(), "BUSY");
  EXPECT_EQ(supervisor_->task_count(), 1);
}

TEST_F(ServiceWarmWorkers, ASecondWorkerStartsIfABatchTakesLong) {
  limits_[0].running_max = 2;
  start();
  Caller a, large, small;
  call("m", "a", a);
  Worker worker = next_worker();
  answer(worker);
  EXPECT_EQ(a.answer(), "a");
  call("m", "large", large);
  take_calls(worker);
  call("m", "small", small);
  Worker second = next_worker();
  EXPECT_EQ(texts(second), "small");
  answer(second);
  EXPECT_EQ(small.answer(), "small");
  EXPECT_FALSE(large.answered());
}

TEST_F(ServiceWarmWorkers, TheLeastRecentlyUsedIsEvicted) {
  options_.workers_max = 2;
  start();
  std::vector<Caller> callers(4);
  std::vector<Worker> workers;
  const char* models[] = {"m", "n"};
  for (size_t i = 0; i < 2; ++i) {
    call(models[i], "x", callers[i]);
    workers.push_back(next_worker());
    answer(workers[i]);
    EXPECT_EQ(callers[i].answer(), "x");
  }
  call("m", "y", callers[2]);
  take_calls(workers[0]);
  answer(workers[0]);
  EXPECT_EQ(callers[2].answer(), "y");
  call("o", "z", callers[3]);
  expect_stopped(workers[1]);
  EXPECT_FALSE(workers[0].commands->take());
}

TEST_F(ServiceWarmWorkers, TheirMemoryIsBounded) {
  options_.bytes_max = 1000;
  start();
  Caller a, b, c;
  call("m", "a", a);
  Worker m = next_worker();
  answer(m, 600);
  EXPECT_EQ(a.answer(), "a");
  call("n", "b", b);
  Worker n = next_worker();
  EXPECT_FALSE(m.commands->take());
  answer(n, 500);
  expect_stopped(m);
  EXPECT_EQ(b.answer(), "b");
  call("n", "c", c);
  take_calls(n);
  answer(n, 1001);
  expect_stopped(n);
  EXPECT_EQ(c.answer(), "c") << "one that is too large by itself is not kept";
}

TEST_F(ServiceWarmWorkers, NoWorkerIsKeptIfNoneIsAllowed) {
  options_.workers_max = 0;
  start();
  Caller a, b;
  call("m", "a", a);
  Worker worker = next_worker();
  call("m", "b", b);
  answer(worker);
  EXPECT_EQ(a.answer(), "a");
  take_calls(worker);  // the worker gets the waiting call
  answer(worker);
  EXPECT_EQ(b.answer(), "b");
  expect_stopped(worker);
}

TEST_F(ServiceWarmWorkers, AnIdleWorkerEnds) {
  options_.idle_max_ms = 100;
  start();
  Caller a;
  call("m", "a", a);
  Worker worker = next_worker();
  answer(worker);
  EXPECT_EQ(a.answer(), "a");
  expect_stopped(worker);
}

TEST_F(ServiceWarmWorkers, ADeletedModelHasNoWorkers) {
  start();
  Caller a, b, c, d;
  call("m", "a", a);
  Worker m = next_worker();
  call("m", "b", b);
  call("n", "c", c);
  const Error gone = make_error(ErrorCode::kNotFound, "GONE", "gone");
  warm_->forget("m", gone);
  EXPECT_EQ(b.answer(), "GONE");
  answer(m);
  EXPECT_EQ(a.answer(), "a") << "what is computed is answered";
  expect_stopped(m);
  Worker n = next_worker();
  answer(n);
  EXPECT_EQ(c.answer(), "c");
  warm_->forget("n", gone);
  expect_stopped(n);
}

TEST_F(ServiceWarmWorkers, ACancelledGenerationStopsAndItsWorkerStays) {
  start();
  Caller a, b, c;
  const CallNumber running = call("m", "a", a, Kind::kGenerate);
  Worker worker = next_worker();
  const CallNumber waiting = call("m", "b", b, Kind::kGenerate);
  warm_->cancel(waiting);
  EXPECT_EQ(b.answer(), "CANCELLED");
  warm_->cancel(running);
  EXPECT_EQ(worker.commands->next().cancel_call(), running);
  v1::WorkerReport report;
  v1::ServeAnswer& to = *report.mutable_answers()->add_answers();
  to.set_number(running);
  to.mutable_outcome()->set_kind(v1::Outcome::STOPPED);
  to.mutable_outcome()->set_code(1);
  to.mutable_outcome()->set_reason("CANCELLED");
  supervisor_->report(worker.task, report, [](const Status&) {});
  EXPECT_EQ(a.answer(), "CANCELLED");
  call("m", "c", c);
  take_calls(worker);
  EXPECT_EQ(texts(worker), "c");
  warm_->cancel(running);  // too late, so it has no effect
}

TEST_F(ServiceWarmWorkers, ACancelledGenerationThatContinuesEndsItsWorker) {
  start();
  Caller a;
  const CallNumber running = call("m", "a", a, Kind::kGenerate);
  Worker worker = next_worker();
  warm_->cancel(running);
  EXPECT_EQ(worker.commands->next().cancel_call(), running);
  EXPECT_EQ(a.answer(), "CANCELLED");
  EXPECT_TRUE(eventually([&] { return supervisor_->task_count() == 0; }));
}

TEST_F(ServiceWarmWorkers, DrainingAnswersEveryCall) {
  limits_[0].running_max = 2;
  start();
  Caller idle, running, waiting, later;
  call("n", "idle", idle);
  Worker n = next_worker();
  answer(n);
  EXPECT_EQ(idle.answer(), "idle");
  call("m", "running", running);
  Worker m = next_worker();
  call("m", "waiting", waiting);
  warm_->drain();
  EXPECT_EQ(waiting.answer(), "SERVER_DRAINING");
  expect_stopped(n);
  call("m", "later", later);
  EXPECT_EQ(later.answer(), "SERVER_DRAINING");
  answer(m);
  EXPECT_EQ(running.answer(), "running");
  expect_stopped(m);
}

}  // namespace
}  // namespace trainyard::server
