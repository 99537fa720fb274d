// Tests of quotas and usage in a whole daemon: who may set and see them, and that a change has
// effect at once.
#include <gtest/gtest.h>

#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

class QuotaTest : public ServiceTest {
 protected:
  grpc::Status set(v1::Quota::Kind kind, const std::string& person, std::optional<int64_t> limit,
                   const std::string& project = "projects/default") {
    v1::SetQuotaRequest request;
    request.set_kind(kind);
    request.set_project(project);
    request.set_person(person);
    if (limit) {
      request.set_limit(*limit);
    } else {
      request.set_remove(true);
    }
    v1::Quota quota;
    return system_->SetQuota(context().get(), request, &quota);
  }
  v1::ListQuotasResponse quotas() {
    v1::ListQuotasResponse response;
    EXPECT_TRUE(system_->ListQuotas(context().get(), v1::ListQuotasRequest(), &response).ok());
    return response;
  }
  v1::GetUsageResponse usage(const std::vector<v1::GetUsageRequest::Dimension>& by) {
    v1::GetUsageRequest request;
    for (const auto dimension : by) request.add_by(dimension);
    v1::GetUsageResponse response;
    const grpc::Status s = system_->GetUsage(context().get(), request, &response);
    EXPECT_TRUE(s.ok()) << s.error_message();
    return response;
  }
};

TEST_F(QuotaTest, AJobWaitsForItsQuotaSaysSoAndStartsWhenTheQuotaIsRaised) {
  make_dataset();
  ASSERT_TRUE(set(v1::Quota::DEVICES, "", 1).ok());
  submit("first", "wait_for_stop");
  wait_for("first", v1::RUNNING);
  submit("second", "wait_for_stop");
  ASSERT_TRUE(eventually([&] { return get("second").reason() == "QUOTA_DEVICES"; }))
      << get("second").reason();
  EXPECT_NE(
      get("second").message().find("the quota devices of projects/default, which is 1 device"),
      std::string::npos)
      << get("second").message();
  v1::ListQueueResponse queue;
  ASSERT_TRUE(jobs_->ListQueue(context().get(), v1::ListQueueRequest(), &queue).ok());
  ASSERT_EQ(queue.jobs_size(), 1);
  EXPECT_EQ(queue.jobs(0).reason(), "QUOTA_DEVICES");
  ASSERT_EQ(quotas().quotas_size(), 1);
  EXPECT_EQ(quotas().quotas(0).limit(), 1);
  EXPECT_EQ(quotas().quotas(0).used(), 1);
  ASSERT_TRUE(set(v1::Quota::DEVICES, "", 2).ok());
  wait_for("second", v1::RUNNING);
  ASSERT_TRUE(set(v1::Quota::DEVICES, "", std::nullopt).ok());
  EXPECT_EQ(quotas().quotas_size(), 0);
  EXPECT_EQ(reason_of(set(v1::Quota::DEVICES, "", std::nullopt)), "QUOTA_NOT_FOUND");
}

