#include "src/train/held_dataset.h"

#include <string>

#include "src/base/check.h"

namespace trainyard {
namespace {

void bring(Backend& backend, std::byte* to, const std::vector<float>& values) {
  if (values.empty()) return;
  backend.copy_to_device(to, values.data(), std::ssize(std::as_bytes(std::span(values))));
}

}  // namespace

kernels::HeldRows bring_conversion(Backend& backend, std::byte* memory, const HeldPlan& plan,
                                   const RowTransform& transform, const std::vector<float>& mean) {
  bring(backend, memory + plan.table_at, held_table(plan.form, transform));
  bring(backend, memory + plan.fills_at, held_fills(plan.form, transform, mean));
  kernels::HeldRows layout = plan.form.layout;
  layout.rows = memory;
  layout.table = reinterpret_cast<const float*>(memory + plan.table_at);
  layout.fills = reinterpret_cast<const float*>(memory + plan.fills_at);
  return layout;
}

HeldDataset::HeldDataset(Backend& backend, const HeldSource& source)
    : backend_(backend),
      plan_(source.plan),
      memory_(backend, plan_.bytes),
      layout_(bring_conversion(backend, memory_.get(), plan_, source.transform, source.mean)),
      evaluation_(layout_) {
  int64_t brought = 0;
  visit_held_rows(plan_.form, source.transform, source.partition,
                  [&](std::span<const std::byte> part) {
                    TRAINYARD_CHECK(brought + std::ssize(part) <= plan_.form.data_bytes(),
                                    "more rows than were planned with");
                    backend_.copy_to_device(memory_.get() + brought, part.data(), std::ssize(part));
                    brought += std::ssize(part);
                  });
  if (plan_.evaluation_rows == 0 || !layout_.moved) return;
  HeldForm as_it_is = plan_.form;
  as_it_is.layout.moved = evaluation_.moved = false;
  std::byte* const table = memory_.get() + plan_.evaluation_table_at;
  bring(backend_, table, held_table(as_it_is, source.transform));
  evaluation_.table = reinterpret_cast<const float*>(table);
}

void HeldDataset::gather_evaluation(std::span<const kernels::HeldSample> samples, void* input) {
  TRAINYARD_CHECK(std::ssize(samples) == plan_.evaluation_rows,
                  std::to_string(samples.size()) + " samples, expected " +
                      std::to_string(plan_.evaluation_rows));
  auto* const placed =
      reinterpret_cast<kernels::HeldSample*>(memory_.get() + plan_.evaluation_samples_at);
  backend_.copy_to_device(placed, samples.data(), std::ssize(std::as_bytes(samples)));
  backend_.gather_rows(evaluation_, placed, std::ssize(samples), input, nullptr, {});
}

}  // namespace trainyard
