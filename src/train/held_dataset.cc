#include "src/train/held_dataset.h"

#include "src/base/check.h"

namespace trainyard {

HeldDataset::HeldDataset(Backend& backend, const HeldSource& source)
    : backend_(backend), memory_(backend, source.plan.bytes), layout_(source.plan.form.layout) {
  const HeldPlan& plan = source.plan;
  int64_t brought = 0;
  visit_held_rows(plan.form, source.transform, source.partition,
                  [&](std::span<const std::byte> part) {
                    TRAINYARD_CHECK(brought + std::ssize(part) <= plan.form.data_bytes(),
                                    "more rows than were planned with");
                    bring(brought, part);
                    brought += std::ssize(part);
                  });
  const std::vector<float> table = held_table(plan.form, source.transform);
  const std::vector<float> fills = held_fills(plan.form, source.transform, source.mean);
  if (!table.empty()) bring(plan.table_at, std::as_bytes(std::span(table)));
  if (!fills.empty()) bring(plan.fills_at, std::as_bytes(std::span(fills)));
  layout_.rows = at(0);
  layout_.table = reinterpret_cast<const float*>(at(plan.table_at));
  layout_.fills = reinterpret_cast<const float*>(at(plan.fills_at));
}

void HeldDataset::bring(int64_t offset, std::span<const std::byte> bytes) {
  backend_.copy_to_device(at(offset), bytes.data(), std::ssize(bytes));
}

}  // namespace trainyard
