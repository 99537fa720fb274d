#include "src/job/run_plan.h"

#include "src/base/join.h"

namespace trainyard {
namespace {

std::string line(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  return "\n" + std::to_string(names.size()) + " " + what + ": " + first_names(names);
}

}  // namespace

std::string InitialWeightsReport::text() const {
  const std::string names = naming.empty() ? "" : ", by the names of " + naming;
  return "initial weights from " + source + names + line("loaded", taken) +
         line("left out by the recipe", left_out) +
         line("not in the source, drawn at random", missing) +
         line("of another shape, drawn at random", mismatched) +
         line("in the source but not used", unused) +
         line("in the source but not needed", unneeded);
}

}  // namespace trainyard
