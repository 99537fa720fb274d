// Tests of the supervisor with tasks whose process is on another host: enrolment, silence, the
// lease, and the end by an outcome or by the placement. The test plays the worker and the
// placement.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "server/processes/supervisor.h"
#include "server/protocol/enrolment.h"
#include "server/protocol/versions.h"
#include "src/base/check.h"
#include "src/base/sha256.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

using namespace std::chrono_literals;

constexpr WorkerEndpointKind kRemote = WorkerEndpointKind::kRemote;

class RemoteOwner final : public TaskOwner {
 public:
  void enrolled(std::string nonce_digest, Done<void> recorded) override {
    digest = std::move(nonce_digest);
    ++enrolments;
    recorded(enrol_status);
  }
  Result<v1::Assignment> assignment() override {
    v1::Assignment a;
    a.mutable_train()->set_dataset_digest("d");
    return a;
  }
  void report(const v1::WorkerReport&, Done<void> done) override {
    ++reports;
    done(report_status);
  }
  std::optional<v1::CalibrateTask> to_measure() override { return measure; }
  Status measured(const std::string& json) override {
    rates = json;
    return {};
  }
  void ended(const TaskEnd& end, TaskHold) override {
    const std::lock_guard lock(mu_);
    EXPECT_FALSE(end_) << "a task ends once";
    end_ = end;
  }
  std::optional<TaskEnd> end() {
    const std::lock_guard lock(mu_);
    return end_;
  }
  std::string digest;
  std::atomic<int> enrolments{0};
  Status enrol_status, report_status;
  std::atomic<int> reports{0};
  std::optional<v1::CalibrateTask> measure;
  std::string rates;

 private:
  std::mutex mu_;
  std::optional<TaskEnd> end_;
};

class RemoteSink final : public CommandSink {
 public:
  void send(const v1::WorkerCommand& command) override {
    if (command.has_stop()) ++stops;
    if (command.has_calibrate()) ++measurements;
  }
  std::atomic<int> stops{0}, measurements{0};
};

// The time a stopped worker has before its task is withdrawn. It is longer than the time that a
// slow machine needs from the stop to the check that nothing has been withdrawn yet.
const auto kStopGrace = promised(300ms);

class RemoteSupervisor : public ::testing::Test {
 protected:
  void SetUp() override {
    SupervisorOptions options;
    options.log_dir = std::filesystem::temp_directory_path();
    options.silence_ms = 200;
    options.stop_grace_ms = kStopGrace.count();
    options.stall_ms = 1'000;
    supervisor_ = std::make_unique<Supervisor>(options);
  }

  std::shared_ptr<RemoteOwner> expect(const std::string& id, int64_t lease_ms = 60'000,
                                      const std::string& nonce_digest = "") {
    auto owner = std::make_shared<RemoteOwner>();
    supervisor_->add_remote({id, "test", owner, sha256_hex(kSecret), nonce_digest, lease_ms,
                             [this](const std::string& why) {
                               const std::lock_guard lock(mu_);
                               withdrawn_.push_back(why);
                             }});
    return owner;
  }
  std::vector<std::string> withdrawn() {
    const std::lock_guard lock(mu_);
    return withdrawn_;
  }
  /// Enrols the worker. Returns the reason of a refusal, else "".
  std::string enrol(const std::string& id, const std::string& secret, const std::string& key,
                    ProtocolRange protocols = kProtocols) {
    v1::EnrolRequest request;
    request.set_task(id);
    request.set_secret(secret);
    request.set_key(key);
    request.set_version("0.0.7");
    request.set_protocol_min(protocols.oldest);
    request.set_protocol_max(protocols.newest);
    std::string reason = "no answer";
    supervisor_->enrol(request, [&](const Status& s) { reason = s.ok() ? "" : s.error().reason; });
    return reason;
  }
  std::string attach(const std::string& id, const std::string& nonce,
                     WorkerEndpointKind endpoint = kRemote) {
    v1::AttachRequest request;
    request.set_task(id);
    request.set_nonce(nonce);
    request.set_version("0.0.7");
    request.set_protocol_min(kProtocols.oldest);
    request.set_protocol_max(kProtocols.newest);
    const Result<v1::Assignment> assignment = supervisor_->attach(request, endpoint);
    return assignment.ok() ? "" : assignment.error().reason;
  }
  std::string connect(const std::string& id, const std::string& nonce,
                      std::shared_ptr<RemoteSink> sink, WorkerEndpointKind endpoint = kRemote,
                      int32_t protocol = kProtocols.newest) {
    v1::WorkerReport hello;
    hello.set_task(id);
    hello.set_nonce(nonce);
    hello.set_protocol(protocol);
    const Status s = supervisor_->connect(hello, std::move(sink), endpoint);
    return s.ok() ? "" : s.error().reason;
  }
  /// Enrols and attaches a worker and opens its stream.
  std::shared_ptr<RemoteSink> come(const std::string& id) {
    EXPECT_EQ(enrol(id, kSecret, kKey), "");
    EXPECT_EQ(attach(id, nonce()), "");
    auto sink = std::make_shared<RemoteSink>();
    EXPECT_EQ(connect(id, nonce(), sink), "");
    return sink;
  }
  void beat(const std::string& id, int64_t idle_ms = 0) {
    v1::WorkerReport report;
    report.mutable_heartbeat()->set_idle_ms(idle_ms);
    supervisor_->report(id, report, [](const Status&) {});
  }
  /// Sends rates. Returns the reason of a refusal, else "".
  std::string send_rates(const std::string& id, const std::string& nonce) {
    v1::SendRatesRequest request;
    request.set_task(id);
    request.set_nonce(nonce);
    request.set_rates("rates");
    const auto answer = supervisor_->take_rates(request);
    return answer.ok() ? "" : answer.error().reason;
  }
  static v1::WorkerReport success() {
    v1::WorkerReport report;
    report.set_number(1);
    report.mutable_outcome()->set_kind(v1::Outcome::SUCCEEDED);
    return report;
  }
  static std::string nonce() { return enrolment_credential(kSecret, kKey); }

