// Runs the cases of tests/spec_cases.yaml. The Python client runs the same cases through ReadSpec.
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "client/lib/dataset_upload.h"
#include "client/lib/spec_file.h"
#include "tests/support/source_path.h"

namespace trainyard::client {
namespace {

using Message = std::unique_ptr<google::protobuf::Message>;

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string text_of(const YAML::Node& node) {
  if (node.IsScalar()) return node.as<std::string>();
  std::string text;
  if (node.IsSequence()) {
    for (const YAML::Node& piece : node) text += text_of(piece);
  } else if (node["hex"]) {
    text = bytes_of_hex(node["hex"].as<std::string>());
  } else {
    for (int i = node["repeat"].as<int>(); i > 0; --i) text += node["of"].as<std::string>();
  }
  return text;
}

/// Returns a complete job file around a model or recipe.
std::string job_with(const std::string& part, const std::string& text) {
  std::string job = part + ":";
  if (text.find('\n') == text.npos) {
    job += " " + text + "\n";
  } else {
    std::istringstream in(text);
    job += "\n";
    for (std::string line; std::getline(in, line);) job += "  " + line + "\n";
  }
  if (part != "model") job += "model: {mlp: {}}\n";
  if (part != "recipe") job += "recipe: {}\n";
  return job + "dataset: d\n";
}

/// Reads a text of this kind of spec and returns its message.
Result<Message> read_case(const std::string& kind, const std::string& text) {
  if (kind == "dataset") {
    const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "spec";
    std::ofstream(path, std::ios::binary) << text;
    ASSIGN_OR_RETURN(const auto read, read_dataset_file(path, {}));
    auto spec = std::make_unique<v1::DatasetSpec>(spec::dataset_spec(read.first));
    for (v1::DatasetSource& source : *spec->mutable_sources()) source.clear_filename();
    return Message(std::move(spec));
  }
  ASSIGN_OR_RETURN(const SpecFile file,
                   parse_spec_file(kind == "job" ? text : job_with(kind, text), "spec", "", {}));
  if (kind == "array") return Message(std::make_unique<v1::ArraySpec>(file.file.array()));
  if (kind == "model") return Message(std::make_unique<v1::ModelSpec>(file.job_spec().model()));
  if (kind == "recipe") return Message(std::make_unique<v1::Recipe>(file.job_spec().recipe()));
  return Message(std::make_unique<v1::JobSpec>(file.job_spec()));
}

void expect_message(const google::protobuf::Message& message, const std::string& json) {
  const Message expected(message.New());
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, expected.get());
  ASSERT_TRUE(parsed.ok()) << parsed.ToString();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(message, *expected))
      << message.ShortDebugString() << "\n"
      << expected->ShortDebugString();
}

/// Splits "FILE:3:5: model.x" into the place "3:5" and the field.
std::pair<std::string, std::string> place_and_field(const std::string& violation) {
  const std::string name = "spec";
  std::string rest = violation.substr(violation.rfind('/') + 1);
  if (!rest.starts_with(name)) return {"not in the spec", rest};
  rest.erase(0, name.size());
  const size_t end = std::min(rest.find(": "), rest.size());
  const std::string field = end < rest.size() ? rest.substr(end + 2) : "";
  return {end > 0 ? rest.substr(1, end - 1) : "", field};
}

void expect_refusal(const Error& error, const YAML::Node& expected) {
  EXPECT_EQ(error.reason, expected["reason"].as<std::string>());
  const YAML::Node problems = expected["problems"];
  ASSERT_EQ(error.violations.size(), problems.size()) << error.message;
  for (size_t i = 0; i < problems.size(); ++i) {
    const YAML::Node problem = problems[i];
    auto [place, field] = place_and_field(error.violations[i].field);
    const std::string at = problem[0].as<std::string>();
    if (at.find(':') == at.npos) place.resize(std::min(place.find(':'), place.size()));
    EXPECT_EQ(place, at);
    if (problem.size() > 1) {
      EXPECT_EQ(field, problem[1].as<std::string>());
    }
    if (problem.size() > 2) {
      EXPECT_EQ(error.violations[i].description, problem[2].as<std::string>());
    }
  }
}

TEST(SpecCases, BothReadersGiveTheSameAnswers) {
  const YAML::Node cases = YAML::LoadFile(testing::source_path("tests/spec_cases.yaml"));
  std::set<std::string> names;
  for (const YAML::Node& node : cases) {
    const std::string name = node["case"].as<std::string>();
    SCOPED_TRACE(name);
    EXPECT_TRUE(names.insert(name).second);
    for (const char* kind : {"job", "model", "recipe", "dataset", "array"}) {
      if (!node[kind]) continue;
      const auto read = read_case(kind, text_of(node[kind]));
      if (node["gives"]) {
        ASSERT_TRUE(read.ok()) << read.error().message;
        expect_message(**read, node["gives"].as<std::string>());
      } else if (read.ok()) {
        ADD_FAILURE() << "accepted: " << (*read)->ShortDebugString();
      } else {
        expect_refusal(read.error(), node);
      }
    }
  }
  EXPECT_GT(names.size(), 60u);
}

}  // namespace
}  // namespace trainyard::client