TEST_F(QuotaTest, ASubmissionBeyondAQuotaIsRefusedWithItsNumbers) {
  make_dataset();
  ASSERT_TRUE(set(v1::Quota::QUEUED_JOBS, "", 0).ok());
  v1::Job job;
  const grpc::Status refused = submit(job_request("one", ""), &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(reason_of(refused), "QUOTA_EXCEEDED");
  EXPECT_NE(refused.error_message().find("queued_jobs of projects/default is 0 queued jobs"),
            std::string::npos)
      << refused.error_message();
  ASSERT_TRUE(set(v1::Quota::QUEUED_JOBS, "", 1).ok());
  EXPECT_TRUE(submit(job_request("one", ""), &job).ok());
}

TEST_F(QuotaTest, UsageIsThatOfEndedAndOfRunningJobs) {
  config_.cpu_price_per_hour = 3600;  // one a second
  stop();
  start();
  make_dataset();
  submit("ended", "");
  wait_for("ended", v1::SUCCEEDED);
  const v1::GetUsageResponse ended = usage({v1::GetUsageRequest::DEVICE, v1::GetUsageRequest::DAY});
  ASSERT_GE(ended.rows_size(), 1);  // two if midnight has passed
  EXPECT_EQ(ended.rows(0).device_kind(), "cpu");
  EXPECT_GT(ended.rows(0).device_seconds(), 0);
  EXPECT_NEAR(ended.rows(0).cost(), ended.rows(0).device_seconds(), 1e-6);
  EXPECT_FALSE(ended.rows(0).has_energy_joules());
  EXPECT_EQ(ended.rows(0).day().size(), 10u);
  EXPECT_EQ(ended.rows(0).person(), "");
  submit("runs", "wait_for_stop");
  wait_for("runs", v1::RUNNING);
  const auto seconds = [&] {
    double sum = 0;
    const v1::GetUsageResponse now = usage({v1::GetUsageRequest::PERSON});
    for (const v1::UsageRow& row : now.rows()) sum += row.device_seconds();
    return sum;
  };
  const double before = seconds();
  EXPECT_TRUE(eventually([&] { return seconds() > before; })) << "it counts while it runs";
  v1::GetUsageRequest request;
  request.set_project("projects/nowhere");
  v1::GetUsageResponse none;
  EXPECT_EQ(reason_of(system_->GetUsage(context().get(), request, &none)), "PROJECT_NOT_FOUND");
  request.set_project("default");
  EXPECT_EQ(reason_of(system_->GetUsage(context().get(), request, &none)), "NAME_MALFORMED");
  request.Clear();
  request.mutable_since_time()->set_seconds(2'000'000'000);
  request.mutable_until_time()->set_seconds(1'000'000'000);
  EXPECT_EQ(reason_of(system_->GetUsage(context().get(), request, &none)), "FIELD_OUT_OF_RANGE");
  request.Clear();
  request.set_person("nobody");
  ASSERT_TRUE(system_->GetUsage(context().get(), request, &none).ok());
  EXPECT_EQ(none.rows_size(), 0);
}

TEST_F(QuotaTest, CallsToModelsAreBounded) {
  make_dataset();
  submit("oracle", "");
  wait_for("oracle", v1::SUCCEEDED);
  ASSERT_TRUE(set(v1::Quota::MODEL_CALLS, "", 1).ok());
  v1::PredictRequest request;
  request.set_name("projects/default/models/oracle");
  request.set_csv("5,4,3,2");
  v1::PredictResponse response;
  EXPECT_TRUE(models_->Predict(context().get(), request, &response).ok());
  const grpc::Status refused = models_->Predict(context().get(), request, &response);
  EXPECT_EQ(reason_of(refused), "QUOTA_EXCEEDED");
  EXPECT_NE(refused.error_message().find("model_calls of projects/default"), std::string::npos)
      << refused.error_message();
  ASSERT_TRUE(set(v1::Quota::MODEL_CALLS, "", std::nullopt).ok());
  EXPECT_TRUE(models_->Predict(context().get(), request, &response).ok());
}

TEST_F(QuotaTest, MalformedQuotasAreRefusedByField) {
  const std::string all;
  EXPECT_EQ(reason_of(set(v1::Quota::KIND_UNSPECIFIED, "ada", 1)), "FIELD_REQUIRED");
  EXPECT_EQ(reason_of(set(v1::Quota::DEVICES, "", 1, all)), "FIELD_REQUIRED");
  EXPECT_EQ(reason_of(set(v1::Quota::DEVICES, "ada", -1, all)), "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(reason_of(set(v1::Quota::DEVICES, "ada", (int64_t{1} << 50) + 1, all)),
            "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(reason_of(set(v1::Quota::DEVICES, "", 1, "vision")), "NAME_MALFORMED");
  EXPECT_EQ(reason_of(set(v1::Quota::DEVICES, "", 1, "projects/nowhere")), "PROJECT_NOT_FOUND");
  v1::SetQuotaRequest request;
  request.set_kind(v1::Quota::DEVICES);
  request.set_person("ada");
  v1::Quota quota;
  EXPECT_EQ(reason_of(system_->SetQuota(context().get(), request, &quota)), "FIELD_REQUIRED");
  request.set_limit(1);
  request.set_remove(true);
  EXPECT_EQ(reason_of(system_->SetQuota(context().get(), request, &quota)), "FIELD_UNUSED");
  EXPECT_EQ(quotas().quotas_size(), 0);
}

}  // namespace
}  // namespace trainyard::server
