// tests/client/spec_support.h: the problems of a spec text, as lines.
#pragma once

#include <string>
#include <vector>

#include "client/lib/spec_file.h"

namespace trainyard::client {

/// Returns "position: field: description" of each problem of `text` (named job.yaml); empty if the
/// text is accepted.
inline std::vector<std::string> problems_of(const std::string& text,
                                            const std::vector<std::string>& sets = {}) {
  const auto spec = parse_spec_file(text, "job.yaml", "", sets);
  std::vector<std::string> lines;
  if (spec.ok()) return lines;
  for (const FieldViolation& v : spec.error().violations)
    lines.push_back(v.field + ": " + v.description);
  return lines;
}

/// Returns a complete spec, each part of which can be replaced.
inline std::string spec_with(
    const std::string& model = "{lenet5: {}}",
    const std::string& recipe = "{epochs: 1, optimizer: {learning_rate: 0.1}}",
    const std::string& dataset = "{name: digits}") {
  return "dataset: " + dataset + "\nmodel: " + model + "\nrecipe: " + recipe + "\n";
}

}  // namespace trainyard::client
