#include "src/optim/parameter_groups.h"

#include <algorithm>
#include <cstdio>

#include "src/base/glob.h"
#include "src/base/join.h"
#include "src/base/stop.h"
#include "src/base/text.h"
#include "src/base/violations.h"
#include "src/graph/op.h"

namespace trainyard {
namespace {

constexpr double kFactorMax = 1e6;
constexpr size_t kNamesShown = 5;

std::string field_of(size_t index, const char* field) {
  return "recipe.parameter_groups[" + std::to_string(index) + "]." + field;
}

// Returns whether the node looks up rows of a table. Such a table does not count as a matrix: it
// multiplies nothing, and an update changes few of its rows.
bool is_lookup(const Node& node) {
  const std::string_view type = node.op->type();
  return type == "Gather" || type == "SplitGather" || type == "Embedding" || type == "EmbeddingBag";
}

/// Returns the forward nodes that read a parameter, by parameter.
std::map<TensorId, std::vector<NodeId>> readers_of(const Graph& graph) {
  std::map<TensorId, std::vector<NodeId>> readers;
  for (NodeId k = 0; k < static_cast<NodeId>(graph.nodes().size()); ++k) {
    for (const TensorId id : graph.node(k).inputs) {
      if (id != kNoTensor && graph.tensor(id).role == Role::kParameter) readers[id].push_back(k);
    }
  }
  return readers;
}

/// Returns whether the parameter has rank 2 or more and is not only a lookup table.
bool is_matrix(const Graph& graph, TensorId id, const std::vector<NodeId>& readers) {
  return graph.tensor(id).type.shape.rank() >= 2 &&
         !std::ranges::all_of(readers, [&](NodeId k) { return is_lookup(graph.node(k)); });
}

}  // namespace

std::string no_match(const std::string& pattern, const std::vector<std::string>& names,
                     std::string_view what) {
  std::string text = quoted_value(pattern) + " matches no " + std::string(what);
  if (const auto near = nearest_name(pattern, names))
    return text + "; did you mean '" + *near + "'?";
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    text += (i == 0 ? "; there are " : ", ") + names[i];
  }
  if (names.size() > kNamesShown) {
    text += " and " + std::to_string(names.size() - kNamesShown) + " more";
  }
  return text;
}

Status check_parameter_groups(const std::vector<ParameterGroup>& groups) {
  Violations violations;
  if (groups.size() > kPatternsMax) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.parameter_groups", too_many(groups.size()));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const ParameterGroup& g = groups[i];
    if (g.match.empty() || g.match.size() > kPatternLengthMax) {
      violations.add("FIELD_REQUIRED", field_of(i, "match"),
                     "expected a pattern of parameter names of 1..256 characters, such as *.bias");
    }
    if (const auto f = g.learning_rate_factor; f && !(*f > 0 && *f <= kFactorMax)) {
      violations.add("FIELD_OUT_OF_RANGE", field_of(i, "learning_rate_factor"),
                     short_number(*f) + " is out of range, expected more than 0 and at most 1e6" +
                         (*f == 0 ? "; freeze: true leaves parameters as they are" : ""));
    }
    if (const auto d = g.weight_decay; d && !(*d >= 0 && *d <= kFactorMax)) {
      violations.add("FIELD_OUT_OF_RANGE", field_of(i, "weight_decay"),
                     short_number(*d) + " is out of range, expected 0 or more and at most 1e6");
    }
    if (g.freeze.value_or(false) && (g.learning_rate_factor || g.weight_decay)) {
      violations.add("FIELD_UNUSED", field_of(i, "freeze"),
                     "makes learning_rate_factor and weight_decay ineffective; remove them");
    }
    if (!g.freeze && !g.learning_rate_factor && !g.weight_decay) {
      violations.add("FIELD_REQUIRED", field_of(i, "freeze"),
                     "expected one of freeze: true, learning_rate_factor and weight_decay");
    }
  }
  return violations.empty() ? Status() : Status(violations.to_error());
}

std::string describe_weight_decay(const Graph& graph,
                                  const std::map<TensorId, ParameterRule>& rules) {
  std::vector<std::string> decaying, others;
  for (const auto& [id, rule] : rules) {
    if (rule.frozen) continue;
    (rule.weight_decay > 0 ? decaying : others).push_back(graph.tensor(id).name);
  }
  if (decaying.empty() || others.empty()) return "";
  return "weight decay acts on " + std::to_string(decaying.size()) + " of " +
         std::to_string(decaying.size() + others.size()) + " parameters: " + first_names(decaying) +
         "; not on " + first_names(others);
}

Result<std::map<TensorId, ParameterRule>> resolve_parameter_rules(
    const Graph& graph, const OptimizerSpec& optimizer, const std::vector<ParameterGroup>& groups,
    const std::vector<ParameterGroup>& first, const std::stop_token& stop) {
  const auto readers = readers_of(graph);
  // The last node that reads a matrix computes the model's output.
  NodeId last = kNoNode;
  for (const auto& [id, nodes] : readers) {
    if (is_matrix(graph, id, nodes)) last = std::max(last, nodes.back());
  }
  std::map<TensorId, ParameterRule> rules;
  std::vector<std::string> names;
  for (TensorId id = 0; id < static_cast<TensorId>(graph.tensors().size()); ++id) {
    const TensorInfo& t = graph.tensor(id);
    if (t.role != Role::kParameter) continue;
    names.push_back(t.name);
    const auto it = readers.find(id);
    const bool matrix = it != readers.end() && is_matrix(graph, id, it->second);
    ParameterRule& rule = rules[id];
    rule.weight_decay = optimizer.weight_decay_on == "all" || matrix ? optimizer.weight_decay : 0.0;
    rule.hidden_matrix =
        matrix && t.type.shape.rank() == 2 && it->second.back() != last &&
        std::ranges::none_of(it->second, [&](NodeId k) { return is_lookup(graph.node(k)); });
  }
  const auto apply = [&](const ParameterGroup& g) {
    bool matched = false;
    for (auto& [id, rule] : rules) {
      if (stop.stop_requested()) break;
      if (!glob_match(g.match, graph.tensor(id).name)) continue;
      matched = true;
      if (g.freeze) rule.frozen = *g.freeze;
      if (g.learning_rate_factor) rule.rate_factor = *g.learning_rate_factor;
      if (g.weight_decay) rule.weight_decay = *g.weight_decay;
    }
    return matched;
  };
  for (const ParameterGroup& g : first) (void)apply(g);
  Violations violations;
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool matched = apply(groups[i]);
    if (Status s = check_stop(stop); !s.ok()) return s.error();
    if (matched) continue;
    violations.add("FIELD_UNKNOWN_VALUE", field_of(i, "match"), no_match(groups[i].match, names));
  }
  if (violations.empty() && !rules.empty() &&
      std::ranges::all_of(rules, [](const auto& r) { return r.second.frozen; })) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.parameter_groups",
                   "freezes every parameter; expected at least one that trains");
  }
  if (!violations.empty()) return violations.to_error();
  return rules;
}

}  // namespace trainyard
