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

std::array<HostPiece, 2> TravellingRows::pieces(std::span<const kernels::HeldSample> samples,
                                                std::span<const std::byte> rows) const {
  TRAINYARD_CHECK(
      std::ssize(samples) == plan_.form.rows,
      std::to_string(samples.size()) + " samples, expected " + std::to_string(plan_.form.rows));
  TRAINYARD_CHECK(std::ssize(rows) == plan_.form.data_bytes(),
                  "rows of " + std::to_string(rows.size()) + " bytes, expected " +
                      std::to_string(plan_.form.data_bytes()));
  return {HostPiece{memory_.get(), rows.data(), std::ssize(rows)},
          HostPiece{memory_.get() + plan_.samples_at, samples.data(),
                    std::ssize(std::as_bytes(samples))}};
}

void TravellingRows::gather(void* input, void* target) {
  const auto* const samples =
      reinterpret_cast<const kernels::HeldSample*>(memory_.get() + plan_.samples_at);
  backend_.gather_rows(layout_, samples, plan_.form.rows, input, target, {});
}

}  // namespace trainyard
