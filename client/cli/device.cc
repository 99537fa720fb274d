// trainyard device list, drain, resume: commands for the devices and clusters on which jobs run.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/forecast_view.h"
#include "client/cli/job_label.h"
#include "client/cli/relative_name.h"
#include "client/cli/time_range.h"
#include "client/lib/names.h"
#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::ListDevicesRequest, v1::ListDevicesResponse> kListDevices{
    "SystemService/ListDevices"};
constexpr client::Rpc<v1::DrainDeviceRequest, v1::Device> kDrainDevice{
    "SystemService/DrainDevice", client::Repeat::kUntilDeadline};
constexpr client::Rpc<v1::ResumeDeviceRequest, v1::Device> kResumeDevice{
    "SystemService/ResumeDevice", client::Repeat::kUntilDeadline};

struct DrainOptions {
  std::vector<std::string> names;
  std::string reason;
  bool pause = false;
};

/// Adds "devices/" unless it is there: "gpu-0" and "devices/gpu-0" mean the same.
std::string full_device_name(const std::string& given) {
  return given.starts_with("devices/") ? given : "devices/" + given;
}

std::string drained_text(const v1::Device& device, bool vacates) {
  const int jobs = device.uses_size();
  if (jobs == 0) return " is drained; no job runs there";
  const std::string count = std::to_string(jobs) + (jobs == 1 ? " job" : " jobs");
  return " is drained; " + count +
         (vacates ? " there will save a checkpoint and return to the queue"
                  : std::string(" there ") + (jobs == 1 ? "continues" : "continue"));
}

Result<int> run_drain(Session& session, const DrainOptions& options) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  for (const std::string& given : options.names) {
    v1::DrainDeviceRequest request;
    request.set_name(full_device_name(given));
    request.set_reason(options.reason);
    request.set_vacate(options.pause);
    ASSIGN_OR_RETURN(const v1::Device device, server->call(kDrainDevice, request));
    session.show(device, [&] { return std::string(); }, {device.name()});
    if (session.machine()) continue;
    session.err().line(safe_text(relative_name(device.name())) +
                       drained_text(device, options.pause));
  }
  return static_cast<int>(client::kExitOk);
}

Result<int> run_resume(Session& session, const std::vector<std::string>& names) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  for (const std::string& given : names) {
    ASSIGN_OR_RETURN(const v1::Device device, server->call(kResumeDevice, full_device_name(given)));
    session.show(device, [&] { return std::string(); }, {device.name()});
    if (session.machine()) continue;
    session.err().line(safe_text(relative_name(device.name())) + " is no longer drained" +
                       (device.reason().empty() ? "" : ". " + safe_text(device.reason())));
  }
  return static_cast<int>(client::kExitOk);
}

std::string health_text(const v1::Device& d) {
  std::string text = v1::Device::Health_Name(d.health());
  if (!d.reason().empty()) text += " (" + d.reason() + ")";
  if (d.faults() > 0) {
    text += ", its driver has reported " + std::to_string(d.faults()) +
            (d.faults() == 1 ? " fault" : " faults");
  }
  return text;
}

/// Returns the load of a GPU, as far as the server knows it: "97 %, 64 C, 310 W of 700 W".
std::string load_text(const v1::Device& d) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (d.has_utilisation_percent()) add(std::to_string(d.utilisation_percent()) + " %");
  if (d.has_temperature_celsius()) add(std::to_string(d.temperature_celsius()) + " C");
  if (d.has_power_watts()) {
    const auto watts = [](double w) { return std::to_string(std::lround(w)) + " W"; };
    add(watts(d.power_watts()) +
        (d.has_power_limit_watts() ? " of " + watts(d.power_limit_watts()) : ""));
  }
  return text;
}

/// Returns the jobs that run on a device: "digits-1 (1.2 GiB planned, 1.1 GiB used, ends in 5
/// min), held by another project's job (4 GiB planned)".
std::string jobs_text(const v1::Device& d, std::string_view parent) {
  std::string text;
  for (const v1::DeviceUse& use : d.uses()) {
    text += text.empty() ? "" : ", ";
    text += (use.other_project() ? "held by " : "") + job_label(use.job(), parent);
    std::string more;
    const auto add = [&](const std::string& part) { more += (more.empty() ? "" : ", ") + part; };
    if (use.planned_bytes() > 0) add(human_bytes(use.planned_bytes()) + " planned");
    if (use.measured_bytes() > 0) add(human_bytes(use.measured_bytes()) + " used");
    if (use.has_end()) add("ends " + when(use.end(), std::time(nullptr)));
    if (use.forecast_share() > 0) {
      add(pace_text(use.forecast_share(), use.bound_share(), use.held_back_by()));
    }
    if (!more.empty()) text += " (" + more + ")";
  }
  return text;
}

