// Tests of when an attempt counts as over: first single rules, then all sequences of events up to a
// length, on a small model of a cluster, its network and a daemon that crashes.
#include "server/cluster/end_watch.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

namespace trainyard::server {
namespace {

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kMinute = 60 * kSecond;
const PlacementHandle kWatchedHandle{"17", "ty-i-j-1"};

Sighting sighting(Seen seen, const std::string& how = {}) {
  return {kWatchedHandle, seen, {}, 0, {}, how};
}

class Watch : public ::testing::Test {
 protected:
  Fate after(const Sighting& seen, int64_t pause_us) {
    now_ += pause_us;
    watch_.saw(seen, now_);
    return watch_.verdict(now_).fate;
  }

  int64_t now_ = 1000 * kMinute;
  EndRules rules_{10 * kMinute, kMinute, 5 * kMinute, 2 * kMinute, 30 * kSecond};
  EndWatch watch_{rules_, now_};
};

TEST_F(Watch, FollowsTheObservedStates) {
  EXPECT_EQ(watch_.verdict(now_).fate, Fate::kUnknown);
  EXPECT_EQ(after(sighting(Seen::kWaiting), kSecond), Fate::kWaiting);
  EXPECT_EQ(after(sighting(Seen::kGranted), kSecond), Fate::kGranted);
  EXPECT_EQ(after(sighting(Seen::kEnded, "TIMEOUT"), kSecond), Fate::kOver);
  EXPECT_EQ(watch_.verdict(now_).why, "the cluster ended it: TIMEOUT");
  EXPECT_FALSE(watch_.verdict(now_).may_linger);
  EXPECT_EQ(after(sighting(Seen::kGranted), kSecond), Fate::kOver) << "over stays";
}

TEST_F(Watch, IgnoresAnEndWhileTheWorkerReports) {
  // A cluster that has lost contact with a node reports NODE_FAIL although the worker still trains.
  watch_.heard(now_);
  after(sighting(Seen::kGranted), kSecond);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(after(sighting(Seen::kEnded, "NODE_FAIL"), 10 * kSecond), Fate::kUnknown);
    watch_.heard(now_);
  }
  EXPECT_EQ(watch_.verdict(now_ + 29 * kSecond).fate, Fate::kUnknown);
  EXPECT_EQ(watch_.verdict(now_ + 30 * kSecond).fate, Fate::kOver);
  EXPECT_TRUE(watch_.verdict(now_ + 30 * kSecond).may_linger);
}

TEST_F(Watch, UsesTheLatestQuery) {
  watch_.heard(now_);
  EXPECT_EQ(after(sighting(Seen::kEnded, "CANCELLED"), kSecond), Fate::kUnknown);
  EXPECT_EQ(after(sighting(Seen::kGranted), kSecond), Fate::kGranted);
  EXPECT_EQ(watch_.verdict(now_ + kMinute).fate, Fate::kGranted);
}

TEST_F(Watch, AfterARestartWaitsForAnAttachedWorkerToReport) {
  EndWatch again(rules_, now_, true);
  again.saw(sighting(Seen::kEnded, "NODE_FAIL"), now_);
  EXPECT_EQ(again.verdict(now_).fate, Fate::kUnknown);
  EXPECT_EQ(again.verdict(now_ + 30 * kSecond).fate, Fate::kOver);
}

TEST_F(Watch, TreatsARequeueAsAnEnd) {
  EXPECT_EQ(after(sighting(Seen::kWaiting), kSecond), Fate::kWaiting);
  EXPECT_EQ(after(sighting(Seen::kGranted), kSecond), Fate::kGranted);
  EXPECT_EQ(after(sighting(Seen::kWaiting), kSecond), Fate::kOver);
  EXPECT_EQ(watch_.verdict(now_).why, "the cluster ended it: REQUEUED");
}

TEST_F(Watch, DoesNotMistakeAWaitingDuplicateForARequeue) {
  after(sighting(Seen::kGranted), kSecond);
  Sighting other = sighting(Seen::kWaiting);
  other.handle.id = "18";
  EXPECT_EQ(after(other, kSecond), Fate::kWaiting);
}

TEST_F(Watch, EndsAfterALongUninterruptedAbsence) {
  EXPECT_EQ(after(sighting(Seen::kGranted), kSecond), Fate::kGranted);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(after(sighting(Seen::kUnseen), kMinute), Fate::kUnknown) << i;
  }
  EXPECT_EQ(after(sighting(Seen::kUnseen), kMinute), Fate::kOver) << "the lease, 10 minutes";
  EXPECT_TRUE(watch_.verdict(now_).may_linger);
}

