// trainyard usage: shows who has used which devices for how long, and what it cost.
#include <algorithm>
#include <ctime>
#include <memory>
#include <utility>

#include "client/cli/command.h"
#include "client/lib/names.h"
#include "src/base/duration.h"

namespace trainyard::cli {
namespace {

using Dimension = v1::GetUsageRequest::Dimension;

constexpr client::Rpc<v1::GetUsageRequest, v1::GetUsageResponse> kGetUsage{
    "SystemService/GetUsage"};

struct UsageOptions {
  std::string person;
  std::string since;
  std::vector<std::string> by;
};

const std::vector<std::pair<std::string, Dimension>>& dimensions() {
  static const std::vector<std::pair<std::string, Dimension>> all{
      {"day", v1::GetUsageRequest::DAY},
      {"project", v1::GetUsageRequest::PROJECT},
      {"person", v1::GetUsageRequest::PERSON},
      {"device", v1::GetUsageRequest::DEVICE}};
  return all;
}

Result<v1::GetUsageRequest> make_request(const Session& session, const UsageOptions& options) {
  v1::GetUsageRequest request;
  const std::string& project = session.connection().project;
  if (!project.empty()) {
    request.set_project(project.starts_with("projects/") ? project : "projects/" + project);
  }
  request.set_person(options.person);
  if (!options.since.empty()) {
    const std::optional<int64_t> seconds = parse_duration(options.since);
    if (!seconds) return usage_error("--since: expected a time such as 7d or 90d");
    request.mutable_since_time()->set_seconds(std::max<int64_t>(std::time(nullptr) - *seconds, 1));
  }
  for (const std::string& name : options.by) {
    const auto found = std::ranges::find(dimensions(), name, [](const auto& d) { return d.first; });
    if (found == dimensions().end()) {
      return usage_error("--by: " + name + ", expected person, project, device or day");
    }
    request.add_by(found->second);
  }
  if (options.by.empty()) {
    request.add_by(v1::GetUsageRequest::PERSON);
    request.add_by(v1::GetUsageRequest::DEVICE);
  }
  return request;
}

bool is_by(const v1::GetUsageRequest& request, Dimension dimension) {
  return std::ranges::find(request.by(), dimension) != request.by().end();
}

std::string hours(double seconds) { return human_number(seconds / 3600); }

/// Marks a number that covers only a part of the time.
std::string partial(const std::string& number, double part_s, double all_s) {
  constexpr double kRounding = 1e-6;
  return part_s + kRounding < all_s ? number + "+" : number;
}

std::string energy_text(const v1::UsageRow& row) {
  constexpr double kJoulesPerKwh = 3.6e6;
  if (!row.has_energy_joules()) return "";
  return partial(human_number(row.energy_joules() / kJoulesPerKwh), row.metered_device_seconds(),
                 row.device_seconds());
}

std::string cost_text(const v1::UsageRow& row) {
  if (!row.has_cost()) return "";
  return partial(human_number(row.cost()), row.priced_device_seconds(), row.device_seconds());
}

std::string render(const v1::GetUsageRequest& request, const v1::GetUsageResponse& usage,
                   const Terminal& out) {
  std::vector<Column> columns;
  for (const auto& [name, dimension] : dimensions()) {
    if (!is_by(request, dimension)) continue;
    std::string title = name;
    std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
    columns.push_back({.title = title, .is_name = dimension != v1::GetUsageRequest::DAY});
  }
  for (const char* title : {"DEVICE-HOURS", "RESERVED", "KWH", "COST"}) {
    columns.push_back({.title = title, .right = true});
  }
  Table table(std::move(columns));
  for (const v1::UsageRow& row : usage.rows()) {
    std::vector<Cell> cells;
    if (is_by(request, v1::GetUsageRequest::DAY)) cells.emplace_back(row.day());
    if (is_by(request, v1::GetUsageRequest::PROJECT)) {
      cells.emplace_back(std::string(client::short_name(row.project())));
    }
    if (is_by(request, v1::GetUsageRequest::PERSON)) cells.emplace_back(row.person());
    if (is_by(request, v1::GetUsageRequest::DEVICE)) cells.emplace_back(row.device_kind());
    cells.emplace_back(hours(row.device_seconds()));
    cells.emplace_back(row.reserved_device_seconds() > 0 ? hours(row.reserved_device_seconds())
                                                         : std::string());
    cells.emplace_back(energy_text(row));
    cells.emplace_back(cost_text(row));
    table.add(std::move(cells));
  }
  return table.render(out);
}

std::string csv(const v1::GetUsageResponse& usage) {
  std::string text =
      "day,project,person,device_kind,device_seconds,reserved_device_seconds,energy_joules,"
      "metered_device_seconds,cost,priced_device_seconds\n";
  const auto number = [](double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.6f", value);
    return std::string(digits);
  };
  for (const v1::UsageRow& row : usage.rows()) {
    text += csv_field(row.day()) + "," + csv_field(row.project()) + "," + csv_field(row.person()) +
            "," + csv_field(row.device_kind()) + "," + number(row.device_seconds()) + "," +
            number(row.reserved_device_seconds()) + "," +
            (row.has_energy_joules() ? number(row.energy_joules()) : std::string()) + "," +
            number(row.metered_device_seconds()) + "," +
            (row.has_cost() ? number(row.cost()) : std::string()) + "," +
            number(row.priced_device_seconds()) + "\n";
  }
  return text;
}

Result<int> run_usage(Session& session, const UsageOptions& options) {
  ASSIGN_OR_RETURN(const v1::GetUsageRequest request, make_request(session, options));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::GetUsageResponse usage, server->call(kGetUsage, request));
  if (session.format() == Format::kCsv) {
    session.out().write(csv(usage));
    return static_cast<int>(client::kExitOk);
  }
  const bool empty = usage.rows().empty();
  session.show(usage, [&] { return empty ? std::string() : render(request, usage, session.out()); },
               {});
  if (empty) session.hint("No device was used in this time by jobs that you may see.");
  const bool is_partial = std::ranges::any_of(usage.rows(), [](const v1::UsageRow& row) {
    return (row.has_cost() && row.priced_device_seconds() < row.device_seconds()) ||
           (row.has_energy_joules() && row.metered_device_seconds() < row.device_seconds());
  });
  if (is_partial) session.hint("+ The number is known only for a part of the time.");
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command usage_command() {
  auto o = std::make_shared<UsageOptions>();
  return {"usage",
          "Show who has used which devices for how long, and what it cost",
          {"trainyard usage", "trainyard usage --by project --by device --since 90d",
           "trainyard usage --project vision --by person", "trainyard usage --by day -o csv"},
          "You see the use by your own jobs and, in projects that you maintain, by everyone's. A "
          "running job counts until\nnow; RESERVED is the rest of its forecast. Days are those of "
          "UTC.",
          [o](OptionSet& options) {
            options.text("--person", "NAME", o->person, "only jobs of this person");
            options.text("--since", "TIME", o->since,
                         "since so long ago: 7d, 90d; default 30 days");
            options.texts("--by", "WHAT", o->by,
                          "one row for each person, project, device or day; may be repeated; "
                          "default person and device",
                          {"person", "project", "device", "day"});
          },
          [o](Session& session) { return run_usage(session, *o); }};
}

}  // namespace trainyard::cli
