#include "server/planning/compare_planners.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace trainyard::server {
namespace {

std::string text_of(const Error& error) {
  std::string text = "error " + std::to_string(static_cast<int>(error.code)) + " " + error.reason +
                     ": " + error.message + "\n";
  for (const auto& [key, value] : error.metadata) text += key + " = " + value + "\n";
  for (const auto& v : error.violations) text += v.field + ": " + v.description + "\n";
  return text;
}

std::string text_of(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

void compare(const std::string& asked, const std::string& now, const std::string& before) {
  if (const char* counts = std::getenv("TRAINYARD_COMPARED")) {
    std::ofstream(counts, std::ios::app)
        << (now.starts_with("error") ? "refused" : "planned")
        << (now.find("fit_choice") != now.npos ? " fitted" : "") << '\n';
  }
  // An incident has a number of its own.
  if (now == before || (now.find("INTERNAL") != now.npos && before.find("INTERNAL") != now.npos))
    return;
  std::fprintf(stderr, "PLANNERS DIFFER\n== asked\n%s\n== now\n%s\n== before\n%s\n", asked.c_str(),
               now.c_str(), before.c_str());
  std::abort();
}

std::string text_of(const Result<PlannedJob>& planned) {
  if (!planned.ok()) return text_of(planned.error());
  std::string text = text_of(planned->spec) + text_of(planned->plan) + planned->dataset_digest +
                     " " + planned->initial_model_id + "\n";
  if (planned->lacks_weights) text += text_of(*planned->lacks_weights);
  for (const Dependency& after : planned->after) text += after.id + "\n";
  return text;
}

std::string text_of(const Result<v1::JobPlan>& plan, bool rows_differ) {
  if (!plan.ok()) return text_of(plan.error());
  v1::JobPlan p = *plan;
  std::vector<std::string> warnings(p.warnings().begin(), p.warnings().end());
  std::ranges::sort(warnings);
  if (rows_differ) {  // a job that was made to fit leaves its rows on the host now, as its submit
    p.mutable_run()->mutable_memory()->set_dataset_bytes(0);
    p.mutable_run()->clear_forecasts();
    p.mutable_run()->clear_device_advice();
    p.mutable_fit()->clear_bytes_needed();
    std::erase_if(warnings,
                  [](const std::string& w) { return w.starts_with("the GPU has no room"); });
  }
  p.mutable_warnings()->Assign(warnings.begin(), warnings.end());
  return text_of(p);
}

}  // namespace

bool are_same(const Result<PlannedJob>& now, const Result<PlannedJob>& before) {
  return text_of(now) == text_of(before);
}

void compare_planned(const v1::JobSpec& spec, Result<PlannedJob> now, Result<PlannedJob> before) {
  compare(text_of(spec), text_of(now), text_of(before));
}

void compare_plans(const v1::PlanJobRequest& request, Result<v1::JobPlan> now,
                   Result<v1::JobPlan> before) {
  const bool rows_differ = now.ok() && before.ok() &&
                           before->run().fit_choice().bytes_as_written() > 0 &&
                           before->run().memory().dataset_bytes() > 0;
  compare(text_of(request), text_of(now, rows_differ), text_of(before, rows_differ));
}

}  // namespace trainyard::server