/// Returns the resources of a cluster's node that one job gets: "4 cores, 1.2 GiB" or "up to 8 x
/// a100".
std::string node_text(const v1::Cluster& cluster) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (cluster.gpus_per_node() > 0) {
    add("up to " + std::to_string(cluster.gpus_per_node()) + " x " +
        (cluster.gpu_type().empty() ? "GPU" : cluster.gpu_type()));
  }
  add(std::to_string(cluster.cpus()) + (cluster.cpus() == 1 ? " core" : " cores"));
  if (cluster.memory_bytes() > 0) add(human_bytes(cluster.memory_bytes()));
  return text;
}

/// Returns the cluster's node types that have measured rates.
std::string measured_text(const v1::Cluster& cluster) {
  std::string text;
  for (const v1::ClusterNode& node : cluster.node_types()) {
    text += (text.empty() ? "measured: " : "; ") + node.model();
    if (node.memory_bytes() > 0) text += ", " + human_bytes(node.memory_bytes());
    text += " (last seen " + local_time(node.seen_time()) + ")";
  }
  return text;
}

std::string cluster_job_text(const v1::ClusterJob& job, std::string_view parent) {
  const std::string text = job_label(job.job(), parent);
  std::string more;
  const auto add = [&](const std::string& part) { more += (more.empty() ? "" : ", ") + part; };
  if (!job.handle().empty()) add("job " + job.handle());
  if (job.granted() && !job.nodes().empty()) add("on " + job.nodes());
  if (job.other_project() && job.granted()) add("has a node");
  if (!job.granted()) add(job.reason().empty() ? "waits" : "waits: " + job.reason());
  if (job.has_start_time()) {
    v1::TimeRange start;
    *start.mutable_low() = *start.mutable_likely() = *start.mutable_high() = job.start_time();
    add("starts " + when(start, std::time(nullptr)));
  }
  return more.empty() ? text : text + " (" + more + ")";
}

/// Returns a table of the clusters that take jobs, followed by one line for each job there.
std::string render_clusters(const v1::ListDevicesResponse& list, const Terminal& out,
                            std::string_view parent) {
  const int width = out.line_width();
  Table table({{"CLUSTER"},
               {"KIND"},
               {.title = "A JOB GETS", .shortens = width > 0},
               {"WAITING", true},
               {"RUNNING", true}});
  for (const v1::Cluster& cluster : list.clusters()) {
    const auto running = std::ranges::count_if(cluster.jobs(), &v1::ClusterJob::granted);
    table.add({std::string(relative_name(cluster.name())), cluster.kind(), node_text(cluster),
               std::to_string(cluster.jobs_size() - running) + " of " +
                   std::to_string(cluster.waiting_max()),
               std::to_string(running)});
  }
  std::string text = "\n" + table.render(out);
  for (const v1::Cluster& cluster : list.clusters()) {
    const auto add = [&](const std::string& sentence) {
      text += wrapped(safe_text(sentence), width, /*indent=*/2) + "\n";
    };
    for (size_t at = 0; at < cluster.note().size();) {
      const size_t end = std::min(cluster.note().find('\n', at), cluster.note().size());
      add(cluster.note().substr(at, end - at));
      at = end + 1;
    }
    if (const std::string nodes = measured_text(cluster); !nodes.empty()) {
      add(std::string(relative_name(cluster.name())) + ": " + nodes);
    }
    for (const v1::ClusterJob& job : cluster.jobs()) {
      add(std::string(client::short_name(cluster.name())) + ": " + cluster_job_text(job, parent));
    }
  }
  return text;
}

