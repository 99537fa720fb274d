// Tests of metrics read from events, and of TensorBoard files.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "client/lib/metric_history.h"
#include "client/lib/tensorboard.h"
#include "tensorboard/event.pb.h"
#include "tests/client/fake_server.h"

namespace trainyard::client {
namespace {

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string bytes(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

v1::Event event(std::vector<int64_t> steps, std::vector<double> values) {
  v1::Event e;
  e.mutable_time()->set_seconds(100);
  e.mutable_time()->set_nanos(500'000'000);
  v1::MetricSeries& series = *e.mutable_metrics()->add_series();
  series.set_key("train/loss");
  series.mutable_steps()->Add(steps.begin(), steps.end());
  series.mutable_values()->Add(values.begin(), values.end());
  return e;
}

TEST(MetricHistory, AResumedJobRepeatsStepsAndTheLastReportCounts) {
  MetricHistory history;
  history.add(event({1, 2, 3, 4}, {9, 8, 7, 6}));
  history.add(event({3, 4, 5}, {0.7, 0.6, 0.5}));
  const auto& samples = history.series().at("train/loss");
  ASSERT_EQ(samples.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(samples[i].step, static_cast<int64_t>(i) + 1);
  EXPECT_EQ(samples[1].value, 8);
  EXPECT_EQ(samples[2].value, 0.7);
  EXPECT_EQ(samples[0].time_s, 100.5);
}

TEST(MetricHistory, NonFiniteValuesRoundTrip) {
  v1::Event e = event({1, 2, 3}, {0, 1, 0});
  auto& series = *e.mutable_metrics()->mutable_series(0);
  series.add_non_finite()->set_kind(v1::NonFinite::NOT_A_NUMBER);
  series.mutable_non_finite(0)->set_index(0);
  series.add_non_finite()->set_kind(v1::NonFinite::NEGATIVE_INFINITY);
  series.mutable_non_finite(1)->set_index(2);
  series.add_non_finite()->set_index(77);  // an index out of range from a faulty server is harmless
  MetricHistory history;
  history.add(e);
  const auto& samples = history.series().at("train/loss");
  EXPECT_TRUE(std::isnan(samples[0].value));
  EXPECT_EQ(samples[1].value, 1);
  EXPECT_EQ(samples[2].value, -INFINITY);
}

TEST(ReadEvents, StopsAtTheNewestEventOfARunningJob) {
  FakeServer server;
  add_job(server.state(), "digits-1", v1::RUNNING, 6);
  const auto client = Client::connect(server.connection());
  ASSERT_TRUE(client.ok());
  int events = 0;
  const auto job = read_events(**client, "projects/default/jobs/digits-1", false, {},
                               [&](const v1::Event&) { return ++events > 0; });
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->name(), "projects/default/jobs/digits-1");
  EXPECT_EQ(events, 6);
}

// The first record of every file must equal that of TensorFlow's own writer at time 1.0.
TEST(TensorBoard, TheFirstRecordMatchesTensorFlow) {
  const auto folder = FakeServer().folder();
  auto file = TensorBoardFile::create(folder, 1.0, "x");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->path().filename(), "events.out.tfevents.1.x");
  EXPECT_EQ(
      slurp(file->path()),
      bytes("1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a"));
  std::filesystem::remove_all(folder);
}

TEST(TensorBoard, EachFlushIsInTheFile) {
  FakeServer server;
  auto file = TensorBoardFile::create(server.folder() / "runs" / "a", 5, "x");
  ASSERT_TRUE(file.ok());
  const size_t head = slurp(file->path()).size();
  file->add("val/accuracy", {12, 0.75, 6.5});
  ASSERT_TRUE(file->flush().ok());
  const std::string record = slurp(file->path()).substr(head);
  tensorboard::Event parsed;
  ASSERT_TRUE(parsed.ParseFromString(record.substr(12, record.size() - 16)));
  EXPECT_EQ(parsed.step(), 12);
  EXPECT_EQ(parsed.wall_time(), 6.5);
  EXPECT_EQ(parsed.summary().value(0).tag(), "val/accuracy");
  EXPECT_EQ(parsed.summary().value(0).simple_value(), 0.75f);
  EXPECT_EQ(record, tensorboard_record(parsed.SerializeAsString()));
}

TEST(TensorBoard, AZeroIsAValue) {
  FakeServer server;
  auto file = TensorBoardFile::create(server.folder() / "runs", 5, "x");
  ASSERT_TRUE(file.ok());
  const size_t head = slurp(file->path()).size();
  file->add("val/accuracy", {12, 0.0, 6.5});
  ASSERT_TRUE(file->flush().ok());
  const std::string record = slurp(file->path()).substr(head);
  tensorboard::Event parsed;
  ASSERT_TRUE(parsed.ParseFromString(record.substr(12, record.size() - 16)));
  ASSERT_EQ(parsed.summary().value_size(), 1);
  EXPECT_TRUE(parsed.summary().value(0).has_simple_value()) << "readers skip a value without it";
}

TEST(TensorBoard, AnImpossibleFolderIsRefused) {
  FakeServer server;
  std::ofstream(server.folder() / "file") << "x";
  const auto file = TensorBoardFile::create(server.folder() / "file" / "runs", 5, "x");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().reason, "STORAGE_ERROR");
}

}  // namespace
}  // namespace trainyard::client
