// Tests of following a job across broken streams: each event arrives once and in order, and a
// server that never responded is not waited for.
#include "client/lib/follow.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "client/lib/dataset_upload.h"
#include "client/lib/model_export.h"
#include "tests/client/fake_server.h"
#include "tests/support/source_path.h"

namespace trainyard::client {
namespace {

const std::string kName = "projects/default/jobs/digits-1";

class Follow : public ::testing::Test {
 protected:
  Follow() : client_(std::move(*Client::connect(server_.connection()))) {}
  Status follow(int64_t after = 0) {
    FollowHandler handler;
    handler.event = [&](const v1::Event& event) {
      seen_.push_back(event.seq());
      return true;
    };
    handler.reconnecting = [&](const Error&) { ++reconnects_; };
    return follow_job(*client_, kName, after, {}, handler);
  }
  std::vector<int64_t> numbers(int64_t from, int64_t to) {
    std::vector<int64_t> out;
    for (int64_t i = from; i <= to; ++i) out.push_back(i);
    return out;
  }
  FakeServer server_;
  std::unique_ptr<Client> client_;
  std::vector<int64_t> seen_;
  int reconnects_ = 0;
};

TEST_F(Follow, ReadsAFinishedJobToItsEnd) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 20);
  ASSERT_TRUE(follow().ok());
  EXPECT_EQ(seen_, numbers(1, 20));
  seen_.clear();
  ASSERT_TRUE(follow(20).ok()) << "nothing is left, and nothing is waited for";
  EXPECT_TRUE(seen_.empty());
}

TEST_F(Follow, ContinuesAfterTheLastEventSeen) {
  add_job(server_.state(), "digits-1", v1::FAILED, 20);
  server_.state().watch_cut_events = 6;
  ASSERT_TRUE(follow().ok());
  EXPECT_EQ(seen_, numbers(1, 20));
  EXPECT_EQ(reconnects_, 3);
  EXPECT_EQ(server_.state().watch_after, (std::vector<int64_t>{0, 6, 12, 18}));
}

TEST_F(Follow, PackedMetricsRoundTrip) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 3);
  v1::Event& event = server_.state().events[kName][1];
  event.clear_kind();
  v1::MetricSeries& loss = *event.mutable_metrics()->add_series();
  loss.set_key("train/loss");
  for (int i = 0; i < 5; ++i) {
    loss.add_steps(10 + 3 * i);
    loss.add_values(0.5 * i);
  }
  std::vector<v1::Event> seen;
  FollowHandler handler;
  handler.event = [&](const v1::Event& e) {
    seen.push_back(e);
    return true;
  };
  ASSERT_TRUE(follow_job(*client_, kName, 0, {}, handler).ok());
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[1].SerializeAsString(), event.SerializeAsString());
}

TEST_F(Follow, DamagedMetricsAreReported) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 3);
  v1::Event& event = server_.state().events[kName][1];
  event.mutable_packed_metrics()->add_series()->set_key("train/loss");  // a series without a value
  const Status followed = follow();
  ASSERT_FALSE(followed.ok());
  EXPECT_EQ(followed.error().reason, "EVENT_DAMAGED");
  EXPECT_EQ(seen_, numbers(1, 1));
}

TEST_F(Follow, SurvivesARestartOfTheServer) {
  add_job(server_.state(), "digits-1", v1::RUNNING, 5);
  std::jthread operator_([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    server_.stop();
    {
      FakeState& state = server_.state();
      const std::scoped_lock lock(state.mu);
      v1::Event& event = state.events[kName].emplace_back();
      event.set_seq(6);
      event.mutable_state()->set_state(v1::SUCCEEDED);
      state.jobs[kName].set_state(v1::SUCCEEDED);
    }
    server_.start();
  });
  ASSERT_TRUE(follow().ok());
  EXPECT_EQ(seen_, numbers(1, 6));
  EXPECT_GE(reconnects_, 1);
}

