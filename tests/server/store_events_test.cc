// Tests of events in the store. They fail if an event is read back with other content than was
// stored, if rows of earlier versions cannot be read, or if metrics take more space than needed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "server/store/event_rows.h"
#include "server/store/sqlite.h"
#include "server/store/wait_for.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

v1::Event metrics_event() {
  v1::Event event;
  event.set_seq(7);
  event.mutable_time()->set_seconds(1'700'000'000);
  event.mutable_time()->set_nanos(123'000);
  event.set_attempt(2);
  event.mutable_metrics();
  return event;
}

/// Adds `count` points, starting at step `first`.
void add_series(v1::Event& event, const std::string& key, int64_t first, int count,
                const std::function<double(int)>& value) {
  v1::MetricSeries& series = *event.mutable_metrics()->add_series();
  series.set_key(key);
  for (int i = 0; i < count; ++i) {
    series.add_steps(first + i);
    series.add_values(value(i));
  }
}

void expect_same(const v1::Event& event) {
  v1::Event read;
  read.mutable_log()->set_text("what was there before");
  ASSERT_TRUE(unpack_event(pack_event(event), read));
  EXPECT_EQ(read.SerializeAsString(), event.SerializeAsString()) << event.DebugString();
}

TEST(EventPayload, MetricsRoundTrip) {
  v1::Event event = metrics_event();
  add_series(event, "train/loss", 16380, 300,
             [](int i) { return 1.0F / static_cast<float>(i + 1); });
  add_series(event, "train/accuracy", 16380, 300, [](int i) { return i / 300.0; });
  add_series(event, "train/learning_rate", 16400, 1, [](int) { return 0.1; });
  add_series(event, "val/loss", 0, 2, [](int i) { return i == 0 ? -0.0 : 1e300; });
  expect_same(event);

  v1::Event uneven = metrics_event();
  add_series(uneven, "train/samples_per_second", 5, 6, [](int i) { return 1000.5 * i; });
  constexpr int64_t kSteps[] = {
      3, 3, 90, 80, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (int i = 0; i < 6; ++i) {
    uneven.mutable_metrics()->mutable_series(0)->set_steps(i, kSteps[i]);
  }
  expect_same(uneven);

  v1::Event not_finite = metrics_event();
  add_series(not_finite, "train/loss", 1, 3, [](int) { return 0.0; });
  v1::NonFinite& mark = *not_finite.mutable_metrics()->mutable_series(0)->add_non_finite();
  mark.set_index(2);
  mark.set_kind(v1::NonFinite::NEGATIVE_INFINITY);
  add_series(not_finite, "train/raw", 1, 3,
             [](int i) { return i == 1 ? std::nan("7") : INFINITY; });
  expect_same(not_finite);
}

TEST(EventPayload, OtherEventsAreKeptUnchanged) {
  v1::Event event = metrics_event();
  expect_same(event);  // a batch without any series
  add_series(event, "train/loss", 1, 2, [](int i) { return i; });
  event.mutable_metrics()->add_series()->set_key("nothing");
  expect_same(event);
  event.mutable_metrics()->mutable_series(1)->add_values(5);  // a value without a step
  expect_same(event);
  event = metrics_event();
  event.mutable_log()->set_text("a line");
  expect_same(event);
  event.mutable_checkpoint()->set_step(5);
  expect_same(event);
  event.mutable_state()->set_reason("RUNNING");
  expect_same(event);
  event.clear_kind();
  expect_same(event);
}

TEST(EventPayload, RowsOfEarlierVersionsAreRead) {
  v1::Event event = metrics_event();
  add_series(event, "train/loss", 1, 5, [](int i) { return i; });
  v1::Event read;
  ASSERT_TRUE(unpack_event(event.SerializeAsString(), read));
  EXPECT_EQ(read.SerializeAsString(), event.SerializeAsString());
}

TEST(EventPayload, DamagedOnesAreRefused) {
  v1::Event stored;
  v1::PackedSeries& series = *stored.mutable_packed_metrics()->add_series();
  const auto reads = [&] {
    v1::Event event;
    return unpack_event(stored.SerializeAsString(), event);
  };
  EXPECT_FALSE(reads()) << "no values";
  series.add_floats(1);
  EXPECT_TRUE(reads());
  series.add_gaps(1);
  EXPECT_FALSE(reads()) << "a gap behind the last step";
  series.add_floats(2);
  series.add_floats(3);
  EXPECT_TRUE(reads());
  series.add_gaps(1);
  series.add_gaps(1);
  EXPECT_FALSE(reads()) << "as many gaps as steps";
  series.clear_gaps();
  EXPECT_FALSE(reads()) << "no gaps";
  series.add_gaps(1);
  series.add_doubles(1);
  EXPECT_FALSE(reads()) << "floats and doubles";
  v1::Event event;
  EXPECT_FALSE(unpack_event("\x0a\xff", event));
}

/// Returns the packed bytes per step of two series, the first of which has float values.
double bytes_a_step(int steps, int batch) {
  v1::Event event = metrics_event();
  add_series(event, "train/loss", 1'000'000, steps,
             [](int i) { return static_cast<double>(std::sin(static_cast<float>(i))); });
  add_series(event, "train/accuracy", 1'000'000, steps,
             [&](int i) { return static_cast<double>(i % batch) / batch; });
  return static_cast<double>(pack_event(event).size()) / steps;
}

TEST(EventPayload, AStepUsesOnlyTheBytesOfItsValues) {
  EXPECT_LT(bytes_a_step(1000, 64), 8.2);
  EXPECT_LT(bytes_a_step(1000, 50), 12.2) << "fiftieths are no floats";
}

/// Returns an event of about `bytes` bytes when packed.
v1::Event log_of(size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>('a' + i * i % 26);
  return log_event(std::move(text));
}

TEST(EventRows, LongEventsAreReadBackAndDeletedWithTheirJob) {
  const TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()), clock);
  const Job job = run_job(*store, new_job("kept")), other = run_job(*store, new_job("other"));
  AttemptUpdate update = update_of(job);
  for (size_t bytes = 900; bytes < 1010; ++bytes) update.events.push_back(log_of(bytes));
  for (const size_t bytes : {1900, 2000, 4000, 5000, 100'000}) {
    update.events.push_back(log_of(bytes));
  }
  update.events.push_back(metrics_event());
  add_series(update.events.back(), "train/loss", 1, 5000, [](int i) { return i / 4.0; });
  const int64_t first = job.newest_seq;
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, update).ok());
  AttemptUpdate others = update_of(other);
  others.events.push_back(log_of(3000));
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, others).ok());
  const std::vector<v1::Event> events = all_events(*store, job.uid);
  ASSERT_EQ(events.size(), static_cast<size_t>(first) + update.events.size());
  for (size_t i = 0; i < update.events.size(); ++i) {
    v1::Event read = events[static_cast<size_t>(first) + i];
    EXPECT_EQ(read.log().text(), update.events[i].log().text());
    EXPECT_EQ(read.metrics().SerializeAsString(), update.events[i].metrics().SerializeAsString());
  }
  const auto count = [&](const char* table) {
    Connection db(directory.path() / "trainyard.db", Connection::Mode::kReadOnly, 100);
    return std::stoll(db.query_text(("SELECT count(*) FROM " + std::string(table)).c_str()));
  };
  EXPECT_GT(count("event_parts"), 100);
  AttemptUpdate end = update_of(job);
  end.move = move_to(JobState::kFailed);
  ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, end).ok());
  ASSERT_TRUE(store->jobs().remove("default", "kept").ok());
  EXPECT_EQ(count("event_parts"), 4) << "those of the other job";
  EXPECT_EQ(all_events(*store, other.uid).back().log().text().size(), 3000u);
}

// Measures the overhead of rows of any length.
TEST(EventRows, FillTheirPages) {
  const TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()), clock);
  const auto pages = [&] {
    Connection db(directory.path() / "trainyard.db", Connection::Mode::kReadOnly, 100);
    return std::stod(db.query_text("PRAGMA page_count"));
  };
  for (const size_t bytes : {940, 979, 1010, 1300, 2400, 8000}) {
    const Job job = run_job(*store);
    const double before = pages();
    AttemptUpdate update = update_of(job);
    for (int i = 0; i < 300; ++i) update.events.push_back(log_of(bytes - 30));
    ASSERT_TRUE(answer_of(store->jobs(), &JobStore::update_attempt, update).ok());
    const double taken = (pages() - before) * 4096 / (300.0 * static_cast<double>(bytes));
    EXPECT_LT(taken, 1.5) << bytes;
  }
}

}  // namespace
}  // namespace trainyard::server
