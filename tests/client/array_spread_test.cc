// Tests of the mean and spread over the members of an array. They fail if members with other values
// are mixed, a member without the metric counts, or an array without repetitions gets a table.
#include "client/cli/array_spread.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

namespace trainyard::cli {
namespace {

constexpr const char* kAccuracy = "val/accuracy";

v1::Job member(std::map<std::string, std::string> values, double accuracy) {
  v1::Job job;
  for (auto& [field, value] : values) (*job.mutable_array_values())[field] = value;
  (*job.mutable_progress()->mutable_metrics())[kAccuracy] = accuracy;
  return job;
}

TEST(ArraySpread, OfFoldsIsOneLine) {
  std::vector<v1::Job> members = {member({{"recipe.split.fold", "1"}}, 0.5),
                                  member({{"recipe.split.fold", "2"}}, 0.7),
                                  member({{"recipe.split.fold", "3"}}, 0.9), v1::Job()};
  members.push_back(member({{"recipe.split.fold", "4"}}, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(render_spread(members, {{"recipe.split.fold", "fold"}}, kAccuracy, false),
            "MEMBERS  MEAN val/accuracy  SPREAD  LEAST  LARGEST\n"
            "      3                0.7     0.2    0.5      0.9\n");
}

TEST(ArraySpread, OtherValuesAreKeptApart) {
  const auto of = [](const char* rate, const char* seed, double accuracy) {
    return member({{"recipe.optimizer.learning_rate", rate}, {"recipe.seed", seed}}, accuracy);
  };
  const std::string table =
      render_spread({of("0.1", "1", 0.25), of("0.01", "1", 0.5), of("0.1", "2", 0.75)},
                    {{"recipe.optimizer.learning_rate", "learning_rate"}, {"recipe.seed", "seed"}},
                    kAccuracy, false);
  EXPECT_EQ(table,
            "learning_rate  MEMBERS  MEAN val/accuracy  SPREAD  LEAST  LARGEST\n"
            "         0.01        1                0.5            0.5      0.5\n"
            "          0.1        2                0.5  0.3536   0.25     0.75\n");
}

TEST(ArraySpread, WithoutRepetitionsThereIsNone) {
  const std::string field = "recipe.optimizer.learning_rate";
  EXPECT_EQ(render_spread({member({{field, "0.1"}}, 0.5), member({{field, "0.2"}}, 0.6)},
                          {{field, "learning_rate"}}, kAccuracy, false),
            "");
  EXPECT_EQ(render_spread({v1::Job()}, {{"recipe.seed", "seed"}}, kAccuracy, false), "");
}

}  // namespace
}  // namespace trainyard::cli
