#include "src/train/travelling_rows.h"

#include <string>

#include "src/base/check.h"

namespace trainyard {

TravellingRows::TravellingRows(Backend& backend, const TravelSource& source)
    : backend_(backend),
      plan_(source.plan),
      memory_(backend, source.plan.bytes),
      layout_(
          bring_conversion(backend, memory_.get(), source.plan, source.transform, source.mean)) {}

void TravellingRows::gather(std::span<const kernels::HeldSample> samples,
                            std::span<const std::byte> rows, void* input, void* target) {
  TRAINYARD_CHECK(
      std::ssize(samples) == plan_.form.rows,
      std::to_string(samples.size()) + " samples, expected " + std::to_string(plan_.form.rows));
  TRAINYARD_CHECK(std::ssize(rows) == plan_.form.data_bytes(),
                  "rows of " + std::to_string(rows.size()) + " bytes, expected " +
                      std::to_string(plan_.form.data_bytes()));
  auto* const placed = reinterpret_cast<kernels::HeldSample*>(memory_.get() + plan_.samples_at);
  backend_.copy_to_device(memory_.get(), rows.data(), std::ssize(rows));
  backend_.copy_to_device(placed, samples.data(), std::ssize(std::as_bytes(samples)));
  backend_.gather_rows(layout_, placed, std::ssize(samples), input, target, {});
}

}  // namespace trainyard