TEST_F(Watch, RestartsTheAbsenceWhenTheJobIsObservedOrReports) {
  for (int i = 0; i < 10; ++i) after(sighting(Seen::kUnseen), kMinute);
  EXPECT_EQ(after(sighting(Seen::kGranted), kMinute), Fate::kGranted);
  for (int i = 0; i < 10; ++i) after(sighting(Seen::kUnseen), kMinute);
  watch_.heard(now_);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(after(sighting(Seen::kUnseen), kMinute), Fate::kUnknown) << i;
  }
}

TEST_F(Watch, IgnoresTimeWithoutAnswers) {
  after(sighting(Seen::kUnseen), kMinute);
  for (int i = 0; i < 200; ++i) {
    watch_.saw_nothing();
    EXPECT_EQ(after(sighting(Seen::kUnseen), kMinute), Fate::kUnknown);
  }
  // A night in which the daemon was suspended does not count either, except for two minutes.
  EXPECT_EQ(after(sighting(Seen::kUnseen), 600 * kMinute), Fate::kUnknown);
}

TEST_F(Watch, EndsWithTheLeaseOfASilentWorkerAndNotBefore) {
  after(sighting(Seen::kGranted), kSecond);
  EXPECT_EQ(watch_.verdict(now_ + 10'000 * kMinute).fate, Fate::kGranted) << "none has attached";
  watch_.heard(now_);
  EXPECT_EQ(watch_.verdict(now_ + 11 * kMinute - kSecond).fate, Fate::kGranted);
  EXPECT_EQ(watch_.verdict(now_ + 11 * kMinute).fate, Fate::kOver);
  EXPECT_TRUE(watch_.verdict(now_ + 11 * kMinute).may_linger);
}

// ---- The model -----------------------------------------------------------------------------

// One step is two minutes; absence and lease are three steps, short enough to explore all
// sequences.
constexpr int64_t kStep = 2 * kMinute;
constexpr EndRules kModelRules{6 * kMinute, kMinute, 6 * kMinute, 2 * kMinute, 270 * kSecond};

enum class Place : uint8_t { kNone, kInFlight, kQueued, kRunning, kEnded, kLostNode, kForgotten };

/// One submission in the cluster, and its worker's process, which keeps running on a lost node.
struct Job {
  Place place = Place::kNone;
  bool worker_alive = false;
  int64_t unheard_steps = 0;
};

/// The daemon's store, and the one watch that it has in memory.
struct World {
  int64_t now = 0;
  int attempt = 1;                         // the number of the current attempt
  std::array<std::array<Job, 2>, 3> jobs;  // by attempt - 1: submission and duplicate
  std::array<bool, 3> attached{};          // whether the attempt's secret is spent
  std::optional<EndWatch> watch{std::in_place, kModelRules, 0};
  int submissions = 0;
  int accepted = 0;         // outcomes that the daemon accepted
  int lies = 0;             // successive replies without the attempt although it is in the cluster
  bool was_absent = false;  // a true reply, the latest one, did not list the attempt
};

enum class Event : uint8_t {
  kSubmit,       // the submission is answered
  kSubmitLost,   // the reply is lost: the submission is in flight and may arrive later
  kArrive,       // the submission in flight arrives
  kStart,        // the cluster starts the job, never two of the same name at once
  kReport,       // the worker's report reaches the daemon
  kFinish,       // the worker's outcome is accepted, then its process ends
  kDie,          // the worker's process ends and the cluster notices
  kLoseNode,     // the cluster reports NODE_FAIL, but the process continues
  kForget,       // the cluster deletes its record of ended jobs
  kQuery,        // the cluster's reply is true
  kQueryEmpty,   // a reply without the attempt although it exists: a controller with an old state
  kQueryFailed,  // the cluster does not reply
  kWithdraw,     // the attempt is withdrawn: the cluster ends all jobs of its name
  kCrash,        // the daemon crashes: it loses the watch, but not the store
};
constexpr std::array kEvents{
    Event::kSubmit,     Event::kSubmitLost,  Event::kArrive,   Event::kStart,  Event::kReport,
    Event::kFinish,     Event::kDie,         Event::kLoseNode, Event::kForget, Event::kQuery,
    Event::kQueryEmpty, Event::kQueryFailed, Event::kWithdraw, Event::kCrash};

bool is_shown(const Job& job) {
  return job.place == Place::kQueued || job.place == Place::kRunning ||
         job.place == Place::kEnded || job.place == Place::kLostNode;
}

class Model {
 public:
  int64_t histories = 0, overs = 0, second_attempts = 0, accepted = 0;

  void explore(const World& world, int depth) {
    if (depth == 0) {
      ++histories;
      return;
    }
    for (const Event event : kEvents) {
      World next = world;
      path_.push_back(event);
      if (apply(next, event)) {
        pass_time(next);
        check(next);
        explore(next, depth - 1);
      }
      path_.pop_back();
      if (::testing::Test::HasFailure()) return;
    }
  }

 private:
  static std::array<Job, 2>& current(World& w) {
    return w.jobs[static_cast<size_t>(w.attempt - 1)];
  }

  static bool is_attached(const World& w) { return w.attached[static_cast<size_t>(w.attempt - 1)]; }

  static Job* first(std::array<Job, 2>& jobs, Place place) {
    for (Job& job : jobs) {
      if (job.place == place) return &job;
    }
    return nullptr;
  }

  /// Applies the event. Returns false if the event is impossible in this state.
  bool apply(World& w, Event event) {
    std::array<Job, 2>& jobs = current(w);
    // The running job may also be of an older attempt that was given up.
    Job* running = nullptr;
    size_t of_attempt = 0;
    for (size_t i = 0; i < w.jobs.size(); ++i) {
      for (Job& job : w.jobs[i]) {
        if (job.worker_alive) running = &job, of_attempt = i;
      }
    }
    const bool is_current = of_attempt + 1 == static_cast<size_t>(w.attempt);
    switch (event) {
      case Event::kSubmit:
      case Event::kSubmitLost: {
        // The daemon submits again under the same name only if find() reports no such job and no
        // worker has used the secret.
        Job* free = first(jobs, Place::kNone);
        if (free == nullptr || is_shown(jobs[0]) || is_shown(jobs[1]) || is_attached(w))
          return false;
        free->place = event == Event::kSubmit ? Place::kQueued : Place::kInFlight;
        return true;
      }
      case Event::kArrive:
        for (std::array<Job, 2>& each : w.jobs) {
          if (Job* job = first(each, Place::kInFlight)) return job->place = Place::kQueued, true;
        }
        return false;
      case Event::kStart:
        for (size_t i = 0; i < w.jobs.size(); ++i) {
          Job* job = first(w.jobs[i], Place::kQueued);
          if (job == nullptr || first(w.jobs[i], Place::kRunning) != nullptr) continue;
          if (w.attached[i] || i + 1 != static_cast<size_t>(w.attempt)) {
            // The secret of the job is spent, or its attempt is no longer the current one.
            job->place = Place::kEnded;
          } else {
            job->place = Place::kRunning;
            job->worker_alive = w.attached[i] = true;
            w.watch->heard(w.now);
          }
          return true;
        }
        return false;
      case Event::kReport:
        if (running == nullptr || !is_current) return false;  // an older attempt's is rejected
        running->unheard_steps = 0;
        w.watch->heard(w.now);
        return true;
      case Event::kFinish:
        if (running == nullptr) return false;
        if (is_current) ++w.accepted;
        end(*running);
        return true;
      case Event::kDie:
        if (running == nullptr) return false;
        end(*running);
        return true;
      case Event::kLoseNode:
        if (running == nullptr || running->place != Place::kRunning) return false;
        running->place = Place::kLostNode;
        return true;
      case Event::kForget:
        for (std::array<Job, 2>& each : w.jobs) {
          for (Job& job : each) {
            if (job.place != Place::kEnded && job.place != Place::kLostNode) continue;
            job.place = Place::kForgotten;
            return true;
          }
        }
        return false;
      case Event::kQuery:
      case Event::kQueryEmpty:
      case Event::kQueryFailed:
        return apply_query(w, event);
      case Event::kWithdraw: {
        bool any = false;
        for (Job& job : jobs) {
          if (job.place != Place::kQueued && job.place != Place::kRunning) continue;
          end(job);
          any = true;
        }
        return any;
      }
      case Event::kCrash:
        w.watch.emplace(kModelRules, w.now, w.attached[static_cast<size_t>(w.attempt - 1)]);
        return true;
    }
    return false;
  }

  static void end(Job& job) {
    job.worker_alive = false;
    if (job.place != Place::kForgotten) job.place = Place::kEnded;
  }

  static bool apply_query(World& w, Event event) {
    const std::array<Job, 2>& jobs = current(w);
    const bool shown = is_shown(jobs[0]) || is_shown(jobs[1]);
    if (event == Event::kQueryFailed) {
      w.watch->saw_nothing();
      return true;
    }
    if (event == Event::kQueryEmpty) {
      // A controller with an old state recovers before the absence of an attempt counts as its end.
      if (!shown || ++w.lies > 3) return false;
      w.watch->saw(sighting(Seen::kUnseen), w.now);
      return true;
    }
    w.lies = 0;
    w.was_absent = !shown;
    Sighting seen = sighting(Seen::kUnseen);
    for (const Place place : {Place::kEnded, Place::kLostNode, Place::kQueued, Place::kRunning}) {
      for (const Job& job : jobs) {
        if (job.place != place) continue;
        seen.seen = place == Place::kQueued    ? Seen::kWaiting
                    : place == Place::kRunning ? Seen::kGranted
                                               : Seen::kEnded;
        seen.how = place == Place::kLostNode ? "NODE_FAIL" : "COMPLETED";
        seen.handle.id = &job == &jobs[0] ? "17" : "18";
      }
    }
    w.watch->saw(seen, w.now);
    return true;
  }

  void pass_time(World& w) {
    w.now += kStep;
    for (std::array<Job, 2>& each : w.jobs) {
      for (Job& job : each) {
        // A worker ends by itself if the daemon has not replied for the lease's three steps.
        if (job.worker_alive && ++job.unheard_steps > 3) end(job);
      }
    }
  }

  void check(World& w) {
    // The verdict is as of one second after the event.
    const Verdict verdict = w.watch->verdict(w.now - kStep + kSecond);
    EXPECT_LE(w.accepted, 1) << trace();
    int alive = 0;
    bool lost_node = false, queued = false, reported = false;
    for (const Job& job : current(w)) {
      alive += job.worker_alive ? 1 : 0;
      lost_node = lost_node || (job.worker_alive && job.place != Place::kRunning);
      reported = reported || (job.worker_alive && job.unheard_steps <= 3);
      queued = queued || job.place == Place::kQueued;
    }
    EXPECT_LE(alive, 1) << "two copies of one attempt are alive: " << trace();
    if (verdict.fate != Fate::kOver) return;
    ++overs;
    EXPECT_FALSE(reported) << "over, though its worker has just reported: " << trace();
    // An attempt with a live worker may count as over only if the cluster has lost it, and the
    // verdict must say that the worker may still run.
    EXPECT_TRUE(alive == 0 || (lost_node && verdict.may_linger)) << "live, but over: " << trace();
    EXPECT_FALSE(queued && !is_attached(w) && !w.was_absent) << "waits, but is over: " << trace();
    if (w.accepted > 0) {
      accepted += w.accepted;
      return;  // the job has ended, so there is no next attempt
    }
    if (static_cast<size_t>(w.attempt) == w.jobs.size()) return;
    // The store commits the number before the next submission, so older attempts are rejected.
    ++w.attempt;
    ++second_attempts;
    w.lies = 0;
    w.was_absent = false;
    w.watch.emplace(kModelRules, w.now);
  }

  std::string trace() const {
    constexpr std::array kNames{"submit",     "submit-lost", "arrive",    "start",  "report",
                                "finish",     "die",         "lose-node", "forget", "look",
                                "look-empty", "look-failed", "withdraw",  "crash"};
    std::string text;
    for (const Event event : path_) text += std::string(kNames[static_cast<size_t>(event)]) + " ";
    return text;
  }

  std::vector<Event> path_;
};

TEST(EndWatchModel, NeverEndsALiveAttemptAndNeverRunsTwoCopies) {
  Model model;
  model.explore(World{}, 8);
  // The exploration must reach the interesting states often enough.
  EXPECT_GT(model.histories, 100'000);
  EXPECT_GT(model.overs, 1'000);
  EXPECT_GT(model.second_attempts, 1'000);
}

}  // namespace
}  // namespace trainyard::server
