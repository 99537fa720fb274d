// Compares scheduling policies on simulated clusters.
//
//   schedule_sim                 all tables, as Markdown (results/schedule_sim_*.md)
//   schedule_sim table NAME...   some of the tables
//   schedule_sim run [--gpus N] [--jobs N] [--shape philly|helios|pai] [--seed N] [--policy NAME]
//                    [--load X] [--spread X] [--mtbf HOURS] [--losses HOURS] [--others SHARE]
//                    [--owners N] [--half-life HOURS] [--no-preemption] [--equal] [--strict]
//                    [--starvation HOURS] [--until-event N] [--shrink INVARIANT]
//                                one run: its figures, violations and, at the end, the jobs that
//                                wait
//   schedule_sim cluster --folder EMPTY [--nodes N] [--hours H] [--jobs-per-node N] [--backlog N]
//                     [--waiting-max N]
//                                some hours of a cluster, with the daemon's store in that folder
//
// Utilisation, waits and fairness are measured in simulated time and are the same on every machine.
// Decision times are CPU times of this machine.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "server/cluster/slurm_placement.h"
#include "src/base/clock.h"
#include "tests/bench/schedule_sim/cluster_day.h"
#include "tests/bench/schedule_sim/simulation.h"

namespace trainyard::sim {
namespace {

struct Scenario {
  ClusterOptions cluster;
  TraceOptions trace;
  SimulationOptions simulation;
  TrainyardOptions trainyard;
};

struct Contender {
  const char* name;
  const char* title;
  std::function<std::unique_ptr<SchedulingPolicy>(const World&, const TrainyardOptions&)> make;
  int slots = 0;             // jobs at a time on a GPU; 0: as in the scenario
  bool gangs_alone = false;  // jobs with several GPUs request exclusive use of them
};

const std::vector<Contender>& contenders() {
  using Options = TrainyardOptions;
  static const std::vector<Contender> all = {
      {"fifo", "FIFO", [](const World& w, const Options&) { return make_fifo(w); }},
      {"priority", "strict priority",
       [](const World& w, const Options&) { return make_strict_priority(w); }},
      {"easy", "EASY backfill",
       [](const World& w, const Options&) { return make_easy_backfill(w); }},
      {"alone", "Trainyard, one job a GPU",
       [](const World& w, const Options& o) { return make_trainyard(w, o); }, 1},
      {"trainyard", "Trainyard",
       [](const World& w, const Options& o) { return make_trainyard(w, o); }},
      {"gangs-alone", "Trainyard, jobs of several GPUs exclusive",
       [](const World& w, const Options& o) { return make_trainyard(w, o); }, 0, true},
  };
  return all;
}
const Contender& contender(std::string_view name) {
  return *std::ranges::find(contenders(), name, &Contender::name);
}

std::vector<TraceJob> jobs_for(const Contender& contender, const TraceOptions& options,
                               const Cluster& cluster) {
  std::vector<TraceJob> jobs = make_trace(options, cluster);
  for (TraceJob& job : jobs) job.exclusive |= contender.gangs_alone && job.gpus > 1;
  return jobs;
}

Results run(const Scenario& scenario, const Contender& contender) {
  ClusterOptions options_of_cluster = scenario.cluster;
  if (contender.slots > 0) options_of_cluster.gpu_slots = contender.slots;
  const Cluster cluster = make_cluster(options_of_cluster);
  Simulation simulation(cluster, jobs_for(contender, scenario.trace, cluster), scenario.simulation);
  TrainyardOptions options = scenario.trainyard;
  options.forecast_spread = scenario.trace.forecast_spread;
  const auto policy = contender.make(simulation.world(), options);
  Results results = simulation.run(*policy);
  results.policy = contender.title;
  std::fprintf(stderr, "%s: %lld events, digest %016llx, %lld violations\n", contender.name,
               static_cast<long long>(results.events),
               static_cast<unsigned long long>(results.digest),
               static_cast<long long>(results.violation_count()));
  return results;
}

void print_violations(const Results& r) {
  for (const auto& [invariant, count] : r.violation_counts) {
    const Violation& first = *std::ranges::find(r.violations, invariant, &Violation::invariant);
    std::printf("\n%s violates `%s` %lld times, first at event %lld: %s\n", r.policy.c_str(),
                invariant.c_str(), static_cast<long long>(count),
                static_cast<long long>(first.event), first.text.c_str());
  }
  if (r.never_held > 0) {
    std::printf("\n%s leaves %lld jobs that the devices did not hold in the last 30 days: %s\n",
                r.policy.c_str(), static_cast<long long>(r.never_held),
                r.never_held_example.c_str());
  }
}

std::string seconds(double s) {
  std::array<char, 32> text{};
  if (s < 99.5) {
    std::snprintf(text.data(), text.size(), "%.0f s", s);
  } else if (s < 5940) {
    std::snprintf(text.data(), text.size(), "%.0f min", s / 60);
  } else {
    std::snprintf(text.data(), text.size(), "%.1f h", s / 3600);
  }
  return text.data();
}

void print_trace(const Scenario& scenario) {
  const Cluster cluster = make_cluster(scenario.cluster);
  const TraceFigures f = figures_of(make_trace(scenario.trace, cluster));
  std::printf(
      "%d GPUs, %d jobs of %d owners over %.1f h, shape `%s`, offered load %.2f, seed %llu. GPU "
      "jobs run %s in the median, %s in the mean; %.0f %% ask for one GPU and take %.0f %% of the "
      "time, %.0f %% ask for 8 or more and take %.0f %%; the busiest 5 %% of the owners submit "
      "%.0f %% of the jobs.\n",
      cluster.gpu_count, scenario.trace.jobs, scenario.trace.owners, f.span_hours,
      name_of(scenario.trace.shape), scenario.trace.load,
      static_cast<unsigned long long>(scenario.trace.seed), seconds(f.median_s).c_str(),
      seconds(f.mean_s).c_str(), 100 * f.single_share, 100 * f.single_time_share,
      100 * f.large_share, 100 * f.large_time_share, 100 * f.top_owner_share);
}

void print_summary(const std::vector<Results>& all) {
  std::printf(
      "\n| policy | GPUs in use | work per GPU time | Jain, between owners | from arrival to end, "
      "mean "
      "| mean slowdown | "
      "preemptions (in vain) | lost | makespan | violations | never held | digest |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
  for (const Results& r : all) {
    std::printf(
        "| %s | %.1f %% | %.3f | %.2f | %s | %.1f | %lld (%lld) | %.2f %% | %.1f h | %lld | "
        "%lld | `%016llx` "
        "|\n",
        r.policy.c_str(), 100 * r.busy_share, r.work_share, r.jain,
        seconds(r.waits.at("all").whole_s).c_str(), r.waits.at("all").slowdown,
        static_cast<long long>(r.preemptions), static_cast<long long>(r.useless_preemptions),
        100 * r.lost_share, r.makespan_hours, static_cast<long long>(r.violation_count()),
        static_cast<long long>(r.never_held), static_cast<unsigned long long>(r.digest));
  }
  std::printf("\n| waits: mean, p50, p95, p99 | jobs |");
  for (const Results& r : all) std::printf(" %s |", r.policy.c_str());
  std::printf("\n| --- | ---: |");
  for (size_t i = 0; i < all.size(); ++i) std::printf(" ---: |");
  std::printf("\n");
  for (const std::string& name : class_names()) {
    if (!all.front().waits.contains(name)) continue;
    std::printf("| %s | %lld |", name.c_str(),
                static_cast<long long>(all.front().waits.at(name).jobs));
    for (const Results& r : all) {
      const auto found = r.waits.find(name);
      if (found == r.waits.end()) {
        std::printf(" |");
        continue;
      }
      const WaitFigures& w = found->second;
      std::printf(" %s, %s, %s, %s |", seconds(w.mean_s).c_str(), seconds(w.p50_s).c_str(),
                  seconds(w.p95_s).c_str(), seconds(w.p99_s).c_str());
    }
    std::printf("\n");
  }
  for (const Results& r : all) print_violations(r);
  std::fflush(stdout);
}

void print_decisions(const std::vector<Results>& all) {
  std::printf(
      "\n| policy | decisions | waiting at most | decide p50 | p99 | max | indexes p50 | p99 |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const Results& r : all) {
    std::printf("| %s | %lld | %lld | %.3f ms | %.3f ms | %.2f ms | %.3f ms | %.3f ms |\n",
                r.policy.c_str(), static_cast<long long>(r.decisions),
                static_cast<long long>(r.waiting_max), r.decide_p50_ms, r.decide_p99_ms,
                r.decide_max_ms, r.index_p50_ms, r.index_p99_ms);
  }
  std::fflush(stdout);
}

void compare(const Scenario& scenario) {
  print_trace(scenario);
  std::vector<Results> all;
  for (const Contender& contender : contenders()) all.push_back(run(scenario, contender));
  print_summary(all);
  print_decisions(all);
}

Scenario scenario_of(int gpus, int jobs, TraceShape shape) {
  Scenario s;
  s.cluster.gpus = gpus;
  s.trace.jobs = jobs;
  s.trace.shape = shape;
  s.simulation.device_mtbf_hours = 2000;
  s.simulation.worker_mtbf_hours = 500;
  s.simulation.others_share = 0.02;
  return s;
}

void table_shapes() {
  std::printf("\n## Shapes\n");
  for (const TraceShape shape : {TraceShape::kHelios, TraceShape::kPhilly, TraceShape::kPai}) {
    std::printf("\n### %s\n\n", name_of(shape));
    compare(scenario_of(256, 20'000, shape));
  }
}

void table_small() {
  std::printf("\n## One host of 8 equal GPUs\n\n");
  Scenario s = scenario_of(8, 2'000, TraceShape::kHelios);
  s.cluster.models = {{"H100", 80 * kGiB, 1, 1}};
  s.trace.owners = 6;
  compare(s);
}

void table_spread() {
  std::printf("\n## Forecasts that are wrong\n\n");
  Scenario s = scenario_of(256, 20'000, TraceShape::kHelios);
  print_trace(s);
  std::printf(
      "\n| sigma of ln(forecast / truth) | policy | GPUs in use | work per GPU time | mean wait | "
      "p99 | mean slowdown | violations |\n| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: "
      "|\n");
  std::vector<Results> all;
  for (const double spread : {0.0, 0.2, 0.5, 1.0, 2.0}) {
    s.trace.forecast_spread = spread;
    for (const char* policy : {"easy", "alone", "trainyard"}) {
      const Results& r = all.emplace_back(run(s, contender(policy)));
      const WaitFigures& w = r.waits.at("all");
      std::printf("| %.1f | %s | %.1f %% | %.3f | %s | %s | %.1f | %lld |\n", spread,
                  r.policy.c_str(), 100 * r.busy_share, r.work_share, seconds(w.mean_s).c_str(),
                  seconds(w.p99_s).c_str(), w.slowdown,
                  static_cast<long long>(r.violation_count()));
    }
  }
  for (const Results& r : all) print_violations(r);
}

void table_trouble() {
  std::printf("\n## Failing devices and workers, processes outside\n\n");
  Scenario s = scenario_of(256, 20'000, TraceShape::kHelios);
  s.simulation.device_mtbf_hours = 200;
  s.simulation.worker_mtbf_hours = 20;
  s.simulation.others_share = 0.15;
  std::printf(
      "A GPU fails every %.0f h and is back after %.0f h, a job loses its worker every %.0f h, "
      "and processes outside hold memory of %.0f %% of the GPUs. ",
      s.simulation.device_mtbf_hours, s.simulation.device_repair_hours,
      s.simulation.worker_mtbf_hours, 100 * s.simulation.others_share);
  compare(s);
}

void table_large() {
  std::printf("\n## 10,000 GPUs\n\n");
  Scenario s = scenario_of(10'000, 100'000, TraceShape::kHelios);
  s.trace.owners = 400;
  compare(s);
}

/// All jobs arrive at the same time, which makes the longest queue.
void table_crowd() {
  std::printf("\n## Time of a decision: 100,000 jobs that wait for 10,000 GPUs\n\n");
  Scenario s = scenario_of(10'000, 115'000, TraceShape::kHelios);
  s.trace.owners = 400;
  s.trace.load = 400;
  s.trace.cancel_share = 0;
  s.simulation.others_share = 0;
  s.simulation.until_event = 200'000;
  print_trace(s);
  std::printf("The first %lld events.\n", static_cast<long long>(s.simulation.until_event));
  std::vector<Results> all;
  for (const Contender& contender : contenders()) all.push_back(run(s, contender));
  print_decisions(all);
  for (const Results& r : all) print_violations(r);
}

/// Simulates 1,000 random jobs, packed as tightly as decide() allows.
void table_packed() {
  std::printf("\n## 1,000 random jobs, packed\n\n");
  std::printf(
      "Bytes from 0.25 GiB to nearly all of a GPU, all at once, on 8 GPUs of 80 GiB with 8 slots "
      "each, no job slowed by another. `bytes` counts starts beyond a device's memory, `first` "
      "those that were refused "
      "although they fit.\n\n| seed | work per GPU time | most jobs on a GPU | makespan | against "
      "whole GPUs | bytes | first | other |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | "
      "---: |\n");
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Scenario s = scenario_of(8, 1'000, TraceShape::kPai);
    s.cluster.models = {{"H100", 80 * kGiB, 1, 1}};
    s.cluster.gpu_slots = 8;
    s.trace.seed = seed;
    s.trace.load = 1000;
    s.trace.forecast_spread = 0;
    s.trace.early_ends = false;
    s.trace.urgent_share = s.trace.auto_share = 0;
    s.simulation = {};
    s.simulation.strict = true;
    s.simulation.physics.interference = false;
    s.trainyard.half_life_us = 0;
    Scenario plain = s;
    plain.simulation.strict = false;  // this policy leaves room that other jobs could use
    const Results whole = run(plain, contender("priority"));
    const Results r = run(s, contender("trainyard"));
    const auto bytes = static_cast<long>(r.count("bytes"));
    const auto first = static_cast<long>(r.count("first"));
    std::printf("| %llu | %.3f | %d | %.1f h | %.2fx shorter | %ld | %ld | %ld |\n",
                static_cast<unsigned long long>(seed), r.work_share, r.jobs_on_gpu_max,
                r.makespan_hours, whole.makespan_hours / r.makespan_hours, bytes, first,
                static_cast<long>(r.violation_count()) - bytes - first);
    print_violations(r);
  }
  std::fflush(stdout);
}

struct Table {
  const char* name;
  void (*print)();
};
constexpr std::array<Table, 7> kTables = {{{"small", table_small},
                                           {"packed", table_packed},
                                           {"shapes", table_shapes},
                                           {"spread", table_spread},
                                           {"trouble", table_trouble},
                                           {"large", table_large},
                                           {"crowd", table_crowd}}};

int fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return 2;
}

int run_one(const std::vector<std::string>& arguments) {
  Scenario s;
  std::string policy = "trainyard", invariant;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--strict") {
      s.simulation.strict = true;
      s.simulation.physics.interference = false;
      s.trace.early_ends = false;
      s.trace.forecast_spread = 0;
      s.trainyard.half_life_us = 0;
      continue;
    }
    if (name == "--equal") {
      s.cluster.models = {{"H100", 80 * kGiB, 1, 1}};
      continue;
    }
    if (name == "--no-preemption") {
      s.trainyard.preemption = false;
      continue;
    }
    if (i + 1 == arguments.size()) return fail(name + ": expected a value");
    const std::string& text = arguments[++i];
    const double value = std::atof(text.c_str());
    const auto whole = static_cast<int64_t>(value);
    if (name == "--gpus")
      s.cluster.gpus = static_cast<int>(whole);
    else if (name == "--jobs")
      s.trace.jobs = static_cast<int>(whole);
    else if (name == "--owners")
      s.trace.owners = static_cast<int>(whole);
    else if (name == "--seed")
      s.trace.seed = s.simulation.seed = static_cast<uint64_t>(whole);
    else if (name == "--load")
      s.trace.load = value;
    else if (name == "--spread")
      s.trace.forecast_spread = value;
    else if (name == "--mtbf")
      s.simulation.device_mtbf_hours = value;
    else if (name == "--losses")
      s.simulation.worker_mtbf_hours = value;
    else if (name == "--others")
      s.simulation.others_share = value;
    else if (name == "--half-life")
      s.trainyard.half_life_us = whole * kHourUs;
    else if (name == "--starvation")
      s.simulation.starvation_us = whole * kHourUs;
    else if (name == "--until-event")
      s.simulation.until_event = whole;
    else if (name == "--policy")
      policy = text;
    else if (name == "--shrink")
      invariant = text;
    else if (name == "--shape")
      s.trace.shape = text == "pai"      ? TraceShape::kPai
                      : text == "philly" ? TraceShape::kPhilly
                                         : TraceShape::kHelios;
    else
      return fail(name + " is unknown");
  }
  const auto found = std::ranges::find(contenders(), policy, &Contender::name);
  if (found == contenders().end())
    return fail("--policy: expected fifo, priority, easy, alone, trainyard or gangs-alone");
  if (found->slots > 0) s.cluster.gpu_slots = found->slots;
  const Cluster cluster = make_cluster(s.cluster);
  std::vector<TraceJob> jobs = jobs_for(*found, s.trace, cluster);
  s.trainyard.forecast_spread = s.trace.forecast_spread;
  const auto make = [&](const World& w) { return found->make(w, s.trainyard); };
  if (!invariant.empty()) {
    jobs = shrink(cluster, jobs, s.simulation, make, invariant);
    for (const TraceJob& j : jobs) std::printf("%s\n", describe(j).c_str());
  }
  Simulation simulation(cluster, jobs, s.simulation);
  const auto made = make(simulation.world());
  const Results r = simulation.run(*made);
  print_trace(s);
  if (r.waits.contains("all")) print_summary({r}), print_decisions({r});
  std::printf("\n%s", simulation.describe().c_str());
  return r.violations.empty() ? 0 : 1;
}

/// Measures a scheduling pass over `attempts` attempts by Slurm's commands, in milliseconds of wall
/// time. The fake squeue prints the real output and takes no time for it.
double query_by_commands(const std::filesystem::path& folder, int attempts) {
  namespace fs = std::filesystem;
  fs::create_directories(folder);
  const auto write = [&](const char* name, const std::string& body) {
    std::ofstream(folder / name) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(folder / name, fs::perms::owner_all);
  };
  const auto padded = [](std::string text, size_t width) {
    text.resize(width, ' ');
    return text + '\x1f';
  };
  const bool by_name = attempts <= 500;  // with few attempts, squeue gets other column widths
  std::vector<server::PlacementHandle> handles;
  std::ofstream all(folder / "all");
  for (int i = 0; i < attempts; ++i) {
    handles.push_back(
        {std::to_string(i + 1), "ty-sim0-" + std::string(32, 'x') + "-" + std::to_string(i)});
    all << padded(handles.back().id, 20) << padded(handles.back().name, by_name ? 256 : 50)
        << padded("RUNNING", 24) << padded("0", 12) << padded("1795790378", 24)
        << padded("n" + std::to_string(i), by_name ? 256 : 64) << padded("None", 64) << "\n";
  }
  all.close();
  write("squeue", "exec cat " + folder.string() + "/all");
  write("scontrol", "echo 'ClusterName = sim'");
  server::SlurmProfile profile;
  profile.name = "sim";
  profile.commands = folder.string();
  profile.worker = profile.cache = "/x";
  server::SlurmPlacement placement(profile);
  double best_ms = 0;
  for (int i = 0; i < 5; ++i) {
    const int64_t begin = system_clock().steady_us();
    const auto seen = placement.observe(handles);
    const double ms = static_cast<double>(system_clock().steady_us() - begin) / 1e3;
    if (!seen.ok() || std::ssize(*seen) != attempts) return -1;
    best_ms = i == 0 ? ms : std::min(best_ms, ms);
  }
  return best_ms;
}

/// Simulates a cluster of some nodes for some hours, with its store in a folder on the disk that is
/// to be measured.
int run_cluster(const std::vector<std::string>& arguments) {
  ClusterDayOptions options;
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    const double value = std::atof(arguments[i + 1].c_str());
    if (name == "--nodes")
      options.nodes = static_cast<int>(value);
    else if (name == "--hours")
      options.hours = value;
    else if (name == "--jobs-per-node")
      options.jobs_per_node_day = value;
    else if (name == "--backlog")
      options.backlog = static_cast<int>(value);
    else if (name == "--waiting-max")
      options.waiting_max = static_cast<int32_t>(value);
    else if (name == "--folder")
      options.folder = arguments[i + 1];
    else
      return fail(name + " is unknown");
  }
  if (arguments.size() % 2 != 0 || options.folder.empty()) {
    return fail(
        "cluster --folder EMPTY [--nodes N] [--hours H] [--jobs-per-node N] [--backlog N] "
        "[--waiting-max N]");
  }
  spdlog::set_level(spdlog::level::off);
  const double command_ms = query_by_commands(options.folder / "commands", options.nodes);
  const ClusterDay day = simulate_cluster_day(options);
  const double seconds = day.hours * 3600;
  const auto spread = [](const char* what, const Spread& s) {
    std::printf("  %-34s %8lld times  p50 %8.0f us  p99 %8.0f us  most %8.0f us\n", what,
                static_cast<long long>(s.count), s.p50, s.p99, s.most);
  };
  std::printf(
      "%d nodes, %.1f h: %lld jobs submitted, %lld attempts, %lld done, %lld nodes failed, at most "
      "%lld "
      "in the cluster and %lld waiting\n",
      options.nodes, day.hours, static_cast<long long>(day.submitted),
      static_cast<long long>(day.attempts), static_cast<long long>(day.succeeded),
      static_cast<long long>(day.node_failures), static_cast<long long>(day.live_most),
      static_cast<long long>(day.waiting_most));
  spread("decide, CPU", day.decide_us);
  spread("a look at the cluster, CPU", day.query_us);
  spread("why one job waits, CPU", day.why_us);
  spread("a commit, wall", day.commit_us);
  const double query_share = day.query_us.sum / 1e6 / seconds;
  std::printf("  a job in all                       %.2f ms of CPU, %.1f commits\n",
              day.job_us.sum / 1e3 / static_cast<double>(std::max<int64_t>(1, day.attempts)),
              static_cast<double>(day.commit_us.count) /
                  static_cast<double>(std::max<int64_t>(1, day.attempts)));
  std::printf("  of a core: decisions %.4f, looks %.4f, jobs %.4f\n",
              day.decide_us.sum / 1e6 / seconds, query_share, day.job_us.sum / 1e6 / seconds);
  std::printf(
      "  squeue prints %.2f MB a look; the store has %.1f MB, %.1f MB were written; memory %.1f "
      "MB\n",
      static_cast<double>(day.squeue_bytes_query) / 1e6, static_cast<double>(day.store_bytes) / 1e6,
      static_cast<double>(day.written_bytes) / 1e6, static_cast<double>(day.rss_bytes) / 1e6);
  std::printf("  a look by commands that answer at once takes %.1f ms\n", command_ms);
  for (const std::string& text : day.violations) std::printf("  violation: %s\n", text.c_str());
  return day.violations.empty() ? 0 : 1;
}

int run_tables(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (std::ranges::find(kTables, name, [](const Table& t) { return std::string(t.name); }) ==
        kTables.end()) {
      return fail("table " + name + " is unknown");
    }
  }
  for (const Table& table : kTables) {
    if (names.empty() || std::ranges::find(names, table.name) != names.end()) table.print();
  }
  return 0;
}

}  // namespace
}  // namespace trainyard::sim

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string verb = arguments.empty() ? "table" : arguments.front();
  if (!arguments.empty()) arguments.erase(arguments.begin());
  if (verb == "run") return trainyard::sim::run_one(arguments);
  if (verb == "table") return trainyard::sim::run_tables(arguments);
  if (verb == "cluster") return trainyard::sim::run_cluster(arguments);
  return trainyard::sim::fail(verb + ": expected run, table or cluster");
}
