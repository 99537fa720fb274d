// What a request may contain: names, unknown fields, and how a refusal travels.
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/service/digest.h"
#include "server/service/names.h"
#include "server/service/status.h"
#include "server/service/strict.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {
namespace {

TEST(ServiceNames, AWellFormedNameGivesItsId) {
  const Result<std::string> id =
      parse_name(Collection::kJobs, "name", "tenants/default/jobs/my-job-7");
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(*id, "my-job-7");
  EXPECT_EQ(full_name(Collection::kJobs, *id), "tenants/default/jobs/my-job-7");
  EXPECT_TRUE(parse_id_or_name(Collection::kDatasets, "d", "iris").ok());
  EXPECT_TRUE(
      parse_name(Collection::kUploads, "name", "tenants/default/uploads/" + std::string(64, 'a'))
          .ok());
}

TEST(ServiceNames, EverythingElseIsMalformed) {
  for (const std::string& name :
       {std::string(""), std::string("jobs/abcd"), std::string("tenants/default/jobs/"),
        std::string("tenants/default/jobs/abc"), std::string("tenants/default/jobs/Abcd"),
        std::string("tenants/default/jobs/9abc"), std::string("tenants/default/jobs/abcd-"),
        std::string("tenants/default/jobs/../x"), std::string("tenants/default/jobs/%2e%2e"),
        std::string("tenants/default/jobs/ab\0cd", 26), std::string("tenants/default/jobs/аbcd"),
        std::string("tenants/default/jobs/abcd/x"), std::string("tenants/default/models/abcd"),
        std::string("tenants/../jobs/abcd"), "tenants/default/jobs/" + std::string(64, 'a'),
        std::string(300, 'a')}) {
    const Result<std::string> id = parse_name(Collection::kJobs, "name", name);
    ASSERT_FALSE(id.ok()) << name;
    EXPECT_EQ(id.error().reason, "NAME_MALFORMED") << name;
    ASSERT_EQ(id.error().violations.size(), 1u);
    EXPECT_LT(id.error().message.size(), 400u);
  }
}

TEST(ServiceNames, ADatasetsNameMayEndInAVersion) {
  const DatasetRef newest = parse_dataset_name("name", "tenants/default/datasets/digits").value();
  EXPECT_EQ(newest.text(), "digits");
  EXPECT_EQ(newest.version, 0);
  const DatasetRef second = parse_dataset_name("name", "tenants/default/datasets/digits@2").value();
  EXPECT_EQ(second.id, "digits");
  EXPECT_EQ(second.version, 2);
  EXPECT_EQ(second.text(), "digits@2");
  EXPECT_EQ(parse_dataset_id_or_name("d", "digits@999999999").value().version, 999'999'999);
  for (const char* text :
       {"digits@", "digits@0", "digits@02", "digits@-1", "digits@two", "digits@1@2",
        "digits@1000000000", "digits@ 1", "@1", "d@1", "digits/@1",
        "tenants/default/models/digits@1", "tenants/default@1/datasets/digits"}) {
    const Result<DatasetRef> ref = parse_dataset_id_or_name("dataset.name", text);
    ASSERT_FALSE(ref.ok()) << text;
    EXPECT_EQ(ref.error().reason, "NAME_MALFORMED") << text;
    EXPECT_EQ(ref.error().violations[0].field, "dataset.name");
  }
  EXPECT_EQ(parse_dataset_name("name", "tenants/other/datasets/digits@1").error().reason,
            "ACCESS_DENIED");
  EXPECT_EQ(parse_dataset_name("name", "digits@1").error().reason, "NAME_MALFORMED");
  EXPECT_EQ(check_id(Collection::kDatasets, "dataset_id", "digits@1").error().reason,
            "NAME_MALFORMED")
      << "versions are the server's to give";
}

TEST(ServiceNames, AnotherTenantAnswersAlikeWhetherOrNotTheThingExists) {
  const Result<std::string> id = parse_name(Collection::kJobs, "name", "tenants/other/jobs/abcd");
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(id.error().reason, "ACCESS_DENIED");
  EXPECT_EQ(check_parent("tenants/other").error().reason, "ACCESS_DENIED");
  EXPECT_EQ(check_parent("other").error().reason, "NAME_MALFORMED");
  EXPECT_TRUE(check_parent("").ok());
  EXPECT_TRUE(check_parent("tenants/default").ok());
}

TEST(ServiceNames, ARequestIdIsAUuid) {
  EXPECT_TRUE(check_request_id("").ok());
  EXPECT_TRUE(check_request_id("7d444840-9dc0-11d1-b245-5ffdce74fad2").ok());
  EXPECT_FALSE(check_request_id("7d444840-9dc0-11d1-b245-5ffdce74fad").ok());
  EXPECT_FALSE(check_request_id("7d444840x9dc0-11d1-b245-5ffdce74fad2").ok());
}

TEST(ServiceStrict, AnUnknownFieldIsRefusedWhereverItHides) {
  v1::SubmitJobRequest request;
  request.mutable_spec()->mutable_recipe()->mutable_optimizer()->set_learning_rate(0.1);
  EXPECT_TRUE(check_known_fields(request).ok());
  v1::Optimizer& deep = *request.mutable_spec()->mutable_recipe()->mutable_optimizer();
  deep.GetReflection()->MutableUnknownFields(&deep)->AddVarint(999, 1);
  v1::Layer& layer = *request.mutable_spec()->mutable_model()->add_layers();
  layer.GetReflection()->MutableUnknownFields(&layer)->AddVarint(77, 1);
  const Status s = check_known_fields(request);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().reason, "FIELD_UNKNOWN");
  ASSERT_EQ(s.error().violations.size(), 2u);
  EXPECT_EQ(s.error().violations[0].field, "spec.model.layers[0].77");
  EXPECT_EQ(s.error().violations[1].field, "spec.recipe.optimizer.999");
}

