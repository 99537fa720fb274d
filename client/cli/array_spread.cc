#include "client/cli/array_spread.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "client/cli/output.h"
#include "client/cli/table.h"
#include "src/base/grouped.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

using Values = std::vector<double>;

bool is_repetition(const std::string& path) {
  return path == "recipe.split.fold" || path == "recipe.seed";
}

/// Returns the metric's values by the members' values of `fields`.
std::map<std::vector<std::string>, Values> values_by(const std::vector<v1::Job>& members,
                                                     const std::vector<std::string>& fields,
                                                     const std::string& metric) {
  std::map<std::vector<std::string>, Values> groups;
  for (const v1::Job& job : members) {
    const auto value = job.progress().metrics().find(metric);
    if (value == job.progress().metrics().end() || !std::isfinite(value->second)) continue;
    std::vector<std::string> key;
    for (const std::string& field : fields) {
      const auto found = job.array_values().find(field);
      key.push_back(found == job.array_values().end() ? "" : found->second);
    }
    groups[key].push_back(value->second);
  }
  return groups;
}

double mean_of(const Values& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns the standard deviation; empty for a single value.
std::string spread_text(const Values& values) {
  if (values.size() < 2) return "";
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return human_number(std::sqrt(squares / static_cast<double>(values.size() - 1)));
}

}  // namespace

std::string render_spread(const std::vector<v1::Job>& members,
                          const std::map<std::string, std::string>& titles,
                          const std::string& metric, bool colour) {
  std::vector<std::string> fields;
  std::vector<Column> columns;
  for (const auto& [path, title] : titles) {
    if (is_repetition(path)) continue;
    fields.push_back(path);
    columns.push_back({title, true});
  }
  if (fields.size() == titles.size()) return "";
  columns.push_back({"MEMBERS", true});
  columns.push_back({"MEAN " + safe_text(metric), true});
  for (const char* title : {"SPREAD", "LEAST", "LARGEST"}) columns.push_back({title, true});
  Table table(std::move(columns));
  const auto groups = values_by(members, fields, metric);
  for (const auto& [key, values] : groups) {
    std::vector<Cell> cells(key.begin(), key.end());
    cells.emplace_back(grouped(std::ssize(values)));
    cells.emplace_back(human_number(mean_of(values)));
    cells.emplace_back(spread_text(values));
    cells.emplace_back(human_number(std::ranges::min(values)));
    cells.emplace_back(human_number(std::ranges::max(values)));
    table.add(std::move(cells));
  }
  return groups.empty() ? "" : table.render(colour);
}

}  // namespace trainyard::cli
