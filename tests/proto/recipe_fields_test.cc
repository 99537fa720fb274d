// Compares the rows of the plain fields of a recipe and of resources with their structs and their
// messages. A field that was added to one of them alone fails here.
#include <gtest/gtest.h>

#include <set>

#include "proto/convert/spec.h"
#include "src/job/recipe.h"
#include "src/job/resources.h"
#include "trainyard/v1/job_spec.pb.h"

namespace trainyard {
namespace {

using google::protobuf::Descriptor;
using Names = std::set<std::string>;

template <typename S>
Names row_names(const S& spec) {
  Names names;
  for (const auto& row : field_rows(spec)) names.insert(std::string(row.name));
  return names;
}

/// Returns the fields of a message that have no row, except those in `others`. A field of a nested
/// message is named like "ema.decay".
Names without_row(const Descriptor& type, const Names& rows, const Names& others) {
  Names missing;
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string name = type.field(i)->name();
    if (rows.contains(name) || others.contains(name)) continue;
    if (type.field(i)->message_type() == nullptr) {
      missing.insert(name);
      continue;
    }
    for (int k = 0; k < type.field(i)->message_type()->field_count(); ++k) {
      const std::string inner = name + "." + type.field(i)->message_type()->field(k)->name();
      if (!rows.contains(inner)) missing.insert(inner);
    }
  }
  return missing;
}

const Names kStructured = {"optimizer",        "schedule",  "recompute",      "precision",
                           "parameter_groups", "keep_best", "early_stopping", "initial_weights",
                           "augmentation",     "lora",      "metrics"};

TEST(RecipeFields, EachPlainFieldOfTheWireHasARow) {
  EXPECT_EQ(without_row(*v1::Recipe::descriptor(), row_names(Recipe()), kStructured), Names());
  EXPECT_EQ(without_row(*v1::Optimizer::descriptor(), row_names(OptimizerSpec()), {}), Names());
  EXPECT_EQ(without_row(*v1::Schedule::descriptor(), row_names(ScheduleSpec()), {"milestones"}),
            Names());
  EXPECT_EQ(without_row(*v1::Resources::descriptor(), row_names(ResourceSpec()), {"shard"}),
            Names());
}

// The structured bindings stop compiling when a member is added. The member then needs a row, or a
// place in visit_fields() and in kStructured.
TEST(RecipeFields, EachMemberHasARowOrIsStructured) {
  const Recipe recipe;
  [[maybe_unused]] const auto& [a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15,
                                a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28,
                                a29, a30, a31, a32, a33, a34, a35, a36] = recipe;
  constexpr size_t kShard = 1;  // belongs to resources in the API
  EXPECT_EQ(row_names(recipe).size() + kStructured.size() + kShard, 36u);
  const OptimizerSpec optimizer;
  [[maybe_unused]] const auto& [b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15,
                                b16, b17] = optimizer;
  EXPECT_EQ(row_names(optimizer).size(), 17u);
  const ScheduleSpec schedule;
  [[maybe_unused]] const auto& [c1, c2, c3, c4, c5, c6, c7, c8, c9, c10] = schedule;
  EXPECT_EQ(row_names(schedule).size() + 1, 10u) << "milestones is a list";
  const ResourceSpec resources;
  [[maybe_unused]] const auto& [d1, d2, d3, d4, d5, d6, d7] = resources;
  EXPECT_EQ(row_names(resources).size(), 7u);
}

TEST(RecipeFields, DefaultsAreInTheirRange) {
  Violations violations;
  check_rows(Recipe(), "", "recipe.", violations);
  check_rows(ResourceSpec(), "", "resources.", violations);
  for (const std::string& type : optimizer_types()) {
    check_rows(default_optimizer(type), type, "recipe.optimizer.", violations);
  }
  EXPECT_TRUE(violations.empty()) << violations.to_error().message;
}

TEST(RecipeFields, AnExplicitZeroOfAnOptionalFieldIsRefused) {
  v1::JobSpec spec;
  spec.mutable_model()->mutable_mlp();
  v1::Recipe& recipe = *spec.mutable_recipe();
  recipe.set_epochs(1);
  recipe.mutable_optimizer()->set_learning_rate(0.1);
  ASSERT_TRUE(to_engine(spec).ok());
  recipe.set_checkpoint_every_steps(0);
  recipe.mutable_ema()->set_decay(0);
  recipe.mutable_clip_gradients()->set_norm(-1);
  recipe.mutable_optimizer()->set_type(v1::Optimizer::MUON);
  recipe.mutable_optimizer()->set_fallback_learning_rate(0);
  const Error refused = to_engine(spec).error();
  std::vector<std::string> lines;
  for (const FieldViolation& v : refused.violations)
    lines.push_back(v.field + ": " + v.description);
  EXPECT_EQ(lines,
            (std::vector<std::string>{
                "recipe.checkpoint_every_steps: 0 is out of range, expected 1..2^40",
                "recipe.clip_gradients.norm: -1 is out of range, expected more than 0 and at most "
                "1e30",
                "recipe.ema.decay: 0 is out of range, expected more than 0 and less than 1",
                "recipe.optimizer.fallback_learning_rate: 0 is out of range, expected more than 0 "
                "and at most 1e6"}));
}

}  // namespace
}  // namespace trainyard
