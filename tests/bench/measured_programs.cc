#include "tests/bench/measured_programs.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace trainyard::bench {
namespace {

constexpr std::array<std::string_view, 4> kHeldOut = {"gpt2_small:1024", "resnet50:224",
                                                      "vit_base:224", "lenet5"};

std::vector<std::pair<double, int64_t>> uses_of(const nlohmann::json& list) {
  std::vector<std::pair<double, int64_t>> uses;
  for (const auto& use : list) uses.emplace_back(use.at(0).get<double>(), use.at(1).get<int64_t>());
  return uses;
}

MeasuredProgram program_of(const nlohmann::json& j) {
  MeasuredProgram p;
  j.at("model").get_to(p.model);
  j.at("precision").get_to(p.precision);
  j.at("batch").get_to(p.batch);
  j.at("ms").get_to(p.ms);
  p.timed_us = uses_of(j.at("timed_us"));
  p.alike_us = uses_of(j.at("alike_us"));
  j.at("rated_us").get_to(p.rated_us);
  for (const auto& tiles : j.at("engine_70")) {
    p.engine_70.push_back({tiles.at("gflop_by_share").get<double>(),
                           tiles.at("bytes").get<double>(), tiles.at("count").get<int64_t>()});
  }
  j.at("bytes").get_to(p.bytes);
  j.at("waits").get_to(p.waits);
  j.at("instructions_us").get_to(p.instructions_us);
  j.at("launches").get_to(p.launches);
  j.at("own_attention_flop").get_to(p.own_attention_flop);
  j.at("own_attention_grad_flop").get_to(p.own_attention_grad_flop);
  j.at("library_attention_flop").get_to(p.library_attention_flop);
  j.at("library_attention_plans").get_to(p.library_attention_plans);
  return p;
}

}  // namespace

bool MeasuredProgram::is_held_out() const {
  return std::ranges::find(kHeldOut, model) != kHeldOut.end();
}

std::vector<MeasuredProgram> measured_programs() {
  const std::filesystem::path file = std::filesystem::path(TRAINYARD_SOURCE_DIR) /
                                     "tests/bench/results/gpu_h100_2026-11-22/programs.json";
  std::ifstream in(file);
  const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) throw std::runtime_error(file.string() + ": not a list of programs");
  std::vector<MeasuredProgram> programs;
  for (const auto& program : json) programs.push_back(program_of(program));
  return programs;
}

double predict_ms(const MeasuredProgram& p, const Facts& f) {
  double us = f.outside_us.value + p.rated_us + p.instructions_us;
  for (const auto* uses : {&p.timed_us, &p.alike_us}) {
    for (const auto& [timed, count] : *uses) {
      us += static_cast<double>(count) *
            std::max(timed - f.measuring_us.value, f.submission_us.value);
    }
  }
  for (const MeasuredProgram::Tiles& t : p.engine_70) {
    us += static_cast<double>(t.count) *
          (f.submission_us.value + 1e6 * std::max(t.gflop_by_share * 1e9 / f.engine_70_flops.value,
                                                  t.bytes / f.bandwidth.value));
  }
  us += p.waits * f.latency_us.value + 1e6 * p.bytes / f.bandwidth.value;
  us += static_cast<double>(p.launches) * f.submission_us.value;
  us += 1e6 * (p.own_attention_flop / f.own_attention.value +
               p.own_attention_grad_flop / f.own_attention_grad.value +
               p.library_attention_flop / f.library_attention.value);
  us += static_cast<double>(p.library_attention_plans) * f.library_attention_us.value;
  return us * 1e-3;
}

std::vector<FittedConstant> fitted_constants() {
  return {{"submission_us", {&Facts::submission_us}},
          {"bandwidth", {&Facts::bandwidth}},
          {"own_attention", {&Facts::own_attention, &Facts::own_attention_grad}},
          {"library_attention", {&Facts::library_attention}},
          {"library_attention_us", {&Facts::library_attention_us}},
          {"engine_70_flops", {&Facts::engine_70_flops}}};
}

double fit_error(const std::vector<MeasuredProgram>& programs, const Facts& facts) {
  double error = 0;
  for (const MeasuredProgram& p : programs) {
    if (p.is_held_out() || p.ms == 0) continue;
    const double off = predict_ms(p, facts) / p.ms - 1;
    error += off * off;
  }
  return error;
}

}  // namespace trainyard::bench