TEST(ServiceStatus, CarriesOneErrorInfoAndTheViolations) {
  Error e = field_error("FIELD_OUT_OF_RANGE", "recipe.steps", "0 is out of range");
  e.metadata["limit"] = "7";
  const grpc::Status status = to_grpc_status(e);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_EQ(details.details_size(), 2);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
  EXPECT_EQ(info.domain(), "trainyard");
  EXPECT_EQ(info.reason(), "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(info.metadata().at("limit"), "7");
  google::rpc::BadRequest bad;
  ASSERT_TRUE(details.details(1).UnpackTo(&bad));
  EXPECT_EQ(bad.field_violations(0).field(), "recipe.steps");
}

TEST(ServiceStatus, DetailsAreCutToWhatTrailersHoldAndNeverDropped) {
  Error e = field_error("FIELD_UNKNOWN", "a", std::string(5000, 'x'));
  for (int i = 0; i < 100; ++i) {
    e.violations.push_back({"f" + std::string(500, 'y'), std::string(900, 'z')});
    e.metadata["key" + std::to_string(i)] = "\xc3\xa4" + std::string(3000, 'w');
  }
  e.message += std::string(1, 'm') + "\xc3\xa4";
  const grpc::Status status = to_grpc_status(e);
  EXPECT_LE(status.error_details().size() + status.error_message().size(), 7000u);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "FIELD_UNKNOWN");
  google::rpc::BadRequest bad;
  ASSERT_TRUE(details.details(1).UnpackTo(&bad));
  EXPECT_GE(bad.field_violations_size(), 4);
  EXPECT_LE(bad.field_violations_size(), 16);
}

TEST(ServiceDigest, DoesNotDependOnTheOrderOfAMap) {
  v1::JobSpec a, b;
  for (int i = 0; i < 20; ++i) (*a.mutable_labels())["k" + std::to_string(i)] = "v";
  for (int i = 19; i >= 0; --i) (*b.mutable_labels())["k" + std::to_string(i)] = "v";
  EXPECT_EQ(digest_of(a), digest_of(b));
  (*b.mutable_labels())["k0"] = "w";
  EXPECT_NE(digest_of(a), digest_of(b));
}

}  // namespace
}  // namespace trainyard::server
