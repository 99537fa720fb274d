// Tests of retention in the store. They fail if a rule deletes another job than it reports, if
// events are deleted without a mark in the job, or if a reader mistakes a gap for the end.
#include <gtest/gtest.h>

#include "server/store/wait_for.h"
#include "tests/server/fake_clock.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

class StoreRetention : public ::testing::Test {
 protected:
  /// Creates a job with `logs` log lines that ends now.
  Job end_job(const std::string& id, JobState state = JobState::kSucceeded, int logs = 0) {
    Job job = run_job(*store_, new_job(id));
    AttemptUpdate update = update_of(job);
    for (int i = 0; i < logs; ++i) update.events.push_back(log_event("line"));
    update.move = move_to(state);
    if (state == JobState::kSucceeded) update.model.emplace().digest = "d";
    return answer_of(store_->jobs(), &JobStore::update_attempt, std::move(update)).value();
  }
  std::vector<std::string> ids(const EndedQuery& query) {
    std::vector<std::string> ids;
    const std::vector<EndedJob> jobs = store_->jobs().list_ended(query).value();
    for (const EndedJob& job : jobs) ids.push_back(job.id);
    return ids;
  }
  Status thin(const Job& job, std::vector<ThinEvents::Range> gone, EventsThinned then) {
    ThinEvents piece;
    piece.uid = job.uid;
    piece.gone = std::move(gone);
    piece.then = then;
    return answer_of(store_->jobs(), &JobStore::thin_events, std::move(piece));
  }

  TemporaryDirectory directory_;
  FakeClock clock_;
  std::unique_ptr<Store> store_ = open_or_die(small_options(directory_.path()), clock_);
};

using Ids = std::vector<std::string>;

EndedQuery ended_by(int64_t time_us) {
  EndedQuery query;
  query.ended_before_us = time_us;
  return query;
}
EndedQuery without_newest(int64_t count) {
  EndedQuery query;
  query.skip_newest = count;
  return query;
}
EndedQuery to_thin() {
  EndedQuery query;
  query.to_thin = true;
  return query;
}
EndedQuery page_of_two() {
  EndedQuery query;
  query.count_max = 2;
  return query;
}

TEST_F(StoreRetention, OnlyFinishedJobsAreListedInOrderOfTheirEnds) {
  const Job late = run_job(*store_, new_job("late"));  // submitted first, ends last
  const Job runs = run_job(*store_, new_job("runs"));
  (void)store_->jobs().submit(new_job("waits")).value();
  clock_.pass(1'000'000);
  end_job("one");
  const int64_t one_us = clock_.wall_us();
  clock_.pass(1'000'000);
  end_job("two", JobState::kFailed);
  end_job("three", JobState::kFailed);  // ends at the same time as "two"
  clock_.pass(1'000'000);
  AttemptUpdate ends = update_of(late);
  ends.move = move_to(JobState::kFailed);
  ASSERT_TRUE(answer_of(store_->jobs(), &JobStore::update_attempt, ends).ok());

  EXPECT_EQ(ids({}), (Ids{"one", "two", "three", "late"}));
  EXPECT_EQ(ids(ended_by(one_us)), (Ids{"one"}));
  EXPECT_EQ(ids(ended_by(one_us - 1)), Ids());
  EXPECT_EQ(ids(without_newest(1)), (Ids{"one", "two", "three"}));
  EXPECT_EQ(ids(without_newest(2)), (Ids{"one", "two"})) << "the order of equal times counts";
  EXPECT_EQ(ids(without_newest(4)), Ids());
  EXPECT_EQ(ids(without_newest(100)), Ids());

  EndedQuery earlier = without_newest(1);
  earlier.as_of_us = one_us + 1'000'000;  // before "late" ended
  EXPECT_EQ(ids(earlier), (Ids{"one", "two"}));
  earlier.skip_newest = 0;
  EXPECT_EQ(ids(earlier), (Ids{"one", "two", "three"}));
  earlier.as_of_us = one_us - 1;
  EXPECT_EQ(ids(earlier), Ids());

  std::vector<EndedJob> page = store_->jobs().list_ended(page_of_two()).value();
  ASSERT_EQ(page.size(), 2U);
  EXPECT_TRUE(page[0].has_model);
  EXPECT_FALSE(page[1].has_model);
  EndedQuery next = page_of_two();
  next.after_time_us = page[1].end_time_us;
  next.after_order = page[1].order;
  EXPECT_EQ(ids(next), (Ids{"three", "late"}));
}

TEST_F(StoreRetention, AJobWhoseModelWasDeletedSaysSo) {
  end_job("one");
  ASSERT_TRUE(store_->models().remove("default", "one").ok());
  EXPECT_FALSE(store_->jobs().list_ended({}).value().at(0).has_model);
}