  static inline const std::string kSecret = sha256_hex("a secret");
  static inline const std::string kKey = sha256_hex("a key");
  std::mutex mu_;
  std::vector<std::string> withdrawn_;
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(RemoteSupervisor, AnImpossibleTaskFailsACheck) {
  const auto owner = expect("t1");
  Supervisor::RemoteTask again;
  again.id = "t1";
  again.owner = owner;
  again.lease_ms = 1000;
  EXPECT_THROW(supervisor_->add_remote(again), InvariantError) << "a task has this ID";
  again.id = "t2";
  again.nodes = 0;
  EXPECT_THROW(supervisor_->add_remote(again), InvariantError) << "it has no worker";
  EXPECT_EQ(supervisor_->task_count(), 1);
}

// Fails if a second worker can enrol with a used secret, if a guessed secret is accepted, or if a
// worker cannot repeat an enrolment whose reply was lost.
TEST_F(RemoteSupervisor, ASecretIsValidForOneCredential) {
  const auto owner = expect("t1");
  EXPECT_EQ(attach("t1", ""), "ATTEMPT_FENCED") << "nobody has enrolled";
  EXPECT_EQ(enrol("t1", sha256_hex("guessed"), kKey), "ATTEMPT_FENCED");
  EXPECT_EQ(enrol("t2", kSecret, kKey), "ATTEMPT_FENCED");
  EXPECT_EQ(enrol("t1", kSecret, "short"), "FIELD_INVALID");
  EXPECT_EQ(owner->enrolments, 0);
  EXPECT_EQ(enrol("t1", kSecret, kKey), "");
  EXPECT_EQ(owner->digest, sha256_hex(nonce())) << "its digest alone is recorded";
  EXPECT_EQ(enrol("t1", kSecret, kKey), "") << "the answer was lost";
  EXPECT_EQ(owner->enrolments, 1);
  EXPECT_EQ(enrol("t1", kSecret, sha256_hex("another key")), "ENROLMENT_USED");
  EXPECT_EQ(attach("t1", kSecret), "ATTEMPT_FENCED") << "the secret is no credential";
  EXPECT_EQ(attach("t1", nonce()), "");
}

// Fails if a credential is accepted before it is durable.
TEST_F(RemoteSupervisor, AnEnrolmentThatIsNotRecordedIsRefused) {
  const auto owner = expect("t1");
  owner->enrol_status = make_error(ErrorCode::kUnavailable, "STORAGE_ERROR", "no");
  EXPECT_EQ(enrol("t1", kSecret, kKey), "STORAGE_ERROR");
  EXPECT_EQ(attach("t1", nonce()), "ATTEMPT_FENCED");
  owner->enrol_status = {};
  EXPECT_EQ(enrol("t1", kSecret, sha256_hex("another key")), "") << "the secret is not spent";
}

TEST_F(RemoteSupervisor, AWorkerWithoutACommonVersionIsRefused) {
  expect("t1");
  EXPECT_EQ(enrol("t1", kSecret, kKey, {0, 0}), "VERSION_SKEW") << "a range that was not set";
  EXPECT_EQ(enrol("t1", kSecret, kKey, {kProtocols.newest + 1, 100}), "VERSION_SKEW");
}

TEST_F(RemoteSupervisor, LocalAndRemoteTasksHaveTheirOwnEndpoint) {
  expect("t1");
  EXPECT_EQ(enrol("t1", kSecret, kKey), "");
  EXPECT_EQ(attach("t1", nonce(), WorkerEndpointKind::kLocal), "ATTEMPT_FENCED");
  EXPECT_EQ(attach("t1", nonce()), "");
  auto sink = std::make_shared<RemoteSink>();
  EXPECT_EQ(connect("t1", nonce(), sink, WorkerEndpointKind::kLocal), "ATTEMPT_FENCED");
  EXPECT_EQ(connect("t1", nonce(), sink), "");
  EXPECT_FALSE(supervisor_->admit("t1", "another").ok());
  EXPECT_TRUE(supervisor_->admit("t1", nonce()).ok());
}

TEST_F(RemoteSupervisor, SilenceIsReportedAndOnlyTheEndOfTheLeaseEndsTheTask) {
  const auto owner = expect("t1", /*lease_ms=*/promised(1'500ms).count());
  std::this_thread::sleep_for(400ms);
  EXPECT_FALSE(supervisor_->silent_ms("t1").value_or(0) >= 200) << "it waits in a queue";
  come("t1");
  EXPECT_TRUE(supervisor_->connected("t1"));
  EXPECT_TRUE(eventually([&] { return supervisor_->silent_ms("t1").value_or(0) >= 200; }));
  EXPECT_TRUE(withdrawn().empty()) << "silence is not death";
  beat("t1");
  EXPECT_FALSE(supervisor_->silent_ms("t1").value_or(0) >= 200);
  EXPECT_TRUE(eventually([&] { return !withdrawn().empty(); }));
  EXPECT_EQ(withdrawn(), std::vector<std::string>{"silent"});
  EXPECT_FALSE(owner->end()) << "only the placement knows that it is over";
  supervisor_->ended_remote("t1", {});
  EXPECT_TRUE(eventually([&] { return owner->end().has_value(); }));
  EXPECT_TRUE(owner->end()->silent);
  EXPECT_TRUE(owner->end()->attached);
  EXPECT_EQ(attach("t1", nonce()), "ATTEMPT_FENCED");
}

TEST_F(RemoteSupervisor, ATaskEndsAfterItsOutcomeOnceItsStreamIsClosed) {
  const auto owner = expect("t1");
  const auto sink = come("t1");
  v1::WorkerReport report;
  report.set_number(1);
  report.mutable_outcome()->set_kind(v1::Outcome::SUCCEEDED);
  supervisor_->report("t1", report, [](const Status&) {});
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(owner->end()) << "it may still read the acknowledgement";
  const RemoteSink other;
  supervisor_->disconnect("t1", &other);  // the end of an older stream of this task changes nothing
  EXPECT_TRUE(supervisor_->connected("t1"));
  supervisor_->disconnect("t1", sink.get());
  EXPECT_TRUE(eventually([&] { return owner->end().has_value(); }));
  EXPECT_TRUE(owner->end()->outcome_taken);
  EXPECT_TRUE(withdrawn().empty());
  supervisor_->ended_remote("t1", {});  // a task that the supervisor has already forgotten
  EXPECT_EQ(supervisor_->task_count(), 0);
}

// Fails if a worker ends before it receives the request to measure, or if rates are accepted from a
// worker that was not asked to measure.
TEST_F(RemoteSupervisor, ANodeIsMeasuredAfterTheOutcomeOfItsJob) {
  const auto owner = expect("t1");
  owner->measure = v1::CalibrateTask();
  const auto sink = come("t1");
  EXPECT_EQ(send_rates("t1", nonce()), "RATES_NOT_REQUESTED") << "the job goes on";
  owner->report_status = make_error(ErrorCode::kUnavailable, "STORAGE_ERROR", "no");
  supervisor_->report("t1", success(), [](const Status&) {});
  EXPECT_EQ(sink->measurements, 0) << "the outcome is not stored";
  beat("t1");
  EXPECT_EQ(owner->reports, 2);
  owner->report_status = {};
  int before_answer = -1;
  supervisor_->report("t1", success(), [&](const Status&) { before_answer = sink->measurements; });
  EXPECT_EQ(before_answer, 1);
  beat("t1", /*idle_ms=*/100'000);
  EXPECT_EQ(owner->reports, 3) << "the attempt is over: a heartbeat would be fenced";
  EXPECT_EQ(send_rates("t1", "another"), "ATTEMPT_FENCED");
  EXPECT_EQ(send_rates("t1", nonce()), "");
  EXPECT_EQ(owner->rates, "rates");
  EXPECT_TRUE(withdrawn().empty()) << "a worker that measures does not stand still";
  EXPECT_FALSE(owner->end());
  supervisor_->disconnect("t1", sink.get());
  EXPECT_TRUE(eventually([&] { return owner->end().has_value(); }));
  EXPECT_EQ(send_rates("t1", nonce()), "ATTEMPT_FENCED");
}

TEST_F(RemoteSupervisor, AStoppedWorkerIsNotAskedToMeasure) {
  const auto stopped = expect("t2");
  stopped->measure = v1::CalibrateTask();
  const auto sink = come("t2");
  supervisor_->stop("t2", "cancel");
  supervisor_->report("t2", success(), [](const Status&) {});
  EXPECT_EQ(sink->measurements, 0);
}

TEST_F(RemoteSupervisor, AStopIsSentAndThenWithdrawn) {
  const auto owner = expect("t1");
  const auto sink = come("t1");
  const auto begin = std::chrono::steady_clock::now();
  supervisor_->stop("t1", "cancel");
  EXPECT_EQ(sink->stops, 1);
  EXPECT_TRUE(withdrawn().empty()) << "it has its grace";
  EXPECT_TRUE(eventually([&] { return !withdrawn().empty(); }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kStopGrace);
  EXPECT_EQ(withdrawn(), std::vector<std::string>{"cancel"});
  supervisor_->ended_remote("t1", {});
  EXPECT_TRUE(eventually([&] { return owner->end().has_value(); }));
  EXPECT_TRUE(owner->end()->stop_asked);
}

TEST_F(RemoteSupervisor, AStopWithdrawsAWorkerThatHasNotEnrolled) {
  expect("t1");
  supervisor_->stop("t1", "pause", 3'600'000);
  EXPECT_TRUE(eventually([&] { return !withdrawn().empty(); }));
  EXPECT_EQ(withdrawn(), std::vector<std::string>{"pause"});
  // The cluster had already started the worker, so it receives the stop when it connects.
  const auto sink = come("t1");
  EXPECT_EQ(sink->stops, 1);
}

TEST_F(RemoteSupervisor, AStalledWorkerIsWithdrawn) {
  const auto owner = expect("t1");
  come("t1");
  beat("t1", 2'000);
  EXPECT_TRUE(eventually([&] { return !withdrawn().empty(); }));
  EXPECT_EQ(withdrawn(), std::vector<std::string>{"stalled"});
}

// Fails if a daemon that stops or starts treats such a worker as a child process of its own.
TEST_F(RemoteSupervisor, ItsWorkerSurvivesTheDaemon) {
  const auto owner = expect("t1");
  const auto sink = come("t1");
  supervisor_->stop_all("drain", 100);
  supervisor_->kill_all();
  EXPECT_TRUE(supervisor_->wait_idle(10)) << "nothing of this host runs";
  EXPECT_EQ(sink->stops, 0);
  EXPECT_EQ(supervisor_->task_count(), 1);
  supervisor_->release();
  EXPECT_EQ(supervisor_->task_count(), 0);
  supervisor_.reset();
  EXPECT_FALSE(owner->end());
  EXPECT_TRUE(withdrawn().empty());

  SetUp();  // starts the next daemon, whose store contains the digest
  const auto next = expect("t1", 60'000, sha256_hex(nonce()));
  EXPECT_EQ(enrol("t1", kSecret, sha256_hex("another key")), "ENROLMENT_USED");
  auto again = std::make_shared<RemoteSink>();
  EXPECT_EQ(connect("t1", nonce(), again), "") << "it need not attach again";
  supervisor_->stop("t1", "cancel");
  EXPECT_EQ(again->stops, 1);
}

TEST_F(RemoteSupervisor, ASupervisorWithRemoteTasksCanBeDestroyed) {
  const auto owner = expect("t1");
  supervisor_.reset();  // the destructor does not wait for the tasks
  EXPECT_FALSE(owner->end());
}

}  // namespace
}  // namespace trainyard::server
