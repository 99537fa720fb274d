#include "src/train/held_dataset.h"

#include "src/base/check.h"

namespace trainyard {

kernels::HeldRows bring_conversion(Backend& backend, std::byte* memory, const HeldPlan& plan,
                                   const RowTransform& transform, const std::vector<float>& mean) {
  const auto bring = [&](int64_t offset, const std::vector<float>& values) {
    if (values.empty()) return;
    backend.copy_to_device(memory + offset, values.data(),
                           std::ssize(std::as_bytes(std::span(values))));
  };
  bring(plan.table_at, held_table(plan.form, transform));
  bring(plan.fills_at, held_fills(plan.form, transform, mean));
  kernels::HeldRows layout = plan.form.layout;
  layout.rows = memory;
  layout.table = reinterpret_cast<const float*>(memory + plan.table_at);
  layout.fills = reinterpret_cast<const float*>(memory + plan.fills_at);
  return layout;
}

HeldDataset::HeldDataset(Backend& backend, const HeldSource& source)
    : backend_(backend),
      memory_(backend, source.plan.bytes),
      layout_(
          bring_conversion(backend, memory_.get(), source.plan, source.transform, source.mean)) {
  const HeldPlan& plan = source.plan;
  int64_t brought = 0;
  visit_held_rows(plan.form, source.transform, source.partition,
                  [&](std::span<const std::byte> part) {
                    TRAINYARD_CHECK(brought + std::ssize(part) <= plan.form.data_bytes(),
                                    "more rows than were planned with");
                    backend_.copy_to_device(memory_.get() + brought, part.data(), std::ssize(part));
                    brought += std::ssize(part);
                  });
}

}  // namespace trainyard
