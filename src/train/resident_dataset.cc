#include "src/train/resident_dataset.h"

#include <string>

#include "src/base/check.h"

namespace trainyard {
namespace {

void bring(Backend& backend, std::byte* to, const std::vector<float>& values) {
  if (values.empty()) return;
  backend.copy_to_device(to, values.data(), std::ssize(std::as_bytes(std::span(values))));
}

}  // namespace

kernels::ResidentRows copy_conversion(Backend& backend, std::byte* memory, const ResidentPlan& plan,
                                      const RowTransform& transform,
                                      const std::vector<float>& mean) {
  bring(backend, memory + plan.table_at, resident_table(plan.form, transform));
  bring(backend, memory + plan.fills_at, resident_fills(plan.form, transform, mean));
  kernels::ResidentRows layout = plan.form.layout;
  layout.rows = memory;
  layout.table = reinterpret_cast<const float*>(memory + plan.table_at);
  layout.fills = reinterpret_cast<const float*>(memory + plan.fills_at);
  return layout;
}

ResidentDataset::ResidentDataset(Backend& backend, const ResidentSource& source)
    : backend_(backend),
      plan_(source.plan),
      memory_(backend, plan_.bytes),
      layout_(copy_conversion(backend, memory_.get(), plan_, source.transform, source.mean)),
      evaluation_(layout_) {
  int64_t brought = 0;
  visit_resident_rows(
      plan_.form, source.transform, source.partition, [&](std::span<const std::byte> part) {
        TRAINYARD_CHECK(brought + std::ssize(part) <= plan_.form.data_bytes(),
                        "more rows than were planned with");
        backend_.copy_to_device(memory_.get() + brought, part.data(), std::ssize(part));
        brought += std::ssize(part);
      });
  if (plan_.evaluation_rows == 0 || !layout_.moved) return;
  ResidentForm as_it_is = plan_.form;
  as_it_is.layout.moved = evaluation_.moved = false;
  std::byte* const table = memory_.get() + plan_.evaluation_table_at;
  bring(backend_, table, resident_table(as_it_is, source.transform));
  evaluation_.table = reinterpret_cast<const float*>(table);
}

void ResidentDataset::gather_evaluation(std::span<const kernels::ResidentSample> samples,
                                        void* input) {
  TRAINYARD_CHECK(std::ssize(samples) == plan_.evaluation_rows,
                  std::to_string(samples.size()) + " samples, expected " +
                      std::to_string(plan_.evaluation_rows));
  auto* const placed =
      reinterpret_cast<kernels::ResidentSample*>(memory_.get() + plan_.evaluation_samples_at);
  backend_.copy_to_device(placed, samples.data(), std::ssize(std::as_bytes(samples)));
  backend_.gather_rows(evaluation_, placed, std::ssize(samples), input, nullptr, {});
}

}  // namespace trainyard
