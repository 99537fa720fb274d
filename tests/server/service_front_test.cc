// Tests of the front end's sockets: only tokens count there, and only there is the address of a
// header believed.
#include <sys/stat.h>

#include <fstream>

#include "src/base/files.h"
#include "tests/server/service_support.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard::server {
namespace {

constexpr const char* kToken = "0123456789abcdef-ada";

class ServiceFront : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    stop();
    std::ofstream(root_ / "token") << "ada " << kToken << "\n";
    std::filesystem::permissions(root_ / "token", std::filesystem::perms::owner_read);
    std::filesystem::create_directory(root_ / "front");
    config_.token_file = root_ / "token";
    config_.front_socket = root_ / "front" / "trainyard.sock";
    config_.listen = "127.0.0.1:0";
    start();
    connect_to_front();
  }
  void connect_to_front() { connect("unix:" + config_.front_socket.string()); }
  static std::unique_ptr<grpc::ClientContext> with_token() {
    auto c = context();
    c->AddMetadata("authorization", std::string("Bearer ") + kToken);
    return c;
  }
  /// Returns the address of the entry that a call with this header leaves in the audit.
  std::string address_with(const std::vector<std::string>& forwarded) {
    auto c = with_token();
    for (const std::string& address : forwarded) c->AddMetadata("x-forwarded-for", address);
    v1::CancelJobRequest cancel;
    cancel.set_name("projects/default/jobs/none");
    v1::Job job;
    EXPECT_EQ(reason_of(jobs_->CancelJob(c.get(), cancel, &job)), "JOB_NOT_FOUND");
    connect("unix:" + config_.socket.string());
    v1::ListAuditRequest request;
    request.set_action("CancelJob");
    v1::ListAuditResponse response;
    const grpc::Status s = system_->ListAudit(context().get(), request, &response);
    EXPECT_TRUE(s.ok()) << s.error_message();
    connect_to_front();
    return response.entries().empty() ? "no entry" : response.entries(0).address();
  }
};

TEST_F(ServiceFront, TheFrontEndsUserIsNobodyWithoutAToken) {
  v1::ServerInfo info;
  EXPECT_EQ(reason_of(system_->GetServerInfo(context().get(), {}, &info)), "CREDENTIALS_MISSING")
      << "the front end runs as the daemon's user in this test, and is not taken for it";
  auto wrong = context();
  wrong->AddMetadata("authorization", "Bearer 0123456789abcdef-eve");
  EXPECT_EQ(reason_of(system_->GetServerInfo(wrong.get(), {}, &info)), "CREDENTIALS_INVALID");
  const grpc::Status s = system_->GetServerInfo(with_token().get(), {}, &info);
  EXPECT_TRUE(s.ok()) << s.error_message();
}

TEST_F(ServiceFront, ATokenThatLeftTheFileIsRefusedAfterItIsReadAgain) {
  const auto write = [&](const std::string& line) {
    std::filesystem::remove(root_ / "token");
    std::ofstream(root_ / "token") << line << "\n";
    std::filesystem::permissions(root_ / "token", std::filesystem::perms::owner_read);
    daemon_->read_secrets();
  };
  v1::ServerInfo info;
  write("ada");
  EXPECT_TRUE(system_->GetServerInfo(with_token().get(), {}, &info).ok())
      << "a file with an error changes nothing";
  write("bob 0123456789abcdef-bob");
  EXPECT_EQ(reason_of(system_->GetServerInfo(with_token().get(), {}, &info)),
            "CREDENTIALS_INVALID");
  auto bob = context();
  bob->AddMetadata("authorization", "Bearer 0123456789abcdef-bob");
  EXPECT_TRUE(system_->GetServerInfo(bob.get(), {}, &info).ok());
}

TEST_F(ServiceFront, AForeignMethodNeedsATokenToo) {
  EXPECT_EQ(call_raw("/no.such.Service/Method", "").error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(call_raw("/grpc.health.v1.Health/Check", "").ok());
}

TEST_F(ServiceFront, TheAddressIsTheOneThatTheFrontEndNames) {
  EXPECT_EQ(address_with({"192.0.2.7"}), "192.0.2.7");
  EXPECT_EQ(address_with({"2001:db8::7"}), "2001:db8::7");
  EXPECT_EQ(address_with({"203.0.113.1, 192.0.2.7"}), "192.0.2.7")
      << "a front end that appends names the client last";
  EXPECT_EQ(address_with({}), "front end");
  EXPECT_EQ(address_with({"root; [0m"}), "front end") << "no text of a client reaches the audit";
}

TEST_F(ServiceFront, OnOtherSocketsTheHeaderMeansNothing) {
  connect("127.0.0.1:" + std::to_string(daemon_->port()));
  EXPECT_TRUE(address_with({"192.0.2.7"}).starts_with("127.0.0.1:"));
  connect("unix:" + config_.socket.string());
  EXPECT_EQ(address_with({"192.0.2.7"}), "unix");
}

TEST_F(ServiceFront, TheSocketIsForTheGroupOfTheFrontEnd) {
  struct stat st {};
  ASSERT_EQ(::stat(config_.front_socket.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  stop();
  EXPECT_FALSE(std::filesystem::exists(config_.front_socket));
  config_.front_group = "no-such-group";
  const Result<std::unique_ptr<Daemon>> daemon = Daemon::start(config_);
  ASSERT_FALSE(daemon.ok());
  EXPECT_TRUE(daemon.error().message.starts_with("front_group: this machine has no group"))
      << daemon.error().message;
}

TEST_F(ServiceFront, WorkersComeThroughASocketNextToIt) {
  stop();
  config_.workers_advertise = "head.example:7451";
  start();
  EXPECT_EQ(daemon_->worker_endpoint()->attach_address(), "head.example:7451");
  struct stat st {};
  ASSERT_EQ(::stat((root_ / "front/workers.pem").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  const Result<std::string> pem = read_file(root_ / "front/workers.pem", 1 << 20);
  ASSERT_TRUE(pem.ok()) << pem.error().message;
  EXPECT_NE(pem->find(daemon_->worker_endpoint()->certificate_pem()), std::string::npos);
  EXPECT_NE(pem->find("PRIVATE KEY"), std::string::npos);
  connect("unix:" + (root_ / "front/workers.sock").string());
  const auto workers = v1::WorkerService::NewStub(channel_);
  v1::Assignment assignment;
  EXPECT_EQ(reason_of(workers->Attach(context().get(), {}, &assignment)), "ATTEMPT_FENCED");
  EXPECT_EQ(call_raw("/trainyard.v1.JobService/ListJobs", "").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace trainyard::server
