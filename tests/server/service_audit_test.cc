// Tests of the audit through the whole daemon. They fail if a call that changes something leaves no
// entry, if an entry names somebody else, or if a new RPC was not thought about.
#include <pwd.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "server/handlers/audited_call.h"
#include "tests/server/service_support.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {
namespace {

class ServiceAudit : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    make_dataset();
  }
  static std::string me() {
    const passwd* user = ::getpwuid(::getuid());
    return user != nullptr ? user->pw_name : "uid:" + std::to_string(::getuid());
  }
  /// Returns the entries, newest first.
  std::vector<v1::AuditEntry> entries(const std::string& action,
                                      std::unique_ptr<grpc::ClientContext> with = context()) {
    v1::ListAuditRequest request;
    request.set_action(action);
    v1::ListAuditResponse response;
    const grpc::Status s = system_->ListAudit(with.get(), request, &response);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return {response.entries().begin(), response.entries().end()};
  }
  grpc::Status cancel(const std::string& id, std::unique_ptr<grpc::ClientContext> with) {
    v1::CancelJobRequest request;
    request.set_name("projects/default/jobs/" + id);
    v1::Job job;
    return jobs_->CancelJob(with.get(), request, &job);
  }
};

TEST_F(ServiceAudit, EachRpcIsRecordedOrKnownToChangeNothing) {
  const std::set<std::string> readers = {
      "GetUpload",   "GetDataset", "ListDatasets", "PlanJob",    "ReadSpec",  "GetJob",
      "ListJobs",    "WatchJob",   "GetArray",     "ListArrays", "ListQueue", "ListCheckpoints",
      "ListModels",  "GetModel",   "Predict",      "Generate",   "Evaluate",  "GetServerInfo",
      "ListDevices", "ListAudit",  "ListQuotas",   "GetUsage"};
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::Dataset::descriptor()->file(),
        v1::Model::descriptor()->file(), v1::ServerInfo::descriptor()->file()}) {
    for (int i = 0; i < file->service(0)->method_count(); ++i) {
      const std::string& method = file->service(0)->method(i)->name();
      EXPECT_NE(is_audited(method), readers.contains(method)) << method;
    }
  }
}

TEST_F(ServiceAudit, AnEntrySaysWhoAskedForWhatAndWhatCameOfIt) {
  submit("mine", "wait_for_stop");
  wait_for("mine", v1::RUNNING);
  ASSERT_TRUE(cancel("mine", context()).ok());
  EXPECT_FALSE(cancel("nobodys", context()).ok());
  const std::vector<v1::AuditEntry> cancels = entries("CancelJob");
  ASSERT_EQ(cancels.size(), 2U);
  EXPECT_EQ(cancels[0].object(), "projects/default/jobs/nobodys");
  EXPECT_EQ(cancels[0].result(), "JOB_NOT_FOUND");
  EXPECT_EQ(cancels[1].object(), "projects/default/jobs/mine");
  EXPECT_EQ(cancels[1].result(), "OK");
  EXPECT_EQ(cancels[1].caller(), me());
  EXPECT_EQ(cancels[1].address(), "unix");
  EXPECT_GT(cancels[1].time().seconds(), 0);
  EXPECT_EQ(entries("SubmitJob").at(0).object(), "projects/default/jobs/mine");
  EXPECT_EQ(entries("UploadFile").size(), 1U);
  EXPECT_EQ(entries("CreateDataset").at(0).object(), "projects/default/datasets/iris@1");
  stop();
  start();
  EXPECT_EQ(entries("CancelJob").size(), 2U) << "stored";
}

TEST_F(ServiceAudit, WhatOnlyAsksLeavesNoEntry) {
  v1::SubmitJobRequest request = job_request("not-yet", "");
  request.set_validate_only(true);
  v1::Job job;
  EXPECT_TRUE(jobs_->SubmitJob(context().get(), request, &job).ok());
  v1::CollectGarbageRequest dry;
  dry.set_dry_run(true);
  v1::CollectGarbageResponse collected;
  EXPECT_TRUE(system_->CollectGarbage(context().get(), dry, &collected).ok());
  EXPECT_TRUE(entries("SubmitJob").empty());
  EXPECT_TRUE(entries("CollectGarbage").empty());
  EXPECT_TRUE(entries("ListAudit").empty());
  dry.set_dry_run(false);
  EXPECT_TRUE(system_->CollectGarbage(context().get(), dry, &collected).ok());
  EXPECT_EQ(entries("CollectGarbage").size(), 1U);
}

TEST_F(ServiceAudit, OnTcpTheEntryHasTheTokensNameAndTheAddress) {
  stop();
  std::ofstream(root_ / "token") << "ada 0123456789abcdef-ada\n";
  std::filesystem::permissions(root_ / "token", std::filesystem::perms::owner_read);
  config_.token_file = root_ / "token";
  config_.listen = "127.0.0.1:0";
  start();
  connect("127.0.0.1:" + std::to_string(daemon_->port()));
  const auto as = [](const std::string& token) {
    auto c = context();
    c->AddMetadata("authorization", "Bearer " + token);
    return c;
  };
  EXPECT_FALSE(cancel("nobodys", as("0123456789abcdef-ada")).ok());
  EXPECT_FALSE(cancel("nobodys", as("0123456789abcdef-eve")).ok());
  EXPECT_FALSE(cancel("nobodys", context()).ok());
  connect("unix:" + config_.socket.string());  // the audit is for admins
  const std::vector<v1::AuditEntry> cancels = entries("CancelJob");
  ASSERT_EQ(cancels.size(), 1U) << "a stranger fills no table";
  EXPECT_EQ(cancels[0].caller(), "ada (token token_file:1)");
  EXPECT_TRUE(cancels[0].address().starts_with("127.0.0.1:")) << cancels[0].address();
}

TEST_F(ServiceAudit, ModelsAndBackupsThatAreHandedOutAreRecorded) {
  v1::DownloadModelRequest model;
  model.set_name("projects/default/models/none");
  auto c = context();
  auto download = models_->DownloadModel(c.get(), model);
  v1::DownloadModelResponse part;
  while (download->Read(&part)) {
  }
  EXPECT_FALSE(download->Finish().ok());
  auto d = context();
  auto backup = system_->Backup(d.get(), {});
  v1::BackupResponse piece;
  while (backup->Read(&piece)) {
  }
  EXPECT_TRUE(backup->Finish().ok());
  ASSERT_EQ(entries("DownloadModel").size(), 1U);
  EXPECT_EQ(entries("DownloadModel")[0].result(), "MODEL_NOT_FOUND");
  ASSERT_EQ(entries("Backup").size(), 1U);
  EXPECT_EQ(entries("Backup")[0].result(), "OK");
}

TEST_F(ServiceAudit, OldEntriesAreRemovedByTheSetting) {
  EXPECT_FALSE(cancel("nobodys", context()).ok());
  ASSERT_EQ(entries("CancelJob").size(), 1U);
  stop();
  config_.keep_audit_seconds = 0;
  start();
  EXPECT_TRUE(eventually([&] { return entries("CancelJob").empty(); }));
}

TEST_F(ServiceAudit, TimesOutsideTheCalendarAreRefused) {
  v1::ListAuditRequest request;
  request.mutable_since_time()->set_seconds(-1);
  v1::ListAuditResponse response;
  const grpc::Status s = system_->ListAudit(context().get(), request, &response);
  EXPECT_EQ(reason_of(s), "FIELD_OUT_OF_RANGE");
}

}  // namespace
}  // namespace trainyard::server
