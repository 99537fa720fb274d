#include "client/cli/forecast_view.h"

#include <cmath>
#include <cstdio>

#include "client/cli/job_label.h"
#include "client/cli/job_view.h"
#include "client/cli/output.h"
#include "client/cli/relative_name.h"
#include "client/cli/table.h"
#include "client/lib/names.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

std::string range_text(double seconds, double low, double high) {
  return human_duration(seconds) + " (" + human_duration(low) + " to " + human_duration(high) + ")";
}

std::string percent_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f%%", share * 100);
  return text;
}

/// Returns the rows per second that the steps need and that the loader supplies: "12k of 30k".
std::string rows_text(const v1::Forecast& f) {
  if (f.rows_per_second_needed() <= 0) return "";
  std::string text = human_number(f.rows_per_second_needed(), true);
  if (f.rows_per_second_possible() > 0) {
    text += " of " + human_number(f.rows_per_second_possible(), true);
  }
  return text;
}

std::string energy_text(const v1::Forecast& f) {
  constexpr double kJoulesPerWattHour = 3600;
  if (f.energy_joules() <= 0) return "";
  return ", about " + human_number(f.energy_joules() / kJoulesPerWattHour) + " Wh";
}

/// Returns how accurate past forecasts were, which rates are missing, and the price.
std::string jobs_line(const v1::DeviceForecasts& f) {
  std::string line;
  if (f.jobs() == 0) {
    line += "no job with a forecast has finished";
  } else {
    line += std::to_string(f.jobs()) + (f.jobs() == 1 ? " job" : " jobs") + ", off by " +
            percent_text(f.error_median()) + " (median), " + percent_text(f.error_p95()) +
            " (95th percentile)";
  }
  if (!f.missing().empty()) line += "; " + f.missing();
  if (f.price_per_hour() > 0) line += "; " + human_number(f.price_per_hour()) + " an hour";
  return line;
}

/// Returns how a cluster's time limit divides the job into starts; empty where no limit is known.
std::string time_limit_text(const v1::Forecast& f) {
  if (f.time_limit_seconds() <= 0) return "";
  const std::string limit = human_duration(static_cast<double>(f.time_limit_seconds()));
  if (f.starts() == 0) return "its time limit of " + limit + " leaves no time for steps";
  if (f.starts() == 1) return "within its time limit of " + limit;
  return "its time limit of " + limit + " splits it into " + std::to_string(f.starts()) +
         " starts; the total time excludes the waits between them";
}

void add_outcomes(Table& outcomes, const std::string& name, const v1::DeviceForecasts& f,
                  std::string_view parent) {
  for (const v1::ForecastOutcome& o : f.newest()) {
    const double off = o.step_seconds() / o.step_seconds_measured() - 1;
    outcomes.add({job_label(o.job(), parent), name, cli::step_text(o.step_seconds()),
                  cli::step_text(o.step_seconds_measured()), percent_text(off), o.basis()});
  }
}

/// Returns a table of the clusters' node types with measured rates.
std::string render_cluster_forecasts(const v1::ListDevicesResponse& devices, bool colour) {
  if (devices.clusters().empty()) return "";
  std::string text;
  Table rates({{"CLUSTER"},
               {"NODE"},
               {"MEMORY", true},
               {"THREADS", true},
               {"PRECISION"},
               {"MEASURED"},
               {"SEEN"},
               {"FLOP/S", true},
               {"BYTES/S", true}});
  for (const v1::Cluster& cluster : devices.clusters()) {
    const std::string name(relative_name(cluster.name()));
    for (const v1::ClusterNode& node : cluster.node_types()) {
      for (const v1::MeasuredRates& r : node.rates()) {
        rates.add(
            {name, node.model(), node.memory_bytes() > 0 ? human_bytes(node.memory_bytes()) : "",
             r.threads() > 0 ? std::to_string(r.threads()) : "", precision_text(r.precision()),
             local_time(r.measure_time()), local_time(node.seen_time()),
             human_number(r.flops_per_second(), true), human_number(r.bytes_per_second(), true)});
      }
    }
    text += safe_text(name + ": " + jobs_line(cluster.forecasts())) + "\n";
  }
  return text + (rates.empty() ? "" : "\n" + rates.render(colour));
}

}  // namespace

