#include "src/planning/run_work.h"

#include <algorithm>
#include <vector>

namespace trainyard {
namespace {

int64_t quotient_up(int64_t a, int64_t b) { return b > 0 ? (a + b - 1) / b : 0; }

/// Returns the loader's work for a row. It is empty if the rows are resident on a GPU, and for
/// augmented and tokenized rows, whose time is not measured.
RowWork row_work(const RunShape& shape, const Recipe& recipe, const DatasetSchema& schema) {
  if (shape.resident.has_value() && shape.traits.processor == Processor::kGpu) return {};
  if (!recipe.augmentation.empty()) return {};
  const ModelInterface& interface = shape.objective.interface;
  if (interface.vocabulary > 0) return {};
  const auto numbers = static_cast<double>(interface.input.elements());
  if (schema.kind == DatasetSchema::Kind::kImage) return {std::string(kImageRowOp), numbers};
  return {std::string(kTableRowOp), numbers};
}

void add_exchanges(const std::vector<PlannedExchange>& exchanges, StepWork& work) {
  for (const PlannedExchange& e : exchanges) {
    const auto share = static_cast<double>(e.sent_bytes) / static_cast<double>(e.count);
    const auto add = [&](LinkWork& link, int64_t count) {
      link.exchanges += static_cast<double>(count);
      link.bytes += share * static_cast<double>(count);
    };
    add(work.sent_overlapped, e.overlapped_count);
    add(work.sent_exposed, e.count - e.overlapped_count);
  }
}

}  // namespace

RunWork run_work(const RunPrograms& programs, const RunShape& shape, const Recipe& recipe,
                 const DatasetSchema& schema, const RunPlan& plan) {
  RunWork work;
  const BoundProgram& train = programs.train;
  std::vector<ProgramRuns> step = {{&train.program, static_cast<double>(shape.micro_batches)}};
  work.nodes = std::ssize(train.program.order);
  for (const auto* other : {&programs.update, &programs.average}) {
    if (!other->has_value()) continue;
    step.push_back({&(*other)->program, 1});
    work.nodes += std::ssize((*other)->program.order);
  }
  const auto bytes_of = [&](TensorId id) {
    return id == kNoTensor ? int64_t{0} : train.program.graph.tensor(id).type.bytes();
  };
  const Processor processor = shape.traits.processor;
  const auto input_bytes =
      static_cast<double>((bytes_of(train.input) + bytes_of(train.target)) * shape.micro_batches);
  work.step = step_work(step, input_bytes, processor);
  add_exchanges(plan.exchanges, work.step);
  work.row = row_work(shape, recipe, schema);
  work.batch_size = recipe.batch_size;
  work.steps = shape.steps_total;
  if (programs.evaluate.has_value()) {
    const Program& evaluate = programs.evaluate->program;
    work.nodes += std::ssize(evaluate.order);
    work.evaluation =
        step_work({{&evaluate, 1}},
                  static_cast<double>(evaluate.graph.tensor(programs.evaluate->input).type.bytes()),
                  processor);
    add_exchanges(plan.evaluation_exchanges, work.evaluation);
    const int64_t rows_at_once = shape.evaluation_batch * shape.ranks;
    const int64_t every =
        recipe.evaluate_every_steps > 0 ? recipe.evaluate_every_steps : shape.steps_per_epoch;
    if (shape.validation_rows > 0) {
      work.evaluations = quotient_up(shape.steps_total, every);  // always one after the last step
      work.evaluation_batches = quotient_up(shape.validation_rows, rows_at_once);
    }
    work.last_evaluation_batches = quotient_up(shape.test_rows, rows_at_once);
  }
  if (recipe.checkpoint_every_steps > 0) {
    work.checkpoints = shape.steps_total / recipe.checkpoint_every_steps;
  }
  work.checkpoint_bytes = static_cast<double>(plan.checkpoints.size_bytes);
  return work;
}

}  // namespace trainyard