/// Returns a table of the devices. The jobs and the reason of a device's health are columns if the
/// terminal is wide enough, else lines below the table.
std::string render_devices(const v1::ListDevicesResponse& list, const Terminal& out,
                           std::string_view parent) {
  const int width = out.line_width();
  const auto table_of = [&](bool sentences) {
    std::vector<Column> columns = {
        {"NAME"},
        {"KIND"},
        {.title = "MODEL", .shortens = width > 0, .shortest = 8},
        {"HEALTH"},
        {"MEMORY", true},
        {"USED", true},
        {.title = "BY OTHERS", .right = true, .shortens = width > 0, .shortest = 9},
        {.title = "LOAD", .shortens = width > 0, .shortest = 4},
        {"SLOTS", true}};
    if (sentences) columns.push_back({"JOBS"});
    Table table(std::move(columns));
    for (const v1::Device& d : list.devices()) {
      std::vector<Cell> cells = {
          std::string(relative_name(d.name())),
          v1::Device::Kind_Name(d.kind()),
          d.model(),
          Cell(sentences ? health_text(d) : v1::Device::Health_Name(d.health()),
               d.health() == v1::Device::HEALTHY ? Style::kGood : Style::kNotice),
          d.memory_bytes() > 0 ? human_bytes(d.memory_bytes()) : "",
          d.memory_bytes() > 0 ? human_bytes(d.memory_used_bytes()) : "",
          d.others_bytes() > 0 ? human_bytes(d.others_bytes()) : "",
          load_text(d),
          std::to_string(d.slots())};
      if (sentences) cells.emplace_back(jobs_text(d, parent));
      table.add(std::move(cells));
    }
    return table;
  };
  const Table whole = table_of(true);
  const bool below = width > 0 && whole.least_width() > width;
  std::string text = (below ? table_of(false) : whole).render(out);
  const auto add_sentence = [&](const v1::Device& d, const std::string& sentence) {
    text += wrapped(safe_text(std::string(relative_name(d.name())) + ": " + sentence), width,
                    /*indent=*/2) +
            "\n";
  };
  for (const v1::Device& d : list.devices()) {
    if (below && (!d.reason().empty() || d.faults() > 0)) add_sentence(d, health_text(d));
    if (below && d.uses_size() > 0) add_sentence(d, jobs_text(d, parent));
  }
  for (const v1::ProjectDevices& limited : list.project_devices()) {
    std::vector<std::string> names;
    for (const std::string& name : limited.devices()) {
      names.push_back(name == "gpu" ? "all GPUs" : std::string(client::short_name(name)));
    }
    text += wrapped(safe_text("The project " + std::string(client::short_name(limited.project())) +
                              " may use only " + joined(names, " and ") + "."),
                    width) +
            "\n";
  }
  if (!list.note().empty()) text += wrapped(safe_text(list.note()), width) + "\n";
  if (list.clusters_size() > 0) text += render_clusters(list, out, parent);
  return text;
}

Result<int> run_device(Session& session, bool forecasts) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  v1::ListDevicesRequest request;
  request.set_forecasts(forecasts);
  ASSIGN_OR_RETURN(const v1::ListDevicesResponse list, server->call(kListDevices, request));
  std::vector<std::string> names;
  for (const v1::Device& device : list.devices()) names.push_back(device.name());
  session.show(
      list,
      [&] {
        const std::string parent = server->parent();
        if (forecasts) return render_device_forecasts(list, session.out().colour(), parent);
        return render_devices(list, session.out(), parent);
      },
      names);
  return static_cast<int>(client::kExitOk);
}

}  // namespace

std::vector<Command> device_commands() {
  auto drain = std::make_shared<DrainOptions>();
  auto resumed = std::make_shared<std::vector<std::string>>();
  auto forecasts = std::make_shared<bool>(false);
  return {
      {"device list",
       "List devices, their memory and the jobs on them",
       {"trainyard device list", "trainyard device list --forecasts",
        "trainyard device list -o json"},
       "",
       [forecasts](OptionSet& options) {
         options.flag("--forecasts", *forecasts,
                      "show what job forecasts are based on, and their errors");
       },
       [forecasts](Session& session) { return run_device(session, *forecasts); }},
      {"device drain",
       "Start no more jobs on devices until they are resumed",
       {"trainyard device drain gpu-0 --reason 'a new fan on Friday'",
        "trainyard device drain gpu-0 gpu-1 --pause"},
       "Jobs that run there continue, or with --pause save a checkpoint and return to the queue; "
       "they may then start\non another device. A drain survives restarts of the server; jobs "
       "that "
       "wait for the device say so. Safe to repeat.",
       [drain](OptionSet& options) {
         options.positionals("DEVICE", drain->names,
                             "the devices' names, as 'device list' shows them");
         options.text("--reason", "TEXT", drain->reason, "the reason, shown to everyone");
         options.flag("--pause", drain->pause, "send the jobs on it back to the queue");
       },
       [drain](Session& session) { return run_drain(session, *drain); }},
      {"device resume",
       "Let jobs start on drained devices again",
       {"trainyard device resume gpu-0"},
       "",
       [resumed](OptionSet& options) {
         options.positionals("DEVICE", *resumed, "the devices' names, as 'device list' shows them");
       },
       [resumed](Session& session) { return run_resume(session, *resumed); }},
  };
}

}  // namespace trainyard::cli
