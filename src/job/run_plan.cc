#include "src/job/run_plan.h"

#include "src/base/join.h"

namespace trainyard {
namespace {

std::string list_text(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  return "; " + std::to_string(names.size()) + " " + what + ": " + first_names(names);
}

}  // namespace

std::string InitialWeightsReport::text() const {
  const std::string names = naming.empty() ? "" : ", by the names of " + naming;
  return "initial weights from " + source + names + list_text("loaded", taken) +
         list_text("left out by the recipe", left_out) +
         list_text("not in the source, drawn at random", missing) +
         list_text("of another shape, drawn at random", mismatched) +
         list_text("in the source but not used", unused) +
         list_text("in the source but not needed", unneeded);
}

}  // namespace trainyard
