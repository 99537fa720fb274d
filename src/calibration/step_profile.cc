#include "src/calibration/step_profile.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "src/data/load/packing.h"
#include "src/data/load/split.h"
#include "src/planning/programs.h"
#include "src/planning/step_slots.h"
#include "src/train/loop.h"

namespace trainyard {
namespace {

using Steady = std::chrono::steady_clock;

// The first step submits its work, the second records it, the third is the first replay.
constexpr int64_t kWarmSteps = 3;
constexpr int64_t kStepByStep = 1;

double seconds_between(Steady::time_point from, Steady::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Profiling {
 public:
  Profiling(Session& session, ProfilingBackend& backend,
            const std::function<Session::StepInputs()>& next, const ProfileOptions& options,
            const std::stop_token& stop)
      : session_(session), backend_(backend), next_(next), options_(options), stop_(stop) {}

  Result<StepProfile> run() {
    if (Status s = run_as_in_a_job(kWarmSteps, kWarmSteps, kStepByStep); !s.ok()) {
      return std::move(s).error();
    }
    const int64_t together = session_.together(kStepsTogetherMax);
    if (together > 1) {
      if (Status s = run_as_in_a_job(together, together, together); !s.ok()) {
        return std::move(s).error();
      }
    }
    if (Status s = run_as_in_a_job(options_.steps_min, options_.steps_max, together); !s.ok()) {
      return std::move(s).error();
    }
    if (Status s = run_by_nodes(); !s.ok()) return std::move(s).error();
    profile_.backend = backend_.name();
    profile_.peak = backend_.peak();
    return std::move(profile_);
  }

 private:
  Status stopped() const {
    if (!stop_.stop_requested()) return {};
    return make_error(ErrorCode::kCancelled, "STOPPED", "stopped while it was timed");
  }
  bool is_enough(int64_t steps, int64_t least, int64_t most, Steady::time_point since) const {
    return steps >= most ||
           (steps >= least && seconds_between(since, Steady::now()) >= options_.seconds);
  }

  /// Runs steps as a job does: `together` steps are submitted as one replay, while the previous
  /// ones are still computing.
  Status run_as_in_a_job(int64_t least, int64_t most, int64_t together) {
    const auto begin = Steady::now();
    const int64_t ahead = session_.runs_ahead() ? together : 0;
    int64_t begun = 0, finished = 0;
    double waited = 0;
    const auto next = [&] {
      const auto wait = Steady::now();
      const Session::StepInputs inputs = next_();
      waited += seconds_between(wait, Steady::now());
      return inputs;
    };
    while (!is_enough(begun, least, most, begin)) {
      if (Status s = stopped(); !s.ok()) return s;
      session_.begin_steps(together, next);
      begun += together;
      for (; begun - finished > ahead; ++finished) session_.finish_step();
    }
    for (; finished < begun; ++finished) session_.finish_step();
    profile_.step_s = seconds_between(begin, Steady::now()) / static_cast<double>(begun);
    profile_.data_wait_s = waited / static_cast<double>(begun);
    return {};
  }

  Status run_by_nodes() {
    const auto begin = Steady::now();
    std::vector<double> steps;
    std::map<size_t, std::vector<double>> seconds;  // node -> its time in each step
    std::map<size_t, int64_t> calls;
    while (!is_enough(std::ssize(steps), options_.steps_min, options_.steps_max, begin)) {
      if (Status s = stopped(); !s.ok()) return s;
      StepTrace trace;
      const auto now = [&] { return seconds_between(begin, Steady::now()); };
      trace.wait_s = now();
      const Session::StepInputs inputs = next_();
      backend_.begin();
      trace.submit_s = now();
      session_.begin_step(inputs);
      trace.submitted_s = now();
      session_.finish_step();
      trace.done_s = now();
      trace.runs = backend_.end();
      // The device's clock starts at the step's first node, so its position on the host's clock is
      // kept.
      trace.first_node_s = seconds_between(begin, backend_.first_point());
      steps.push_back(trace.done_s - trace.submit_s);
      std::map<size_t, double> sums;
      calls.clear();
      for (const NodeRun& run : trace.runs) {
        sums[run.node] += run.end_s - run.begin_s;
        ++calls[run.node];
      }
      for (const auto& [node, sum] : sums) seconds[node].push_back(sum);
      if (std::ssize(profile_.traces) < options_.trace_steps) {
        profile_.traces.push_back(std::move(trace));
      }
    }
    profile_.steps = std::ssize(steps);
    profile_.timed_step_s = median(std::move(steps));
    std::map<size_t, size_t> positions;
    for (auto& [node, values] : seconds) {
      positions[node] = profile_.nodes.size();
      profile_.nodes.push_back(
          {backend_.nodes().at(node), calls.at(node), median(std::move(values))});
    }
    for (StepTrace& trace : profile_.traces) {
      for (NodeRun& run : trace.runs) run.node = positions.at(run.node);
    }
    return {};
  }

  Session& session_;
  ProfilingBackend& backend_;
  const std::function<Session::StepInputs()>& next_;
  const ProfileOptions& options_;
  const std::stop_token& stop_;
  StepProfile profile_;
};

}  // namespace

double StepProfile::node_seconds() const {
  double sum = 0;
  for (const NodeProfile& node : nodes) sum += node.seconds;
  return sum;
}

int64_t StepProfile::flops() const {
  int64_t sum = 0;
  for (const NodeProfile& node : nodes) sum += node.work.cost.flops * node.calls;
  return sum;
}

Result<StepProfile> profile_steps(Session& session, ProfilingBackend& backend,
                                  const std::function<Session::StepInputs()>& next,
                                  const ProfileOptions& options, const std::stop_token& stop) {
  return Profiling(session, backend, next, options, stop).run();
}

Result<StepProfile> profile_job(const TrainJob& job, Backend& backend,
                                const ProfileOptions& options, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(Dataset data, Dataset::open(job.dataset, /*verify_digest=*/false));
  const DatasetSchema& schema = data.schema();
  const Recipe& recipe = job.recipe;
  ASSIGN_OR_RETURN(const RunShape shape,
                   check_recipe(recipe, job.model, schema, 1, backend.traits()));
  ASSIGN_OR_RETURN(
      RunPrograms programs,
      compile_step(job.model, recipe, schema.interface(shape.context_length), {}, shape.traits));
  if (Status s = check_kernels(programs, backend); !s.ok()) return std::move(s).error();
  const auto divide = schema.documents ? split_documents : split_dataset;
  const Split split = divide(schema, data.train(), shape.context_length, recipe.split_rule());
  if (schema.documents) data.pack(split.packed, nullptr);
  const Preprocessing preprocessing =
      fit_preprocessing(schema, data.train(), split.train, preprocessing_options(recipe, shape));
  ProfilingBackend timed(backend);
  Session session(std::move(programs), timed, shape.micro_batches);
  session.initialize(recipe.seed);
  const BatchInputs rows{recipe, shape, data, preprocessing, split};
  Loader loader = BatchSource::on_device(rows, backend, session).open(0);
  int64_t step = 0;
  const auto next = [&] {
    const Batch& batch = loader.next();
    const double rate = learning_rate_at(recipe.schedule, recipe.optimizer.learning_rate,
                                         std::min(step, shape.steps_total - 1), shape.steps_total);
    return BatchSource::step_inputs(batch, step++, rate);
  };
  return profile_steps(session, timed, next, options, stop);
}

namespace {

using OrderedJson = nlohmann::ordered_json;

/// Sums over the nodes of an op (or over one node), for all their runs in one step.
struct Work {
  int64_t nodes = 0, calls = 0, flops = 0, bytes = 0;
  double seconds = 0, least_seconds = 0;