std::string step_text(double seconds) {
  if (seconds <= 0) return "";
  char text[32];
  if (seconds < 1e-3) {
    std::snprintf(text, sizeof text, "%.0f us", seconds * 1e6);
  } else if (seconds < 1) {
    std::snprintf(text, sizeof text, "%.3g ms", seconds * 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  }
  return text;
}

std::string render_forecasts(const v1::RunPlan& plan, bool colour) {
  if (plan.forecasts().empty()) return "";
  Table table({{"FORECAST"},
               {"STEP", true},
               {"TOTAL TIME"},
               {"LIMITED BY"},
               {"ROWS/S", true},
               {"COST", true}});
  std::string unknown;
  for (const v1::Forecast& f : plan.forecasts()) {
    std::string device(relative_name(f.device()));
    const bool cluster = f.device().starts_with("clusters/");
    if (f.devices() > 1) {
      device += cluster ? " x " + std::to_string(f.devices())
                        : " and " + std::to_string(f.devices() - 1) + " more";
    }
    if (f.step_seconds() <= 0) {
      unknown += safe_text(device + ": " + f.basis()) + "\n";
      table.add({device, Cell("unknown", Style::kDim), "", "", "", ""});
      continue;
    }
    table.add({device, step_text(f.step_seconds()),
               range_text(f.total_seconds(), f.total_seconds_low(), f.total_seconds_high()),
               f.limited_by(), rows_text(f), f.cost() > 0 ? human_number(f.cost()) : ""});
    unknown += safe_text(device + ": forecast from " + f.basis() + energy_text(f)) + "\n";
    if (const std::string limit = time_limit_text(f); !limit.empty()) {
      unknown += safe_text(device + ": " + limit) + "\n";
    }
  }
  return table.render(colour) + unknown;
}

std::string pace_text(double forecast_share, double bound_share, const std::string& held_back_by) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (forecast_share > 0) add(human_number(forecast_share) + "x as fast as forecast");
  if (bound_share > 0) {
    add("at " + std::to_string(std::lround(bound_share * 100)) + "% of the device's bound");
  }
  if (!held_back_by.empty()) add("held back by " + held_back_by);
  return text;
}

std::string remaining_text(const v1::Progress& progress) {
  if (progress.remaining_seconds() <= 0) return "";
  std::string text = range_text(progress.remaining_seconds(), progress.remaining_seconds_low(),
                                progress.remaining_seconds_high());
  const std::string pace =
      pace_text(progress.forecast_share(), progress.bound_share(), progress.held_back_by());
  return text + (pace.empty() ? "" : ", " + pace);
}

std::string render_device_forecasts(const v1::ListDevicesResponse& devices, bool colour,
                                    std::string_view parent) {
  std::string text;
  Table rates({{"DEVICE"},
               {"THREADS", true},
               {"PRECISION"},
               {"MEASURED"},
               {"FLOP/S", true},
               {"BYTES/S", true}});
  Table outcomes({{"JOB"},
                  {"DEVICE"},
                  {"FORECAST STEP", true},
                  {"MEASURED", true},
                  {"OFF BY", true},
                  {"BASIS"}});
  for (const v1::Device& device : devices.devices()) {
    const std::string name(relative_name(device.name()));
    const v1::DeviceForecasts& f = device.forecasts();
    for (const v1::MeasuredRates& r : f.rates()) {
      rates.add({name, r.threads() > 0 ? std::to_string(r.threads()) : "",
                 precision_text(r.precision()), local_time(r.measure_time()),
                 human_number(r.flops_per_second(), true),
                 human_number(r.bytes_per_second(), true)});
    }
    add_outcomes(outcomes, name, f, parent);
    text += safe_text(name + ": " + jobs_line(f)) + "\n";
  }
  for (const v1::Cluster& cluster : devices.clusters()) {
    add_outcomes(outcomes, std::string(client::short_name(cluster.name())), cluster.forecasts(),
                 parent);
  }
  if (!rates.empty()) text += "\n" + rates.render(colour);
  if (const std::string clusters = render_cluster_forecasts(devices, colour); !clusters.empty()) {
    text += "\n" + clusters;
  }
  if (!outcomes.empty()) text += "\n" + outcomes.render(colour);
  return text;
}

}  // namespace trainyard::cli
