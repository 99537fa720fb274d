// Tests of a daemon's port for remote workers: TLS with the daemon's own certificate, and only the
// calls of workers.
#include <grpcpp/impl/client_unary_call.h>

#include "server/protocol/enrolment.h"
#include "tests/server/service_support.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard::server {
namespace {

class ServiceWorkerEndpoint : public ServiceTest {
 protected:
  void SetUp() override {
    config_.workers_listen = "127.0.0.1:0";
    ServiceTest::SetUp();
  }
  std::shared_ptr<grpc::Channel> open(bool by_name = true) {
    grpc::SslCredentialsOptions trusted;
    trusted.pem_root_certs = daemon_->worker_endpoint()->certificate_pem();
    grpc::ChannelArguments arguments;
    arguments.SetInt("grpc.use_local_subchannel_pool", 1);
    if (by_name) arguments.SetSslTargetNameOverride(kWorkersName);
    return grpc::CreateCustomChannel(daemon_->worker_endpoint()->attach_address(),
                                     grpc::SslCredentials(trusted), arguments);
  }
  /// Opens a stream, sends one message and returns how the stream ends.
  grpc::Status stream_of(grpc::ChannelInterface& channel, const std::string& path,
                         const grpc::ByteBuffer& bytes) {
    const grpc::internal::RpcMethod method(path.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING);
    const auto call = context();
    using Factory = grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>;
    const std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream(
        Factory::Create(&channel, method, call.get()));
    (void)stream->Write(bytes);
    (void)stream->WritesDone();
    return stream->Finish();
  }
};

TEST_F(ServiceWorkerEndpoint, ServesOnlyTheCallsOfWorkers) {
  const auto channel = open();
  const auto workers = v1::WorkerService::NewStub(channel);
  v1::Assignment assignment;
  EXPECT_EQ(reason_of(workers->Attach(context().get(), {}, &assignment)), "ATTEMPT_FENCED");
  v1::EnrolResponse enrolled;
  EXPECT_EQ(reason_of(workers->Enrol(context().get(), {}, &enrolled)), "ATTEMPT_FENCED");
  v1::ListFilesRequest list;
  list.set_set(v1::FILE_SET_DATASET);
  v1::ListFilesResponse files;
  EXPECT_EQ(reason_of(workers->ListFiles(context().get(), list, &files)), "ATTEMPT_FENCED");
  const auto pull_context = context();
  const auto pull = workers->PullFile(pull_context.get(), {});
  v1::PullFileResponse piece;
  EXPECT_FALSE(pull->Read(&piece));
  EXPECT_EQ(reason_of(pull->Finish()), "ATTEMPT_FENCED");
  for (const bool starts : {true, false}) {
    const auto push_context = context();
    v1::PushFilesResponse pushed;
    const auto push = workers->PushFiles(push_context.get(), &pushed);
    v1::PushFilesRequest request;
    if (starts) request.mutable_start()->set_task("t");
    if (!starts) request.set_data("bytes");
    push->Write(request);
    push->WritesDone();
    EXPECT_EQ(reason_of(push->Finish()), "ATTEMPT_FENCED");
  }
  const auto jobs = v1::JobService::NewStub(channel);
  v1::ListJobsResponse response;
  EXPECT_EQ(jobs->ListJobs(context().get(), {}, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

// 8 MiB of empty columns took 750 MiB when a stranger's first report was parsed before its nonce
// was checked. Bytes that cannot be parsed show whether the daemon tries to.
TEST_F(ServiceWorkerEndpoint, ParsesNothingOfAStrangerButAShortEnrolment) {
  const auto channel = open();
  const grpc::Slice nonsense("\xff\xff\xff\xff");
  const grpc::ByteBuffer bytes(&nonsense, 1);
  for (const char* method : {"Attach", "Rendezvous", "SendRates", "ListFiles"}) {
    const std::string path = std::string("/trainyard.v1.WorkerService/") + method;
    const grpc::internal::RpcMethod unary(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
    grpc::ByteBuffer response;
    const auto call = context();
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            channel.get(), unary, call.get(), bytes, &response);
    EXPECT_EQ(reason_of(status), "ATTEMPT_FENCED") << method;
  }
  EXPECT_EQ(reason_of(stream_of(*channel, "/trainyard.v1.WorkerService/Report", bytes)),
            "ATTEMPT_FENCED");
  v1::EnrolRequest large;
  large.set_key(std::string(16 << 10, 'a'));
  v1::EnrolResponse enrolled;
  EXPECT_EQ(
      reason_of(v1::WorkerService::NewStub(channel)->Enrol(context().get(), large, &enrolled)),
      "REQUEST_TOO_LARGE");
}

TEST_F(ServiceWorkerEndpoint, DoesNotListItsServices) {
  const auto channel = open();
  const std::string list_services("\x3a\x01*");
  const grpc::Slice slice(list_services);
  const grpc::ByteBuffer bytes(&slice, 1);
  for (const char* version : {"v1", "v1alpha"}) {
    const std::string path =
        std::string("/grpc.reflection.") + version + ".ServerReflection/ServerReflectionInfo";
    EXPECT_EQ(stream_of(*channel, path, bytes).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST_F(ServiceWorkerEndpoint, ALocalTaskCannotUseTheRemoteEndpoint) {
  make_dataset();
  submit("long", "hang");
  ASSERT_TRUE(eventually([&] { return get("long").state() == v1::RUNNING; }));
  const auto workers = v1::WorkerService::NewStub(open());
  v1::EnrolRequest enrol;
  enrol.set_task(get("long").uid() + "-1");
  enrol.set_secret(daemon_->worker_endpoint()->enrolment_secret(enrol.task()));
  enrol.set_key(sha256_hex("key"));
  v1::EnrolResponse enrolled;
  EXPECT_EQ(reason_of(workers->Enrol(context().get(), enrol, &enrolled)), "ATTEMPT_FENCED");
}

TEST_F(ServiceWorkerEndpoint, RequiresTlsWithItsName) {
  const auto ask = [this](const std::shared_ptr<grpc::Channel>& channel) {
    v1::Assignment assignment;
    const auto workers = v1::WorkerService::NewStub(channel);
    return workers->Attach(context().get(), {}, &assignment).error_code();
  };
  EXPECT_EQ(ask(open(/*by_name=*/false)), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ask(grpc::CreateChannel(daemon_->worker_endpoint()->attach_address(),
                                    grpc::InsecureChannelCredentials())),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ask(open()), grpc::StatusCode::ABORTED);
}

TEST_F(ServiceWorkerEndpoint, TheLocalSocketRefusesEnrolment) {
  const auto workers = v1::WorkerService::NewStub(grpc::CreateChannel(
      "unix:" + (config_.state_dir / "worker.sock").string(), grpc::InsecureChannelCredentials()));
  v1::EnrolResponse enrolled;
  EXPECT_EQ(workers->Enrol(context().get(), {}, &enrolled).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServiceWorkerEndpoint, KeepsItsCertificateAndIsClosedByDefault) {
  const std::string certificate = daemon_->worker_endpoint()->certificate_pem();
  stop();
  start();
  EXPECT_EQ(daemon_->worker_endpoint()->certificate_pem(), certificate);
  stop();
  config_.workers_listen.clear();
  start();
  EXPECT_EQ(daemon_->worker_endpoint(), nullptr);
}

}  // namespace
}  // namespace trainyard::server
