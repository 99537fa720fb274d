// Tests of the members that an ArraySpec describes. They fail if a bound is checked only after the
// work that it limits, if a random draw depends on another field, or if a value gets another type.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "server/planning/array_members.h"

namespace trainyard::server {
namespace {

using Values = std::map<std::string, std::string>;

std::vector<Values> members_of(const v1::ArraySpec& array) {
  const Result<ArrayMembers> expanded = expand_array(array);
  EXPECT_TRUE(expanded.ok()) << expanded.error().message;
  std::vector<Values> out;
  if (!expanded.ok()) return out;
  for (const auto& member : expanded->members) {
    Values& values = out.emplace_back();
    for (const MemberValue& v : member) values[v.field->path()] = v.json;
  }
  return out;
}
std::string refusal(const v1::ArraySpec& array, const std::string& reason) {
  const Result<ArrayMembers> expanded = expand_array(array);
  EXPECT_FALSE(expanded.ok());
  if (expanded.ok()) return "";
  EXPECT_EQ(expanded.error().reason, reason) << expanded.error().message;
  return expanded.error().message;
}
void add(v1::ArraySpec& array, const std::string& path, const std::vector<std::string>& values) {
  for (const std::string& value : values) (*array.mutable_grid())[path].add_values(value);
}
v1::ArrayDraw& draw(v1::ArraySpec& array, const std::string& path) {
  return (*array.mutable_random()->mutable_values())[path];
}
void set_range(v1::ArrayRange& range, double low, double high) {
  range.set_low(low);
  range.set_high(high);
}

TEST(ArrayMembers, AGridCountsThroughTheLastFieldFirst) {
  v1::ArraySpec array;
  add(array, "recipe.seed", {"7", "8", "9"});
  add(array, "model.mlp.hidden", {"[64]", "[64, 64]"});
  EXPECT_EQ(members_of(array),
            (std::vector<Values>{{{"model.mlp.hidden", "[64]"}, {"recipe.seed", "7"}},
                                 {{"model.mlp.hidden", "[64]"}, {"recipe.seed", "8"}},
                                 {{"model.mlp.hidden", "[64]"}, {"recipe.seed", "9"}},
                                 {{"model.mlp.hidden", "[64, 64]"}, {"recipe.seed", "7"}},
                                 {{"model.mlp.hidden", "[64, 64]"}, {"recipe.seed", "8"}},
                                 {{"model.mlp.hidden", "[64, 64]"}, {"recipe.seed", "9"}}}));
  EXPECT_EQ(expand_array(array)->members[5][0].where, "array.grid.model.mlp.hidden[1]");
}

TEST(ArrayMembers, TenMillionMembersAreRefusedBeforeTheyAreExpanded) {
  v1::ArraySpec array;
  std::vector<std::string> values;
  for (int i = 0; i < 1000; ++i) values.push_back(std::to_string(i));
  add(array, "recipe.seed", values);
  add(array, "recipe.epochs", {values.begin(), values.begin() + 100});
  add(array, "recipe.batch_size", {values.begin(), values.begin() + 100});
  EXPECT_EQ(
      refusal(array, "ARRAY_SIZE_INVALID"),
      "array.grid: 100 * 100 * 1000 values are 10000000 members, expected at most 10000 members; "
      "submit several arrays, or draw some at random");
  for (int i = 0; i < 12; ++i) {
    add(array, "model.layers[" + std::to_string(i) + "].conv.out_channels", values);
  }
  EXPECT_NE(refusal(array, "ARRAY_SIZE_INVALID").find("1e+43 members"), std::string::npos)
      << "more than a number of 64 bits holds";

  v1::ArraySpec random;
  random.mutable_random()->set_count(10'000'000);
  set_range(*draw(random, "recipe.seed").mutable_integers(), 0, 1);
  EXPECT_NE(refusal(random, "ARRAY_SIZE_INVALID").find("10000000 is out of range"),
            std::string::npos);
  random.mutable_random()->set_count(0);
  refusal(random, "ARRAY_SIZE_INVALID");

  v1::ArraySpec list;
  for (int i = 0; i < 10'001; ++i) {
    (*list.add_list()->mutable_values())["recipe.seed"] = std::to_string(i);
  }
  EXPECT_NE(refusal(list, "ARRAY_SIZE_INVALID").find("has 10001 members"), std::string::npos);
  list.mutable_list()->RemoveLast();
  EXPECT_EQ(members_of(list).size(), 10'000u);
}

TEST(ArrayMembers, ExactlyOneWayToDefineMembersIsRequired) {
  v1::ArraySpec array;
  refusal(array, "FIELD_REQUIRED");
  add(array, "recipe.seed", {"1"});
  EXPECT_EQ(members_of(array).size(), 1u);
  (*array.add_list()->mutable_values())["recipe.seed"] = "1";
  refusal(array, "FIELD_CONFLICT");
  array.clear_grid();
  EXPECT_EQ(members_of(array).size(), 1u);
  array.add_list();
  EXPECT_NE(refusal(array, "FIELD_REQUIRED").find("array.list[1]"), std::string::npos);
}

TEST(ArrayMembers, FieldsMustBeDistinctAndNotNested) {
  const auto grid = [](const std::vector<std::string>& paths) {
    v1::ArraySpec array;
    for (const std::string& path : paths) add(array, path, {"1"});
    return array;
  };
  refusal(grid({"recipe.optimizer", "recipe.optimizer.learning_rate"}), "FIELD_CONFLICT");
  refusal(grid({"model.layers[1]", "model.layers[1].conv.out_channels"}), "FIELD_CONFLICT");
  EXPECT_EQ(members_of(grid({"model.layers[1].gemm", "model.layers[10].gemm"})).size(), 1u);
  EXPECT_EQ(members_of(grid({"recipe.epochs", "recipe.evaluate_every_steps"})).size(), 1u);
  refusal(grid({"dataset.name"}), "FIELD_UNSUPPORTED");
  refusal(grid({"after"}), "FIELD_UNSUPPORTED");
  EXPECT_NE(
      refusal(grid({"recipe.optimizer.lr"}), "FIELD_UNKNOWN").find("name here is 'learning_rate'"),
      std::string::npos);
  EXPECT_NE(refusal(grid({"recipe.epoch"}), "FIELD_UNKNOWN").find("did you mean 'epochs'?"),
            std::string::npos);
  for (const char* path : {"", ".", "recipe.", ".recipe", "recipe..seed", "recipe.seed.x",
                           "recipe[0]", "model.layers[].conv", "model.layers[-1]",
                           "model.layers[x]", "model.layers[1", "model.layers.conv", "labels[0]"}) {
    SCOPED_TRACE(path);
    const Error e = expand_array(grid({path})).error();
    EXPECT_TRUE(e.reason == "FIELD_PATH_INVALID" || e.reason == "FIELD_UNKNOWN")
        << e.reason << e.message;
  }
  refusal(grid({std::string(5000, 'x')}), "FIELD_PATH_INVALID");
  std::vector<std::string> many;
  for (int i = 0; i < 33; ++i) many.push_back("model.layers[" + std::to_string(i) + "].gemm.units");
  EXPECT_NE(refusal(grid(many), "ARRAY_SIZE_INVALID")
                .find("members of an array may differ in at most 32"),
            std::string::npos);
  many.pop_back();
  EXPECT_EQ(members_of(grid(many)).size(), 1u);

  v1::ArraySpec twice;
  add(twice, "recipe.optimizer.learning_rate", {"0.1", "0.2", "0.10"});
  EXPECT_NE(refusal(twice, "FIELD_CONFLICT").find("learning_rate[2]"), std::string::npos);
  v1::ArraySpec same;
  for (int i = 0; i < 2; ++i) (*same.add_list()->mutable_values())["recipe.seed"] = "4";
  EXPECT_NE(refusal(same, "FIELD_CONFLICT").find("the same as member 0"), std::string::npos);
}

TEST(ArrayMembers, ValuesAreJson) {
  v1::ArraySpec array;
  add(array, "recipe.optimizer.type", {"adam"});
  EXPECT_NE(refusal(array, "FIELD_TYPE_INVALID").find("is not JSON"), std::string::npos);
  array.clear_grid();
  add(array, "recipe.seed", {"1" + std::string(kArrayValueBytesMax, '0')});
  refusal(array, "FIELD_OUT_OF_RANGE");
  array.clear_grid();
  (*array.mutable_grid())["recipe.seed"];
  refusal(array, "FIELD_REQUIRED");
}

v1::ArraySpec drawn(int count, uint64_t seed) {
  v1::ArraySpec array;
  array.mutable_random()->set_count(count);
  array.mutable_random()->set_seed(seed);
  set_range(*draw(array, "recipe.optimizer.learning_rate").mutable_log_uniform(), 1e-5, 1e-1);
  set_range(*draw(array, "recipe.optimizer.momentum").mutable_uniform(), 0.5, 0.99);
  set_range(*draw(array, "recipe.batch_size").mutable_integers(), 16, 19);
  for (const char* value : {"\"sgd\"", "\"adam\""}) {
    draw(array, "recipe.optimizer.type").mutable_choice()->add_values(value);
  }
  return array;
}

TEST(ArrayMembers, DrawsCoverTheirRangesAndStayInside) {
  std::map<std::string, int> batches, types;
  double below = 0, sum = 0;
  const std::vector<Values> members = members_of(drawn(4000, 1));
  for (const Values& member : members) {
    const double rate = nlohmann::json::parse(member.at("recipe.optimizer.learning_rate"));
    const double momentum = nlohmann::json::parse(member.at("recipe.optimizer.momentum"));
    EXPECT_TRUE(rate >= 1e-5 && rate <= 1e-1) << rate;
    EXPECT_TRUE(momentum >= 0.5 && momentum <= 0.99) << momentum;
    below += rate < 1e-3 ? 1 : 0;  // 1e-3 is the middle of the range on the logarithmic scale
    sum += momentum;
    ++batches[member.at("recipe.batch_size")];
    ++types[member.at("recipe.optimizer.type")];
  }
  EXPECT_NEAR(below / 4000, 0.5, 0.04);  // five standard deviations
  EXPECT_NEAR(sum / 4000, 0.745, 0.012);
  EXPECT_EQ(batches.size(), 4u) << "16, 17, 18 and 19: both ends";
  for (const auto& [value, count] : batches) EXPECT_NEAR(count, 1000, 140) << value;
  EXPECT_EQ(types.size(), 2u);
}

TEST(ArrayMembers, ADrawIsAFunctionOfSeedMemberAndField) {
  const std::vector<Values> members = members_of(drawn(20, 1));
  EXPECT_EQ(members_of(drawn(20, 1)), members);
  EXPECT_NE(members_of(drawn(20, 2)), members);
  const std::vector<Values> more = members_of(drawn(40, 1));
  EXPECT_TRUE(std::equal(members.begin(), members.end(), more.begin())) << "more only adds";
  v1::ArraySpec other = drawn(20, 1);
  set_range(*draw(other, "recipe.ema.decay").mutable_uniform(), 0.9, 0.99);
  other.mutable_random()->mutable_values()->erase("recipe.batch_size");
  const std::vector<Values> without = members_of(other);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(without[i].at("recipe.optimizer.momentum"),
              members[i].at("recipe.optimizer.momentum"));
  }
  // Golden values: an array that is submitted again years later must have the same members.
  EXPECT_EQ(members[0].at("recipe.batch_size") + " " + members[1].at("recipe.batch_size") + " " +
                members[2].at("recipe.batch_size") + " " + members[3].at("recipe.batch_size"),
            "17 16 19 18");
}

TEST(ArrayMembers, RangesAreChecked) {
  const auto with = [](auto set) {
    v1::ArraySpec array;
    array.mutable_random()->set_count(1);
    set(draw(array, "recipe.optimizer.learning_rate"));
    return array;
  };
  refusal(with([](v1::ArrayDraw&) {}), "FIELD_REQUIRED");
  refusal(with([](v1::ArrayDraw& d) { d.mutable_uniform()->set_low(1); }), "FIELD_REQUIRED");
  refusal(with([](v1::ArrayDraw& d) { set_range(*d.mutable_uniform(), 1, 1); }),
          "FIELD_OUT_OF_RANGE");
  refusal(with([](v1::ArrayDraw& d) { set_range(*d.mutable_log_uniform(), 0, 1); }),
          "FIELD_OUT_OF_RANGE");
  refusal(with([](v1::ArrayDraw& d) { set_range(*d.mutable_integers(), 0.5, 2); }),
          "FIELD_OUT_OF_RANGE");
  refusal(with([](v1::ArrayDraw& d) { set_range(*d.mutable_integers(), 0, 1e18); }),
          "FIELD_OUT_OF_RANGE");
  refusal(with([](v1::ArrayDraw& d) { set_range(*d.mutable_uniform(), -1.7e308, 1.7e308); }),
          "FIELD_OUT_OF_RANGE");
  refusal(with([](v1::ArrayDraw& d) { set_range(*d.mutable_uniform(), 0, INFINITY); }),
          "FIELD_OUT_OF_RANGE");
  refusal(with([](v1::ArrayDraw& d) { d.mutable_choice(); }), "FIELD_REQUIRED");
  refusal(with([](v1::ArrayDraw& d) { d.mutable_choice()->add_values("adam"); }),
          "FIELD_TYPE_INVALID");
  const std::vector<Values> widest =
      members_of(with([](v1::ArrayDraw& d) { set_range(*d.mutable_integers(), -9e15, 9e15); }));
  EXPECT_EQ(widest.size(), 1u);
}

// ---- Applying the values to a spec ----

v1::JobSpec base() {
  v1::JobSpec spec;
  spec.mutable_model()->mutable_mlp()->add_hidden(8);
  spec.mutable_recipe()->set_epochs(2);
  return spec;
}
Status set(v1::JobSpec& spec, const std::string& path, const std::string& json) {
  ASSIGN_OR_RETURN(const SpecField field, SpecField::parse(path, "here"));
  return field.set(spec, json, "here");
}

TEST(SpecField, AcceptsTheSameValuesAsSpecFiles) {
  v1::JobSpec spec = base();
  for (const auto& [path, json] : std::vector<std::pair<std::string, std::string>>{
           {"recipe.optimizer.learning_rate", "1"},
           {"recipe.optimizer.type", "\"adamw\""},
           {"recipe.optimizer.nesterov", "true"},
           {"recipe.seed", "18446744073709551615"},
           {"recipe.batch_size", "\"auto\""},
           {"recipe.metrics", "[\"roc_auc\"]"},
           {"recipe.augmentation",
            "[{\"random_crop\": {\"padding\": 4}}, {\"cutout\": {\"size\": 8}}]"},
           {"recipe.augmentation[1].cutout.size", "6"},
           {"model.mlp.hidden", "5"},
           {"recipe.epochs", "null"},
           {"recipe.schedule", "{\"type\": \"cosine\", \"warmup_steps\": 5}"},
           {"labels.a.b", "\"c\""},
           {"priority", "-7"}}) {
    const Status s = set(spec, path, json);
    EXPECT_TRUE(s.ok()) << s.error().message;
  }
  EXPECT_EQ(spec.recipe().optimizer().learning_rate(), 1);
  EXPECT_EQ(spec.recipe().optimizer().type(), v1::Optimizer::ADAMW);
  EXPECT_TRUE(spec.recipe().optimizer().nesterov());
  EXPECT_EQ(spec.recipe().seed(), UINT64_MAX);
  EXPECT_EQ(spec.recipe().batch_size(), 0);
  EXPECT_TRUE(spec.recipe().has_batch_size());
  EXPECT_EQ(spec.recipe().augmentation(0).random_crop().padding(), 4);
  EXPECT_EQ(spec.recipe().augmentation(1).cutout().size(), 6);
  ASSERT_EQ(spec.model().mlp().hidden_size(), 1);
  EXPECT_EQ(spec.model().mlp().hidden(0), 5);
  EXPECT_FALSE(spec.recipe().has_epochs());
  EXPECT_EQ(spec.recipe().schedule().type(), v1::Schedule::COSINE);
  EXPECT_EQ(spec.labels().at("a.b"), "c");
  EXPECT_EQ(spec.priority(), -7);
  EXPECT_TRUE(set(spec, "model", "{\"lenet5\": null}").ok());
  EXPECT_TRUE(spec.model().has_lenet5());
  EXPECT_TRUE(
      set(spec, "model", "{\"layers\": [{\"gemm\": {\"units\": 4}}, {\"relu\": null}]}").ok());
  EXPECT_TRUE(spec.model().layers(1).has_relu());
  EXPECT_TRUE(set(spec, "model.layers[0]", "{\"gemm\": {\"units\": 9}}").ok());
  EXPECT_EQ(spec.model().layers(0).gemm().units(), 9);
  EXPECT_EQ(spec.model().layers_size(), 2);
}

TEST(SpecField, RefusesTheSameValuesAsSpecFiles) {
  for (const auto& [path, json, reason] : std::vector<std::array<std::string, 3>>{
           {"recipe.optimizer.learning_rate", "\"0.1\"", "FIELD_TYPE_INVALID"},
           {"recipe.optimizer.type", "\"adm\"", "FIELD_UNSUPPORTED"},
           {"recipe.optimizer.type", "\"ADAM\"", "FIELD_UNSUPPORTED"},
           {"recipe.optimizer.type", "1", "FIELD_UNSUPPORTED"},
           {"recipe.epochs", "1.5", "FIELD_TYPE_INVALID"},
           {"recipe.epochs", "1e3", "FIELD_TYPE_INVALID"},
           {"recipe.seed", "-1", "FIELD_OUT_OF_RANGE"},
           {"priority", "3000000000", "FIELD_OUT_OF_RANGE"},
           {"recipe.optimizer.nesterov", "1", "FIELD_TYPE_INVALID"},
           {"recipe.optimizer", "{\"lr\": 1}", "FIELD_UNKNOWN"},
           {"recipe.optimizer", "[1]", "FIELD_TYPE_INVALID"},
           {"recipe.metrics", "{\"a\": 1}", "FIELD_TYPE_INVALID"},
           {"model", "{\"lenet5\": {}, \"mlp\": {}}", "FIELD_CONFLICT"},
           {"model.layers[0]", "{\"relu\": {}}", "FIELD_PATH_INVALID"},
           {"model.resnet18.stem", "\"x\"", "FIELD_PATH_INVALID"},
           {"labels.a", "1", "FIELD_TYPE_INVALID"},
           {"labels", "{\"a\": 1}", "FIELD_TYPE_INVALID"}}) {
    SCOPED_TRACE(path + " " + json);
    v1::JobSpec spec = base();
    Status s = set(spec, path, json);
    ASSERT_FALSE(s.ok());
    EXPECT_EQ(s.error().reason, reason) << s.error().message;
    EXPECT_TRUE(s.error().message.starts_with("here")) << s.error().message;
  }
  v1::JobSpec spec = base();
  EXPECT_EQ(set(spec, "recipe.optimizer", "{\"lr\": 1}").error().message,
            "here.lr: unknown field, its name here is 'learning_rate'");
  EXPECT_EQ(SpecField::parse("recipe.learning_rate", "here").error().message,
            "here: 'recipe.learning_rate': unknown field here, did you mean "
            "'recipe.optimizer.learning_rate'?");
  const Status part = set(spec, "model.lenet5.activation", "\"relu\"");
  ASSERT_FALSE(part.ok()) << "the spec has an mlp";
}

}  // namespace
}  // namespace trainyard::server