TEST_F(StoreRetention, OnlyAFinishedJobIsRemovedOrThinned) {
  const Job runs = run_job(*store_, new_job("runs"));
  EXPECT_EQ(thin(runs, {{1, 1}}, EventsThinned::kBegun).error().reason, "JOB_STATE_CONFLICT");
  std::optional<Error> refused;
  store_->jobs().remove_ended(runs.uid, [&](const Result<Job>& r) { refused = r.error(); });
  // This call returns after the removal above was answered.
  (void)store_->jobs().submit(new_job("behind")).value();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->reason, "JOB_STATE_CONFLICT");
  EXPECT_EQ(all_events(*store_, runs.uid).size(), 3U);
  ThinEvents nobody;
  nobody.uid = "nobody";
  EXPECT_EQ(answer_of(store_->jobs(), &JobStore::thin_events, nobody).error().reason,
            "JOB_NOT_FOUND");
}

TEST_F(StoreRetention, ThinnedEventsLeaveAGapThatTheJobDeclares) {
  const Job job = end_job("one", JobState::kFailed, 10);  // 1..3: states, 4..13: lines, 14: end
  ASSERT_EQ(job.newest_seq, 14);
  EXPECT_EQ(read_events(store_->jobs(), job.uid, 0, 100)->oldest_seq, 1);
  EXPECT_EQ(ids(to_thin()), (Ids{"one"}));
  ASSERT_TRUE(thin(job, {{4, 6}}, EventsThinned::kBegun).ok());
  EXPECT_TRUE(to_proto(store_->jobs().find_uid(job.uid).value()).events_thinned());
  EXPECT_EQ(ids(to_thin()), (Ids{"one"})) << "it goes on after a kill";
  ASSERT_TRUE(thin(job, {{9, 13}}, EventsThinned::kDone).ok());
  EXPECT_EQ(ids(to_thin()), Ids());

  // A batch ends before the next gap. A reader continues after the last event that it has seen.
  std::vector<std::vector<int64_t>> batches;
  for (int64_t after = 0; after < 14;) {
    const EventBatch batch = read_events(store_->jobs(), job.uid, after, 100).value();
    ASSERT_FALSE(batch.events.empty()) << after;
    EXPECT_EQ(batch.oldest_seq, 14);
    std::vector<int64_t>& seqs = batches.emplace_back();
    for (const v1::Event& e : batch.events) seqs.push_back(e.seq());
    after = seqs.back();
  }
  EXPECT_EQ(batches, (std::vector<std::vector<int64_t>>{{1, 2, 3}, {7, 8}, {14}}));
  EXPECT_TRUE(to_proto(store_->jobs().find_uid(job.uid).value()).events_thinned());
}

TEST_F(StoreRetention, AnEventIsReplacedInItsPlace) {
  const Job job = end_job("one", JobState::kFailed, 3);
  ThinEvents piece;
  piece.uid = job.uid;
  piece.gone = {{4, 5}};
  piece.then = EventsThinned::kDone;
  v1::Event instead = read_events(store_->jobs(), job.uid, 5, 1).value().events.at(0);
  instead.mutable_log()->set_text(std::string(5000, 'x'));  // long enough to take several rows
  piece.instead = instead;
  ASSERT_TRUE(answer_of(store_->jobs(), &JobStore::thin_events, piece).ok());
  ASSERT_TRUE(answer_of(store_->jobs(), &JobStore::thin_events, piece).ok())
      << "again, after a kill";
  const std::vector<v1::Event> left = read_events(store_->jobs(), job.uid, 5, 9).value().events;
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].SerializeAsString(), instead.SerializeAsString());
}

TEST_F(StoreRetention, ThinningNothingNotifiesNobody) {
  const Job job = end_job("one");
  ASSERT_TRUE(thin(job, {}, EventsThinned::kNothingToThin).ok());
  EXPECT_EQ(ids(to_thin()), Ids());
  EXPECT_FALSE(to_proto(store_->jobs().find_uid(job.uid).value()).events_thinned());
  EXPECT_EQ(read_events(store_->jobs(), job.uid, 0, 9)->oldest_seq, 1);
}

TEST_F(StoreRetention, FilesOfManyAreForgottenAtOnce) {
  const Job one = end_job("one");
  const Job two = end_job("two");
  ASSERT_TRUE(store_->jobs().remove("default", "one").ok());
  ASSERT_TRUE(store_->jobs().remove("default", "two").ok());
  EXPECT_EQ(store_->removals().list().value().size(), 2U);
  ASSERT_TRUE(store_->removals().forget_all({"jobs/" + one.uid, "jobs/" + two.uid}).ok());
  EXPECT_TRUE(store_->removals().list().value().empty());
}

}  // namespace
}  // namespace trainyard::server
