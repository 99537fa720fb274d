// Tests of ReadSpec: the message that a client gets for a spec text, and the errors for a wrong
// one.
#include <gtest/gtest.h>

#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

using Request = v1::ReadSpecRequest;

constexpr const char* kJob = R"(name: first
dataset: {path: rows.tsv, test_path: test.csv, csv: {target: y}}
model: {onnx: net.onnx}
recipe: {epochs: 5, initial_weights: {path: old.safetensors}}
array: {grid: {recipe.seed: [1, 2]}}
)";

class ReadSpecTest : public ServiceTest {
 protected:
  v1::ReadSpecResponse read(const Request& request) {
    v1::ReadSpecResponse response;
    const grpc::Status status = jobs_->ReadSpec(context().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  v1::ReadSpecResponse read(Request::Kind kind, const std::string& text,
                            const std::string& name = "job.yaml") {
    Request request;
    request.set_kind(kind);
    request.set_text(text);
    request.set_name(name);
    return read(request);
  }
};

TEST_F(ReadSpecTest, AJobIsReturnedInTheFormOfOtherCalls) {
  const v1::ReadSpecResponse found = read(Request::JOB, kJob);
  ASSERT_EQ(found.problem_count(), 0);
  EXPECT_EQ(found.name(), "first");
  EXPECT_FALSE(found.spec().has_dataset()) << "it is created first";
  EXPECT_EQ(found.spec().recipe().epochs(), 5);
  EXPECT_EQ(found.array().grid().at("recipe.seed").values_size(), 2);
  ASSERT_EQ(found.dataset().sources_size(), 2);
  EXPECT_EQ(found.dataset().csv().target(), "y");
  EXPECT_EQ(found.dataset().csv().delimiter(), "\t") << "by the ending of the path";
  EXPECT_EQ(found.dataset().sources(1).role(), v1::DatasetSource::TEST);
  ASSERT_EQ(found.files_size(), 4);
  EXPECT_EQ(found.files(0).field(), "dataset.path");
  EXPECT_EQ(found.files(0).path(), "rows.tsv");
  EXPECT_EQ(found.files(1).source(), 1);
  EXPECT_EQ(found.files(2).field(), "model.onnx");
  EXPECT_FALSE(found.files(2).has_source());
  EXPECT_EQ(found.files(3).field(), "recipe.initial_weights.path");
}

TEST_F(ReadSpecTest, ADatasetOnTheServerBringsNoFiles) {
  const v1::ReadSpecResponse found =
      read(Request::DATASET, "name: photos\nserver_path: /data/photos\nimages: {size: [8, 8]}\n");
  ASSERT_EQ(found.problem_count(), 0) << found.problems(0).description();
  EXPECT_EQ(found.dataset_id(), "photos");
  EXPECT_EQ(found.dataset().sources(0).server_path(), "/data/photos");
  EXPECT_EQ(found.files_size(), 0);
  const v1::ReadSpecResponse folder =
      read(Request::DATASET, "{\"path\": \"photos\", \"images\": {\"size\": [8, 8]}}");
  EXPECT_TRUE(folder.files(0).may_be_folder());
  EXPECT_EQ(folder.files(0).field(), "path");
  EXPECT_FALSE(read(Request::DATASET, "name: digits\n").has_dataset()) << "the server has it";
}

TEST_F(ReadSpecTest, OverridesComeAfterTheTextAndGridsAfterThem) {
  Request request;
  request.set_kind(Request::JOB);
  request.set_text("dataset: d\nmodel: {mlp: {hidden: [4, 4]}}\nrecipe: {epochs: 1}\n");
  request.set_name("job.yaml");
  request.add_set("model.mlp.hidden[1]=8");
  request.add_set("recipe.epochs=2");
  request.add_set("recipe.epochs=3");
  request.add_grid("recipe.seed=[1, 2, 3]");
  request.add_locate("recipe.epochs");
  request.add_locate("model.mlp.hidden[0]");
  const v1::ReadSpecResponse found = read(request);
  ASSERT_EQ(found.problem_count(), 0);
  EXPECT_EQ(found.spec().model().mlp().hidden(1), 8);
  EXPECT_EQ(found.spec().recipe().epochs(), 3);
  EXPECT_EQ(found.array().grid().at("recipe.seed").values_size(), 3);
  EXPECT_EQ(found.positions().at("recipe.epochs"), "--set recipe.epochs");
  EXPECT_EQ(found.positions().at("model.mlp.hidden[0]"), "job.yaml:2:24");
  request.add_set("recipe.epochs");
  const v1::ReadSpecResponse wrong = read(request);
  ASSERT_EQ(wrong.problems_size(), 1);
  EXPECT_EQ(wrong.problems(0).reason(), "FIELD_PATH_INVALID");
  EXPECT_EQ(wrong.problems(0).position(), "--set recipe.epochs");
}

TEST_F(ReadSpecTest, ProblemsHaveReasonFieldAndPosition) {
  const std::string text = "dataset: d\nmodel: {mlp: {}}\nrecipe: {epocs: 1, batch_size: x}\n";
  const v1::ReadSpecResponse found = read(Request::JOB, text);
  EXPECT_FALSE(found.has_spec());
  ASSERT_EQ(found.problems_size(), 2);
  EXPECT_EQ(found.problems(0).reason(), "FIELD_UNKNOWN");
  EXPECT_EQ(found.problems(0).field(), "recipe.epocs");
  EXPECT_EQ(found.problems(0).description(), "unknown field, did you mean 'epochs'?");
  EXPECT_EQ(found.problems(0).position(), "job.yaml:3:10");
  EXPECT_EQ(found.problems(1).field(), "recipe.batch_size");
  const v1::ReadSpecResponse nameless = read(Request::JOB, text, "");
  EXPECT_EQ(nameless.problems(1).position(), "") << "the text was made by a program";
  std::string many = "dataset: d\nmodel: {mlp: {}}\nrecipe:\n";
  for (int i = 0; i < 20; ++i) many += "  unknown_" + std::to_string(i) + ": 1\n";
  const v1::ReadSpecResponse cut = read(Request::JOB, many);
  EXPECT_EQ(cut.problems_size(), 16);
  EXPECT_EQ(cut.problem_count(), 20);
  EXPECT_EQ(read(Request::JOB, "").problems(0).reason(), "SPEC_MALFORMED");
  EXPECT_EQ(read(Request::JOB, "a: " + std::string(1 << 20, 'x')).problems(0).reason(),
            "SPEC_TOO_LARGE");
}

TEST_F(ReadSpecTest, PartsAreReadAlone) {
  EXPECT_EQ(read(Request::MODEL, "layers: [{gemm: {units: 3}}]").model().layers_size(), 1);
  EXPECT_EQ(read(Request::MODEL, "layer: []").problems(0).field(), "model.layer");
  EXPECT_EQ(read(Request::ARRAY, "random: {count: 3}").array().random().count(), 3);
  EXPECT_EQ(read(Request::ARRAY, "gird: {}").problems(0).field(), "array.gird");
}

TEST_F(ReadSpecTest, AnInvalidRequestIsRefused) {
  Request request;
  request.set_text(kJob);
  v1::ReadSpecResponse response;
  EXPECT_EQ(reason_of(jobs_->ReadSpec(context().get(), request, &response)), "FIELD_REQUIRED");
  request.set_kind(Request::JOB);
  for (int i = 0; i <= 64; ++i) request.add_locate("recipe");
  EXPECT_EQ(reason_of(jobs_->ReadSpec(context().get(), request, &response)), "FIELD_OUT_OF_RANGE");
  request.clear_locate();
  for (int i = 0; i <= 1000; ++i) request.add_set("recipe.epochs=1");
  EXPECT_EQ(reason_of(jobs_->ReadSpec(context().get(), request, &response)), "FIELD_OUT_OF_RANGE");
}

}  // namespace
}  // namespace trainyard::server