  void add(const NodeProfile& node, const DevicePeak& peak) {
    ++nodes;
    calls += node.calls;
    flops += node.calls * node.work.cost.flops;
    bytes += node.calls * node.work.cost.bytes;
    seconds += node.seconds;
    least_seconds += static_cast<double>(node.calls) * trainyard::least_seconds(node.work, peak);
  }
  void write(OrderedJson& json) const {
    json["calls"] = calls;
    json["seconds"] = seconds;
    json["flops"] = std::to_string(flops);
    json["bytes"] = std::to_string(bytes);
    json["least_seconds"] = least_seconds;
    json["share_of_bound"] = seconds > 0 ? least_seconds / seconds : 0;
  }
};

}  // namespace

std::string profile_json(const StepProfile& profile, int64_t batch_size) {
  std::map<std::string_view, Work> by_op;
  OrderedJson nodes = OrderedJson::array(), ops = OrderedJson::array();
  for (const NodeProfile& node : profile.nodes) {
    by_op[node.work.op].add(node, profile.peak);
    Work work;
    work.add(node, profile.peak);
    nodes.push_back(
        {{"name", node.work.name}, {"op", node.work.op}, {"direction", name_of(node.work.phase)}});
    work.write(nodes.back());
  }
  for (const auto& [op, work] : by_op) {
    ops.push_back({{"op", op}, {"nodes", work.nodes}});
    work.write(ops.back());
  }
  return OrderedJson{{"backend", profile.backend},
                     {"batch_size", std::to_string(batch_size)},
                     {"step_seconds", profile.step_s},
                     {"data_wait_seconds", profile.data_wait_s},
                     {"timed_steps", std::to_string(profile.steps)},
                     {"timed_step_seconds", profile.timed_step_s},
                     {"peak",
                      {{"f32_flops", profile.peak.f32_flops},
                       {"tf32_flops", profile.peak.tf32_flops},
                       {"half_flops", profile.peak.half_flops},
                       {"bytes", profile.peak.bytes},
                       {"source", profile.peak.source}}},
                     {"ops", std::move(ops)},
                     {"nodes", std::move(nodes)}}
      .dump();
}

std::string chrome_trace(const StepProfile& profile) {
  // Format: "Trace Event Format" (Google, 2016): complete events ("X") and the names of rows ("M").
  enum Row { kLoader = 1, kHost = 2, kDevice = 3 };
  OrderedJson events = OrderedJson::array();
  const auto name_row = [&](Row row, const std::string& name) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 1},
                      {"tid", static_cast<int>(row)},
                      {"args", {{"name", name}}}});
  };
  name_row(kLoader, "loader wait");
  name_row(kHost, "host submit");
  name_row(kDevice, profile.backend + " nodes");
  const auto add = [&](Row row, const std::string& name, std::string_view category, double begin_s,
                       double end_s, OrderedJson args) {
    events.push_back({{"name", name},
                      {"cat", category},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", static_cast<int>(row)},
                      {"ts", begin_s * 1e6},
                      {"dur", (end_s - begin_s) * 1e6},
                      {"args", std::move(args)}});
  };
  int64_t step = 0;
  for (const StepTrace& t : profile.traces) {
    const OrderedJson number = {{"step", ++step}};
    add(kLoader, "wait for a batch", "data", t.wait_s, t.submit_s, number);
    add(kHost, "submit", "host", t.submit_s, t.submitted_s, number);
    add(kHost, "wait for results", "host", t.submitted_s, t.done_s, number);
    for (const NodeRun& run : t.runs) {
      const NodeWork& work = profile.nodes.at(run.node).work;
      add(kDevice, work.name, work.op, t.first_node_s + run.begin_s, t.first_node_s + run.end_s,
          {{"step", step},
           {"direction", name_of(work.phase)},
           {"flops", work.cost.flops},
           {"bytes", work.cost.bytes}});
    }
  }
  return OrderedJson{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() + "\n";
}

}  // namespace trainyard
