// Tests of tables, fields, JSON and YAML: they are aligned, and safe for any name.
#include "client/cli/table.h"

#include <gtest/gtest.h>

#include "client/cli/output.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {
namespace {

TEST(Table, AlignsColumnsAndTrimsLines) {
  Table table({{"NAME"}, {"DONE", true}, {"WHY"}});
  table.add({"a", "5%", ""});
  table.add({"longer-name", "100%", "waits"});
  EXPECT_EQ(table.render(false),
            "NAME         DONE  WHY\n"
            "a              5%\n"
            "longer-name  100%  waits\n");
}

TEST(Table, CountsColumnsAndNotBytes) {
  Table table({{"NAME"}, {"X"}});
  table.add({"äöü", "1"});
  table.add({"日本", "2"});
  EXPECT_EQ(table.render(false), "NAME  X\näöü   1\n日本  2\n");
}

TEST(Table, OnANarrowTerminalSentencesAreCutAndNamesAreWhole) {
  Table table(
      {{"NAME"}, {.title = "METRICS", .shortens = true}, {.title = "WHY", .shortens = true}});
  table.add({"a-name-of-some-length", "loss 0.25", "waits for a device that is taken by äöü"});
  const std::string whole = table.render(false);
  EXPECT_NE(whole.find("taken by äöü\n"), std::string::npos) << whole;
  EXPECT_EQ(table.render(false, 200), whole);
  EXPECT_EQ(table.render(false, 50),
            "NAME                   METRICS    WHY\n"
            "a-name-of-some-length  loss 0.25  waits for a d...\n");
  // 10 columns are not enough: the terminal wraps the line, and no name is cut.
  EXPECT_EQ(table.render(false, 10),
            "NAME                   METRICS    WHY\n"
            "a-name-of-some-length  loss 0.25  waits for...\n");
}

TEST(Table, OnATerminalNamesAreShortenedInTheMiddleAsALastResort) {
  Table table({{.title = "NAME", .is_name = true},
               {"STATE"},
               {.title = "METRICS", .shortens = true, .shortest = 9},
               {.title = "WHY", .shortens = true}});
  table.add({"a-name-that-is-as-long-as-a-name-may-be", "RUNNING", "loss 0.25, mae 0.5", ""});
  table.add({"short", "QUEUED", "", ""});
  EXPECT_EQ(table.render(false, 44, true),
            "NAME                      STATE    METRICS\n"
            "a-name-that…-name-may-be  RUNNING  loss 0.2…\n"
            "short                     QUEUED\n");
  EXPECT_EQ(table.least_width(), 20 + 2 + 7 + 2 + 9);
  EXPECT_NE(table.render(false).find("a-name-that-is-as-long-as-a-name-may-be"), std::string::npos)
      << "in a pipe it is whole";
}

TEST(Table, FieldsWrapIfLinesAreTooShort) {
  EXPECT_EQ(
      render_fields({{"job", "a"}, {"warning", "one two three four five six seven"}}, false, 34),
      "job:      a\n"
      "warning:  one two three four five\n"
      "          six seven\n");
  EXPECT_EQ(wrapped_lines("one two three four five six\nseven", 20),
            "one two three four\nfive six\nseven");
  EXPECT_EQ(display_width("\x1b[31mred\x1b[0m"), 3) << "colors have no width";
  EXPECT_EQ(wrapped("  a word-that-is-longer-than-the-line-itself b", 24),
            "  a\nword-that-is-longer-than-the-line-itself\nb");
}

TEST(Table, ControlBytesAreEscaped) {
  EXPECT_EQ(safe_text("a\x1b[31mred\n\t\x7f"), "a\\x1b[31mred\\x0a\\x09\\u{7f}");
  EXPECT_EQ(safe_text("bad \xff\xc3 utf8"), "bad \\xff\\xc3 utf8");
  EXPECT_EQ(safe_text("\xe2\x80\xae"
                      "gpj.exe"),
            "\\u{202e}gpj.exe");  // right-to-left override
  EXPECT_EQ(safe_text("\xc2\x9b"
                      "31m"),
            "\\u{9b}31m");  // the C1 control character CSI, encoded as UTF-8
  EXPECT_EQ(safe_text("é 日 😀"), "é 日 😀");
  Table table({{"NAME"}});
  table.add({"\x1b]0;title\x07"});
  EXPECT_EQ(table.render(false).find('\x1b'), std::string::npos);
}

TEST(Table, ColourIsOnlyThereWhereItIsWanted) {
  Table table({{"STATE"}});
  table.add({Cell("FAILED", Style::kBad)});
  EXPECT_EQ(table.render(false).find('\x1b'), std::string::npos);
  EXPECT_NE(table.render(true).find("\x1b[31mFAILED\x1b[0m"), std::string::npos);
}

TEST(Colour, FollowsTheConventions) {
  using Vars = std::map<std::string, std::string>;
  const auto wants = [](bool terminal, bool flag, const Vars& vars) {
    return wants_colour(terminal, flag, [&](const char* name) {
      const auto found = vars.find(name);
      return found == vars.end() ? std::string() : found->second;
    });
  };
  EXPECT_TRUE(wants(true, false, {}));
  EXPECT_FALSE(wants(false, false, {}));
  EXPECT_FALSE(wants(true, true, {}));
  EXPECT_FALSE(wants(true, false, {{"NO_COLOR", "1"}}));
  EXPECT_TRUE(wants(true, false, {{"NO_COLOR", ""}}));
  EXPECT_FALSE(wants(true, false, {{"TRAINYARD_NO_COLOR", "1"}}));
  EXPECT_FALSE(wants(true, false, {{"TERM", "dumb"}}));
  EXPECT_TRUE(wants(false, false, {{"FORCE_COLOR", "1"}}));
  EXPECT_FALSE(wants(false, true, {{"FORCE_COLOR", "1"}}));
}

TEST(Output, FieldsWithoutValuesAreLeftOut) {
  EXPECT_EQ(render_fields({{"job", "a"}, {"why", ""}, {"dataset", "d"}}, false),
            "job:      a\ndataset:  d\n");
}

TEST(Output, JsonHasTheProtosNamesAndDefaults) {
  v1::Job job;
  job.set_name("projects/default/jobs/a");
  job.set_state(v1::QUEUED);
  job.mutable_progress()->set_steps_total(1LL << 60);
  const std::string json = to_json(job, false);
  EXPECT_NE(json.find("\"state\":\"QUEUED\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"steps_total\":\"1152921504606846976\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"cancel_requested\":false"), std::string::npos) << json;
}

TEST(Output, YamlQuotesAmbiguousText) {
  v1::Job job;
  job.set_name("projects/default/jobs/a");
  job.set_message("it's \"no: good\"");
  (*job.mutable_spec()->mutable_labels())["run"] = "5";
  (*job.mutable_spec()->mutable_labels())["no"] = "no";
  job.mutable_spec()->mutable_model()->add_layers()->set_name("c1");
  const std::string yaml = to_yaml(job);
  EXPECT_NE(yaml.find("name: projects/default/jobs/a\n"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("message: \"it's \\\"no: good\\\"\"\n"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("    run: \"5\"\n"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("    \"no\": \"no\"\n"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("    layers:\n      - name: c1\n"), std::string::npos) << yaml;
}

TEST(Output, NumbersAreReadable) {
  EXPECT_EQ(human_number(0.0123456), "0.01235");
  EXPECT_EQ(human_number(12345.6), "12346");
  EXPECT_EQ(human_number(31234, true), "31.2k");
  EXPECT_EQ(human_number(999'960, true), "1.0M");
  EXPECT_EQ(human_number(1e-9), "1e-09");
  EXPECT_EQ(human_number(0), "0");
  EXPECT_EQ(human_number(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(human_duration(3.04), "3.0 s");
  EXPECT_EQ(human_duration(75), "75 s");
  EXPECT_EQ(human_duration(150), "2 min 30 s");
  EXPECT_EQ(human_duration(7265), "2 h 1 min");
  EXPECT_EQ(human_duration(-1), "?");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
}

TEST(Output, CsvFieldsCannotBecomeFormulas) {
  EXPECT_EQ(csv_field("plain"), "plain");
  EXPECT_EQ(csv_field("a,\"b\""), "\"a,\"\"b\"\"\"");
  EXPECT_EQ(csv_field("=cmd()"), "'=cmd()");
  EXPECT_EQ(csv_field("-5.2"), "-5.2");
  EXPECT_EQ(csv_field("@x"), "'@x");
}

}  // namespace
}  // namespace trainyard::cli