TEST_F(Follow, AMissingNumberIsAnError) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 9);
  server_.state().watch_skip_seq = 4;
  const Status status = follow();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().reason, "EVENT_GAP");
  EXPECT_EQ(seen_, numbers(1, 3));
}

TEST_F(Follow, EventsThatTheServerDeclaresMissingAreNotAGap) {
  add_job(server_.state(), "digits-1", v1::SUCCEEDED, 9);
  server_.state().watch_skip_seq = 4;
  server_.state().watch_oldest_seq = 5;
  ASSERT_TRUE(follow().ok());
  EXPECT_EQ(seen_, (std::vector<int64_t>{1, 2, 3, 5, 6, 7, 8, 9}));
  seen_.clear();
  server_.state().watch_oldest_seq = 4;  // from sequence number 4 on, no event may be missing
  EXPECT_EQ(follow().error().reason, "EVENT_GAP");
}

TEST_F(Follow, AStopEndsAQuietStream) {
  add_job(server_.state(), "digits-1", v1::RUNNING, 2);
  std::stop_source stop;
  std::atomic<int> count = 0;
  std::jthread later([&] {
    while (count < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the stream is quiet after this
    stop.request_stop();
  });
  FollowHandler handler;
  handler.event = [&](const v1::Event&) { return ++count > 0; };
  ASSERT_TRUE(follow_job(*client_, kName, 0, stop.get_token(), handler).ok());
  EXPECT_EQ(count, 2);
}

TEST_F(Follow, AMissingJobIsReportedAtOnce) {
  const Status status = follow();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().reason, "JOB_NOT_FOUND");
  EXPECT_EQ(status.error().code, ErrorCode::kNotFound);
}

TEST(Client, ASubmitWithARequestIdIsRetried) {
  FakeServer server;
  auto client = std::move(*Client::connect(server.connection()));
  v1::SubmitJobRequest request;
  server.state().submit_unavailable = 2;
  request.set_request_id("one");
  ASSERT_TRUE(client->call(rpc::kSubmitJob, request).ok());
  EXPECT_EQ(server.state().submits.size(), 3u);
  EXPECT_EQ(server.state().submits[2].request_id(), "one");
  request.clear_request_id();  // without a request ID a retry is unsafe
  server.state().submit_unavailable = 1;
  const auto refused = client->call(rpc::kSubmitJob, request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(server.state().submits.size(), 4u);
}

TEST(Client, DetailsOfARefusalArrive) {
  FakeServer server;
  auto client = std::move(*Client::connect(server.connection()));
  Error error = field_error("FIELD_OUT_OF_RANGE", "spec.recipe.epochs", "0 is out of range");
  error.metadata["maximum"] = "7";
  server.state().submit_error = error;
  const auto refused = client->call(rpc::kSubmitJob, v1::SubmitJobRequest());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().reason, "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(refused.error().metadata.at("maximum"), "7");
  ASSERT_EQ(refused.error().violations.size(), 1u);
  EXPECT_EQ(refused.error().violations[0].field, "spec.recipe.epochs");
}

TEST(Client, AnAddressThatDoesNotAnswerIsReportedAtOnce) {
  Connection connection;
  connection.server = "unix:/nowhere/at/all.sock";
  const auto client = Client::connect(connection);
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().reason, "SERVER_NOT_RUNNING");
  connection.server = "127.0.0.1:1";
  connection.plaintext = true;
  connection.timeout_ms = 2000;
  const auto tcp =
      (*Client::connect(connection))->call(rpc::kGetServerInfo, v1::GetServerInfoRequest());
  ASSERT_FALSE(tcp.ok());
  EXPECT_EQ(tcp.error().code, ErrorCode::kUnavailable);
}

