// I5 and F25: a watcher receives every event exactly once and in order, whether it is fast, slow,
// late or reconnects. The hub never calls a closed watcher, and a sleeping watcher delays nobody.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "server/events/event_hub.h"
#include "server/store/wait_for.h"
#include "tests/server/store_support.h"
#include "tests/support/patience.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {
namespace {

using namespace std::chrono_literals;

std::vector<v1::Event> events_of(const EventRun& run) {
  std::vector<v1::Event> events;
  if (!run.block) return events;
  v1::WatchJobResponse message;
  const size_t begin = run.first == 0 ? 0 : run.block->ends[run.first - 1];
  EXPECT_TRUE(message.ParseFromString(run.block->bytes.substr(begin)));
  events.assign(message.events().begin(), message.events().end());
  return events;
}

// A client that requests more events when it wants them, on its own thread.
class Client {
 public:
  Client(EventHub& hub, const std::string& uid, int64_t after)
      : watcher_(
            hub.watch(uid, after, [this](Result<EventRun> run) { take(std::move(run)); }).value()),
        last_(after) {}
  ~Client() { watcher_.reset(); }

  /// Reads until the job has ended or `count` events were received. Checks the sequence numbers.
  void read(int64_t count, std::chrono::microseconds pause = 0us) {
    for (int64_t seen = 0; seen < count && !ended_;) {
      const Result<EventRun> run = next();
      ASSERT_TRUE(run.ok()) << run.error().message;
      for (const v1::Event& e : events_of(*run)) {
        ASSERT_EQ(e.seq(), ++last_);
        ++seen;
      }
      ended_ = run->ended;
      if (pause > 0us) std::this_thread::sleep_for(pause);
    }
  }
  /// Requests more events and waits for them.
  Result<EventRun> next() {
    ask();
    std::unique_lock lock(mu_);
    EXPECT_TRUE(wake_.wait_for(lock, patience(), [&] { return run_.has_value(); }));
    Result<EventRun> run = run_ ? std::move(*run_) : Result<EventRun>(EventRun());
    run_.reset();
    return run;
  }
  void ask() { watcher_->request(); }
  int64_t last() const { return last_; }
  bool ended() const { return ended_; }
  int told() {
    const std::lock_guard lock(mu_);
    return told_;
  }

 private:
  void take(Result<EventRun> run) {
    const std::lock_guard lock(mu_);
    run_ = std::move(run);
    ++told_;
    wake_.notify_one();
  }

  std::mutex mu_;
  std::condition_variable wake_;
  std::optional<Result<EventRun>> run_;
  int told_ = 0;
  std::unique_ptr<Watcher> watcher_;
  int64_t last_;
  bool ended_ = false;
};

class EventsHub : public testing::Test {
 protected:
  void log(const Job& job, int64_t number) {
    AttemptUpdate update = update_of(job, number);
    update.events.push_back(log_event(std::to_string(number)));
    ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, std::move(update)).ok());
  }
  void end(const Job& job, int64_t number) {
    AttemptUpdate update = update_of(job, number);
    update.move = move_to(JobState::kSucceeded);
    ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, std::move(update)).ok());
  }

  TemporaryDirectory directory;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()));
  std::unique_ptr<EventHub> hub = std::make_unique<EventHub>(*store);
};

TEST_F(EventsHub, ReplaysThenFollowsToTheEnd) {
  const Job job = run_job(*store);
  Client client(*hub, job.uid, 0);
  client.read(3);
  EXPECT_EQ(client.last(), 3);
  std::jthread follower([&] { client.read(1000); });
  for (int n = 2; n < 50; ++n) log(job, n);
  end(job, 50);
  follower.join();
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(client.last(), 3 + 48 + 1);
}

TEST_F(EventsHub, WatcherOfAFinishedJobEndsAtOnce) {
  const Job job = run_job(*store);
  end(job, 2);
  Client all(*hub, job.uid, 0);
  all.read(1000);
  EXPECT_TRUE(all.ended());
  EXPECT_EQ(all.last(), 4);
  Client none(*hub, job.uid, 4);
  none.read(1000);
  EXPECT_TRUE(none.ended());
}

TEST_F(EventsHub, RefusesUnknownJobsAndInvalidPositions) {
  const Job job = run_job(*store);
  const auto ignore = [](const Result<EventRun>&) {};
  EXPECT_EQ(hub->watch("nobody", 0, ignore).error().reason, "JOB_NOT_FOUND");
  EXPECT_EQ(hub->watch(job.uid, 4, ignore).error().reason, "SEQUENCE_IN_FUTURE");
  EXPECT_EQ(hub->watch(job.uid, -1, ignore).error().reason, "SEQUENCE_INVALID");
}

TEST_F(EventsHub, F25SlowAndReconnectingWatchersSeeEveryEventOnce) {
  constexpr int kLogs = 200;
  const Job job = run_job(*store);
  std::vector<std::jthread> threads;
  for (int w = 0; w < 4; ++w)
    threads.emplace_back([&, w] {
      std::mt19937 random(static_cast<unsigned>(w));
      int64_t last = 0;
      bool ended = false;
      while (!ended) {  // reconnects after a few events
        Client client(*hub, job.uid, last);
        client.read(1 + random() % 40, std::chrono::microseconds(w == 0 ? 1000 : 0));
        last = client.last();
        ended = client.ended();
      }
      EXPECT_EQ(last, 3 + kLogs + 1);
    });
  for (int n = 2; n < 2 + kLogs; ++n) log(job, n);
  end(job, 2 + kLogs);
}

