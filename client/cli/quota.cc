// trainyard quota list, set, unset.
#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/list_limit.h"
#include "client/lib/names.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kQuotaPageMax = 1000;
constexpr int64_t kQuotasOnScreen = 100;

constexpr client::Rpc<v1::ListQuotasRequest, v1::ListQuotasResponse> kListQuotas{
    "SystemService/ListQuotas"};
constexpr client::Rpc<v1::SetQuotaRequest, v1::Quota> kSetQuota{"SystemService/SetQuota",
                                                                client::Repeat::kUntilDeadline};

const std::vector<std::pair<std::string, v1::Quota::Kind>>& kinds() {
  static const std::vector<std::pair<std::string, v1::Quota::Kind>> all{
      {"queued_jobs", v1::Quota::QUEUED_JOBS},
      {"devices", v1::Quota::DEVICES},
      {"device_hours", v1::Quota::DEVICE_HOURS},
      {"stored_bytes", v1::Quota::STORED_BYTES},
      {"model_calls", v1::Quota::MODEL_CALLS}};
  return all;
}

std::string kind_name(v1::Quota::Kind kind) {
  for (const auto& [name, value] : kinds()) {
    if (value == kind) return name;
  }
  return v1::Quota::Kind_Name(kind);
}

struct QuotaOptions {
  std::string kind;
  std::string limit;
  std::string person;
  ListLimit limits;
};

/// Reads a number, with K, M, G or T for powers of 1024 in a number of bytes.
Result<int64_t> read_limit(v1::Quota::Kind kind, const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const bool bytes = kind == v1::Quota::STORED_BYTES;
  std::string unit(stop, end);
  if (unit.ends_with('B') && unit.size() > 1) unit.pop_back();
  if (unit.ends_with('i') && unit.size() > 1) unit.pop_back();
  constexpr std::string_view kUnits = "KMGT";
  const size_t power = unit.size() == 1 ? kUnits.find(unit[0]) : std::string_view::npos;
  const bool has_unit = bytes && power != std::string_view::npos;
  const int shift = has_unit ? 10 * (static_cast<int>(power) + 1) : 0;
  constexpr int64_t kMax = int64_t{1} << 50;
  if (error == std::errc() && number >= 0 && (unit.empty() || has_unit) &&
      number <= kMax >> shift) {
    return number << shift;
  }
  return usage_error("LIMIT: " + text + ", expected a whole number from 0 to 2^50" +
                     (bytes ? ", such as 500G" : ""));
}

Result<v1::SetQuotaRequest> make_request(const Session& session, const QuotaOptions& options) {
  v1::SetQuotaRequest request;
  const auto kind = std::ranges::find(kinds(), options.kind, [](const auto& k) { return k.first; });
  if (kind == kinds().end()) {
    return usage_error("QUOTA: " + options.kind +
                       ", expected queued_jobs, devices, device_hours, stored_bytes or "
                       "model_calls");
  }
  request.set_kind(kind->second);
  const std::string& project = session.connection().project;
  if (!project.empty()) {
    request.set_project(project.starts_with("projects/") ? project : "projects/" + project);
  }
  request.set_person(options.person);
  if (project.empty() && options.person.empty()) {
    return usage_error("say whose quota: --project, --person, or both");
  }
  return request;
}

std::string owner_text(const v1::Quota& quota) {
  const std::string project(client::short_name(quota.project()));
  if (quota.person().empty()) return "project " + project;
  return quota.person() + (project.empty() ? "" : " in project " + project);
}

std::string amount_text(v1::Quota::Kind kind, double amount) {
  constexpr double kGib = 1 << 30;
  if (kind == v1::Quota::STORED_BYTES) return human_number(amount / kGib) + " GiB";
  return human_number(amount);
}

