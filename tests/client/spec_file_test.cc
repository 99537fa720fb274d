// Tests of reading spec files into JobFile, with --set, and of adding file positions to the
// server's refusals. tests/spec_cases.yaml has the results and refusals of single values.
#include "client/lib/spec_file.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/client/spec_support.h"

namespace trainyard::client {
namespace {

using Lines = std::vector<std::string>;

TEST(SpecFile, ReadsACompleteSpec) {
  const auto spec = parse_spec_file(R"(
name: digits-1
dataset: {name: digits}
model:
  layers:
    - conv: {out_channels: 8, kernel_shape: 3, pads: [1, 1, 1, 1], bias: false}
      name: c1
    - relu:
    - sigmoid: {}
    - add:
      inputs: [c1, input]
    - gemm:
  loss: softmax_cross_entropy
recipe:
  epochs: 5
  seed: 18446744073709551615
  optimizer: {type: adamw, learning_rate: 1e-3, weight_decay: 0}
  schedule: {type: cosine, warmup_steps: 10}
  shuffle: false
resources: {device: cpu, threads: 2}
priority: -3
labels: {team: "7"}
)",
                                    "job.yaml", "", {});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const v1::JobSpec job = spec->job_spec();
  EXPECT_EQ(spec->file.name(), "digits-1");
  EXPECT_FALSE(spec->has_data());
  EXPECT_EQ(job.dataset().name(), "digits");
  ASSERT_EQ(job.model().layers_size(), 5);
  const auto& conv = job.model().layers(0).conv();
  EXPECT_EQ(conv.kernel_shape_size(), 1);
  EXPECT_EQ(conv.kernel_shape(0), 3);
  EXPECT_EQ(conv.pads_size(), 4);
  EXPECT_TRUE(conv.has_bias());
  EXPECT_FALSE(conv.bias());
  EXPECT_EQ(job.model().layers(1).op_case(), v1::Layer::kRelu);
  EXPECT_EQ(job.model().layers(2).op_case(), v1::Layer::kSigmoid);
  EXPECT_EQ(job.model().layers(3).inputs(1), "input");
  EXPECT_EQ(job.model().layers(4).op_case(), v1::Layer::kGemm);
  EXPECT_TRUE(job.model().loss().has_softmax_cross_entropy());
  EXPECT_EQ(job.recipe().seed(), UINT64_MAX);
  EXPECT_EQ(job.recipe().optimizer().type(), v1::Optimizer::ADAMW);
  EXPECT_DOUBLE_EQ(job.recipe().optimizer().learning_rate(), 1e-3);
  EXPECT_TRUE(job.recipe().optimizer().has_weight_decay());  // an explicit 0 is not the default
  EXPECT_FALSE(job.recipe().shuffle());
  EXPECT_EQ(job.resources().device(), v1::Resources::CPU);
  EXPECT_EQ(job.priority(), -3);
  EXPECT_EQ(job.labels().at("team"), "7");
}

TEST(SpecFile, ReadsTheSameFromJson) {
  const auto spec = parse_spec_file(
      R"({"dataset": {"name": "digits"}, "model": {"mlp": {"hidden": [512, 512], "dropout": 0.1}},
          "recipe": {"steps": 100, "optimizer": {"type": "sgd", "learning_rate": 0.1}}})",
      "job.json", "", {});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->file.model().mlp().hidden(1), 512);
  EXPECT_EQ(spec->file.recipe().steps(), 100);
}

TEST(SpecFile, UpToSixteenProblemsAreReportedAtOnce) {
  std::string text = "dataset: {name: d}\nmodel: {mlp: {hidden: [a, b]}}\nrecipe:\n";
  for (int i = 0; i < 20; ++i) text += "  wrong" + std::to_string(i) + ": 1\n";
  const auto spec = parse_spec_file(text, "job.yaml", "", {});
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().violations.size(), 16u);
  EXPECT_EQ(spec.error().message, "job.yaml has 22 problems");
  EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
}

TEST(SpecFile, SetUsesTheSameRules) {
  const std::string text = spec_with();
  const auto set = parse_spec_file(
      text, "job.yaml", "",
      std::vector<std::string>{"recipe.optimizer.learning_rate=0.5",
                               "model.lenet5=", "model.mlp.hidden=[64, 32]",
                               "labels.note=two words", "recipe.epochs=null", "recipe.steps=7"});
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_DOUBLE_EQ(set->file.recipe().optimizer().learning_rate(), 0.5);
  EXPECT_FALSE(set->file.model().has_lenet5());
  EXPECT_EQ(set->file.model().mlp().hidden(0), 64);
  EXPECT_EQ(set->file.labels().at("note"), "two words");
  EXPECT_FALSE(set->file.recipe().has_epochs());
  EXPECT_EQ(problems_of(text, {"recipe.epoch=3"}),
            Lines{"--set recipe.epoch: unknown field, did you mean 'epochs'?"});
  EXPECT_EQ(problems_of(text, {"recipe.epochs=many"}),
            Lines{"--set recipe.epochs: 'many', expected a whole number"});
}

