// The names of the optimizer and schedule types, and the defaults of an optimizer type.
#include "src/optim/optimizer.h"

namespace trainyard {
namespace {

const FieldNames& names_of(const auto& spec) {
  for (const auto& row : field_rows(spec)) {
    if (row.name == "type") return row.names;
  }
  static const FieldNames none;
  return none;
}

}  // namespace

std::span<const std::string> optimizer_types() { return names_of(OptimizerSpec()); }
std::span<const std::string> schedule_types() { return names_of(ScheduleSpec()); }

OptimizerSpec default_optimizer(std::string_view type) {
  OptimizerSpec spec;
  spec.type = type;
  if (type == "adamw") spec.weight_decay = 0.01;
  if (type == "lion") spec.beta2 = 0.99;
  if (type == "adafactor") spec.epsilon = 0x1p-23;  // machine epsilon of float32
  if (type == "muon") {
    spec.momentum = 0.95;
    spec.nesterov = true;
    spec.weight_decay = 0.1;
  }
  return spec;
}

}  // namespace trainyard
