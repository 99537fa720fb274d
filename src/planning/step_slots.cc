#include "src/planning/step_slots.h"

#include <algorithm>

#include "kernels/alignment.h"
#include "kernels/resident_rows.h"
#include "src/plan/short_step.h"

namespace trainyard {
namespace {

double estimated_seconds(const Program& program) {
  return estimated_gpu_seconds(program.flops, program.bytes, std::ssize(program.order));
}

int64_t count_together(const RunPrograms& programs, int64_t micro_batches, Rank rank) {
  // Each rank must check after every step whether another one stopped (replicated_session.h).
  if (rank.count > 1) return 1;
  double seconds = static_cast<double>(micro_batches) * estimated_seconds(programs.train.program);
  for (const auto* other : {&programs.update, &programs.average}) {
    if (other->has_value()) seconds += estimated_seconds((*other)->program);
  }
  return seconds <= kShortStepSeconds ? kStepsTogetherMax : 1;
}

int64_t padded(int64_t bytes) { return round_up(bytes, kHostAlignment); }

}  // namespace

StepSlots plan_step_slots(const RunPrograms& programs, int64_t micro_batches, Rank rank) {
  const BoundProgram& train = programs.train;
  const Graph& graph = train.program.graph;
  StepSlots slots;
  slots.together = count_together(programs, micro_batches, rank);
  slots.micro_batches = micro_batches;
  slots.rank = rank;
  slots.rows = train.batch_size;
  slots.samples_at = padded(static_cast<int64_t>(sizeof(StepSlots::Scalars)) +
                            micro_batches * static_cast<int64_t>(sizeof(StepSlots::MicroBatch)));
  slots.input_bytes = slots.samples_at + micro_batches * slots.rows *
                                             static_cast<int64_t>(sizeof(kernels::ResidentSample));
  constexpr auto kNumber = static_cast<int64_t>(sizeof(float));
  slots.reads_output = std::ranges::find(graph.outputs(), train.output) != graph.outputs().end();
  slots.output_at = padded(kNumber);
  slots.micro_batch_bytes = slots.output_at;
  if (slots.reads_output) {
    slots.micro_batch_bytes += padded(graph.tensor(train.output).stored_bytes());
  }
  slots.norm_at = micro_batches * slots.micro_batch_bytes;
  slots.scale_at = slots.norm_at + padded(kNumber);
  slots.rate_at = slots.scale_at + padded(kNumber);
  slots.result_bytes = slots.rate_at + padded(kNumber);
  return slots;
}

}  // namespace trainyard
