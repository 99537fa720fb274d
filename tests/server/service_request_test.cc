// Tests of the rules for requests: names, unknown fields, and how a refusal is encoded.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/planning/digest.h"
#include "server/rpc/names.h"
#include "server/rpc/status.h"
#include "server/rpc/strict.h"
#include "server/rpc/wire.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {
namespace {

TEST(ServiceNames, AValidNameGivesItsProjectAndId) {
  const Result<ResourceName> name =
      parse_name(Collection::kJobs, "name", "projects/lab-2/jobs/my-job-7");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->project, "lab-2");
  EXPECT_EQ(name->id, "my-job-7");
  EXPECT_EQ(full_name(name->project, Collection::kJobs, name->id), "projects/lab-2/jobs/my-job-7");
  EXPECT_EQ(parse_id_or_name(Collection::kDatasets, "lab-2", "d", "iris").value().project, "lab-2");
  EXPECT_EQ(parse_id_or_name(Collection::kDatasets, "lab-2", "d", "projects/other/datasets/iris")
                .value()
                .project,
            "other");
  EXPECT_TRUE(
      parse_name(Collection::kUploads, "name", "projects/default/uploads/" + std::string(64, 'a'))
          .ok());
}

TEST(ServiceNames, EverythingElseIsMalformed) {
  for (const std::string& name :
       {std::string(""), std::string("jobs/abcd"), std::string("projects/default/jobs/"),
        std::string("projects/default/jobs/Abcd"), std::string("projects/default/jobs/9abc"),
        std::string("projects/default/jobs/abcd-"), std::string("projects/default/jobs/../x"),
        std::string("projects/default/jobs/%2e%2e"),
        std::string("projects/default/jobs/ab\0cd", 26), std::string("projects/default/jobs/аbcd"),
        std::string("projects/default/jobs/abcd/x"), std::string("projects/default/models/abcd"),
        std::string("projects/../jobs/abcd"), "projects/default/jobs/" + std::string(64, 'a'),
        std::string(300, 'a')}) {
    const Result<ResourceName> id = parse_name(Collection::kJobs, "name", name);
    ASSERT_FALSE(id.ok()) << name;
    EXPECT_EQ(id.error().reason, "NAME_MALFORMED") << name;
    ASSERT_EQ(id.error().violations.size(), 1u);
    EXPECT_LT(id.error().message.size(), 400u);
  }
}

TEST(ServiceNames, NamesMayBeShortAndARefusalNamesASimilarOne) {
  for (const char* id : {"a", "gpt", "txt", "r2"}) {
    EXPECT_TRUE(check_id(Collection::kJobs, "job_id", id).ok()) << id;
  }
  const auto refusal = [](const char* id) {
    const Status s = check_id(Collection::kJobs, "job_id", id);
    return s.ok() ? "accepted" : s.error().message;
  };
  EXPECT_EQ(refusal("My_Shop 2"),
            "job_id: 'My_Shop 2' is malformed, expected 1 to 63 characters of a-z, 0-9 and dash, "
            "beginning with a letter and not ending with a dash; 'my-shop-2' would do");
  EXPECT_TRUE(refusal("shop.yaml").ends_with("; 'shop' would do")) << "a job's file";
  EXPECT_TRUE(refusal("-").ends_with("with a dash")) << "nothing is similar";
  EXPECT_TRUE(refusal("9lives").ends_with("with a dash"));
}

TEST(ServiceNames, ADatasetsNameMayEndInAVersion) {
  const DatasetName newest = parse_dataset_name("name", "projects/lab/datasets/digits").value();
  EXPECT_EQ(newest.project, "lab");
  EXPECT_EQ(newest.ref.text(), "digits");
  EXPECT_EQ(newest.ref.version, 0);
  const DatasetName second = parse_dataset_name("name", "projects/lab/datasets/digits@2").value();
  EXPECT_EQ(second.ref.id, "digits");
  EXPECT_EQ(second.ref.version, 2);
  EXPECT_EQ(second.ref.text(), "digits@2");
  const DatasetName bare = parse_dataset_id_or_name("lab", "d", "digits@999999999").value();
  EXPECT_EQ(bare.project, "lab");
  EXPECT_EQ(bare.ref.version, 999'999'999);
  for (const char* text :
       {"digits@", "digits@0", "digits@02", "digits@-1", "digits@two", "digits@1@2",
        "digits@1000000000", "digits@ 1", "@1", "D@1", "digits/@1",
        "projects/default/models/digits@1", "projects/default@1/datasets/digits"}) {
    const Result<DatasetName> ref = parse_dataset_id_or_name("lab", "dataset.name", text);
    ASSERT_FALSE(ref.ok()) << text;
    EXPECT_EQ(ref.error().reason, "NAME_MALFORMED") << text;
    EXPECT_EQ(ref.error().violations[0].field, "dataset.name");
  }
  EXPECT_EQ(parse_dataset_name("name", "digits@1").error().reason, "NAME_MALFORMED");
  EXPECT_EQ(check_id(Collection::kDatasets, "dataset_id", "digits@1").error().reason,
            "NAME_MALFORMED")
      << "versions are the server's to give";
}

