// Which optimizer and which schedule looks at which field: what the others refuse.
#include <algorithm>

#include "src/base/join.h"
#include "src/optim/optimizer.h"

namespace trainyard {
namespace {

using Names = std::vector<std::string>;

const Names& optimizers() {
  static const Names names = {"sgd", "adam", "adamw", "rmsprop", "lion", "adafactor", "muon"};
  return names;
}

const Names& schedules() {
  static const Names names = {"constant", "step",       "multi_step",  "cosine",
                              "linear",   "polynomial", "exponential", "one_cycle"};
  return names;
}

using Users = std::map<std::string, Names, std::less<>>;

const Users& optimizer_fields() {
  static const Users users = {
      {"momentum", {"sgd", "rmsprop", "muon"}},
      {"nesterov", {"sgd", "muon"}},
      {"beta1", {"adam", "adamw", "lion", "muon"}},
      {"beta2", {"adam", "adamw", "lion", "muon"}},
      {"epsilon", {"adam", "adamw", "rmsprop", "adafactor", "muon"}},
      {"alpha", {"rmsprop"}},
      {"centered", {"rmsprop"}},
      {"beta2_decay", {"adafactor"}},
      {"clip_threshold", {"adafactor"}},
      {"scale_min", {"adafactor"}},
      {"newton_schulz_steps", {"muon"}},
      {"adjust_rate", {"muon"}},
      {"fallback_learning_rate", {"muon"}},
  };
  return users;
}

const Users& schedule_fields() {
  static const Users users = {
      {"step_size", {"step"}},        {"gamma", {"step", "multi_step", "exponential"}},
      {"milestones", {"multi_step"}}, {"min_learning_rate", {"cosine", "linear", "polynomial"}},
      {"power", {"polynomial"}},      {"pct_start", {"one_cycle"}},
      {"div_factor", {"one_cycle"}},  {"final_div_factor", {"one_cycle"}},
  };
  return users;
}

std::string listed(const Users& users, std::string_view field) {
  const auto it = users.find(field);
  return it == users.end() ? "" : joined(it->second);
}

bool uses(const Users& users, std::string_view type, std::string_view field) {
  const auto it = users.find(field);
  return it == users.end() || std::ranges::find(it->second, type) != it->second.end();
}

}  // namespace

std::span<const std::string> optimizer_types() { return optimizers(); }
std::span<const std::string> schedule_types() { return schedules(); }
std::string optimizer_users(std::string_view field) { return listed(optimizer_fields(), field); }
std::string schedule_users(std::string_view field) { return listed(schedule_fields(), field); }
bool optimizer_uses(std::string_view type, std::string_view field) {
  return uses(optimizer_fields(), type, field);
}
bool schedule_uses(std::string_view type, std::string_view field) {
  return uses(schedule_fields(), type, field);
}

OptimizerSpec default_optimizer(std::string_view type) {
  OptimizerSpec spec;
  spec.type = type;
  if (type == "lion") spec.beta2 = 0.99;
  if (type == "adafactor") spec.epsilon = 0x1p-23;  // of float32
  if (type == "muon") {
    spec.momentum = 0.95;
    spec.nesterov = true;
  }
  return spec;
}

}  // namespace trainyard