TEST_F(EventsHub, AnswersEachRequestOnce) {
  const Job job = run_job(*store);
  Client client(*hub, job.uid, 3);
  EXPECT_EQ(client.told(), 0);
  for (int n = 2; n < 12; ++n) log(job, n);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(client.told(), 0);  // the client has not requested anything yet
  client.read(10);
  const int before = client.told();
  client.ask();
  for (int n = 12; n < 15; ++n) log(job, n);
  ASSERT_TRUE(eventually([&] { return client.told() > before; }));
  std::this_thread::sleep_for(20ms);  // long enough for a wrong second call to happen
  EXPECT_EQ(client.told(), before + 1);
}

TEST_F(EventsHub, WatchersAtTheSamePositionShareTheBytes) {
  const Job job = run_job(*store);
  Client one(*hub, job.uid, 3), other(*hub, job.uid, 3);
  for (int n = 2; n < 12; ++n) log(job, n);
  // Live events: the block that was read for one watcher is reused for the other.
  const EventRun first = one.next().value(), second = other.next().value();
  ASSERT_TRUE(first.block && second.block);
  EXPECT_EQ(first.block.get(), second.block.get());
  // Old events, which neither watcher has read.
  Client late(*hub, job.uid, 0), later(*hub, job.uid, 0);
  const EventRun past = late.next().value();
  EXPECT_EQ(past.block.get(), later.next().value().block.get());
  EXPECT_EQ(events_of(past).front().seq(), 1);
}

TEST_F(EventsHub, ResumesInTheMiddleOfABlock) {
  const Job job = run_job(*store);
  Client first(*hub, job.uid, 3);
  for (int n = 2; n < 12; ++n) log(job, n);
  const EventRun all = first.next().value();
  ASSERT_EQ(all.block->last_seq(), 13);
  Client resumed(*hub, job.uid, 9);
  const EventRun rest = resumed.next().value();
  EXPECT_EQ(rest.block.get(), all.block.get());
  const std::vector<v1::Event> events = events_of(rest);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events.front().seq(), 10);
}

TEST_F(EventsHub, AWatcherFarBehindGetsEveryEventInSmallPieces) {
  const Job job = run_job(*store);
  Client fast(*hub, job.uid, 3), slow(*hub, job.uid, 3);
  const std::string text(4000, 'x');
  constexpr int kLogs = 1200;  // 4.8 MB, more than the hub keeps in memory
  std::jthread reader([&] { fast.read(kLogs); });
  for (int n = 2; n < 2 + kLogs; ++n) {
    AttemptUpdate update = update_of(job, n);
    update.events.push_back(log_event(text));
    store->jobs().update_attempt(std::move(update),
                                 [](const Result<Job>& r) { ASSERT_TRUE(r.ok()); });
  }
  reader.join();
  for (int64_t last = 3; last < 3 + kLogs;) {
    const EventRun run = slow.next().value();
    ASSERT_TRUE(run.block);
    ASSERT_EQ(run.block->first_seq + static_cast<int64_t>(run.first), last + 1);
    const int64_t bytes_max = last == 3 ? EventHub::kPastBlockBytesMax
                                        : EventHub::kLiveBlockBytesMax;  // once it has caught up
    EXPECT_LE(run.block->bytes.size(), static_cast<size_t>(bytes_max) + text.size() + 100);
    last = run.block->last_seq();
  }
}

TEST_F(EventsHub, AJobWithoutWatchersKeepsNoMemory) {
  const Job job = run_job(*store);
  std::weak_ptr<const EventBlock> kept;
  {
    Client client(*hub, job.uid, 3);
    for (int n = 2; n < 12; ++n) log(job, n);
    kept = client.next().value().block;
    EXPECT_FALSE(kept.expired());
  }
  // The hub's thread may still be at the end of its call.
  EXPECT_TRUE(eventually([&] { return kept.expired(); }));
}

TEST_F(EventsHub, F25ASleepingWatcherDoesNotDelayOthers) {
  const Job job = run_job(*store);
  Client sleeping(*hub, job.uid, 3);
  sleeping.read(0);
  Client awake(*hub, job.uid, 3);
  std::jthread reader([&] { awake.read(20); });
  for (int n = 2; n < 22; ++n) log(job, n);
  reader.join();
  EXPECT_EQ(awake.last(), 23);
  sleeping.read(20);
  EXPECT_EQ(sleeping.last(), 23);
}

TEST_F(EventsHub, ARemovedWatcherIsNotCalled) {
  const Job job = run_job(*store);
  std::atomic<bool> writing = true;
  std::jthread writer([&] {
    for (int n = 2; writing; ++n) log(job, n);
  });
  for (int i = 0; i < 200; ++i) {
    auto alive = std::make_unique<std::atomic<bool>>(true);
    std::unique_ptr<Watcher> watcher;
    watcher = hub->watch(job.uid, 3,
                         [flag = alive.get()](const Result<EventRun>&) { ASSERT_TRUE(*flag); })
                  .value();
    watcher->request();
    if (i % 2 == 0) std::this_thread::yield();
    watcher.reset();
    *alive = false;
    alive.reset();  // a late call would touch freed memory
  }
  writing = false;
}

TEST_F(EventsHub, RemovedJobEndsItsWatchers) {
  Job job = store->jobs().submit(new_job("gone")).value();
  Client client(*hub, job.uid, 0);
  client.read(1);
  ASSERT_TRUE(store->jobs().request_cancel("default", "gone").ok());
  ASSERT_TRUE(store->jobs().remove("default", "gone").ok());
  EXPECT_EQ(client.next().error().reason, "JOB_NOT_FOUND");
}

}  // namespace
}  // namespace trainyard::server