TEST(SpecFile, FoldsWithoutAFoldAreAnArray) {
  const auto grid_of = [](const std::string& split, const std::vector<std::string>& grids) {
    const auto spec = parse_spec_file(
        spec_with("{lenet5: {}}", "{epochs: 1, split: " + split + "}"), "job.yaml", "", {}, grids);
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    std::map<std::string, Lines> grid;
    for (const auto& [field, values] : spec->file.array().grid()) {
      grid[field] = {values.values().begin(), values.values().end()};
    }
    return grid;
  };
  using Grid = std::map<std::string, Lines>;
  EXPECT_EQ(grid_of("{folds: 3}", {}), (Grid{{"recipe.split.fold", {"1", "2", "3"}}}));
  EXPECT_EQ(grid_of("{folds: 2}", {"recipe.seed=[7, 8]"}),
            (Grid{{"recipe.seed", {"7", "8"}}, {"recipe.split.fold", {"1", "2"}}}));
  EXPECT_EQ(grid_of("{folds: 9}", {"recipe.split.fold=[4, 5]"}),
            (Grid{{"recipe.split.fold", {"4", "5"}}}));
  EXPECT_EQ(grid_of("{folds: 3, fold: 2}", {}), Grid());
  const auto folds = parse_spec_file(spec_with("{lenet5: {}}", "{epochs: 1, split: {folds: 3}}"),
                                     "job.yaml", "", {});
  ASSERT_TRUE(folds.ok());
  EXPECT_EQ(folds->check_single("local run").error().message,
            "job.yaml:3:21: recipe.split.fold: is missing: 'local run' is for one job, which holds "
            "out one of the 3 folds (--set recipe.split.fold=1); 'trainyard submit' makes an array "
            "of all");
}

TEST(SpecFile, TheServersErrorGetsItsPositionInTheFile) {
  const auto spec =
      parse_spec_file(spec_with("{lenet5: {}}", "\n  epochs: 0\n  optimizer: {learning_rate: 0}"),
                      "job.yaml", "", {});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const Error one = spec->with_positions(field_error("FIELD_OUT_OF_RANGE", "spec.recipe.epochs",
                                                     "0 is out of range, expected 1..1000000"));
  EXPECT_EQ(one.message, "job.yaml:4:11: recipe.epochs: 0 is out of range, expected 1..1000000");
  EXPECT_EQ(one.reason, "FIELD_OUT_OF_RANGE");
}

TEST(SpecFile, TheServersErrorNamesTheOptionOnceAndNoRequestField) {
  auto spec = parse_spec_file(spec_with("{lenet5: {}}", "\n  epochs: 3"), "job.yaml", "",
                              std::vector<std::string>{"recipe.epochs=0"});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto refused = [&](const std::string& field) {
    return spec->with_positions(field_error("ANY", field, "is wrong")).message;
  };
  EXPECT_EQ(refused("spec.recipe.epochs"), "--set recipe.epochs: is wrong");
  EXPECT_EQ(refused("job_id"), "job.yaml:1:1: name: is wrong") << "no name is in the file";
  spec->set_name("My Shop");
  EXPECT_EQ(spec->file.name(), "My Shop");
  EXPECT_EQ(refused("job_id"), "--name: is wrong");
  EXPECT_EQ(refused("array_id"), "--name: is wrong");
  EXPECT_EQ(with_user_field_names(field_error("ANY", "job_id", "is wrong"), "--name").message,
            "--name: is wrong");
  EXPECT_EQ(with_user_field_names(field_error("ANY", "job_idle", "is wrong")).message,
            "job_idle: is wrong");
}

// The reader sets fields by their C++ type, so job_spec.proto may only use the types that it
// handles.
TEST(SpecFile, EveryFieldHasATypeThatTheReaderKnows) {
  namespace pb = google::protobuf;
  std::set<const pb::Descriptor*> seen;
  const std::function<void(const pb::Descriptor*)> check = [&](const pb::Descriptor* type) {
    if (!seen.insert(type).second) return;
    for (int i = 0; i < type->field_count(); ++i) {
      const pb::FieldDescriptor* field = type->field(i);
      EXPECT_NE(field->cpp_type(), pb::FieldDescriptor::CPPTYPE_FLOAT) << field->full_name();
      EXPECT_NE(field->cpp_type(), pb::FieldDescriptor::CPPTYPE_UINT32) << field->full_name();
      EXPECT_NE(field->type(), pb::FieldDescriptor::TYPE_BYTES) << field->full_name();
      if (field->message_type() != nullptr) check(field->message_type());
    }
  };
  check(v1::JobFile::descriptor());
  EXPECT_GT(seen.size(), 10u);
}

}  // namespace
}  // namespace trainyard::client
