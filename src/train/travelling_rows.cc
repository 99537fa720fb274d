#include "src/train/travelling_rows.h"

#include <string>

#include "src/base/check.h"

namespace trainyard {

TravellingRows::TravellingRows(Backend& backend, const TravelSource& source)
    : backend_(backend),
      plan_(source.plan),
      memory_(static_cast<std::byte*>(backend.allocate(source.plan.bytes)), Release{backend}),
      layout_(source.plan.form.layout) {
  const auto bring = [&](int64_t offset, std::span<const float> values) {
    if (values.empty()) return;
    backend_.copy_to_device(at(offset), values.data(), std::ssize(std::as_bytes(values)));
  };
  bring(plan_.table_at, held_table(plan_.form, source.transform));
  bring(plan_.fills_at, held_fills(plan_.form, source.transform, source.mean));
  layout_.rows = at(0);
  layout_.table = reinterpret_cast<const float*>(at(plan_.table_at));
  layout_.fills = reinterpret_cast<const float*>(at(plan_.fills_at));
}

void TravellingRows::gather(std::span<const kernels::HeldSample> samples,
                            std::span<const std::byte> rows, void* input, void* target) {
  TRAINYARD_CHECK(
      std::ssize(samples) == plan_.form.rows,
      std::to_string(samples.size()) + " samples, expected " + std::to_string(plan_.form.rows));
  TRAINYARD_CHECK(std::ssize(rows) == plan_.form.data_bytes(),
                  "rows of " + std::to_string(rows.size()) + " bytes, expected " +
                      std::to_string(plan_.form.data_bytes()));
  auto* const placed = reinterpret_cast<kernels::HeldSample*>(at(plan_.samples_at));
  backend_.copy_to_device(at(0), rows.data(), std::ssize(rows));
  backend_.copy_to_device(placed, samples.data(), std::ssize(std::as_bytes(samples)));
  backend_.gather_rows(layout_, placed, std::ssize(samples), input, target, {});
}

}  // namespace trainyard
