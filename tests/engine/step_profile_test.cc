// The tests catch a profile that omits nodes, includes unrequested timings, or changes results; a
// trace that viewers cannot read.
#include "src/calibration/step_profile.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/job/recipe.h"
#include "src/planning/programs.h"

namespace trainyard {
namespace {

constexpr ProfileOptions kShort = {.steps_min = 2, .steps_max = 2, .seconds = 0, .trace_steps = 2};

/// A small network on arbitrary numbers.
struct Small {
  explicit Small(int64_t accumulate_steps = 1, Precision precision = Precision::kFp32) {
    model.preset = "mlp";
    model.parameters.set("hidden", std::vector<int64_t>{8, 8});
    recipe.batch_size = 4;
    recipe.accumulate_steps = accumulate_steps;
    recipe.precision = precision;
    recipe.optimizer.momentum = 0.9;
    input.assign(4 * 6 * sizeof(float), std::byte{0});
    target.assign(4 * sizeof(int32_t), std::byte{0});
  }
  RunPrograms programs() const {
    return compile_step(model, recipe, {{6}, 0, TargetForm::kClass, 3}).value();
  }
  Session::StepInputs inputs() { return {input, target, step++, 0.1f}; }

  ModelSpec model;
  Recipe recipe;
  std::vector<std::byte> input, target;
  int64_t step = 0;
};

StepProfile profile_of(Small& small) {
  const auto cpu = make_cpu_backend(1);
  ProfilingBackend backend(*cpu);
  Session session(small.programs(), backend, small.recipe.accumulate_steps);
  session.initialize(1);
  return profile_steps(session, backend, [&] { return small.inputs(); }, kShort, {}).value();
}

TEST(StepProfile, HasEveryNodeOnceInOrder) {
  Small small;
  const StepProfile profile = profile_of(small);
  const Program program = small.programs().train.program;
  ASSERT_EQ(profile.nodes.size(), program.order.size());
  for (size_t i = 0; i < profile.nodes.size(); ++i) {
    const Node& node = program.graph.node(program.order[i]);
    EXPECT_EQ(profile.nodes[i].work.name, node.name);
    EXPECT_EQ(profile.nodes[i].work.op, node.op->type());
    EXPECT_EQ(profile.nodes[i].calls, 1);
    EXPECT_GT(profile.nodes[i].seconds, 0);
  }
  EXPECT_EQ(profile.flops(), program.flops);
  EXPECT_EQ(profile.steps, 2);
  EXPECT_GT(profile.step_s, 0);
  EXPECT_GE(profile.timed_step_s, profile.node_seconds() * 0.5) << "medians, of two steps each";
  EXPECT_GT(profile.peak.f32_flops, 0);
  EXPECT_EQ(profile.peak.source, "measured with 1 thread");
}

TEST(StepProfile, CountsTheRunsOfAMicroBatch) {
  Small small(/*accumulate_steps=*/2);
  const StepProfile profile = profile_of(small);
  std::map<Phase, std::set<int64_t>> calls;
  int64_t updates = 0;
  for (const NodeProfile& node : profile.nodes) {
    calls[node.work.phase].insert(node.calls);
    updates += node.work.op == "SgdUpdate" ? node.calls : 0;
  }
  EXPECT_EQ(calls[Phase::kForward], (std::set<int64_t>{2}));
  EXPECT_EQ(updates, 6) << "weights and biases of three layers, once a step";
}

TEST(StepProfile, ChangesNothing) {
  Small plain, timed;
  const auto cpu = make_cpu_backend(1);
  Session session(plain.programs(), *cpu);
  session.initialize(1);
  ProfilingBackend backend(*cpu);
  Session profiled(timed.programs(), backend);
  profiled.initialize(1);
  for (int step = 0; step < 4; ++step) {
    if (step == 2) backend.begin();
    EXPECT_EQ(session.run_step(plain.inputs()).loss, profiled.run_step(timed.inputs()).loss);
    if (step == 2) {
      EXPECT_EQ(backend.end().size(), backend.nodes().size());
    }
  }
}

TEST(StepProfile, StopsOnRequest) {
  Small small;
  const auto cpu = make_cpu_backend(1);
  ProfilingBackend backend(*cpu);
  Session session(small.programs(), backend);
  std::stop_source stop;
  stop.request_stop();
  const auto profile = profile_steps(
      session, backend, [&] { return small.inputs(); }, ProfileOptions(), stop.get_token());
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.error().code, ErrorCode::kCancelled);
}

TEST(StepProfile, LeastTimeIsThatOfTheBottleneck) {
  NodeWork work;
  work.cost = {1000, 100};
  DevicePeak peak;
  EXPECT_EQ(least_seconds(work, peak), 0) << "nothing is known";
  peak.f32_flops = 100;
  EXPECT_EQ(least_seconds(work, peak), 10);
  peak.bytes = 5;
  EXPECT_EQ(least_seconds(work, peak), 20);
  work.multiplies_half = true;
  peak.half_flops = 10;
  EXPECT_EQ(least_seconds(work, peak), 100);
  work.multiplies_half = false;
  work.multiplies_tf32 = true;
  peak.tf32_flops = 40;
  EXPECT_EQ(least_seconds(work, peak), 25);
  peak.tf32_flops = 0;
  peak.f32_flops = 10;
  EXPECT_EQ(least_seconds(work, peak), 100)
      << "a CPU, or a GPU without TF32, computes it as F32, however fast 16 bits are";
}

TEST(StepProfile, ProductsOf16BitsAreMarked) {
  Small small(1, Precision::kBf16);
  bool any = false;
  for (const NodeProfile& node : profile_of(small).nodes) {
    if (node.work.op == "SgdUpdate") {
      EXPECT_FALSE(node.work.multiplies_half);
    }
    any |= node.work.op == "Gemm" && node.work.multiplies_half;
  }
  EXPECT_TRUE(any);
}

TEST(StepProfile, JsonHasEveryNodeAndItsShareOfTheBoundAndTheSumsOfOps) {
  Small small(2);  // with two micro-batches a node runs twice in a step
  const StepProfile profile = profile_of(small);
  const auto json = nlohmann::json::parse(profile_json(profile, 4));
  ASSERT_EQ(json["nodes"].size(), profile.nodes.size());
  std::map<std::string, double> seconds;
  int64_t flops = 0;
  for (size_t i = 0; i < profile.nodes.size(); ++i) {
    const auto& node = json["nodes"][i];
    EXPECT_EQ(node["name"], profile.nodes[i].work.name);
    EXPECT_DOUBLE_EQ(node["share_of_bound"].get<double>() * node["seconds"].get<double>(),
                     node["least_seconds"].get<double>());
    seconds[node["op"]] += node["seconds"].get<double>();
    flops += std::stoll(node["flops"].get<std::string>());
  }
  EXPECT_EQ(flops, profile.flops());
  ASSERT_EQ(json["ops"].size(), seconds.size());
  for (const auto& op : json["ops"]) {
    EXPECT_NEAR(op["seconds"].get<double>(), seconds.at(op["op"]), 1e-9) << op["op"];
  }
}

TEST(StepProfile, TheTraceHasTheFormatOfViewers) {
  Small small;
  const StepProfile profile = profile_of(small);
  const nlohmann::json trace = nlohmann::json::parse(chrome_trace(profile));
  std::map<int, std::string> rows;
  std::map<std::string, int64_t> events;
  std::map<int, double> ends;  // by row
  for (const auto& event : trace.at("traceEvents")) {
    const int row = event.at("tid");
    if (event.at("ph") == "M") {
      EXPECT_EQ(event.at("name"), "thread_name");
      rows[row] = event.at("args").at("name");
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    ++events[rows.at(row)];
    // Events of a row do not overlap.
    const double begin = event.at("ts"), duration = event.at("dur");
    EXPECT_GE(duration, 0);
    EXPECT_GE(begin, ends[row] - 1e-3);
    ends[row] = begin + duration;
  }
  const auto nodes = static_cast<int64_t>(profile.nodes.size());
  EXPECT_EQ(events, (std::map<std::string, int64_t>{
                        {"loader wait", 2}, {"host submit", 4}, {"cpu nodes", 2 * nodes}}));
}

}  // namespace
}  // namespace trainyard
