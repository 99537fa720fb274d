// src/optim/parameter_groups.h: what an optimizer does differently for some parameters, by name.
#pragma once

#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/fields.h"
#include "src/base/result.h"
#include "src/optim/optimizer.h"

namespace trainyard {

/// Parameters whose name matches `match` (src/base/glob.h) get what is given. Groups apply in
/// order: where two match, the later one has the last word on what it gives.
struct ParameterGroup {
  std::string match = {};
  std::optional<bool> freeze = {};  // false: what an earlier group froze trains after all
  std::optional<double> learning_rate_factor = {};
  std::optional<double> weight_decay = {};
};
template <FieldsOf<ParameterGroup> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [match, freeze, learning_rate_factor, weight_decay] = spec;
  visit("match", match);
  visit("freeze", freeze);
  visit("learning_rate_factor", learning_rate_factor);
  visit("weight_decay", weight_decay);
}

/// Ranges and fields that have no effect, by the name that users write:
/// recipe.parameter_groups[0].match.
Status check_parameter_groups(const std::vector<ParameterGroup>& groups);

/// The rule of every parameter of a forward graph. Refuses a pattern that matches none, with the
/// names that are near, and groups that freeze everything. `first` are groups that stand before the
/// user's and may match nothing. CANCELLED/STOPPED once `stop` is requested.
Result<std::map<TensorId, ParameterRule>> resolve_parameter_rules(
    const Graph& graph, const OptimizerSpec& optimizer, const std::vector<ParameterGroup>& groups,
    const std::vector<ParameterGroup>& first = {}, const std::stop_token& stop = {});

/// For a pattern that matches nothing: "matches no parameter; did you mean 'fc1.weight'?", or the
/// first of the names there are.
std::string no_match(const std::string& pattern, const std::vector<std::string>& names,
                     std::string_view what = "parameter");

}  // namespace trainyard