Result<int> run_list(Session& session, const QuotaOptions& options) {
  ASSIGN_OR_RETURN(const int64_t limit, options.limits.count(session));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  v1::ListQuotasRequest request;
  v1::ListQuotasResponse all;
  do {
    request.set_page_size(static_cast<int32_t>(std::min(limit - all.quotas_size(), kQuotaPageMax)));
    ASSIGN_OR_RETURN(v1::ListQuotasResponse page, server->call(kListQuotas, request));
    for (v1::Quota& quota : *page.mutable_quotas()) *all.add_quotas() = std::move(quota);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && all.quotas_size() < limit);
  Table table({{"QUOTA"}, {.title = "OF", .is_name = true}, {"LIMIT", true}, {"USED", true}});
  std::vector<std::string> names;
  for (const v1::Quota& quota : all.quotas()) {
    names.push_back(kind_name(quota.kind()) + " of " + owner_text(quota));
    const bool measured = quota.kind() != v1::Quota::MODEL_CALLS;
    table.add({kind_name(quota.kind()), owner_text(quota),
               amount_text(quota.kind(), static_cast<double>(quota.limit())),
               measured ? amount_text(quota.kind(), quota.used()) : std::string()});
  }
  session.show(
      all, [&] { return names.empty() ? std::string() : table.render(session.out()); }, names);
  if (names.empty()) session.hint("No quotas.");
  if (!request.page_token().empty()) session.hint("There are more; raise --limit to see them.");
  return static_cast<int>(client::kExitOk);
}

Result<int> run_set(Session& session, const QuotaOptions& options) {
  ASSIGN_OR_RETURN(v1::SetQuotaRequest request, make_request(session, options));
  ASSIGN_OR_RETURN(const int64_t limit, read_limit(request.kind(), options.limit));
  request.set_limit(limit);
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::Quota quota, server->call(kSetQuota, request));
  const std::string text = kind_name(quota.kind()) + " of " + owner_text(quota);
  session.show(quota,
               [&] {
                 return text + ": " +
                        amount_text(quota.kind(), static_cast<double>(quota.limit())) + "\n";
               },
               {text});
  return static_cast<int>(client::kExitOk);
}

Result<int> run_unset(Session& session, const QuotaOptions& options) {
  ASSIGN_OR_RETURN(v1::SetQuotaRequest request, make_request(session, options));
  request.set_remove(true);
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::Quota quota, server->call(kSetQuota, request));
  const std::string text = kind_name(quota.kind()) + " of " + owner_text(quota);
  session.show(quota, [&] { return text + ": no limit\n"; }, {text});
  return static_cast<int>(client::kExitOk);
}

void add_kind(OptionSet& options, QuotaOptions& o) {
  options.positional("QUOTA", o.kind,
                     "queued_jobs, devices, device_hours, stored_bytes or model_calls");
}

void add_person(OptionSet& options, QuotaOptions& o) {
  options.text("--person", "NAME", o.person,
               "of this person; with --project, only in that project");
}

Command quota_list_command() {
  auto o = std::make_shared<QuotaOptions>();
  return {"quota list",
          "List your quotas and those of your projects, and what is used of them",
          {"trainyard quota list", "trainyard quota list -o json"},
          "Device-hours are those of the last 30 days and the forecasts of running jobs.",
          [o](OptionSet& options) { o->limits.add_option(options, "quotas", kQuotasOnScreen); },
          [o](Session& session) { return run_list(session, *o); }};
}

Command quota_set_command() {
  auto o = std::make_shared<QuotaOptions>();
  return {"quota set",
          "Set a quota of a project, a person, or a person in a project (admins)",
          {"trainyard quota set devices 4 --project vision",
           "trainyard quota set device_hours 500 --person alice",
           "trainyard quota set stored_bytes 200G --project vision --person alice"},
          "Jobs wait for devices and device_hours (in 30 days); beyond the other quotas requests "
          "are refused. model_calls\nare those of one minute.",
          [o](OptionSet& options) {
            add_kind(options, *o);
            options.positional("LIMIT", o->limit, "a whole number; of bytes also such as 500G");
            add_person(options, *o);
          },
          [o](Session& session) { return run_set(session, *o); }};
}

Command quota_unset_command() {
  auto o = std::make_shared<QuotaOptions>();
  return {"quota unset",
          "Remove a quota (admins)",
          {"trainyard quota unset devices --project vision"},
          "",
          [o](OptionSet& options) {
            add_kind(options, *o);
            add_person(options, *o);
          },
          [o](Session& session) { return run_unset(session, *o); }};
}

}  // namespace

std::vector<Command> quota_commands() {
  return {quota_list_command(), quota_set_command(), quota_unset_command()};
}

}  // namespace trainyard::cli
