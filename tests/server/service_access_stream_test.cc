// Tests that a stream ends when its caller's token is revoked or role goes: at once if it is quiet,
// else before its next message. They fail if a caller gets anything more afterwards.
#include <functional>

#include "tests/server/access_support.h"

namespace trainyard::server {
namespace {

constexpr int64_t kColumns = 1 << 20;
constexpr int64_t kLargeBytes = 32 * kColumns;  // far more than gRPC buffers for a client

class ServiceAccessStream : public ServiceAccessTest {
 protected:
  void SetUp() override {
    // No heartbeat lets a quiet stream notice anything.
    change_parts_ = [](DaemonParts& parts) { parts.watch_heartbeat_ms = 3'600'000; };
    ServiceAccessTest::SetUp();
    jobs_ = v1::JobService::NewStub(tcp_);
    datasets_ = v1::DatasetService::NewStub(tcp_);
    models_ = v1::ModelService::NewStub(tcp_);
    system_ = v1::SystemService::NewStub(tcp_);
  }

  /// Ways to lose a stream, and the reason with which it then ends.
  struct Loss {
    const char* reason;
    std::function<void(const std::string& person, const std::string& token_id)> happens;
  };
  std::vector<Loss> losses() {
    return {{"CREDENTIALS_REVOKED",
             [this](const std::string&, const std::string& id) {
               must(nullptr, "RevokeToken", "id: '" + id + "'");
             }},
            {"PROJECT_NOT_FOUND", [this](const std::string& person, const std::string&) {
               set_member("vision", person, "NONE");
             }}};
  }

