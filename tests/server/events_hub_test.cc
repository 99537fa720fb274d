// I5 and F25: a watcher gets every event once, in order, whether it is fast, slow, late or
// reconnects; one that goes away is not called any more; one that sleeps holds nothing up.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "server/events/event_hub.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

using namespace std::chrono_literals;

// A client: reads when it is told to, on its own thread.
class Client {
 public:
  Client(EventHub& hub, const std::string& uid, int64_t after)
      : watcher_(hub.watch(uid, after, [this] { tell(); }).value()), last_(after) {}
  ~Client() { watcher_.reset(); }

  /// Reads until the job has ended or `count` events came; checks the numbers.
  void read(int64_t count, std::chrono::microseconds pause = 0us, int32_t batch = 5) {
    while (seen_ < count && !ended_) {
      const Watcher::Next next = watcher_->next(batch).value();
      for (const v1::Event& e : next.events) {
        ASSERT_EQ(e.seq(), ++last_);
        ++seen_;
      }
      ended_ = next.ended;
      if (pause > 0us) std::this_thread::sleep_for(pause);
      if (next.events.empty() && !ended_) wait();
    }
  }
  /// One read; true if it found nothing, so that the watcher is now owed a call.
  bool finds_nothing() {
    const auto next = watcher_->next();
    return next.ok() && next->events.empty();
  }
  int64_t last() const { return last_; }
  bool ended() const { return ended_; }
  int told() {
    const std::lock_guard lock(mu_);
    return told_;
  }

 private:
  void tell() {
    const std::lock_guard lock(mu_);
    ready_ = true;
    ++told_;
    wake_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mu_);
    ASSERT_TRUE(wake_.wait_for(lock, 20s, [&] { return ready_; }));
    ready_ = false;
  }

  std::mutex mu_;
  std::condition_variable wake_;
  bool ready_ = false;
  int told_ = 0;
  std::unique_ptr<Watcher> watcher_;
  int64_t last_;
  int64_t seen_ = 0;
  bool ended_ = false;
};

class EventsHub : public testing::Test {
 protected:
  void log(const Job& job, int64_t number) {
    AttemptUpdate update = update_of(job, number);
    update.events.push_back(log_event(std::to_string(number)));
    ASSERT_TRUE(store->jobs().update_attempt(std::move(update)).ok());
  }
  void end(const Job& job, int64_t number) {
    AttemptUpdate update = update_of(job, number);
    update.move = move_to(JobState::kSucceeded);
    ASSERT_TRUE(store->jobs().update_attempt(std::move(update)).ok());
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

TEST_F(EventsHub, RefusesWhatCannotBeWatched) {
  const Job job = run_job(*store);
  EXPECT_EQ(hub->watch("nobody", 0, [] {}).error().reason, "JOB_NOT_FOUND");
  EXPECT_EQ(hub->watch(job.uid, 4, [] {}).error().reason, "SEQUENCE_IN_FUTURE");
  EXPECT_EQ(hub->watch(job.uid, -1, [] {}).error().reason, "SEQUENCE_INVALID");
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
      while (!ended) {  // reconnects after a few events each time
        Client client(*hub, job.uid, last);
        client.read(1 + random() % 40, std::chrono::microseconds(w == 0 ? 1000 : 0), 3);
        last = client.last();
        ended = client.ended();
      }
      EXPECT_EQ(last, 3 + kLogs + 1);
    });
  for (int n = 2; n < 2 + kLogs; ++n) log(job, n);
  end(job, 2 + kLogs);
}

TEST_F(EventsHub, IsToldOncePerEmptyRead) {
  const Job job = run_job(*store);
  Client client(*hub, job.uid, 3);
  EXPECT_EQ(client.told(), 0);
  for (int n = 2; n < 12; ++n) log(job, n);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(client.told(), 0);  // it has not asked yet
  client.read(10);
  ASSERT_TRUE(client.finds_nothing());
  for (int n = 12; n < 15; ++n) log(job, n);
  for (int ms = 0; ms < 5000 && client.told() == 0; ++ms) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);  // a second call would have come by now
  EXPECT_EQ(client.told(), 1);
}

TEST_F(EventsHub, F25SleepingWatcherHoldsNobodyUp) {
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

TEST_F(EventsHub, WatcherThatIsGoneIsNotCalled) {
  const Job job = run_job(*store);
  std::atomic<bool> writing = true;
  std::jthread writer([&] {
    for (int n = 2; writing; ++n) log(job, n);
  });
  for (int i = 0; i < 200; ++i) {
    auto alive = std::make_unique<std::atomic<bool>>(true);
    std::unique_ptr<Watcher> watcher =
        hub->watch(job.uid, 3, [flag = alive.get()] { ASSERT_TRUE(*flag); }).value();
    while (!watcher->next().value().events.empty()) {
    }
    if (i % 2 == 0) std::this_thread::yield();
    watcher.reset();
    *alive = false;
    alive.reset();  // a late call would touch freed memory
  }
  writing = false;
}

TEST_F(EventsHub, RemovedJobEndsItsWatchers) {
  Job job = store->jobs().submit(new_job("gone")).value();
  std::mutex mu;
  std::condition_variable wake;
  bool told = false;
  const std::unique_ptr<Watcher> watcher = hub->watch(job.uid, 0,
                                                      [&] {
                                                        const std::lock_guard lock(mu);
                                                        told = true;
                                                        wake.notify_one();
                                                      })
                                               .value();
  EXPECT_EQ(watcher->next().value().events.size(), 1u);
  EXPECT_TRUE(watcher->next().value().events.empty());
  ASSERT_TRUE(store->jobs().request_cancel("default", "gone").ok());
  ASSERT_TRUE(store->jobs().remove("default", "gone").ok());
  std::unique_lock lock(mu);
  ASSERT_TRUE(wake.wait_for(lock, 20s, [&] { return told; }));
  EXPECT_EQ(watcher->next().error().reason, "JOB_NOT_FOUND");
}

}  // namespace
}  // namespace trainyard::server
