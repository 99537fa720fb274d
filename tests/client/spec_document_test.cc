// Tests of the spec document: its limits, --set, and its robustness against arbitrary bytes. The
// refusals and their texts are in tests/spec_cases.yaml.
#include "proto/spec/document.h"

#include <gtest/gtest.h>

namespace trainyard::client {
namespace {

std::string refusal(const std::string& text) {
  const auto document = spec::Document::parse(text, "f.yaml");
  return document.ok() ? "accepted" : document.error().message;
}

TEST(SpecDocument, RefusesDeepNestingAndLargeFiles) {
  const std::string deep = "{\"a\": " + std::string(200'000, '[');
  EXPECT_NE(refusal(deep).find("nested more than 32 levels deep"), std::string::npos)
      << refusal(deep).substr(0, 200);
  EXPECT_NE(
      refusal("a: " + std::string(40, '[') + std::string(40, ']')).find("nested more than 32"),
      std::string::npos);
  EXPECT_EQ(refusal("a: " + std::string(spec::kBytesMax, 'x')),
            "f.yaml: larger than 1 MiB, the limit for a spec");
  std::string wide = "a: [";
  for (int i = 0; i < spec::kValuesMax; ++i) wide += "1,";
  EXPECT_NE(refusal(wide + "1]").find("more than 100000 values"), std::string::npos);
}

TEST(SpecDocument, BrokenYamlIsExplained) {
  const auto message = [](std::string_view text) {
    const auto document = spec::Document::parse(text, "job.yaml");
    return document.ok() ? "accepted" : document.error().message;
  };
  EXPECT_EQ(message("name: a\ndataset:\n\tpath: x.csv\n"),
            "job.yaml:3:6: not valid YAML: a tab indents this line, expected spaces");
  const std::string colon =
      "not valid YAML: a field cannot begin on this line; is it indented like the lines around it, "
      "and does the line above have a space after the colon?";
  EXPECT_EQ(message("recipe:\n  epochs: 2\n   seed: 8\n"), "job.yaml:3:8: " + colon);
  EXPECT_EQ(message("recipe:\n  epochs:2\n  seed: 8\n"), "job.yaml:3:7: " + colon);
}

TEST(SpecDocument, SetEditsTheTree) {
  auto document = spec::Document::parse("a: {b: 1, list: [{c: 2}]}\n", "f.yaml");
  ASSERT_TRUE(document.ok());
  std::vector<spec::Problem> problems;
  document->set("a.b=5", problems);
  document->set("a.list[0].c=text with spaces", problems);
  document->set("new.deep=[1, 2]", problems);
  const spec::Value& a = document->root().find("a")->value;
  EXPECT_EQ(a.find("b")->value.text, "5");
  EXPECT_EQ(a.find("list")->value.items[0].find("c")->value.text, "text with spaces");
  EXPECT_EQ(document->root().find("new")->value.find("deep")->value.items.size(), 2u);
  EXPECT_EQ(document->describe(document->locate("new.deep")), "--set new.deep");
  document->set("a.b=", problems);  // removes the value
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(document->root().find("a")->value.find("b"), nullptr);
}

TEST(SpecDocument, SetRefusesTextThatIsNotAnAssignment) {
  auto document = spec::Document::parse("a: {list: [1]}\n", "f.yaml");
  ASSERT_TRUE(document.ok());
  const auto message = [&](const char* text) {
    std::vector<spec::Problem> problems;
    document->set(text, problems);
    return problems.empty() ? std::string("accepted") : document->to_error(problems).message;
  };
  EXPECT_NE(message("a.b").find("is not an assignment"), std::string::npos);
  EXPECT_NE(message("=1").find("is not an assignment"), std::string::npos);
  EXPECT_NE(message("a..b=1").find("is not an assignment"), std::string::npos);
  EXPECT_NE(message("a.list[x]=1").find("is not an assignment"), std::string::npos);
  EXPECT_EQ(message("a.list[3]=1"),
            "--set a.list[3]: out of range, the list has 1 items, counted from 0");
  EXPECT_EQ(message("a.list.x=1"), "--set a.list.x: has no field 'x': it is not a group of fields");
  EXPECT_EQ(message("a.b={x: 1"), "--set a.b: not valid YAML: end of map flow not found");
}

// The reader must return for arbitrary bytes. Mutations of a spec find inputs that a list of cases
// misses.
TEST(SpecDocument, ArbitraryBytesNeverCrash) {
  const std::string yaml =
      "name: a\nmodel:\n  layers:\n    - conv: {out_channels: 8, pads: [1, 1]}\n      name: "
      "\"c\\u00e9\"\n    - relu:\n"
      "labels: {team: 'x y', n: \"5\"}\ntext: |\n  block\n";
  const std::string json =
      "{\"a\": [1, 2.5, -3e2], \"b\": {\"c\": \"\\u0041\", \"d\": null, \"e\": true}}";
  uint64_t random = 88172645463325252u;
  const auto next = [&](size_t bound) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return static_cast<size_t>(random % bound);
  };
  static constexpr std::string_view kBytes = "{}[],:-?&*!|>'\"%@`#\n\t \\ax09.~\xff\xc3";
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = i % 2 == 0 ? yaml : json;
    for (size_t edits = 1 + next(4); edits > 0; --edits) {
      const size_t at = next(text.size());
      switch (next(3)) {
        case 0:
          text[at] = kBytes[next(kBytes.size())];
          break;
        case 1:
          text.erase(at, 1 + next(8));
          break;
        default:
          text.insert(at, 1, kBytes[next(kBytes.size())]);
      }
      if (text.empty()) text = "a: 1";
    }
    const auto document = spec::Document::parse(text, "f.yaml");
    if (document.ok()) {
      ++accepted;
      EXPECT_EQ(document->root().kind, spec::Value::Kind::kMap);
    } else {
      EXPECT_FALSE(document.error().message.empty());
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 3500);
}

TEST(SpecDocument, LocatesTheNearestValueThatExists) {
  const auto document = spec::Document::parse("a:\n  b: 1\nlist:\n  - x: 1\n  - y: 2\n", "f.yaml");
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(document->describe(document->locate("a.b")), "f.yaml:2:6");
  EXPECT_EQ(document->describe(document->locate("a.missing")), "f.yaml:1:1");
  EXPECT_EQ(document->describe(document->locate("list[1].y")), "f.yaml:5:8");
  EXPECT_EQ(document->describe(document->locate("list[7].y")), "f.yaml:3:1");
}

}  // namespace
}  // namespace trainyard::client
