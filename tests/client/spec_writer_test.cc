// Tests that a stored job, written as a spec file and read again, is the same job.
#include "proto/spec/writer.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "client/cli/output_json.h"
#include "client/lib/spec_file.h"
#include "tests/support/source_path.h"

namespace trainyard::client {
namespace {

void expect_the_same_again(const v1::JobSpec& spec) {
  const auto json = spec::write_spec(spec);
  for (const auto format : {cli::Format::kYaml, cli::Format::kJson}) {
    const std::string text = cli::text_of(json, format);
    const auto read = parse_spec_file(text, "again", "", {});
    ASSERT_TRUE(read.ok()) << read.error().message << "\n" << text;
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read->job_spec(), spec))
        << text << "\n"
        << spec.ShortDebugString();
  }
}

TEST(SpecWriter, EveryValidCaseRoundTrips) {
  int count = 0;
  for (const YAML::Node& node : YAML::LoadFile(testing::source_path("tests/spec_cases.yaml"))) {
    if (!node["gives"] || node["dataset"]) continue;
    SCOPED_TRACE(node["case"].as<std::string>());
    std::string text;
    for (const char* kind : {"job", "model", "recipe"}) {
      if (!node[kind] || !node[kind].IsScalar()) continue;
      text = node[kind].as<std::string>();
      if (std::string(kind) == "job") break;
      std::string indented;
      std::istringstream in(text);
      for (std::string line; std::getline(in, line);) indented += "\n  " + line;
      const bool lines = text.find('\n') != text.npos;
      text = std::string(kind) + ":" + (lines ? indented : " " + text) + "\ndataset: d\n" +
             (std::string(kind) == "model" ? "recipe: {}\n" : "model: {mlp: {}}\n");
    }
    if (text.empty()) continue;
    const auto read = parse_spec_file(text, "case", "", {});
    ASSERT_TRUE(read.ok()) << read.error().message;
    v1::JobSpec spec = read->job_spec();
    spec.mutable_dataset()->set_name("projects/default/datasets/digits@2");
    expect_the_same_again(spec);
    ++count;
  }
  EXPECT_GT(count, 15);
}

TEST(SpecWriter, NumbersAndTextsKeepValueAndType) {
  v1::JobSpec spec;
  spec.mutable_dataset()->set_name("d");
  spec.mutable_model()->mutable_mlp();
  v1::Recipe& recipe = *spec.mutable_recipe();
  recipe.set_seed(UINT64_MAX);
  recipe.set_epochs(0);  // set, although 0 is the default of its type
  recipe.set_shuffle(false);
  recipe.mutable_optimizer()->set_learning_rate(0.1 + 0.2);
  recipe.mutable_optimizer()->set_epsilon(5e-324);
  recipe.mutable_optimizer()->set_momentum(-0.0);
  recipe.mutable_optimizer()->set_type(v1::Optimizer::ADAMW);
  recipe.set_precision(v1::Recipe::BF16);
  auto& labels = *spec.mutable_labels();
  for (const char* text : {"true", "null", "1e3", "- a", "x: y", "# no", " spaces ", "", "*", "yes",
                           "\"quoted\"", "~", "0x10", "2026-11-23", "\u00e9", "back\\slash"}) {
    labels["k" + std::to_string(labels.size())] = text;
    labels[text[0] == 0 ? "empty" : text] = "key";
  }
  expect_the_same_again(spec);
}

}  // namespace
}  // namespace trainyard::client
