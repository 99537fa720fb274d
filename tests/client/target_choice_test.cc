// Tests of the choice of a target. They fail if a column is chosen that a careful person would not
// predict, if a certain choice is called a guess, or a guess certain.
#include "client/init/target_choice.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "client/init/target_words.h"

namespace trainyard::init {
namespace {

using Certainty = TargetChoice::Certainty;

/// A choice with names in place of columns.
struct Named {
  std::vector<std::string> names;  // the chosen one first
  Certainty certainty = Certainty::kGuess;
  std::string why;
};

class Targets : public ::testing::Test {
 protected:
  /// Returns the choice for a table of 60 rows, without those that are empty.
  static Named choose(const std::string& header, const std::function<std::string(int)>& row,
                      const std::string& file = "data") {
    const auto path = std::filesystem::path(::testing::TempDir()) /
                      (std::string("targets-") +
                       ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv");
    std::ofstream out(path);
    out << header << "\n";
    for (int i = 0; i < 60; ++i) {
      const std::string line = row(i);
      if (!line.empty()) out << line << "\n";
    }
    out.close();
    const Result<TableProfile> table = profile_columns({}, path);
    std::filesystem::remove(path);
    EXPECT_TRUE(table.ok()) << table.error().message;
    const std::optional<TargetChoice> choice = choose_target(*table, file);
    if (!choice) return {};
    Named named{{}, choice->certainty, choice->why};
    for (const size_t column : choice->columns) named.names.push_back(table->columns[column].name);
    return named;
  }
  static std::string number(int i) { return std::to_string(i * 7919 % 1009) + ".5"; }
  static std::string whole(int i, int different) {
    return std::to_string(i * 7919 % 1009 % different);
  }
};

TEST_F(Targets, NamesThatMeanATargetAreCertain) {
  const Named n = choose("Species,length,width", [](int i) {
    return std::string(1, "abc"[i % 3]) + "," + number(i) + "," + number(i * 3);
  });
  EXPECT_EQ(n.names, (std::vector<std::string>{"Species", "width", "length"}));
  EXPECT_EQ(n.certainty, Certainty::kSure);
  EXPECT_EQ(n.why, "by its name");
}

TEST_F(Targets, WordsForOutcomesAreCertainOnlyAtTheEnds) {
  const auto row = [](int i) {
    return whole(i, 9) + "," + whole(i * 5, 9) + "," + whole(i * 3, 9);
  };
  EXPECT_EQ(choose("works,late,score", row).certainty, Certainty::kSure);
  const Named n = choose("works,score,late", row);
  EXPECT_EQ(n.names[0], "score");
  EXPECT_EQ(n.certainty, Certainty::kLikely) << "it may explain another column";
}

TEST_F(Targets, AColumnThatMostRowsLackIsNone) {
  const Named n = choose("a,b,outcome2,remark", [](int i) {
    return number(i) + "," + whole(i, 5) + "," + (i % 2 ? "bad" : "good") + "," +
           (i % 20 == 5   ? "r"
            : i % 20 == 9 ? "s"
                          : "");
  });
  EXPECT_EQ(n.names[0], "outcome2");
}

TEST_F(Targets, IdentifiersAndTimesArePassedOver) {
  const auto choose_with = [](const std::string& last) {
    return choose("reaction,days," + last, [](int i) {
      return number(i) + "," + std::to_string(i % 10) + "," + std::to_string(300 + i / 10);
    });
  };
  for (const char* last : {"subject", "caseid", "townid", "month", "Day", "year", "order_date"}) {
    EXPECT_EQ(choose_with(last).names[0], "reaction") << last;
  }
  const Named n = choose(
      "rownames,size", [](int i) { return std::to_string(5000 + i * 37 % 61) + "," + number(i); });
  EXPECT_EQ(n.names, std::vector<std::string>{"size"}) << "the index is no candidate at all";
}

TEST_F(Targets, AnInputIsNotChosenForAFamiliarName) {
  const auto row = [](int i) {
    return number(i) + "," + std::to_string(20 + i * 31 % 50) + "," + number(i * 5) + "," +
           whole(i, 9);
  };
  for (const char* name : {"income", "price", "category", "quality"}) {
    EXPECT_EQ(choose("balance_due,age," + std::string(name) + ",visits", row).names[0], "visits")
        << name;
  }
  EXPECT_EQ(choose("carat,depth,x,price",
                   [](int i) {
                     return number(i) + "," + number(i * 3) + "," + number(i * 5) + "," +
                            number(i * 7);
                   })
                .names[0],
            "price");
}

TEST_F(Targets, TheOnlyMeasuredColumnOfAnExperimentIsChosen) {
  const Named n = choose("yield,plot,variety,nitro", [](int i) {
    return number(i) + "," + std::to_string(i % 6) + "," + std::string(1, "VMG"[i % 3]) + "," +
           std::to_string(i % 4);
  });
  EXPECT_EQ(n.names[0], "yield");
  const Named rate = choose("dose,run,pressure,animal", [](int i) {
    return std::to_string(i % 6 * 25) + "," + std::to_string(i % 5) + "," + number(i) + "," +
           std::string(1, "ABC"[i % 3]);
  });
  EXPECT_EQ(rate.names[0], "pressure");
}

TEST_F(Targets, TheFirstOfSeveralMeasurementsIsAmongTheChoices) {
  const Named n =
      choose("plot,sort,nitrogen,t1,t2,t3,t4,sweetness,firmness,acid,block,layout", [](int i) {
        return std::to_string(i % 6) + "," + std::string(1, "VMG"[i % 3]) + "," +
               std::to_string(i % 4) + "," + number(i) + "," + number(i * 2) + "," + number(i * 3) +
               "," + number(i * 4) + "," + number(i * 5) + "," + number(i * 7) + "," +
               number(i * 9) + "," + whole(i, 5) + "," + whole(i * 3, 6);
      });
  EXPECT_EQ(n.names, (std::vector<std::string>{"layout", "sort", "sweetness"}))
      << "t1 to t4 are a series";
}

TEST_F(Targets, AMeasurementWithFractionsComesBeforeACount) {
  const auto second = [](const char* fraction) {
    return choose("a,growth,loss,b,c",
                  [&](int i) {
                    return whole(i, 50) + "," + whole(i * 3, 50) + fraction + "," +
                           whole(i * 5, 50) + "," + whole(i * 7, 50) + "," + whole(i * 9, 50);
                  })
        .names.at(1);
  };
  EXPECT_EQ(second(""), "loss");
  EXPECT_EQ(second(".5"), "growth");
}

TEST_F(Targets, AColumnThatMostRowsLackComesLast) {
  const auto with = [](int present) {
    return choose("a,b,care", [present](int i) {
      return whole(i, 5) + "," + whole(i * 3, 7) + "," + (i < present ? whole(i * 5, 30) : "");
    });
  };
  EXPECT_EQ(with(60).names[0], "care");
  EXPECT_EQ(with(20).names, (std::vector<std::string>{"b", "a"})) << "20 rows are too few";
}

TEST_F(Targets, TheClassOfPeopleIsPerhapsTheirSocialClass) {
  const auto row = [](int i) {
    return whole(i, 3) + "," + std::to_string(20 + i * 31 % 50) + "," + (i % 2 ? "f" : "m") + "," +
           std::string(1, "UMW"[i * 7 % 3]);
  };
  EXPECT_EQ(choose("visits,age,sex,class", row).names[0], "class");
  EXPECT_EQ(choose("visits,age,sex,class", row).certainty, Certainty::kLikely);
  EXPECT_EQ(choose("visits,dose,leg,class", row).certainty, Certainty::kSure);
}

TEST_F(Targets, TextsThatAllDifferAreNone) {
  const auto choose_of = [](const std::string& header, auto row) {
    return choose(header, [&](int i) { return i < 20 ? row(i) : std::string(); });
  };
  const auto letter = [](int i) { return std::string(1, static_cast<char>('a' + i)); };
  EXPECT_EQ(
      choose_of("size,land,code",
                [&](int i) { return whole(i, 5) + "," + letter(i) + letter(i) + "," + letter(i); })
          .names,
      std::vector<std::string>{"size"});
  // Without any other column, dates of several rows are better than no suggestion.
  EXPECT_EQ(choose_of("joined,land,code",
                      [&](int i) {
                        return "19" + std::to_string(58 + i % 4) + "-01-01," + letter(i) + "x," +
                               letter(i);
                      })
                .names,
            std::vector<std::string>{"joined"});
}

TEST_F(Targets, SquaresProductsAndLagsAreDerived) {
  const auto row = [](int i) {
    return number(i) + "," + number(i * 3) + "," + number(i * 5) + "," + number(i * 9);
  };
  EXPECT_EQ(choose("lag,exper,patents,expersq", row).names[0], "patents");
  EXPECT_EQ(choose("pat,size,pat1,pat2", row).names[0], "pat");
  EXPECT_NE(choose("wage,y85,educ,y85educ", row).names[0], "y85educ");
}

TEST_F(Targets, TheFileIsOftenNamedAfterTheTarget) {
  const auto row = [](int i) { return number(i) + "," + number(i * 3) + "," + number(i * 5); };
  EXPECT_EQ(choose("toxicity,logKow,pKa", row, "toxicity_2020").names[0], "toxicity");
  EXPECT_EQ(choose("a,b,c", row).names, (std::vector<std::string>{"c", "a", "b"}));
  EXPECT_EQ(choose("a,b,c", row).certainty, Certainty::kLikely);
}

TEST_F(Targets, CoordinatesAreNotY) {
  const auto row = [](int i) {
    return number(i) + "," + number(i * 3) + "," + number(i * 5) + "," + number(i * 7);
  };
  EXPECT_EQ(choose("price,x,y,z", row).names[0], "price");
  EXPECT_EQ(choose("y,a,b,c", row).names[0], "y");
}

TEST_F(Targets, AColumnWithValuesThatAreNotReadIsPassedOver) {
  for (const char* bad : {"T", "1e99"}) {
    EXPECT_EQ(choose("wind,humidity,precip",
                     [&](int i) {
                       return number(i) + "," + number(i * 3) + "," +
                              (i % 7 == 3 ? std::string(bad) : number(i * 5));
                     })
                  .names[0],
              "humidity")
        << bad;
  }
}

TEST_F(Targets, NoColumnIsSuitable) {
  EXPECT_TRUE(choose("id,fixed", [](int i) { return std::to_string(i) + ",7"; }).names.empty());
}

TEST(TargetWords, AreFoundInNames) {
  EXPECT_EQ(find_target_word("Sale Price"), TargetWord::kTarget);
  EXPECT_EQ(find_target_word("is_fraud"), TargetWord::kTarget);
  EXPECT_EQ(find_target_word("Y"), TargetWord::kOutcome);
  EXPECT_EQ(find_target_word("infection_rate"), TargetWord::kResult);
  EXPECT_EQ(find_target_word("lwage"), TargetWord::kResult);
  EXPECT_EQ(find_target_word("sex_ratio"), TargetWord::kResult);
  EXPECT_EQ(find_target_word("WinPct"), TargetWord::kResult);
  EXPECT_EQ(find_target_word("age_group"), TargetWord::kInput);
  EXPECT_EQ(find_target_word("kmph"), TargetWord::kNone);
}

}  // namespace
}  // namespace trainyard::init