TEST(Dataset, IsUploadedCreatedAndAwaited) {
  FakeServer server;
  auto client = std::move(*Client::connect(server.connection()));
  server.state().dataset_polls = 4;
  v1::DatasetFile file;
  file.set_name("digits");
  file.set_path("digits.csv.gz");
  file.mutable_csv()->set_target("c64");
  const auto dataset = ensure_dataset(*client, file, testing::source_path("examples"), {}, {});
  ASSERT_TRUE(dataset.ok()) << dataset.error().message;
  EXPECT_EQ(dataset->state(), v1::Dataset::READY);
  EXPECT_EQ(server.state().created.dataset_id(), "digits");
  EXPECT_EQ(server.state().created.spec().sources(0).filename(), "digits.csv.gz");
  EXPECT_EQ(server.state().created.spec().csv().target(), "c64");

  server.state().dataset_failure =
      make_error(ErrorCode::kInvalidArgument, "DATASET_INVALID", "row 3: ragged");
  server.state().dataset_polls = 1;
  const auto failed = ensure_dataset(*client, file, testing::source_path("examples"), {}, {});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "row 3: ragged");
  EXPECT_EQ(failed.error().reason, "DATASET_INVALID");
}

// An upload ended in DEADLINE_EXCEEDED although its dataset had been created.
TEST(Dataset, AServerThatAnswersTooLateIsAskedAgain) {
  FakeServer server;
  auto client = std::move(*Client::connect(server.connection()));
  v1::DatasetFile file;
  file.set_name("digits");
  file.set_path("digits.csv.gz");
  file.mutable_csv()->set_target("c64");
  server.state().dataset_late = 3;
  server.state().dataset_polls = 2;
  const auto dataset = ensure_dataset(*client, file, testing::source_path("examples"), {}, {});
  ASSERT_TRUE(dataset.ok()) << dataset.error().message;
  EXPECT_EQ(dataset->version(), 1);

  DatasetObserver busy;
  busy.ingesting = [&](const v1::Dataset&) { server.state().dataset_late = 1000; };
  server.state().dataset_polls = 1000;
  const auto late = ensure_dataset(*client, file, testing::source_path("examples"), busy, {});
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.error().message.find("was created, and the server keeps reading it"),
            std::string::npos)
      << late.error().message;
}

TEST(Dataset, IsRefusedBeforeItsFilesAreSent) {
  FakeServer server;
  auto client = std::move(*Client::connect(server.connection()));
  server.state().dataset_error =
      make_error(ErrorCode::kInvalidArgument, "NAME_MALFORMED", "dataset_id: \"no name\"");
  v1::DatasetFile file;
  file.set_name("no name");
  file.set_path("digits.csv.gz");
  file.mutable_csv()->set_target("c64");
  const auto dataset = ensure_dataset(*client, file, testing::source_path("examples"), {}, {});
  ASSERT_FALSE(dataset.ok());
  EXPECT_EQ(dataset.error().reason, "NAME_MALFORMED");
  EXPECT_EQ(server.state().upload_streams, 0);
}

TEST(Export, ChecksEachFileAndRefusesNamesThatArePaths) {
  FakeServer server;
  auto client = std::move(*Client::connect(server.connection()));
  server.state().model_files = {{"model.json", "{}"},
                                {"model.safetensors", std::string(5000, 'w')}};
  const auto out = server.folder() / "out";
  const auto files = export_model(*client, "m", out, {});
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(files->size(), 2u);
  EXPECT_EQ(std::filesystem::file_size(out / "model.safetensors"), 5000u);

  server.state().damage_model_files = true;
  const auto damaged = export_model(*client, "m", server.folder() / "damaged", {});
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().reason, "CONTENT_HASH_MISMATCH");
  EXPECT_TRUE(std::filesystem::is_empty(server.folder() / "damaged")) << "a part was left behind";
  server.state().damage_model_files = false;
  for (const char* name : {"../evil", "/tmp/evil", "a/b", "..", ".hidden", ""}) {
    server.state().model_files.clear();
    server.state().odd_file_name = name;
    const auto odd = export_model(*client, "m", server.folder() / "odd", {});
    EXPECT_FALSE(odd.ok()) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(server.folder() / "evil"));
}

}  // namespace
}  // namespace trainyard::client
