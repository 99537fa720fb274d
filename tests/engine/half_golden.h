// tests/engine/half_golden.h: what PyTorch's losses are in 16 bits, beside those of the golden
// files.
//
// Bound: that of fp32, or if it is more, twice the gap of PyTorch's own such losses to its fp32
// ones, which is measured over the same steps (tests/golden/make_half_golden.py). Autocast and we
// round at different places, so neither is the truth; each is about a gap away from fp32, in
// whatever direction.
#pragma once

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/passes/passes.h"
#include "tests/support/source_path.h"

namespace trainyard::testing {

struct GoldenLosses {
  std::vector<double> losses;
  double bound = 0;  // relative, of each step
};

/// `fp32` and `fp32_bound`, or those of the case of this name in that precision.
inline GoldenLosses golden_losses(const std::string& name, Precision precision,
                                  const nlohmann::json& fp32, double fp32_bound) {
  if (precision == Precision::kFp32) return {fp32.get<std::vector<double>>(), fp32_bound};
  std::ifstream file(
      source_path("tests/golden/pytorch_" + std::string(name_of(precision)) + ".json"));
  const nlohmann::json golden = nlohmann::json::parse(file);
  const auto& cases = golden["cases"];
  const auto it = std::ranges::find_if(cases, [&](const auto& c) { return c["name"] == name; });
  if (it == cases.end()) return {};
  return {(*it)["losses"].get<std::vector<double>>(),
          std::max(fp32_bound, 2 * (*it)["gap"].get<double>())};
}

}  // namespace trainyard::testing