TEST(ServiceNames, AParentNamesAProject) {
  EXPECT_EQ(parse_parent("").value(), "default");
  EXPECT_EQ(parse_parent("projects/lab-2").value(), "lab-2");
  EXPECT_EQ(parse_parent("projects/-").value(), "-");
  for (const char* parent :
       {"other", "projects/", "projects/Lab", "projects/a/b", "projects/../x"}) {
    EXPECT_EQ(parse_parent(parent).error().reason, "NAME_MALFORMED") << parent;
  }
}

TEST(ServiceNames, AStoredNameIsSplit) {
  EXPECT_EQ(split_stored_name("lab", "digits@2").project, "lab");
  const StoredName full = split_stored_name("lab", "projects/other/datasets/digits@2");
  EXPECT_EQ(full.project, "other");
  EXPECT_EQ(full.id, "digits@2");
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

TEST(ServiceStatus, DetailsAreTruncatedToTheTrailersLimitAndNeverDropped) {
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

std::string field_of(int number, const std::string& content) {
  std::string bytes;
  google::protobuf::io::StringOutputStream out(&bytes);
  google::protobuf::io::CodedOutputStream coded(&out);
  coded.WriteTag(static_cast<uint32_t>(number << 3 | 2));
  coded.WriteVarint32(static_cast<uint32_t>(content.size()));
  coded.WriteString(content);
  coded.Trim();
  return bytes;
}

std::string repeated(const std::string& piece, size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += piece;
  return bytes;
}

/// Returns a serialized SubmitJobRequest with these bytes as the model.
std::string request_with_model(const std::string& model) { return field_of(3, field_of(2, model)); }

std::string request_refusal_of(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  v1::SubmitJobRequest request;
  const Status s = parse_request(grpc::ByteBuffer(&slice, 1), request);
  return s.ok() ? "" : s.error().reason;
}

/// Returns the peak memory of this process in MiB.
int64_t peak_mib() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss / 1024;
}

// Parsing these 4 MiB would need 528 MiB.
TEST(ServiceElements, MillionsOfEmptyLayersAreRefusedBeforeParsing) {
  const std::string bytes = request_with_model(repeated(field_of(3, ""), 2'000'000));
  const int64_t before = peak_mib();
  EXPECT_EQ(request_refusal_of(bytes), "REQUEST_TOO_LARGE");
  EXPECT_LT(peak_mib() - before, 64);
}

TEST(ServiceElements, ElementsOfEveryKindAreCounted) {
  constexpr size_t kMany = kRequestElementsMax + 1;
  const std::string layer_with_inputs = field_of(3, repeated(field_of(2, "x"), kMany));
  const std::string labels = field_of(3, repeated(field_of(6, field_of(1, "a")), kMany));
  const std::string unknown = repeated(field_of(200, ""), kMany);
  const std::string group = std::string("\xc3\x0c", 2) +
                            repeated(std::string("\x08\x01", 2), kMany) +
                            std::string("\xc4\x0c", 2);  // field 200, unknown
  for (const std::string& bytes :
       {request_with_model(layer_with_inputs), labels, unknown, group, field_of(3, unknown)}) {
    EXPECT_EQ(request_refusal_of(bytes), "REQUEST_TOO_LARGE");
  }
  std::string list;  // a list nested 60 times, as the default of a block's parameter
  for (int i = 0; i < 60; ++i) list = field_of(6, field_of(1, list));
  const std::string block = field_of(40, field_of(4, field_of(2, list)));
  EXPECT_EQ(request_refusal_of(request_with_model(block)), "REQUEST_MALFORMED");
}

TEST(ServiceElements, TheAllowedNumberIsParsed) {
  // The spec and its model are two of the allowed elements.
  const std::string layer = field_of(3, "");
  EXPECT_EQ(request_refusal_of(request_with_model(repeated(layer, kRequestElementsMax - 2))), "");
  EXPECT_EQ(request_refusal_of(request_with_model(repeated(layer, kRequestElementsMax - 1))),
            "REQUEST_TOO_LARGE");
  const std::string hidden(1'000'000, '\x05');  // a single packed list
  EXPECT_EQ(request_refusal_of(request_with_model(field_of(1, field_of(1, hidden)))), "");
  EXPECT_EQ(request_refusal_of(request_with_model(field_of(3, "")).substr(0, 3)),
            "REQUEST_MALFORMED");
}

}  // namespace
}  // namespace trainyard::server
