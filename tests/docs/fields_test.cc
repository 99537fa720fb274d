// Compares the tables of fields in the manual with the rows of src/job and src/optim. A table is
// between "<!-- fields: NAME -->" and "<!-- end of fields -->". With TRAINYARD_UPDATE_GOLDEN=1 this
// test writes the tables instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/base/join.h"
#include "src/job/recipe.h"
#include "src/job/resources.h"
#include "tests/docs/page_part.h"

namespace trainyard {
namespace {

using testing::Cells;
using testing::table_text;

std::string code(std::string_view text) { return "`" + std::string(text) + "`"; }

template <typename S>
std::string takes_text(const FieldRow<S>& row) {
  if (std::holds_alternative<bool S::*>(row.member)) return "`true`, `false`";
  if (std::holds_alternative<std::string S::*>(row.member)) {
    Cells names;
    for (const std::string& name : row.names) names.push_back(code(name));
    return names.empty() ? "a name" : joined(names, ", ");
  }
  if (!std::isfinite(row.range.low)) return row.is_whole() ? "a whole number" : "a number";
  return row.range.text(row.is_whole());
}

/// Returns the value of a field in a spec; empty if the value means that the field is not given.
template <typename S>
std::string value_text(const FieldRow<S>& row, const S& spec) {
  const auto text = [&](auto member) -> std::string {
    using Value = std::remove_cvref_t<decltype(spec.*member)>;
    const Value& value = spec.*member;
    if constexpr (std::is_same_v<Value, std::string>) {
      return value.empty() ? "" : code(value);
    } else if constexpr (std::is_same_v<Value, bool>) {
      return code(value ? "true" : "false");
    } else {
      if (row.has(kOffAtZero) && value == 0) return "";
      return number_text(static_cast<double>(value), row.is_whole());
    }
  };
  return std::visit(text, row.member);
}

/// Returns the default, and the types with another one: "0, with muon 0.95".
template <typename S>
std::string default_text(const FieldRow<S>& row, const std::vector<S>& defaults) {
  if (row.has(kRequired)) return "required";
  std::string usual, all;
  for (const S& spec : defaults) {
    if constexpr (requires { spec.type; }) {
      if (!row.is_used_by(spec.type)) continue;
      const std::string value = value_text(row, spec);
      if (all.empty()) all = usual = value;
      if (value != usual && row.name != "type") all += ", with " + spec.type + " " + value;
    } else {
      all = value_text(row, spec);
    }
  }
  return all;
}

std::string fork_text(const auto& row) {
  if (row.has(kForksAboveZero)) return "above 0";
  return row.has(kForks) || row.has(kOutsideIdentity) ? "yes" : "no";
}

/// Returns the table of a spec's fields. `defaults` is the spec with all defaults, or one for each
/// type that has its own. The column `for` appears if some fields apply only to some types, and
/// `fork` if a fork may change at least one field.
template <typename S>
std::string field_table(const std::vector<S>& defaults) {
  const std::vector<FieldRow<S>>& rows = field_rows(S());
  const bool types = std::ranges::any_of(rows, [](const auto& row) { return !row.users.empty(); });
  const bool forks = std::ranges::any_of(rows, [](const auto& r) { return fork_text(r) != "no"; });
  std::vector<Cells> lines(2 + rows.size());
  const auto add_column = [&](const std::string& head, auto&& cell) {
    lines[0].push_back(head);
    lines[1].push_back("---");
    for (size_t i = 0; i < rows.size(); ++i) lines[2 + i].push_back(cell(rows[i]));
  };
  add_column("field", [](const auto& row) { return code(row.name); });
  if (types) {
    add_column("for",
               [](const auto& r) { return r.users.empty() ? "all" : joined(r.users, ", "); });
  }
  add_column("meaning", [](const auto& row) { return row.sentence; });
  add_column("takes", [](const auto& row) { return takes_text(row); });
  add_column("default", [&](const auto& row) { return default_text(row, defaults); });
  if (forks) add_column("fork", [](const auto& row) { return fork_text(row); });
  return table_text(lines);
}

std::vector<OptimizerSpec> optimizer_defaults() {
  std::vector<OptimizerSpec> defaults;
  for (const std::string& type : optimizer_types()) defaults.push_back(default_optimizer(type));
  return defaults;
}

std::vector<ScheduleSpec> schedule_defaults() {
  std::vector<ScheduleSpec> defaults;
  for (const std::string& type : schedule_types()) defaults.push_back({.type = type});
  return defaults;
}

/// Returns the fields in which the members of an array may differ and still share a plan.
std::string shared_plan_list() {
  constexpr size_t kLineMax = 100;
  std::string text, line;
  for (const std::string& field : recipe_fields_with(kPlanIgnores)) {
    const std::string word = code(field);
    if (line.size() + word.size() + 2 > kLineMax) {
      text += line + ",\n";
      line = word;
    } else {
      line += (line.empty() ? "" : ", ") + word;
    }
  }
  return text + line + ".\n";
}

void expect_part(const std::string& page, const std::string& name, const std::string& part) {
  testing::expect_page_part({page, "fields", name, "docs_fields_test"}, part);
}

TEST(DocsFields, OfARecipe) {
  expect_part("docs/job_spec.md", "recipe", field_table<Recipe>({Recipe()}));
  expect_part("docs/job_spec.md", "recipe.optimizer", field_table(optimizer_defaults()));
  expect_part("docs/job_spec.md", "recipe.schedule", field_table(schedule_defaults()));
}

TEST(DocsFields, OfResources) {
  expect_part("docs/job_spec.md", "resources", field_table<ResourceSpec>({ResourceSpec()}));
}

TEST(DocsFields, ThatLetMembersShareAPlan) {
  expect_part("docs/job_spec.md", "shared plans", shared_plan_list());
}

}  // namespace
}  // namespace trainyard