  /// Creates a model of kLargeBytes in the project "vision".
  void make_large_model() {
    const std::string header = R"({"fc1.weight":{"dtype":"F32","shape":[8,)" +
                               std::to_string(kColumns) + R"(],"data_offsets":[0,)" +
                               std::to_string(kLargeBytes) + "]}}";
    const std::string weights = upload_to(
        "vision", std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header +
                      std::string(static_cast<size_t>(kLargeBytes), '\0'));
    must(as("owner"), "CreateModel",
         "parent: 'projects/vision' model_id: 'large' sha256: '" + weights + "'");
  }
};

TEST_F(ServiceAccessStream, AQuietWatchEndsAtOnce) {
  for (const Loss& loss : losses()) {
    const v1::CreateTokenResponse token = make_token("viewer");
    const Caller caller{token.text()};
    const auto c = context_of(&caller);
    v1::WatchJobRequest request;
    request.set_name("projects/vision/jobs/paused");
    const auto stream = jobs_->WatchJob(c.get(), request);
    v1::WatchJobResponse response;
    ASSERT_TRUE(stream->Read(&response));
    const int64_t newest = response.start().newest_seq();
    for (int64_t seen = 0; seen < newest;) {
      ASSERT_TRUE(stream->Read(&response));
      for (const v1::Event& event : response.events()) seen = event.seq();
    }
    loss.happens("viewer", token.token().id());
    EXPECT_FALSE(stream->Read(&response)) << response.ShortDebugString();
    EXPECT_EQ(reason_of(stream->Finish()), loss.reason);
  }
}

TEST_F(ServiceAccessStream, AQuietGenerationEndsAtOnceAndFreesItsWorker) {
  must(nullptr, "ResumeDevice", "name: 'devices/cpu'");
  must(
      as("owner"), "SubmitJob",
      replaced(std::string("parent: 'projects/vision' job_id: 'talker' ") + kSpec, "$P", "vision"));
  ASSERT_TRUE(eventually([&] {
    v1::Job job;
    return parsed(must(as("owner"), "GetJob", "name: 'projects/vision/jobs/talker'"), job)
               .state() == v1::SUCCEEDED;
  }));
  for (const Loss& loss : losses()) {
    const v1::CreateTokenResponse token = make_token("viewer");
    const Caller caller{token.text()};
    const auto c = context_of(&caller);
    v1::GenerateRequest request;
    request.set_name("projects/vision/models/talker");
    request.set_prompt("endless");
    request.set_token_count(1);
    const auto stream = models_->Generate(c.get(), request);
    v1::GenerateResponse response;
    ASSERT_TRUE(stream->Read(&response));
    loss.happens("viewer", token.token().id());
    EXPECT_FALSE(stream->Read(&response)) << response.ShortDebugString();
    EXPECT_EQ(reason_of(stream->Finish()), loss.reason);
    must(as("member"), "Generate",
         "name: 'projects/vision/models/talker' prompt: 'hello' token_count: 1");
  }
}

TEST_F(ServiceAccessStream, ADownloadEndsBeforeItsNextPart) {
  make_large_model();
  for (const Loss& loss : losses()) {
    const v1::CreateTokenResponse token = make_token("viewer");
    const Caller caller{token.text()};
    const auto c = context_of(&caller);
    v1::DownloadModelRequest request;
    request.set_name("projects/vision/models/large");
    const auto stream = models_->DownloadModel(c.get(), request);
    v1::DownloadModelResponse response;
    ASSERT_TRUE(stream->Read(&response));
    loss.happens("viewer", token.token().id());
    size_t bytes = 0;
    while (stream->Read(&response)) bytes += response.data().size();
    EXPECT_EQ(reason_of(stream->Finish()), loss.reason);
    EXPECT_LT(bytes, static_cast<size_t>(kLargeBytes));
  }
}

TEST_F(ServiceAccessStream, ABackupEndsBeforeItsNextPart) {
  make_large_model();
  for (const char* reason : {"CREDENTIALS_REVOKED", "ROLE_REQUIRED"}) {
    const v1::CreateTokenResponse token = make_token("operator");
    const Caller caller{token.text()};
    const auto c = context_of(&caller);
    const auto stream = system_->Backup(c.get(), {});
    v1::BackupResponse response;
    ASSERT_TRUE(stream->Read(&response));
    if (std::string_view(reason) == "ROLE_REQUIRED") {
      must(nullptr, "SetPerson", "name: 'operator' server_role: USER");
    } else {
      must(nullptr, "RevokeToken", "id: '" + token.token().id() + "'");
    }
    while (stream->Read(&response)) EXPECT_FALSE(response.has_summary());
    EXPECT_EQ(reason_of(stream->Finish()), reason);
  }
  must(nullptr, "Backup", "");  // no other backup is under way any more
}

TEST_F(ServiceAccessStream, AnUploadEndsBeforeItsNextPart) {
  const std::string content(3000, 'u');
  const std::string name = "name: 'projects/vision/uploads/" + sha256_hex(content) + "'";
  for (const Loss& loss : losses()) {
    const v1::CreateTokenResponse token = make_token("member");
    const Caller caller{token.text()};
    const auto c = context_of(&caller);
    v1::Upload up;
    const auto stream = datasets_->UploadFile(c.get(), &up);
    v1::UploadFileRequest request;
    request.mutable_start()->set_parent("projects/vision");
    request.mutable_start()->set_sha256(sha256_hex(content));
    request.mutable_start()->set_size_bytes(static_cast<int64_t>(content.size()));
    parsed(must(as("owner"), "GetUpload", name), up);
    request.mutable_start()->set_offset(up.committed_size());
    const int64_t entries = count_uploads();
    stream->Write(request);
    ASSERT_TRUE(eventually([&] { return count_uploads() > entries; })) << "it has begun";
    loss.happens("member", token.token().id());
    request.mutable_chunk()->set_offset(up.committed_size());
    request.mutable_chunk()->set_data(content.substr(static_cast<size_t>(up.committed_size())));
    request.mutable_chunk()->set_crc32c(crc32c(request.chunk().data()));
    stream->Write(request);
    request.mutable_finish();
    stream->Write(request);
    stream->WritesDone();
    EXPECT_EQ(reason_of(stream->Finish()), loss.reason);
    parsed(must(as("owner"), "GetUpload", name), up);
    EXPECT_EQ(up.committed_size(), 0) << "nothing was taken afterwards";
  }
}

}  // namespace
}  // namespace trainyard::server
