// tests/engine/half_golden.h: PyTorch's losses in 16 bits, next to the fp32 losses of the golden
// files.
//
// The bound is that of fp32 or, if larger, three times the difference between PyTorch's 16-bit and
// fp32 losses, measured over the same steps (tests/golden/make_half_golden.py). PyTorch's autocast
// and this engine round at different places, so neither is exact. Each differs from fp32 by about
// that difference, in any direction, and processors that multiply bfloat16 by themselves add in
// another order than others.
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

/// Returns `fp32` and `fp32_bound` in fp32, else the losses and bound of the case `name` in
/// `precision`.
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
          std::max(fp32_bound, 3 * (*it)["gap"].get<double>())};
}

}  // namespace trainyard::testing
