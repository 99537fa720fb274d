// Tests of `init`: which column it predicts, which columns it leaves out and why, and how it
// refuses data. They fail if a submit would refuse the job file, if a useless or leaking column is
// trained on, or if a foreign file gets only a parser's message.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "client/init/column_profile.h"
#include "client/init/draft_parts.h"
#include "client/init/job_draft.h"
#include "client/init/job_yaml.h"
#include "client/init/sniff.h"
#include "client/init/table_shape.h"
#include "client/lib/spec_file.h"
#include "tests/support/golden.h"
#include "tests/support/source_path.h"

namespace trainyard::init {
namespace {

namespace fs = std::filesystem;
using Use = ColumnNote::Use;

class Init : public ::testing::Test {
 protected:
  Init() {
    folder_ =
        fs::path(::testing::TempDir()) /
        ("init-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "scratch");
  }
  ~Init() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, std::string_view text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  Result<JobDraft> draft(const fs::path& path, const std::string& target = "") {
    return draft_job(path, {.target = target, .scratch = folder_ / "scratch"});
  }
  /// Reads the draft's file as `submit` does.
  Result<client::SpecFile> spec(const JobDraft& draft, const fs::path& data) {
    const fs::path file = folder_ / "job.yaml";
    const std::string text = job_yaml(draft, {data, file, "first", "data"});
    return client::parse_spec_file(text, file.string(), folder_, {});
  }
  v1::DatasetFile dataset(const fs::path& path, const std::string& target = "") {
    const Result<JobDraft> made = draft(path, target);
    EXPECT_TRUE(made.ok()) << made.error().message;
    if (!made.ok()) return {};
    const Result<client::SpecFile> read = spec(*made, path);
    EXPECT_TRUE(read.ok()) << read.error().message;
    return read.ok() ? read->file.dataset() : v1::DatasetFile();
  }
  std::string refusal(const fs::path& path, const std::string& target = "") {
    const Result<JobDraft> made = draft(path, target);
    EXPECT_FALSE(made.ok()) << path;
    return made.ok() ? "" : made.error().message;
  }

  fs::path folder_;
};

/// Returns a table of passengers with every kind of problematic column.
std::string people(int count) {
  std::string text = "PassengerId,name,age,port,joined,ship,ticket,fate,survived\n";
  for (int i = 0; i < count; ++i) {
    const bool survived = i * 7919 % 1009 < 400 + 200 * (i % 3 == 0);
    const int day = i * 11 % 28 + 1;
    text += std::to_string(1000 + i) + ",\"Doe, Mr. John the " + std::to_string(i) + "th\"," +
            (i % 10 == 3 ? "" : std::to_string(i * 31 % 80)) + "," + "CQS"[i % 3] + ",1912-0" +
            std::to_string(i % 9 + 1) + "-" + (day < 10 ? "0" : "") + std::to_string(day) +
            ",Titanic,A" + std::to_string(i * 7) + "," + (survived ? "boat" : "sea") + "," +
            (i % 50 == 7 ? ""
             : survived  ? "1"
                         : "0") +
            "\n";
  }
  return text;
}

TEST_F(Init, LeavesOutTheTrapsOfATableAndSaysWhy) {
  const fs::path path = write("people.csv", people(300));
  const Result<JobDraft> made = draft(path);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->target, "survived");
  EXPECT_EQ(made->target_why, "by its name");
  const v1::CsvFormat csv = dataset(path).csv();
  EXPECT_EQ(csv.target_kind(), v1::CsvFormat::CLASS);
  EXPECT_EQ(csv.missing_target(), v1::CsvFormat::SKIP);
  EXPECT_EQ(std::vector<std::string>(csv.date().begin(), csv.date().end()),
            std::vector<std::string>{"joined"});
  EXPECT_EQ(std::vector<std::string>(csv.ignore().begin(), csv.ignore().end()),
            (std::vector<std::string>{"PassengerId", "name", "ship", "ticket", "fate"}));
  std::map<std::string, std::string> why;
  for (const ColumnNote& c : made->columns) why[c.name] = c.says;
  EXPECT_NE(why["PassengerId"].find("looks like an ID"), std::string::npos);
  EXPECT_NE(why["name"].find("free text"), std::string::npos);
  EXPECT_NE(why["ship"].find("the same value in all rows, 'Titanic'"), std::string::npos);
  EXPECT_NE(why["fate"].find("determines the target"), std::string::npos);
  EXPECT_NE(why["age"].find("missing"), std::string::npos);
  EXPECT_EQ(why["port"], "3 categories: C, Q, S");
}

TEST_F(Init, WritesAJobFileThatPeopleCanRead) {
  const fs::path path = write("people.csv", people(300));
  Result<JobDraft> made = draft(path);
  ASSERT_TRUE(made.ok()) << made.error().message;
  made->sources = {{"path", "people.csv"}};
  testing::expect_golden("init_people.yaml",
                         job_yaml(*made, {"people.csv", "people.yaml", "first-try", "people"}));
}

TEST_F(Init, PredictsTheColumnThatIsNamedLikeATarget) {
  const fs::path path = write(
      "flowers.csv", "Species,length\n" + [] {
        std::string rows;
        for (int i = 0; i < 60; ++i)
          rows += std::string(1, "abc"[i % 3]) + "," + std::to_string(i * 7 % 10) + "\n";
        return rows;
      }());
  EXPECT_EQ(dataset(path).csv().target(), "Species");
  EXPECT_EQ(dataset(path, "length").csv().target(), "length");
  const std::string typo = refusal(path, "Specis");
  EXPECT_NE(typo.find("did you mean 'Species'?"), std::string::npos) << typo;
  EXPECT_NE(typo.find("The columns are 'Species', 'length'"), std::string::npos) << typo;
}

TEST_F(Init, UsesTheLastSuitableColumnIfNoNameIsTelling) {
  std::string rows = "weight,width,code\n";
  for (int i = 0; i < 60; ++i) {
    rows += std::to_string(i % 7) + ".5," + std::to_string(i * i % 37) + ".25,x" +
            std::to_string(i) + "\n";
  }
  const fs::path path = write("things.csv", rows);
  EXPECT_EQ(dataset(path).csv().target(), "width");
  EXPECT_EQ(dataset(path).csv().target_kind(), v1::CsvFormat::NUMERIC);
}

TEST_F(Init, RecognizesDelimitersHeadersAndPixels) {
  const std::string semicolons = "a;b;label\n1;2;x\n3;4;y\n5;7;x\n";
  EXPECT_EQ(dataset(write("s.csv", semicolons)).csv().delimiter(), ";");
  EXPECT_EQ(dataset(write("t.tsv", "a\tb\tlabel\n1\t2\tx\n3\t4\ty\n")).csv().delimiter(), "\t");
  EXPECT_EQ(find_table_shape("a,b\n\"x;y\",2\n").delimiter, ',');
  EXPECT_FALSE(find_table_shape("1,2,x\n3,4,y\n").header);
  EXPECT_FALSE(find_table_shape("x,x,y\nx,y,y\n").header);
  EXPECT_TRUE(find_table_shape(",a,b\n0,1,2\n").header) << "pandas writes its index like this";
  EXPECT_TRUE(find_table_shape("land,2019,2020,y\nx,1.5,2,3\n").header) << "text above a number";
  EXPECT_TRUE(find_table_shape("a,a,y\n1,2,3\n").header) << "the second is named a.1";
  const v1::CsvFormat digits = dataset(testing::source_path("examples/digits.csv.gz")).csv();
  EXPECT_FALSE(digits.header());
  EXPECT_EQ(digits.target(), "c64");
  EXPECT_EQ(std::vector<int64_t>(digits.image().begin(), digits.image().end()),
            (std::vector<int64_t>{1, 8, 8}));
}

using Texts = std::vector<std::string>;

template <typename List>
Texts texts_of(const List& list) {
  return {list.begin(), list.end()};
}

TEST_F(Init, RecognizesText) {
  std::string rows;
  for (int i = 0; i < 60; ++i) {
    rows += std::to_string(i % 4) + ",\"Headline number " + std::to_string(i) +
            " of the day\",\"It was a long and winding story that began at " + std::to_string(i) +
            " o'clock in the morning\"\n";
  }
  const v1::CsvFormat news = dataset(write("news.csv", rows)).csv();
  EXPECT_EQ(news.target(), "c0");
  EXPECT_EQ(std::vector<std::string>(news.text().begin(), news.text().end()),
            (std::vector<std::string>{"c1", "c2"}));
  EXPECT_EQ(news.ignore_size(), 0) << "has no effect beside text, and is refused";
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += R"({"body": "some text of a page"})"
             "\n";
  EXPECT_EQ(dataset(write("pages.jsonl", lines)).text().field(), "body");
}

TEST_F(Init, TextWithoutBlanksBecomesSubwords) {
  const std::vector<std::string> parts = {
      "\u5f88\u597d\u5403\u7684\u5bff\u53f8", "\u670d\u52a1\u592a\u6162\u4e86\u3002",
      "\u623f\u95f4\u5e72\u51c0\u3002", "\u4ef7\u94b1\u5f88\u8d35",
      "\u98ce\u666f\u5f88\u7f8e\uff0c"};
  std::string rows = "review,stars\n";
  for (int i = 0; i < 60; ++i) {
    for (int k = 0; k < 5; ++k) rows += parts[static_cast<size_t>((i >> k) + k) % parts.size()];
    rows += "," + std::to_string(i * 31 % 5) + "\n";
  }
  const fs::path path = write("reviews.csv", rows);
  const v1::CsvFormat csv = dataset(path, "stars").csv();
  EXPECT_EQ(texts_of(csv.text()), Texts{"review"}) << "sentences are no identifiers";
  EXPECT_EQ(csv.tokenizer(), v1::BPE);
  const Result<JobDraft> made = draft(path, "stars");
  ASSERT_TRUE(made.ok());
  for (const std::string& note : made->notes) {
    EXPECT_EQ(note.find("Use tokenizer"), std::string::npos) << "it is chosen already: " << note;
  }
}

TEST_F(Init, KeepsNamesThatYamlWouldTakeForOtherThings) {
  std::string rows = "\"yes\",\"a: b # c\",\"1e3x\",\"line\nbreak\",\"größe\",y\n";
  for (int i = 0; i < 60; ++i) {
    rows += "1,k" + std::to_string(i) + ",2," + std::to_string(i * 17 % 19) + ".5," +
            std::to_string(i % 5) + ".1," + (i % 2 ? "on" : "off") + "\n";
  }
  const v1::CsvFormat csv = dataset(write("odd \"names\" #1.csv", rows)).csv();
  EXPECT_EQ(csv.target(), "y");
  EXPECT_EQ(std::vector<std::string>(csv.ignore().begin(), csv.ignore().end()),
            (std::vector<std::string>{"yes", "a: b # c", "1e3x"}));
}

TEST_F(Init, ColumnsThatNoIngestReadsAreLeftOut) {
  std::string rows = "id,amount,born,mixed,level,price\n";
  for (int i = 0; i < 100; ++i) {
    rows += std::to_string(i) + ",\"$" + std::to_string(i + 1) + ",000\"," +
            std::to_string(i % 12 + 1) + ".0" + std::to_string(i % 9 + 1) + ".19" +
            std::to_string(50 + i % 50) + "," + (i % 20 == 0 ? "many" : std::to_string(i * 3)) +
            "," + (i % 4 == 0 ? "none" : std::to_string(i % 4)) + "," + std::to_string(i * 7 % 31) +
            ".5\n";
  }
  const fs::path path = write("raw.csv", rows);
  const Result<JobDraft> made = draft(path);
  ASSERT_TRUE(made.ok()) << made.error().message;
  std::map<std::string, std::string> why;
  for (const ColumnNote& c : made->columns) {
    if (c.use == Use::kLeftOut) why[c.name] = c.says;
  }
  EXPECT_NE(why["born"].find("whose day may be first or second"), std::string::npos);
  EXPECT_NE(why["mixed"].find("numbers, and text such as 'many'"), std::string::npos);
  EXPECT_EQ(dataset(path).csv().categorical(0), "level");
}

/// Returns a table of `rows` rows with a column "a", whose cells `cell` gives, and a target.
std::string table_of(int rows, const std::function<std::string(int)>& cell,
                     const std::string& mark = ",") {
  std::string text = "a" + mark + "b" + mark + "y\n";
  for (int i = 0; i < rows; ++i) {
    text +=
        cell(i) + mark + std::to_string(i * 7 % 13) + mark + (i * 31 % 7 < 3 ? "u" : "v") + "\n";
  }
  return text;
}

TEST_F(Init, MissingNumbersInAnySpellingKeepTheColumn) {  // case tables/10
  const auto csv_with = [&](const std::string& mark) {
    return dataset(write("m.csv", table_of(100,
                                           [&](int i) {
                                             return i % 9 == 0 ? mark : std::to_string(i * 37 % 71);
                                           })))
        .csv();
  };
  for (const char* mark : {"N/A", "n/a", "NULL", "null", "None", "#N/A", "NAN"}) {
    const v1::CsvFormat csv = csv_with(mark);
    EXPECT_EQ(csv.ignore_size() + csv.categorical_size() + csv.missing_size(), 0) << mark;
  }
  for (const char* mark : {".", "-", "unknown"}) {
    const v1::CsvFormat csv = csv_with(mark);
    EXPECT_EQ(csv.ignore_size() + csv.categorical_size(), 0) << mark;
    EXPECT_EQ(texts_of(csv.missing()), Texts{mark});
  }
}

TEST_F(Init, MissingNamesAreWrittenDownUnlessTheyMayBeCodes) {
  const auto marked = [](const Texts& names) {
    return table_of(120, [names](int i) { return names[static_cast<size_t>(i) % names.size()]; });
  };
  EXPECT_EQ(
      texts_of(dataset(write("sex.csv", marked({"male", "female", "NA", "?"}))).csv().missing()),
      (Texts{"?", "NA"}));
  const fs::path countries = write("countries.csv", marked({"NA", "ZA", "DE"}));
  EXPECT_EQ(dataset(countries).csv().missing_size(), 0);
  const Result<JobDraft> made = draft(countries);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_FALSE(made->notes.empty());
  EXPECT_NE(made->notes[0].find("Namibia"), std::string::npos) << made->notes[0];
}

TEST_F(Init, NumbersInOtherSpellingsAreReadBySettings) {
  const auto csv_of = [&](const std::string& name, const std::string& text) {
    return dataset(write(name, text)).csv();
  };
  // case tables/25
  v1::CsvFormat csv =
      csv_of("de.csv", table_of(
                           60, [](int i) { return "0,0" + std::to_string(10 + i); }, ";"));
  EXPECT_EQ(csv.decimal(), ",");
  EXPECT_EQ(csv.ignore_size() + csv.categorical_size() + csv.numbers_size(), 0);
  // case tables/22: a minority and a majority of negative numbers
  for (const int negative : {3, 5, 8}) {
    csv = csv_of("profit.csv", table_of(100, [&](int i) {
                   const std::string number = std::to_string(i * 17 % 40) + ".5";
                   return i % 10 < negative ? "(" + number + ")" : number;
                 }));
    EXPECT_EQ(texts_of(csv.numbers()), Texts{"a"});
    EXPECT_EQ(csv.ignore_size() + csv.categorical_size(), 0);
  }
  csv = csv_of("money.csv", table_of(60, [](int i) {
                 return "\"$" + std::to_string(i * 37 % 61 + 1) + ",000.50\"";
               }));
  EXPECT_EQ(csv.thousands(), ",");
  EXPECT_EQ(texts_of(csv.numbers()), Texts{"a"});
  csv = csv_of("kg.csv", table_of(60, [](int i) { return std::to_string(i * 37 % 61) + ".5 kg"; }));
  EXPECT_EQ(texts_of(csv.numbers()), Texts{"a"});
  csv = csv_of("codes.csv", table_of(60, [](int i) { return std::to_string(i % 9) + "A"; }));
  EXPECT_EQ(csv.numbers_size(), 0) << "names of seats or the like";
}

TEST_F(Init, ATargetWithACurrencyIsANumber) {
  std::string rows = "size,price\n";
  for (int i = 0; i < 60; ++i) {
    rows += std::to_string(i * 7 % 31) + ",\"$" + std::to_string(i + 1) + ",000\"\n";
  }
  const fs::path path = write("houses.csv", rows);
  const v1::CsvFormat csv = dataset(path, "price").csv();
  EXPECT_EQ(csv.target_kind(), v1::CsvFormat::NUMERIC);
  EXPECT_EQ(texts_of(csv.numbers()), Texts{"price"});
  EXPECT_EQ(draft(path, "price")->target_says, "a number from 1000 to 60000, on average 30500");
}

TEST_F(Init, DatesInAnOrderThatTheyShowAreRead) {  // case tables/20
  const auto dates_of = [&](const std::function<std::string(int)>& cell) {
    return texts_of(dataset(write("dates.csv", table_of(90, cell))).csv().date());
  };
  const auto number = [](int i, int from, int count) { return std::to_string(from + i % count); };
  EXPECT_EQ(dates_of([&](int i) { return number(i, 1, 28) + "-Aug-" + number(i, 10, 20); }),
            Texts{"a"});
  EXPECT_EQ(
      dates_of([&](int i) { return "1" + number(i, 0, 3) + "/" + number(i, 1, 28) + "/2009"; }),
      Texts{"a"});
  EXPECT_EQ(dates_of([&](int i) { return number(i, 1, 28) + ".02." + number(i, 1990, 30); }),
            Texts{"a"});
  EXPECT_EQ(dates_of([&](int i) { return "2012/0" + number(i, 1, 9) + "/" + number(i, 10, 18); }),
            Texts{"a"});
  EXPECT_EQ(dates_of([&](int i) { return "02:" + number(i, 10, 50) + ":" + number(i, 10, 37); }),
            Texts{"a"});
}

TEST_F(Init, LargeNumbersAreShownWithTheirDifferences) {  // case tables/19
  std::string rows = "a,price\n";
  for (int i = 0; i < 100; ++i) {
    rows += std::to_string(i * 7 % 31) + "," + std::to_string(1'000'000'000 + i) + "\n";
  }
  EXPECT_EQ(draft(write("far.csv", rows))->target_says,
            "a number from 1000000000 to 1000000099, on average 1000000050");
}

TEST_F(Init, IdentifiersBeyond32BitsAreLeftOut) {
  std::string rows = "id,size,price\n";
  for (int i = 0; i < 100; ++i) {
    rows += std::to_string(7'129'300'520 + i * 37 % 100) + "," + std::to_string(i % 9) + "," +
            std::to_string(i * 7 % 31) + ".5\n";
  }
  EXPECT_EQ(dataset(write("ids.csv", rows)).csv().ignore(0), "id");
}

/// Returns 60 rows below the header.
std::string sixty(const std::string& header, const std::function<std::string(int)>& row) {
  std::string text = header + "\n";
  for (int i = 0; i < 60; ++i) text += row(i) + "\n";
  return text;
}

std::string whole(int i, int different) { return std::to_string(i * 7919 % 1009 % different); }

TEST_F(Init, SaysHowSureItIsAndWhatElseTheTargetMayBe) {
  const fs::path path = write("t.csv", sixty("age,churn,width,length", [](int i) {
                                return whole(i, 50) + "," + (i % 3 ? "no" : "yes") + "," +
                                       whole(i * 3, 90) + ".5," + whole(i * 5, 90) + ".5";
                              }));
  const Result<JobDraft> made = draft(path);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(choice_text(*made), "sure: chosen by its name; next would be 'length', 'width'");
  EXPECT_NE(
      job_yaml(*made, {path, folder_ / "job.yaml", "first", "data"})
          .find(
              "    # sure: chosen by its name; next would be 'length', 'width'\n    target: churn"),
      std::string::npos);
  const Result<JobDraft> named = draft(path, "width");
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_EQ(choice_text(*named), "") << "the user chose";
}

TEST_F(Init, IdentifiersAreLeftOutByWhatTheyAre) {
  for (const char* name : {"rownames", "", "customer_no", "PatientNr", "Unnamed: 0", "index"}) {
    const fs::path path = write("t.csv", sixty(std::string(name) + ",a,y", [](int i) {
                                  return std::to_string(14289 + i * 37 % 61) + "," + whole(i, 40) +
                                         ".5," + (i % 3 ? "u" : "v");
                                }));
    const v1::CsvFormat csv = dataset(path).csv();
    ASSERT_EQ(csv.ignore_size(), 1) << name;
    EXPECT_EQ(csv.ignore(0), *name ? name : "Unnamed: 0");
  }
  const auto counted = [&](const char* name) {
    return dataset(write("t.csv", sixty(std::string(name) + ",b,y",
                                        [](int i) {
                                          return std::to_string(i) + "," + whole(i, 5) + "," +
                                                 std::to_string(i * 4 + i * 37 % 60) + ".5";
                                        })))
        .csv()
        .ignore_size();
  };
  EXPECT_EQ(counted("n"), 1) << "counts the rows";
  EXPECT_EQ(counted("score"), 0) << "a score that rises is no ID";
  EXPECT_EQ(counted("age"), 0);
}

TEST_F(Init, OneBadColumnDoesNotCostTheTable) {
  const std::string longest(300, 'x');
  const auto left_out = [&](const std::string& bad, const std::function<std::string(int)>& cell) {
    const fs::path path = write("t.csv", sixty("a," + bad + ",b,y", [&](int i) {
                                  return whole(i, 40) + ".5," + cell(i) + "," + whole(i * 3, 9) +
                                         "," + (i % 3 ? "p" : "q");
                                }));
    const Result<JobDraft> made = draft(path);
    EXPECT_TRUE(made.ok()) << made.error().message;
    EXPECT_TRUE(made.ok() && spec(*made, path).ok());
    for (const ColumnNote& c : made.ok() ? made->columns : std::vector<ColumnNote>()) {
      if (c.use == Use::kLeftOut) return c.name + ": " + c.says;
    }
    return std::string();
  };
  EXPECT_NE(left_out("note", [&](int i) { return i == 3 ? longest : "."; })
                .find("note: has a text of 300 bytes, more than the 256 of a category"),
            std::string::npos);
  EXPECT_NE(left_out("mixed", [&](int i) { return i == 3 ? longest : whole(i, 3); })
                .find("mixed: has a text of 300 bytes"),
            std::string::npos);
  EXPECT_NE(left_out("huge", [](int i) { return i == 3 ? "1e99" : whole(i, 30); })
                .find("huge: infinite values"),
            std::string::npos);
  EXPECT_NE(
      left_out("name", [](int i) { return "n" + std::to_string(i); }).find("looks like an ID"),
      std::string::npos);
}

TEST_F(Init, ColumnsAreJudgedByTheRowsThatHaveATarget) {
  // In most rows `req` is text, but in most rows with a target it is a number.
  const fs::path path = write("t.csv", sixty("a,req,y", [](int i) {
                                const bool has_target = i >= 25;
                                return whole(i, 40) + ".5," +
                                       (!has_target || i % 5 == 0 ? "some" : whole(i, 4)) + "," +
                                       (has_target ? (i % 3 ? "p" : "q") : "");
                              }));
  const v1::CsvFormat csv = dataset(path, "y").csv();
  ASSERT_EQ(csv.categorical_size(), 1);
  EXPECT_EQ(csv.categorical(0), "req");
  EXPECT_EQ(csv.missing_target(), v1::CsvFormat::SKIP);
}

TEST_F(Init, NoneIsAClassAmongTextsButAnEmptyTargetIsMissing) {
  const auto rows = [](int gap) {
    return sixty("a,severity", [gap](int i) {
      const char* const names[] = {"None", "Mild", "Severe"};
      return whole(i, 40) + ".5," + (i % gap == gap - 1 ? "" : names[i % 3]);
    });
  };
  const auto left_out = [](const JobDraft& made) {
    return std::ranges::any_of(made.notes, [](const std::string& note) {
      return note == "6 rows without a target: left out.";
    });
  };
  const fs::path whole_table = write("t.csv", rows(100)), gaps = write("gaps.csv", rows(10));
  EXPECT_NE(dataset(whole_table, "severity").csv().missing_target(), v1::CsvFormat::SKIP);
  EXPECT_EQ(dataset(gaps, "severity").csv().missing_target(), v1::CsvFormat::SKIP);
  const Result<JobDraft> made = draft(gaps, "severity");
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_TRUE(left_out(*made));
}

TEST_F(Init, ADecomposedNameOfTheTargetIsFound) {
  const fs::path path =
      write("t.csv",
            sixty("a,caf\u00e9", [](int i) { return whole(i, 40) + ".5," + (i % 3 ? "p" : "q"); }));
  EXPECT_EQ(dataset(path, "cafe\u0301").csv().target(), "caf\u00e9");
}

TEST_F(Init, WholeNumbersAreClassesIfTheyAreFewOrNamedSo) {
  const auto kind = [&](const std::string& name, int different) {
    const auto row = [&](int i) { return whole(i * 3, 40) + ".5," + whole(i, different); };
    return dataset(write("t.csv", sixty("a," + name, row)), name).csv().target_kind();
  };
  EXPECT_EQ(kind("grade", 10), v1::CsvFormat::CLASS);
  EXPECT_EQ(kind("visits", 15), v1::CsvFormat::NUMERIC) << "a count";
  EXPECT_EQ(kind("label", 15), v1::CsvFormat::CLASS);
  EXPECT_EQ(kind("class", 15), v1::CsvFormat::CLASS);
}

TEST_F(Init, TargetsFromWhichNothingCanBeLearned) {
  const fs::path fixed =
      write("const.csv",
            sixty("a,b,price", [](int i) { return whole(i, 40) + ".5," + whole(i, 5) + ",5.5"; }));
  EXPECT_NE(refusal(fixed, "price").find("column 'price' has the value 5.5 in all rows"),
            std::string::npos);
  const fs::path dates = write("date.csv", sixty("when,b,y", [](int i) {
                                 return "2020-0" + std::to_string(i % 9 + 1) + "-" +
                                        std::to_string(i % 18 + 10) + "," + whole(i, 5) + "," +
                                        (i % 3 ? "u" : "v");
                               }));
  const Result<JobDraft> made = draft(dates, "when");
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_FALSE(made->notes.empty());
  EXPECT_TRUE(std::ranges::any_of(made->notes, [](const std::string& note) {
    return note.find("The target 'when' has dates, such as '2020-01-10'") != note.npos;
  }));
  EXPECT_NE(refusal(write("e.csv", "a,b,y\n1,2,\n3,4,\n5,6,\n"), "y").find("no value in any row"),
            std::string::npos);
  EXPECT_NE(refusal(write("o.csv", "a,b,y\n1,2,u\n3,4,v\n5,6,w\n"), "y")
                .find("each of the 3 rows has another 'y'"),
            std::string::npos);
}

TEST_F(Init, RowsThatBelongTogetherOrAreInOrderOfTimeAreReported) {
  const auto notes = [&](const std::string& text) {
    const Result<JobDraft> made = draft(write("t.csv", text));
    EXPECT_TRUE(made.ok()) << made.error().message;
    std::string all;
    for (const std::string& note : made.ok() ? made->notes : std::vector<std::string>())
      all += note;
    return all;
  };
  const std::string visits = notes(sixty("patient,visit,dose,outcome", [](int i) {
    return std::to_string(700 + i / 4) + "," + std::to_string(i % 4) + "," + whole(i, 40) + ".5," +
           whole(i * 3, 50) + ".25";
  }));
  EXPECT_NE(visits.find("15 different values of 'patient'"), std::string::npos) << visits;
  EXPECT_NE(visits.find("`split: {group: patient}`"), std::string::npos) << visits;
  const std::string days = notes(sixty("date,load,demand", [](int i) {
    return "2024-0" + std::to_string(1 + i / 28) + "-" + (i % 28 < 9 ? "0" : "") +
           std::to_string(1 + i % 28) + "," + whole(i, 40) + ".5," + whole(i * 3, 50) + ".25";
  }));
  EXPECT_NE(days.find("`split: {time: date}`"), std::string::npos) << days;
  const std::string neither = notes(sixty("age,load,demand", [](int i) {
    return whole(i, 60) + "," + whole(i, 40) + ".5," + whole(i * 3, 50) + ".25";
  }));
  EXPECT_EQ(neither.find("split:"), std::string::npos) << neither;
}

TEST_F(Init, TextOrColumnsByWhatPredictsBetter) {
  const auto made_of = [&](const std::function<bool(int)>& good,
                           const std::function<bool(int)>& small) {
    return draft(write("t.csv", sixty("size,weight,comment,label", [&](int i) {
                         return std::to_string(small(i) ? i % 7 : 50 + i % 7) + "," + whole(i, 30) +
                                ".5,\"this is a " + (good(i) ? "good" : "bad") +
                                " comment of more than eight words, number " + std::to_string(i) +
                                "\"," + (i * 7919 % 1009 < 500 ? "u" : "v");
                       })));
  };
  const auto is_u = [](int i) { return i * 7919 % 1009 < 500; };
  const auto by_chance = [](int i) { return i * 31 % 17 < 8; };
  const auto notes_of = [](const JobDraft& d) {
    std::string all;
    for (const std::string& note : d.notes) all += note;
    return all;
  };
  const Result<JobDraft> text = made_of(is_u, by_chance);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(text->facts.kind, DataFacts::Kind::kTextRows);
  EXPECT_NE(notes_of(*text).find("2 columns are not used: 'size', 'weight'."), std::string::npos);
  EXPECT_NE(notes_of(*text).find("the words alone predict 100 % of the classes right"),
            std::string::npos)
      << notes_of(*text);
  const Result<JobDraft> columns = made_of(by_chance, is_u);
  ASSERT_TRUE(columns.ok()) << columns.error().message;
  EXPECT_EQ(columns->facts.kind, DataFacts::Kind::kTable);
  EXPECT_NE(notes_of(*columns).find("The long text is not used"), std::string::npos);
}

TEST_F(Init, TheOnlyColumnIsKeptWithAWarning) {
  std::string rows = "x,y\n";
  for (int i = 0; i < 100; ++i) {
    rows += std::to_string(i) + ".5," + std::to_string(2 * i) + ".25\n";
  }
  const fs::path path = write("line.csv", rows);
  EXPECT_EQ(dataset(path).csv().ignore_size(), 0);
  const Result<JobDraft> made = draft(path);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_FALSE(made->notes.empty());
  EXPECT_NE(made->notes[0].find("determines the target"), std::string::npos) << made->notes[0];
  std::string constant = "x,y\n";
  for (int i = 0; i < 50; ++i) constant += "3," + std::to_string(i % 2) + "\n";
  EXPECT_NE(refusal(write("constant.csv", constant)).find("no column other than the target"),
            std::string::npos);
}

TEST_F(Init, NamesUnsupportedFormatsAndHowToConvertThem) {
  struct Case {
    const char* name;
    std::string bytes;
    std::vector<const char*> says;
  };
  const std::vector<Case> cases = {
      {"t.parquet", std::string("PAR1\0\x15", 6), {"Parquet", "pandas.read_parquet", "to_csv"}},
      {"t.csv", "", {"is empty (0 bytes)"}},
      {"blank.csv", "\n\n  \n", {"only whitespace"}},
      {"t.pkl", std::string("\x80\x04\x95\0", 4), {"pickle", "pandas.read_pickle"}},
      {"t.xls", std::string("\xd0\xcf\x11\xe0\0", 5), {"Excel", "pandas.read_excel"}},
      {"u16.csv",
       std::string("\xff\xfe"
                   "a\0,\0",
                   6),
       {"UTF-16", "iconv"}},
      {"latin.csv", "name,y\nM\xfcller,1\n", {"not UTF-8", "byte 8", "iconv -f WINDOWS-1252"}},
      {"page.csv", "<!DOCTYPE html><html></html>\n", {"HTML", "stored a web page"}},
      {"doc.json",
       "[{\"a\": 1},\n {\"a\": 2}]\n",
       {"one JSON document", "pandas.read_json", "to_csv"}},
      {"tree.jsonl",
       "{\"a\": {\"b\": 1}, \"y\": 2}\n",
       {"objects or lists in them", "json_normalize"}},
      {"one.csv", "a\n1\n2\n", {"single column"}},
      {"head.csv", "a,b\n", {"a header, and no rows"}},
      {"blanks.data", "1  2   3\n4  5   6\n7  8   9\n", {"several spaces", "sep=r'\\s+'"}},
      {"short.txt", "hello\n", {"too short"}},
      {"job.yaml", "model: {}\n", {"looks like a job file", "trainyard submit"}},
      {"bytes.bin", std::string("ab\0cd", 5), {"binary file of an unknown kind"}},
      {"one.npy", std::string("\x93NUMPY\x01\0", 8), {"one array", "numpy.savez"}},
  };
  for (const Case& c : cases) {
    const std::string message = refusal(write(c.name, c.bytes));
    for (const char* word : c.says) {
      EXPECT_NE(message.find(word), std::string::npos) << c.name << ": " << message;
    }
  }
  fs::create_directories(folder_ / "empty");
  EXPECT_NE(refusal(folder_ / "empty").find("is an empty folder"), std::string::npos);
  write("tables/train.csv", "a,y\n1,2\n");
  EXPECT_NE(refusal(folder_ / "tables").find("tables/train.csv"), std::string::npos);
  EXPECT_NE(refusal(folder_ / "nothing.csv").find("no such file or folder"), std::string::npos);
}

TEST_F(Init, ReadsTheBeginningOfALargeTable) {
  std::string rows = "x,y\n";
  constexpr int kRows = 100'000;
  for (int i = 0; i < kRows; ++i) {
    rows += std::to_string(100'000 + i % 1000) + (i % 2 == 0 ? ",a\n" : ",b\n");
  }
  const fs::path path = write("large.csv", rows);
  const auto made =
      draft_job(path, {.target = "", .scratch = folder_ / "scratch", .head_bytes = 100'000});
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_NEAR(static_cast<double>(made->facts.rows), kRows, kRows / 100.0);
  EXPECT_NE(made->found.find("init read the first"), std::string::npos) << made->found;
}

TEST(FirstGuess, SuitsEveryKindOfData) {
  using Kind = DataFacts::Kind;
  for (const Kind kind : {Kind::kTable, Kind::kImages, Kind::kTextRows, Kind::kText}) {
    for (const int64_t rows : {1, 2, 5, 30, 150, 999, 1797, 20'000, 54'000, 3'000'000}) {
      for (const Shape& image :
           {Shape{1, 4, 4}, Shape{1, 28, 28}, Shape{3, 32, 32}, Shape{3, 64, 64}}) {
        const FirstGuess g = first_guess({kind, rows, 3, 10, image});
        const std::string what =
            std::to_string(static_cast<int>(kind)) + "/" + std::to_string(rows) + image.to_string();
        EXPECT_NE(g.epochs > 0, g.steps > 0) << what;
        EXPECT_GE(g.batch_size, 1) << what;
        // The number of rows is rounded as a job's split does.
        const int64_t held_out = std::llround(static_cast<double>(rows) * g.validation_split);
        if (kind != Kind::kText && rows > 1) {
          EXPECT_GE(held_out, 1) << what;
          EXPECT_LE(g.batch_size, rows - held_out) << what;
        }
        EXPECT_GT(g.learning_rate, 0) << what;
        EXPECT_GT(g.validation_split, 0) << what;
        EXPECT_GT(g.patience, 0) << what;
        EXPECT_FALSE(g.model.empty() || g.model_words.empty() || g.metric.empty()) << what;
        EXPECT_EQ(kind == Kind::kText, g.context_length > 0) << what;
      }
    }
  }
}

TEST(FirstGuess, LeavesOutNoMoreThanAFewPerCentOfAnEpoch) {
  for (int64_t rows = 2; rows < 12'000; rows += rows < 400 ? 1 : 97) {
    const FirstGuess g = first_guess({DataFacts::Kind::kTable, rows, 3, 10, {}});
    const int64_t train = rows - std::llround(static_cast<double>(rows) * g.validation_split);
    EXPECT_EQ(g.drop_last, train % g.batch_size * 100 <= 3 * train) << rows;
  }
  EXPECT_FALSE(first_guess({DataFacts::Kind::kText, 120, 0, 0, {}}).drop_last) << "few windows";
}

// These settings have been measured. A change of a number needs a new measurement.
TEST(FirstGuess, FollowsTheMeasuredRule) {
  const FirstGuess few = first_guess({DataFacts::Kind::kTable, 150, 3, 4, {}});
  EXPECT_EQ(few.model, "mlp: {hidden: [128], dropout: 0.2}");
  EXPECT_EQ(few.validation_split, 0.1);
  EXPECT_EQ(few.batch_size, 16);
  EXPECT_FALSE(few.drop_last);  // a partial batch of 7 of 135 rows is worth keeping
  EXPECT_EQ(few.epochs, 188);   // 1500 steps, 8 whole batches per epoch
  EXPECT_EQ(few.patience, 37);
  EXPECT_EQ(few.learning_rate, 0.005);
  const FirstGuess many = first_guess({DataFacts::Kind::kTable, 53'940, 0, 26, {}});
  EXPECT_EQ(many.model, "mlp: {hidden: [256, 256], dropout: 0.1}");
  EXPECT_EQ(many.validation_split, 0.15);
  EXPECT_EQ(many.batch_size, 256);
  EXPECT_TRUE(many.drop_last);  // 25 of 45,849 rows are dropped
  EXPECT_EQ(many.epochs, 34);   // 6000 steps, 179 per epoch
  EXPECT_EQ(many.learning_rate, 0.002);
  for (const FirstGuess& g : {few, many}) {
    EXPECT_EQ(g.weight_decay, 0.2);
    EXPECT_TRUE(g.decays_matrices);
    EXPECT_EQ(g.ema_decay, 0.99);
    EXPECT_EQ(g.metric, "val/loss");
  }
  const FirstGuess text = first_guess({DataFacts::Kind::kTextRows, 720, 4, 0, {}});
  EXPECT_EQ(text.learning_rate, 0.02);
  EXPECT_EQ(text.weight_decay, 0.7);
  EXPECT_FALSE(text.decays_matrices);
  EXPECT_EQ(text.epochs, 25);
}

}  // namespace
}  // namespace trainyard::init
